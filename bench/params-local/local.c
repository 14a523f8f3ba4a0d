/* local.c - measures a store, and plain loops beside it, as it is told.
 *
 *     params-local LENGTH KEYS WORKERS [small] [now]
 *
 * joins the job that the environment names (alone if none), opens parameters, makes a private
 * array of the same size, waits until both are in huge pages (not with `now`; with `small` there
 * are none), and prints a line of JSON about itself.  Then it reads orders, a line each, and
 * answers each with a line:
 *
 *     pull|push|set|gather|scatter AHEAD uniform|zipf BATCHES WORKERS TOGETHER
 *         {"ns": [per key, by worker], "span": [[begin, end], ...], "lost": [switches, ...]}
 *     one pull|push random|same CALLS
 *         {"ns": of a call with one key}
 *     watch SECONDS WORKERS
 *         {"watch": [[seconds, ns per key, bytes in huge pages], ...]}
 *
 * A worker times each batch of 1024 keys by itself, the drawing of the keys left out, and
 * the median counts: so a batch during which the core was somebody else's does not.  Workers that
 * take turns on a core are not two at once, so it is told too from when to when each one measured,
 * in ns, and how often it lost its core meanwhile.  The first third of the batches is not timed; it
 * brings the caches to where this kind of call leaves them.  AHEAD is for the loops.  With TOGETHER
 * the processes of the job begin at once.  Where a job has several workers each has a core. */
#include "draw.h"
#include "loops.h"
#include "memory.h"

#include <godwit/params.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define BATCH 1024
#define MOST_WORKERS 2
#define MOST_BATCHES 100000

enum kind { PULL, PUSH, SET, GATHER, SCATTER, N_KINDS };

static const char *const kind_names[N_KINDS] = {"pull", "push", "set", "gather", "scatter"};

/* What one thread has. */
typedef struct bench_worker {
    int cpu; /* -1: any */
    gw_worker *worker;
    draw draws[2]; /* uniform, Zipf */
    float *values; /* of a batch */
    double *took;  /* ns of each batch */
    int64_t keys[BATCH];
} bench_worker;

static struct {
    gw_world *world;
    gw_params *params;
    size_t length;
    int64_t n_keys;
    int n_workers;
    loop_table table;
    bench_worker workers[MOST_WORKERS];
} bench;

static void check(int err)
{
    if (err >= 0)
        return;
    fprintf(stderr, "%s: %s\n", gw_strerror(err), gw_last_error());
    exit(1);
}

static void *get(size_t n_bytes)
{
    void *found = calloc(1, n_bytes);

    if (found == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", n_bytes);
        exit(1);
    }
    return found;
}

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static int64_t stat_of(const char *name)
{
    gw_params_stat stat;

    for (int i = 0; gw_params_stat_get(bench.params, i, &stat) == 0; i++)
        if (strcmp(stat.name, name) == 0)
            return stat.value;
    return 0;
}

/* batches */

static void do_batch(bench_worker *w, enum kind kind, size_t ahead)
{
    gw_keys keys = {w->keys, BATCH};
    size_t n_values = BATCH * bench.length;

    switch (kind) {
    case PULL:
        check(gw_worker_pull(w->worker, keys, w->values, n_values, NULL));
        break;
    case PUSH:
        check(gw_worker_push(w->worker, keys, w->values, n_values, NULL));
        break;
    case SET:
        check(gw_worker_set(w->worker, keys, w->values, n_values, NULL));
        break;
    case GATHER:
        loop_gather(bench.table, w->keys, BATCH, ahead, w->values);
        break;
    default:
        loop_scatter_add(bench.table, w->keys, BATCH, ahead, w->values);
    }
}

/* Returns ns. */
static double time_batch(bench_worker *w, enum kind kind, size_t ahead, int zipf)
{
    draw_next(&w->draws[zipf], w->keys, BATCH);
    double start = now_ns();
    do_batch(w, kind, ahead);
    return now_ns() - start;
}

static long involuntary_switches(void)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nivcsw;
}

static void stay_on(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (cpu >= 0)
        CPU_SET(cpu, &set);
    if (cpu >= 0 && sched_setaffinity(0, sizeof set, &set) < 0)
        perror("sched_setaffinity");
}

struct order {
    bench_worker *worker;
    enum kind kind;
    size_t ahead, n_batches;
    int zipf;
    pthread_barrier_t *start;
    /* found */
    long n_lost;
    double begin, end;
};

static void *run_order(void *arg)
{
    struct order *o = arg;

    stay_on(o->worker->cpu);
    pthread_barrier_wait(o->start);
    for (size_t i = 0; i < o->n_batches / 3; i++)
        time_batch(o->worker, o->kind, o->ahead, o->zipf);
    long before = involuntary_switches();
    o->begin = now_ns();
    for (size_t i = 0; i < o->n_batches; i++)
        o->worker->took[i] = time_batch(o->worker, o->kind, o->ahead, o->zipf);
    o->end = now_ns();
    o->n_lost = involuntary_switches() - before;
    return NULL;
}

static void obey_batches(enum kind kind, const char *text)
{
    struct order orders[MOST_WORKERS];
    pthread_t threads[MOST_WORKERS];
    pthread_barrier_t start;
    char keys[16];
    size_t ahead, n_batches;
    int n_workers, together;

    if (sscanf(text, "%zu %15s %zu %d %d", &ahead, keys, &n_batches, &n_workers, &together) != 5 ||
        n_workers < 1 || n_workers > bench.n_workers || n_batches < 1 || n_batches > MOST_BATCHES) {
        fprintf(stderr, "cannot read the order: %s\n", text);
        exit(1);
    }
    pthread_barrier_init(&start, NULL, (unsigned)n_workers);
    for (int i = 0; i < n_workers; i++)
        orders[i] = (struct order){.worker = &bench.workers[i],
                                   .kind = kind,
                                   .ahead = ahead,
                                   .n_batches = n_batches,
                                   .zipf = strcmp(keys, "zipf") == 0,
                                   .start = &start};
    if (kind != PULL && kind != GATHER) /* zeros: sums stay finite */
        for (int i = 0; i < n_workers; i++)
            memset(bench.workers[i].values, 0, BATCH * bench.length * sizeof(float));
    for (int i = 1; i < n_workers; i++)
        pthread_create(&threads[i], NULL, run_order, &orders[i]);
    if (together)
        check(gw_world_barrier(bench.world));
    run_order(&orders[0]);
    for (int i = 1; i < n_workers; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);

    printf("{\"ns\": [");
    for (int i = 0; i < n_workers; i++)
        printf("%s%.3f", i > 0 ? ", " : "", median(bench.workers[i].took, n_batches) / BATCH);
    printf("], \"span\": [");
    for (int i = 0; i < n_workers; i++)
        printf("%s[%.0f, %.0f]", i > 0 ? ", " : "", orders[i].begin, orders[i].end);
    printf("], \"lost\": [");
    for (int i = 0; i < n_workers; i++)
        printf("%s%ld", i > 0 ? ", " : "", orders[i].n_lost);
    printf("]}\n");
}

static void obey_one(const char *text)
{
    bench_worker *w = &bench.workers[0];
    char name[16], which[16];
    size_t n_calls;

    if (sscanf(text, "%15s %15s %zu", name, which, &n_calls) != 3 || n_calls < BATCH) {
        fprintf(stderr, "cannot read the order: %s\n", text);
        exit(1);
    }
    size_t n_batches = n_calls / BATCH < MOST_BATCHES ? n_calls / BATCH : MOST_BATCHES;
    int pushes = strcmp(name, "push") == 0, same = strcmp(which, "same") == 0;
    for (size_t b = 0; b < n_batches; b++) {
        draw_next(&w->draws[0], w->keys, BATCH);
        double start = now_ns();
        for (size_t i = 0; i < BATCH; i++) {
            gw_keys key = {&w->keys[same ? 0 : i], 1};
            check(pushes ? gw_worker_push(w->worker, key, w->values, bench.length, NULL)
                         : gw_worker_pull(w->worker, key, w->values, bench.length, NULL));
        }
        w->took[b] = now_ns() - start;
    }
    printf("{\"ns\": %.2f}\n", median(w->took, n_batches) / BATCH);
}

/* What a worker meets while the store is put into huge pages. */

static volatile int watching;

static void *keep_pulling(void *arg)
{
    while (watching)
        time_batch(arg, PULL, 0, 0);
    return NULL;
}

static void obey_watch(const char *text)
{
    bench_worker *w = &bench.workers[0];
    pthread_t threads[MOST_WORKERS];
    double seconds = 0;
    int n_workers = 0;

    if (sscanf(text, "%lf %d", &seconds, &n_workers) != 2 || n_workers < 1 ||
        n_workers > bench.n_workers) {
        fprintf(stderr, "cannot read the order: %s\n", text);
        exit(1);
    }
    watching = 1;
    for (int i = 1; i < n_workers; i++)
        pthread_create(&threads[i], NULL, keep_pulling, &bench.workers[i]);
    double start = now_ns();
    printf("{\"watch\": [");
    for (double now = start; now < start + seconds * 1e9;) {
        size_t n = 0;
        for (double end = now + 1e8; (now = now_ns()) < end && n < MOST_BATCHES;)
            w->took[n++] = time_batch(w, PULL, 0, 0);
        printf("%s[%.2f, %.2f, %lld]", now > start + 1.5e8 ? ", " : "", (now - start) / 1e9,
               median(w->took, n) / BATCH, (long long)stat_of("huge_page_bytes"));
    }
    printf("]}\n");
    watching = 0;
    for (int i = 1; i < n_workers; i++)
        pthread_join(threads[i], NULL);
}

/* opening */

/* Wait until the store is in huge pages, but for its ends, or nothing has happened for 3 s: that is
 * done only when a processor is free. */
static void settle(void)
{
    int64_t most = stat_of("shared_bytes") - 2 * (int64_t)MEMORY_HUGE_PAGE;
    int64_t before = -1, after = stat_of("huge_page_bytes");

    for (int still = 0; still < 30 && after < most; still = before == after ? still + 1 : 0) {
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        before = after;
        after = stat_of("huge_page_bytes");
    }
}

static void open_params(void)
{
    gw_world_options world = GW_WORLD_OPTIONS_INIT;
    gw_params_options opt = GW_PARAMS_OPTIONS_INIT;
    int64_t length = (int64_t)bench.length;

    opt.num_keys = bench.n_keys;
    opt.lengths = &length;
    opt.n_lengths = 1;
    opt.workers = bench.n_workers;
    check(gw_world_join(&world, &bench.world));
    check(gw_params_open(bench.world, &opt, &bench.params));
    for (int i = 0; i < bench.n_workers; i++)
        check(gw_params_worker(bench.params, &bench.workers[i].worker));
}

/* Touch everything. */
static void touch(void)
{
    float *row = get(bench.length * sizeof *row);

    for (int64_t key = 0; key < bench.n_keys; key++)
        check(gw_worker_push(bench.workers[0].worker, (gw_keys){&key, 1}, row, bench.length, NULL));
    free(row);
}

/* The one with this number, from 0 on and around, of those that we may use. */
static int cpu_of(int number)
{
    cpu_set_t set;

    sched_getaffinity(0, sizeof set, &set);
    number %= CPU_COUNT(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && number-- == 0)
            return cpu;
    return -1;
}

static void open_workers(void)
{
    gw_world_info info = {sizeof info};

    check(gw_world_get_info(bench.world, &info));
    for (int i = 0; i < bench.n_workers; i++) {
        bench_worker *w = &bench.workers[i];
        uint64_t seed = (uint64_t)(info.rank * MOST_WORKERS + i + 1);
        for (int zipf = 0; zipf < 2; zipf++)
            draw_init(&w->draws[zipf], (draw_options){bench.n_keys, DRAW_N, zipf, seed, ~seed});
        w->cpu = info.size * bench.n_workers > 1 ? cpu_of(info.rank * bench.n_workers + i) : -1;
        w->values = get(BATCH * bench.length * sizeof(float));
        w->took = get(MOST_BATCHES * sizeof *w->took);
    }
}

static int has_word(int argc, char **argv, const char *word)
{
    for (int i = 4; i < argc; i++)
        if (strcmp(argv[i], word) == 0)
            return 1;
    return 0;
}

static void obey(char *line)
{
    char *rest = line + strcspn(line, " \n");

    rest += *rest != '\0';
    for (enum kind kind = 0; kind < N_KINDS; kind++) {
        size_t n = strlen(kind_names[kind]);
        if (strncmp(line, kind_names[kind], n) == 0 && line[n] == ' ') {
            obey_batches(kind, rest);
            return;
        }
    }
    if (strncmp(line, "one ", 4) == 0)
        obey_one(rest);
    else
        obey_watch(rest);
}

static void read_arguments(int argc, char **argv)
{
    if (argc >= 4) {
        bench.length = (size_t)atoll(argv[1]);
        bench.n_keys = atoll(argv[2]);
        bench.n_workers = atoi(argv[3]);
    }
    if (bench.length < 1 || bench.n_keys < 1 || bench.n_workers < 1 ||
        bench.n_workers > MOST_WORKERS) {
        fprintf(stderr, "usage: params-local LENGTH KEYS WORKERS [small] [now]\n");
        exit(2);
    }
}

/* Open everything, and say how it went. */
static void begin(int small, int now)
{
    size_t table_bytes = (size_t)bench.n_keys * bench.length * sizeof(float);

    if (small)
        memory_small_pages();
    size_t before = memory_resident_bytes();
    open_params();
    double opened = now_ns();
    if (!small && !now)
        settle();
    double settled = now_ns();
    touch(); /* moved pages are not mapped until somebody does */
    size_t resident = memory_resident_bytes() - before;
    open_workers();
    int64_t huge_bytes = stat_of("huge_page_bytes");
    if (!now)
        bench.table = (loop_table){memory_map(table_bytes, huge_bytes > 0), bench.length};
    printf("{\"resident_bytes\": %zu, \"store_bytes\": %lld, \"store_huge_bytes\": %lld, "
           "\"huge_bytes\": %zu, \"settled_s\": %.2f}\n",
           resident, (long long)stat_of("shared_bytes"), (long long)huge_bytes, memory_huge_bytes(),
           (settled - opened) / 1e9);
    fflush(stdout);
}

static void end(void)
{
    for (int i = 0; i < bench.n_workers; i++)
        check(gw_worker_close(bench.workers[i].worker));
    check(gw_params_close(bench.params));
    gw_world_close(bench.world);
}

int main(int argc, char **argv)
{
    char line[256];

    read_arguments(argc, argv);
    begin(has_word(argc, argv, "small"), has_word(argc, argv, "now"));
    while (fgets(line, sizeof line, stdin) != NULL && strcmp(line, "end\n") != 0) {
        obey(line);
        fflush(stdout);
    }
    end();
    return 0;
}
