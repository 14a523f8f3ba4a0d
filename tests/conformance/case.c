/* case.c - the list of cases, and what several of them need. */
#include "case.h"

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

int send_to_all(struct circular *c, struct actor *a, gwi_fabric *f, int lane, const void *bytes, size_t n_bytes)
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
