/* npy_test.c - headers written and read again, and such that are wrong. */
#include "memory/npy.h"
#include "base/test.h"

#include <stdio.h>
#include <string.h>

static size_t header(const char *text, unsigned char *bytes)
{
    size_t n = strlen(text);

    memcpy(bytes, "\x93NUMPY\x01\x00", 8);
    bytes[8] = (unsigned char)(n & 255);
    bytes[9] = (unsigned char)(n >> 8);
    memcpy(bytes + 10, text, n);
    return n + 10;
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    const int64_t shape[] = {7, 1000000000000, 3};
    char bytes[512];
    gwi_npy npy;

    for (int d = 0; d < GW_N_DTYPES; d++)
        for (int n_dims = 1; n_dims <= 3; n_dims++) {
            int n = gwi_npy_write((gw_dtype)d, n_dims, shape, bytes, sizeof bytes);
            if (d == GW_BF16) {
                assert_int_equal(n, GW_EUNSUP);
                continue;
            }
            assert_true(n > 0 && n % 64 == 0);
            assert_int_equal(gwi_npy_length((unsigned char *)bytes), n);
            assert_int_equal(gwi_npy_read((unsigned char *)bytes, (size_t)n, &npy), 0);
            assert_int_equal(npy.dtype, d);
            assert_int_equal(npy.n_dims, n_dims);
            assert_memory_equal(npy.shape, shape, (size_t)n_dims * sizeof shape[0]);
            assert_int_equal(npy.header_bytes, n);
        }
    assert_true(gwi_npy_write(GW_F32, 3, shape, bytes, 20) < 0);
}

static void it_is_what_numpy_writes(void **state)
{
    (void)state;
    char bytes[512];

    assert_int_equal(gwi_npy_write(GW_F32, 2, (int64_t[]){3, 4}, bytes, sizeof bytes), 128);
    assert_memory_equal(bytes + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }",
                        59);
    assert_int_equal(gwi_npy_write(GW_U8, 1, (int64_t[]){3}, bytes, sizeof bytes), 128);
    assert_memory_equal(bytes + 10, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }",
                        57);
    assert_int_equal(bytes[127], '\n');
}

static void other_spellings_are_read(void **state)
{
    (void)state;
    unsigned char bytes[512];
    gwi_npy npy;

    size_t n = header("{\"shape\": (2L,3),'descr':'=i8' , 'fortran_order' :False}", bytes);
    assert_int_equal(gwi_npy_read(bytes, n, &npy), 0);
    assert_true(npy.dtype == GW_I64 && npy.n_dims == 2 && npy.shape[1] == 3);
    n = header("{'shape': (), 'descr':'|b1', 'fortran_order':False,}", bytes);
    assert_int_equal(gwi_npy_read(bytes, n, &npy), 0);
    assert_int_equal(npy.n_dims, 0);
}

static void what_cannot_be_read_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (3,), }", "order of bytes"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }", "column by column"},
        {"{'descr': '<U4', 'fortran_order': False, 'shape': (3,), }", "no type"},
        {"{'descr': [('a','<f4')], 'fortran_order': False, 'shape': (3,), }", "several"},
        {"{'descr': '<f4', 'fortran_order': False, }", "lacks"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "shape"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)", "read"},
        {"{'descr': '<f4", "several"},
        {"", "read"},
        {"{'other': 1}", "other"},
    };
    unsigned char bytes[512];
    gwi_npy npy;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t n = header(wrong[i].text, bytes);
        while (n < GWI_NPY_START)
            bytes[n++] = ' ', bytes[8]++;
        assert_int_equal(gwi_npy_read(bytes, n, &npy), GW_EINVAL);
        if (strstr(gw_last_error(), wrong[i].why) == NULL)
            fail_msg("'%s' gave '%s'", wrong[i].text, gw_last_error());
    }
    memcpy(bytes, "\x93NUMPX", 6);
    assert_int_equal(gwi_npy_length(bytes), 0);
}

GWI_TESTS(cmocka_unit_test(what_is_written_is_read_again),
          cmocka_unit_test(it_is_what_numpy_writes), cmocka_unit_test(other_spellings_are_read),
          cmocka_unit_test(what_cannot_be_read_is_refused_with_a_reason))
