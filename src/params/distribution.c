/* distribution.c - drawing from a distribution. */
#include "params/distribution.h"

#include <math.h>

__extension__ typedef unsigned __int128 uint128;

#define BATCH 64 /* cells that come from memory together */

gwi_distribution gwi_distribution_of(gw_distribution kind, int64_t min, int64_t max)
{
    uint64_t n = (uint64_t)(max - min);

    return (gwi_distribution){
        .kind = kind, .min = min, .n = n, .n_possible = n, .log_n_1 = log((double)n + 1)};
}

static void draw_uniform(const gwi_distribution *d, gwi_random *random, int64_t *ret_keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ret_keys[i] = d->min + (int64_t)gwi_random_below(random, d->n);
}

/* Of x in [1, n + 1), the logarithm of which is uniform, the whole part. */
static void draw_log_uniform(const gwi_distribution *d, gwi_random *random, int64_t *ret_keys,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)exp(gwi_random_double(random) * d->log_n_1) - 1;
        ret_keys[i] = d->min + (int64_t)(at < d->n ? at : d->n - 1);
    }
}

/* The upper half of a random number times n tells the cell, the lower half where in the cell.  Of
 * the 2^64 numbers a cell has as many as another, or one less: with n below 2^32 nobody will ever
 * see that. */
static void draw_cells(const gwi_distribution *d, gwi_random *random, int64_t *ret_keys, size_t n)
{
    uint64_t at[BATCH], where[BATCH];

    for (size_t i = 0; i < n; i++) {
        uint128 product = (uint128)gwi_random_u64(random) * d->n;
        at[i] = (uint64_t)(product >> 64);
        where[i] = (uint64_t)product;
        __builtin_prefetch(&d->cells[at[i]]);
    }
    for (size_t i = 0; i < n; i++)
        ret_keys[i] = d->min + (int64_t)gwi_alias_whose(d->cells, at[i], where[i]);
}

static void draw_weights(const gwi_distribution *d, gwi_random *random, int64_t *ret_keys, size_t n)
{
    for (size_t i = 0; i < n; i += BATCH)
        draw_cells(d, random, ret_keys + i, n - i < BATCH ? n - i : BATCH);
}

void gwi_distribution_draw(const gwi_distribution *d, gwi_random *random, int64_t *ret_keys,
                           size_t n)
{
    switch (d->kind) {
    case GW_DISTRIBUTION_UNIFORM:
        draw_uniform(d, random, ret_keys, n);
        return;
    case GW_DISTRIBUTION_LOG_UNIFORM:
        draw_log_uniform(d, random, ret_keys, n);
        return;
    case GW_DISTRIBUTION_WEIGHTS:
        draw_weights(d, random, ret_keys, n);
        return;
    }
}

void gwi_distribution_weights(const gwi_distribution *d, double *ret_weights)
{
    if (d->kind == GW_DISTRIBUTION_WEIGHTS) {
        gwi_alias_weights(d->cells, d->n, ret_weights);
        return;
    }
    for (uint64_t i = 0; i < d->n; i++)
        ret_weights[i] = d->kind == GW_DISTRIBUTION_UNIFORM ? 1 : log1p(1 / ((double)i + 1));
}
