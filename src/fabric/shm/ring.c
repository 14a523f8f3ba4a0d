/* ring.c - giving and taking frames; ring.h has the picture and the rules. */
#include "fabric/shm/ring.h"
#include "base/copy.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum kind { NOTHING, WHOLE, FIRST, MORE, SKIP, ABANDON };

#define FIRST_BYTES 1024        /* a message travels in frames that double from here ... */
#define FRAME_BYTES (32 * 1024) /* ... to here, so that both ends copy at the same time */
#define TIMED_BYTES (8 * 1024)  /* frames from here on tell how far the other processor is */

static uint64_t lines(uint64_t bytes)
{
    return (bytes + GWI_LINE - 1) & ~(uint64_t)(GWI_LINE - 1);
}

static unsigned char *at(gwi_ring_shared *ring, uint64_t capacity, uint64_t position)
{
    return ring->data + (position & (capacity - 1));
}

static _Atomic uint64_t *head_at(gwi_ring_shared *ring, uint64_t capacity, uint64_t position)
{
    return (_Atomic uint64_t *)(void *)at(ring, capacity, position);
}

static uint64_t make_head(enum kind kind, uint64_t payload)
{
    return payload << 8 | kind;
}

/* How much of a message the next frame may take. */
static uint64_t frame_max(uint64_t capacity, uint64_t sent)
{
    /* Half a ring is what R3 guarantees, less the head that follows and the skip. */
    uint64_t most = capacity / 4 < FRAME_BYTES ? capacity / 4 : FRAME_BYTES;
    uint64_t grown = sent + FIRST_BYTES;

    return grown < most ? grown : most;
}

/* giving */

void gwi_ring_giver_init(gwi_ring_giver *g, gwi_ring_shared *ring, uint64_t capacity)
{
    assert((capacity & (capacity - 1)) == 0 && capacity >= 1024);
    *g = (gwi_ring_giver){.ring = ring,
                          .capacity = capacity,
                          .limit = capacity,
                          .copier = {.time_from = TIMED_BYTES}};
}

void gwi_ring_giver_fini(gwi_ring_giver *g)
{
    free(g->aside);
    *g = (gwi_ring_giver){0};
}

int gwi_ring_giver_valid(const gwi_ring_giver *g)
{
    uint64_t taken = atomic_load_explicit(&g->ring->taken, memory_order_acquire);

    return g->given % GWI_LINE == 0 && g->given < g->limit && taken <= g->given &&
           g->limit <= taken + g->capacity;
}

/* Whether frame and following head have room (R2). */
static int has_room(gwi_ring_giver *g, uint64_t frame)
{
    if (gwi_likely(g->given + frame + GWI_LINE <= g->limit))
        return 1;
    /* Pairs with tell() of the taker: its reads of the frames are over. */
    g->limit = atomic_load_explicit(&g->ring->taken, memory_order_acquire) + g->capacity;
    return g->given + frame + GWI_LINE <= g->limit;
}

static void publish(gwi_ring_giver *g, uint64_t head, uint64_t frame)
{
    _Atomic uint64_t *next = head_at(g->ring, g->capacity, g->given + frame);

    atomic_store_explicit(next, NOTHING, memory_order_relaxed);
    /* Release: pairs with the load in gwi_ring_take().  Sequentially consistent,
     * so that a bell rung after it finds whoever did not see it. */
    atomic_exchange_explicit(head_at(g->ring, g->capacity, g->given), head, memory_order_seq_cst);
    g->given += frame;
    assert(gwi_ring_giver_valid(g));
}

/* Make sure that `frame` bytes lie in one piece here. */
static int make_room(gwi_ring_giver *g, uint64_t frame)
{
    uint64_t to_end = g->capacity - (g->given & (g->capacity - 1));

    if (gwi_likely(frame <= to_end))
        return has_room(g, frame);
    if (!has_room(g, to_end))
        return 0;
    publish(g, make_head(SKIP, to_end - 8), to_end);
    return has_room(g, frame);
}

static int give_abandon(gwi_ring_giver *g)
{
    if (!make_room(g, GWI_LINE))
        return 0;
    publish(g, make_head(ABANDON, 0), GWI_LINE);
    g->abandon = 0;
    return 1;
}

static int give_frame(gwi_ring_giver *g, gwi_outgoing *out)
{
    uint64_t left = out->n_bytes - out->sent, max = frame_max(g->capacity, out->sent);
    enum kind kind = out->begun ? MORE : left <= max ? WHOLE : FIRST;
    uint64_t prefix = kind == FIRST ? 16 : 8;
    uint64_t n = left < max ? left : max;
    uint64_t frame = lines(prefix + n);

    if (!make_room(g, frame))
        return 0;
    unsigned char *to = at(g->ring, g->capacity, g->given);
    if (kind == FIRST)
        memcpy(to + 8, &(uint64_t){out->n_bytes}, 8);
    gwi_copier_copy(&g->copier, to + prefix, (const unsigned char *)out->bytes + out->sent, n);
    publish(g, make_head(kind, n), frame);
    out->sent += n;
    out->begun = 1;
    return 1;
}

gwi_ring_given gwi_ring_give(gwi_ring_giver *g, gwi_outgoing *out)
{
    if (gwi_unlikely(g->abandon) && !give_abandon(g))
        return GWI_RING_FULL;
    if (!give_frame(g, out))
        return GWI_RING_FULL;
    return out->sent == out->n_bytes ? GWI_RING_ALL : GWI_RING_PART;
}

void *gwi_ring_reserve(gwi_ring_giver *g, size_t *ret_n_bytes)
{
    uint64_t most = frame_max(g->capacity, FRAME_BYTES) - 8;

    if ((gwi_unlikely(g->abandon) && !give_abandon(g)) || !make_room(g, lines(8 + most)))
        return NULL;
    *ret_n_bytes = most;
    g->is_aside = gwi_copier_is_due(&g->copier);
    if (g->is_aside && g->aside == NULL)
        g->aside = aligned_alloc(GWI_LINE, FRAME_BYTES);
    g->is_aside &= g->aside != NULL;
    return (g->is_aside ? g->aside : at(g->ring, g->capacity, g->given)) + 8;
}

void gwi_ring_commit(gwi_ring_giver *g, size_t n_bytes)
{
    if (g->is_aside)
        gwi_copier_copy_due(&g->copier, at(g->ring, g->capacity, g->given) + 8, g->aside + 8,
                            n_bytes);
    g->is_aside = 0;
    publish(g, make_head(WHOLE, n_bytes), lines(8 + n_bytes));
}

void gwi_ring_abandon(gwi_ring_giver *g, const gwi_outgoing *out)
{
    if (out->begun && out->sent < out->n_bytes)
        g->abandon = 1;
}

/* taking */

void gwi_ring_taker_init(gwi_ring_taker *t, gwi_ring_shared *ring, uint64_t capacity)
{
    *t = (gwi_ring_taker){.ring = ring, .capacity = capacity};
}

int gwi_ring_taker_valid(const gwi_ring_taker *t)
{
    return t->taken % GWI_LINE == 0 && t->told <= t->taken &&
           t->taken - t->told < t->capacity / 8 + lines(16 + FRAME_BYTES) && t->offset <= t->total;
}

/* Pass a frame; R3. */
static void pass(gwi_ring_taker *t, uint64_t frame, int *ret_room)
{
    t->taken += frame;
    if (t->taken - t->told >= t->capacity / 8) {
        /* Release: our reads of these frames are over; pairs with has_room().
         * Sequentially consistent, so that a bell may be rung after it. */
        atomic_exchange_explicit(&t->ring->taken, t->taken, memory_order_seq_cst);
        t->told = t->taken;
        *ret_room = 1;
    }
    assert(gwi_ring_taker_valid(t));
}

/* A frame as the taker reads it: each word once, since whoever wrote it could
 * write there again. */
struct frame {
    enum kind kind;
    uint64_t n_bytes; /* of the message, in this frame */
    uint64_t prefix;  /* bytes before them */
    uint64_t length;  /* of the frame in the ring */
    uint64_t total;   /* of the message */
};

static struct frame read_frame(const gwi_ring_taker *t, uint64_t head)
{
    struct frame f = {.kind = (enum kind)(head & 0xff), .n_bytes = head >> 8};

    f.prefix = f.kind == FIRST ? 16 : 8;
    f.length = lines(f.prefix + f.n_bytes);
    f.total = f.kind == MORE ? t->total : f.n_bytes;
    if (f.kind == FIRST) /* what follows a head lies in the same line */
        f.total = atomic_load_explicit(head_at(t->ring, t->capacity, t->taken) + 1,
                                       memory_order_relaxed);
    return f;
}

/* What is wrong with a frame, or NULL.  Nothing but this stands between what is
 * in the ring and those who get the pieces. */
static const char *fault_of(const gwi_ring_taker *t, const struct frame *f)
{
    uint64_t to_end = t->capacity - (t->taken & (t->capacity - 1));
    uint64_t room = t->capacity - (t->taken - t->told) - GWI_LINE;
    uint64_t missing = t->total - t->offset;

    if (gwi_unlikely(f->length > to_end))
        return "it reaches over the end of the ring";
    if (gwi_unlikely(f->length > room))
        return "it is longer than the room there was (R2)";
    switch (f->kind) {
    case WHOLE:
        return missing == 0 ? NULL : "it begins a message inside another one";
    case FIRST:
        if (missing != 0)
            return "it begins a message inside another one";
        if (f->n_bytes == 0 || f->n_bytes >= f->total || f->total > PTRDIFF_MAX)
            return "its part does not fit its message";
        return NULL;
    case MORE:
        if (missing == 0)
            return "it goes on with a message that never began";
        return f->n_bytes > 0 && f->n_bytes <= missing ? NULL : "its part does not fit its message";
    case SKIP:
        return 8 + f->n_bytes == to_end ? NULL : "it skips to elsewhere than the end of the ring";
    case ABANDON:
        return missing != 0 && f->n_bytes == 0 ? NULL : "it takes back a message that never began";
    default:
        return "its kind is unknown";
    }
}

static int broken(const gwi_ring_taker *t, int source, uint64_t head, const char *fault)
{
    return gwi_fail(GW_EBROKEN,
                    "rank %d sent a frame that makes no sense: %s (head %#" PRIx64
                    " at byte %" PRIu64 " of its ring); something overwrote the job's shared "
                    "memory, so the job must be started anew",
                    source, fault, head, t->taken & (t->capacity - 1));
}

int gwi_ring_take(gwi_ring_taker *t, int source, gwi_deliver *deliver, void *ctx, int *ret_room)
{
    for (;;) {
        uint64_t head = atomic_load_explicit(head_at(t->ring, t->capacity, t->taken),
                                             memory_order_acquire);

        if (head == NOTHING)
            return 0;
        struct frame f = read_frame(t, head);
        const char *fault = fault_of(t, &f);
        if (gwi_unlikely(fault != NULL))
            return broken(t, source, head, fault);
        if (gwi_unlikely(f.kind == SKIP)) {
            pass(t, f.length, ret_room);
            continue;
        }

        gwi_piece piece = {
            .source = source,
            .total = f.total,
            .offset = f.kind == MORE ? t->offset : 0,
            .bytes = at(t->ring, t->capacity, t->taken) + f.prefix,
            .n_bytes = f.n_bytes,
            .abandoned = f.kind == ABANDON,
        };
        int err = deliver(ctx, &piece);
        if (err < 0)
            return err == GW_EAGAIN ? 0 : err;
        t->total = f.total;
        t->offset = piece.offset + f.n_bytes;
        pass(t, f.length, ret_room);
        return 1;
    }
}
