/* convert_test.c - every pair of types. */
#include "memory/convert.h"
#include "base/half.h"
#include "base/test.h"

#include <complex.h>
#include <math.h>
#include <string.h>

#define N 100

/* Small whole numbers, which every type but bool holds exactly. */
static void fill(gw_dtype dtype, unsigned char *bytes)
{
    for (int i = 0; i < N; i++) {
        int x = i;
        switch (dtype) {
        case GW_U8:
        case GW_I8:
            bytes[i] = (unsigned char)x;
            break;
        case GW_BOOL:
            bytes[i] = x != 0;
            break;
        case GW_I16:
            ((int16_t *)(void *)bytes)[i] = (int16_t)x;
            break;
        case GW_I32:
            ((int32_t *)(void *)bytes)[i] = x;
            break;
        case GW_I64:
            ((int64_t *)(void *)bytes)[i] = x;
            break;
        case GW_F16:
            ((uint16_t *)(void *)bytes)[i] = gwi_f16_of_float((float)x);
            break;
        case GW_BF16:
            ((uint16_t *)(void *)bytes)[i] = gwi_bf16_of_float((float)x);
            break;
        case GW_F32:
            ((float *)(void *)bytes)[i] = (float)x;
            break;
        case GW_F64:
            ((double *)(void *)bytes)[i] = x;
            break;
        case GW_C64:
            ((float complex *)(void *)bytes)[i] = (float)x;
            break;
        case GW_C128:
            ((double complex *)(void *)bytes)[i] = x;
            break;
        default:
            fail();
        }
    }
}

static const size_t sizes[] = {
#define SIZE(id, name, bytes) [GW_##id] = bytes,
    GW_DTYPES(SIZE)
#undef SIZE
};

static void what_both_types_hold_stays_the_same(void **state)
{
    (void)state;
    _Alignas(16) unsigned char from[N * 16], to[N * 16], expected[N * 16];

    for (int a = 0; a < GW_N_DTYPES; a++)
        for (int b = 0; b < GW_N_DTYPES; b++) {
            gwi_convert *convert = gwi_converter((gw_dtype)b, (gw_dtype)a);
            if (a == b) {
                assert_null(convert);
                continue;
            }
            fill((gw_dtype)a, from);
            fill((gw_dtype)b, expected);
            if (a == GW_BOOL) { /* it holds 0 and 1 only */
                convert(to, from, 2);
                assert_memory_equal(to, expected, 2 * sizes[b]);
            } else {
                convert(to, from, N);
                assert_memory_equal(to, expected, N * sizes[b]);
            }
        }
}

static void fractions_are_cut_and_numbers_wrap_around(void **state)
{
    (void)state;
    const double in[] = {1.9, -1.9, 300.0, 0.0, 0.1};
    const int64_t wide[] = {257, -1, INT64_C(1) << 40};
    int32_t whole[5];
    uint8_t bytes[5], truth[5];
    int8_t small[3];

    gwi_converter(GW_I32, GW_F64)(whole, in, 5);
    assert_int_equal(whole[0], 1);
    assert_int_equal(whole[1], -1);
    gwi_converter(GW_U8, GW_F64)(bytes, in, 5);
    assert_int_equal(bytes[2], 300 - 256);
    gwi_converter(GW_BOOL, GW_F64)(truth, in, 5);
    assert_int_equal(truth[3], 0);
    assert_int_equal(truth[4], 1);
    gwi_converter(GW_I8, GW_I64)(small, wide, 3);
    assert_int_equal(small[0], 1);
    assert_int_equal(small[1], -1);
    assert_int_equal(small[2], 0);
}

static void complex_numbers_lose_their_imaginary_part_but_not_their_truth(void **state)
{
    (void)state;
    const float complex in[] = {2.5f + 3.0f * I, 1.0f * I};
    double real[2];
    uint8_t truth[2];

    gwi_converter(GW_F64, GW_C64)(real, in, 2);
    assert_true(real[0] == 2.5 && real[1] == 0);
    gwi_converter(GW_BOOL, GW_C64)(truth, in, 2);
    assert_true(truth[0] == 1 && truth[1] == 1);
}

static void halves_are_rounded_as_half_h_does_it(void **state)
{
    (void)state;
    float in[33];
    uint16_t f16[33], bf16[33];

    for (int i = 0; i < 33; i++)
        in[i] = (float)(i - 16) * 1.2345678f;
    gwi_converter(GW_F16, GW_F32)(f16, in, 33);
    gwi_converter(GW_BF16, GW_F32)(bf16, in, 33);
    for (int i = 0; i < 33; i++) {
        assert_int_equal(f16[i], gwi_f16_of_float(in[i]));
        assert_int_equal(bf16[i], gwi_bf16_of_float(in[i]));
    }
}

GWI_TESTS(cmocka_unit_test(what_both_types_hold_stays_the_same),
          cmocka_unit_test(fractions_are_cut_and_numbers_wrap_around),
          cmocka_unit_test(complex_numbers_lose_their_imaginary_part_but_not_their_truth),
          cmocka_unit_test(halves_are_rounded_as_half_h_does_it))
