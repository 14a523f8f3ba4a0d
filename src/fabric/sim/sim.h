/* sim.h - a whole job in one thread: virtual time, and a seed that decides it all.
 *
 * Every rank is a state machine with a step function that uses its gwi_fabric
 * and never blocks.  The simulation decides from its seed which rank runs next,
 * how long each piece of a message travels (mostly short, at times very long),
 * how messages are cut into pieces, and how many bytes may be under way on each
 * pair and lane before send() says that there is no room.  A run is the same on
 * every machine, so an error is a seed that anybody can replay.
 *
 * What a fabric promises holds: order per pair and lane, nothing lost, nothing
 * twice; a rank is known to have left only when all that it sent can be polled.
 * Everything that is not promised happens to somebody sooner or later.
 *
 * Owning   A gwi_sim owns its fabrics and all memory of their segments.
 * Threads  One.  There is no wall clock and nothing to sleep on: do not pause. */
#ifndef GWI_FABRIC_SIM_SIM_H
#define GWI_FABRIC_SIM_SIM_H

#include "fabric/fabric.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define GWI_SIM_MAX 1024 /* ranks */

typedef struct gwi_sim gwi_sim;

/* One step of a rank: 1 it is done, 0 call it again, below 0 it failed. */
typedef int gwi_step(void *state, gwi_fabric *f, int64_t now_ns);

/* What is 0 gets a default. */
typedef struct gwi_sim_options {
    uint64_t seed;
    int size;
    int node_size; /* 0: one node */
    int64_t delay_min_ns,
        delay_max_ns;  /* of most pieces: 1 to 50 us; one in 64 takes up to 100 times longer */
    size_t room_bytes; /* under way on a pair and lane; 0: each its own, from 512 bytes to 256 KB */
    size_t memory_bytes; /* for all segments: 1 GB */
    int64_t patience_ns; /* without any event before a run counts as stuck: 60 s */
    /* `fate_rank` leaves or dies at a moment up to `fate_within_ns` (1 ms); GWI_HERE: nobody does
     */
    gwi_fate fate;
    int fate_rank;
    int64_t fate_within_ns;
    FILE *trace; /* borrowed; a line for every event: time, rank, what */
} gwi_sim_options;

int gwi_sim_new(const gwi_sim_options *options, gwi_sim **ret_sim);
void gwi_sim_free(gwi_sim *sim);

/* The end of one rank.  Borrowed until the simulation is freed. */
gwi_fabric *gwi_sim_fabric(gwi_sim *sim, int rank);

/* Run all ranks, each with its entry of `states`, until all are done.  A rank
 * that has left or died is done.  Fails with the error of the first step that
 * fails; with GW_ETIMEOUT, naming who waits for what, when nobody gets anywhere
 * or after `max_steps` steps (0: no limit). */
int gwi_sim_run(gwi_sim *sim, gwi_step *step, void **states, uint64_t max_steps);

/* The next event, for those who drive the ranks themselves.  Returns 1 and the
 * rank whose turn it is, or -1 if it was something else; 0 when nothing will
 * ever happen again.  A rank that is done gets no more turns. */
int gwi_sim_step(gwi_sim *sim, int *ret_rank);
void gwi_sim_done(gwi_sim *sim, int rank);

/* Virtual time, and how many pieces of messages were taken by their receivers. */
int64_t gwi_sim_now_ns(const gwi_sim *sim);
uint64_t gwi_sim_delivered(const gwi_sim *sim);

/* Check the books of all pairs and lanes. */
int gwi_sim_valid(const gwi_sim *sim);

#endif
