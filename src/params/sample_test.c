/* sample_test.c - samples as a user of the C API sees them. */
#include "params/params_test.h"
#include "params/sample.h"

#include <godwit/comm.h>

#include <math.h>

#define N_SCHEMES 4

static gw_params *open_in_nodes(const struct processes *all, int rank, int node_size,
                                gw_world **ret_world)
{
    gw_world_options join = GW_WORLD_OPTIONS_INIT;

    join.rank = rank;
    join.size = all->n;
    join.node_size = node_size;
    join.job = all->job;
    join.timeout_s = 60;
    REQUIRE(gw_world_join(&join, ret_world) == 0);
    return open_params(*ret_world, 2);
}

static gw_sampling_options scheme(int which)
{
    gw_sampling_options opt = GW_SAMPLING_OPTIONS_INIT;

    opt.scheme = which;
    opt.seed = 42;
    return opt;
}

static gw_sample prepare(gw_worker *worker, size_t n, const gw_clocks *when)
{
    gw_sample sample = {-1};

    REQUIRE(gw_worker_prepare_sample(worker, n, when, &sample) == 0);
    return sample;
}

/* Vectors hold their keys. */
static void set_all(gw_worker *worker, int rank)
{
    REQUIRE(gw_worker_begin_setup(worker) == 0);
    for (int64_t key = 0; key < N_KEYS && rank == 0; key++)
        REQUIRE(set(worker, key, (float)key) == 0);
    REQUIRE(gw_worker_end_setup(worker) == 0);
}

static void pull_some(gw_worker *worker, gw_sample sample, int64_t *keys, size_t n)
{
    float values[1000 * LENGTH];

    REQUIRE(n <= 1000);
    REQUIRE(gw_worker_pull_sample(worker, sample, keys, n, values, n * LENGTH, NULL) == 0);
    for (size_t i = 0; i < n * LENGTH; i++)
        REQUIRE(values[i] == (float)keys[i / LENGTH]);
}

/* whatever the scheme */

static void use_scheme(const struct processes *all, int rank, int node_size, int which)
{
    gw_world *world;
    gw_params *params = open_in_nodes(all, rank, node_size, &world);
    gw_worker *worker = take_worker(params), *other = take_worker(params);
    gw_sampling_options opt = scheme(which);
    int64_t keys[60], last = 0;

    REQUIRE(gw_worker_close(other) == 0);
    opt.min = 10;
    opt.max = 40;
    REQUIRE(gw_params_enable_sampling(params, &opt) == 0);
    set_all(worker, rank);
    for (int64_t round = 0; round < 20; round++) {
        gw_clocks when = {round, round + 1};
        gw_sample a = prepare(worker, 60, round % 2 ? &when : NULL), b = prepare(worker, 5, &when);
        REQUIRE(a.id == last + 1 && b.id == last + 2);
        last = b.id;
        pull_some(worker, a, keys, 20); /* in portions, between those of others */
        pull_some(worker, b, keys + 20, 5);
        pull_some(worker, a, keys + 25, 0);
        pull_some(worker, a, keys + 25, 1);
        for (int i = 0; i < 26; i++)
            REQUIRE(keys[i] >= 10 && keys[i] < 40);
        /* What is used up is gone, and may be finished all the same. */
        REQUIRE(gw_worker_pull_sample(worker, b, keys, 1, keys, LENGTH, NULL) == GW_EINVAL);
        REQUIRE(saw("is used up or finished"));
        REQUIRE(gw_worker_finish_sample(worker, b) == 0);
        REQUIRE(gw_worker_finish_sample(worker, a) == 0 && gw_worker_finish_sample(worker, a) == 0);
        REQUIRE(gw_worker_pull_sample(worker, a, keys, 1, keys, LENGTH, NULL) == GW_EINVAL);
        REQUIRE(gw_worker_advance_clock(worker) == 0);
    }
    prepare(worker, 100, NULL); /* never finished */
    prepare(worker, 0, NULL);
    if (rank % 2 == 0)
        REQUIRE(gw_worker_close(worker) == 0);
    close_all(params, world);
}

#define USE(name, which)                                            \
    static void use_##name(const struct processes *all, int rank)   \
    {                                                               \
        use_scheme(all, rank, all->n == 1 ? 0 : all->n / 2, which); \
    }
USE(naive, GW_SAMPLING_NAIVE)
USE(preloc, GW_SAMPLING_PRELOC)
USE(pool, GW_SAMPLING_POOL)
USE(local, GW_SAMPLING_LOCAL)

static process_main *const uses[N_SCHEMES] = {use_naive, use_preloc, use_pool, use_local};

static void samples_are_pulled_in_portions_with_every_scheme(void **state)
{
    (void)state;
    for (int which = 0; which < N_SCHEMES; which++)
        for (int n = 1; n <= 4; n *= 2)
            run_processes(n, uses[which]);
}

/* In this process, so that what is not freed is found. */
static void what_is_never_finished_is_freed_with_its_worker(void **state)
{
    (void)state;
    struct processes all = {.n = 1};

    for (int which = 0; which < N_SCHEMES; which++)
        for (int abandoned = 0; abandoned < 2; abandoned++) {
            snprintf(all.job, sizeof all.job, "test-samples-%d-%d-%d", (int)getpid(), which,
                     abandoned);
            gw_world *world = join(&all, 0);
            gw_params *params = open_params(world, 2);
            gw_worker *worker = take_worker(params), *other = take_worker(params);
            gw_sampling_options opt = scheme(which);
            double weights[N_KEYS];
            int64_t keys[10];
            for (int i = 0; i < N_KEYS; i++)
                weights[i] = 1 + i;
            opt.distribution = GW_DISTRIBUTION_WEIGHTS;
            opt.weights = weights;
            opt.n_weights = N_KEYS;
            opt.replacement = which == GW_SAMPLING_POOL;
            assert_int_equal(gw_params_enable_sampling(params, &opt), 0);
            for (int i = 0; i < 100; i++) {
                float values[10 * LENGTH];
                gw_sample sample = prepare(i % 2 ? worker : other, 20, NULL);
                assert_int_equal(gw_worker_pull_sample(i % 2 ? worker : other, sample, keys, 10,
                                                       values, 10 * LENGTH, NULL),
                                 0);
            }
            assert_int_equal(gw_worker_close(other), 0);
            if (abandoned)
                gw_params_abandon(params);
            else
                assert_int_equal(gw_params_close(params), 0);
            gw_world_close(world);
        }
}

/* chance */

static void draw_again(gw_world *world, int which, uint64_t seed, int64_t *keys)
{
    gw_params *params = open_params(world, 2);
    gw_worker *worker = take_worker(params);
    gw_sampling_options opt = scheme(which);

    opt.seed = seed;
    REQUIRE(gw_params_enable_sampling(params, &opt) == 0);
    REQUIRE(set(worker, 0, 0) == 0);
    for (int i = 0; i < 10; i++) {
        float values[100 * LENGTH];
        gw_sample sample = prepare(worker, 100, NULL);
        REQUIRE(gw_worker_pull_sample(worker, sample, keys + 100 * i, 100, values, 100 * LENGTH,
                                      NULL) == 0);
    }
    REQUIRE(gw_params_close(params) == 0);
}

static void draw_with_seeds(const struct processes *all, int rank)
{
    int64_t first[1000], again[1000], other[1000];
    gw_world *world = join(all, rank);

    for (int which = 0; which < N_SCHEMES; which++) {
        draw_again(world, which, 7, first);
        draw_again(world, which, 7, again);
        draw_again(world, which, 8, other);
        REQUIRE(memcmp(first, again, sizeof first) == 0);
        REQUIRE(memcmp(first, other, sizeof first) != 0);
        gw_comm *comm;
        int64_t all_first[2000];
        REQUIRE(gw_comm_world(world, &comm) == 0);
        REQUIRE(gw_comm_allgather(comm, first, all_first, 1000, GW_I64) == 0);
        REQUIRE(memcmp(all_first, all_first + 1000, sizeof first) != 0);
    }
    gw_world_close(world);
}

static void a_worker_draws_the_same_for_the_same_seed_and_workers_differ(void **state)
{
    (void)state;
    run_processes(2, draw_with_seeds);
}

static void draw_distinct(const struct processes *all, int rank)
{
    const int schemes[] = {GW_SAMPLING_NAIVE, GW_SAMPLING_PRELOC, GW_SAMPLING_LOCAL};
    gw_world *world;
    gw_world_options options = GW_WORLD_OPTIONS_INIT;

    options.rank = rank;
    options.size = all->n;
    options.node_size = 1;
    options.job = all->job;
    REQUIRE(gw_world_join(&options, &world) == 0);
    for (int i = 0; i < 3; i++) {
        gw_params *params = open_params(world, 1);
        gw_worker *worker = take_worker(params);
        gw_sampling_options opt = scheme(schemes[i]);
        /* With local only those that are here: of two nodes, half of them. */
        size_t n = schemes[i] == GW_SAMPLING_LOCAL ? N_KEYS / (size_t)all->n : N_KEYS;
        opt.replacement = 0;
        opt.distribution = GW_DISTRIBUTION_LOG_UNIFORM;
        REQUIRE(gw_params_enable_sampling(params, &opt) == 0);
        set_all(worker, rank);
        for (int round = 0; round < 20; round++) {
            gw_sample sample = prepare(worker, n, NULL);
            int64_t keys[N_KEYS], seen[N_KEYS] = {0};
            for (size_t at = 0; at < n; at += 5)
                pull_some(worker, sample, keys + at, 5);
            for (size_t k = 0; k < n; k++)
                REQUIRE(seen[keys[k]]++ == 0);
        }
        gw_sample more;
        REQUIRE(gw_worker_prepare_sample(worker, N_KEYS + 1, NULL, &more) == GW_EINVAL);
        REQUIRE(saw("without replacement a sample has at most 50 keys"));
        if (schemes[i] == GW_SAMPLING_LOCAL && all->n > 1) {
            int64_t keys[N_KEYS];
            float values[N_KEYS * LENGTH];
            more = prepare(worker, N_KEYS, NULL);
            REQUIRE(gw_worker_pull_sample(worker, more, keys, N_KEYS, values, N_KEYS * LENGTH,
                                          NULL) == GW_ESTATE);
            REQUIRE(saw("are on this node now"));
            pull_some(worker, more, keys, N_KEYS / (size_t)all->n); /* it lost nothing */
        }
        meet(worker);
        REQUIRE(gw_params_close(params) == 0);
    }
    gw_world_close(world);
}

static void without_replacement_no_key_comes_twice_in_a_sample(void **state)
{
    (void)state;
    run_processes(1, draw_distinct);
    run_processes(2, draw_distinct);
}

/* vectors of different lengths */

static void pull_lengths(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params_options opt = options(1);
    gw_sampling_options sampling = scheme(GW_SAMPLING_PRELOC);
    int64_t lengths[N_KEYS], keys[10];
    gw_params *params;

    for (int i = 0; i < N_KEYS; i++)
        lengths[i] = 1 + i % 3;
    opt.lengths = lengths;
    opt.n_lengths = N_KEYS;
    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    gw_worker *worker = take_worker(params);
    REQUIRE(gw_params_enable_sampling(params, &sampling) == 0);
    for (int64_t key = 0; key < N_KEYS; key++) {
        const float values[3] = {(float)key, (float)key, (float)key};
        REQUIRE(gw_worker_set(worker, one(&key), values, (size_t)lengths[key], NULL) == 0);
    }
    float values[31];
    for (int i = 0; i < 31; i++)
        values[i] = -1;
    gw_sample sample = prepare(worker, 10, NULL);
    REQUIRE(gw_worker_pull_sample(worker, sample, keys, 10, values, 29, NULL) == GW_EINVAL);
    REQUIRE(saw("need room for 30"));
    REQUIRE(gw_worker_pull_sample(worker, sample, keys, 10, values, 31, NULL) == 0);
    const float *at = values;
    for (int i = 0; i < 10; i++)
        for (int64_t k = 0; k < lengths[keys[i]]; k++)
            REQUIRE(*at++ == (float)keys[i]);
    while (at < values + 31)
        REQUIRE(*at++ == -1);
    close_all(params, world);
}

static void vectors_of_different_lengths_lie_one_after_the_other(void **state)
{
    (void)state;
    run_processes(1, pull_lengths);
}

/* keys come here */

static void expect_local(gw_worker *worker, const int64_t *keys, size_t n)
{
    uint8_t local[1000];

    for (int i = 0; i < 20000; i++) {
        size_t n_local = 0;
        REQUIRE(gw_worker_is_local(worker, (gw_keys){keys, n}, local) == 0);
        for (size_t k = 0; k < n; k++)
            n_local += local[k];
        if (n_local == n)
            return;
        usleep(1000);
    }
    REQUIRE(!"the keys of a sample come here");
}

/* The same seed on one node tells what will be drawn. */
static void announce(const struct processes *all, int rank, int which, int with_clocks)
{
    gw_world *world;
    gw_params *params = open_in_nodes(all, rank, 1, &world);
    gw_worker *worker = take_worker(params);
    gw_sampling_options opt = scheme(which);
    gw_clocks when = {0, 5};
    int64_t keys[30];

    REQUIRE(gw_worker_close(take_worker(params)) == 0);
    REQUIRE(gw_params_enable_sampling(params, &opt) == 0);
    set_all(worker, rank);
    if (rank == 0) {
        gw_sample sample = prepare(worker, 30, with_clocks ? &when : NULL);
        float values[30 * LENGTH];
        int64_t before = stat_of(params, "keys_remote");
        REQUIRE(sample.id == 1);
        /* Nothing is pulled before the keys are here, so that nothing is remote. */
        gwi_random random;
        gwi_random_init(&random, opt.seed, which == GW_SAMPLING_POOL ? 0 : 1);
        gwi_distribution d = gwi_distribution_of(GW_DISTRIBUTION_UNIFORM, 0, N_KEYS);
        gwi_distribution_draw(&d, &random, keys, 30);
        expect_local(worker, keys, 30);
        int64_t expected[30];
        memcpy(expected, keys, sizeof keys);
        REQUIRE(gw_worker_pull_sample(worker, sample, keys, 30, values, 30 * LENGTH, NULL) == 0);
        REQUIRE(memcmp(keys, expected, sizeof keys) == 0);
        REQUIRE(stat_of(params, "keys_remote") == before);
    }
    close_all(params, world);
}

#define ANNOUNCE(name, which, clocks)                                  \
    static void announce_##name(const struct processes *all, int rank) \
    {                                                                  \
        announce(all, rank, which, clocks);                            \
    }
ANNOUNCE(preloc_now, GW_SAMPLING_PRELOC, 0)
ANNOUNCE(preloc, GW_SAMPLING_PRELOC, 1)
ANNOUNCE(pool_now, GW_SAMPLING_POOL, 0)
ANNOUNCE(pool, GW_SAMPLING_POOL, 1)

static void what_is_prepared_comes_here_before_it_is_pulled(void **state)
{
    (void)state;
    run_processes(2, announce_preloc_now);
    run_processes(2, announce_preloc);
    run_processes(2, announce_pool_now);
    run_processes(2, announce_pool);
}

static void draw_local(const struct processes *all, int rank)
{
    gw_world *world;
    gw_params *params = open_in_nodes(all, rank, 1, &world);
    gw_worker *worker = take_worker(params);
    gw_sampling_options opt = scheme(GW_SAMPLING_LOCAL);
    int64_t keys[1000];

    REQUIRE(gw_worker_close(take_worker(params)) == 0);
    REQUIRE(gw_params_enable_sampling(params, &opt) == 0);
    set_all(worker, rank);
    int64_t remote = stat_of(params, "keys_remote");
    pull_some(worker, prepare(worker, 1000, NULL), keys, 1000);
    for (int i = 0; i < 1000; i++)
        REQUIRE(keys[i] % all->n == rank); /* where keys are at first */
    meet(worker);
    REQUIRE(stat_of(params, "keys_remote") == remote);
    close_all(params, world);
}

static void local_draws_only_what_is_here(void **state)
{
    (void)state;
    run_processes(2, draw_local);
    run_processes(3, draw_local);
}

/* bad calls */

static void call_badly(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 2);
    gw_worker *worker = take_worker(params), *other = take_worker(params);
    gw_sampling_options opt = scheme(GW_SAMPLING_PRELOC);
    gw_clocks when = {5, 5};
    gw_sample sample = {-7};
    int64_t keys[10] = {0};
    float values[10 * LENGTH];

    REQUIRE(gw_worker_prepare_sample(worker, 5, NULL, &sample) == GW_ESTATE);
    REQUIRE(saw("sampling is not enabled") && sample.id == -7);
    REQUIRE(gw_worker_pull_sample(worker, sample, keys, 5, values, 20, NULL) == GW_ESTATE);
    REQUIRE(gw_worker_finish_sample(worker, sample) == GW_ESTATE);
    REQUIRE(gw_params_enable_sampling(params, &opt) == 0);
    REQUIRE(gw_params_enable_sampling(params, &opt) == GW_ESTATE);
    REQUIRE(saw("sampling is enabled already, with the scheme 'preloc'"));

    REQUIRE(gw_worker_prepare_sample(worker, 5, &when, &sample) == GW_EINVAL);
    REQUIRE(saw("end is 5; it must be after start, which is 5") && sample.id == -7);
    REQUIRE(gw_worker_prepare_sample(worker, SIZE_MAX, NULL, &sample) == GW_ENOMEM);
    sample = prepare(worker, 5, NULL);
    REQUIRE(gw_worker_pull_sample(other, sample, keys, 5, values, 20, NULL) == GW_EINVAL);
    REQUIRE(saw("sample 1 was not prepared by this worker"));
    REQUIRE(gw_worker_finish_sample(worker, (gw_sample){2}) == GW_EINVAL);
    REQUIRE(gw_worker_finish_sample(worker, (gw_sample){0}) == GW_EINVAL);
    REQUIRE(gw_worker_pull_sample(worker, sample, keys, 6, values, 24, NULL) == GW_EINVAL);
    REQUIRE(saw("keys has 6 entries, but sample 1 has 5 left of its 5"));
    REQUIRE(gw_worker_pull_sample(worker, sample, keys, 5, values, 19, NULL) == GW_EINVAL);
    REQUIRE(saw("values has 19 entries, but 5 vectors of 4 need 20"));
    REQUIRE(gw_worker_pull_sample(worker, sample, keys, 5, NULL, 20, NULL) == GW_EINVAL);
    REQUIRE(gw_worker_pull_sample(worker, sample, NULL, 5, values, 20, NULL) == GW_EINVAL);
    for (int i = 0; i < 10; i++)
        REQUIRE(keys[i] == 0);
    pull_some(worker, prepare(worker, 5, NULL), keys, 0);
    REQUIRE(gw_worker_pull_sample(worker, sample, keys, 5, values, 20, NULL) == 0); /* all there */
    close_all(params, world);
}

static void bad_calls_are_refused_and_change_nothing(void **state)
{
    (void)state;
    run_processes(1, call_badly);
}

typedef void spoil(gw_sampling_options *opt);

static double some_weights[N_KEYS];

#define SPOIL(name, change)                    \
    static void name(gw_sampling_options *opt) \
    {                                          \
        change;                                \
    }

static void weigh(gw_sampling_options *opt)
{
    for (int i = 0; i < N_KEYS; i++)
        some_weights[i] = i;
    opt->distribution = GW_DISTRIBUTION_WEIGHTS;
    opt->weights = some_weights;
    opt->n_weights = N_KEYS;
}

SPOIL(no_range, opt->min = opt->max = 20)
SPOIL(reverse_range, (opt->min = 20, opt->max = 10))
SPOIL(range_too_far, opt->max = N_KEYS + 1)
SPOIL(range_below, opt->min = -1)
SPOIL(strange_scheme, opt->scheme = 4)
SPOIL(strange_distribution, opt->distribution = -1)
SPOIL(no_size, opt->size_bytes = 3)
SPOIL(empty_pool, opt->pool_size = 0)
SPOIL(huge_pool, opt->pool_size = INT64_MAX)
SPOIL(no_reuse, opt->reuse = 0)
SPOIL(pool_without_replacement, (opt->scheme = GW_SAMPLING_POOL, opt->replacement = 0))
SPOIL(few_weights, (weigh(opt), opt->n_weights--))
SPOIL(weights_of_range, (weigh(opt), opt->max = 30))
SPOIL(no_weights, (weigh(opt), opt->weights = NULL))
SPOIL(unasked_weights, (weigh(opt), opt->distribution = GW_DISTRIBUTION_UNIFORM))
SPOIL(a_weight_below_0, (weigh(opt), some_weights[3] = -1))
SPOIL(a_weight_of_nan, (weigh(opt), some_weights[4] = NAN))
SPOIL(a_weight_of_infinity, (weigh(opt), some_weights[5] = INFINITY))
SPOIL(only_zeros, (weigh(opt), memset(some_weights, 0, sizeof some_weights)))
SPOIL(other_scheme, opt->scheme = GW_SAMPLING_LOCAL)
SPOIL(other_distribution, opt->distribution = GW_DISTRIBUTION_LOG_UNIFORM)
SPOIL(other_min, opt->min = 3)
SPOIL(other_max, opt->max = 33)
SPOIL(other_replacement, opt->replacement = 0)
SPOIL(other_pool, opt->pool_size = 100)
SPOIL(other_reuse, opt->reuse = 2)
SPOIL(other_seed, opt->seed++)

/* What is wrong on rank 1, what it gets and says, and what the others say. */
static const struct {
    spoil *spoil;
    int err;
    const char *says, *others_say;
} bad_options[] = {
    {no_range, GW_EINVAL, "min is 20 and max is 20", "rank 1 was refused"},
    {reverse_range, GW_EINVAL, "min is 20 and max is 10", "rank 1 was refused"},
    {range_too_far, GW_ERANGE, "max is 51, but there are only 50 keys", "rank 1 was refused"},
    {range_below, GW_ERANGE, "min is -1", "rank 1 was refused"},
    {strange_scheme, GW_EINVAL, "scheme is 4", "rank 1 was refused"},
    {strange_distribution, GW_EINVAL, "distribution is -1", "rank 1 was refused"},
    {no_size, GW_EINVAL, "GW_SAMPLING_OPTIONS_INIT", "rank 1 was refused"},
    {empty_pool, GW_EINVAL, "pool_size is 0", "rank 1 was refused"},
    {huge_pool, GW_EINVAL, "pool_size is 9223372036854775807", "rank 1 was refused"},
    {no_reuse, GW_EINVAL, "reuse is 0", "rank 1 was refused"},
    {pool_without_replacement, GW_EUNSUP, "replacement is off", "rank 1 was refused"},
    {few_weights, GW_EINVAL, "weights has 49 entries, but there are 50", "rank 1 was refused"},
    {weights_of_range, GW_EINVAL, "weights has 50 entries, but there are 30", "rank 1 was refused"},
    {no_weights, GW_EINVAL, "weights is NULL", "rank 1 was refused"},
    {unasked_weights, GW_EINVAL, "a distribution that has none", "rank 1 was refused"},
    {a_weight_below_0, GW_EINVAL, "weights[3] is -1", "rank 1 was refused"},
    {a_weight_of_nan, GW_EINVAL, "weights[4] is nan", "rank 1 was refused"},
    {a_weight_of_infinity, GW_EINVAL, "weights[5] is inf", "rank 1 was refused"},
    {only_zeros, GW_EINVAL, "all 50 are 0", "rank 1 was refused"},
    {other_scheme, GW_EDISAGREE, "scheme is 'local' here and 'preloc' on rank 0",
     "scheme is 'preloc' here and 'local' on rank 1"},
    {other_distribution, GW_EDISAGREE, "distribution", "on rank 1"},
    {other_min, GW_EDISAGREE, "min is 3 here and 0 on rank 0", "on rank 1"},
    {other_max, GW_EDISAGREE, "max is 33 here and 50 on rank 0", "on rank 1"},
    {other_replacement, GW_EDISAGREE, "replacement is 0 here", "on rank 1"},
    {other_pool, GW_EDISAGREE, "pool_size is 100 here and 250 on rank 0", "on rank 1"},
    {other_reuse, GW_EDISAGREE, "reuse is 2 here and 16 on rank 0", "on rank 1"},
    {other_seed, GW_EDISAGREE, "seed is 43 here and 42 on rank 0", "on rank 1"},
};

static void enable_badly(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    gw_sampling_options opt;
    gw_sample sample;

    for (size_t i = 0; i < sizeof bad_options / sizeof *bad_options; i++) {
        opt = scheme(GW_SAMPLING_PRELOC);
        if (rank == 1)
            bad_options[i].spoil(&opt);
        int err = gw_params_enable_sampling(params, &opt);
        REQUIRE(err == (rank == 1 ? bad_options[i].err : GW_EDISAGREE));
        if (!saw(rank == 1 ? bad_options[i].says : bad_options[i].others_say))
            fprintf(stderr, "case %zu\n", i);
        REQUIRE(saw(rank == 1 ? bad_options[i].says : bad_options[i].others_say));
        REQUIRE(gw_worker_prepare_sample(worker, 1, NULL, &sample) == GW_ESTATE);
    }
    opt = scheme(GW_SAMPLING_POOL);
    weigh(&opt);
    some_weights[7] += rank;
    REQUIRE(gw_params_enable_sampling(params, &opt) == GW_EDISAGREE);
    REQUIRE(saw(rank == 1 ? "weights are not the same here and on rank 0"
                          : "weights are not the same here and on rank 1"));
    REQUIRE(gw_params_enable_sampling(params, rank == 0 ? NULL : &opt) ==
            (rank == 0 ? GW_EINVAL : GW_EDISAGREE));
    weigh(&opt);
    REQUIRE(gw_params_enable_sampling(params, &opt) == 0); /* nothing stands in the way */
    REQUIRE(gw_worker_prepare_sample(worker, 1, NULL, &sample) == 0);
    close_all(params, world);
}

static void bad_options_of_one_rank_are_refused_on_all(void **state)
{
    (void)state;
    run_processes(2, enable_badly);
}

static void use_in_child(const struct processes *all, int rank)
{
    gw_world *world = join(all, rank);
    gw_params *params = open_params(world, 1);
    gw_worker *worker = take_worker(params);
    gw_sampling_options opt = scheme(GW_SAMPLING_NAIVE);
    gw_sample sample;
    int status;

    REQUIRE(gw_params_enable_sampling(params, &opt) == 0);
    sample = prepare(worker, 1, NULL);
    pid_t child = fork();
    if (child == 0) {
        REQUIRE(gw_worker_prepare_sample(worker, 1, NULL, &sample) == GW_ESTATE);
        REQUIRE(gw_worker_finish_sample(worker, sample) == GW_ESTATE);
        REQUIRE(gw_params_enable_sampling(params, &opt) == GW_ESTATE);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    close_all(params, world);
}

static void a_forked_child_has_no_samples(void **state)
{
    (void)state;
    run_processes(1, use_in_child);
}

GWI_TESTS(cmocka_unit_test(samples_are_pulled_in_portions_with_every_scheme),
          cmocka_unit_test(what_is_never_finished_is_freed_with_its_worker),
          cmocka_unit_test(a_worker_draws_the_same_for_the_same_seed_and_workers_differ),
          cmocka_unit_test(without_replacement_no_key_comes_twice_in_a_sample),
          cmocka_unit_test(vectors_of_different_lengths_lie_one_after_the_other),
          cmocka_unit_test(what_is_prepared_comes_here_before_it_is_pulled),
          cmocka_unit_test(local_draws_only_what_is_here),
          cmocka_unit_test(bad_calls_are_refused_and_change_nothing),
          cmocka_unit_test(bad_options_of_one_rank_are_refused_on_all),
          cmocka_unit_test(a_forked_child_has_no_samples))
