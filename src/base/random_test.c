/* random_test.c - known answers, and distributions that would show a flaw.
 *
 * The known answers were computed by a separate program from the definitions of
 * splitmix64, xoshiro256** and Lemire's method.  Distributions are checked with
 * fixed seeds, so a test that passes once passes always.                     */
#include "base/random.h"
#include "base/test.h"

#include <stdbool.h>
#include <string.h>

static void the_generator_gives_the_published_numbers(void **state)
{
    (void)state;
    gwi_random random = {{1, 2, 3, 4}};
    static const uint64_t known[] = {UINT64_C(11520),
                                     UINT64_C(0),
                                     UINT64_C(1509978240),
                                     UINT64_C(1215971899390074240),
                                     UINT64_C(1216172134540287360),
                                     UINT64_C(607988272756665600),
                                     UINT64_C(16172922978634559625),
                                     UINT64_C(8476171486693032832),
                                     UINT64_C(10595114339597558777),
                                     UINT64_C(2904607092377533576)};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_true(gwi_random_u64(&random) == known[i]);
}

static void a_seed_and_a_stream_give_the_known_numbers(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, stream, first[4];
    } known[] = {
        {0, 0, {0x8c4986f3f0e565d5, 0xf4547fdf5c2f56b6, 0x6a9e0d6a14f022fb, 0xdf483d9e238576e0}},
        {0, 1, {0x6f0c221987108fb2, 0x068a99bcd127fe03, 0x35c925a786232a40, 0x028a0078abb13302}},
        {1, 0, {0x6082e9993631e7d5, 0xe9acc0d447272233, 0x05fef1147bb626b9, 0x1777dc8fa6014861}},
        {42, 7, {0x0719e15cf3d4342f, 0x40efa5d3e1980cd0, 0x91756e0af06688e2, 0x6133465113c74853}},
    };
    gwi_random random;

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        gwi_random_init(&random, known[i].seed, known[i].stream);
        for (int j = 0; j < 4; j++)
            assert_true(gwi_random_u64(&random) == known[i].first[j]);
    }
    for (int j = 4; j < 999; j++)
        gwi_random_u64(&random);
    assert_true(gwi_random_u64(&random) == UINT64_C(0x3797dc41cf6e96e7));
}

static void doubles_bounded_numbers_and_bytes_are_known_too(void **state)
{
    (void)state;
    static const uint64_t known_below[][7] = {
        {6, 0, 1, 3, 2, 0, 4},
        {1000, 27, 253, 568, 379, 97, 831},
        /* Here nearly every second number is drawn again. */
        {UINT64_C(9223372036854775809), UINT64_C(255843911013636631), UINT64_C(5240702350518338673),
         UINT64_C(3502009579764687913), UINT64_C(898366132521015068), UINT64_C(7671793365977484576),
         UINT64_C(5477302341540008266)},
    };
    static const unsigned char known_bytes[19] = {0x2f, 0x34, 0xd4, 0xf3, 0x5c, 0xe1, 0x19,
                                                  0x07, 0xd0, 0x0c, 0x98, 0xe1, 0xd3, 0xa5,
                                                  0xef, 0x40, 0xe2, 0x88, 0x66};
    gwi_random random;

    gwi_random_init(&random, 42, 7);
    assert_true(gwi_random_double(&random) == 0x1.c678573cf50c0p-6);
    assert_true(gwi_random_double(&random) == 0x1.03be974f86602p-2);
    assert_true(gwi_random_double(&random) == 0x1.22eadc15e0cd1p-1);

    for (size_t i = 0; i < sizeof known_below / sizeof known_below[0]; i++) {
        gwi_random_init(&random, 42, 7);
        for (int j = 1; j < 7; j++)
            assert_true(gwi_random_below(&random, known_below[i][0]) == known_below[i][j]);
    }

    unsigned char bytes[20];
    memset(bytes, 0xaa, sizeof bytes);
    gwi_random_init(&random, 42, 7);
    gwi_random_fill(&random, bytes, 19);
    assert_memory_equal(bytes, known_bytes, 19);
    assert_int_equal(bytes[19], 0xaa);
}

static void a_double_is_never_one(void **state)
{
    (void)state;
    /* word[1] is the only one that the output depends on; this one gives all
     * ones: rotl(w * 5, 7) * 9 = 2^64 - 1, solved for w. */
    uint64_t inverse5 = UINT64_C(0xcccccccccccccccd), inverse9 = UINT64_C(0x8e38e38e38e38e39);
    uint64_t rotated = UINT64_MAX * inverse9;
    uint64_t w = ((rotated >> 7) | (rotated << 57)) * inverse5;
    gwi_random random = {{1, w, 3, 4}};
    gwi_random twin = random;

    assert_true(gwi_random_u64(&twin) == UINT64_MAX);
    double largest = gwi_random_double(&random);
    assert_true(largest < 1.0 && largest == 1.0 - 0x1p-53);
}

/* Whether `off` is at most `sigmas` standard deviations of that variance. */
static bool within(double off, double sigmas, double variance)
{
    return off * off < sigmas * sigmas * variance;
}

/* Whether counts look as if all cells were equally likely: Pearson's chi-square
 * has as mean its degrees of freedom, and as variance twice that. */
static bool even(const uint32_t *count, size_t n_cells)
{
    double total = 0, chi2 = 0, degrees = (double)n_cells - 1;

    for (size_t i = 0; i < n_cells; i++)
        total += count[i];
    double expected = total / (double)n_cells;
    for (size_t i = 0; i < n_cells; i++)
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    return within(chi2 - degrees, 4, 2 * degrees);
}

static void a_crooked_die_is_noticed(void **state)
{
    (void)state;
    uint32_t count[6] = {0};
    gwi_random random;

    /* A remainder of three bits: 0 and 1 come twice as often. */
    gwi_random_init(&random, 1, 0);
    for (int i = 0; i < 6000; i++)
        count[(gwi_random_u64(&random) >> 61) % 6]++;
    assert_false(even(count, 6));
}

static void bounded_numbers_are_even(void **state)
{
    (void)state;
    static const uint64_t n[] = {1, 2, 3, 6, 10, 97, 1000};
    static uint32_t count[1000];
    gwi_random random;

    gwi_random_init(&random, 2, 0);
    for (size_t k = 0; k < sizeof n / sizeof n[0]; k++) {
        memset(count, 0, sizeof count);
        for (int i = 0; i < 200000; i++) {
            uint64_t x = gwi_random_below(&random, n[k]);
            assert_true(x < n[k]);
            count[x]++;
        }
        if (n[k] > 1)
            assert_true(even(count, n[k]));
    }
}

static void a_bound_that_does_not_divide_leaves_no_bias(void **state)
{
    (void)state;
    /* n = 3 * 2^62: without drawing again every third number would come twice
     * as often as the others, and those are the multiples of three. */
    uint64_t n = UINT64_C(3) << 62;
    uint32_t count[3] = {0};
    gwi_random random;

    gwi_random_init(&random, 3, 0);
    for (int i = 0; i < 300000; i++)
        count[gwi_random_below(&random, n) % 3]++;
    assert_true(even(count, 3));
}

static void doubles_are_even_in_value_and_in_pairs(void **state)
{
    (void)state;
    enum { GRID = 32, N = 400000 };
    static uint32_t count[GRID * GRID];
    gwi_random random;
    double sum = 0, squares = 0;

    memset(count, 0, sizeof count);
    gwi_random_init(&random, 4, 0);
    for (int i = 0; i < N; i++) {
        double x = gwi_random_double(&random), y = gwi_random_double(&random);
        assert_true(x >= 0 && x < 1 && y >= 0 && y < 1);
        count[(int)(x * GRID) * GRID + (int)(y * GRID)]++;
        sum += x;
        squares += x * x;
    }
    assert_true(even(count, GRID * GRID));
    /* A uniform number has mean 1/2 and variance 1/12; its square has mean 1/3
     * and variance 4/45. */
    assert_true(within(sum / N - 0.5, 4, 1.0 / 12 / N));
    assert_true(within(squares / N - 1.0 / 3, 4, 4.0 / 45 / N));
}

static void every_bit_is_set_half_of_the_time(void **state)
{
    (void)state;
    enum { N = 100000 };
    uint32_t ones[64] = {0};
    gwi_random random;

    gwi_random_init(&random, 5, 0);
    for (int i = 0; i < N; i++) {
        uint64_t bits = gwi_random_u64(&random);
        for (int b = 0; b < 64; b++)
            ones[b] += bits >> b & 1;
    }
    for (int b = 0; b < 64; b++)
        assert_true(within(ones[b] - N / 2.0, 4.5, N / 4.0));
}

static void neighbouring_seeds_and_streams_share_nothing(void **state)
{
    (void)state;
    enum { N = 20000 };
    double equal_bits = 0, n_bits = 0;

    /* Number k of a stream and number k of the next: half of the bits agree. */
    for (uint64_t i = 0; i < N; i++) {
        gwi_random here, next_stream, next_seed;
        gwi_random_init(&here, 6, i);
        gwi_random_init(&next_stream, 6, i + 1);
        gwi_random_init(&next_seed, 7, i);
        for (int k = 0; k < 4; k++) {
            uint64_t x = gwi_random_u64(&here);
            equal_bits += __builtin_popcountll(~(x ^ gwi_random_u64(&next_stream)));
            equal_bits += __builtin_popcountll(~(x ^ gwi_random_u64(&next_seed)));
            n_bits += 128;
        }
    }
    assert_true(within(equal_bits / n_bits - 0.5, 4, 0.25 / n_bits));
}

static void entropy_fills_all_bytes_and_never_repeats(void **state)
{
    (void)state;
    uint64_t id[64][2];
    unsigned char large[1000], seen[256] = {0};
    int kinds = 0;

    for (int i = 0; i < 64; i++) {
        assert_int_equal(gwi_random_entropy(id[i], sizeof id[i]), 0);
        for (int j = 0; j < i; j++)
            assert_true(id[i][0] != id[j][0] && id[i][1] != id[j][1]);
    }

    memset(large, 0, sizeof large);
    assert_int_equal(gwi_random_entropy(large, sizeof large - 1), 0);
    assert_int_equal(large[sizeof large - 1], 0);
    for (size_t i = 0; i < sizeof large - 1; i++) {
        kinds += !seen[large[i]];
        seen[large[i]] = 1;
    }
    /* Of 999 random bytes about 251 kinds appear, and below 230 never. */
    assert_true(kinds > 230);
    assert_int_equal(gwi_random_entropy(NULL, 0), 0);
}

static void entropy_that_cannot_be_had_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(gwi_random_entropy((void *)(uintptr_t)16, 8), GW_ESYS);
    assert_non_null(strstr(gw_last_error(), "getrandom"));
}

GWI_TESTS(cmocka_unit_test(the_generator_gives_the_published_numbers),
          cmocka_unit_test(a_seed_and_a_stream_give_the_known_numbers),
          cmocka_unit_test(doubles_bounded_numbers_and_bytes_are_known_too),
          cmocka_unit_test(a_double_is_never_one), cmocka_unit_test(a_crooked_die_is_noticed),
          cmocka_unit_test(bounded_numbers_are_even),
          cmocka_unit_test(a_bound_that_does_not_divide_leaves_no_bias),
          cmocka_unit_test(doubles_are_even_in_value_and_in_pairs),
          cmocka_unit_test(every_bit_is_set_half_of_the_time),
          cmocka_unit_test(neighbouring_seeds_and_streams_share_nothing),
          cmocka_unit_test(entropy_fills_all_bytes_and_never_repeats),
          cmocka_unit_test(entropy_that_cannot_be_had_is_an_error))
