/* marks.c - bits over bits. */
#include "params/marks.h"

static size_t words_for(size_t n_bits)
{
    return (n_bits + 63) / 64;
}

size_t gwi_marks_bytes(int64_t n_keys)
{
    size_t n = words_for((size_t)n_keys), sum = n;

    while (n > 1)
        sum += n = words_for(n);
    return sum * sizeof(uint64_t);
}

void gwi_marks_init(gwi_marks *marks, int64_t n_keys, void *memory)
{
    _Atomic uint64_t *at = memory;
    size_t n = words_for((size_t)n_keys);

    marks->n_levels = 0;
    for (;;) {
        marks->level[marks->n_levels] = at;
        marks->n_words[marks->n_levels++] = n;
        at += n;
        if (n <= 1)
            break;
        n = words_for(n);
    }
}

/* From below upwards: who takes goes from above downwards, and clears a bit before it looks at what
 * is below.  So whoever clears a bit after we have set it, or found it set, sees what we set below.
 * Sequentially consistent, both ways: otherwise each could miss what the other one does.
 *
 * That a bit is set says nothing of the levels above: who set it may have been stopped just then,
 * or killed.  So we go on to the top, also from level 0, where the latch of the key keeps two from
 * marking it at the same time: with GWI_WORD_MARKED nearly nobody comes with a key that is marked,
 * and to stop there would gain nothing. */
void gwi_marks_add(gwi_marks *marks, int64_t key)
{
    size_t index = (size_t)key;

    for (int l = 0; l < marks->n_levels; l++, index /= 64) {
        _Atomic uint64_t *word = &marks->level[l][index / 64];
        uint64_t bit = UINT64_C(1) << index % 64;
        if (!(atomic_load_explicit(word, memory_order_seq_cst) & bit))
            atomic_fetch_or_explicit(word, bit, memory_order_seq_cst);
    }
}

struct taking {
    size_t from, left; /* the first key; how many more */
    int64_t next;      /* the first that was left; -1: none */
    void (*take)(void *ctx, int64_t key);
    void *ctx;
};

/* What is not before `from`, as long as any may be taken.  What is not taken is put back, and above
 * it as well by the caller, to whom it returns whether there may be any. */
static int take_word(gwi_marks *marks, int l, size_t word, struct taking *t)
{
    size_t first = t->from >> 6 * l; /* of this level */
    uint64_t wanted = ~UINT64_C(0) << (first > word * 64 ? first - word * 64 : 0);
    uint64_t all = atomic_fetch_and_explicit(&marks->level[l][word], ~wanted, memory_order_seq_cst);
    int some_left = (all & ~wanted) != 0;

    for (uint64_t bits = all & wanted; bits != 0; bits &= bits - 1) {
        size_t index = word * 64 + (size_t)__builtin_ctzll(bits);
        if (t->left == 0) {
            atomic_fetch_or_explicit(&marks->level[l][word], bits, memory_order_seq_cst);
            t->next = t->next < 0 ? (int64_t)(index << 6 * l) : t->next;
            return 1;
        }
        if (l == 0) {
            t->take(t->ctx, (int64_t)index);
            t->left--;
        } else if (take_word(marks, l - 1, index, t)) {
            atomic_fetch_or_explicit(&marks->level[l][word], bits & -bits, memory_order_seq_cst);
            some_left = 1;
        }
    }
    return some_left;
}

int64_t gwi_marks_take_some(gwi_marks *marks, int64_t from, size_t most,
                            void (*take)(void *ctx, int64_t key), void *ctx)
{
    struct taking t = {(size_t)from, most, -1, take, ctx};
    int top = marks->n_levels - 1;

    for (size_t w = t.from >> 6 * top >> 6; w < marks->n_words[top]; w++)
        take_word(marks, top, w, &t);
    return t.next;
}

void gwi_marks_take(gwi_marks *marks, void (*take)(void *ctx, int64_t key), void *ctx)
{
    gwi_marks_take_some(marks, 0, SIZE_MAX, take, ctx);
}

int gwi_marks_has(const gwi_marks *marks, int64_t key)
{
    return atomic_load_explicit(&marks->level[0][key / 64], memory_order_seq_cst) >> key % 64 & 1;
}

int gwi_marks_any(const gwi_marks *marks)
{
    int top = marks->n_levels - 1;

    for (size_t w = 0; w < marks->n_words[top]; w++)
        if (atomic_load_explicit(&marks->level[top][w], memory_order_seq_cst) != 0)
            return 1;
    return 0;
}
