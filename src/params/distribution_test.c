/* distribution_test.c - keys are drawn as often as they should be, from all keys or from some. */
#include "params/distribution.h"
#include "base/test.h"
#include "params/chi_test.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define N_DRAWS (GWI_TSAN ? 100000 : 1000000) /* ThreadSanitizer makes it slow */

static int64_t drawn[1000000];

/* A distribution with its table, and what is expected of it. */
struct subject {
    gwi_distribution d;
    gwi_alias_cell *cells;
    double *weights;
};

/* Weights of words: 1 / rank^0.75; some have none. */
static struct subject make(gw_distribution kind, int64_t min, int64_t max)
{
    size_t n = (size_t)(max - min);
    struct subject s = {gwi_distribution_of(kind, min, max), malloc(n * sizeof *s.cells),
                        malloc(n * sizeof *s.weights)};

    for (size_t i = 0; i < n; i++)
        s.weights[i] = kind == GW_DISTRIBUTION_UNIFORM ? 1
                       : kind == GW_DISTRIBUTION_LOG_UNIFORM
                           ? log(((double)i + 2) / ((double)i + 1))
                       : i % 5 == 3 ? 0
                                    : pow((double)i + 1, -0.75);
    if (kind == GW_DISTRIBUTION_WEIGHTS) {
        assert_int_equal(gwi_alias_build(s.cells, s.weights, n), 0);
        s.d.cells = s.cells;
        s.d.n_possible = 0;
        for (size_t i = 0; i < n; i++)
            s.d.n_possible += s.weights[i] > 0;
    }
    return s;
}

static void end(struct subject *s)
{
    free(s->cells);
    free(s->weights);
}

static int64_t *count(const gwi_distribution *d, const int64_t *keys, size_t n)
{
    int64_t *counts = calloc(d->n, sizeof *counts);

    for (size_t i = 0; i < n; i++) {
        assert_in_range(keys[i] - d->min, 0, d->n - 1);
        counts[keys[i] - d->min]++;
    }
    return counts;
}

static void expect_fit(const struct subject *s, size_t n)
{
    int64_t *counts = count(&s->d, drawn, n);
    double z = chi_normal(s->weights, counts, s->d.n, 1);

    if (!(fabs(z) < CHI_LIMIT))
        fail_msg("kind %d of %llu keys: %g", (int)s->d.kind, (unsigned long long)s->d.n, z);
    free(counts);
}

static void a_million_draws_are_as_the_distribution_says(void **state)
{
    (void)state;
    for (int kind = GW_DISTRIBUTION_UNIFORM; kind <= GW_DISTRIBUTION_WEIGHTS; kind++)
        for (int64_t n = 2; n <= 200000; n *= 10) {
            struct subject s = make((gw_distribution)kind, 7, 7 + n);
            gwi_random random;
            gwi_random_init(&random, 11, (uint64_t)n);
            gwi_distribution_draw(&s.d, &random, drawn, N_DRAWS);
            expect_fit(&s, N_DRAWS);
            end(&s);
        }
}

static void wrong_counts_are_found(void **state)
{
    (void)state;
    struct subject s = make(GW_DISTRIBUTION_UNIFORM, 0, 1000);
    gwi_random random;
    double z;

    gwi_random_init(&random, 1, 1);
    gwi_distribution_draw(&s.d, &random, drawn, N_DRAWS);
    for (size_t i = 0; i < N_DRAWS; i += 10) /* one in ten too low */
        drawn[i] = drawn[i] / 2;
    int64_t *counts = count(&s.d, drawn, N_DRAWS);
    z = chi_normal(s.weights, counts, s.d.n, 1);
    assert_true(z > CHI_LIMIT);
    for (size_t i = 0; i < s.d.n; i++) /* too good to be true */
        counts[i] = N_DRAWS / 1000;
    z = chi_normal(s.weights, counts, s.d.n, 1);
    assert_true(z < -10);
    s.weights[5] = 0;
    assert_true(isinf(chi_normal(s.weights, counts, s.d.n, 1)));
    free(counts);
    end(&s);
}

static void a_stream_gives_the_same_keys_in_any_portions(void **state)
{
    (void)state;
    for (int kind = GW_DISTRIBUTION_UNIFORM; kind <= GW_DISTRIBUTION_WEIGHTS; kind++) {
        struct subject s = make((gw_distribution)kind, 3, 5003);
        gwi_random one, other;
        gwi_random_init(&one, 5, 1);
        gwi_random_init(&other, 5, 1);
        gwi_distribution_draw(&s.d, &one, drawn, 1000);
        for (size_t at = 0, n = 0; at < 1000; at += n) {
            n = 1 + gwi_random_below(&one, 130);
            n = n < 1000 - at ? n : 1000 - at;
            gwi_distribution_draw(&s.d, &other, drawn + 1000 + at, n);
        }
        assert_memory_equal(drawn, drawn + 1000, 1000 * sizeof *drawn);
        end(&s);
    }
}

/* tables of weights */

static void probabilities_of_a_table_are_the_weights(void **state)
{
    (void)state;
    enum { N = 4000 };
    static double weights[N], found[N];
    static gwi_alias_cell cells[N];
    gwi_random random;

    gwi_random_init(&random, 3, 3);
    for (int round = 0; round < 50; round++) {
        size_t n = 1 + gwi_random_below(&random, N);
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            weights[i] = round % 3 == 0 ? 1 : exp(40 * gwi_random_double(&random) - 20);
            if (round % 2 == 1 && gwi_random_below(&random, 3) > 0)
                weights[i] = 0;
        }
        weights[n / 2] += 1;
        for (size_t i = 0; i < n; i++)
            sum += weights[i];
        assert_int_equal(gwi_alias_build(cells, weights, n), 0);
        gwi_alias_weights(cells, n, found);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(weights[i] > 0, found[i] > 0);
            assert_int_equal(weights[i] > 0, cells[i].own > 0);
            assert_true(fabs(found[i] / (double)n - weights[i] / sum) < 1e-9);
        }
    }
}

static void extreme_weights_do_no_harm(void **state)
{
    (void)state;
    double cases[][4] = {{DBL_MAX, DBL_MAX, DBL_MAX, 0},
                         {4e-320, 4e-320, 4e-320, 0}, /* no normal numbers */
                         {DBL_MAX, DBL_MIN, 0, 0},
                         {0, 0, 0, 1e-300}};
    double expected[][4] = {
        {1 / 3., 1 / 3., 1 / 3., 0}, {1 / 3., 1 / 3., 1 / 3., 0}, {1, 0, 0, 0}, {0, 0, 0, 1}};
    gwi_alias_cell cells[4];
    double found[4];

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        assert_int_equal(gwi_alias_build(cells, cases[c], 4), 0);
        gwi_alias_weights(cells, 4, found);
        for (size_t i = 0; i < 4; i++) {
            assert_true(fabs(found[i] / 4 - expected[c][i]) < 1e-9);
            if (cases[c][i] == 0)
                assert_true(found[i] == 0);
        }
    }
}

/* some keys only */

/* A store with words alone, that has those keys for which `has` says so. */
static gwi_store store_with(gwi_word *words, size_t n, int (*has)(size_t))
{
    for (size_t i = 0; i < n; i++)
        atomic_init(&words[i], has(i) ? GWI_OWNED : GWI_ABSENT);
    return (gwi_store){.words = words};
}

static int two_of_three(size_t i)
{
    return i % 3 != 1;
}

static int few(size_t i)
{
    return i == 1700 || i == 1702 || i == 1703 || i == 1999;
}

static int none(size_t i)
{
    (void)i;
    return 0;
}

static void keys_that_are_here_are_drawn_as_among_themselves(void **state)
{
    (void)state;
    enum { N = 2000 };
    static gwi_word words[N];
    int (*const cases[])(size_t) = {two_of_three, few};

    for (int kind = GW_DISTRIBUTION_UNIFORM; kind <= GW_DISTRIBUTION_WEIGHTS; kind++)
        for (int c = 0; c < 2; c++) {
            size_t n = c == 0 ? N_DRAWS : N_DRAWS / 20;
            struct subject s = make((gw_distribution)kind, 0, N);
            gwi_store store = store_with(words, N, cases[c]);
            gwi_random random;
            gwi_random_init(&random, 21, (uint64_t)c);
            /* With few of them it is faster to look at all. */
            for (size_t i = 0; i < n; i += 1000)
                assert_int_equal(
                    gwi_choose(&s.d, &random, (gwi_choice){.store = &store}, drawn + i, 1000), 0);
            for (size_t i = 0; i < N; i++)
                s.weights[i] = cases[c](i) ? s.weights[i] : 0;
            expect_fit(&s, n);
            end(&s);
        }
}

/* The probability that `second` comes after `first`, when two are drawn from three. */
static double pair(const double *weights, int first, int second)
{
    double sum = weights[0] + weights[1] + weights[2];

    return weights[first] / sum * weights[second] / (sum - weights[first]);
}

static void without_replacement_the_next_is_drawn_from_those_left(void **state)
{
    (void)state;
    enum { ROUNDS = 200000 };
    struct subject s = make(GW_DISTRIBUTION_WEIGHTS, 0, 3);
    double weights[9] = {0};
    int64_t counts[9] = {0};
    gwi_random random;

    gwi_random_init(&random, 8, 8);
    for (int round = 0; round < ROUNDS; round++) {
        gwi_hash taken = {0};
        int64_t keys[2];
        assert_int_equal(gwi_choose(&s.d, &random, (gwi_choice){.taken = &taken}, keys, 2), 0);
        counts[3 * keys[0] + keys[1]]++;
        gwi_hash_fini(&taken);
    }
    for (int first = 0; first < 3; first++)
        for (int second = 0; second < 3; second++)
            weights[3 * first + second] = first != second ? pair(s.weights, first, second) : 0;
    assert_true(fabs(chi_normal(weights, counts, 9, 1)) < CHI_LIMIT);
    end(&s);
}

/* All keys of a steep distribution: to try until the last one comes would take for ever. */
static void a_race_has_the_same_probabilities(void **state)
{
    (void)state;
    enum { ROUNDS = 20000, N = 6 };
    double weights[N] = {1, 0.5, 1e-12, 0.25, 0, 1e-12};
    gwi_alias_cell cells[N];
    gwi_distribution d = gwi_distribution_of(GW_DISTRIBUTION_WEIGHTS, 10, 10 + N);
    double last[N] = {0}, expected[N] = {0, 0, 1, 0, 0, 1};
    int64_t counts[N] = {0};
    gwi_random random;

    assert_int_equal(gwi_alias_build(cells, weights, N), 0);
    d.cells = cells;
    gwi_random_init(&random, 9, 9);
    for (int round = 0; round < ROUNDS; round++) {
        gwi_hash taken = {0};
        int64_t keys[N - 1];
        int seen = 0;
        assert_int_equal(gwi_choose(&d, &random, (gwi_choice){.taken = &taken}, keys, N - 1), 0);
        for (int i = 0; i < N - 1; i++)
            seen |= 1 << (keys[i] - 10);
        assert_int_equal(seen, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5);
        counts[keys[4] - 10]++;
        last[keys[0] - 10]++;
        gwi_hash_fini(&taken);
    }
    assert_true(fabs(chi_normal(expected, counts, N, 1)) < CHI_LIMIT);
    assert_true(fabs(last[0] / ROUNDS - 1 / 1.75) < 0.02);
}

static void what_there_is_not_is_refused_and_nothing_changes(void **state)
{
    (void)state;
    enum { N = 2000 };
    static gwi_word words[N];
    struct subject s = make(GW_DISTRIBUTION_UNIFORM, 0, N);
    gwi_store store = store_with(words, N, none);
    gwi_random random, before;
    gwi_hash taken = {0};
    int64_t keys[5];

    gwi_random_init(&random, 1, 2);
    before = random;
    assert_int_equal(gwi_choose(&s.d, &random, (gwi_choice){.store = &store}, keys, 1), GW_ESTATE);
    store = store_with(words, N, few);
    gwi_choice choice = {.store = &store, .taken = &taken};
    assert_int_equal(gwi_choose(&s.d, &random, choice, keys, 5), GW_ESTATE);
    assert_non_null(strstr(gw_last_error(), "are on this node now"));
    assert_int_equal(taken.count, 0);
    assert_memory_equal(&random, &before, sizeof random);
    assert_int_equal(gwi_choose(&s.d, &random, choice, keys, 3), 0);
    assert_int_equal(gwi_choose(&s.d, &random, choice, keys, 2), GW_ESTATE);
    assert_int_equal(taken.count, 3);
    assert_int_equal(gwi_choose(&s.d, &random, choice, keys, 1), 0);
    gwi_hash_fini(&taken);
    end(&s);
}

GWI_TESTS(cmocka_unit_test(a_million_draws_are_as_the_distribution_says),
          cmocka_unit_test(wrong_counts_are_found),
          cmocka_unit_test(a_stream_gives_the_same_keys_in_any_portions),
          cmocka_unit_test(probabilities_of_a_table_are_the_weights),
          cmocka_unit_test(extreme_weights_do_no_harm),
          cmocka_unit_test(keys_that_are_here_are_drawn_as_among_themselves),
          cmocka_unit_test(without_replacement_the_next_is_drawn_from_those_left),
          cmocka_unit_test(a_race_has_the_same_probabilities),
          cmocka_unit_test(what_there_is_not_is_refused_and_nothing_changes))
