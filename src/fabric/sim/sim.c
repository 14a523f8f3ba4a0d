/* sim.c - ranks, the pieces that travel between them, and the order of events.
 *
 * An event is an item of the agenda: a rank's turn, a step of its fate, or the
 * arrival of the first hidden parcel of a channel.
 *
 * A channel is one pair and lane: a queue of parcels, the front ones visible to
 * the receiver, the others still hidden, that is, under way.
 *
 *      first -> [ ] -> [ ] -> hidden -> [ ] -> [ ] <- last
 *               visible                 arrive in this order, at their at_ns
 *
 * An inbox is one rank and lane: the list of sources with visible parcels.    */
#include "fabric/sim/sim.h"
#include "base/clock.h"
#include "base/platform.h"
#include "base/random.h"
#include "fabric/ranks.h"
#include "fabric/sim/agenda.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define INLINE_BYTES 72        /* makes a parcel two lines; short messages need no other memory */
#define PARCEL_BYTES 64        /* what a parcel takes of a channel's room beside its bytes */
#define POOL_PARCELS 1024      /* allocated at a time */
#define LONG_EVERY 64          /* one delay in so many is long ... */
#define LONG_FACTOR 100        /* ... up to so many times */
#define TURN_NS 1000           /* most turns come within so long */
#define IDLE_NS (100 * GWI_MS) /* so often an idle rank gets a turn, for its timers */

struct parcel {
    struct parcel *next;
    int64_t at_ns;
    size_t total, offset, n_bytes;
    unsigned char *bytes; /* `small`, or memory of its own; NULL: the message is taken back */
    unsigned char small[INLINE_BYTES];
};

struct pool {
    struct pool *next;
    struct parcel parcels[POOL_PARCELS];
};

struct channel {
    struct parcel *first, *last, *hidden;
    int64_t last_ns;   /* when the last parcel arrives */
    size_t room, used; /* room 0: not used yet */
    uint32_t ready_at; /* where its source stands in the inbox, while parcels are visible */
    int refused;       /* the sender waits for room */
};

struct rank {
    gwi_fabric fabric;
    gwi_sim *sim;
    gwi_bell bell; /* nobody rings it */
    /* turns */
    int64_t turn_ns;                /* of its next turn, while it has one */
    int64_t idle_ns;                /* how long it has got nowhere, as a delay that doubles */
    int woken;                      /* something happened to it since its last turn */
    int progress;                   /* it has done something in this turn */
    int over;                       /* no more turns */
    int refused_peer, refused_lane; /* no room there in this turn; -1: none */
    /* fate: as others know it, and as it will be known at the next step of the fate */
    gwi_fate fate, coming;
    /* barrier */
    uint64_t barrier;  /* the one it is in or was in last */
    int64_t passed_ns; /* when it learns that this one is complete */
    /* segments of its node */
    uint64_t round;
    int opening;
};

struct memory {
    struct memory *next;
    void *base;
    size_t n_bytes;
    uint64_t offset;
    int users;
};

/* Where the ranks of a node agree on one segment. */
struct round {
    size_t n_bytes; /* what the first one asks for */
    int first_rank;
    int other_rank; /* asks for something else; -1: none */
    size_t other_bytes;
    int asked, answered;
    struct memory *memory;
};

struct node {
    struct round rounds[2]; /* round r at r % 2; r + 2 begins when all have the answer of r */
};

struct gwi_sim {
    gwi_sim_options options;
    gwi_random random;
    gwi_agenda agenda; /* turns, then fates, by rank; then channels */
    int64_t now_ns;
    int64_t progress_ns; /* when something happened last */
    uint64_t delivered;
    int running; /* whose turn it is; -1: nobody's */
    int n_over;
    uint64_t arrivals; /* at barriers */
    struct rank *ranks;
    gwi_entry *entries; /* by rank; for those who write what they do */
    struct node *nodes;
    struct channel *channels; /* by inbox and source */
    int *ready;               /* by inbox: sources with visible parcels */
    int *n_ready;
    struct parcel *free;
    struct pool *pools;
    struct memory *memories;
    size_t memory_used;
    uint64_t memory_end; /* offset of the next segment */
};

static struct rank *self(gwi_fabric *f)
{
    return (struct rank *)f;
}

static size_t inbox_of(int rank, int lane)
{
    return (size_t)rank * GWI_N_LANES + (size_t)lane;
}

static size_t channel_of(const gwi_sim *sim, size_t inbox, int source)
{
    return inbox * (size_t)sim->options.size + (size_t)source;
}

static uint32_t fate_item(const gwi_sim *sim, int rank)
{
    return (uint32_t)(sim->options.size + rank);
}

static uint32_t channel_item(const gwi_sim *sim, size_t channel)
{
    return (uint32_t)(2 * (size_t)sim->options.size + channel);
}

__attribute__((format(printf, 3, 4))) static void trace_line(const gwi_sim *sim, int rank,
                                                             const char *format, ...)
{
    va_list args;

    fprintf(sim->options.trace, "%14.3f us  rank %-3d  ", (double)sim->now_ns / 1e3, rank);
    va_start(args, format);
    vfprintf(sim->options.trace, format, args);
    va_end(args);
    fputc('\n', sim->options.trace);
}

#define TRACE(sim, ...)                                 \
    do {                                                \
        if (gwi_unlikely((sim)->options.trace != NULL)) \
            trace_line((sim), __VA_ARGS__);             \
    } while (0)

/* chance */

static int64_t chance_ns(gwi_sim *sim, int64_t low, int64_t high)
{
    if (gwi_random_below(&sim->random, LONG_EVERY) == 0)
        high *= LONG_FACTOR;
    return low + (int64_t)gwi_random_below(&sim->random, (uint64_t)(high - low) + 1);
}

static int64_t delay_ns(gwi_sim *sim)
{
    return chance_ns(sim, sim->options.delay_min_ns, sim->options.delay_max_ns);
}

/* turns */

static void set_turn(gwi_sim *sim, struct rank *r, int64_t at_ns)
{
    r->turn_ns = at_ns;
    gwi_agenda_put(&sim->agenda, (uint32_t)r->fabric.place.rank, at_ns);
}

/* Something happened that a rank may wait for. */
static void wake(gwi_sim *sim, struct rank *r)
{
    if (r->woken || r->over)
        return;
    r->woken = 1;
    int64_t at_ns = sim->now_ns + chance_ns(sim, 0, TURN_NS);
    if (r->fabric.place.rank != sim->running && at_ns < r->turn_ns)
        set_turn(sim, r, at_ns);
}

static void wake_all(gwi_sim *sim)
{
    for (int rank = 0; rank < sim->options.size; rank++)
        wake(sim, &sim->ranks[rank]);
}

static void note_progress(struct rank *r)
{
    r->progress = 1;
    r->sim->progress_ns = r->sim->now_ns;
}

/* The turn is over.  Who got nowhere and was not woken waits longer each time. */
static void end_turn(gwi_sim *sim)
{
    struct rank *r = &sim->ranks[sim->running];

    sim->running = -1;
    if (r->over)
        return;
    r->idle_ns = r->progress || r->woken ? 0 : r->idle_ns == 0 ? TURN_NS : 2 * r->idle_ns;
    if (r->idle_ns > IDLE_NS)
        r->idle_ns = IDLE_NS;
    set_turn(sim, r, sim->now_ns + r->idle_ns + chance_ns(sim, 0, TURN_NS));
}

static void begin_turn(gwi_sim *sim, int rank)
{
    struct rank *r = &sim->ranks[rank];

    sim->running = rank;
    r->woken = r->progress = 0;
    r->refused_peer = -1;
}

static void end_rank(gwi_sim *sim, struct rank *r)
{
    if (r->over)
        return;
    r->over = 1;
    sim->n_over++;
    gwi_agenda_drop(&sim->agenda, (uint32_t)r->fabric.place.rank);
    sim->progress_ns = sim->now_ns;
}

void gwi_sim_done(gwi_sim *sim, int rank)
{
    end_rank(sim, &sim->ranks[rank]);
}

/* parcels */

static int fill_pool(gwi_sim *sim)
{
    struct pool *pool = malloc(sizeof *pool);

    if (pool == NULL)
        return gwi_fail(GW_ENOMEM, "a simulated message");
    pool->next = sim->pools;
    sim->pools = pool;
    for (int i = 0; i < POOL_PARCELS; i++) {
        pool->parcels[i].next = sim->free;
        sim->free = &pool->parcels[i];
    }
    return 0;
}

/* A parcel with room for `n` bytes; it is not taken off the free list yet. */
static int prepare_parcel(gwi_sim *sim, size_t n)
{
    int err = sim->free == NULL ? fill_pool(sim) : 0;

    if (err < 0)
        return err;
    sim->free->bytes = sim->free->small;
    if (n > INLINE_BYTES && (sim->free->bytes = malloc(n)) == NULL)
        return gwi_fail(GW_ENOMEM, "a simulated message of %zu bytes", n);
    return 0;
}

static void free_bytes(struct parcel *p)
{
    if (p->bytes != p->small)
        free(p->bytes);
}

static size_t parcel_cost(const struct parcel *p)
{
    return p->bytes == NULL ? 0 : p->n_bytes + PARCEL_BYTES;
}

/* Send the prepared parcel on its way. */
static void post(gwi_sim *sim, size_t channel)
{
    struct channel *c = &sim->channels[channel];
    struct parcel *p = sim->free;
    int64_t at_ns = sim->now_ns + delay_ns(sim);

    sim->free = p->next;
    p->next = NULL;
    p->at_ns = c->last_ns = at_ns > c->last_ns ? at_ns : c->last_ns;
    c->used += parcel_cost(p);
    if (c->first == NULL)
        c->first = p;
    else
        c->last->next = p;
    c->last = p;
    if (c->hidden == NULL) {
        c->hidden = p;
        gwi_agenda_put(&sim->agenda, channel_item(sim, channel), p->at_ns);
    }
}

/* sending */

/* How much of a message its next parcel takes: all that fits, but one in four is
 * cut somewhere. */
static size_t cut(gwi_sim *sim, size_t left, size_t most)
{
    size_t n = left < most ? left : most;

    if (n > INLINE_BYTES && gwi_random_below(&sim->random, 4) == 0)
        n = 1 + gwi_random_below(&sim->random, n);
    return n;
}

static size_t choose_room(gwi_sim *sim)
{
    if (sim->options.room_bytes > 0)
        return sim->options.room_bytes;
    return (size_t)512 << gwi_random_below(&sim->random, 10);
}

static int send_parcel(struct rank *me, gwi_outgoing *out, size_t channel, size_t n)
{
    gwi_sim *sim = me->sim;
    int err = prepare_parcel(sim, n);

    if (err < 0)
        return err;
    struct parcel *p = sim->free;
    p->total = out->n_bytes;
    p->offset = out->sent;
    p->n_bytes = n;
    if (n > 0)
        memcpy(p->bytes, (const unsigned char *)out->bytes + out->sent, n);
    post(sim, channel);
    out->sent += n;
    out->begun = 1;
    note_progress(me);
    TRACE(sim, me->fabric.place.rank,
          "sends %zu of %zu bytes to rank %d on lane %d, there at %.3f us", out->sent, out->n_bytes,
          out->peer, out->lane, (double)p->at_ns / 1e3);
    return 0;
}

static int sim_send(gwi_fabric *f, gwi_outgoing *out)
{
    struct rank *me = self(f);
    gwi_sim *sim = me->sim;
    size_t channel = channel_of(sim, inbox_of(out->peer, out->lane), f->place.rank);
    struct channel *c = &sim->channels[channel];

    if (gwi_unlikely(c->room == 0))
        c->room = choose_room(sim);
    do {
        size_t left = out->n_bytes - out->sent;
        if (c->used + PARCEL_BYTES + (left > 0) > c->room) {
            c->refused = 1;
            me->refused_peer = out->peer;
            me->refused_lane = out->lane;
            TRACE(sim, f->place.rank, "has no room to rank %d on lane %d", out->peer, out->lane);
            return 0;
        }
        int err = send_parcel(me, out, channel, cut(sim, left, c->room - c->used - PARCEL_BYTES));
        if (err < 0)
            return err;
    } while (out->sent < out->n_bytes);
    return 1;
}

static void sim_abandon(gwi_fabric *f, gwi_outgoing *out)
{
    struct rank *me = self(f);
    gwi_sim *sim = me->sim;

    if (!out->begun || out->sent == out->n_bytes)
        return;
    if (prepare_parcel(sim, 0) < 0)
        abort(); /* a simulation without memory for 128 bytes has nothing left to show */
    struct parcel *p = sim->free;
    p->total = p->offset = p->n_bytes = 0;
    p->bytes = NULL;
    post(sim, channel_of(sim, inbox_of(out->peer, out->lane), f->place.rank));
    note_progress(me);
    TRACE(sim, f->place.rank, "takes back its message to rank %d on lane %d after %zu of %zu bytes",
          out->peer, out->lane, out->sent, out->n_bytes);
}

/* arriving */

static void make_ready(gwi_sim *sim, size_t inbox, int source)
{
    int *ready = sim->ready + channel_of(sim, inbox, 0);

    sim->channels[channel_of(sim, inbox, source)].ready_at = (uint32_t)sim->n_ready[inbox];
    ready[sim->n_ready[inbox]++] = source;
}

static void move_ready(gwi_sim *sim, size_t inbox, uint32_t to, int source)
{
    sim->ready[channel_of(sim, inbox, 0) + to] = source;
    sim->channels[channel_of(sim, inbox, source)].ready_at = to;
}

static void make_unready(gwi_sim *sim, size_t inbox, int source)
{
    uint32_t at = sim->channels[channel_of(sim, inbox, source)].ready_at;

    move_ready(sim, inbox, at,
               sim->ready[channel_of(sim, inbox, 0) + (size_t)--sim->n_ready[inbox]]);
}

/* All parcels of a channel whose time has come become visible: one, or a burst
 * behind one that was late. */
static void arrive(gwi_sim *sim, size_t channel)
{
    struct channel *c = &sim->channels[channel];
    size_t inbox = channel / (size_t)sim->options.size;
    int source = (int)(channel % (size_t)sim->options.size), rank = (int)(inbox / GWI_N_LANES);

    if (c->first == c->hidden)
        make_ready(sim, inbox, source);
    do
        c->hidden = c->hidden->next;
    while (c->hidden != NULL && c->hidden->at_ns <= sim->now_ns);
    if (c->hidden != NULL)
        gwi_agenda_put(&sim->agenda, channel_item(sim, channel), c->hidden->at_ns);
    sim->progress_ns = sim->now_ns;
    TRACE(sim, rank, "can take what came from rank %d on lane %d", source,
          (int)(inbox % GWI_N_LANES));
    wake(sim, &sim->ranks[rank]);
}

/* receiving */

static void remove_first(gwi_sim *sim, size_t inbox, int source)
{
    struct channel *c = &sim->channels[channel_of(sim, inbox, source)];
    struct parcel *p = c->first;

    c->used -= parcel_cost(p);
    free_bytes(p);
    c->first = p->next;
    p->next = sim->free;
    sim->free = p;
    sim->delivered++;
    if (c->first == c->hidden)
        make_unready(sim, inbox, source);
    if (c->refused) {
        c->refused = 0;
        wake(sim, &sim->ranks[source]);
    }
}

static int take(struct rank *me, int lane, int source, gwi_deliver *deliver, void *ctx)
{
    gwi_sim *sim = me->sim;
    size_t inbox = inbox_of(me->fabric.place.rank, lane);
    const struct parcel *p = sim->channels[channel_of(sim, inbox, source)].first;
    gwi_piece piece = {
        .source = source,
        .total = p->total,
        .offset = p->offset,
        .bytes = p->bytes,
        .n_bytes = p->n_bytes,
        .abandoned = p->bytes == NULL,
    };

    int err = deliver(ctx, &piece);
    TRACE(sim, me->fabric.place.rank, "%s %zu of %zu bytes from rank %d on lane %d%s",
          err < 0 ? "declines" : "takes", piece.offset + piece.n_bytes, piece.total, source, lane,
          piece.abandoned ? ", taken back" : "");
    if (err < 0)
        return err == GW_EAGAIN ? 0 : err;
    remove_first(sim, inbox, source);
    note_progress(me);
    return 1;
}

/* One piece from every ready source, in an order drawn on the way.  What stands
 * behind `left` has had its turn, so a source may be removed there. */
static int take_from_all(struct rank *me, int lane, gwi_deliver *deliver, void *ctx)
{
    gwi_sim *sim = me->sim;
    size_t inbox = inbox_of(me->fabric.place.rank, lane);
    const int *ready = sim->ready + channel_of(sim, inbox, 0);
    int total = 0;

    for (uint32_t left = (uint32_t)sim->n_ready[inbox]; left > 0; left--) {
        uint32_t drawn = left == 1 ? 0 : (uint32_t)gwi_random_below(&sim->random, left);
        int source = ready[drawn], other = ready[left - 1];
        move_ready(sim, inbox, drawn, other);
        move_ready(sim, inbox, left - 1, source);
        int n = take(me, lane, source, deliver, ctx);
        if (n < 0)
            return n;
        total += n;
    }
    return total;
}

static int sim_poll(gwi_fabric *f, int lane, int source, gwi_deliver *deliver, void *ctx)
{
    struct rank *me = self(f);

    if (source < 0)
        return take_from_all(me, lane, deliver, ctx);
    const struct channel
        *c = &me->sim->channels[channel_of(me->sim, inbox_of(f->place.rank, lane), source)];
    return c->first != c->hidden ? take(me, lane, source, deliver, ctx) : 0;
}

static void sim_waiter_init(gwi_fabric *f, int lane, gwi_waiter *ret_waiter)
{
    (void)lane;
    gwi_waiter_init(ret_waiter, &self(f)->bell, NULL);
}

static void sim_nudge(gwi_fabric *f, int rank, int lane)
{
    (void)lane;
    wake(self(f)->sim, self(gwi_sim_fabric(self(f)->sim, rank)));
}

/* the barrier */

static int sim_barrier_done(gwi_fabric *f)
{
    const struct rank *me = self(f);

    return me->sim->arrivals >= me->barrier * (uint64_t)f->place.size &&
           me->sim->now_ns >= me->passed_ns;
}

static void sim_barrier_arrive(gwi_fabric *f)
{
    struct rank *me = self(f);
    gwi_sim *sim = me->sim;

    if (!sim_barrier_done(f))
        return;
    me->barrier++;
    note_progress(me);
    TRACE(sim, f->place.rank, "arrives at barrier %llu", (unsigned long long)me->barrier);
    if (++sim->arrivals < me->barrier * (uint64_t)f->place.size)
        return;
    /* Each learns of it in its own time. */
    for (int rank = 0; rank < f->place.size; rank++)
        sim->ranks[rank].passed_ns = sim->now_ns + delay_ns(sim);
    wake_all(sim);
}

static int sim_barrier_missing(gwi_fabric *f, int *ret_ranks, int n_max)
{
    const struct rank *me = self(f);
    int n = 0;

    for (int rank = 0; rank < f->place.size; rank++)
        if (me->sim->ranks[rank].barrier < me->barrier) {
            if (n < n_max)
                ret_ranks[n] = rank;
            n++;
        }
    return n;
}

/* fates */

static gwi_fate sim_fate(gwi_fabric *f, int rank)
{
    return self(f)->sim->ranks[rank].fate;
}

static int sim_check(gwi_fabric *f)
{
    for (int rank = 0; rank < f->place.size; rank++)
        if (sim_fate(f, rank) == GWI_DEAD)
            return gwi_fail(GW_EPEER, "rank %d died", rank);
    return 0;
}

/* When all that a rank has sent will have arrived. */
static int64_t last_arrival_ns(const gwi_sim *sim, int source)
{
    int64_t last = sim->now_ns;

    for (size_t inbox = 0; inbox < inbox_of(sim->options.size, 0); inbox++) {
        int64_t at_ns = sim->channels[channel_of(sim, inbox, source)].last_ns;
        last = at_ns > last ? at_ns : last;
    }
    return last;
}

/* A rank ends now; the others hear of it later. */
static void meet_fate(gwi_sim *sim, struct rank *r, gwi_fate fate)
{
    int rank = r->fabric.place.rank;
    int64_t from_ns = fate == GWI_LEFT ? last_arrival_ns(sim, rank) : sim->now_ns;

    TRACE(sim, rank, "%s", fate == GWI_LEFT ? "leaves" : "dies");
    end_rank(sim, r);
    r->coming = fate;
    gwi_agenda_put(&sim->agenda, fate_item(sim, rank), from_ns + delay_ns(sim));
}

static void advance_fate(gwi_sim *sim, struct rank *r)
{
    if (r->coming == GWI_HERE) {
        if (!r->over)
            meet_fate(sim, r, sim->options.fate);
        return;
    }
    TRACE(sim, r->fabric.place.rank, "is known to have %s",
          r->coming == GWI_LEFT ? "left" : "died");
    r->fate = r->coming;
    sim->progress_ns = sim->now_ns;
    wake_all(sim);
}

static void sim_leave(gwi_fabric *f)
{
    meet_fate(self(f)->sim, self(f), GWI_LEFT);
}

/* segments */

static struct memory *new_memory(gwi_sim *sim, size_t n_bytes, int users)
{
    if (n_bytes > sim->options.memory_bytes - sim->memory_used)
        return NULL;
    struct memory *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->base = aligned_alloc(4096, n_bytes);
    if (m->base == NULL) {
        free(m);
        return NULL;
    }
    memset(m->base, 0, n_bytes);
    *m = (struct memory){sim->memories, m->base, n_bytes, sim->memory_end, users};
    sim->memories = m;
    sim->memory_used += n_bytes;
    sim->memory_end += n_bytes;
    return m;
}

static void free_memory(gwi_sim *sim, struct memory **link)
{
    struct memory *gone = *link;

    *link = gone->next;
    sim->memory_used -= gone->n_bytes;
    free(gone->base);
    free(gone);
}

static void ask(struct rank *me, struct round *round, size_t n_bytes)
{
    const gwi_place *place = &me->fabric.place;
    int first = place->node * place->node_size;

    if (round->asked == 0)
        *round = (struct round){.n_bytes = n_bytes, .first_rank = place->rank, .other_rank = -1};
    if (round->n_bytes != n_bytes) {
        round->other_rank = place->rank;
        round->other_bytes = n_bytes;
    }
    note_progress(me);
    TRACE(me->sim, place->rank, "asks for a segment of %zu bytes", n_bytes);
    if (++round->asked < place->local_size)
        return;
    if (round->other_rank < 0)
        round->memory = new_memory(me->sim, n_bytes, place->local_size);
    for (int i = 0; i < place->local_size; i++)
        wake(me->sim, &me->sim->ranks[first + i]);
}

static int answer(const struct rank *me, const struct round *round, gwi_segment *ret_segment)
{
    const struct memory *m = round->memory;

    if (round->other_rank >= 0)
        return gwi_fail(GW_EDISAGREE, "rank %d asks for a segment of %zu bytes, rank %d for %zu",
                        round->first_rank, round->n_bytes, round->other_rank, round->other_bytes);
    if (m == NULL)
        return gwi_fail(
            GW_ENOMEM,
            "no memory for a segment of %zu bytes on node %d; the simulation has %zu bytes for "
            "all segments",
            round->n_bytes, me->fabric.place.node, me->sim->options.memory_bytes);
    *ret_segment = (gwi_segment){m->base, m->n_bytes, m->offset};
    return 1;
}

static int sim_segment_need(gwi_fabric *f, const gwi_segment *segment, size_t at, size_t n_bytes)
{
    (void)f, (void)segment, (void)at, (void)n_bytes;
    return 0; /* it has memory from the start */
}

static int sim_segment_open(gwi_fabric *f, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    struct rank *me = self(f);

    (void)n_now;

    if (n_bytes == 0)
        return gwi_fail(GW_EINVAL, "a segment of 0 bytes was asked for");
    if (!me->opening)
        me->round++;
    struct round *round = &me->sim->nodes[f->place.node].rounds[me->round % 2];
    if (!me->opening)
        ask(me, round, (n_bytes + 4095) & ~(size_t)4095);
    me->opening = round->asked < f->place.local_size;
    if (me->opening)
        return 0;
    note_progress(me);
    int done = answer(me, round, ret_segment);
    if (++round->answered == f->place.local_size)
        *round = (struct round){0};
    return done;
}

/* Segments among some processes only have no use yet that the simulation could run. */
static int sim_shares(gwi_fabric *f, int rank)
{
    return f->place.rank == rank;
}

static int sim_segment_make(gwi_fabric *f, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    (void)n_now;
    (void)f, (void)ret_segment;
    return gwi_fail(GW_EUNSUP, "the simulation has no segment of %zu bytes outside of nodes",
                    n_bytes);
}

static int sim_segment_map(gwi_fabric *f, uint64_t offset, size_t n_bytes, gwi_segment *ret_segment)
{
    (void)offset;
    return sim_segment_make(f, n_bytes, n_bytes, ret_segment);
}

static void sim_segment_close(gwi_fabric *f, gwi_segment *segment)
{
    struct memory **link = &self(f)->sim->memories;

    if (segment->base == NULL)
        return;
    while ((*link)->base != segment->base)
        link = &(*link)->next;
    if (--(*link)->users == 0)
        free_memory(self(f)->sim, link);
    *segment = (gwi_segment){0};
}

/* what a rank does */

/* What a rank waits for, as far as it shows. */
static void describe(struct rank *r, char *text, size_t room)
{
    int missing[GWI_RANKS_SHOWN];
    char ranks[256];

    if (r->over)
        snprintf(text, room, "%s",
                 r->coming == GWI_LEFT   ? "has left"
                 : r->coming == GWI_DEAD ? "is dead"
                                         : "is done");
    else if (r->refused_peer >= 0)
        snprintf(text, room, "has no room to send to rank %d on lane %d", r->refused_peer,
                 r->refused_lane);
    else if (r->opening)
        snprintf(text, room, "opens segment %llu of node %d, and others of the node do not",
                 (unsigned long long)r->round, r->fabric.place.node);
    else if (!sim_barrier_done(&r->fabric))
        snprintf(text, room, "is at barrier %llu without %s", (unsigned long long)r->barrier,
                 gwi_ranks_text(missing, sim_barrier_missing(&r->fabric, missing, GWI_RANKS_SHOWN),
                                ranks, sizeof ranks));
    else
        snprintf(text, room, "waits for messages");
}

/* The ledger of a simulation is what the simulation sees: it has no witnesses to
 * ask and no clock to wait by. */
static const gwi_entry *sim_entry_of(gwi_fabric *f, int rank)
{
    return &self(f)->sim->entries[rank];
}

static void sim_print_ledger(gwi_fabric *f, FILE *to)
{
    char text[400];

    for (int rank = 0; rank < f->place.size; rank++) {
        describe(&self(f)->sim->ranks[rank], text, sizeof text);
        fprintf(to, "%srank %d %s", rank == 0 ? "" : "\n", rank, text);
    }
}

static const struct gwi_fabric_ops sim_ops = {
    .name = "sim",
    .native = &gwi_no_native,
    .send = sim_send,
    .reserve = gwi_no_reserve,
    .commit = gwi_no_commit,
    .abandon = sim_abandon,
    .poll = sim_poll,
    .waiter_init = sim_waiter_init,
    .nudge = sim_nudge,
    .barrier_arrive = sim_barrier_arrive,
    .barrier_done = sim_barrier_done,
    .barrier_missing = sim_barrier_missing,
    .fate = sim_fate,
    .entry_of = sim_entry_of,
    .print_ledger = sim_print_ledger,
    .check = sim_check,
    .segment_open = sim_segment_open,
    .segment_need = sim_segment_need,
    .segment_close = sim_segment_close,
    .shares = sim_shares,
    .segment_make = sim_segment_make,
    .segment_map = sim_segment_map,
    .leave = sim_leave,
};

/* making and freeing */

static gwi_sim_options with_defaults(const gwi_sim_options *given)
{
    gwi_sim_options o = *given;

    o.node_size = o.node_size == 0 || o.node_size > o.size ? o.size : o.node_size;
    o.delay_min_ns = o.delay_min_ns == 0 ? GWI_US : o.delay_min_ns;
    o.delay_max_ns = o.delay_max_ns == 0 ? 50 * o.delay_min_ns : o.delay_max_ns;
    o.memory_bytes = o.memory_bytes == 0 ? (size_t)1 << 30 : o.memory_bytes;
    o.patience_ns = o.patience_ns == 0 ? 60 * GWI_SECOND : o.patience_ns;
    o.fate_within_ns = o.fate_within_ns == 0 ? GWI_MS : o.fate_within_ns;
    return o;
}

static int check_options(const gwi_sim_options *o)
{
    if (o->size < 1 || o->size > GWI_SIM_MAX)
        return gwi_fail(GW_EINVAL, "size is %d; a simulation has 1 to %d ranks", o->size,
                        GWI_SIM_MAX);
    if (o->node_size < 0)
        return gwi_fail(GW_EINVAL, "node_size is %d; it must be at least 1", o->node_size);
    if (o->delay_min_ns < 0 || (o->delay_max_ns != 0 && o->delay_max_ns < o->delay_min_ns))
        return gwi_fail(GW_EINVAL, "delays are from %lld to %lld ns; they must be a range above 0",
                        (long long)o->delay_min_ns, (long long)o->delay_max_ns);
    if (o->room_bytes != 0 && o->room_bytes <= PARCEL_BYTES)
        return gwi_fail(GW_EINVAL, "room_bytes is %zu; it must be above %d", o->room_bytes,
                        PARCEL_BYTES);
    if (o->fate != GWI_HERE && (o->fate_rank < 0 || o->fate_rank >= o->size))
        return gwi_fail(GW_EINVAL, "fate_rank is %d; ranks go from 0 to %d", o->fate_rank,
                        o->size - 1);
    return 0;
}

static int allocate(gwi_sim *sim)
{
    size_t size = (size_t)sim->options.size, n_inboxes = inbox_of(sim->options.size, 0);
    size_t n_channels = n_inboxes * size;
    int nodes = gwi_place_of(0, sim->options.size, sim->options.node_size).nodes;

    sim->ranks = calloc(size, sizeof *sim->ranks);
    sim->entries = aligned_alloc(GWI_LINE, size * sizeof *sim->entries);
    sim->nodes = calloc((size_t)nodes, sizeof *sim->nodes);
    sim->channels = calloc(n_channels, sizeof *sim->channels);
    sim->ready = calloc(n_channels, sizeof *sim->ready);
    sim->n_ready = calloc(n_inboxes, sizeof *sim->n_ready);
    if (sim->ranks == NULL || sim->entries == NULL || sim->nodes == NULL || sim->channels == NULL ||
        sim->ready == NULL || sim->n_ready == NULL)
        return gwi_fail(GW_ENOMEM, "a simulation of %zu ranks", size);
    memset(sim->entries, 0, size * sizeof *sim->entries);
    return gwi_agenda_init(&sim->agenda, channel_item(sim, n_channels));
}

static void seat_ranks(gwi_sim *sim)
{
    const gwi_sim_options *o = &sim->options;

    for (int rank = 0; rank < o->size; rank++) {
        struct rank *r = &sim->ranks[rank];
        r->fabric.ops = &sim_ops;
        r->fabric.place = gwi_place_of(rank, o->size, o->node_size);
        r->fabric.entry = &sim->entries[rank];
        r->sim = sim;
        set_turn(sim, r, chance_ns(sim, 0, TURN_NS));
    }
    if (o->fate != GWI_HERE)
        gwi_agenda_put(&sim->agenda, fate_item(sim, o->fate_rank),
                       (int64_t)gwi_random_below(&sim->random, (uint64_t)o->fate_within_ns));
}

int gwi_sim_new(const gwi_sim_options *options, gwi_sim **ret_sim)
{
    int err = check_options(options);

    if (err < 0)
        return err;
    gwi_sim *sim = calloc(1, sizeof *sim);
    if (sim == NULL)
        return gwi_fail(GW_ENOMEM, "a simulation of %d ranks", options->size);
    sim->options = with_defaults(options);
    sim->running = -1;
    gwi_random_init(&sim->random, options->seed, 0);
    err = allocate(sim);
    if (err < 0) {
        gwi_sim_free(sim);
        return err;
    }
    seat_ranks(sim);
    *ret_sim = sim;
    return 0;
}

static void free_channels(gwi_sim *sim)
{
    size_t n = sim->channels == NULL ? 0 : channel_of(sim, inbox_of(sim->options.size, 0), 0);

    for (size_t i = 0; i < n; i++)
        for (struct parcel *p = sim->channels[i].first; p != NULL; p = p->next)
            free_bytes(p);
    free(sim->channels);
}

void gwi_sim_free(gwi_sim *sim)
{
    if (sim == NULL)
        return;
    free_channels(sim);
    for (struct pool *pool = sim->pools, *next; pool != NULL; pool = next) {
        next = pool->next;
        free(pool);
    }
    while (sim->memories != NULL)
        free_memory(sim, &sim->memories);
    gwi_agenda_fini(&sim->agenda);
    free(sim->ready);
    free(sim->n_ready);
    free(sim->nodes);
    free(sim->entries);
    free(sim->ranks);
    free(sim);
}

gwi_fabric *gwi_sim_fabric(gwi_sim *sim, int rank)
{
    return &sim->ranks[rank].fabric;
}

int64_t gwi_sim_now_ns(const gwi_sim *sim)
{
    return sim->now_ns;
}

uint64_t gwi_sim_delivered(const gwi_sim *sim)
{
    return sim->delivered;
}

/* running */

int gwi_sim_step(gwi_sim *sim, int *ret_rank)
{
    gwi_agenda_entry next;
    uint32_t size = (uint32_t)sim->options.size;

    if (sim->running >= 0)
        end_turn(sim);
    if (!gwi_agenda_take(&sim->agenda, &next))
        return 0;
    sim->now_ns = next.at_ns;
    *ret_rank = -1;
    if (next.item < size) {
        begin_turn(sim, (int)next.item);
        *ret_rank = (int)next.item;
    } else if (next.item < 2 * size) {
        advance_fate(sim, &sim->ranks[next.item - size]);
    } else {
        arrive(sim, next.item - 2 * size);
    }
    return 1;
}

static int stuck(gwi_sim *sim, const char *why)
{
    char all[2048] = "", one[400];
    size_t used = 0;
    int shown = 0;

    for (int rank = 0; rank < sim->options.size && shown < GWI_RANKS_SHOWN && used < sizeof all;
         rank++)
        if (!sim->ranks[rank].over) {
            describe(&sim->ranks[rank], one, sizeof one);
            used += (size_t)snprintf(all + used, sizeof all - used, "%srank %d %s",
                                     shown++ == 0 ? "" : "; ", rank, one);
        }
    return gwi_fail(GW_ETIMEOUT, "%s; %d of %d ranks are not done at %.3f us of seed %llu: %s", why,
                    sim->options.size - sim->n_over, sim->options.size, (double)sim->now_ns / 1e3,
                    (unsigned long long)sim->options.seed, all);
}

int gwi_sim_run(gwi_sim *sim, gwi_step *step, void **states, uint64_t max_steps)
{
    uint64_t n_steps = 0;
    int rank;

    while (sim->n_over < sim->options.size && gwi_sim_step(sim, &rank)) {
        if (rank < 0)
            continue;
        int done = step(states[rank], &sim->ranks[rank].fabric, sim->now_ns);
        if (done < 0)
            return gwi_fail(done, "rank %d failed at %.3f us of seed %llu: %s", rank,
                            (double)sim->now_ns / 1e3, (unsigned long long)sim->options.seed,
                            gw_last_error());
        if (done > 0)
            gwi_sim_done(sim, rank);
        if (sim->now_ns - sim->progress_ns > sim->options.patience_ns)
            return stuck(sim, "nobody gets anywhere");
        if (++n_steps == max_steps)
            return stuck(sim, "the last step allowed is done");
    }
    return 0;
}

int gwi_sim_valid(const gwi_sim *sim)
{
    size_t n = channel_of(sim, inbox_of(sim->options.size, 0), 0);

    for (size_t i = 0; i < n; i++) {
        const struct channel *c = &sim->channels[i];
        size_t used = 0, inbox = i / (size_t)sim->options.size;
        int64_t last_ns = 0;
        int source = (int)(i % (size_t)sim->options.size), hidden = 0;
        for (const struct parcel *p = c->first; p != NULL; p = p->next) {
            hidden |= p == c->hidden;
            used += parcel_cost(p);
            if (p->at_ns < last_ns || (!hidden && p->at_ns > sim->now_ns) ||
                (p->next == NULL && p != c->last))
                return 0;
            last_ns = p->at_ns;
        }
        if (used != c->used || c->used > c->room || hidden != (c->hidden != NULL))
            return 0;
        if (c->first != c->hidden && sim->ready[channel_of(sim, inbox, 0) + c->ready_at] != source)
            return 0;
    }
    return gwi_agenda_valid(&sim->agenda);
}
