/* common.c - what the measurements of parameters on two nodes have in common. */
#include "common.h"
#include "draw.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define SLICE_NS 1e8
#define ARRIVAL_NS 10e9 /* after which what should have become local has not */

void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

void check(int err)
{
    if (err < 0)
        fail("%s: %s", gw_strerror(err), gw_last_error());
}

void *get(size_t n_bytes)
{
    void *found = calloc(1, n_bytes);

    if (found == NULL)
        fail("no memory for %zu bytes", n_bytes);
    return found;
}

double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

void sleep_ms(double ms)
{
    time_t seconds = (time_t)(ms / 1e3);

    nanosleep(&(struct timespec){seconds, (long)((ms - 1e3 * (double)seconds) * 1e6)}, NULL);
}

int64_t below(bench *b, int64_t limit)
{
    return (int64_t)(draw_random(&b->random) % (uint64_t)limit);
}

common *map_common(void)
{
    common *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;

    if (c == MAP_FAILED)
        fail("no shared memory");
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&c->meeting, &shared, N_WORKERS);
    return c;
}

void open_params(bench *b, const char *job)
{
    gw_world_options world = GW_WORLD_OPTIONS_INIT;
    gw_params_options opt = GW_PARAMS_OPTIONS_INIT;
    int64_t length = LENGTH;

    world.rank = b->rank;
    world.size = N_WORKERS;
    world.node_size = N_WORKERS / b->n_nodes;
    world.job = job;
    world.timeout_s = 60;
    opt.num_keys = N_KEYS;
    opt.lengths = &length;
    opt.n_lengths = 1;
    check(gw_world_join(&world, &b->world));
    check(gw_params_open(b->world, &opt, &b->params));
    check(gw_params_worker(b->params, &b->worker));
}

int wait_for(const pid_t *children)
{
    int failed = 0, status;

    for (int i = 0; i < N_WORKERS; i++) {
        pid_t child = wait(&status);
        if (child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
            continue;
        failed = 1;
        for (int rank = 0; rank < N_WORKERS; rank++)
            if (children[rank] != child)
                kill(children[rank], SIGKILL);
    }
    return failed;
}

void meet(bench *b)
{
    pthread_barrier_wait(&b->common->meeting);
}

/* figures */

void note(series *s, double value)
{
    if (s->values == NULL)
        s->values = get(MOST_SAMPLES * sizeof *s->values);
    if (s->n < MOST_SAMPLES)
        s->values[s->n++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void print_spread(const common *c, const char *name)
{
    static double all[N_WORKERS * MOST_SAMPLES];
    size_t n = 0;

    for (int rank = 0; rank < N_WORKERS; rank++) {
        memcpy(all + n, c->samples[rank], c->n_samples[rank] * sizeof *all);
        n += c->n_samples[rank];
    }
    if (n == 0)
        fail("nothing was noted of '%s'", name);
    qsort(all, n, sizeof *all, compare);
    printf("{\"case\": \"%s\", \"median\": %.9g, \"p10\": %.9g, \"p90\": %.9g, \"n\": %zu}\n", name,
           n % 2 ? all[n / 2] : (all[n / 2 - 1] + all[n / 2]) / 2, all[n / 10], all[n - 1 - n / 10],
           n);
    fflush(stdout);
}

void say(bench *b, series *s, const char *format, ...)
{
    char name[100];
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    b->common->n_samples[b->rank] = s->n;
    if (s->n > 0)
        memcpy(b->common->samples[b->rank], s->values, s->n * sizeof *s->values);
    meet(b);
    if (b->rank == 0)
        print_spread(b->common, name);
    meet(b);
    free(s->values);
    *s = (series){0};
}

double sum_of_both(bench *b, double value)
{
    double sum = 0;

    b->common->samples[b->rank][0] = value;
    meet(b);
    for (int rank = 0; rank < N_WORKERS; rank++)
        sum += b->common->samples[rank][0];
    meet(b);
    return sum;
}

/* calls */

void call(bench *b, enum kind kind, const int64_t *keys, size_t n)
{
    gw_keys asked = {keys, n};

    check(kind == PULL   ? gw_worker_pull(b->worker, asked, b->values, n * LENGTH, NULL)
          : kind == PUSH ? gw_worker_push(b->worker, asked, b->units, n * LENGTH, NULL)
                         : gw_worker_set(b->worker, asked, b->units, n * LENGTH, NULL));
}

void read_statistics(bench *b, int64_t *ret_values)
{
    check(gw_params_stats_own(b->params, ret_values, MOST_STATISTICS));
}

double statistic_of(const int64_t *values, const char *name)
{
    const char *known;

    for (int i = 0; i < MOST_STATISTICS && (known = gw_params_stat_name(i)) != NULL; i++)
        if (strcmp(known, name) == 0)
            return (double)values[i];
    fail("there is no statistic '%s'", name);
}

double statistic(bench *b, const char *name)
{
    int64_t values[MOST_STATISTICS];

    read_statistics(b, values);
    return statistic_of(values, name);
}

size_t count_local(bench *b, const int64_t *keys, size_t n)
{
    static uint8_t local[MOST_KEYS];
    size_t n_local = 0;

    for (size_t at = 0; at < n; at += MOST_KEYS) {
        size_t part = n - at < MOST_KEYS ? n - at : MOST_KEYS;
        check(gw_worker_is_local(b->worker, (gw_keys){keys + at, part}, local));
        for (size_t i = 0; i < part; i++)
            n_local += local[i];
    }
    return n_local;
}

static void announce_home(bench *b, const int64_t *keys, size_t n, int home)
{
    int64_t *chosen = get(n * sizeof *chosen);
    int64_t clock = gw_worker_clock(b->worker);
    size_t n_chosen = 0;

    for (size_t i = 0; i < n; i++)
        if (keys[i] % N_WORKERS == home)
            chosen[n_chosen++] = keys[i];
    check(gw_worker_intent(b->worker, (gw_keys){chosen, n_chosen}, clock, FOREVER));
    check(gw_worker_wait_sync(b->worker));
    free(chosen);
}

void replicate(bench *b, const int64_t *keys, size_t n)
{
    announce_home(b, keys, n, b->rank);
    meet(b);
    announce_home(b, keys, n, 1 - b->rank);
    for (double begin = now_ns(); count_local(b, keys, n) < n; sleep_ms(1))
        if (now_ns() - begin > ARRIVAL_NS)
            fail("rank %d: of %zu keys that both announced only %zu are local after 10 s", b->rank,
                 n, count_local(b, keys, n));
    meet(b);
}

double count_lost(bench *b, const int64_t *keys, size_t n, double n_pushed)
{
    double sum = 0, expected = LENGTH * (double)n + sum_of_both(b, n_pushed);

    check(gw_worker_wait_sync(b->worker)); /* ours are with the owners, */
    check(gw_worker_barrier(b->worker));   /* the other's too, */
    check(gw_worker_wait_sync(b->worker)); /* and replicas here have them. */
    for (size_t at = 0; at < n; at += MOST_KEYS) {
        size_t part = n - at < MOST_KEYS ? n - at : MOST_KEYS;
        call(b, PULL, keys + at, part);
        for (size_t i = 0; i < part * LENGTH; i++)
            sum += b->values[i];
    }
    meet(b);
    return expected - sum;
}

/* loops */

void pace_begin(pace *p, series *rates)
{
    *p = (pace){.rates = rates, .begin = now_ns()};
}

void pace_count(pace *p, size_t n_keys)
{
    double took = now_ns() - p->begin - p->skipped;

    p->n_keys += (double)n_keys;
    if (took < SLICE_NS)
        return;
    note(p->rates, p->n_keys / took * 1e9);
    pace_begin(p, p->rates);
}

void pace_skip(pace *p, double since_ns)
{
    p->skipped += now_ns() - since_ns;
}
