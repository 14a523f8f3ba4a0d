/* world.h - what the parts of comm share of a world. */
#ifndef GWI_COMM_WORLD_H
#define GWI_COMM_WORLD_H

#include "fabric/fabric.h"
#include "fabric/job.h"

#include <godwit/comm.h>
#include <godwit/world.h>

#include <pthread.h>
#include <stdatomic.h>

struct gwi_mail;

struct gw_world {
    /* set at joining, then constant */
    gwi_fabric *fabric;
    gwi_job job;
    uint32_t generation; /* of forks */
    /* under `lock` */
    pthread_mutex_t lock;
    struct peer *peers;
    int in_barrier; /* a thread is */
    int arrived;    /* at a barrier that was not complete when the wait for it failed */
    /* messages with tags; locks by itself */
    struct gwi_mail *mail;
    /* under `comm_lock`: made at the first use */
    pthread_mutex_t comm_lock;
    gw_comm *comm;
    /* any thread; when the ranks were last looked after, as gwi_coarse_ns() */
    _Atomic int64_t checked_ns;
    /* any thread; of parameters: how often some were opened, and a bit for each lane in use */
    _Atomic int64_t params_openings;
    _Atomic int64_t params_lanes;
    /* the thread that entered a call last, for the witness */
    _Atomic unsigned long caller;
    gwi_witness witness;
    int has_witness;
    int traces; /* set at joining */
};

/* A call begins: this is the process that joined, nobody has died, and the ledger
 * knows of it.  A peer of -1 is all.  If it returns 0, gwi_world_end() must follow;
 * that gives back `err`. */
int gwi_world_begin(gw_world *world, gwi_op op, int peer);
int gwi_world_end(gw_world *world, int err);

/* See that this process has a witness; of the program's lines it knows nothing if nobody tells.
 * For who is about to give it figures; one thread at a time. */
int gwi_world_need_witness(gw_world *world);

#endif
