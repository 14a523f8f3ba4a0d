/* reduce_test.c - kernels against plain arithmetic, on each target that runs here. */
#include "comm/reduce.h"

#include "base/half.h"
#include "base/random.h"
#include "base/target.h"
#include "base/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IN = 11, LONG = 5003 /* some blocks, and a rest */ };

/* Run what follows once for each target. */
#define EACH_TARGET \
    for (int target = 0; target <= gwi_target() && (gwi_reduce_use(target), 1); target++)

/* The types one by one */

static int is_complex(gw_dtype dtype)
{
    return dtype == GW_C64 || dtype == GW_C128;
}

static int is_whole(gw_dtype dtype)
{
    return dtype <= GW_BOOL;
}

static int is_located(gw_op op)
{
    return op == GW_MINLOC || op == GW_MAXLOC;
}

/* Any entry: whole numbers as they are, the others in `re`; `im` is an imaginary part. */
struct value {
    int64_t whole;
    double re, im;
};

/* 16 bits by the definition: a sign, an exponent, `n_bits` of fraction. */
static double half_decode(uint16_t half, int n_bits)
{
    int bias = (1 << (14 - n_bits)) - 1, exponent = (half & 0x7fff) >> n_bits;
    int fraction = half & ((1 << n_bits) - 1);
    double x = ldexp(fraction, 1 - bias - n_bits);

    if (exponent > 2 * bias)
        x = fraction != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent > 0)
        x = ldexp(fraction + (1 << n_bits), exponent - bias - n_bits);
    return half & 0x8000 ? -x : x;
}

/* The nearest whole number, ties to even; x is neither negative nor large. */
static int nearest(double x)
{
    int floor = (int)x;
    double rest = x - floor;

    return floor + (rest > 0.5 || (rest == 0.5 && floor % 2 != 0));
}

static uint16_t half_encode(double x, int n_bits)
{
    int bias = (1 << (14 - n_bits)) - 1, infinite = (2 * bias + 1) << n_bits, code, exponent;
    double fraction = isfinite(x) ? frexp(fabs(x), &exponent) : 0; /* from 0.5 to 1 */

    if (isnan(x))
        return (uint16_t)(infinite | 1 << (n_bits - 1));
    if (isinf(x) || fabs(x) >= ldexp(1, bias + 1))
        code = infinite;
    else if (fabs(x) < ldexp(1, 1 - bias))
        code = nearest(ldexp(fabs(x), n_bits + bias - 1));
    else
        /* A fraction rounded up to the next power of 2 raises the exponent by itself. */
        code = ((exponent + bias - 2) << n_bits) + nearest(ldexp(fraction, n_bits + 1));
    return (uint16_t)(code | (signbit(x) ? 0x8000 : 0));
}

static int half_bits(gw_dtype dtype)
{
    return dtype == GW_F16 ? 10 : 7;
}

static struct value load(gw_dtype dtype, const void *array, size_t i)
{
    struct value v = {0};

    switch (dtype) {
#define CASE(id, T, to)               \
    case GW_##id:                     \
        v.to = ((const T *)array)[i]; \
        break;
        CASE(U8, uint8_t, whole)
        CASE(BOOL, uint8_t, whole)
        CASE(I8, int8_t, whole)
        CASE(I16, int16_t, whole)
        CASE(I32, int32_t, whole)
        CASE(I64, int64_t, whole)
        CASE(F32, float, re)
        CASE(F64, double, re)
#undef CASE
    case GW_C64:
        v.re = ((const float *)array)[2 * i], v.im = ((const float *)array)[2 * i + 1];
        break;
    case GW_C128:
        v.re = ((const double *)array)[2 * i], v.im = ((const double *)array)[2 * i + 1];
        break;
    default:
        v.re = half_decode(((const uint16_t *)array)[i], half_bits(dtype));
    }
    return v;
}

static void store(gw_dtype dtype, void *array, size_t i, struct value v)
{
    switch (dtype) {
#define CASE(id, T, from)            \
    case GW_##id:                    \
        ((T *)array)[i] = (T)v.from; \
        break;
        CASE(U8, uint8_t, whole)
        CASE(BOOL, uint8_t, whole)
        CASE(I8, int8_t, whole)
        CASE(I16, int16_t, whole)
        CASE(I32, int32_t, whole)
        CASE(I64, int64_t, whole)
        CASE(F32, float, re)
        CASE(F64, double, re)
#undef CASE
    case GW_C64:
        ((float *)array)[2 * i] = (float)v.re, ((float *)array)[2 * i + 1] = (float)v.im;
        break;
    case GW_C128:
        ((double *)array)[2 * i] = v.re, ((double *)array)[2 * i + 1] = v.im;
        break;
    default:
        ((uint16_t *)array)[i] = half_encode(v.re, half_bits(dtype));
    }
}

static int same_number(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static int same_value(struct value a, struct value b)
{
    return a.whole == b.whole && same_number(a.re, b.re) && same_number(a.im, b.im);
}

/* The operations on one entry */

/* What a real result of the type is rounded to before it is used again: halves are
 * summed up as float32.  The product of two float32 is exact in double, and a sum rounded
 * to double and then to float32 is the sum rounded to float32. */
static double rounded(gw_dtype dtype, double x)
{
    volatile double wide = x; /* not to be fused with what follows */
    volatile float narrow;    /* gcc 12 forgets to round two at a time without this */

    if (dtype == GW_F64 || dtype == GW_C128)
        return wide;
    narrow = (float)wide;
    return (double)narrow;
}

static int64_t wrapped(gw_dtype dtype, uint64_t x)
{
    int64_t room[2];
    store(dtype, room, 0, (struct value){.whole = (int64_t)x});
    return load(dtype, room, 0).whole;
}

/* Whether a is ahead of b: -1, 0 or 1. */
static int order(gw_dtype dtype, struct value a, struct value b)
{
    if (is_whole(dtype))
        return (a.whole > b.whole) - (a.whole < b.whole);
    return (a.re > b.re) - (a.re < b.re);
}

static struct value combine_whole(gw_op op, gw_dtype dtype, struct value a, struct value b)
{
    uint64_t x = (uint64_t)a.whole, y = (uint64_t)b.whole, z = 0;

    if (dtype == GW_BOOL) {
        x = x != 0, y = y != 0;
        if (op == GW_SUM)
            op = GW_LOR;
    }
    switch (op) {
    case GW_SUM:
        z = x + y;
        break;
    case GW_PROD:
        z = x * y;
        break;
    case GW_LAND:
        z = x && y;
        break;
    case GW_LOR:
        z = x || y;
        break;
    case GW_LXOR:
        z = !x != !y;
        break;
    case GW_BAND:
        z = x & y;
        break;
    case GW_BOR:
        z = x | y;
        break;
    case GW_BXOR:
        z = x ^ y;
        break;
    case GW_MAX:
        z = (int64_t)x > (int64_t)y ? x : y;
        break;
    case GW_MIN:
        z = (int64_t)x < (int64_t)y ? x : y;
        break;
    default:
        fail();
    }
    return (struct value){.whole = wrapped(dtype, z)};
}

static struct value combine(gw_op op, gw_dtype dtype, struct value a, struct value b)
{
#define R(x) rounded(dtype, x)
    if (is_whole(dtype))
        return combine_whole(op, dtype, a, b);
    if (op == GW_SUM)
        return (struct value){.re = R(a.re + b.re), .im = R(a.im + b.im)};
    if (op == GW_PROD && is_complex(dtype))
        return (struct value){.re = R(R(a.re * b.re) - R(a.im * b.im)),
                              .im = R(R(a.re * b.im) + R(a.im * b.re))};
    if (op == GW_PROD)
        return (struct value){.re = R(a.re * b.re)};
    if (isnan(a.re) || isnan(b.re))
        return (struct value){.re = (double)NAN};
    return order(dtype, a, b) * (op == GW_MAX ? 1 : -1) >= 0 ? a : b;
#undef R
}

/* Whether the pair a of value and index stays, rather than the later b. */
static int stays(gw_op op, gw_dtype dtype, const struct value a[2], const struct value b[2])
{
    int ahead = order(dtype, a[0], b[0]) * (op == GW_MAXLOC ? 1 : -1);

    if (!is_whole(dtype) && (isnan(a[0].re) || isnan(b[0].re)))
        return isnan(a[0].re);
    if (ahead != 0)
        return ahead > 0;
    return is_whole(dtype) ? a[1].whole <= b[1].whole : a[1].re <= b[1].re;
}

static void reference(gw_op op, gw_dtype dtype, void *out, const void *const *in, int n_in,
                      size_t n)
{
    size_t width = is_located(op) ? 2 : 1;

    for (size_t i = 0; i < n * width; i += width) {
        struct value sum[2], next[2];
        for (int s = 0; s < n_in; s++) {
            for (size_t k = 0; k < width; k++)
                next[k] = load(dtype, in[s], i + k);
            if (s == 0 || (width == 2 && !stays(op, dtype, sum, next)))
                memcpy(sum, next, width * sizeof *sum);
            else if (width == 1)
                sum[0] = combine(op, dtype, sum[0], next[0]);
        }
        for (size_t k = 0; k < width; k++)
            store(dtype, out, i + k, sum[k]);
    }
}

/* Arrays to combine */

static double random_real(gwi_random *random, gw_dtype dtype)
{
    static const double f16[] = {65504, 65520, -65519, 0x1p-24, -0x1p-24, 0x1p-14, 0x1.ffcp-15};
    static const double any[] = {
        0, -0.0, 1, -1, 2, 3, 0.5, (double)INFINITY, -(double)INFINITY, (double)NAN};
    static const double f32[] = {0x1.fffffep127, -0x1.fffffep127, 0x1p-149, -0x1p-149,
                                 0x1p-126,       0x1.fep127,      0x1p-133};
    static const double f64[] = {0x1.fffffffffffffp1023, 0x1p-1074, -0x1p-1074, 0x1p-1022};
#define ANY_OF(list) list[gwi_random_below(random, sizeof(list) / sizeof(list)[0])]

    switch (gwi_random_below(random, 6)) {
    case 0:
        return ANY_OF(any);
    case 1:
        return dtype == GW_F16                       ? ANY_OF(f16)
               : dtype == GW_F64 || dtype == GW_C128 ? ANY_OF(f64)
                                                     : ANY_OF(f32);
    case 2:
        return (double)gwi_random_below(random, 5) - 2; /* ties */
    default:
        return ldexp(gwi_random_double(random) - 0.5, (int)gwi_random_below(random, 40) - 20);
    }
}

static struct value random_value(gwi_random *random, gw_dtype dtype)
{
    static const int64_t edges[] = {0,         1,         -1,        2,
                                    INT8_MIN,  INT8_MAX,  INT16_MIN, INT16_MAX,
                                    INT32_MIN, INT32_MAX, INT64_MIN, INT64_MAX};
    uint64_t whole = gwi_random_u64(random);

    if (!is_whole(dtype))
        return (struct value){.re = random_real(random, dtype),
                              .im = is_complex(dtype) ? random_real(random, dtype) : 0};
    if (gwi_random_below(random, 2) == 0)
        whole = (uint64_t)ANY_OF(edges);
    return (struct value){.whole = wrapped(dtype, whole)};
}

/* Sources, each at some entry of its memory, and an output with guards around it. */
struct arrays {
    gw_dtype dtype;
    size_t n_entries, n_bytes;
    unsigned char *memory[MAX_IN + 1];
    unsigned char *in[MAX_IN], *out, *want;
};

enum { GUARD = 64 };

static void arrays_init(struct arrays *a, gwi_random *random, gw_dtype dtype, size_t n_entries)
{
    size_t align = gwi_dtype_bytes(dtype) / (is_complex(dtype) ? 2 : 1);

    a->dtype = dtype, a->n_entries = n_entries, a->n_bytes = n_entries * gwi_dtype_bytes(dtype);
    for (int s = 0; s <= MAX_IN; s++) {
        a->memory[s] = malloc(a->n_bytes + 3 * GUARD);
        unsigned char *at = a->memory[s] + GUARD + align * gwi_random_below(random, GUARD / align);
        memset(a->memory[s], 0xa5, a->n_bytes + 3 * GUARD);
        if (s == MAX_IN)
            a->out = at;
        else
            a->in[s] = at;
        for (size_t i = 0; i < n_entries; i++)
            store(dtype, at, i, random_value(random, dtype));
    }
    a->want = malloc(a->n_bytes + 1);
}

static void arrays_fini(struct arrays *a)
{
    for (int s = 0; s <= MAX_IN; s++)
        free(a->memory[s]);
    free(a->want);
}

/* Combine the first n_in, into one of them if `same` is not below 0, and compare. */
static void arrays_check(struct arrays *a, gw_op op, int n_in, int same)
{
    const void *in[MAX_IN];
    unsigned char *out = same < 0 ? a->out : a->in[same], *memory;
    size_t n = a->n_entries / (is_located(op) ? 2 : 1);
    size_t n_bytes = n * (is_located(op) ? 2 : 1) * gwi_dtype_bytes(a->dtype);

    memory = a->memory[same < 0 ? MAX_IN : same];
    for (int s = 0; s < n_in; s++)
        in[s] = a->in[s];
    reference(op, a->dtype, a->want, in, n_in, n);
    memset(out + n_bytes, 0xa5, a->n_bytes - n_bytes);
    gwi_reduce(op, a->dtype, out, in, n_in, n);

    for (size_t i = 0; i < n_bytes / gwi_dtype_bytes(a->dtype); i++)
        if (!same_value(load(a->dtype, out, i), load(a->dtype, a->want, i)))
            fail_msg("%s of %d %s, into %d: entry %zu of %zu is wrong", gwi_op_name(op), n_in,
                     gwi_dtype_name(a->dtype), same, i, a->n_entries);
    for (unsigned char *p = memory; p < memory + a->n_bytes + 3 * GUARD; p++)
        if ((p < out || p >= out + n_bytes) && *p != 0xa5)
            fail_msg("%s of %s wrote outside", gwi_op_name(op), gwi_dtype_name(a->dtype));
}

/* One round with fresh numbers. */
static void check(gwi_random *random, gw_op op, gw_dtype dtype, int n_in, size_t n_entries,
                  int same)
{
    struct arrays a;

    arrays_init(&a, random, dtype, n_entries);
    arrays_check(&a, op, n_in, same);
    arrays_fini(&a);
}

#define EACH_PAIR                                              \
    for (gw_op op = 0; op < GW_N_OPS; op++)                    \
        for (gw_dtype dtype = 0; dtype < GW_N_DTYPES; dtype++) \
            if (gw_op_check(op, dtype) == 0)

static void every_operation_on_every_type_gives_what_plain_arithmetic_gives(void **state)
{
    (void)state;
    gwi_random random;

    gwi_random_init(&random, 1, 0);
    EACH_TARGET
    EACH_PAIR
    for (size_t n = 0; n <= 70; n++)
        check(&random, op, dtype, 1 + (int)gwi_random_below(&random, MAX_IN), n, -1);
}

static void every_number_of_arrays_longer_than_a_block_is_combined(void **state)
{
    (void)state;
    gwi_random random;

    gwi_random_init(&random, 2, 0);
    EACH_TARGET
    EACH_PAIR
    check(&random, op, dtype, 1 + (int)(op + dtype) % MAX_IN, LONG, -1);
    EACH_TARGET
    for (int n_in = 1; n_in <= MAX_IN; n_in++) {
        check(&random, GW_SUM, GW_F32, n_in, LONG, -1);
        check(&random, GW_PROD, GW_I64, n_in, LONG, -1);
        check(&random, GW_SUM, GW_F16, n_in, LONG, -1);
    }
}

static void any_source_may_be_the_output_too(void **state)
{
    (void)state;
    gwi_random random;

    gwi_random_init(&random, 3, 0);
    EACH_TARGET
    EACH_PAIR
    for (int n_in = 1; n_in <= MAX_IN; n_in++)
        check(&random, op, dtype, n_in, 67, (int)gwi_random_below(&random, (uint64_t)n_in));
    EACH_TARGET
    for (int n_in = 1; n_in <= MAX_IN; n_in++)
        for (int same = 0; same < n_in; same++) {
            check(&random, GW_SUM, GW_F64, n_in, LONG, same);
            check(&random, GW_SUM, GW_BF16, n_in, LONG, same);
            check(&random, GW_PROD, GW_C64, n_in, LONG, same);
            check(&random, GW_MAXLOC, GW_I32, n_in, LONG, same);
        }
}

/* 1e17 + 1 - 1e17 is 0 from the left; any other order gives something else. */
static void sources_are_added_in_their_order_at_every_place(void **state)
{
    (void)state;
    enum { N = 37, N_IN = 7 };
    double array[N_IN][N], out[N];
    const double numbers[N_IN] = {1e17, 3, -1e17, 5, 1e17, -1e17, 1};
    const void *in[N_IN], *reversed[N_IN];

    for (int s = 0; s < N_IN; s++) {
        for (int i = 0; i < N; i++)
            array[s][i] = numbers[s];
        in[s] = reversed[N_IN - 1 - s] = array[s];
    }
    EACH_TARGET
    for (int i = 0; i < N; i++) {
        gwi_reduce(GW_SUM, GW_F64, out, in, N_IN, N);
        assert_true(out[i] == 1 + ((((1e17 + 3) - 1e17) + 5 + 1e17) - 1e17));
        gwi_reduce(GW_SUM, GW_F64, out, reversed, N_IN, N);
        assert_true(out[i] == (((((1 - 1e17) + 1e17) + 5) - 1e17) + 3) + 1e17);
    }
}

/* Halves */

static void every_half_survives_being_a_float(void **state)
{
    (void)state;
    static uint16_t all[65536], one[65536], out[65536];
    const void *in[] = {all, one};

    for (gw_dtype dtype = GW_F16; dtype <= GW_BF16; dtype++)
        EACH_TARGET
        {
            for (int i = 0; i < 65536; i++)
                all[i] = (uint16_t)i, one[i] = half_encode(1, half_bits(dtype));
            gwi_reduce(GW_PROD, dtype, out, in, 2, 65536);
            for (int i = 0; i < 65536; i++) {
                double x = half_decode((uint16_t)i, half_bits(dtype));
                float widened = dtype == GW_F16 ? gwi_float_of_f16((uint16_t)i)
                                                : gwi_float_of_bf16((uint16_t)i);
                assert_true(same_number(x, (double)widened));
                assert_true(isnan(x) ? isnan(half_decode(out[i], half_bits(dtype))) : out[i] == i);
            }
        }
}

static uint16_t narrowed(gw_dtype dtype, float x)
{
    return dtype == GW_F16 ? gwi_f16_of_float(x) : gwi_bf16_of_float(x);
}

static void floats_between_two_halves_become_the_nearer_one(void **state)
{
    (void)state;

    for (gw_dtype dtype = GW_F16; dtype <= GW_BF16; dtype++) {
        int n_bits = half_bits(dtype), infinite = half_encode((double)INFINITY, n_bits);
        for (int low = 0; low < infinite; low++) {
            double a = half_decode((uint16_t)low, n_bits),
                   b = half_decode((uint16_t)(low + 1), n_bits);
            if (isinf(b)) /* then it is as if there were one more */
                b = 2 * a - half_decode((uint16_t)(low - 1), n_bits);
            float middle = (float)((a + b) / 2);
            int even = low + (low & 1);
            assert_int_equal(narrowed(dtype, middle), even);
            assert_int_equal(narrowed(dtype, -middle), even | 0x8000);
            assert_int_equal(narrowed(dtype, gwi_float_of_bits(gwi_bits_of_float(middle) - 1)),
                             low);
            assert_int_equal(narrowed(dtype, gwi_float_of_bits(gwi_bits_of_float(middle) + 1)),
                             low + 1);
        }
        assert_int_equal(narrowed(dtype, INFINITY), infinite);
        assert_int_equal(narrowed(dtype, -INFINITY), infinite | 0x8000);
        assert_int_equal(narrowed(dtype, 0x1.fffffep127f), infinite);
    }
}

static void each_target_converts_halves_the_same_to_the_bit(void **state)
{
    (void)state;
#define CHECK(target, attribute, name)                         \
    name##_widen_any(wanted_floats, halves, N);                \
    name##_widen_##target(floats, halves, N);                  \
    assert_memory_equal(floats, wanted_floats, sizeof floats); \
    name##_narrow_any(wanted, numbers, N);                     \
    name##_narrow_##target(back, numbers, N);                  \
    assert_memory_equal(back, wanted, sizeof back);
    enum { N = 65539 };
    static uint16_t halves[N], back[N], wanted[N];
    static float numbers[N], floats[N], wanted_floats[N];
    uint32_t bits = 0;

    if (gwi_target() < GWI_N_TARGETS - 1)
        skip();
    for (int round = 0; round < 16; round++) {
        for (int i = 0; i < N; i++, bits += 4093) { /* all over, with every exponent */
            halves[i] = (uint16_t)i;
            numbers[i] = gwi_float_of_bits(bits);
        }
        GWI_TARGETS(CHECK, gwi_f16)
        GWI_TARGETS(CHECK, gwi_bf16)
    }
#undef CHECK
}

static void halves_are_rounded_once_at_the_end(void **state)
{
    (void)state;
    const double numbers[] = {1, 0x1p-11, 0x1p-11};
    uint16_t array[3][9], out[9];
    const void *in[] = {array[0], array[1], array[2]};

    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 9; i++)
            array[s][i] = half_encode(numbers[s], 10);
    EACH_TARGET
    {
        gwi_reduce(GW_SUM, GW_F16, out, in, 3, 9);
        for (int i = 0; i < 9; i++)
            assert_true(half_decode(out[i], 10) == 1 + 0x1p-10);
    }
}

/* What is easily wrong */

static void a_nan_wins_and_the_first_one_keeps_its_index(void **state)
{
    (void)state;
    float a[] = {1, 0, NAN, 1, 2, 2, NAN, 3}, b[] = {NAN, 1, 5, 2, 2, 1, NAN, 2}, out[8];
    const void *in[] = {a, b};
    const float index[] = {1, 1, 1, 3};

    EACH_TARGET
    for (gw_op op = GW_MINLOC; op <= GW_MAXLOC; op++) {
        gwi_reduce(op, GW_F32, out, in, 2, 4);
        assert_true(isnan(out[0]) && isnan(out[2]) && out[4] == 2 && isnan(out[6]));
        for (int i = 0; i < 4; i++)
            assert_true(out[2 * i + 1] == index[i]);
    }
    EACH_TARGET
    for (gw_op op = GW_MAX; op <= GW_MIN; op++) {
        gwi_reduce(op, GW_F32, out, in, 2, 8);
        assert_true(isnan(out[0]) && isnan(out[2]) && isnan(out[6]));
        assert_true(out[3] == (op == GW_MAX ? 2 : 1));
    }
}

static void bool_results_are_0_and_1_whatever_the_bytes(void **state)
{
    (void)state;
    const uint8_t a[] = {0, 0, 2, 255, 2, 1}, b[] = {0, 4, 0, 2, 1, 2};
    const void *in[] = {a, b};
    const uint8_t or [] = {0, 1, 1, 1, 1, 1}, and[] = {0, 0, 0, 1, 1, 1},
                     xor[] = {
                         0, 1, 1, 0, 0, 0};
    const struct {
        gw_op op;
        const uint8_t *want;
    } cases[] = {{GW_SUM, or }, {GW_MAX, or },  {GW_LOR, or },  {GW_BOR, or },  {GW_PROD, and},
                 {GW_MIN, and}, {GW_LAND, and}, {GW_BAND, and}, {GW_LXOR, xor}, {GW_BXOR, xor}};
    uint8_t out[6];

    EACH_TARGET
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gwi_reduce(cases[i].op, GW_BOOL, out, in, 2, 6);
        assert_memory_equal(out, cases[i].want, 6);
    }
}

static void what_has_no_meaning_is_refused_with_advice(void **state)
{
    (void)state;

    for (gw_op op = 0; op < GW_N_OPS; op++)
        for (gw_dtype dtype = 0; dtype < GW_N_DTYPES; dtype++) {
            int ordered = op == GW_MAX || op == GW_MIN || is_located(op);
            int fine = op == GW_SUM || op == GW_PROD ||
                       (ordered ? !is_complex(dtype) && !(is_located(op) && dtype == GW_BOOL)
                                : is_whole(dtype));
            assert_int_equal(gw_op_check(op, dtype), fine ? 0 : GW_EUNSUP);
            if (!fine) {
                assert_non_null(strstr(gw_last_error(), gwi_op_name(op)));
                assert_non_null(strstr(gw_last_error(), gwi_dtype_name(dtype)));
                assert_non_null(strstr(gw_last_error(), ": "));
            }
        }
    gw_op_check(GW_MAXLOC, GW_BOOL);
    assert_non_null(strstr(gw_last_error(), "uint8"));
    gw_op_check(GW_MIN, GW_C64);
    assert_non_null(strstr(gw_last_error(), "absolute"));
    gw_op_check(GW_LAND, GW_BF16);
    assert_non_null(strstr(gw_last_error(), "x != 0"));
}

static void numbers_that_are_no_operation_or_type_are_out_of_range(void **state)
{
    (void)state;

    assert_int_equal(gw_op_check(GW_N_OPS, GW_F32), GW_ERANGE);
    assert_int_equal(gw_op_check((gw_op)-1, GW_F32), GW_ERANGE);
    assert_int_equal(gw_op_check(GW_SUM, GW_N_DTYPES), GW_ERANGE);
    assert_int_equal(gw_op_check(GW_SUM, (gw_dtype)-1), GW_ERANGE);
    assert_non_null(strstr(gw_last_error(), "-1"));
}

static void names_and_sizes_are_those_of_the_lists(void **state)
{
    (void)state;

    assert_string_equal(gwi_dtype_name(GW_U8), "uint8");
    assert_string_equal(gwi_dtype_name(GW_BOOL), "bool");
    assert_string_equal(gwi_dtype_name(GW_C128), "complex128");
    assert_int_equal(gwi_dtype_bytes(GW_BF16), 2);
    assert_int_equal(gwi_dtype_bytes(GW_C128), 16);
    assert_string_equal(gwi_op_name(GW_MAX), "MAX");
    assert_string_equal(gwi_op_name(GW_MAXLOC), "MAXLOC");
}

GWI_TESTS(cmocka_unit_test(every_operation_on_every_type_gives_what_plain_arithmetic_gives),
          cmocka_unit_test(every_number_of_arrays_longer_than_a_block_is_combined),
          cmocka_unit_test(any_source_may_be_the_output_too),
          cmocka_unit_test(sources_are_added_in_their_order_at_every_place),
          cmocka_unit_test(every_half_survives_being_a_float),
          cmocka_unit_test(floats_between_two_halves_become_the_nearer_one),
          cmocka_unit_test(each_target_converts_halves_the_same_to_the_bit),
          cmocka_unit_test(halves_are_rounded_once_at_the_end),
          cmocka_unit_test(a_nan_wins_and_the_first_one_keeps_its_index),
          cmocka_unit_test(bool_results_are_0_and_1_whatever_the_bytes),
          cmocka_unit_test(what_has_no_meaning_is_refused_with_advice),
          cmocka_unit_test(numbers_that_are_no_operation_or_type_are_out_of_range),
          cmocka_unit_test(names_and_sizes_are_those_of_the_lists))
