/* pool.c - filling, shuffling, and when to announce. */
#include "params/pool.h"
#include "base/error.h"

#include <stdlib.h>

int gwi_pool_init(gwi_pool *pool, const gwi_distribution *distribution, gwi_random random,
                  size_t size, uint64_t reuse)
{
    *pool = (gwi_pool){.distribution = distribution,
                       .random = random,
                       .draws = malloc(size * sizeof(gwi_draw)),
                       .filled = malloc(size * sizeof(int64_t)),
                       .size = size,
                       .next = size,
                       .uses = reuse, /* the first use fills it */
                       .reuse = reuse};
    if (pool->draws != NULL && pool->filled != NULL)
        return 0;
    gwi_pool_fini(pool);
    return gwi_fail(GW_ENOMEM, "a pool of %zu keys", size);
}

void gwi_pool_fini(gwi_pool *pool)
{
    free(pool->draws);
    free(pool->filled);
    *pool = (gwi_pool){0};
}

static void fill(gwi_pool *pool, const gw_clocks *when)
{
    gwi_distribution_draw(pool->distribution, &pool->random, pool->filled, pool->size);
    for (size_t i = 0; i < pool->size; i++)
        pool->draws[i] = (gwi_draw){pool->filled[i], INT64_MIN};
    pool->uses = 0;
    if (when == NULL)
        return;
    if (__builtin_sub_overflow(pool->used, pool->began, &pool->lasted))
        pool->lasted = 0; /* nobody counts so many clocks */
    pool->began = pool->used = when->start;
}

static void shuffle(gwi_pool *pool)
{
    for (size_t i = pool->size - 1; i > 0; i--) {
        size_t other = gwi_random_below(&pool->random, i + 1);
        gwi_draw kept = pool->draws[i];
        pool->draws[i] = pool->draws[other];
        pool->draws[other] = kept;
    }
}

static gwi_draw *next_draw(gwi_pool *pool, const gw_clocks *when)
{
    if (pool->next == pool->size) {
        if (pool->uses < pool->reuse)
            shuffle(pool);
        else
            fill(pool, when);
        pool->uses++;
        pool->next = 0;
    }
    return &pool->draws[pool->next++];
}

/* Until when its draws are announced: while it lasts, if it lasts as long as the one before. */
static int64_t horizon(const gwi_pool *pool, const gw_clocks *when)
{
    int64_t end = pool->began > INT64_MAX - pool->lasted ? INT64_MAX : pool->began + pool->lasted;

    return end > when->end ? end : when->end;
}

size_t gwi_pool_draw(gwi_pool *pool, int64_t *ret_keys, size_t n, const gw_clocks *when,
                     int64_t *ret_announce, int64_t *ret_end)
{
    size_t n_announced = 0;
    int64_t end = INT64_MIN;

    for (size_t i = 0; i < n; i++) {
        gwi_draw *draw = next_draw(pool, when);
        ret_keys[i] = draw->key;
        if (when == NULL || draw->announced >= when->end)
            continue;
        draw->announced = horizon(pool, when);
        end = draw->announced > end ? draw->announced : end; /* some are announced for longer */
        ret_announce[n_announced++] = draw->key;
    }
    if (when != NULL && when->start > pool->used)
        pool->used = when->start;
    *ret_end = end;
    return n_announced;
}
