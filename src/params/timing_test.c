/* timing_test.c - early enough, and not much earlier. */
#include "params/timing.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/test.h"

/* Looks every 100 us at a clock that advances every `period_ns`, until `to_ns`. */
static void watch(gwi_timing *t, int64_t period_ns, int64_t from_ns, int64_t to_ns, int64_t clock)
{
    for (int64_t now = from_ns; now <= to_ns; now += 100 * GWI_US)
        gwi_timing_look(t, clock + (now - from_ns) / period_ns, now);
}

static void before_anything_is_known_it_looks_some_clocks_ahead(void **state)
{
    (void)state;
    gwi_timing t = {0};

    assert_true(gwi_timing_ahead(&t, 0, 1) > 1);
    gwi_timing_look(&t, 0, GWI_MS);
    assert_true(gwi_timing_ahead(&t, GWI_MS, 1) > 1);
    assert_true(gwi_timing_ahead(&t, GWI_MS, 1) < 100);
    assert_true(gwi_timing_period_ns(&t) == 0);
}

static void a_slow_steady_clock_is_acted_on_shortly_before_it_advances(void **state)
{
    (void)state;
    gwi_timing t = {0};

    watch(&t, 10 * GWI_MS, GWI_MS, 201 * GWI_MS, 0);
    assert_true(gwi_timing_period_ns(&t) == 10 * GWI_MS);
    /* The clock is 20 since just now; 1 ms is enough for acting. */
    assert_int_equal(gwi_timing_ahead(&t, 201 * GWI_MS, GWI_MS), 1);
    assert_int_equal(gwi_timing_ahead(&t, 209 * GWI_MS, GWI_MS), 1);
    assert_int_equal(gwi_timing_ahead(&t, 210 * GWI_MS, GWI_MS), 2);
}

static void a_clock_that_is_late_does_not_run_away(void **state)
{
    (void)state;
    gwi_timing t = {0};

    watch(&t, 10 * GWI_MS, GWI_MS, 201 * GWI_MS, 0);
    assert_int_equal(gwi_timing_ahead(&t, 20 * GWI_SECOND, GWI_MS), 2);
    assert_int_equal(gwi_timing_ahead(&t, 20 * GWI_SECOND, 25 * GWI_MS), 4);
}

static void a_longer_span_looks_farther_ahead(void **state)
{
    (void)state;
    gwi_timing t = {0};
    int64_t last = 0;

    watch(&t, GWI_MS, GWI_MS, 50 * GWI_MS, 0);
    for (int64_t span = 0; span < 30 * GWI_MS; span += GWI_MS / 2) {
        int64_t ahead = gwi_timing_ahead(&t, 50 * GWI_MS, (double)span);
        assert_true(ahead >= last);
        last = ahead;
    }
    assert_in_range(last, 25, 32);
}

static void a_fast_clock_is_acted_on_many_clocks_ahead(void **state)
{
    (void)state;
    gwi_timing t = {0};

    watch(&t, 10 * GWI_US, GWI_MS, 50 * GWI_MS, 0); /* ten in every look */
    assert_in_range(gwi_timing_ahead(&t, 50 * GWI_MS, GWI_MS), 80, 120);
}

/* After a burst every pause may be the last one. */
static void the_shortest_time_counts(void **state)
{
    (void)state;
    gwi_timing t = {0};

    watch(&t, 10 * GWI_MS, GWI_MS, 51 * GWI_MS, 0);
    watch(&t, GWI_MS, 51 * GWI_MS, 56 * GWI_MS, 5);
    watch(&t, 10 * GWI_MS, 56 * GWI_MS, 106 * GWI_MS, 10);
    assert_in_range(gwi_timing_ahead(&t, 106 * GWI_MS, 3 * GWI_MS), 4, 5);
}

static void a_clock_seen_twice_counts_once(void **state)
{
    (void)state;
    gwi_timing t = {0};

    gwi_timing_look(&t, 4, 100);
    gwi_timing_look(&t, 4, 200);
    gwi_timing_look(&t, 5, 200);
    gwi_timing_look(&t, 6, 200);
    assert_int_equal(t.n, 2);
    assert_true(gwi_timing_period_ns(&t) == 100);
}

/* Most take 1 to 2 us, and one in 64 up to 100 us: as the simulation's messages do. */
static void what_is_learned_is_rarely_exceeded(void **state)
{
    (void)state;
    double most = 0;
    int exceeded = 0;
    gwi_random r;

    gwi_random_init(&r, 1, 0);
    for (int i = 0; i < 100000; i++) {
        int is_long = gwi_random_below(&r, 64) == 0;
        double took = 1000 + (double)gwi_random_below(&r, is_long ? 100000 : 1000);
        exceeded += took > most && i > 0;
        gwi_timing_learn(&most, took);
        assert_true(most < 200000);
    }
    assert_in_range(exceeded, 1, 1000);
}

static void what_no_longer_is_so_is_forgotten(void **state)
{
    (void)state;
    double most = 0;

    gwi_timing_learn(&most, 100000);
    for (int i = 0; i < 3000; i++)
        gwi_timing_learn(&most, 1000 + i % 2 * 500);
    assert_true(most >= 1000 && most < 2000);
}

GWI_TESTS(cmocka_unit_test(before_anything_is_known_it_looks_some_clocks_ahead),
          cmocka_unit_test(a_slow_steady_clock_is_acted_on_shortly_before_it_advances),
          cmocka_unit_test(a_clock_that_is_late_does_not_run_away),
          cmocka_unit_test(a_longer_span_looks_farther_ahead),
          cmocka_unit_test(a_fast_clock_is_acted_on_many_clocks_ahead),
          cmocka_unit_test(the_shortest_time_counts),
          cmocka_unit_test(a_clock_seen_twice_counts_once),
          cmocka_unit_test(what_is_learned_is_rarely_exceeded),
          cmocka_unit_test(what_no_longer_is_so_is_forgotten))
