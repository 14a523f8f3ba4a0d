/* store.c - making, checking and walking the store. */
#include "params/store.h"
#include "base/error.h"
#include "base/hash.h"

#include <stdlib.h>

#define MAGIC UINT64_C(0x65726f7473777764) /* "dwwstore" */
#define VERSION 2

/* layout */

struct places {
    size_t words, classes, slabs, end;
};

/* Put `n` bytes behind what ends at `*end`, on a page of their own if they are many.  Returns
 * where they begin. */
static size_t put(size_t *end, size_t n)
{
    size_t unit = n < 16 * GWI_PAGE ? GWI_LINE : GWI_PAGE;
    size_t at = (*end + unit - 1) / unit * unit;

    *end = at + n;
    return at;
}

static size_t slab_bytes(const gwi_length_class *class)
{
    return gwi_slab_bytes(class->row_bytes, class->n_keys);
}

/* Returns 0 if there are not so many addresses. */
static int find_places(const gwi_geometry *g, struct places *ret_places)
{
    struct places p = {.end = sizeof(gwi_store_header)};

    p.words = put(&p.end, (size_t)g->n_keys * sizeof(gwi_word));
    if (g->class_of != NULL)
        p.classes = put(&p.end, (size_t)g->n_keys * sizeof(uint16_t));
    p.slabs = p.end;
    for (uint32_t c = 0; c < g->n_classes; c++) {
        size_t n = slab_bytes(&g->classes[c]);
        if (n == 0 || n > PTRDIFF_MAX / 2 - p.end)
            return 0;
        put(&p.end, n);
    }
    *ret_places = p;
    return 1;
}

size_t gwi_store_bytes(const gwi_geometry *g)
{
    struct places p;

    return find_places(g, &p) ? p.end : 0;
}

size_t gwi_store_slab_at(const gwi_geometry *g, uint32_t class)
{
    struct places p;
    size_t at = 0;

    find_places(g, &p);
    for (uint32_t c = 0; c <= class; c++)
        at = put(&p.slabs, slab_bytes(&g->classes[c]));
    return at;
}

static uint64_t fingerprint(void)
{
    const uint64_t layout[] = {VERSION,        GWI_LINE,        sizeof(gwi_store_header),
                               GWI_WORD_LATCH, GWI_WORD_STATE,  GWI_WORD_VERSION,
                               GWI_OWNED,      sizeof(gwi_hand)};

    return gwi_hash_bytes(layout, sizeof layout, MAGIC);
}

static int view(gwi_store *store, const gwi_geometry *g, void *memory, size_t memory_bytes)
{
    unsigned char *base = memory;
    struct places p;

    if (!find_places(g, &p) || p.end > memory_bytes)
        return gwi_fail(GW_EINVAL, "store: %zu bytes are too few for %lld keys", memory_bytes,
                        (long long)g->n_keys);
    gwi_slab *slabs = calloc(g->n_classes, sizeof *slabs);
    if (slabs == NULL)
        return gwi_fail(GW_ENOMEM, "store of %u length classes", g->n_classes);
    *store = (gwi_store){.geometry = g,
                         .header = memory,
                         .words = (gwi_word *)(void *)(base + p.words),
                         .class_of = g->class_of == NULL ? NULL
                                                         : (uint16_t *)(void *)(base + p.classes),
                         .slabs = slabs,
                         .ops = gwi_row_ops_of(g->dtype)};
    return 0;
}

/* Make all slabs, or attach to them. */
static int find_slabs(gwi_store *store, int make)
{
    const gwi_geometry *g = store->geometry;
    struct places p;
    int err = 0;

    find_places(g, &p);
    for (uint32_t c = 0; c < g->n_classes && err == 0; c++) {
        const gwi_length_class *class = &g->classes[c];
        size_t n = slab_bytes(class);
        unsigned char *at = (unsigned char *)store->header + put(&p.slabs, n);
        err = make ? gwi_slab_init(&store->slabs[c], at, n, class->row_bytes, class->n_keys)
                   : gwi_slab_attach(&store->slabs[c], at, n);
    }
    return err;
}

static void place_keys(gwi_store *store, const gwi_spread *spread)
{
    const gwi_geometry *g = store->geometry;
    uint32_t slot;

    for (int64_t key = 0; key < g->n_keys; key++) {
        if (gwi_spread_home(spread, key) != spread->node)
            continue;
        int err = gwi_slab_alloc(&store->slabs[g->class_of == NULL ? 0 : g->class_of[key]], &slot);
        assert(err == 0); /* there is a row for each */
        (void)err;
        atomic_store_explicit(&store->words[key], gwi_word_make(slot, GWI_OWNED),
                              memory_order_relaxed);
    }
}

int gwi_store_init(gwi_store *store, const gwi_geometry *geometry, const gwi_spread *spread,
                   void *memory, size_t memory_bytes)
{
    int err = view(store, geometry, memory, memory_bytes);
    if (err < 0)
        return err;
    err = find_slabs(store, 1);
    if (err < 0) {
        gwi_store_fini(store);
        return err;
    }
    if (store->class_of != NULL)
        memcpy((void *)(uintptr_t)store->class_of, geometry->class_of,
               (size_t)geometry->n_keys * sizeof *geometry->class_of);
    place_keys(store, spread);
    store->header->fingerprint = fingerprint();
    store->header->geometry = geometry->hash;
    store->header->n_bytes = gwi_store_bytes(geometry);
    /* Pairs with gwi_store_attach(). */
    atomic_store_explicit(&store->header->magic, MAGIC, memory_order_release);
    return 0;
}

int gwi_store_attach(gwi_store *store, const gwi_geometry *geometry, void *memory,
                     size_t memory_bytes)
{
    gwi_store_header *header = memory;

    /* Pairs with gwi_store_init(). */
    if (memory_bytes < sizeof *header ||
        atomic_load_explicit(&header->magic, memory_order_acquire) != MAGIC)
        return gwi_fail(GW_ESTATE, "store: there is none in this memory, or not yet");
    if (header->fingerprint != fingerprint())
        return gwi_fail(GW_EDISAGREE, "store: made by another version of the library; all "
                                      "processes of a job need the same one");
    if (header->geometry != geometry->hash)
        return gwi_fail(GW_EDISAGREE, "store: made for other numbers of keys or other lengths");
    int err = view(store, geometry, memory, memory_bytes);
    if (err < 0)
        return err;
    err = find_slabs(store, 0);
    if (err < 0)
        gwi_store_fini(store);
    return err;
}

void gwi_store_fini(gwi_store *store)
{
    free(store->slabs);
    *store = (gwi_store){0};
}

/* checking */

/* `taken`: a bit for each row of the class that is free or another key's. */
static bool word_valid(const gwi_store *store, int64_t key, unsigned class, uint64_t *taken)
{
    uint64_t word = gwi_word_look(&store->words[key]);
    uint32_t slot = gwi_word_slot(word);

    if (word & GWI_WORD_LATCH)
        return false;
    if (gwi_word_state(word) == GWI_ABSENT)
        return true;
    if (gwi_word_state(word) != GWI_OWNED || slot >= store->slabs[class].n_blocks ||
        taken[slot / 64] >> slot % 64 & 1)
        return false;
    taken[slot / 64] |= UINT64_C(1) << slot % 64;
    return true;
}

static bool class_valid(const gwi_store *store, unsigned class)
{
    const gwi_slab *slab = &store->slabs[class];
    uint32_t n_here = 0;
    bool valid = gwi_slab_valid(slab);

    uint64_t *taken = calloc(slab->n_blocks / 64 + 1, sizeof *taken);
    if (taken == NULL)
        return false;
    if (valid)
        gwi_slab_mark_free(slab, taken);
    for (int64_t key = 0; key < store->geometry->n_keys && valid; key++)
        if (store->class_of == NULL || store->class_of[key] == class) {
            valid = word_valid(store, key, class, taken);
            n_here += gwi_store_has(store, key);
        }
    free(taken);
    return valid && gwi_slab_in_use(slab) == n_here;
}

bool gwi_store_valid(const gwi_store *store)
{
    const gwi_store_header *header = store->header;
    bool valid = atomic_load_explicit(&header->magic, memory_order_acquire) == MAGIC &&
                 header->fingerprint == fingerprint() &&
                 header->geometry == store->geometry->hash &&
                 header->n_bytes == gwi_store_bytes(store->geometry);

    for (uint32_t c = 0; c < store->geometry->n_classes && valid; c++)
        valid = class_valid(store, c);
    return valid;
}

/* walking */

#define WORDS_AHEAD 32 /* keys between fetching a word and using it; see bench/params-local */
#define ROWS_AHEAD 16  /* ... a row; a power of 2 */
#define LINES_AHEAD 4  /* of a row; the processor fetches more of it by itself, 8 slow it down */
#define SPINS 200      /* looks at a latch before `stuck` is asked; a push takes far less */
#define GRIP GWI_HAND_KEYS
#define LEAST_GRIP 2
#define FAIR_READS 32 /* reads that meet a change before the reader takes the latch */

/* What a walk needs of the store, at hand.  A walk over keys of one length is compiled by
 * itself: there `class_of` is known to be NULL, and the row's length does not change. */
struct view {
    gwi_word *words;
    /* of the first class */
    unsigned char *rows;
    size_t row_bytes;
    uintptr_t to_pairs; /* from its rows; replicas lie there, two rows each */
    const uint16_t *class_of;
    const gwi_slab *slabs;
    const gwi_slab *pairs; /* NULL: one node, no replicas */
};

/* What is known when a walk is compiled: that there is one length; one node; that it is to end
 * before the first vector that is not owned here, so that copies need not be found. */
enum { ONE_LENGTH = 1, ONE_NODE = 2, OWNED_ONLY = 4 };

GWI_INLINE struct view view_of(const gwi_store *store, int known)
{
    const gwi_slab *pairs = known & (ONE_NODE | OWNED_ONLY) ? NULL : store->pairs;

    return (struct view){.words = store->words,
                         .rows = store->slabs[0].blocks,
                         .row_bytes = store->slabs[0].block_bytes,
                         .to_pairs = pairs == NULL ? 0
                                                   : (uintptr_t)pairs[0].blocks -
                                                         (uintptr_t)store->slabs[0].blocks,
                         .class_of = known & ONE_LENGTH ? NULL : store->class_of,
                         .slabs = store->slabs,
                         .pairs = pairs};
}

GWI_INLINE size_t row_bytes(struct view v, int64_t key)
{
    return v.class_of == NULL ? v.row_bytes : v.slabs[v.class_of[key]].block_bytes;
}

/* Which of a batch's keys are copies nobody can foretell, so it is computed and not asked: a branch
 * here would make replicas twice as slow as other keys. */
GWI_INLINE unsigned char *row_at(struct view v, int64_t key, uint64_t word)
{
    size_t slot = gwi_word_slot(word);
    uintptr_t copy = v.pairs == NULL ? 0 : 0 - (uintptr_t)(word / GWI_REPLICA & 1); /* all bits */

    if (v.class_of == NULL)
        return v.rows + (v.to_pairs & copy) + (slot + (slot & copy)) * v.row_bytes;
    return gwi_slab_block((copy ? v.pairs : v.slabs) + v.class_of[key], (uint32_t)slot);
}

/* Whether it can be read in place, the latch aside. */
GWI_INLINE int is_here(struct view v, uint64_t word)
{
    return v.pairs == NULL ? gwi_word_state(word) == GWI_OWNED : gwi_word_state(word) != GWI_ABSENT;
}

/* Words of the keys just ahead: that of key i of the batch at i % ROWS_AHEAD. */
typedef uint64_t ring[ROWS_AHEAD];

GWI_INLINE void fetch_word(struct view v, int64_t key)
{
    __builtin_prefetch(&v.words[key], 0, 2);
    if (v.class_of != NULL)
        __builtin_prefetch(&v.class_of[key], 0, 2);
}

GWI_INLINE size_t lines_ahead(size_t n_bytes)
{
    return n_bytes < LINES_AHEAD * GWI_LINE ? (n_bytes + GWI_LINE - 1) / GWI_LINE : LINES_AHEAD;
}

/* Look at the word, and get the row on its way from memory. */
GWI_INLINE uint64_t fetch_row(struct view v, int64_t key, size_t n_lines)
{
    uint64_t word = gwi_word_look(&v.words[key]);
    const unsigned char *row = row_at(v, key, word);

    for (size_t i = 0; i < n_lines; i++)
        __builtin_prefetch(row + i * GWI_LINE, 0, 2);
    return word;
}

GWI_INLINE void look_ahead(struct view v, ring words, const int64_t *keys, size_t n, size_t i)
{
    if (i < n)
        words[i % ROWS_AHEAD] = fetch_row(v, keys[i], lines_ahead(row_bytes(v, keys[i])));
}

/* Before the first key. */
GWI_INLINE void begin_walk(struct view v, ring words, const int64_t *keys, size_t n)
{
    for (size_t i = 0; i < n && i < WORDS_AHEAD; i++)
        fetch_word(v, keys[i]);
    for (size_t i = 0; i < ROWS_AHEAD; i++)
        look_ahead(v, words, keys, n, i);
}

/* The word of key `i` has been taken from the ring: look further ahead. */
GWI_INLINE void walk_on(struct view v, ring words, const int64_t *keys, size_t n, size_t i)
{
    if (i + WORDS_AHEAD < n)
        fetch_word(v, keys[i + WORDS_AHEAD]);
    look_ahead(v, words, keys, n, i + ROWS_AHEAD);
}

static inline void count(_Atomic uint64_t *counter)
{
    /* Only the walker's thread writes here. */
    uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, old + 1, memory_order_relaxed);
}

/* Somebody who waits for a latch does not hold it. */
static int be_stuck(gwi_walker *walker, int64_t key)
{
    if (walker->hand == NULL)
        return 0;
    gwi_hand_empty(walker->hand);
    int err = walker->stuck(walker->ctx, key);
    if (err == 0)
        gwi_hand_note(walker->hand, 0, key);
    return err;
}

/* Take a latch, however long it takes. */
static int latch(const gwi_store *store, gwi_walker *walker, int64_t key, uint64_t *ret_word)
{
    gwi_word *at = &store->words[key];
    int err = 0;

    if (walker->hand != NULL)
        gwi_hand_note(walker->hand, 0, key);
    for (unsigned spins = 0; !gwi_word_try_latch(at, ret_word); spins++) {
        if (spins == 0)
            count(&walker->waits);
        gwi_cpu_relax();
        if (spins % SPINS == SPINS - 1 && (err = be_stuck(walker, key)) < 0)
            return err;
    }
    return 0;
}

static void unlatch(const gwi_store *store, gwi_walker *walker, int64_t key, uint64_t word)
{
    gwi_word_release(&store->words[key], word);
    if (walker->hand != NULL)
        gwi_hand_empty(walker->hand);
}

/* Whether nobody has to hear of a change, or will anyway; so that the vector is all that changes.
 */
GWI_INLINE int is_plain(uint64_t word, int adds)
{
    return ((word & (GWI_WORD_STATE | GWI_WORD_WATCHED)) == GWI_OWNED) |
           (adds && word & GWI_WORD_MARKED);
}

/* Whether it was elsewhere, and nobody was about to give it a place. */
GWI_INLINE int is_away(struct view v, uint64_t word)
{
    return v.pairs != NULL && (word & (GWI_WORD_STATE | GWI_WORD_LATCH)) == GWI_ABSENT;
}

static int see_to_other(gwi_walker *walker, int64_t key, const void *values)
{
    assert(walker->other != NULL);
    return walker->other(walker->other_ctx, key, (void *)(uintptr_t)values);
}

/* Pull: read without latch, and with it where somebody always writes. */

/* `word`: what it was before. */
GWI_INLINE int read_once(struct view v, int64_t key, uint64_t word, void *to)
{
    if (gwi_unlikely(word & GWI_WORD_LATCH || !is_here(v, word)))
        return 0;
    gwi_row_read(to, row_at(v, key, word), row_bytes(v, key));
    return gwi_likely(gwi_word_unchanged(&v.words[key], word));
}

static __attribute__((noinline)) int read_again(const gwi_store *store, gwi_walker *walker,
                                                int64_t key, void *to)
{
    struct view v = view_of(store, 0);
    uint64_t word;

    for (int i = 0; i < FAIR_READS; i++) {
        word = gwi_word_look(&v.words[key]);
        if (is_away(v, word))
            return see_to_other(walker, key, to);
        if (read_once(v, key, word, to))
            return 0;
        count(&walker->retries);
        gwi_cpu_relax();
    }
    int err = latch(store, walker, key, &word);
    if (err < 0)
        return err;
    if (!is_here(v, word)) {
        unlatch(store, walker, key, word);
        return see_to_other(walker, key, to);
    }
    gwi_row_read(to, row_at(v, key, word), row_bytes(v, key));
    unlatch(store, walker, key, word);
    return 0;
}

/* Returns how many are done, or an error. */
GWI_INLINE int64_t pull(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                        void *values, int known)
{
    struct view v = view_of(store, known);
    unsigned char *to = values;
    ring words;

    begin_walk(v, words, keys, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t word = words[i % ROWS_AHEAD];
        walk_on(v, words, keys, n, i);
        if (gwi_unlikely(!read_once(v, keys[i], word, to))) {
            if (known & OWNED_ONLY && gwi_word_state(word) != GWI_OWNED)
                return (int64_t)i;
            int err = is_away(v, word) ? see_to_other(walker, keys[i], to)
                                       : read_again(store, walker, keys[i], to);
            if (err < 0)
                return err;
        }
        to += row_bytes(v, keys[i]);
    }
    return (int64_t)n;
}

GWI_INLINE int64_t pull_all(const gwi_store *store, gwi_walker *walker, const int64_t *keys,
                            size_t n, void *values, int known)
{
    return store->class_of == NULL ? pull(store, walker, keys, n, values, known | ONE_LENGTH)
                                   : pull(store, walker, keys, n, values, known);
}

int gwi_store_pull(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                   void *values)
{
    int64_t done = store->pairs != NULL ? pull_all(store, walker, keys, n, values, 0)
                                        : pull_all(store, walker, keys, n, values, ONE_NODE);

    return done < 0 ? (int)done : 0;
}

int64_t gwi_store_pull_owned(const gwi_store *store, gwi_walker *walker, const int64_t *keys,
                             size_t n, void *values)
{
    return pull_all(store, walker, keys, n, values, OWNED_ONLY);
}

/* Push and set: take several latches, do their rows, give them back.  To take a latch waits for
 * all memory that was asked for before; so taking several at once lets the rows of all of them
 * come in together.  Only the first may be waited for (W4); where one is taken already, by
 * somebody or by an equal key just before, the handful ends there. */

/* How many of the keys are latched now; at least one, or an error. */
GWI_INLINE int take_handful(const gwi_store *store, gwi_walker *walker, const int64_t *keys,
                            size_t n, uint64_t *ret_words)
{
    unsigned most = n < walker->grip ? (unsigned)n : walker->grip, taken = 0;

    while (taken < most) {
        if (walker->hand != NULL)
            gwi_hand_note(walker->hand, taken, keys[taken]);
        if (gwi_unlikely(!gwi_word_try_latch(&store->words[keys[taken]], &ret_words[taken])))
            break;
        taken++;
    }
    if (gwi_likely(taken == most)) {
        walker->grip += walker->grip < GRIP;
        return (int)taken;
    }
    /* Others want these keys too: hold fewer. */
    walker->grip = walker->grip / 2 < LEAST_GRIP ? LEAST_GRIP : walker->grip / 2;
    if (taken > 0)
        return (int)taken;
    int err = latch(store, walker, keys[0], ret_words);
    return err < 0 ? err : 1;
}

/* Whether a key, whose latch is held, has come after `other` took note of an equal one. */
static inline int is_behind(const gwi_walker *walker, int64_t key)
{
    /* Counted before the word was released whose latch we have. */
    return atomic_load_explicit(walker->arrivals, memory_order_relaxed) !=
               walker->arrivals_before &&
           walker->behind(walker->other_ctx, key);
}

/* Those of a handful that were not here, and of which `behind` has a bit; `end` is where its values
 * end. */
static __attribute__((noinline)) int see_to_others(const gwi_store *store, gwi_walker *walker,
                                                   const int64_t *keys, const uint64_t *words,
                                                   int n, uint64_t behind, const unsigned char *end)
{
    struct view v = view_of(store, 0);
    const unsigned char *from = end;
    int err = 0;

    for (int j = 0; j < n; j++)
        from -= row_bytes(v, keys[j]);
    for (int j = 0; j < n && err == 0; from += row_bytes(v, keys[j++]))
        if (gwi_word_state(words[j]) == GWI_ABSENT || behind >> j & 1)
            err = see_to_other(walker, keys[j], from);
    return err;
}

/* The word of key `i` has been looked at.  Of those here, few have to be marked in a while. */
GWI_INLINE void expect_special(struct view v, gwi_walker *walker, const ring words,
                               const int64_t *keys, size_t n, size_t i, int adds)
{
    if (v.pairs == NULL || i >= n)
        return;
    uint64_t word = words[i % ROWS_AHEAD];
    if (gwi_unlikely(!is_plain(word, adds) && is_here(v, word)))
        walker->special_soon(walker->special_ctx, keys[i]);
}

/* How many of the next keys are owned here, without a flag of `stop`, and can be in one handful. */
GWI_INLINE size_t count_owned(const ring words, size_t n, size_t i, uint64_t stop)
{
    size_t k = 0;

    while (k < GRIP && i + k < n &&
           (words[(i + k) % ROWS_AHEAD] & (GWI_WORD_STATE | stop)) == GWI_OWNED)
        k++;
    return k;
}

/* `add`: NULL assigns.  Returns how many are done, or an error. */
GWI_INLINE int64_t change(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                          const void *values, gwi_row_add *add, int known, uint64_t stop)
{
    struct view v = view_of(store, known);
    size_t item_bytes = store->geometry->item_bytes;
    const unsigned char *from = values;
    uint64_t held[GRIP];
    ring words; /* for the places of the rows, and what is away: they may change until the latch is
                   ours */
    int taken, others = 0, wary = walker->wary; /* `other` has taken note of some key */

    _Static_assert(GRIP <= 64, "a bit for each latch");
    if (walker->grip == 0)
        walker->grip = GRIP;
    begin_walk(v, words, keys, n);
    for (size_t i = 0; i < n; i += (size_t)taken) {
        if (is_away(v, words[i % ROWS_AHEAD])) { /* which takes no latch to see */
            walk_on(v, words, keys, n, i);
            int err = see_to_other(walker, keys[i], from);
            if (err < 0)
                return err;
            from += row_bytes(v, keys[i]);
            wary = taken = 1;
            continue;
        }
        size_t most = known & OWNED_ONLY ? count_owned(words, n, i, stop) : n - i;
        if (known & OWNED_ONLY && most == 0)
            return (int64_t)i;
        taken = take_handful(store, walker, keys + i, most, held);
        if (taken < 0)
            return taken;
        uint64_t behind = 0;
        for (int j = 0; j < taken; j++) {
            int64_t key = keys[i + (size_t)j];
            size_t n_bytes = row_bytes(v, key);
            walk_on(v, words, keys, n, i + (size_t)j);
            expect_special(v, walker, words, keys, n, i + (size_t)j + ROWS_AHEAD, add != NULL);
            if (gwi_unlikely(wary && is_behind(walker, key))) {
                behind |= UINT64_C(1) << j;
                others++;
                from += n_bytes;
                continue;
            }
            if (!(known & OWNED_ONLY) && gwi_unlikely(!is_plain(held[j], add != NULL))) {
                if (is_here(v, held[j]))
                    walker->special(walker->special_ctx, key, &held[j], from, add != NULL);
                else
                    others++; /* when our hands are free */
                from += n_bytes;
                continue;
            }
            if (add != NULL)
                add(row_at(v, key, held[j]), from, n_bytes / item_bytes);
            else
                gwi_row_write(row_at(v, key, held[j]), from, n_bytes);
            from += n_bytes;
        }
        for (int j = 0; j < taken; j++)
            gwi_word_release(&v.words[keys[i + (size_t)j]], gwi_word_next_version(held[j]));
        if (walker->hand != NULL)
            gwi_hand_empty(walker->hand);
        if (gwi_unlikely(others > 0)) {
            int err = see_to_others(store, walker, keys + i, held, taken, behind, from);
            if (err < 0)
                return err;
            others = 0;
            wary = 1;
        }
    }
    return (int64_t)n;
}

GWI_INLINE int64_t change_all(const gwi_store *store, gwi_walker *walker, const int64_t *keys,
                              size_t n, const void *values, gwi_row_add *add, int known,
                              uint64_t stop)
{
    return store->class_of == NULL
               ? change(store, walker, keys, n, values, add, known | ONE_LENGTH, stop)
               : change(store, walker, keys, n, values, add, known, stop);
}

GWI_INLINE int change_any(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                          const void *values, gwi_row_add *add)
{
    int64_t done = store->pairs != NULL
                       ? change_all(store, walker, keys, n, values, add, 0, 0)
                       : change_all(store, walker, keys, n, values, add, ONE_NODE, 0);

    return done < 0 ? (int)done : 0;
}

int gwi_store_push(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                   const void *values)
{
    return change_any(store, walker, keys, n, values, store->ops->add);
}

int gwi_store_set(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                  const void *values)
{
    return change_any(store, walker, keys, n, values, NULL);
}

int64_t gwi_store_push_owned(const gwi_store *store, gwi_walker *walker, const int64_t *keys,
                             size_t n, const void *values, uint64_t stop)
{
    return change_all(store, walker, keys, n, values, store->ops->add, OWNED_ONLY, stop);
}
