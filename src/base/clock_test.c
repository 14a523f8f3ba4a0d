/* clock_test.c - time goes forward and spans do not overflow. */
#include "base/clock.h"
#include "base/test.h"

#include <math.h>

static void time_never_goes_back(void **state)
{
    (void)state;
    int64_t last = gwi_now_ns();

    for (int i = 0; i < 10000; i++) {
        int64_t now = gwi_now_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void a_deadline_beyond_all_time_is_for_ever(void **state)
{
    (void)state;
    assert_true(gwi_deadline_ns(GWI_FOREVER) == GWI_FOREVER);
    assert_true(gwi_deadline_ns(GWI_FOREVER - 1) == GWI_FOREVER);
    int64_t soon = gwi_deadline_ns(GWI_SECOND);
    assert_true(soon > gwi_now_ns() && soon <= gwi_now_ns() + GWI_SECOND);
}

static void seconds_that_do_not_fit_are_clamped(void **state)
{
    (void)state;
    assert_true(gwi_seconds_to_ns(1.5) == 1500000000);
    assert_true(gwi_seconds_to_ns(-1) == 0);
    assert_true(gwi_seconds_to_ns(1e-20) == 1);
    assert_true(gwi_seconds_to_ns((double)NAN) == 0);
    assert_true(gwi_seconds_to_ns(1e300) == GWI_FOREVER);
    assert_true(gwi_seconds_to_ns((double)INFINITY) == GWI_FOREVER);
}

static void the_cheap_clock_is_the_same_but_a_little_late(void **state)
{
    (void)state;
    int64_t cheap = gwi_coarse_ns(), exact = gwi_now_ns();

    assert_true(cheap <= exact && exact - cheap < GWI_SECOND / 10);
    gwi_nap_ns(30 * GWI_MS);
    assert_true(gwi_coarse_ns() > cheap);
}

GWI_TESTS(cmocka_unit_test(the_cheap_clock_is_the_same_but_a_little_late),
          cmocka_unit_test(time_never_goes_back),
          cmocka_unit_test(a_deadline_beyond_all_time_is_for_ever),
          cmocka_unit_test(seconds_that_do_not_fit_are_clamped))
