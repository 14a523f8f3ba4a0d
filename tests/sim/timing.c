/* timing.c - when to act on an intent: ours, AdaPM's way, and the two extremes.
 *
 *     timing [--quick]
 *
 * Workers announce batches 40 clocks ahead, of keys that lie on other nodes, which are copied for
 * them.  Acting too late, the copy is not there when it is used, and the worker waits; acting too
 * early, it lies there and is refreshed for nothing.  The exit code is 1 if with our way more
 * than 1 % of the accesses of any line have to wait, or if copies lie idle for longer than with
 * AdaPM's, in the geometric mean of all lines.
 *
 * AdaPM (Renz-Wieland et al., "Good Intentions: Adaptive Parameter Management via Intent
 * Signaling") estimates how many clocks a worker goes in a round, smoothed with factor 0.1 over
 * rounds in which it went any, at least as many as in the last round, and acts on what starts
 * within the 0.9999 quantile of Poisson's distribution for two rounds.                   */
#include "workload.h"
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 8, LEAD = 40 };
#define MOST_WAIT 0.01

/* ways */

static struct {
    double estimate;
    int64_t clock;
} adapm[NODES];

static int64_t poisson_quantile(double mean, double p)
{
    double term = exp(-mean), sum = term;
    int64_t k = 0;

    while (sum < p && k < 10000)
        sum += term *= mean / (double)++k;
    return k;
}

static int64_t adapm_ahead(void *ctx, int worker, int64_t clock)
{
    int rank = rank_of(ctx);
    double ticks = (double)(clock - adapm[rank].clock), estimate = adapm[rank].estimate;

    (void)worker;
    if (ticks > 0) {
        estimate += 0.1 * (ticks - estimate);
        adapm[rank].estimate = estimate;
        estimate = ticks > estimate ? ticks : estimate;
    }
    adapm[rank].clock = clock;
    return poisson_quantile(2 * estimate, 0.9999);
}

static int64_t at_once(void *ctx, int worker, int64_t clock)
{
    (void)ctx, (void)worker, (void)clock;
    return LEAD + 1;
}

static int64_t when_due(void *ctx, int worker, int64_t clock)
{
    (void)ctx, (void)worker, (void)clock;
    return 1;
}

enum { OURS, ADAPM, N_WAYS = 4 };
static const struct {
    const char *name;
    gwi_node_ahead *ahead;
} ways[N_WAYS] = {
    {"ours", NULL}, {"AdaPM's", adapm_ahead}, {"at once", at_once}, {"when due", when_due}};

/* How many accesses had to wait, and how long copies lay here before they were used. */
struct cost {
    double waits, idle;
};

static int measure(enum pace pace, int64_t clock_ns, int clocks, int way, struct cost *ret_cost)
{
    struct findings f;
    struct study s = {.workload = OWN,
                      .pace = pace,
                      .technique = GWI_TECHNIQUE_REPLICATION,
                      .seed = 1,
                      .nodes = NODES,
                      .workers = 1,
                      .n_keys = 65536,
                      .length = 16,
                      .hot_keys = 8192,
                      .batch = 16,
                      .lead = LEAD,
                      .clock_ns = clock_ns,
                      .warm_up = 50,
                      .clocks = clocks,
                      .ahead = ways[way].ahead};

    for (int n = 0; n < NODES; n++)
        adapm[n].estimate = 10, adapm[n].clock = 0;
    int err = run_study(&s, &f);
    /* A copy is in use for one clock. */
    *ret_cost = (struct cost){1 - (double)f.stats.local / (double)f.stats.accesses,
                              f.key_clocks / (double)f.stats.grants - 1};
    if (err < 0)
        fprintf(stderr, "%s\n", gw_last_error());
    return err;
}

int main(int argc, char **argv)
{
    static const int64_t periods_ns[] = {50 * GWI_US, GWI_MS, 10 * GWI_MS};
    int quick = argc > 1 && strcmp(argv[1], "--quick") == 0, missed = 0, n = 0;
    double logs = 0;

    printf("%-9s %8s |", "pace", "clock");
    for (int way = 0; way < N_WAYS; way++)
        printf(" %17s |", ways[way].name);
    printf("\n%-9s %8s |", "", "");
    for (int way = 0; way < N_WAYS; way++)
        printf(" %7s %9s |", "waits", "idle");
    printf("\n");
    for (int pace = 0; pace < N_PACES; pace++)
        for (size_t p = 0; p < sizeof periods_ns / sizeof *periods_ns; p++) {
            struct cost costs[N_WAYS];
            printf("%-9s %5.2f ms |", pace_name((enum pace)pace), (double)periods_ns[p] / 1e6);
            for (int way = 0; way < N_WAYS; way++) {
                if (measure((enum pace)pace, periods_ns[p], quick ? 60 : 1000, way, &costs[way]) <
                    0)
                    return 1;
                printf(" %6.2f%% %9.2f |", 100 * costs[way].waits, costs[way].idle);
                fflush(stdout);
            }
            printf("%s\n", costs[OURS].waits > MOST_WAIT ? " MISSED" : "");
            missed |= costs[OURS].waits > MOST_WAIT;
            logs += log(costs[OURS].idle / costs[ADAPM].idle);
            n++;
        }
    printf("waits: accesses whose key was not here.  idle: clocks that a copy lay here unused.\n");
    printf("idle with ours over idle with AdaPM's, geometric mean: %.2f\n", exp(logs / n));
    return missed || logs > 0;
}
