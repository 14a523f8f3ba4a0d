/* partition_test.c - every row has the owner that a search by hand finds. */
#include "memory/partition.h"
#include "base/test.h"

#include <string.h>

static void check(int64_t n_rows, int size, const int64_t *rows_per_rank)
{
    gwi_partition p;
    int64_t sum = 0;

    assert_int_equal(gwi_partition_init(&p, n_rows, size, rows_per_rank), 0);
    for (int r = 0; r < size; r++) {
        assert_int_equal(p.starts[r], sum);
        if (rows_per_rank != NULL)
            assert_int_equal(gwi_partition_count(&p, r), rows_per_rank[r]);
        sum += gwi_partition_count(&p, r);
    }
    assert_int_equal(sum, n_rows);
    for (int64_t row = 0; row < n_rows; row += 1 + n_rows / 100000) {
        int owner = gwi_partition_owner(&p, row);
        assert_true(row >= p.starts[owner] && row < p.starts[owner + 1]);
    }
    gwi_partition_fini(&p);
}

static void every_row_has_one_owner(void **state)
{
    (void)state;
    check(0, 3, NULL);
    check(1, 4, NULL);
    check(10, 4, NULL);
    check(10, 1, NULL);
    check(4095, 7, NULL);
    check(4096, 7, NULL);
    check(4097, 1000, NULL);
    check(INT64_C(1) << 40, 5, NULL);
    check(12, 5, (int64_t[]){0, 5, 0, 7, 0});
    check(5, 3, (int64_t[]){5, 0, 0});
    check(10000, 4, (int64_t[]){1, 9997, 0, 2});
}

static void equal_parts_are_rounded_up_and_the_last_get_less(void **state)
{
    (void)state;
    gwi_partition p;

    assert_int_equal(gwi_partition_init(&p, 10, 4, NULL), 0);
    assert_int_equal(gwi_partition_count(&p, 0), 3);
    assert_int_equal(gwi_partition_count(&p, 3), 1);
    gwi_partition_fini(&p);
}

static void parts_that_do_not_add_up_are_refused(void **state)
{
    (void)state;
    gwi_partition p;

    assert_int_equal(gwi_partition_init(&p, 10, 2, (int64_t[]){5, 4}), GW_EINVAL);
    assert_non_null(strstr(gw_last_error(), "adds up to 9"));
    assert_int_equal(gwi_partition_init(&p, 10, 2, (int64_t[]){5, 6}), GW_EINVAL);
    assert_int_equal(gwi_partition_init(&p, 10, 2, (int64_t[]){11, -1}), GW_EINVAL);
    assert_int_equal(gwi_partition_init(&p, 10, 2, (int64_t[]){-1, 11}), GW_EINVAL);
    assert_non_null(strstr(gw_last_error(), "rows_per_rank[0] is -1"));
}

GWI_TESTS(cmocka_unit_test(every_row_has_one_owner),
          cmocka_unit_test(equal_parts_are_rounded_up_and_the_last_get_less),
          cmocka_unit_test(parts_that_do_not_add_up_are_refused))
