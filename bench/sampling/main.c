/* main.c - measures samples beside plain pulls of the same keys.
 *
 *     sampling naive|preloc|pool|local uniform|log-uniform|weights NODES [quick]
 *
 * starts two processes with a worker each that are NODES virtual nodes (1 or 2), opens parameters
 * of a million vectors of 64 floats, sets them all, and lets both workers sample, in blocks:
 *
 *   paced   A sample of 512 keys for each clock, prepared 50 clocks ahead, pulled when its clock
 *           comes; then a millisecond of sleep, in which agents can do what was announced.  What
 *           counts is the time that the worker spends in its calls.
 *   bare    The same without the sleep: workers and agents share the cores.
 *   plain   Pulls of those keys of the last block that are on the node, 512 in a call, at the same
 *           pace.  The blocks are so long that not much of them is left in the caches.
 *
 * Each case gives a line as those of bench/params do: ns a key, of each call of prepare_sample, of
 * pull_sample, or of both for one clock ("loop"); of all clocks of a block ("block"); or a share of
 * keys. */
#include "common.h"
#include "draw.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define BATCH 512
#define AHEAD 50
#define BLOCK 400 /* samples */
#define PACED_BLOCK 150
#define SETTLE_MS 2000.0 /* until the store is in huge pages and the agents are at rest */
#define REST_MS 20.0

static const char *const schemes[] = {[GW_SAMPLING_NAIVE] = "naive",
                                      [GW_SAMPLING_PRELOC] = "preloc",
                                      [GW_SAMPLING_POOL] = "pool",
                                      [GW_SAMPLING_LOCAL] = "local"};
static const char *const distributions[] = {[GW_DISTRIBUTION_UNIFORM] = "uniform",
                                            [GW_DISTRIBUTION_LOG_UNIFORM] = "log-uniform",
                                            [GW_DISTRIBUTION_WEIGHTS] = "weights"};

struct wish {
    int scheme, distribution;
};

enum { PREPARE, PULL_SAMPLE, LOOP, WHOLE_BLOCK, REMOTE, N_CASES };

static const char *const cases[] = {"prepare", "pull", "loop", "block", "remote"};

struct loop {
    gw_sample samples[AHEAD + 1]; /* by number around */
    int64_t *keys;                /* of a block */
    uint8_t *local;
    size_t n_keys;
    series found[N_CASES];
};

/* Weights of words, in an order without meaning: neighbours are as likely as others. */
static void enable(bench *b, struct wish wish)
{
    gw_sampling_options opt = GW_SAMPLING_OPTIONS_INIT;
    double *weights = get(N_KEYS * sizeof *weights);
    uint64_t random = 17;

    opt.scheme = wish.scheme;
    opt.distribution = wish.distribution;
    opt.seed = 99;
    if (wish.distribution == GW_DISTRIBUTION_WEIGHTS) {
        for (int64_t i = 0; i < N_KEYS; i++)
            weights[i] = pow(1 + (double)(draw_random(&random) % N_KEYS), -0.75);
        opt.weights = weights;
        opt.n_weights = N_KEYS;
    }
    check(gw_params_enable_sampling(b->params, &opt));
    free(weights);
}

static void set_keys(bench *b)
{
    static int64_t keys[MOST_KEYS];
    size_t n = 0;

    check(gw_worker_begin_setup(b->worker));
    for (int64_t key = b->rank; key < N_KEYS; key += N_WORKERS) {
        keys[n++] = key;
        if (n == MOST_KEYS || key + N_WORKERS >= N_KEYS) {
            check(gw_worker_set(b->worker, (gw_keys){keys, n}, b->units, n * LENGTH, NULL));
            n = 0;
        }
    }
    check(gw_worker_end_setup(b->worker));
}

static void prepare(bench *b, struct loop *l, int64_t number, int64_t ahead)
{
    int64_t clock = gw_worker_clock(b->worker) + ahead;
    gw_clocks when = {clock, clock + 1};

    check(gw_worker_prepare_sample(b->worker, BATCH, &when, &l->samples[number % (AHEAD + 1)]));
}

static size_t count_remote(bench *b)
{
    gw_params_stat stat;

    for (int i = 0; gw_params_stat_get(b->params, i, &stat) == 0; i++)
        if (strcmp(stat.name, "keys_remote") == 0)
            return (size_t)stat.value;
    fail("keys_remote is not counted");
}

/* A sample for one clock. */
static void run_clock(bench *b, struct loop *l, int64_t number, int64_t *keys)
{
    double begin = now_ns();

    prepare(b, l, number + AHEAD, AHEAD);
    double prepared = now_ns();
    check(gw_worker_pull_sample(b->worker, l->samples[number % (AHEAD + 1)], keys, BATCH, b->values,
                                (size_t)BATCH * LENGTH, NULL));
    double end = now_ns();
    note(&l->found[PREPARE], (prepared - begin) / BATCH);
    note(&l->found[PULL_SAMPLE], (end - prepared) / BATCH);
    note(&l->found[LOOP], (end - begin) / BATCH);
}

/* `n` samples from number `first` on.  Returns the number of the next. */
static int64_t run_block(bench *b, struct loop *l, int64_t first, int n, double pause_ms)
{
    size_t remote = count_remote(b);
    double begin = now_ns();

    l->n_keys = 0;
    for (int64_t number = first; number < first + n; number++) {
        run_clock(b, l, number, l->keys + l->n_keys);
        l->n_keys += BATCH;
        check(gw_worker_advance_clock(b->worker));
        if (pause_ms > 0)
            sleep_ms(pause_ms);
    }
    note(&l->found[WHOLE_BLOCK], (now_ns() - begin) / (double)l->n_keys);
    note(&l->found[REMOTE], (double)(count_remote(b) - remote) / (double)l->n_keys);
    return first + n;
}

/* Of a block's keys, those that are here; at the same pace, since sleep makes caches cold. */
static void time_plain(bench *b, struct loop *l, double pause_ms, series *plain)
{
    size_t n = 0;

    check(gw_worker_is_local(b->worker, (gw_keys){l->keys, l->n_keys}, l->local));
    for (size_t i = 0; i < l->n_keys; i++)
        if (l->local[i])
            l->keys[n++] = l->keys[i];
    if (n < BATCH)
        fail("of %zu keys %zu are here", l->n_keys, n);
    for (size_t at = 0; at + BATCH <= n; at += BATCH) {
        double begin = now_ns();
        call(b, PULL, l->keys + at, BATCH);
        note(plain, (now_ns() - begin) / BATCH);
        if (pause_ms > 0)
            sleep_ms(pause_ms);
    }
}

/* Paced or bare blocks, and plain pulls in between; the first round is not counted. */
static void measure(bench *b, struct loop *l, int bare, int64_t *number)
{
    const char *how = bare ? "bare" : "paced";
    double pause_ms = bare ? 0 : 1;
    int n_rounds = b->quick ? 3 : 8;
    series plain = {0};

    for (int round = -1; round < n_rounds; round++) {
        meet(b);
        *number = run_block(b, l, *number, bare ? BLOCK : PACED_BLOCK, pause_ms);
        meet(b);
        sleep_ms(REST_MS); /* agents may have something left to do */
        time_plain(b, l, pause_ms, &plain);
        if (round >= 0)
            continue;
        for (int c = 0; c < N_CASES; c++)
            l->found[c].n = 0;
        plain.n = 0;
    }
    meet(b);
    say(b, &plain, "%s plain", how);
    for (int c = 0; c < N_CASES; c++)
        say(b, &l->found[c], "%s %s", how, cases[c]);
}

static void measure_both(bench *b)
{
    struct loop *l = get(sizeof *l);
    int64_t number = 0;

    l->keys = get((size_t)BLOCK * BATCH * sizeof *l->keys);
    l->local = get((size_t)BLOCK * BATCH);
    for (int64_t i = 0; i < AHEAD; i++)
        prepare(b, l, i, i);
    for (int bare = 0; bare < 2; bare++)
        measure(b, l, bare, &number);
    free(l->local);
    free(l->keys);
    free(l);
}

static void run_process(bench *b, struct wish wish, const char *job)
{
    b->values = get(MOST_KEYS * LENGTH * sizeof *b->values);
    b->units = get(MOST_KEYS * LENGTH * sizeof *b->units);
    open_params(b, job);
    enable(b, wish);
    set_keys(b);
    sleep_ms(SETTLE_MS);
    meet(b);
    measure_both(b);
    meet(b);
    check(gw_worker_close(b->worker));
    check(gw_params_close(b->params));
    gw_world_close(b->world);
}

static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

int main(int argc, char **argv)
{
    struct wish wish = {argc >= 4 ? find(schemes, 4, argv[1]) : -1,
                        argc >= 4 ? find(distributions, 3, argv[2]) : -1};
    bench b = {.n_nodes = argc >= 4 ? atoi(argv[3]) : 0};
    pid_t children[N_WORKERS];
    char job[64];

    if (wish.scheme < 0 || wish.distribution < 0 || b.n_nodes < 1 || b.n_nodes > N_WORKERS) {
        fprintf(stderr, "usage: sampling naive|preloc|pool|local uniform|log-uniform|weights 1|2 "
                        "[quick]\n");
        return 2;
    }
    b.quick = argc > 4 && strcmp(argv[4], "quick") == 0;
    b.common = map_common();
    snprintf(job, sizeof job, "bench-sampling-%d-%.0f", (int)getpid(), now_ns());
    for (b.rank = 0; b.rank < N_WORKERS; b.rank++) {
        b.random = (uint64_t)b.rank + 1;
        children[b.rank] = fork();
        if (children[b.rank] < 0)
            fail("cannot fork"); /* who was started already ends with us */
        if (children[b.rank] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_process(&b, wish, job);
            return 0;
        }
    }
    return wait_for(children);
}
