/* pool.h - keys that are drawn once and used several times.
 *
 * A pool is filled by independent draws.  Then it is gone through `reuse` times, each time in
 * another random order, and filled anew.  So every draw is used exactly `reuse` times, and among
 * so many draws as the pool is large none comes more often than it was drawn.
 *
 * Each worker has a pool of its own: what it draws does not depend on others, and nobody waits.
 *
 * A draw remembers up to which clock it has been announced.  The first time that it is used it is
 * announced for as long as the pool before lasted, so that most uses need nothing more.
 *
 * Threads  Its worker's.                                                              */
#ifndef GWI_PARAMS_POOL_H
#define GWI_PARAMS_POOL_H

#include "params/distribution.h"

typedef struct gwi_draw {
    int64_t key;
    int64_t announced; /* until this clock */
} gwi_draw;

typedef struct gwi_pool {
    const gwi_distribution *distribution; /* borrowed */
    gwi_random random;
    gwi_draw *draws; /* `size` of them, in the order in which they are used; owned */
    int64_t *filled; /* room for as many keys; owned */
    size_t size, next;
    uint64_t uses, reuse; /* how often it has been gone through, and shall be */
    /* in clocks, as prepared: when it was filled and used last, and how long the one before
     * lasted */
    int64_t began, used, lasted;
} gwi_pool;

/* `random` is its stream. */
int gwi_pool_init(gwi_pool *pool, const gwi_distribution *distribution, gwi_random random,
                  size_t size, uint64_t reuse);
void gwi_pool_fini(gwi_pool *pool); /* zeros are fine */

/* The next `n` keys.  If `when` is not NULL, also those of them that have to be announced from
 * when->start up to `ret_end`, as many as are returned. */
size_t gwi_pool_draw(gwi_pool *pool, int64_t *ret_keys, size_t n, const gw_clocks *when,
                     int64_t *ret_announce, int64_t *ret_end);

#endif
