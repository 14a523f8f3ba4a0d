/* processes_test.h - run a function in several processes and see how each ended.
 *
 * Inside such a process use REQUIRE() instead of cmocka's assertions: it says
 * what failed and ends the process with 1.  What must come after something in
 * another process waits for its milestone: no sleep is long enough on a busy
 * machine.                                                                    */
#ifndef GWI_FABRIC_PROCESSES_TEST_H
#define GWI_FABRIC_PROCESSES_TEST_H

#include "base/test.h"
#include "fabric/job.h"
#include "base/clock.h"
#include "base/random.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_PROCESSES 64
#define MAX_MILESTONES 8
#define SOON_NS (20 * GWI_SECOND) /* long before a time limit of 60 s, however busy the machine */

#define REQUIRE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
                    gw_last_error());                                                       \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)

/* Shared by all processes of a test. */
struct milestones {
    _Atomic int reached[MAX_MILESTONES]; /* how many processes have come to each */
};

struct processes {
    int n;
    pid_t pids[MAX_PROCESSES];
    int statuses[MAX_PROCESSES]; /* as waitpid() */
    char job[64];                /* a name of their own */
    struct milestones *milestones;
};

typedef void process_main(const struct processes *all, int rank);

static inline void start_processes(struct processes *all, int n, process_main *run)
{
    uint64_t id = 0;

    assert_int_equal(gwi_random_entropy(&id, sizeof id), 0);
    all->n = n;
    all->milestones = mmap(NULL, sizeof *all->milestones, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(all->milestones, MAP_FAILED);
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
    munmap(all->milestones, sizeof *all->milestones);
}

/* Say that this process has come to a milestone, one of 0 to MAX_MILESTONES - 1. */
static inline void reach(const struct processes *all, int milestone)
{
    atomic_fetch_add(&all->milestones->reached[milestone], 1);
}

/* Until `n` processes have. */
static inline void await(const struct processes *all, int milestone, int n)
{
    while (atomic_load(&all->milestones->reached[milestone]) < n)
        usleep(1000);
}

/* Both; who leaves a job only after that disturbs nobody who has yet to see a death in it. */
static inline void gather(const struct processes *all, int milestone, int n)
{
    reach(all, milestone);
    await(all, milestone, n);
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

/* All but `dead` must end well, and that one by being killed. */
static inline void expect_death(int n, process_main *run, int dead)
{
    struct processes all;

    start_processes(&all, n, run);
    wait_for_processes(&all);
    for (int rank = 0; rank < n; rank++)
        assert_int_equal(all.statuses[rank], rank == dead ? SIGKILL : 0);
}

static inline gwi_job job_of(const struct processes *all, int rank, int node_size)
{
    gwi_job job = {
        .rank = rank, .size = all->n, .node_size = node_size, .timeout_ns = 60 * GWI_SECOND};

    snprintf(job.name, sizeof job.name, "%s", all->job);
    return job;
}

#endif
