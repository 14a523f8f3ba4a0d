/* history.c - what real workers see of a few hot keys is sequentially consistent.
 *
 *     history -n 2 -t 2 [--seconds 60] [--seed 1] [--f32]      2 processes of 2 threads
 *     history -n 4 -t 1 --node-size 2 [--moves]                2 nodes; keys are localized
 *
 * In rounds: all workers pull, push and set keys drawn by lot, several at once and some of
 * them twice, and write down what they saw; then one of them looks for an order that
 * explains it, key by key (checker.h).  Vectors hold several copies of the value, so that
 * one that is read in part shows.  Ends with 1 and a sentence if there is none.        */
#include "base/error.h"
#include "base/option.h"
#include "checker.h"
#include "fabric/processes_test.h"

#include <godwit/params.h>

#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#define KEYS 3
#define BATCH 4
#define CALLS 1500 /* of a worker in a round; f32 counts up to 2^24 */
#define COPIES 9   /* of the value in a vector */
#define MAX_WORKERS 16

static struct {
    int n, threads, seconds, seed, f32, node_size, moves;
} args = {.n = 1, .threads = 1, .seconds = 60, .seed = 1};

/* One key of a call. */
struct record {
    int kind; /* '+', '=', '?' */
    int key;
    int64_t id;                          /* of a set */
    double entries[2 * MAX_WORKERS + 1]; /* of a pull */
};

/* Shared by all processes; the log is written by its worker between two barriers. */
static struct log {
    int n;
    struct record records[CALLS * BATCH];
} * logs;

/* What all have seen; written by the worker that checks. */
static struct {
    int64_t rounds, operations, pulls;
} * checked;

static int n_workers;
static size_t n_entries; /* of the value */

struct context {
    gw_worker *worker;
    int number;
    gwi_random random;
    int64_t pushes[KEYS], sets; /* so far in this round */
    double row[BATCH * COPIES * (2 * MAX_WORKERS + 1)];
    float row32[BATCH * COPIES * (2 * MAX_WORKERS + 1)];
};

/* calls, in the type of the parameters */

static size_t row_length(void)
{
    return COPIES * n_entries;
}

static void call(struct context *c, int kind, gw_keys keys)
{
    size_t n = keys.n * row_length();
    void *values = args.f32 ? (void *)c->row32 : (void *)c->row;

    for (size_t i = 0; i < n && args.f32 && kind != '?'; i++)
        c->row32[i] = (float)c->row[i];
    REQUIRE((kind == '?'   ? gw_worker_pull(c->worker, keys, values, n, NULL)
             : kind == '+' ? gw_worker_push(c->worker, keys, values, n, NULL)
                           : gw_worker_set(c->worker, keys, values, n, NULL)) == 0);
    for (size_t i = 0; i < n && args.f32 && kind == '?'; i++)
        c->row[i] = c->row32[i];
}

static void repeat(double *row)
{
    for (int copy = 1; copy < COPIES; copy++)
        memcpy(row + (size_t)copy * n_entries, row, n_entries * sizeof *row);
}

static int copies_are_equal(const double *row)
{
    for (int copy = 1; copy < COPIES; copy++)
        if (memcmp(row + (size_t)copy * n_entries, row, n_entries * sizeof *row) != 0)
            return 0;
    return 1;
}

/* Between other nodes' calls on the same key. */
static void fetch_a_key(struct context *c)
{
    int64_t key = (int64_t)gwi_random_below(&c->random, KEYS);

    REQUIRE(gw_worker_localize(c->worker, (gw_keys){&key, 1}, NULL) == 0);
}

static void run_call(struct context *c)
{
    uint64_t what = gwi_random_below(&c->random, 16);
    int kind = what == 0 ? '=' : what < 8 ? '+' : '?';
    struct log *log = &logs[c->number];
    struct record *record = &log->records[log->n];
    int64_t keys[BATCH];
    size_t n = 1 + gwi_random_below(&c->random, BATCH);

    for (size_t i = 0; i < n; i++) {
        double *row = c->row + i * row_length();
        keys[i] = (int64_t)gwi_random_below(&c->random, KEYS);
        record[i] = (struct record){.kind = kind, .key = (int)keys[i]};
        if (kind == '+') {
            history_push_vector(n_workers, c->number, ++c->pushes[keys[i]], row);
        } else if (kind == '=') {
            record[i].id = ++c->sets * n_workers + c->number; /* unlike all others */
            history_set_vector(n_workers, record[i].id, row);
        }
        if (kind != '?')
            repeat(row);
    }
    call(c, kind, (gw_keys){keys, n});
    for (size_t i = 0; i < n && kind == '?'; i++) {
        if (!copies_are_equal(c->row + i * row_length())) {
            fprintf(stderr, "worker %d read key %d in part (seed %d)\n", c->number, record[i].key,
                    args.seed);
            _exit(1);
        }
        memcpy(record[i].entries, c->row + i * row_length(), n_entries * sizeof(double));
    }
    log->n += (int)n;
    if (gwi_random_below(&c->random, 64) == 0)
        sched_yield();
}

/* checking */

static void add(struct history *h, int worker, const struct record *r)
{
    if (r->kind == '+')
        history_add_push(h, worker);
    else if (r->kind == '=')
        history_add_set(h, worker, r->id);
    else
        history_add_pull(h, worker, r->entries);
}

static void check_key(int key)
{
    struct history *h = history_new(n_workers);
    char reason[1024];

    for (int w = 0; w < n_workers; w++)
        for (int i = 0; i < logs[w].n; i++)
            if (logs[w].records[i].key == key) {
                add(h, w, &logs[w].records[i]);
                checked->operations++;
                checked->pulls += logs[w].records[i].kind == '?';
            }
    if (!history_check(h, reason, sizeof reason)) {
        fprintf(stderr, "key %d, round %lld, seed %d: %s\n", key, (long long)checked->rounds,
                args.seed, reason);
        _exit(1);
    }
    history_free(h);
}

static void meet(struct context *c)
{
    REQUIRE(gw_worker_barrier(c->worker) == 0);
}

/* All keys as if set by number 0. */
static void clear_keys(struct context *c)
{
    for (int64_t key = 0; key < KEYS; key++) {
        memset(c->row, 0, row_length() * sizeof *c->row);
        call(c, '=', (gw_keys){&key, 1});
    }
}

static void *work(void *arg)
{
    struct context *c = arg;
    int64_t limit = gwi_deadline_ns(args.seconds * GWI_SECOND);

    for (int64_t round = 0;; round++) {
        if (c->number == 0) {
            clear_keys(c);
            checked->rounds = gwi_now_ns() < limit ? round + 1 : -round; /* below 1: no more */
        }
        meet(c);
        if (checked->rounds <= 0)
            break;
        memset(c->pushes, 0, sizeof c->pushes);
        c->sets = 0;
        logs[c->number].n = 0;
        for (int i = 0; i < CALLS; i++) {
            if (args.moves && gwi_random_below(&c->random, 8) == 0)
                fetch_a_key(c);
            run_call(c);
        }
        meet(c);
        if (c->number == 0)
            for (int key = 0; key < KEYS; key++)
                check_key(key);
        meet(c);
    }
    return NULL;
}

static gw_params *open_params(gw_world *world)
{
    gw_params_options opt = GW_PARAMS_OPTIONS_INIT;
    const int64_t length = (int64_t)row_length();
    gw_params *params;

    opt.num_keys = KEYS;
    opt.lengths = &length;
    opt.n_lengths = 1;
    opt.dtype = args.f32 ? GW_F32 : GW_F64;
    opt.workers = args.threads;
    REQUIRE(gw_params_open(world, &opt, &params) == 0);
    return params;
}

static void one_process(const struct processes *all, int rank)
{
    gw_world_options options = GW_WORLD_OPTIONS_INIT;
    struct context *contexts = calloc((size_t)args.threads, sizeof *contexts);
    pthread_t threads[MAX_WORKERS];
    gw_world *world;

    alarm((unsigned)args.seconds + 120);
    options.rank = rank;
    options.size = all->n;
    options.job = all->job;
    options.timeout_s = 60;
    options.node_size = args.node_size;
    REQUIRE(contexts != NULL && gw_world_join(&options, &world) == 0);
    gw_params *params = open_params(world);
    for (int t = 0; t < args.threads; t++) {
        struct context *c = &contexts[t];
        c->number = rank * args.threads + t;
        gwi_random_init(&c->random, (uint64_t)args.seed, (uint64_t)c->number);
        REQUIRE(gw_params_worker(params, &c->worker) == 0);
        REQUIRE(pthread_create(&threads[t], NULL, work, c) == 0);
    }
    for (int t = 0; t < args.threads; t++)
        pthread_join(threads[t], NULL);
    REQUIRE(gw_params_close(params) == 0);
    gw_world_close(world);
    free(contexts);
}

static void *share(size_t n_bytes)
{
    void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        abort();
    return memory;
}

static int parse_args(int argc, char **argv)
{
    static const struct option options[] = {
        {"seconds", required_argument, NULL, 's'}, {"seed", required_argument, NULL, 'r'},
        {"f32", no_argument, &args.f32, 1},        {"node-size", required_argument, NULL, 'd'},
        {"moves", no_argument, &args.moves, 1},    {NULL, 0, NULL, 0},
    };
    int key, err = 0;

    while (err >= 0 && (key = getopt_long(argc, argv, "n:t:", options, NULL)) != -1)
        err = key == 'n'   ? gwi_parse_int("-n", optarg, 1, MAX_WORKERS, &args.n)
              : key == 't' ? gwi_parse_int("-t", optarg, 1, MAX_WORKERS, &args.threads)
              : key == 's' ? gwi_parse_int("--seconds", optarg, 1, 100000, &args.seconds)
              : key == 'd' ? gwi_parse_int("--node-size", optarg, 1, MAX_WORKERS, &args.node_size)
              : key == 'r' ? gwi_parse_int("--seed", optarg, 0, 1000000000, &args.seed)
              : key == 0   ? 0
                           : gwi_fail(GW_EINVAL, "see the head of history.c");
    if (err >= 0 && args.n * args.threads > MAX_WORKERS)
        err = gwi_fail(GW_EINVAL, "at most %d workers in all", MAX_WORKERS);
    return err < 0 || optind < argc ? GW_EINVAL : 0;
}

int main(int argc, char **argv)
{
    struct processes all;
    int n_failed = 0;

    if (parse_args(argc, argv) < 0) {
        fprintf(stderr,
                "usage: %s [-n processes] [-t threads] [--seconds s] [--seed s] [--f32] "
                "[--node-size n] [--moves]\n%s\n",
                argv[0], gw_last_error());
        return 2;
    }
    n_workers = args.n * args.threads;
    n_entries = history_entries(n_workers);
    logs = share((size_t)n_workers * sizeof *logs);
    checked = share(sizeof *checked);
    start_processes(&all, args.n, one_process);
    wait_for_processes(&all);
    for (int rank = 0; rank < all.n; rank++)
        n_failed += all.statuses[rank] != 0;
    printf("%d processes x %d threads, %s, seed %d: %lld operations, %lld of them pulls, in %lld "
           "rounds on %d keys\n",
           args.n, args.threads, args.f32 ? "f32" : "f64", args.seed,
           (long long)checked->operations, (long long)checked->pulls, -(long long)checked->rounds,
           KEYS);
    if (checked->operations == 0)
        n_failed++;
    return n_failed > 0;
}
