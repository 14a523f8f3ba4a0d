/* main.c - measures parameters on two nodes of one machine.
 *
 *     params machine|local|remote|localize|intent|hot|idle|zipf NODES [quick]
 *
 * starts two processes with a worker each that are NODES virtual nodes (1 or 2), opens parameters
 * of a million vectors of 64 floats, sets them all to ones, lets the store settle, and runs this
 * measurement.  Workers and agents run where the system puts them, as in a user's program.  Each of
 * its cases gives a line
 *
 *     {"case": "remote pull 1", "median": ..., "p10": ..., "p90": ..., "n": samples}
 *
 * in ns, keys per second or shares, as the case is.  Key k is at home on node k % NODES.  The exit
 * code is 0 if both processes did it all. */
#include "common.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SETTLE_MS 2000.0 /* until the store is in huge pages and the agents are at rest */
#define QUICK_SETTLE_MS 700.0

struct measurement {
    const char *name;
    void (*run)(bench *b);
};

static const struct measurement measurements[] = {
    {"machine", measure_machine},   {"local", measure_local},   {"remote", measure_remote},
    {"localize", measure_localize}, {"intent", measure_intent}, {"hot", measure_hot},
    {"idle", measure_idle},         {"zipf", measure_zipf},
};

/* Each process those that are at home on its node, or half of them if there is one node only. */
static void set_keys(bench *b)
{
    static int64_t keys[MOST_KEYS];
    int64_t n = 0;

    for (size_t i = 0; i < (size_t)MOST_KEYS * LENGTH; i++)
        b->values[i] = 1;
    check(gw_worker_begin_setup(b->worker));
    for (int64_t key = b->rank; key < N_KEYS; key += N_WORKERS) {
        keys[n++] = key;
        if (n == MOST_KEYS || key + N_WORKERS >= N_KEYS) {
            gw_keys chosen = {keys, (size_t)n};
            check(gw_worker_set(b->worker, chosen, b->values, (size_t)n * LENGTH, NULL));
            n = 0;
        }
    }
    check(gw_worker_end_setup(b->worker));
}

static void run_process(bench *b, const struct measurement *m, const char *job)
{
    b->values = get(MOST_KEYS * LENGTH * sizeof *b->values);
    b->units = get(MOST_KEYS * LENGTH * sizeof *b->units);
    for (size_t i = 0; i < MOST_KEYS; i++)
        b->units[i * LENGTH + i % LENGTH] = 1;
    open_params(b, job);
    set_keys(b);
    sleep_ms(b->quick ? QUICK_SETTLE_MS : SETTLE_MS);
    meet(b);
    m->run(b);
    meet(b);
    check(gw_worker_close(b->worker));
    check(gw_params_close(b->params));
    gw_world_close(b->world);
}

static const struct measurement *find_measurement(const char *name)
{
    for (size_t i = 0; i < sizeof measurements / sizeof *measurements; i++)
        if (strcmp(name, measurements[i].name) == 0)
            return &measurements[i];
    return NULL;
}

int main(int argc, char **argv)
{
    const struct measurement *m = argc >= 3 ? find_measurement(argv[1]) : NULL;
    bench b = {.n_nodes = m != NULL ? atoi(argv[2]) : 0};
    pid_t children[N_WORKERS];
    char job[64];

    if (m == NULL || b.n_nodes < 1 || b.n_nodes > N_WORKERS ||
        (b.n_nodes == 1 && m->run != measure_zipf && m->run != measure_local)) {
        fprintf(stderr, "usage: params machine|remote|localize|intent|hot|idle 2 [quick]\n"
                        "       params local|zipf 1|2 [quick]\n");
        return 2;
    }
    b.quick = argc > 3 && strcmp(argv[3], "quick") == 0;
    b.common = map_common();
    snprintf(job, sizeof job, "bench-params-%d-%.0f", (int)getpid(), now_ns());
    for (b.rank = 0; b.rank < N_WORKERS; b.rank++) {
        b.random = (uint64_t)b.rank + 1;
        children[b.rank] = fork();
        if (children[b.rank] < 0)
            fail("cannot fork"); /* who was started already ends with us */
        if (children[b.rank] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_process(&b, m, job);
            return 0;
        }
    }
    return wait_for(children);
}
