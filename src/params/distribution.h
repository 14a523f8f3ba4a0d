/* distribution.h - which keys are drawn, and how often.
 *
 * Keys min to min + n - 1:
 *
 *     uniform       all alike
 *     log-uniform   key min + i with the probability log((i + 2) / (i + 1)) / log(n + 1): nearly
 *                   proportional to 1 / (i + 1), as words sorted by how frequent they are
 *     weights       as a table of them says (alias.h)
 *
 * A key takes one number of the random stream, but for one in 2^64 / n, so that a stream gives the
 * same keys in whatever portions they are drawn.
 *
 * Owning   The table is the caller's and outlives the distribution.
 * Threads  A distribution is constant; a stream is used by one thread at a time.        */
#ifndef GWI_PARAMS_DISTRIBUTION_H
#define GWI_PARAMS_DISTRIBUTION_H

#include "base/hash.h"
#include "base/random.h"
#include "params/alias.h"
#include "params/store.h"

#include <godwit/params.h>

typedef struct gwi_distribution {
    gw_distribution kind;
    int64_t min;
    uint64_t n;
    uint64_t n_possible;         /* keys that can be drawn: those with weight */
    const gwi_alias_cell *cells; /* of weights; borrowed */
    double log2_n_1;             /* log2(n + 1) */
} gwi_distribution;

/* `cells` and `n_possible` are the caller's to set if there are weights. */
gwi_distribution gwi_distribution_of(gw_distribution kind, int64_t min, int64_t max);

void gwi_distribution_draw(const gwi_distribution *d, gwi_random *random, int64_t *ret_keys,
                           size_t n);

/* Of each key, something in proportion to its probability. */
void gwi_distribution_weights(const gwi_distribution *d, double *ret_weights);

/* Which keys may be drawn. */
typedef struct gwi_choice {
    const gwi_store *store; /* only those that it has now; NULL: any */
    gwi_hash *taken;        /* none of these, and those drawn are added; NULL: any, again too */
} gwi_choice;

/* Draw among some keys, with the probabilities that these have among themselves; without `taken`
 * independently, else one after the other from those that are left.  Draws are tried; where that
 * has not come to an end in a time that is in proportion to n plus the number of keys, all keys are
 * looked at, which takes as long, and 8 to 24 bytes each.  GW_ESTATE if there are not enough keys
 * of which `store` has the vectors, GW_ENOMEM, or what `use` said; then the stream and `taken` are
 * as they were. */
int gwi_choose(const gwi_distribution *d, gwi_random *random, gwi_choice choice, int64_t *ret_keys,
               size_t n);

#endif
