/* replicas.c - keys that both nodes announced and therefore both have: used all the time, and idle.
 *
 * Staleness is the time from a push on one node, by worker 0, until worker 1 on the other node has
 * seen it.  Worker 0 writes the time of its push into memory that both share.  */
#include "common.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 512
#define N_HOT 10000
#define STRIDE (N_KEYS / N_HOT - 1) /* odd: neighbours are at home on different nodes */
#define N_IDLE 200000
#define N_SMALL 100
#define READ_EVERY_NS 10e6 /* statistics */
#define SEEN_NS 10e9       /* after which what was pushed was not seen */

/* agents */

/* A thread of this process by its name, or fail. */
static pid_t find_thread(const char *wanted)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    pid_t found = 0;

    while (tasks != NULL && found == 0 && (task = readdir(tasks)) != NULL) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL && fgets(name, sizeof name, file) != NULL)
            name[strcspn(name, "\n")] = '\0';
        if (file != NULL)
            fclose(file);
        if (strcmp(name, wanted) == 0)
            found = (pid_t)atoi(task->d_name);
    }
    if (tasks != NULL)
        closedir(tasks);
    if (found == 0)
        fail("no thread %s", wanted);
    return found;
}

/* Processor time of a thread of this process, in ns. */
static double thread_ns(pid_t thread)
{
    clockid_t clock = (clockid_t)(~(unsigned)thread << 3 | 6); /* as Linux numbers them */
    struct timespec t;

    if (clock_gettime(clock, &t) < 0)
        fail("no clock of thread %d", (int)thread);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* seeing the other's pushes */

static void wait_a_while(double *ret_next, bench *b)
{
    *ret_next = now_ns() + (double)(1000000 + below(b, 9000000));
}

/* Worker 0: push to these keys, unless the push before was not seen yet. */
static int push_probe(bench *b, const int64_t *keys, size_t n)
{
    common *c = b->common;
    int64_t n_pushed = atomic_load_explicit(&c->n_pushed, memory_order_relaxed);

    if (atomic_load_explicit(&c->n_seen, memory_order_acquire) < n_pushed)
        return 0;
    atomic_store_explicit(&c->pushed_ns, (int64_t)now_ns(), memory_order_relaxed);
    call(b, PUSH, keys, n);
    atomic_store_explicit(&c->n_pushed, n_pushed + 1,
                          memory_order_release); /* pairs with see_probe */
    return 1;
}

/* Worker 1: whether there is a push that it has not seen. */
static int has_probe(bench *b)
{
    return atomic_load_explicit(&b->common->n_pushed, memory_order_acquire) >
           atomic_load_explicit(&b->common->n_seen, memory_order_relaxed);
}

/* Worker 1: look at these keys once; note how old the push is if all have `expected` now. */
static void see_probe(bench *b, const int64_t *keys, size_t n, float expected, series *found)
{
    common *c = b->common;
    double age;

    call(b, PULL, keys, n);
    age = now_ns() - (double)atomic_load_explicit(&c->pushed_ns, memory_order_relaxed);
    for (size_t i = 0; i < n; i++) {
        float value = b->values[i * LENGTH + i % LENGTH]; /* the entry that is pushed to */
        if (value < expected) {
            if (age > SEEN_NS)
                fail("key %lld has %g, not %g, 10 s after it was pushed on the other node",
                     (long long)keys[i], (double)value, (double)expected);
            return;
        }
    }
    note(found, age);
    atomic_fetch_add_explicit(&c->n_seen, 1, memory_order_release); /* pairs with push_probe */
}

/* hot keys */

/* On own keys, on hot ones, and the same while statistics are read 100 times a second. */
enum loop { OWN, HOT, WATCHED, N_LOOPS };

struct hot {
    int64_t keys[N_HOT]; /* announced by both */
    int64_t own[N_HOT];  /* at home here and wanted by nobody else */
    int64_t probes[2];   /* announced by both, at home on node 0 and on node 1 */
    double n_pushed, next_ns;
    double agent_ns, n_told; /* in turns of the hot ones: time of the agent, changes it told */
    series rates[N_LOOPS];
    series ages[2]; /* by probe */
    double next_read_ns;
    series reads,
        stale; /* time of reading all statistics, in ns; what they say of staleness, in us */
};

static void choose_keys(bench *b, struct hot *h)
{
    for (int64_t i = 0; i < N_HOT; i++) {
        h->keys[i] = i * STRIDE;
        h->own[i] = i * STRIDE + 40;
        h->own[i] += h->own[i] % N_WORKERS != b->rank;
    }
    h->probes[0] = 80;
    h->probes[1] = 81;
}

/* What is to be done about staleness between two batches. */
static void tend_probes(bench *b, struct hot *h)
{
    int64_t n = b->rank == 0 ? atomic_load(&b->common->n_pushed) : atomic_load(&b->common->n_seen);
    int64_t *probe = &h->probes[n % 2];

    if (b->rank == 0) {
        if (now_ns() > h->next_ns && push_probe(b, probe, 1))
            wait_a_while(&h->next_ns, b);
    } else if (has_probe(b)) {
        see_probe(b, probe, 1, (float)(2 + n / 2), &h->ages[n % 2]);
    }
}

static void watch(bench *b, struct hot *h)
{
    double begin = now_ns();
    int64_t values[MOST_STATISTICS];

    if (begin < h->next_read_ns)
        return;
    read_statistics(b, values);
    note(&h->reads, now_ns() - begin);
    note(&h->stale, statistic_of(values, "staleness_us"));
    h->next_read_ns = begin + READ_EVERY_NS;
}

/* Pull and push batches of random ones of these keys for a while. */
static void run_batches(bench *b, struct hot *h, enum loop loop, double seconds)
{
    const int64_t *from = loop == OWN ? h->own : h->keys;
    int64_t keys[BATCH];
    double end = now_ns() + seconds * 1e9;
    pace p;

    for (pace_begin(&p, &h->rates[loop]); now_ns() < end;) {
        for (size_t i = 0; i < BATCH; i++)
            keys[i] = from[below(b, N_HOT)];
        call(b, PULL, keys, BATCH);
        call(b, PUSH, keys, BATCH);
        pace_count(&p, BATCH);
        h->n_pushed += loop == OWN ? 0 : BATCH;
        if (loop == WATCHED)
            watch(b, h);
        if (loop != HOT)
            continue;
        double begin = now_ns();
        tend_probes(b, h);
        pace_skip(&p, begin);
    }
    meet(b);
    while (b->rank == 1 && has_probe(b)) /* the last push of this turn, if it is on its way */
        tend_probes(b, h);
    meet(b);
}

/* What both agents need of a processor for a change of a replica: telling it and answering. */
static void note_change(bench *b, struct hot *h, series *changes)
{
    double agents_ns = sum_of_both(b, h->agent_ns), n_told = sum_of_both(b, h->n_told);

    if (b->rank == 0 && n_told > 0)
        note(changes, agents_ns / n_told);
}

static void say_hot(bench *b, struct hot *h)
{
    series lost = {0}, changes = {0};

    note(&lost, count_lost(b, h->keys, N_HOT, h->n_pushed));
    note_change(b, h, &changes);
    say(b, &h->rates[OWN], "hot own");
    say(b, &h->rates[HOT], "hot");
    say(b, &h->rates[WATCHED], "hot watched");
    say(b, &h->reads, "hot read");
    say(b, &h->stale, "hot staleness");
    say(b, &h->ages[0], "hot age at replica");
    say(b, &h->ages[1], "hot age at owner");
    say(b, &lost, "hot lost");
    say(b, &changes, "hot change");
}

void measure_hot(bench *b)
{
    struct hot *h = get(sizeof *h);
    int n_turns = b->quick ? 2 : 4;
    double seconds = b->quick ? 1 : 2.5;

    choose_keys(b, h);
    replicate(b, h->keys, N_HOT);
    replicate(b, h->probes, 2);
    pid_t agent = find_thread("gw-agent");
    for (int turn = 0; turn < n_turns; turn++) {
        run_batches(b, h, OWN, seconds);
        double used_ns = thread_ns(agent), n_told = statistic(b, "tells");
        run_batches(b, h, HOT, seconds);
        h->agent_ns += thread_ns(agent) - used_ns;
        h->n_told += statistic(b, "tells") - n_told;
        run_batches(b, h, WATCHED, seconds);
    }
    say_hot(b, h);
    free(h);
}

/* idle replicas */

/* How much of a core both agents need together while the workers sleep, each second. */
static void measure_idle_agents(bench *b, int n_seconds, const char *name)
{
    pid_t agent = find_thread("gw-agent");
    series shares = {0};

    sleep_ms(1000);
    for (int i = 0; i < n_seconds; i++) {
        meet(b);
        double begin = now_ns(), used = thread_ns(agent);
        sleep_ms(1000);
        double share = (thread_ns(agent) - used) / (now_ns() - begin);
        share = sum_of_both(b, share);
        if (b->rank == 0)
            note(&shares, share);
    }
    say(b, &shares, "%s", name);
}

/* Staleness of some keys of which half are owned by each node. */
static void measure_age(bench *b, const int64_t *keys, int n_pushes, int64_t *pushed,
                        const char *name)
{
    series ages = {0};

    for (int i = 0; i < n_pushes; i++) {
        ++*pushed;
        if (b->rank == 0) {
            sleep_ms(1 + (double)below(b, 9000) / 1e3);
            push_probe(b, keys, N_SMALL);
        } else {
            while (!has_probe(b))
                sleep_ms(0.05);
            while (has_probe(b))
                see_probe(b, keys, N_SMALL, (float)(1 + *pushed), &ages);
        }
        meet(b);
    }
    say(b, &ages, "%s", name);
}

void measure_idle(bench *b)
{
    int64_t *keys = get(N_IDLE * sizeof *keys), small[N_SMALL], pushed = 0;
    int n_pushes = b->quick ? 30 : 150;

    for (int64_t i = 0; i < N_IDLE; i++)
        keys[i] = N_KEYS / N_IDLE * i;
    for (int i = 0; i < N_SMALL; i++)
        small[i] = keys[(N_IDLE / N_SMALL - 1) * i];
    measure_idle_agents(b, b->quick ? 1 : 3, "idle agents without replicas");
    replicate(b, small, N_SMALL);
    measure_age(b, small, n_pushes, &pushed, "idle age of few");
    replicate(b, keys, N_IDLE);
    measure_idle_agents(b, b->quick ? 2 : 5, "idle agents");
    measure_age(b, small, n_pushes, &pushed, "idle age");
    free(keys);
}
