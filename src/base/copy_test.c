/* copy_test.c - streaming copies copy exactly what they should, and are made where they should be.
 */
#include "base/copy.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static void every_length_and_alignment_is_copied_exactly(void **state)
{
    (void)state;
    enum { ROOM = 1200 };
    unsigned char from[ROOM], to[ROOM], want[ROOM];

    for (int i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 7 + 1);
    for (size_t n = 0; n < 1000; n += n < 300 ? 1 : 37)
        for (size_t at = 0; at < 64; at += 3) {
            memset(to, 0, ROOM);
            memset(want, 0, ROOM);
            memcpy(want + at, from + at / 2, n);
            gwi_copy_stream(to + at, from + at / 2, n);
            assert_memory_equal(to, want, ROOM);
        }
}

static void who_needs_no_copy_makes_one_now_and_then_and_always_where_it_is_slow(void **state)
{
    (void)state;
    gwi_copier near = {.time_from = 1}, far = {.time_from = 1, .stream = 5};
    int n_near = 0;

    for (int i = 0; i < 80; i++)
        n_near += gwi_copier_is_due(&near);
    assert_in_range(n_near, 5, 20);
    for (int i = 0; i < 20; i++)
        assert_true(gwi_copier_is_due(&far));

    enum { N = 8192 };
    static unsigned char from[N], to[N];
    memset(from, 7, N);
    gwi_copier_copy_due(&far, to, from, N);
    assert_int_equal(far.stream, 4); /* it went past the cache */
    assert_memory_equal(to, from, N);
    gwi_copier_copy_due(&far, to, from, 8); /* nothing to gain */
    assert_int_equal(far.stream, 4);
}

GWI_TESTS(cmocka_unit_test(every_length_and_alignment_is_copied_exactly),
          cmocka_unit_test(who_needs_no_copy_makes_one_now_and_then_and_always_where_it_is_slow))
