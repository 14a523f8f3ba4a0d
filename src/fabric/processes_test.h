/* processes_test.h - run a function in several processes and see how each ended.
 *
 * Inside such a process use REQUIRE() instead of cmocka's assertions: it says
 * what failed and ends the process with 1.                                   */
#ifndef GWI_FABRIC_PROCESSES_TEST_H
#define GWI_FABRIC_PROCESSES_TEST_H

#include "base/test.h"
#include "fabric/job.h"
#include "base/clock.h"
#include "base/random.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_PROCESSES 64

#define REQUIRE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
                    gw_last_error());                                                       \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)

struct processes {
    int n;
    pid_t pids[MAX_PROCESSES];
    int statuses[MAX_PROCESSES]; /* as waitpid() */
    char job[64];                /* a name of their own */
};

typedef void process_main(const struct processes *all, int rank);

static inline void start_processes(struct processes *all, int n, process_main *run)
{
    uint64_t id = 0;

    assert_int_equal(gwi_random_entropy(&id, sizeof id), 0);
    all->n = n;
    snprintf(all->job, sizeof all->job, "test-%016llx", (unsigned long long)id);
    fflush(NULL);
    for (int rank = 0; rank < n; rank++) {
        all->pids[rank] = fork();
        if (all->pids[rank] == 0) {
            alarm(120); /* a test that hangs fails */
            run(all, rank);
            _exit(0);
        }
    }
}

static inline void wait_for_processes(struct processes *all)
{
    for (int rank = 0; rank < all->n; rank++)
        waitpid(all->pids[rank], &all->statuses[rank], 0);
}

/* All of them must end well. */
static inline void run_processes(int n, process_main *run)
{
    struct processes all;

    start_processes(&all, n, run);
    wait_for_processes(&all);
    for (int rank = 0; rank < n; rank++)
        assert_int_equal(all.statuses[rank], 0);
}

static inline gwi_job job_of(const struct processes *all, int rank, int node_size)
{
    gwi_job job = {
        .rank = rank, .size = all->n, .node_size = node_size, .timeout_ns = 60 * GWI_SECOND};

    snprintf(job.name, sizeof job.name, "%s", all->job);
    return job;
}

#endif
