/* params.h - what the parts of params share of an open gw_params.
 *
 * The processes of a node share one segment:
 *
 *     hall | seats, one a worker, then one a process (clerk.h) | store (store.h)
 *
 * and with several nodes
 *
 *     hall | seats | agents' hands | slots, one a channel | trays, one a seat |
 *     vectors (local.h)
 *
 * If a process dies here: the others' waits end with its name; the segment is freed when
 * the last process of the job has ended.                                             */
#ifndef GWI_PARAMS_PARAMS_H
#define GWI_PARAMS_PARAMS_H

#include "base/pages.h"
#include "base/trace.h"
#include "base/wait.h"
#include "comm/world.h"
#include "params/node.h"
#include "params/store.h"
#include "params/tray.h"

#include <godwit/params.h>

#include <pthread.h>

typedef struct gwi_agent gwi_agent;
typedef struct gwi_sampling gwi_sampling;
typedef struct gwi_sampler gwi_sampler;

/* In shared memory. */
typedef struct gwi_hall {
    /* rung by who arrives last at a barrier, and by agents */
    _Alignas(GWI_LINE) gwi_bell bell;
    /* several nodes: the last barrier to which all have come; written by the agent of channel 0 */
    _Atomic uint64_t released;
    /* the error that ended an agent; written by the first of the node's agents that fails, here or
     * because another node has, which sets `failing` and writes the sentence before.  If it dies in
     * between nobody reads them, and all hear of the death */
    _Atomic int32_t agent_err, failing;
    /* how often keys or copies have come here; counted by agents, before the key can be seen */
    _Alignas(GWI_LINE) _Atomic uint64_t arrivals;
    _Alignas(GWI_LINE) char sentence[GWI_SENTENCE_BYTES]; /* who failed first, and why */
} gwi_hall;

#define GWI_SEAT_GONE UINT64_MAX

/* In shared memory, zero at the start.  Written by its worker, read by anyone. */
typedef struct gwi_seat {
    gwi_hand hand;
    _Alignas(GWI_LINE) _Atomic uint64_t barriers; /* arrived at; GWI_SEAT_GONE: closed */
    _Atomic int64_t clock;
    /* several nodes: the processor of its last pull, push or set, plus 1; 0: none yet */
    _Atomic int32_t cpu_1;
} gwi_seat;

_Static_assert(sizeof(gwi_hall) == 10 * GWI_LINE && sizeof(gwi_seat) == 3 * GWI_LINE,
               "halls and seats are shared between processes");

/* Counters of a worker, which only it writes. */
enum {
    GWI_PULLED,
    GWI_PUSHED,
    GWI_SET,
    GWI_CALLS,
    GWI_REMOTE,
    GWI_RETRIES,
    GWI_WAITS,
    GWI_N_COUNTED
};

struct gw_params {
    /* set at open, then constant */
    gw_world *world;     /* borrowed */
    uint32_t generation; /* of forks */
    gwi_geometry geometry;
    gwi_spread spread;
    gwi_segment segment;
    gwi_hall *hall;
    gwi_seat *seats;       /* [local rank * workers + number] */
    gwi_hand *agent_hands; /* by channel */
    int n_seats;           /* of workers; those of clerks follow */
    int workers_each;      /* per process */
    int *ranks;            /* in the world, by local rank; owned */
    gwi_store store;
    gwi_pages pages;
    /* several nodes only: the same and more, and the agents' slots and the workers' trays */
    gwi_local local;  /* `store` is a copy of its store */
    int lane;         /* of the fabric, which no other parameters use meanwhile */
    uint64_t opening; /* by all processes of the world; the number of it */
    int n_channels;
    gwi_slot *slots;      /* by channel */
    unsigned char *trays; /* by seat */
    size_t tray_bytes;
    gwi_agent *agent;          /* owned; NULL: this process has none */
    struct gwi_inside *inside; /* owned: what is shown of it; NULL: not yet */
    /* set once, by who enables sampling, when it is complete; NULL: not yet (sampling.h) */
    _Atomic(gwi_sampling *) sampling; /* owned */
    /* under `lock` */
    pthread_mutex_t lock;
    gw_worker **workers;             /* by number; NULL: not yet, or closed again */
    int n_given;                     /* how many numbers are given away */
    uint64_t counted[GWI_N_COUNTED]; /* by workers that are closed; see worker.c */
    gw_worker *clerk;                /* see clerk.h; owned; NULL: not needed yet */
    int clerk_is_busy;
};

struct gw_worker {
    /* set when made, then constant */
    gw_params *params; /* borrowed */
    gwi_seat *seat;
    int number; /* in this process */
    /* by its thread, read by anyone */
    _Atomic uint64_t counted[GWI_REMOTE + 1];
    gwi_walker walker;
    /* by its thread */
    int in_barrier; /* it has arrived, and the wait failed */
    /* several nodes only, by its thread; see remote.h and errands.h */
    gwi_local local; /* with its own hand */
    gwi_tray tray;
    struct gwi_errands *errands;
    /* by its thread; NULL: it has prepared no sample yet; see sample.h */
    gwi_sampler *sampler;
    gwi_track *track; /* for a trace; NULL: there is none */
};

static inline size_t gwi_worker_row_bytes(const gw_worker *worker, int64_t key)
{
    return gwi_geometry_class(&worker->params->geometry, key)->row_bytes;
}

/* The sum of a counter over this worker so far. */
uint64_t gwi_worker_counted(const gw_worker *worker, int what);

/* 0, or GW_ESTATE in a forked child. */
int gwi_params_check_process(const gw_params *params);

/* The same, and all processes' communicator: how a collective call begins. */
int gwi_params_comm(const gw_params *params, gw_comm **ret_comm);

/* 0, or GW_ERANGE with a sentence about the first bad key. */
int gwi_params_check_keys(const gw_params *params, gw_keys keys);

#endif
