/* segments.c - memory shared by the ranks of a node. */
#include "case.h"

#include <string.h>

struct sharing {
    struct actor actor;
    gwi_segment a, b;
};

/* Open a segment; the next phase comes when that is done. */
static int open_segment(struct actor *actor, gwi_fabric *f, size_t n_bytes, gwi_segment *segment)
{
    int done = f->ops->segment_open(f, n_bytes, n_bytes, segment);

    actor->lane = GWI_LANE_WORLD;
    actor->phase += done == 1;
    actor->busy |= done == 1;
    return done < 0 ? done : 0;
}

/* Pass a barrier; the next phase comes when that is done. */
static int synchronise(struct actor *actor, gwi_fabric *f)
{
    actor->phase += pass_barrier(actor, f);
    return 0;
}

static int all_zero(const gwi_segment *segment)
{
    const unsigned char *bytes = segment->base;

    return bytes[0] == 0 && memcmp(bytes, bytes + 1, segment->n_bytes - 1) == 0;
}

/* We see our node's writes, and nobody else's. */
static int check_writes(const struct sharing *s, gwi_fabric *f)
{
    const int *a = s->a.base, *b = s->b.base;

    for (int other = 0; other < f->place.size; other++) {
        gwi_place place = gwi_fabric_place(f, other);
        if (place.node != f->place.node)
            continue;
        CHECK(a[place.local_rank] == 100 + other);
        CHECK(b[place.local_rank] == -other);
    }
    for (int i = f->place.local_size; i < 1024; i++)
        CHECK(a[i] == 0 && b[i] == 0);
    return 0;
}

static int close_both(struct sharing *s, gwi_fabric *f)
{
    f->ops->segment_close(f, &s->a);
    CHECK(s->a.base == NULL);
    f->ops->segment_close(f, &s->a);
    f->ops->segment_close(f, &s->b);
    return 1;
}

static int sharing_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct sharing *s = state;
    int err = 0;

    (void)now_ns;
    switch (s->actor.phase) {
    case 0:
        return open_segment(&s->actor, f, 3 << 16, &s->a);
    case 1:
        return open_segment(&s->actor, f, 100, &s->b);
    case 2:
        CHECK(s->a.n_bytes == 3 << 16 && s->b.n_bytes == 4096 && s->a.base != s->b.base);
        CHECK((uintptr_t)s->a.base % 4096 == 0 && (uintptr_t)s->b.base % 4096 == 0);
        CHECK(s->actor.in_barrier || (all_zero(&s->a) && all_zero(&s->b)));
        return synchronise(&s->actor, f);
    case 3:
        ((int *)s->a.base)[f->place.local_rank] = 100 + f->place.rank;
        ((int *)s->b.base)[f->place.local_rank] = -f->place.rank;
        s->actor.phase++;
        return 0;
    case 4:
        return synchronise(&s->actor, f);
    case 5:
        err = check_writes(s, f);
        s->actor.phase++;
        return err;
    case 6:
        return synchronise(&s->actor, f);
    default:
        return close_both(s, f);
    }
}

const struct conformance_case segments_are_shared_by_a_node_only = {
    .name = "segments_are_shared_by_a_node_only",
    .min_size = 1,
    .state_bytes = sizeof(struct sharing),
    .step = sharing_step,
};

/* The first rank of each node closes its segment; the others keep using it. */

static int keeping_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct sharing *s = state;

    (void)now_ns;
    switch (s->actor.phase) {
    case 0:
        return open_segment(&s->actor, f, 1 << 16, &s->a);
    case 1:
        if (!s->actor.in_barrier)
            ((unsigned char *)
                 s->a.base)[f->place.local_rank] = (unsigned char)(1 + f->place.local_rank);
        return synchronise(&s->actor, f);
    case 2:
        if (f->place.local_rank == 0)
            f->ops->segment_close(f, &s->a);
        return synchronise(&s->actor, f);
    default:
        if (f->place.local_rank != 0)
            for (int i = 0; i < f->place.local_size; i++)
                CHECK(((const unsigned char *)s->a.base)[i] == 1 + i);
        f->ops->segment_close(f, &s->a);
        CHECK(s->a.base == NULL);
        return 1;
    }
}

const struct conformance_case a_segment_lives_until_its_last_user_closes_it = {
    .name = "a_segment_lives_until_its_last_user_closes_it",
    .min_size = 1,
    .state_bytes = sizeof(struct sharing),
    .step = keeping_step,
};

/* What fails for one fails for all of the node, and the next one works. */

static int expect_failure(struct sharing *s, gwi_fabric *f, size_t n_bytes, int err)
{
    int done = f->ops->segment_open(f, n_bytes, n_bytes, &s->a);

    s->actor.lane = GWI_LANE_WORLD;
    CHECK(s->a.base == NULL);
    if (done == 0)
        return 0;
    CHECK(done == err);
    CHECK(gw_last_error()[0] != '\0');
    s->actor.phase++;
    s->actor.busy = 1;
    return 0;
}

static int failing_step(void *state, gwi_fabric *f, int64_t now_ns)
{
    struct sharing *s = state;
    int is_last = f->place.local_rank == f->place.local_size - 1;

    (void)now_ns;
    switch (s->actor.phase) {
    case 0:
        return expect_failure(s, f, (size_t)1 << 45, GW_ENOMEM);
    case 1:
        if (f->place.local_size > 1)
            return expect_failure(s, f, is_last ? 8192 : 4096, GW_EDISAGREE);
        s->actor.phase++;
        return 0;
    case 2:
        return expect_failure(s, f, 0, GW_EINVAL);
    case 3:
        return open_segment(&s->actor, f, 4096, &s->a);
    case 4:
        CHECK(s->actor.in_barrier || all_zero(&s->a));
        return synchronise(&s->actor, f);
    default:
        f->ops->segment_close(f, &s->a);
        return 1;
    }
}

const struct conformance_case a_segment_that_cannot_be_made_fails_on_all = {
    .name = "a_segment_that_cannot_be_made_fails_on_all",
    .min_size = 1,
    .state_bytes = sizeof(struct sharing),
    .step = failing_step,
};
