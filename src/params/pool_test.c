/* pool_test.c - a pool uses each draw as often as it should, and announces it once. */
#include "params/pool.h"
#include "base/test.h"
#include "params/chi_test.h"

#include <stdlib.h>
#include <string.h>

#define N_KEYS 300
#define SIZE 250
#define REUSE 16
#define N_POOLS 256
#define N_DRAWS (SIZE * REUSE * N_POOLS) /* a million and some */

static int64_t keys[N_DRAWS], announced[N_DRAWS];

static void make(gwi_pool *pool, gwi_distribution *d, size_t size, uint64_t reuse)
{
    gwi_random random;

    *d = gwi_distribution_of(GW_DISTRIBUTION_LOG_UNIFORM, 0, N_KEYS);
    gwi_random_init(&random, 4, 4);
    assert_int_equal(gwi_pool_init(pool, d, random, size, reuse), 0);
}

static void count(const int64_t *from, size_t n, int64_t *counts)
{
    for (size_t i = 0; i < n; i++)
        counts[from[i]]++;
}

/* The draws themselves are independent; all uses together are each of them so many times. */
static void draws_are_as_the_distribution_says_and_each_is_used_equally_often(void **state)
{
    (void)state;
    int64_t draws[N_KEYS] = {0}, uses[N_KEYS] = {0};
    double weights[N_KEYS];
    gwi_distribution d;
    gwi_pool pool;
    int64_t end;

    make(&pool, &d, SIZE, REUSE);
    for (size_t at = 0, n = 0; at < N_DRAWS; at += n) { /* in portions that do not fit */
        n = N_DRAWS - at < 333 ? N_DRAWS - at : 333;
        gwi_pool_draw(&pool, keys + at, n, NULL, NULL, &end);
    }
    for (size_t p = 0; p < N_POOLS; p++) {
        const int64_t *from = keys + p * SIZE * REUSE;
        int64_t first[N_KEYS] = {0};
        int same_order = 0;
        count(from, SIZE, first);
        count(from, SIZE, draws);
        for (size_t use = 1; use < REUSE; use++) {
            int64_t again[N_KEYS] = {0};
            count(from + use * SIZE, SIZE, again);
            assert_memory_equal(first, again, sizeof first);
            same_order += memcmp(from, from + use * SIZE, SIZE * sizeof *from) == 0;
        }
        assert_int_equal(same_order, 0);
    }
    count(keys, N_DRAWS, uses);
    gwi_distribution_weights(&d, weights);
    assert_true(fabs(chi_normal(weights, draws, N_KEYS, 1)) < CHI_LIMIT);
    assert_true(fabs(chi_normal(weights, uses, N_KEYS, REUSE)) < CHI_LIMIT);
    assert_true(chi_normal(weights, uses, N_KEYS, 1) > 30); /* they depend on each other */
    gwi_pool_fini(&pool);
}

/* Each sample has a clock.  The first pool learns how long a pool lasts. */
static void a_draw_is_announced_once_for_as_long_as_its_pool_lasts(void **state)
{
    (void)state;
    enum { N = 100, CLOCKS = SIZE * REUSE / N };
    size_t n_announced[4] = {0};
    gwi_distribution d;
    gwi_pool pool;
    int64_t until[N_KEYS];

    make(&pool, &d, SIZE, REUSE);
    memset(until, 0, sizeof until);
    for (int64_t clock = 0; clock < 4 * CLOCKS; clock++) {
        gw_clocks when = {clock + 50, clock + 51};
        int64_t end = 0;
        size_t n = gwi_pool_draw(&pool, keys, N, &when, announced, &end);
        n_announced[clock / CLOCKS] += n;
        for (size_t i = 0; i < n; i++)
            until[announced[i]] = end > until[announced[i]] ? end : until[announced[i]];
        for (size_t i = 0; i < N; i++)
            assert_true(until[keys[i]] >= when.end); /* whatever is used has been announced */
    }
    assert_true(n_announced[0] > SIZE * REUSE / 2);
    for (int p = 1; p < 4; p++) {
        assert_true(n_announced[p] >= SIZE);
        assert_true(n_announced[p] < SIZE + N + SIZE / 10);
    }
    gwi_pool_fini(&pool);
}

static void the_smallest_pool_is_like_drawing(void **state)
{
    (void)state;
    gwi_distribution d;
    gwi_random random;
    gwi_pool pool;
    int64_t end;

    make(&pool, &d, 1, 1);
    gwi_pool_draw(&pool, keys, 1000, NULL, NULL, &end);
    gwi_random_init(&random, 4, 4);
    gwi_distribution_draw(&d, &random, keys + 1000, 1000);
    assert_memory_equal(keys, keys + 1000, 1000 * sizeof *keys);
    gwi_pool_fini(&pool);
}

static void clocks_that_are_far_away_do_no_harm(void **state)
{
    (void)state;
    gw_clocks when[] = {{INT64_MIN, INT64_MIN + 1}, {0, 1}, {INT64_MAX - 1, INT64_MAX}};
    gwi_distribution d;
    gwi_pool pool;
    int64_t end;

    make(&pool, &d, 10, 2);
    for (int i = 0; i < 30; i++) {
        gwi_pool_draw(&pool, keys, 7, &when[i % 3], announced, &end);
        assert_true(end == INT64_MIN || end >= when[i % 3].end);
    }
    gwi_pool_fini(&pool);
}

GWI_TESTS(cmocka_unit_test(draws_are_as_the_distribution_says_and_each_is_used_equally_often),
          cmocka_unit_test(a_draw_is_announced_once_for_as_long_as_its_pool_lasts),
          cmocka_unit_test(the_smallest_pool_is_like_drawing),
          cmocka_unit_test(clocks_that_are_far_away_do_no_harm))
