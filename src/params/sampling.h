/* sampling.h - what the workers of a process know of how samples are drawn.
 *
 * Made by gw_params_enable_sampling(), on all processes or none, and constant from then on.  The
 * table of weights lies in a segment of the node, which the first of its processes fills before
 * any of them has the sampling.
 *
 * If a process dies here: while they agree, the others' waits end with its name; later nobody
 * misses it.  The segment is freed when the last process has ended.                    */
#ifndef GWI_PARAMS_SAMPLING_H
#define GWI_PARAMS_SAMPLING_H

#include "params/distribution.h"
#include "params/params.h"

struct gwi_sampling {
    gw_sampling_scheme scheme;
    gwi_distribution distribution;
    int replacement;
    size_t pool_size;
    uint64_t reuse, seed;
    uint64_t shortest, longest; /* vectors among the keys */
    gwi_segment segment;        /* of the table; `base` is NULL if there is none */
};

/* NULL: not enabled. */
static inline const gwi_sampling *gwi_sampling_of(gw_params *params)
{
    /* pairs with the release in sampling.c */
    return atomic_load_explicit(&params->sampling, memory_order_acquire);
}

void gwi_sampling_free(gw_params *params);

#endif
