/* case.c - the list of cases, and what several of them need. */
#include "case.h"

const struct conformance_case *const all_cases[] = {
    &every_rank_sees_the_same_nodes,
    &messages_of_random_sizes_keep_their_order,
    &sizes_around_frames_arrive_whole,
    &messages_of_64_mb_cross_each_other,
    &all_may_send_before_any_receives,
    &nothing_is_lost_when_many_flood_one,
    &what_is_declined_is_offered_again,
    &a_full_lane_holds_up_no_other,
    &an_abandoned_message_arrives_whole_or_not_at_all,
    &nobody_passes_a_barrier_early,
    &segments_are_shared_by_a_node_only,
    &a_segment_lives_until_its_last_user_closes_it,
    &a_segment_that_cannot_be_made_fails_on_all,
    &a_rank_has_left_when_its_messages_are_there,
    NULL,
};

int pass_barrier(struct actor *a, gwi_fabric *f)
{
    if (!a->in_barrier) {
        f->ops->barrier_arrive(f);
        a->in_barrier = a->busy = 1;
    }
    if (!f->ops->barrier_done(f)) {
        a->lane = GWI_LANE_WORLD;
        return 0;
    }
    a->in_barrier = 0;
    a->busy = 1;
    return 1;
}

int send_to_all(struct circular *c, struct actor *a, gwi_fabric *f, int lane, const void *bytes,
                size_t n_bytes)
{
    while (c->n_done < f->place.size) {
        int peer = (f->place.rank + c->n_done) % f->place.size;
        if (!c->open)
            c->out = (gwi_outgoing){.peer = peer, .lane = lane, .bytes = bytes, .n_bytes = n_bytes};
        int done = f->ops->send(f, &c->out);
        c->open = done == 0;
        a->lane = lane;
        if (done <= 0)
            return done;
        a->busy = 1;
        c->n_done++;
    }
    return 1;
}
