/* row_test.c - rows of every length are added to and copied exactly, and nothing beside. */
#include "params/row.h"
#include "base/random.h"
#include "base/test.h"

#include <math.h>
#include <stdlib.h>

#define LONGEST 600
#define MARGIN 16 /* entries before and behind that must stay */

/* Every short length, and some about where vectors of the processor end. */
static size_t next_length(size_t n)
{
    return n < 70 ? n + 1 : n + 37;
}

#define DEFINE_CHECK_ADD(name, type, dtype)                                               \
    static void check_add_##name(size_t n, size_t shift)                                  \
    {                                                                                     \
        static _Alignas(64) type row[LONGEST + 2 * MARGIN], update[LONGEST + 2 * MARGIN], \
            expected[LONGEST + 2 * MARGIN];                                               \
                                                                                          \
        for (size_t i = 0; i < LONGEST + 2 * MARGIN; i++) {                               \
            expected[i] = row[i] = (type)(3 * i + 1);                                     \
            update[i] = (type)(1000 - 7 * (int)i) / 4;                                    \
        }                                                                                 \
        for (size_t i = 0; i < n; i++)                                                    \
            expected[MARGIN + shift + i] += update[i + shift / 2];                        \
        gwi_row_ops_of(dtype)->add(row + MARGIN + shift, update + shift / 2, n);          \
        assert_memory_equal(row, expected, sizeof row);                                   \
    }

DEFINE_CHECK_ADD(f32, float, GW_F32)
DEFINE_CHECK_ADD(f64, double, GW_F64)

static void every_entry_is_added_to_once_and_none_beside(void **state)
{
    (void)state;
    for (size_t n = 0; n <= LONGEST - MARGIN; n = next_length(n))
        for (size_t shift = 0; shift < 9; shift++) {
            check_add_f32(n, shift);
            check_add_f64(n, shift);
        }
}

static void a_read_and_a_write_copy_all_bytes_and_none_beside(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char from[4096], to[4096], expected[4096];
    gwi_random random;

    gwi_random_init(&random, 1, 0);
    for (size_t n = 0; n < 1000; n = next_length(n))
        for (int writes = 0; writes < 2; writes++) {
            gwi_random_fill(&random, from, sizeof from);
            gwi_random_fill(&random, to, sizeof to);
            memcpy(expected, to, sizeof to);
            memcpy(expected + 64, from + 4, 4 * n % 4000);
            if (writes)
                gwi_row_write(to + 64, from + 4, 4 * n % 4000);
            else
                gwi_row_read(to + 64, from + 4, 4 * n % 4000);
            assert_memory_equal(to, expected, sizeof to);
        }
}

static void sums_are_rounded_as_one_addition_is(void **state)
{
    (void)state;
    gwi_random random;
    float row[33], update[33], expected[33];

    gwi_random_init(&random, 2, 0);
    for (int turn = 0; turn < 1000; turn++) {
        for (int i = 0; i < 33; i++) {
            row[i] = (float)(gwi_random_double(&random) * 1e6);
            update[i] = (float)(gwi_random_double(&random) - 0.5);
            expected[i] = row[i] + update[i];
        }
        gwi_row_ops_of(GW_F32)->add(row, update, 33);
        assert_memory_equal(row, expected, sizeof row);
    }
}

/* Values, and what each was before; the last pair has an infinity in it. */
#define DEFINE_CHECK_CHANGES(name, type, dtype)                                               \
    static void check_changes_##name(size_t n)                                                \
    {                                                                                         \
        static type row[LONGEST], before[LONGEST], value[LONGEST], added[LONGEST + 1];        \
        const gwi_row_ops *ops = gwi_row_ops_of(dtype);                                       \
                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                      \
            before[i] = (type)i;                                                              \
            row[i] = (type)(i % 3 == 0 ? 3 * i + 2 : i);                                      \
            value[i] = (type)(1000 + i);                                                      \
        }                                                                                     \
        row[n - 1] = before[n - 1] = (type)INFINITY;                                          \
        added[n] = 7;                                                                         \
        assert_int_equal(ops->rebase(row, before, value, n), n > 1);                          \
        for (size_t i = 0; i < n; i++) {                                                      \
            size_t gained = i % 3 == 0 && i < n - 1 ? 2 * i + 2 : 0;                          \
            assert_true(before[i] == value[i] && row[i] == (type)(1000 + i + gained));        \
        }                                                                                     \
        assert_int_equal(ops->take_added(row, before, added, n),                              \
                         n > 1 ? GWI_ADDED : GWI_NONE_ADDED);                                 \
        for (size_t i = 0; i < n; i++)                                                        \
            assert_true(added[i] == (i % 3 == 0 && i < n - 1 ? (type)(2 * i + 2) : (type)0)); \
        assert_memory_equal(row, before, n * sizeof *row);                                    \
        assert_int_equal(ops->take_added(row, before, added, n), GWI_NONE_ADDED);             \
        assert_true(added[n] == 7);                                                           \
    }

DEFINE_CHECK_CHANGES(f32, float, GW_F32)
DEFINE_CHECK_CHANGES(f64, double, GW_F64)

static void what_was_added_is_found_and_put_on_top_of_another_value(void **state)
{
    (void)state;
    for (size_t n = 1; n < LONGEST; n = next_length(n)) {
        check_changes_f32(n);
        check_changes_f64(n);
    }
}

/* 1 + 2^-24 is 1 for a float, and the difference of the second pair is rounded, too. */
static void who_adds_what_was_taken_has_what_is_before_then(void **state)
{
    (void)state;
    float row[] = {1, 0.1f, 3}, before[] = {-0x1p-24f, 1e6f, 2}, sum[3], added[3];

    memcpy(sum, before, sizeof sum);
    assert_int_equal(gwi_row_ops_of(GW_F32)->take_added(row, before, added, 3), GWI_ADDED_NEARLY);
    gwi_row_ops_of(GW_F32)->add(sum, added, 3);
    assert_memory_equal(sum, before, sizeof sum);
    assert_true(before[1] != row[1] && before[2] == 3);
}

static void an_entry_that_is_no_number_on_both_sides_takes_the_new_value(void **state)
{
    (void)state;
    float row[] = {NAN, 1}, before[] = {NAN, 1}, value[] = {5, 6};

    memcpy(before, row, sizeof row); /* the same bytes */
    assert_int_equal(gwi_row_ops_of(GW_F32)->rebase(row, before, value, 2), 0);
    assert_memory_equal(row, value, sizeof row);
    assert_memory_equal(before, value, sizeof row);
}

GWI_TESTS(cmocka_unit_test(every_entry_is_added_to_once_and_none_beside),
          cmocka_unit_test(what_was_added_is_found_and_put_on_top_of_another_value),
          cmocka_unit_test(who_adds_what_was_taken_has_what_is_before_then),
          cmocka_unit_test(an_entry_that_is_no_number_on_both_sides_takes_the_new_value),
          cmocka_unit_test(a_read_and_a_write_copy_all_bytes_and_none_beside),
          cmocka_unit_test(sums_are_rounded_as_one_addition_is))
