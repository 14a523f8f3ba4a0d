/* places.c - who is where, barriers, and leaving. */
#include "traffic.h"

#include <stdlib.h>
#include <string.h>

/* Everybody tells everybody its place. */

#define PLACE_LANE 4

struct places {
    struct actor actor;
    struct circular telling;
    gwi_place mine;
    gwi_place *all; /* by rank */
    int n_known;
};

static int places_begin(void *state, gwi_fabric *f)
{
    struct places *s = state;

    s->mine = f->place;
    s->all = calloc((size_t)f->place.size, sizeof *s->all);
    return s->all == NULL ? gwi_fail(GW_ENOMEM, "places of %d ranks", f->place.size) : 0;
}

static void places_end(void *state)
{
    free(((struct places *)state)->all);
}

static int take_place(void *ctx, const gwi_piece *piece)
{
    struct places *s = ctx;

    CHECK(piece->total == sizeof(gwi_place) && piece->offset + piece->n_bytes <= piece->total);
    memcpy((unsigned char *)&s->all[piece->source] + piece->offset, piece->bytes, piece->n_bytes);
    s->n_known += piece->offset + piece->n_bytes == piece->total;
    return 0;
}

/* The ranks of a node are numbered through in the order of the ranks. */
static int place_is_sound(const struct places *s, int rank)
{
    const gwi_place *p = &s->all[rank];
    int before = 0, n = 0;

    for (int other = 0; other < p->size; other++)
        if (s->all[other].node == p->node) {
            before += other < rank;
            n++;
        }
    return p->rank == rank && p->size == s->mine.size && p->nodes == s->mine.nodes &&
           p->node >= 0 && p->node < p->nodes && p->local_rank == before && p->local_size == n;
}

static int check_places(const struct places *s, gwi_fabric *f)
{
    int asked = s->actor.run->node_size;

    if (asked > 0)
        CHECK(s->mine.node_size == (asked < s->mine.size ? asked : s->mine.size));
    for (int rank = 0; rank < s->mine.size; rank++) {
        gwi_place expected = gwi_fabric_place(f, rank);
        CHECK(memcmp(&s->all[rank], &expected, sizeof expected) == 0);
        CHECK(place_is_sound(s, rank));
        CHECK(f->ops->fate(f, rank) == GWI_HERE);
    }
    CHECK(f->ops->check(f) == 0);
    return 1;
}

static int places_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct places *s = state;
    int done = send_to_all(&s->telling, &s->actor, f, PLACE_LANE, &s->mine, sizeof s->mine);

    (void)now_ns;
    if (done < 0)
        return done;
    int n = f->ops->poll(f, PLACE_LANE, -1, take_place, s);
    s->actor.busy |= n > 0;
    if (n < 0)
        return n;
    return done == 1 && s->n_known == f->place.size ? check_places(s, f) : 0;
}

const struct conformance_case every_rank_sees_the_same_nodes = {
    .name = "every_rank_sees_the_same_nodes",
    .min_size = 1,
    .state_bytes = sizeof(struct places),
    .begin = places_begin,
    .step = places_step,
    .end = places_end,
};

/* Whoever has passed a barrier tells all others, one of whom may be late: nobody
 * hears that a barrier was passed before it has arrived there itself. */

#define BARRIER_LANE 0
#define N_BARRIERS 10

struct barriers {
    struct actor actor;
    gwi_random random;
    struct circular telling;
    uint32_t passed;  /* told to others */
    uint32_t arrived; /* at so many */
    uint64_t late;    /* steps before it arrives */
    uint32_t *heard;  /* by source: what it has passed */
    int n_heard;
};

enum { LATE, INSIDE, TELLING };

static int barriers_begin(void *state, gwi_fabric *f)
{
    struct barriers *s = state;

    gwi_random_init(&s->random, s->actor.run->seed, (uint64_t)f->place.rank);
    s->heard = calloc((size_t)f->place.size, sizeof *s->heard);
    return s->heard == NULL ? gwi_fail(GW_ENOMEM, "barriers of %d ranks", f->place.size) : 0;
}

static void barriers_end(void *state)
{
    free(((struct barriers *)state)->heard);
}

static int hear(void *ctx, const gwi_piece *piece)
{
    struct barriers *s = ctx;
    uint32_t *passed = &s->heard[piece->source];

    CHECK(piece->total == sizeof *passed && piece->offset + piece->n_bytes <= piece->total);
    memcpy((unsigned char *)passed + piece->offset, piece->bytes, piece->n_bytes);
    if (piece->offset + piece->n_bytes < piece->total)
        return 0;
    CHECK(*passed <= s->arrived);
    s->n_heard++;
    return 0;
}

/* Inside a barrier some may be missing, but never ourselves. */
static int check_missing(gwi_fabric *f)
{
    int missing[1024];
    int n = f->ops->barrier_missing(f, missing, 1024);

    CHECK(n >= 0 && n < f->place.size);
    for (int i = 0; i < n; i++)
        CHECK(missing[i] >= 0 && missing[i] < f->place.size && missing[i] != f->place.rank);
    return 0;
}

/* One barrier after the other.  Returns 1 after the last. */
static int advance(struct barriers *s, gwi_fabric *f)
{
    int done;

    switch (s->actor.phase) {
    case LATE:
        s->actor.busy = 1;
        if (s->late-- > 0)
            return 0;
        s->arrived++;
        s->actor.phase = INSIDE;
        return 0;
    case INSIDE:
        if (!pass_barrier(&s->actor, f))
            return check_missing(f);
        s->passed++;
        s->telling = (struct circular){0};
        s->actor.phase = TELLING;
        return 0;
    default:
        done = send_to_all(&s->telling, &s->actor, f, BARRIER_LANE, &s->passed, sizeof s->passed);
        if (done <= 0 || s->passed == N_BARRIERS)
            return done;
        s->late = gwi_random_below(&s->random, 8) == 0 ? gwi_random_below(&s->random, 200) : 0;
        s->actor.phase = LATE;
        return 0;
    }
}

static int barriers_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct barriers *s = state;
    int done = advance(s, f);

    (void)now_ns;
    if (done < 0)
        return done;
    int n = f->ops->poll(f, BARRIER_LANE, -1, hear, s);
    s->actor.lane = BARRIER_LANE;
    s->actor.busy |= n > 0;
    return n < 0 ? n : done == 1 && s->n_heard == N_BARRIERS * f->place.size;
}

const struct conformance_case nobody_passes_a_barrier_early = {
    .name = "nobody_passes_a_barrier_early",
    .min_size = 1,
    .state_bytes = sizeof(struct barriers),
    .begin = barriers_begin,
    .step = barriers_step,
    .end = barriers_end,
};

/* The last rank sends to all others and leaves.  Whoever sees that it has left can
 * poll all that it sent.  Then the others leave too, rank 0 last: so no rank leaves
 * that another one still waits for. */

static uint32_t last_to_others(const struct run *run, const gwi_place *place, int from, int to)
{
    (void)run;
    return from == place->size - 1 && to != from ? 20 : 0;
}

static size_t letter_size(const struct run *run, const struct letter *letter)
{
    return letter_hash(run, letter) % 5000;
}

static const struct plan farewell = {
    .lanes = 1 << 0 | 1 << 6, .count = last_to_others, .bytes = letter_size};

static int leaving_begin(void *state, gwi_fabric *f)
{
    return traffic_begin(state, f, &farewell);
}

static int poll_all(struct traffic *t, gwi_fabric *f)
{
    int err;

    do {
        t->actor.busy = 0;
        err = traffic_receive(t, f);
    } while (err == 0 && t->actor.busy);
    return err;
}

/* In two steps: the runner pauses after neither, so it waits on nothing of the
 * fabric any more when that goes. */
static int leave(struct traffic *t, gwi_fabric *f)
{
    t->actor.busy = 1;
    if (t->actor.phase++ == 0)
        return 0;
    f->ops->leave(f);
    return 1;
}

static int leaving_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct traffic *t = state;
    int leaver = f->place.size - 1, err;

    (void)now_ns;
    if (t->actor.phase > 0)
        return leave(t, f);
    if (f->place.rank == leaver) {
        err = traffic_send(t, f);
        return err < 0 ? err : traffic_all_sent(t) ? leave(t, f) : 0;
    }
    int has_left = f->ops->fate(f, leaver) == GWI_LEFT;
    err = has_left ? poll_all(t, f) : traffic_receive(t, f);
    if (err < 0)
        return err;
    CHECK(!has_left || traffic_all_received(t));
    /* One after the other, from the back. */
    return f->ops->fate(f, f->place.rank + 1) == GWI_LEFT ? leave(t, f) : 0;
}

const struct conformance_case a_rank_has_left_when_its_messages_are_there = {
    .name = "a_rank_has_left_when_its_messages_are_there",
    .min_size = 2,
    .last = 1,
    .state_bytes = sizeof(struct traffic),
    .begin = leaving_begin,
    .step = leaving_step,
    .end = traffic_end,
};
