/* wait.h - a wait inside a call: how long, for whom, and what to say if it fails.
 *
 *     gwi_wait w = {.world = world, .call = "recv", .peer = 3, .lane = GWI_LANE_WORLD};
 *     while (!there)
 *         if ((err = gwi_wait_pause(&w)) != 0)
 *             below 0: it failed, with a sentence; 1: look at fates, take in what came
 *     gwi_wait_end(&w);
 *
 * It costs nothing until the first pause.                                     */
#ifndef GWI_COMM_WAIT_H
#define GWI_COMM_WAIT_H

#include "base/trace.h"
#include "fabric/fabric.h"

#include <godwit/world.h>

#include <pthread.h>

/* Who has not come, as ranks of the world, up to `n_max`; returns how many in all. */
typedef int gwi_missing(void *ctx, int *ret_ranks, int n_max);

typedef struct gwi_wait {
    gw_world *world;
    const char *call; /* what it is in, for messages */
    int lane;
    gwi_bell *bell; /* what is rung; NULL: the lane's */
    int polls;      /* with a bell: nobody rings it, so look again and again */
    int peer;       /* whom it waits for, if `missing` is NULL */
    gwi_missing *missing;
    void *ctx;        /* of `missing` */
    gwi_track *track; /* whose wait it is in a trace; NULL: the thread's */
    int64_t began_ns; /* for the trace; 0: with the first pause, or there is none */
    int begun;        /* private, as the rest */
    gwi_patience patience;
} gwi_wait;

/* Let time pass.  As gwi_patience_pause(), with the sentence. */
int gwi_wait_pause(gwi_wait *w);

/* The same for who holds `lock`, which is given up meanwhile. */
int gwi_wait_pause_locked(gwi_wait *w, pthread_mutex_t *lock);

void gwi_wait_end(gwi_wait *w);

/* 0, or GW_EPEER if the rank has left or died, with a sentence that names it and the
 * call that wanted it. */
int gwi_check_fate(const gw_world *world, int rank, const char *call);

/* The same of any of `n` ranks.  All that have left are named: some of them left only
 * because another one had. */
int gwi_check_fates(const gw_world *world, const int *ranks, int n, const char *call);

#endif
