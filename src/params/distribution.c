/* distribution.c - drawing from a distribution. */
#include "params/distribution.h"

#include <math.h>

__extension__ typedef unsigned __int128 uint128;

#define BATCH 64 /* cells that come from memory together */

gwi_distribution gwi_distribution_of(gw_distribution kind, int64_t min, int64_t max)
{
    uint64_t n = (uint64_t)(max - min);

    return (gwi_distribution){
        .kind = kind, .min = min, .n = n, .n_possible = n, .log2_n_1 = log2((double)n + 1)};
}

static void draw_uniform(const gwi_distribution *d, gwi_random *random, int64_t *ret_keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ret_keys[i] = d->min + (int64_t)gwi_random_below(random, d->n);
}

/* 2^x for x from 0 to 63: bits for the whole part, a table for sixteenths, and a polynomial of
 * e^(f log 2) for the rest f, off by less than 1e-13.  Unlike exp() it is the same everywhere, and
 * several are under way at once. */
static inline double power_of_two(double x)
{
    static const double sixteenths[16] = {
        0x1p0,
        0x1.0b5586cf9890fp0,
        0x1.172b83c7d517bp0,
        0x1.2387a6e756238p0,
        0x1.306fe0a31b715p0,
        0x1.3dea64c123422p0,
        0x1.4bfdad5362a27p0,
        0x1.5ab07dd485429p0,
        0x1.6a09e667f3bcdp0,
        0x1.7a11473eb0187p0,
        0x1.8ace5422aa0dbp0,
        0x1.9c49182a3f09p0,
        0x1.ae89f995ad3adp0,
        0x1.c199bdd85529cp0,
        0x1.d5818dcfba487p0,
        0x1.ea4afa2a490dap0,
    };
    int64_t parts = (int64_t)(x * 16);
    double y = (x - (double)parts / 16) * 0.69314718055994530942;
    double rest = 1 +
                  y * (1 + y * (1 / 2. + y * (1 / 6. + y * (1 / 24. + y * (1 / 120. + y / 720)))));

    return rest * sixteenths[parts & 15] * (double)(INT64_C(1) << (parts >> 4));
}

/* Of x in [1, n + 1), the logarithm of which is uniform, the whole part. */
static void draw_log_uniform(const gwi_distribution *d, gwi_random *random, int64_t *ret_keys,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t at = (int64_t)power_of_two(gwi_random_double(random) * d->log2_n_1) - 1;
        ret_keys[i] = d->min + (at < (int64_t)d->n ? at : (int64_t)d->n - 1);
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
