/* store.h - the vectors of a node, in memory that its processes share.
 *
 * The memory, of gwi_store_bytes():
 *
 *     header | words, 8 bytes a key | class of each key, 2 bytes | a slab per length class
 *
 * The classes are there only if there are several.  A slab (base/slab.h) has a row for
 * every key of its class; at the start the keys that are here have the first ones, in
 * their order, so that keys beside each other lie beside each other.
 *
 * Batches are walked in two stages ahead of the work: words are fetched from memory some
 * keys ahead, and rows, whose places the words tell, fewer keys ahead.
 *
 * Owning   The memory is the caller's, the geometry too; both outlive the store.
 * Failing  Keys are in range and arrays long enough, or it is the caller's mistake.  A walk
 *          fails only if a latch does not come free and the walker's `stuck` says why; then
 *          what came before that key is done and what comes after is not.
 * Threads  Any thread of any process at any time, each with a walker of its own.
 * Dying    See word.h.                                                               */
#ifndef GWI_PARAMS_STORE_H
#define GWI_PARAMS_STORE_H

#include "base/slab.h"
#include "params/geometry.h"
#include "params/hand.h"
#include "params/row.h"
#include "params/spread.h"
#include "params/word.h"

#include <stdbool.h>

typedef struct gwi_store_header {
    /* Set by the process that makes the store, then constant.  `magic` is written last: if
     * it dies before, there is no store here, and attach says so. */
    _Alignas(GWI_LINE) _Atomic uint64_t magic;
    uint64_t fingerprint; /* of this layout */
    uint64_t geometry;    /* its hash */
    uint64_t n_bytes;
} gwi_store_header;

/* One process's view.  Set by init or attach, then constant. */
typedef struct gwi_store {
    const gwi_geometry *geometry; /* borrowed */
    gwi_store_header *header;     /* borrowed, as are the words and classes */
    gwi_word *words;              /* by key */
    const uint16_t *class_of;     /* by key; NULL: one class */
    gwi_slab *slabs;              /* by class; owned */
    const gwi_slab *pairs;        /* with several nodes: where replicas lie (local.h); borrowed */
    const gwi_row_ops *ops;
} gwi_store;

#define GWI_STORE_ALIGN GWI_PAGE

/* How much memory a store needs; 0: more than there are addresses. */
size_t gwi_store_bytes(const gwi_geometry *geometry);

/* Where in it the slab of a class lies; what is before the first one is all needed at once. */
size_t gwi_store_slab_at(const gwi_geometry *geometry, uint32_t class);

/* Make a store at `memory`, which is zero and aligned to GWI_STORE_ALIGN, with the vectors of
 * `share`, all zero. */
int gwi_store_init(gwi_store *store, const gwi_geometry *geometry, const gwi_spread *spread,
                   void *memory, size_t memory_bytes);
int gwi_store_attach(gwi_store *store, const gwi_geometry *geometry, void *memory,
                     size_t memory_bytes);
void gwi_store_fini(gwi_store *store); /* this view only; zeros and a second time are fine */

/* Whether every word and slab keeps the rules, while nobody changes anything. */
bool gwi_store_valid(const gwi_store *store);

/* The latch of `key` has not come free for a while.  Returns 0 when it is worth another
 * look, or an error, with which the walk ends. */
typedef int gwi_stuck(void *ctx, int64_t key);

/* A key that is not here.  Returns 0 when that is seen to, or an error, with which the walk ends.
 */
typedef int gwi_other(void *ctx, int64_t key, void *values);

/* A replica or a watched key whose latch is held: change it, and the word that is given back.
 * `adds`: else the values are assigned. */
typedef void gwi_special(void *ctx, int64_t key, uint64_t *word, const void *values, int adds);

/* What that will need is to be on its way from memory. */
typedef void gwi_special_soon(void *ctx, int64_t key);

/* What a worker walks with.  Private to it, but for its hand. */
typedef struct gwi_walker {
    gwi_hand *hand; /* borrowed; NULL: nobody else can be there */
    gwi_stuck *stuck;
    void *ctx;
    /* with several nodes */
    gwi_other *other;
    void *other_ctx;
    gwi_special *special;
    gwi_special_soon *special_soon;
    void *special_ctx;
    /* Of a key that is elsewhere `other` takes note; if an equal one follows and has come
     * meanwhile, it must not be changed before the first is.  `arrivals` counts what comes; if it
     * is no longer what it was before the walk, `behind` says whether there was such a key. */
    const _Atomic uint64_t *arrivals;
    uint64_t arrivals_before;
    int (*behind)(void *other_ctx, int64_t key);
    int wary;      /* before this walk it has taken note of some key */
    unsigned grip; /* how many latches it takes at once; 0: as if new */
    /* counted; read by anyone */
    _Atomic uint64_t retries; /* reads that met a change */
    _Atomic uint64_t waits;   /* latches that were not free */
} gwi_walker;

/* Read, add to or assign the vectors of `n` keys.  `values` holds them one after the other
 * in the order of the keys. */
int gwi_store_pull(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                   void *values);
int gwi_store_push(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                   const void *values);
int gwi_store_set(const gwi_store *store, gwi_walker *walker, const int64_t *keys, size_t n,
                  const void *values);

/* For whoever answers for the node, who alone changes what it owns: up to the first vector that it
 * does not own or, to be added to, has a flag of `stop` in its word.  Return how many are done, or
 * an error. */
int64_t gwi_store_pull_owned(const gwi_store *store, gwi_walker *walker, const int64_t *keys,
                             size_t n, void *values);
int64_t gwi_store_push_owned(const gwi_store *store, gwi_walker *walker, const int64_t *keys,
                             size_t n, const void *values, uint64_t stop);

static inline bool gwi_store_latched(const gwi_store *store, int64_t key)
{
    return gwi_word_look(&store->words[key]) & GWI_WORD_LATCH;
}

static inline bool gwi_store_has(const gwi_store *store, int64_t key)
{
    return gwi_word_state(gwi_word_look(&store->words[key])) != GWI_ABSENT;
}

#endif
