/* case.h - one case of the conformance suite: a state machine per rank.
 *
 * A case is written once, against fabric.h alone, and runs on every fabric: its
 * steps never block.  All ranks run the same case with the same seed, and what
 * one of them sends another can compute, so everything that arrives is checked.
 * A case takes in all messages that it causes.                               */
#ifndef CONFORMANCE_CASE_H
#define CONFORMANCE_CASE_H

#include "base/error.h"
#include "fabric/fabric.h"
#include "fabric/sim/sim.h"

#include <stddef.h>
#include <stdint.h>

/* What the runner asks for. */
struct run {
    uint64_t seed;
    int node_size; /* that the fabric was told, 0: none */
    int heavy;     /* more messages, and those of 64 MB */
};

/* The state of each case begins with this. */
struct actor {
    const struct run *run;
    int lane;       /* written by the case: what it waits for arrives there */
    int busy;       /* written by the case: call again without a pause */
    int phase;      /* the case's own */
    int in_barrier; /* pass_barrier()'s own */
};

struct conformance_case {
    const char *name;
    int min_size; /* ranks */
    int last;     /* the job is over afterwards */
    size_t state_bytes;
    int (*begin)(void *state,
                 gwi_fabric *f); /* the state is zeroed but for its actor; NULL: nothing to do */
    gwi_step *step;
    void (*end)(void *state); /* also after a failure; NULL: nothing to do */
};

/* All of them, in the order of running; NULL ends the list. */
extern const struct conformance_case *const all_cases[];

extern const struct conformance_case every_rank_sees_the_same_nodes;
extern const struct conformance_case messages_of_random_sizes_keep_their_order;
extern const struct conformance_case sizes_around_frames_arrive_whole;
extern const struct conformance_case messages_of_64_mb_cross_each_other;
extern const struct conformance_case all_may_send_before_any_receives;
extern const struct conformance_case nothing_is_lost_when_many_flood_one;
extern const struct conformance_case what_is_declined_is_offered_again;
extern const struct conformance_case a_full_lane_holds_up_no_other;
extern const struct conformance_case an_abandoned_message_arrives_whole_or_not_at_all;
extern const struct conformance_case nobody_passes_a_barrier_early;
extern const struct conformance_case segments_are_shared_by_a_node_only;
extern const struct conformance_case a_segment_lives_until_its_last_user_closes_it;
extern const struct conformance_case a_segment_that_cannot_be_made_fails_on_all;
extern const struct conformance_case a_rank_has_left_when_its_messages_are_there;

/* In a function that returns an error. */
#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition))                                                                   \
            return gwi_fail(GW_ESTATE, "%s:%d: this does not hold: %s", __FILE__, __LINE__, \
                            #condition);                                                    \
    } while (0)

/* Arrive at a barrier once, and return whether all have. */
int pass_barrier(struct actor *a, gwi_fabric *f);

/* The same bytes to every rank, one after the other.  Starts as zero; returns 1
 * when all is sent. */
struct circular {
    int n_done;
    int open;
    gwi_outgoing out;
};
int send_to_all(struct circular *c, struct actor *a, gwi_fabric *f, int lane, const void *bytes,
                size_t n_bytes);

#endif
