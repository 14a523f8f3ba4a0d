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

/* From below upwards: who takes goes from above downwards, and clears a level before it looks at
 * the one below, so what it misses there is marked above again.  Sequentially consistent, both
 * ways. */
void gwi_marks_add(gwi_marks *marks, int64_t key)
{
    size_t index = (size_t)key;

    for (int l = 0; l < marks->n_levels; l++, index /= 64) {
        uint64_t bit = UINT64_C(1) << index % 64;
        /* Who set it before us sees to the levels above. */
        if (atomic_load_explicit(&marks->level[l][index / 64], memory_order_seq_cst) & bit)
            return;
        atomic_fetch_or_explicit(&marks->level[l][index / 64], bit, memory_order_seq_cst);
    }
}

static void take_word(gwi_marks *marks, int l, size_t word, void (*take)(void *, int64_t),
                      void *ctx)
{
    uint64_t bits = atomic_exchange_explicit(&marks->level[l][word], 0, memory_order_seq_cst);

    for (; bits != 0; bits &= bits - 1) {
        size_t index = word * 64 + (size_t)__builtin_ctzll(bits);
        if (l == 0)
            take(ctx, (int64_t)index);
        else
            take_word(marks, l - 1, index, take, ctx);
    }
}

void gwi_marks_take(gwi_marks *marks, void (*take)(void *ctx, int64_t key), void *ctx)
{
    int top = marks->n_levels - 1;

    for (size_t w = 0; w < marks->n_words[top]; w++)
        take_word(marks, top, w, take, ctx);
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
