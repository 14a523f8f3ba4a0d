/* local.c - rows, pairs and words, one key at a time. */
#include "params/local.h"
#include "base/error.h"

#include <stdlib.h>

/* layout: the store, the pairs, the marks */

static size_t round_up(size_t n)
{
    return (n + GWI_STORE_ALIGN - 1) / GWI_STORE_ALIGN * GWI_STORE_ALIGN;
}

static size_t pairs_bytes(const gwi_length_class *class)
{
    return round_up(gwi_slab_bytes(2 * class->row_bytes, class->n_keys));
}

/* Of one channel. */
static size_t marks_bytes(const gwi_geometry *g, const gwi_spread *spread)
{
    return round_up(gwi_marks_bytes(gwi_spread_n_indices(spread, g->n_keys)));
}

size_t gwi_local_bytes(const gwi_geometry *g, const gwi_spread *spread)
{
    size_t sum = round_up(gwi_store_bytes(g)) + (size_t)spread->channels * marks_bytes(g, spread);

    for (uint32_t c = 0; c < g->n_classes; c++)
        sum += pairs_bytes(&g->classes[c]);
    return sum;
}

static uint64_t keys_of(const gwi_geometry *g, const gwi_spread *spread, uint32_t class)
{
    uint64_t n = 0;

    for (int64_t key = 0; key < g->n_keys; key++)
        n += gwi_spread_home(spread, key) == spread->node &&
             (g->class_of == NULL ? 0 : g->class_of[key]) == class;
    return n;
}

int gwi_local_needs(const gwi_geometry *g, const gwi_spread *spread,
                    int (*need)(void *ctx, size_t at, size_t n_bytes), void *ctx)
{
    size_t at = round_up(gwi_store_bytes(g));
    int err = need(ctx, 0, gwi_store_slab_at(g, 0));

    if (err == 0)
        err = need(ctx, at, (size_t)spread->channels * marks_bytes(g, spread));
    at += (size_t)spread->channels * marks_bytes(g, spread);
    for (uint32_t c = 0; c < g->n_classes && err == 0; c++) {
        const gwi_length_class *class = &g->classes[c];
        size_t head = gwi_slab_head_bytes(class->n_keys);
        err = need(ctx, gwi_store_slab_at(g, c), head + keys_of(g, spread, c) * class->row_bytes);
        if (err == 0)
            err = need(ctx, at, head);
        at += pairs_bytes(class);
    }
    return err;
}

/* Make everything, or attach to it. */
static int view(gwi_local *local, const gwi_geometry *g, const gwi_spread *spread, void *memory,
                int make)
{
    unsigned char *at = memory;
    int err;

    *local = (gwi_local){.spread = *spread};
    err = make ? gwi_store_init(&local->store, g, spread, at, gwi_store_bytes(g))
               : gwi_store_attach(&local->store, g, at, gwi_store_bytes(g));
    if (err < 0)
        return err;
    at += round_up(gwi_store_bytes(g));
    local->pairs = calloc(1, g->n_classes * sizeof *local->pairs +
                                 (size_t)spread->channels * sizeof *local->marks);
    if (local->pairs == NULL) {
        err = gwi_fail(GW_ENOMEM, "replicas of %u lengths", g->n_classes);
        goto fini;
    }
    local->marks = (gwi_marks *)(void *)(local->pairs + g->n_classes);
    local->store.pairs = local->pairs;
    for (int c = 0; c < spread->channels; c++, at += marks_bytes(g, spread))
        gwi_marks_init(&local->marks[c], gwi_spread_n_indices(spread, g->n_keys), at);
    for (uint32_t c = 0; c < g->n_classes; c++) {
        const gwi_length_class *class = &g->classes[c];
        err = make ? gwi_slab_init(&local->pairs[c], at, pairs_bytes(class), 2 * class->row_bytes,
                                   class->n_keys)
                   : gwi_slab_attach(&local->pairs[c], at, pairs_bytes(class));
        if (err < 0)
            goto fini;
        at += pairs_bytes(class);
    }
    return 0;

fini:
    gwi_local_fini(local);
    return err;
}

int gwi_local_init(gwi_local *local, const gwi_geometry *g, const gwi_spread *spread, void *memory,
                   size_t memory_bytes)
{
    assert(memory_bytes >= gwi_local_bytes(g, spread));
    (void)memory_bytes;
    return view(local, g, spread, memory, 1);
}

int gwi_local_attach(gwi_local *local, const gwi_geometry *g, const gwi_spread *spread,
                     void *memory)
{
    return view(local, g, spread, memory, 0);
}

void gwi_local_fini(gwi_local *local)
{
    free(local->pairs);
    gwi_store_fini(&local->store);
    *local = (gwi_local){0};
}

/* one key */

#define SPINS 200 /* looks at a latch before somebody is asked about it */

struct key {
    gwi_local *local;
    gwi_word *at;
    uint64_t word; /* without latch */
    gwi_slab *rows, *pairs;
    size_t row_bytes;
    size_t n; /* entries */
};

static struct key find(gwi_local *local, int64_t key)
{
    unsigned class = local->store.class_of == NULL ? 0 : local->store.class_of[key];
    gwi_slab *rows = &local->store.slabs[class];

    return (struct key){.local = local,
                        .at = &local->store.words[key],
                        .rows = rows,
                        .pairs = local->pairs == NULL ? NULL : &local->pairs[class],
                        .row_bytes = rows->block_bytes,
                        .n = rows->block_bytes / local->store.geometry->item_bytes};
}

/* Returns 0 if it cannot be had, and then `err` says why: nothing may be changed. */
static int latch(gwi_local *local, int64_t key, struct key *ret_key)
{
    struct key k = find(local, key);

    if (gwi_unlikely(local->err < 0))
        return 0;
    if (local->hand != NULL)
        gwi_hand_note(local->hand, 0, key);
    for (unsigned spins = 1; !gwi_word_try_latch(k.at, &k.word); spins++) {
        gwi_cpu_relax();
        if (spins % SPINS != 0 || local->hand == NULL)
            continue;
        gwi_hand_empty(local->hand);
        local->err = local->stuck(local->ctx, key);
        if (local->err < 0)
            return 0;
        gwi_hand_note(local->hand, 0, key);
    }
    *ret_key = k;
    return 1;
}

static void release(struct key *k, uint64_t word)
{
    gwi_word_release(k->at, word);
    if (k->local->hand != NULL)
        gwi_hand_empty(k->local->hand);
}

static void unlatch(struct key *k)
{
    release(k, k->word);
}

static void unlatch_changed(struct key *k)
{
    release(k, gwi_word_next_version(k->word));
}

/* What workers see. */
static void *value_of(const struct key *k)
{
    return gwi_slab_block(gwi_word_state(k->word) == GWI_REPLICA ? k->pairs : k->rows,
                          gwi_word_slot(k->word));
}

/* What a replica's value was, as far as its owner knows. */
static unsigned char *told_of(const struct key *k)
{
    assert(gwi_word_state(k->word) == GWI_REPLICA);
    return (unsigned char *)value_of(k) + k->row_bytes;
}

#define AT_ONCE 64                   /* blocks that other agents may take meanwhile */
#define GROW_BYTES ((size_t)2 << 20) /* at least; and by a sixteenth */

/* See that the slab's next block has memory.  Returns 0 if there is none, and then `err` says so.
 */
static int back(gwi_local *local, gwi_slab *slab, uint64_t *backed)
{
    uint64_t used = gwi_slab_ever_used(slab);
    uint64_t more = GROW_BYTES / slab->block_bytes + 2 * AT_ONCE + used / 16;

    if (gwi_likely(used + AT_ONCE < *backed || used == slab->n_blocks))
        return 1;
    more = more < slab->n_blocks - used ? more : slab->n_blocks - used;
    local->err = local->need(local->ctx, gwi_slab_block(slab, (uint32_t)used),
                             more * slab->block_bytes);
    if (local->err == 0)
        *backed = used + more;
    return local->err == 0;
}

/* Whether there is memory for a place in this state; to be asked before anything is changed. */
static int has_room(const struct key *k, unsigned state)
{
    gwi_local *local = k->local;

    if (local->need == NULL)
        return 1;
    return state == GWI_REPLICA
               ? back(local, k->pairs,
                      &local->backed[local->store.geometry->n_classes + (k->pairs - local->pairs)])
               : back(local, k->rows, &local->backed[k->rows - local->store.slabs]);
}

static void place(struct key *k, gwi_slab *slab, unsigned state)
{
    gwi_local *local = k->local;
    uint32_t slot;

    if (local->arrivals != NULL) /* it is seen before the word is, which is released later */
        atomic_fetch_add_explicit(local->arrivals, 1, memory_order_relaxed);
    int err = gwi_slab_alloc(slab, &slot);

    assert(err == 0); /* there is one for each key */
    (void)err;
    k->word = (k->word & ~(GWI_WORD_STATE | GWI_WORD_SETTING | GWI_WORD_MARKED |
                           UINT64_C(0xffffffff00000000))) |
              gwi_word_make(slot, state);
}

/* Free the vector's place; the word says nothing of it any more. */
static void displace(struct key *k)
{
    gwi_slab_free(gwi_word_state(k->word) == GWI_REPLICA ? k->pairs : k->rows,
                  gwi_word_slot(k->word));
    k->word &= ~(GWI_WORD_STATE | GWI_WORD_SETTING | GWI_WORD_MARKED | GWI_WORD_WATCHED);
}

/* workers */

/* Most of the time nobody changes it, and no latch is needed.  Returns whether `to` has it. */
static int read_at_once(gwi_local *local, int64_t key, void *to)
{
    struct key k = find(local, key);

    k.word = gwi_word_look(k.at);
    if (k.word & GWI_WORD_LATCH || gwi_word_state(k.word) == GWI_ABSENT)
        return 0;
    gwi_row_read(to, value_of(&k), k.row_bytes);
    return gwi_word_unchanged(k.at, k.word);
}

int gwi_local_pull(gwi_local *local, int64_t key, void *to)
{
    if (gwi_likely(read_at_once(local, key, to)))
        return 1;
    struct key k;

    if (!latch(local, key, &k))
        return 0;
    int here = gwi_word_state(k.word) != GWI_ABSENT;
    if (here)
        gwi_row_read(to, value_of(&k), k.row_bytes);
    unlatch(&k);
    return here;
}

static void change_row(const struct key *k, void *row, gwi_change change, const void *by)
{
    if (change == GWI_ADD)
        k->local->store.ops->add(row, by, k->n);
    else if (change == GWI_ASSIGN)
        gwi_row_write(row, by, k->row_bytes);
}

static void apply(struct key *k, int64_t key, gwi_change change, const void *from)
{
    change_row(k, value_of(k), change, from);
    if (gwi_word_state(k->word) == GWI_REPLICA && change == GWI_ASSIGN)
        k->word |= GWI_WORD_SETTING; /* what was untold came before */
    if ((gwi_word_state(k->word) == GWI_REPLICA || k->word & GWI_WORD_WATCHED) &&
        !(k->word & GWI_WORD_MARKED)) {
        gwi_local_mark(k->local, key);
        k->word |= GWI_WORD_MARKED;
    }
}

int gwi_local_change(gwi_local *local, int64_t key, gwi_change change, const void *from)
{
    struct key k;

    if (!latch(local, key, &k))
        return 0;
    int here = gwi_word_state(k.word) != GWI_ABSENT;
    if (here) {
        apply(&k, key, change, from);
        unlatch_changed(&k);
    } else {
        unlatch(&k);
    }
    return here;
}

void gwi_local_change_latched(void *local, int64_t key, uint64_t *word, const void *from, int adds)
{
    struct key k = find(local, key);

    k.word = *word;
    apply(&k, key, adds ? GWI_ADD : GWI_ASSIGN, from);
    *word = k.word;
}

void gwi_local_fetch_mark(void *local, int64_t key)
{
    const gwi_local *l = local;

    gwi_marks_fetch(&l->marks[gwi_spread_channel(&l->spread, key)],
                    gwi_spread_index(&l->spread, key));
}

/* the node */

void gwi_local_read(gwi_local *local, int64_t key, void *to)
{
    if (gwi_likely(read_at_once(local, key, to)))
        return;
    struct key k;

    if (!latch(local, key, &k))
        return;
    gwi_row_read(to, value_of(&k), k.row_bytes);
    unlatch(&k);
}

void gwi_local_apply(gwi_local *local, int64_t key, gwi_change change, const void *from)
{
    struct key k;

    if (!latch(local, key, &k))
        return;
    apply(&k, key, change, from);
    unlatch_changed(&k);
}

void gwi_local_apply_unmarked(gwi_local *local, int64_t key, gwi_change change, const void *from)
{
    struct key k;

    if (!latch(local, key, &k))
        return;
    assert(gwi_word_state(k.word) == GWI_OWNED);
    change_row(&k, value_of(&k), change, from);
    unlatch_changed(&k);
}

/* Several at once, as a worker walks. */

/* Only if somebody else changes what this node owns. */
static int be_lost(void *ctx, int64_t key, void *values)
{
    (void)ctx;
    (void)values;
    return gwi_fail(GW_EBROKEN, "key %lld was given away while it was asked for", (long long)key);
}

static gwi_walker walker_of(const gwi_local *local)
{
    return (gwi_walker){
        .hand = local->hand, .stuck = local->stuck, .ctx = local->ctx, .other = be_lost};
}

static size_t done_or_failed(gwi_local *local, int64_t done)
{
    local->err = done < 0 ? (int)done : local->err;
    return done < 0 ? 0 : (size_t)done;
}

size_t gwi_local_read_owned(gwi_local *local, const int64_t *keys, size_t n, void *to)
{
    gwi_walker walker = walker_of(local);

    return done_or_failed(local, gwi_store_pull_owned(&local->store, &walker, keys, n, to));
}

size_t gwi_local_add_to_owned(gwi_local *local, const int64_t *keys, size_t n, const void *from,
                              uint64_t stop)
{
    gwi_walker walker = walker_of(local);

    return done_or_failed(local, gwi_store_push_owned(&local->store, &walker, keys, n, from, stop));
}

unsigned gwi_local_state(const gwi_local *local, int64_t key)
{
    return gwi_word_state(gwi_word_look(&local->store.words[key]));
}

void gwi_local_flag(gwi_local *local, int64_t key, uint64_t flag, int on)
{
    struct key k;

    if (!latch(local, key, &k))
        return;
    k.word = on ? k.word | flag : k.word & ~flag;
    k.word &= ~GWI_WORD_MARKED;
    unlatch(&k);
}

void gwi_local_see(gwi_local *local, int64_t key)
{
    struct key k;

    if (!latch(local, key, &k))
        return;
    k.word &= ~GWI_WORD_MARKED;
    unlatch(&k);
}

static void make_copy(struct key *k, const void *from)
{
    place(k, k->pairs, GWI_REPLICA);
    gwi_row_write(value_of(k), from, k->row_bytes);
    gwi_row_write(told_of(k), from, k->row_bytes);
}

void gwi_local_copy(gwi_local *local, int64_t key, const void *from)
{
    struct key k;

    if (!latch(local, key, &k))
        return;
    assert(gwi_word_state(k.word) == GWI_ABSENT);
    if (!has_room(&k, GWI_REPLICA)) {
        unlatch(&k);
        return;
    }
    make_copy(&k, from);
    unlatch_changed(&k);
}

void gwi_local_disown(gwi_local *local, int64_t key, int keep_replica, void *ret_value)
{
    struct key k;

    if (!latch(local, key, &k))
        return;
    assert(gwi_word_state(k.word) == GWI_OWNED);
    if (keep_replica && !has_room(&k, GWI_REPLICA)) {
        unlatch(&k);
        return;
    }
    gwi_row_read(ret_value, value_of(&k), k.row_bytes);
    displace(&k);
    if (keep_replica)
        make_copy(&k, ret_value);
    unlatch_changed(&k);
}

/* The owner rounds when it adds this: workers see from now on what it will have, or the copy would
 * differ from it for ever, in the last bit. */
static gwi_change take_untold(struct key *k, void *ret_untold)
{
    gwi_change change = GWI_ASSIGN;

    if (gwi_unlikely(k->word & GWI_WORD_SETTING)) {
        gwi_row_read(ret_untold, value_of(k), k->row_bytes);
        gwi_row_write(told_of(k), ret_untold, k->row_bytes);
    } else {
        gwi_row_added added = k->local->store.ops->take_added(value_of(k), told_of(k), ret_untold,
                                                              k->n);
        if (added == GWI_ADDED_NEARLY) {
            gwi_row_write(value_of(k), told_of(k), k->row_bytes);
            k->word = gwi_word_next_version(k->word);
        }
        change = added == GWI_NONE_ADDED ? GWI_NO_CHANGE : GWI_ADD;
    }
    k->word &= ~(GWI_WORD_SETTING | GWI_WORD_MARKED);
    return change;
}

/* Put what the owner has below what it has not been told.  Returns whether there is any such. */
static int rebase(struct key *k, const void *value)
{
    return k->word & GWI_WORD_SETTING ||
           k->local->store.ops->rebase(value_of(k), told_of(k), value, k->n);
}

int gwi_local_own(gwi_local *local, int64_t key, const void *from, int watched)
{
    struct key k;

    if (!latch(local, key, &k))
        return 0;
    assert(gwi_word_state(k.word) != GWI_OWNED);
    if (!has_room(&k, GWI_OWNED)) {
        unlatch(&k);
        return 0;
    }
    uint32_t pair = gwi_word_slot(k.word);
    int was_replica = gwi_word_state(k.word) == GWI_REPLICA;
    int untold = was_replica && rebase(&k, from);
    place(&k, k.rows, GWI_OWNED);
    gwi_row_write(value_of(&k), was_replica ? gwi_slab_block(k.pairs, pair) : from, k.row_bytes);
    if (was_replica)
        gwi_slab_free(k.pairs, pair);
    k.word = watched ? k.word | GWI_WORD_WATCHED : k.word & ~GWI_WORD_WATCHED;
    unlatch_changed(&k);
    return untold;
}

gwi_change gwi_local_take_untold(gwi_local *local, int64_t key, void *ret_untold)
{
    struct key k;

    if (!latch(local, key, &k))
        return GWI_NO_CHANGE;
    gwi_change change = take_untold(&k, ret_untold);
    unlatch(&k);
    return change;
}

gwi_change gwi_local_drop(gwi_local *local, int64_t key, void *ret_untold)
{
    struct key k;

    if (!latch(local, key, &k))
        return GWI_NO_CHANGE;
    gwi_change change = take_untold(&k, ret_untold);
    displace(&k);
    unlatch_changed(&k);
    return change;
}

void gwi_local_refresh(gwi_local *local, int64_t key, const void *value, gwi_change told,
                       const void *told_values)
{
    struct key k;

    if (!latch(local, key, &k))
        return;
    rebase(&k, told == GWI_ASSIGN ? told_values : value);
    if (told == GWI_ADD && !(k.word & GWI_WORD_SETTING)) {
        change_row(&k, value_of(&k), GWI_ADD, told_values);
        change_row(&k, told_of(&k), GWI_ADD, told_values);
    }
    unlatch_changed(&k);
}

void gwi_change_value(const gwi_local *local, int64_t key, void *value, gwi_change change,
                      const void *by)
{
    struct key k = find((gwi_local *)(uintptr_t)local, key);

    change_row(&k, value, change, by);
}

bool gwi_local_valid(const gwi_local *local)
{
    const gwi_geometry *g = local->store.geometry;

    for (uint32_t c = 0; c < g->n_classes; c++)
        if (!gwi_slab_valid(&local->pairs[c]) || !gwi_slab_valid(&local->store.slabs[c]))
            return false;
    for (int64_t key = 0; key < g->n_keys; key++)
        if (gwi_word_look(&local->store.words[key]) & GWI_WORD_LATCH)
            return false;
    return true;
}
