/* local.h - the vectors that are on this node, its own and copies, reached in place.
 *
 * An owned vector lies in a row of the store.  A replica lies in a pair of rows: what
 * workers see, and what that was when its owner knew all of it.  The difference is what the
 * owner has not been told: something to add, or, if the word says SETTING, the whole value.
 * So workers of this node change a replica as fast as their own keys, since they touch one row,
 * always see what they wrote, and what many of them wrote travels as one vector.  It is rounded
 * as it is where one node has the key: what is too small to change what workers see is nothing.
 *
 * Changes that other nodes must hear of are marked: those of replicas, and those of owned
 * keys that are WATCHED.
 *
 * Owning   The memory is the caller's.
 * Threads  Any, each access under the latch of its key.                             */
#ifndef GWI_PARAMS_LOCAL_H
#define GWI_PARAMS_LOCAL_H

#include "params/marks.h"
#include "params/store.h"

#define GWI_LOCAL_FETCH 512 /* bytes of a vector that are fetched ahead */

/* A view.  Workers and agents have one each, copied from their process's. */
typedef struct gwi_local {
    gwi_store store;
    gwi_slab *pairs;  /* by length class; owned by the first view */
    gwi_marks *marks; /* by channel; in the same allocation */
    gwi_spread spread;
    /* the one who looks: its hand, and whom to ask about a latch that does not come free */
    gwi_hand *hand; /* NULL: nobody else can be there */
    gwi_stuck *stuck;
    void *ctx;
    int err; /* what `stuck` or `need` said: nothing is changed any more, as long as it is set */
    /* for who gives vectors a place: see that this memory is there.  NULL: it all is */
    int (*need)(void *ctx, void *at, size_t n_bytes);
    _Atomic uint64_t *arrivals; /* counts what was given a place; NULL: nobody asks */
    uint64_t *backed; /* [2 * classes]: rows, then pairs, that have memory; the caller's */
} gwi_local;

/* What a change does; also of one that travels. */
typedef enum gwi_change { GWI_NO_CHANGE, GWI_ADD, GWI_ASSIGN } gwi_change;

/* For several nodes; `memory` is zero and aligned to GWI_STORE_ALIGN. */
size_t gwi_local_bytes(const gwi_geometry *geometry, const gwi_spread *spread);
int gwi_local_init(gwi_local *local, const gwi_geometry *geometry, const gwi_spread *spread,
                   void *memory, size_t memory_bytes);

/* Call `need` for each part of the memory that is used from the beginning. */
int gwi_local_needs(const gwi_geometry *geometry, const gwi_spread *spread,
                    int (*need)(void *ctx, size_t at, size_t n_bytes), void *ctx);

int gwi_local_attach(gwi_local *local, const gwi_geometry *geometry, const gwi_spread *spread,
                     void *memory);
void gwi_local_fini(gwi_local *local);

/* For workers.  Returns 1 if it is done, 0 if the vector is elsewhere or `err` is set. */
int gwi_local_pull(gwi_local *local, int64_t key, void *to);
int gwi_local_change(gwi_local *local, int64_t key, gwi_change change, const void *from);

/* Of a key that is here and whose latch the caller holds, with this word: a gwi_special. */
void gwi_local_change_latched(void *local, int64_t key, uint64_t *word, const void *from, int adds);

/* Such a key is ahead, and will be marked: a gwi_special_soon. */
void gwi_local_fetch_mark(void *local, int64_t key);

/* For the node itself.  The vector is here. */
void gwi_local_read(gwi_local *local, int64_t key, void *to);
void gwi_local_apply(gwi_local *local, int64_t key, gwi_change change, const void *from);

/* The same for an owned vector, without a mark: the caller knows who has to hear of it. */
void gwi_local_apply_unmarked(gwi_local *local, int64_t key, gwi_change change, const void *from);

/* Read several vectors, or add to them without marks, up to the first that is not owned or, to be
 * added to, has a flag of `stop` in its word.  They lie one behind the other.  Return how many are
 * done, or 0 if `err` is set. */
size_t gwi_local_read_owned(gwi_local *local, const int64_t *keys, size_t n, void *to);
size_t gwi_local_add_to_owned(gwi_local *local, const int64_t *keys, size_t n, const void *from,
                              uint64_t stop);

/* Mark a key as changed, and look whether it is. */
static inline void gwi_local_mark(const gwi_local *local, int64_t key)
{
    gwi_marks_add(&local->marks[gwi_spread_channel(&local->spread, key)],
                  gwi_spread_index(&local->spread, key));
}

static inline int gwi_local_is_marked(const gwi_local *local, int64_t key)
{
    return gwi_marks_has(&local->marks[gwi_spread_channel(&local->spread, key)],
                         gwi_spread_index(&local->spread, key));
}

/* Fetch what is to be looked at soon: the word, and when that is there, these bytes of the vector.
 */
GWI_INLINE void gwi_local_fetch_word(const gwi_local *local, int64_t key)
{
    __builtin_prefetch(&local->store.words[key], 0, 2);
}

GWI_INLINE void gwi_local_fetch_vector(const gwi_local *local, int64_t key, size_t from, size_t to)
{
    uint64_t word = atomic_load_explicit(&local->store.words[key], memory_order_relaxed);
    unsigned class = local->store.class_of == NULL ? 0 : local->store.class_of[key];
    const gwi_slab *slab = gwi_word_state(word) == GWI_REPLICA ? &local->pairs[class]
                                                               : &local->store.slabs[class];
    const unsigned char *at = gwi_slab_block(slab, gwi_word_slot(word));

    for (size_t i = from; i < slab->block_bytes && i < to; i += GWI_LINE)
        if (gwi_word_state(word) != GWI_ABSENT)
            __builtin_prefetch(at + i, 0, 2);
}

/* What the node does with the place of a vector.  All keep the flags but those named.  If `err` is
 * set they have changed nothing. */

unsigned gwi_local_state(const gwi_local *local, int64_t key);
void gwi_local_flag(gwi_local *local, int64_t key, uint64_t flag, int on); /* and MARKED off */

/* The mark of an owned key was taken: the next change marks it again. */
void gwi_local_see(gwi_local *local, int64_t key);

/* Take in a vector that was absent, or make a replica owned; `from` is the value, to which what
 * is untold comes.  Returns whether anything was. */
int gwi_local_own(gwi_local *local, int64_t key, const void *from, int watched);

/* Take in a replica, with nothing untold. */
void gwi_local_copy(gwi_local *local, int64_t key, const void *from);

/* Give an owned vector away: its value; then a replica stays, or nothing. */
void gwi_local_disown(gwi_local *local, int64_t key, int keep_replica, void *ret_value);

/* What the owner has not been told, which then counts as told; GWI_NO_CHANGE if nothing. */
gwi_change gwi_local_take_untold(gwi_local *local, int64_t key, void *ret_untold);

/* The same, and the replica is gone. */
gwi_change gwi_local_drop(gwi_local *local, int64_t key, void *ret_untold);

/* A new value of the owner's, on top of which come what was told and has not arrived there, if
 * anything, and what is untold. */
void gwi_local_refresh(gwi_local *local, int64_t key, const void *value, gwi_change told,
                       const void *told_values);

/* `value` changed as `change` says. */
void gwi_change_value(const gwi_local *local, int64_t key, void *value, gwi_change change,
                      const void *by);

bool gwi_local_valid(const gwi_local *local);

#endif
