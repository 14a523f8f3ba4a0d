/* strip_test.c - parts of arrays as streams. */
#include "comm/strip.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

/* An array of 3 x 5 x 4 bytes whose entry (i, j, k) is 20 i + 4 j + k, and its part
 * [1, 4) along the middle axis. */
static void fill(unsigned char *array)
{
    for (int i = 0; i < 60; i++)
        array[i] = (unsigned char)i;
}

static gwi_strip middle(unsigned char *array)
{
    return gwi_strip_part(array, 3, 5, 4, 1, 3);
}

static void a_part_is_read_as_if_it_were_dense(void **state)
{
    (void)state;
    unsigned char array[60], stream[36];
    gwi_strip s = middle(array);

    fill(array);
    assert_int_equal(s.n_bytes, 36);
    for (size_t from = 0; from < 36; from++)
        for (size_t n = 0; n <= 36 - from; n++) {
            gwi_strip_read(&s, from, stream, n);
            for (size_t k = 0; k < n; k++)
                assert_int_equal(stream[k], (from + k) / 12 * 20 + 4 + (from + k) % 12);
        }
}

static void writing_changes_the_part_and_nothing_else(void **state)
{
    (void)state;
    unsigned char array[60], stream[36];
    gwi_strip s = middle(array);

    for (size_t cut = 0; cut <= 36; cut++) {
        fill(array);
        memset(stream, 200, sizeof stream);
        gwi_strip_write(&s, 0, stream, cut, 0);
        gwi_strip_write(&s, cut, stream + cut, 36 - cut, 1);
        for (int i = 0; i < 60; i++)
            assert_int_equal(array[i], i % 20 >= 4 && i % 20 < 16 ? 200 : i);
    }
}

static void strips_of_different_axes_are_copied_into_each_other(void **state)
{
    (void)state;
    unsigned char from[60], to[48] = {0};
    /* 3 x 3 x 4 goes to the columns [0, 9) of an array 4 x 12, rows of 9. */
    gwi_strip source = middle(from), dest = gwi_strip_part(to, 4, 12, 1, 0, 9);

    fill(from);
    assert_int_equal(dest.n_bytes, 36);
    gwi_strip_copy(&dest, &source, 0, 20);
    gwi_strip_copy(&dest, &source, 20, 16);
    for (int i = 0; i < 36; i++)
        assert_int_equal(to[i / 9 * 12 + i % 9], i / 12 * 20 + 4 + i % 12);
}

static void only_what_lies_together_has_a_view(void **state)
{
    (void)state;
    unsigned char array[60];
    gwi_strip s = middle(array), whole = gwi_strip_whole(array, 60);

    assert_ptr_equal(gwi_strip_view(&s, 0, 12), array + 4);
    assert_ptr_equal(gwi_strip_view(&s, 13, 11), array + 25);
    assert_null(gwi_strip_view(&s, 11, 2));
    assert_ptr_equal(gwi_strip_view(&whole, 7, 53), array + 7);
}

static void an_empty_part_has_no_bytes(void **state)
{
    (void)state;
    unsigned char array[60], nothing[1];
    gwi_strip s = gwi_strip_part(array, 3, 5, 4, 2, 0);

    assert_int_equal(s.n_bytes, 0);
    gwi_strip_read(&s, 0, nothing, 0);
    gwi_strip_write(&s, 0, nothing, 0, 0);
    assert_non_null(gwi_strip_view(&s, 0, 0));
}

GWI_TESTS(cmocka_unit_test(a_part_is_read_as_if_it_were_dense),
          cmocka_unit_test(writing_changes_the_part_and_nothing_else),
          cmocka_unit_test(strips_of_different_axes_are_copied_into_each_other),
          cmocka_unit_test(only_what_lies_together_has_a_view),
          cmocka_unit_test(an_empty_part_has_no_bytes))
