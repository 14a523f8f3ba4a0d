/* geometry_test.c - keys are sorted into length classes, or refused by name. */
#include "params/geometry.h"
#include "base/test.h"

#include <stdlib.h>
#include <string.h>

static gwi_geometry geometry;

static int drop(void **state)
{
    (void)state;
    gwi_geometry_fini(&geometry);
    return 0;
}

static void make(int64_t n_keys, const int64_t *lengths, size_t n_lengths, gw_dtype dtype)
{
    gwi_geometry_fini(&geometry);
    assert_int_equal(gwi_geometry_init(&geometry, n_keys, lengths, n_lengths, dtype), 0);
}

static void one_length_makes_one_class(void **state)
{
    (void)state;
    const int64_t length = 7, keys[] = {0, 9, 9};

    make(10, &length, 1, GW_F32);
    assert_int_equal(geometry.n_classes, 1);
    assert_null(geometry.class_of);
    assert_int_equal(geometry.classes[0].length, 7);
    assert_int_equal(geometry.classes[0].row_bytes, 28);
    assert_int_equal(geometry.classes[0].n_keys, 10);
    assert_int_equal(gwi_geometry_entries(&geometry, keys, 3), 21);
    assert_int_equal(gwi_geometry_entries(&geometry, NULL, 0), 0);
}

static void equal_lengths_need_no_classes(void **state)
{
    (void)state;
    const int64_t lengths[] = {3, 3, 3};

    make(3, lengths, 3, GW_F64);
    assert_int_equal(geometry.n_classes, 1);
    assert_null(geometry.class_of);
    assert_int_equal(geometry.classes[0].row_bytes, 24);
    assert_int_equal(geometry.classes[0].n_keys, 3);
}

static void classes_come_in_the_order_of_their_first_keys(void **state)
{
    (void)state;
    const int64_t lengths[] = {5, 2, 5, 9, 2, 5}, keys[] = {0, 1, 3, 3};
    const int64_t expected[][2] = {{5, 3}, {2, 2}, {9, 1}};

    make(6, lengths, 6, GW_F32);
    assert_int_equal(geometry.n_classes, 3);
    for (int c = 0; c < 3; c++) {
        assert_int_equal(geometry.classes[c].length, expected[c][0]);
        assert_int_equal(geometry.classes[c].n_keys, expected[c][1]);
    }
    for (int64_t key = 0; key < 6; key++)
        assert_int_equal(gwi_geometry_class(&geometry, key)->length, lengths[key]);
    assert_int_equal(gwi_geometry_entries(&geometry, keys, 4), 5 + 2 + 9 + 9);
}

static void refuse(int err, const char *words, int64_t n_keys, const int64_t *lengths,
                   size_t n_lengths, gw_dtype dtype)
{
    gwi_geometry g = {0}, zeros = {0};

    assert_int_equal(gwi_geometry_init(&g, n_keys, lengths, n_lengths, dtype), err);
    if (strstr(gw_last_error(), words) == NULL)
        fail_msg("'%s' does not say '%s'", gw_last_error(), words);
    assert_memory_equal(&g, &zeros, sizeof g);
}

static void bad_arguments_are_refused_by_name(void **state)
{
    (void)state;
    const int64_t one = 1, none = 0, negative = -5, long_one = GWI_MAX_LENGTH + 1,
                  some[] = {4, 4, 0, 4}, least = INT64_MIN;

    refuse(GW_EINVAL, "num_keys is 0", 0, &one, 1, GW_F32);
    refuse(GW_EINVAL, "num_keys is -1", -1, &one, 1, GW_F32);
    refuse(GW_EINVAL, "num_keys is -9223372036854775808", INT64_MIN, &one, 1, GW_F32);
    refuse(GW_EINVAL, "num_keys is 4294967294", UINT32_MAX - 1, &one, 1, GW_F32);
    refuse(GW_EINVAL, "lengths is 0", 4, &none, 1, GW_F32);
    refuse(GW_EINVAL, "lengths is -5", 4, &negative, 1, GW_F32);
    refuse(GW_EINVAL, "lengths is -9223372036854775808", 4, &least, 1, GW_F64);
    refuse(GW_EINVAL, "lengths is 2147483649", 4, &long_one, 1, GW_F32);
    refuse(GW_EINVAL, "lengths[2] is 0", 4, some, 4, GW_F32);
    refuse(GW_EINVAL, "lengths has 3 entries", 4, some, 3, GW_F32);
    refuse(GW_EINVAL, "lengths has 0 entries", 4, some, 0, GW_F32);
    refuse(GW_EINVAL, "lengths has 5 entries", 4, some, 5, GW_F32);
    refuse(GW_ETYPE, "dtype must be float32 or float64", 4, &one, 1, GW_I64);
    refuse(GW_ETYPE, "dtype", 4, &one, 1, (gw_dtype)-1);
    refuse(GW_ETYPE, "dtype", 4, &one, 1, GW_N_DTYPES);
}

static int64_t *count_up(size_t n)
{
    int64_t *lengths = malloc(n * sizeof *lengths);

    assert_non_null(lengths);
    for (size_t i = 0; i < n; i++)
        lengths[i] = 1 + (int64_t)i;
    return lengths;
}

static void there_are_as_many_classes_as_two_bytes_count(void **state)
{
    (void)state;
    size_t n = GWI_MAX_CLASSES + 10;
    int64_t *lengths = count_up(n);

    refuse(GW_EINVAL, "more than 65536 different lengths", (int64_t)n, lengths, n, GW_F32);
    for (size_t i = GWI_MAX_CLASSES; i < n; i++)
        lengths[i] = GWI_MAX_CLASSES; /* the last class again */
    make((int64_t)n, lengths, n, GW_F32);
    assert_int_equal(geometry.n_classes, GWI_MAX_CLASSES);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(gwi_geometry_class(&geometry, (int64_t)i)->length, lengths[i]);
    free(lengths);
}

static uint64_t hash_of(int64_t n_keys, const int64_t *lengths, size_t n_lengths, gw_dtype dtype)
{
    make(n_keys, lengths, n_lengths, dtype);
    return geometry.hash;
}

static void whoever_disagrees_has_another_hash(void **state)
{
    (void)state;
    const int64_t lengths[] = {4, 5, 6}, turned[] = {5, 4, 6}, four = 4, five = 5;
    uint64_t hashes[] = {
        hash_of(3, lengths, 3, GW_F32), hash_of(3, turned, 3, GW_F32), hash_of(3, &four, 1, GW_F32),
        hash_of(4, &four, 1, GW_F32),   hash_of(3, &five, 1, GW_F32),  hash_of(3, &four, 1, GW_F64),
        hash_of(3, lengths, 3, GW_F64),
    };
    size_t n = sizeof hashes / sizeof *hashes;

    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (hashes[i] == hashes[j])
                fail_msg("numbers %zu and %zu have the same hash", j, i);
    assert_int_equal(hash_of(3, lengths, 3, GW_F32), hashes[0]);
}

static void ending_twice_is_fine(void **state)
{
    (void)state;
    const int64_t lengths[] = {1, 2};

    make(2, lengths, 2, GW_F32);
    gwi_geometry_fini(&geometry);
    gwi_geometry_fini(&geometry);
    assert_null(geometry.classes);
}

GWI_TESTS(cmocka_unit_test_teardown(one_length_makes_one_class, drop),
          cmocka_unit_test_teardown(equal_lengths_need_no_classes, drop),
          cmocka_unit_test_teardown(classes_come_in_the_order_of_their_first_keys, drop),
          cmocka_unit_test_teardown(bad_arguments_are_refused_by_name, drop),
          cmocka_unit_test_teardown(there_are_as_many_classes_as_two_bytes_count, drop),
          cmocka_unit_test_teardown(whoever_disagrees_has_another_hash, drop),
          cmocka_unit_test_teardown(ending_twice_is_fine, drop))
