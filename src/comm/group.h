/* group.h - a communicator: some ranks of the world, in an order of their own, and
 * the engine that carries its collectives.
 *
 * A collective goes through three hands: call.h describes it and compares the
 * descriptions of all ranks, this file keeps the order, an engine moves the data:
 *
 *   window.h   ranks that share memory: through a window of it
 *   native.h   others: by what the fabric has itself, that is MPI                */
#ifndef GWI_COMM_GROUP_H
#define GWI_COMM_GROUP_H

#include "comm/call.h"
#include "comm/wait.h"

#include <godwit/comm.h>

#include <pthread.h>
#include <stdint.h>

/* How an engine does it.  Both are called by one thread at a time. */
struct gwi_engine {
    /* Give `mine` to all and wait for theirs.  For each rank r `ret_cards[r]` then points to
     * what r is about to do, valid until the next agree of this group. */
    int (*agree)(gw_comm *comm, const gwi_card *mine, const gw_call *call,
                 const gwi_card **ret_cards);
    /* Carry out what was agreed. */
    int (*run)(gw_comm *comm, const gwi_plan *plan);
    void (*close)(gw_comm *comm);
};

struct gw_comm {
    /* set when made, then constant */
    gw_world *world;
    int rank, size;
    int *ranks;       /* in the world, by rank in here */
    uint64_t context; /* no other communicator that any of these ranks is in has it */
    const struct gwi_engine *engine;
    void *engine_data; /* the engine's own */
    int is_world;
    /* under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t free_again;
    int busy;   /* a thread is between agree and run */
    int broken; /* a wait failed: nobody knows who is where */
    /* by the busy thread */
    gw_call call;
    gwi_plan plan;
    const gwi_card **cards; /* by rank */
};

/* The name of the collective under way, for messages. */
const char *gwi_comm_doing(const gw_comm *comm);

/* Free the world's communicator, if there is one. */
void gwi_comm_free_world(gw_world *world);

#endif
