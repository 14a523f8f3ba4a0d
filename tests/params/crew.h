/* crew.h - the workers of a test: threads in processes that it starts, or that were started for it.
 *
 *     program -n 2 -t 4 [--node-size 1]             2 processes of 4 threads, on 2 nodes
 *     mpirun -n 2 program -t 4 [--node-size 1]      the same in a job that is there already
 *
 * A test says in a `struct crew` what is to be done, and gives its main() to crew_main().  All
 * processes are on one machine: what they write down for each other is in a book, memory that
 * neither the library nor an MPI has to do with.  A worker that finds a fault prints it and
 * ends its process with 1; then the test has failed.                                    */
#ifndef TESTS_PARAMS_CREW_H
#define TESTS_PARAMS_CREW_H

#include "base/random.h"

#include <godwit/params.h>

#define MAX_WORKERS 32 /* in all */

/* One worker, in a thread of its own. */
struct hand {
    gw_params *params;
    gw_worker *worker;
    int number; /* of crew->n_workers */
    gwi_random random;
};

/* An argument that only this test has: --name, or if `most` is above 0, --name 0...most */
struct choice {
    const char *name;
    int most;
    int *ret_value;
};

struct crew {
    /* set by the test */
    const struct choice *choices; /* the last one has no name */
    size_t book_bytes;
    void (*prepare)(gw_params_options *ret_options); /* in each process, before there are workers */
    void (*work)(struct hand *hand);
    int (*report)(void); /* by rank 0 in the end: print a line; was anything done? */

    /* set from the arguments */
    int n; /* processes; 0: somebody has started us */
    int threads, seconds, seed;
    int node_size; /* processes; 0: not given, all */

    /* set before prepare() is called, then constant */
    int n_workers, n_nodes;
    void *book; /* zero at first; fields are written as the test says */
};

/* Returns the exit code. */
int crew_main(struct crew *crew, int argc, char **argv);

#endif
