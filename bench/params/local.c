/* local.c - keys that are here, with one node and with two: the library shall not be in the way.
 *
 * Worker 0 calls with keys that are at home on its node, which are the same ones with one node;
 * worker 1 is asleep outside the library.  Of half of the calls it has just begun to pull a few of
 * the other keys, and waits for these afterwards; with one node they are here, and nothing is under
 * way.  The kinds of calls take turns. */
#include "common.h"

#define BATCH 512
#define N_OTHERS 3
#define N_CALLS 1500
#define QUICK_CALLS 300

static const char *const kind_names[] = {"pull", "push", "set"};

/* Those with an even number are at home on node 0, or on the only one. */
static void choose(bench *b, int64_t *keys, size_t n, int64_t odd)
{
    for (size_t i = 0; i < n; i++)
        keys[i] = N_WORKERS * below(b, N_KEYS / N_WORKERS) + odd;
}

static double time_call(bench *b, enum kind kind)
{
    int64_t keys[BATCH];

    choose(b, keys, BATCH, 0);
    double begin = now_ns();
    call(b, kind, keys, BATCH);
    return now_ns() - begin;
}

static double time_call_meanwhile(bench *b, enum kind kind)
{
    int64_t keys[N_OTHERS];
    float values[N_OTHERS * LENGTH];
    gw_ticket ticket;

    choose(b, keys, N_OTHERS, 1);
    check(gw_worker_pull(b->worker, (gw_keys){keys, N_OTHERS}, values, N_OTHERS * LENGTH, &ticket));
    double took = time_call(b, kind);
    check(gw_worker_wait(b->worker, ticket));
    return took;
}

void measure_local(bench *b)
{
    series alone[SET + 1] = {0}, meanwhile[SET + 1] = {0};
    int n_calls = b->quick ? QUICK_CALLS : N_CALLS;

    for (int i = 0; i < n_calls && b->rank == 0; i++)
        for (enum kind kind = PULL; kind <= SET; kind++) {
            note(&alone[kind], time_call(b, kind));
            note(&meanwhile[kind], time_call_meanwhile(b, kind));
        }
    for (enum kind kind = PULL; kind <= SET; kind++) {
        say(b, &alone[kind], "%s", kind_names[kind]);
        say(b, &meanwhile[kind], "%s meanwhile", kind_names[kind]);
    }
}
