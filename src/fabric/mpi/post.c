/* post.c - frames under way, in both directions. */
#include "fabric/mpi/post.h"
#include "base/clock.h"
#include "base/platform.h"
#include "fabric/mpi/plugin.h"
#include "fabric/mpi/wire.h"

#include <stdatomic.h>
#include <stdlib.h>

#define SMALL_FRAME 3968 /* MPIs send what is below 4 KB at once, with its envelope */
#define MATCHED_EVERY 16 /* frames, or ... */
#define MATCHED_BYTES ((size_t)512 << 10)
#define FLYING_MAX 8   /* frames of a pair and lane with which MPI still has work */
#define AHEAD_MAX 4    /* frames of a pair and lane received before they are wanted */
#define SPARE_LARGE 16 /* large parcels kept for the next frames: 4 MB */

/* A frame in memory that MPI may use, in a list. */
struct parcel {
    struct parcel *next;
    gwi_mpi_request request;
    size_t room, n_bytes;
    int awaited; /* going out: its message is not sent before it is */
    int arrived; /* coming in */
    _Alignas(16) unsigned char frame[];
};

/* Parcels to be used again. */
struct spares {
    struct parcel *small, *large;
    int n_large;
};

/* To one rank on one lane.  By the sending thread. */
struct outbox {
    struct parcel *flying;
    int n_flying, n_awaited;
    int abandon;       /* the message under way is to be taken back first */
    uint64_t n_frames; /* ever */
    int since_matched; /* frames and bytes since the last that MPI reports as found */
    size_t bytes_since_matched;
};

/* From one rank on one lane.  By the polling thread, but for `n_arrived`. */
struct inbox {
    struct parcel *first, *last;
    struct parcel *coming; /* the first that has not arrived */
    int n;
    int declined;
    gwi_wire wire;
    _Atomic uint64_t n_arrived; /* ever; written by the polling thread, read by any */
};

struct lane {
    /* by the sending thread */
    struct outbox *out;
    struct spares spare_out;
    /* by the polling thread */
    _Alignas(GWI_LINE) struct inbox *in;
    struct spares spare_in;
    int *busy; /* ranks whose inboxes are not empty */
    int n_busy;
    int has_found; /* `found` could not be received for lack of memory */
    gwi_mpi_found found;
    _Atomic int polled; /* ever */
};

struct gwi_post {
    /* set at open, then constant */
    const struct gwi_mpi_shim *shim;
    gwi_mpi_comm comm;
    int first_tag, size;
    struct lane lanes[GWI_POST_LANES];
};

/* parcels */

static struct parcel *take_parcel(struct spares *spares, size_t n_bytes)
{
    int small = n_bytes <= SMALL_FRAME;
    size_t room = small ? SMALL_FRAME : GWI_WIRE_FRAME;
    struct parcel **list = small ? &spares->small : &spares->large;
    struct parcel *p = *list;

    if (p != NULL) {
        *list = p->next;
        spares->n_large -= !small;
    } else if ((p = malloc(sizeof *p + room)) == NULL) {
        return NULL;
    }
    *p = (struct parcel){.room = room, .n_bytes = n_bytes};
    return p;
}

static void put_parcel(struct spares *spares, struct parcel *p)
{
    int small = p->room == SMALL_FRAME;
    struct parcel **list = small ? &spares->small : &spares->large;

    if (!small && spares->n_large == SPARE_LARGE) {
        free(p);
        return;
    }
    spares->n_large += !small;
    p->next = *list;
    *list = p;
}

static void free_parcels(struct parcel *p)
{
    for (struct parcel *next; p != NULL; p = next) {
        next = p->next;
        free(p);
    }
}

/* sending */

static int hand_over(gwi_post *post, struct outbox *box, struct parcel *p, int peer, int tag)
{
    box->since_matched++;
    box->bytes_since_matched += p->n_bytes;
    int matched = box->since_matched >= MATCHED_EVERY || box->bytes_since_matched >= MATCHED_BYTES;

    int code = post->shim->send(post->comm, p->frame, (int)p->n_bytes, peer, post->first_tag + tag,
                                matched, &p->request);
    if (code != 0) {
        free(p);
        return gwi_mpi_failed(post->shim, code, "sending");
    }
    if (matched) {
        box->since_matched = 0;
        box->bytes_since_matched = 0;
    }
    /* The bytes of a small one leave at once; only the answer takes its time. */
    p->awaited = !(matched && p->room == SMALL_FRAME);
    p->next = box->flying;
    box->flying = p;
    box->n_flying++;
    box->n_awaited += p->awaited;
    box->n_frames++;
    return 0;
}

/* Take back the parcels with which MPI is done. */
static int reap(gwi_post *post, struct lane *lane, struct outbox *box)
{
    for (struct parcel **link = &box->flying, *p; (p = *link) != NULL;) {
        int done, code = post->shim->test(&p->request, &done);
        if (code != 0)
            return gwi_mpi_failed(post->shim, code, "sending");
        if (!done) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        box->n_flying--;
        box->n_awaited -= p->awaited;
        put_parcel(&lane->spare_out, p);
    }
    return 0;
}

static int send_abandon(gwi_post *post, struct outbox *box, int peer, int tag)
{
    struct parcel *p = take_parcel(&post->lanes[tag].spare_out, GWI_WIRE_HEAD);

    if (p == NULL)
        return gwi_fail(GW_ENOMEM, "sending to rank %d", peer);
    gwi_wire_write_abandon(p->frame);
    box->abandon = 0;
    return hand_over(post, box, p, peer, tag);
}

static int send_part(gwi_post *post, struct outbox *box, gwi_outgoing *out)
{
    struct parcel *p = take_parcel(&post->lanes[out->lane].spare_out, gwi_wire_next(out));

    if (p == NULL)
        return gwi_fail(GW_ENOMEM, "sending to rank %d", out->peer);
    gwi_wire_write(out, p->frame);
    return hand_over(post, box, p, out->peer, out->lane);
}

int gwi_post_send(gwi_post *post, gwi_outgoing *out)
{
    struct lane *lane = &post->lanes[out->lane];
    struct outbox *box = &lane->out[out->peer];
    int err = reap(post, lane, box);

    if (err == 0 && box->abandon)
        err = send_abandon(post, box, out->peer, out->lane);
    while (err == 0 && (!out->begun || out->sent < out->n_bytes)) {
        if (box->n_flying >= FLYING_MAX)
            return 0;
        err = send_part(post, box, out);
        if (err == 0)
            err = reap(post, lane, box);
    }
    return err < 0 ? err : box->n_awaited == 0;
}

void gwi_post_abandon(gwi_post *post, gwi_outgoing *out)
{
    struct outbox *box = &post->lanes[out->lane].out[out->peer];

    /* What was handed over as a whole arrives as a whole. */
    if (!out->begun || out->sent == out->n_bytes)
        return;
    box->abandon = 1;
    /* If that fails it is tried again before the next message. */
    send_abandon(post, box, out->peer, out->lane);
}

uint64_t gwi_post_sent(const gwi_post *post, int lane, int peer)
{
    return post->lanes[lane].out[peer].n_frames;
}

/* receiving */

static int receive_found(gwi_post *post, struct lane *lane)
{
    struct inbox *box = &lane->in[lane->found.source];
    size_t n_bytes = (size_t)lane->found.n_bytes;

    if (n_bytes > GWI_WIRE_FRAME)
        return gwi_fail(
            GW_EBROKEN,
            "rank %d sent a frame of %zu bytes by MPI, the longest has %zu; use one version "
            "of Godwit for all processes",
            lane->found.source, n_bytes, (size_t)GWI_WIRE_FRAME);
    struct parcel *p = take_parcel(&lane->spare_in, n_bytes);
    if (p == NULL)
        return gwi_fail(GW_ENOMEM, "receiving from rank %d", lane->found.source);
    int code = post->shim->receive(&lane->found, p->frame, &p->request);
    if (code != 0) {
        free(p);
        return gwi_mpi_failed(post->shim, code, "receiving");
    }
    lane->has_found = 0;
    if (box->first == NULL) {
        box->first = p;
        lane->busy[lane->n_busy++] = lane->found.source;
    } else {
        box->last->next = p;
    }
    box->last = p;
    if (box->coming == NULL)
        box->coming = p;
    box->n++;
    return 0;
}

/* Receive what MPI has from a source or from any, but not too much ahead. */
static int take_in(gwi_post *post, int tag, int source)
{
    struct lane *lane = &post->lanes[tag];
    int err = 0;

    while (err == 0 && (source == GWI_MPI_ANY || lane->in[source].n < AHEAD_MAX)) {
        if (!lane->has_found) {
            int code = post->shim->find(post->comm, source, post->first_tag + tag, &lane->has_found,
                                        &lane->found);
            if (code != 0)
                return gwi_mpi_failed(post->shim, code, "looking for messages");
            if (!lane->has_found)
                return 0;
        }
        int from = lane->found.source;
        err = receive_found(post, lane);
        if (lane->in[from].n >= AHEAD_MAX)
            break;
    }
    return err;
}

/* Whether a source is declined that has sent as much ahead as it may.  MPI cannot
 * look for messages of "any but that one". */
static int one_is_blocked(const struct lane *lane)
{
    for (int i = 0; i < lane->n_busy; i++) {
        const struct inbox *box = &lane->in[lane->busy[i]];
        if (box->declined && box->n >= AHEAD_MAX)
            return 1;
    }
    return 0;
}

static int take_in_all(gwi_post *post, int tag)
{
    int err = 0;

    if (!one_is_blocked(&post->lanes[tag]))
        return take_in(post, tag, GWI_MPI_ANY);
    for (int source = 0; source < post->size && err == 0; source++)
        err = take_in(post, tag, source);
    return err;
}

/* Note which frames have arrived; in order, as they were found. */
static int note_arrivals(gwi_post *post, struct inbox *box)
{
    uint64_t n = atomic_load_explicit(&box->n_arrived, memory_order_relaxed);

    for (; box->coming != NULL; box->coming = box->coming->next) {
        int code = post->shim->test(&box->coming->request, &box->coming->arrived);
        if (code != 0)
            return gwi_mpi_failed(post->shim, code, "receiving");
        if (!box->coming->arrived)
            break;
        atomic_store_explicit(&box->n_arrived, ++n, memory_order_release);
    }
    return 0;
}

/* Deliver the first frame.  Returns 1, 0 or an error. */
static int deliver_one(gwi_post *post, struct lane *lane, int source, gwi_deliver *deliver,
                       void *ctx)
{
    struct inbox *box = &lane->in[source];
    struct parcel *p = box->first;
    gwi_piece piece;
    int err = note_arrivals(post, box);

    if (err < 0 || p == NULL || !p->arrived)
        return err;
    err = gwi_wire_read(&box->wire, source, p->frame, p->n_bytes, &piece);
    if (err < 0)
        return err;
    err = deliver(ctx, &piece);
    box->declined = err == GW_EAGAIN;
    if (err < 0)
        return err == GW_EAGAIN ? 0 : err;
    gwi_wire_pass(&box->wire, &piece);
    box->first = p->next;
    box->n--;
    put_parcel(&lane->spare_in, p);
    return 1;
}

static void forget_idle(struct lane *lane)
{
    int n = 0;

    for (int i = 0; i < lane->n_busy; i++)
        if (lane->in[lane->busy[i]].first != NULL)
            lane->busy[n++] = lane->busy[i];
    lane->n_busy = n;
}

static int poll_all(gwi_post *post, struct lane *lane, gwi_deliver *deliver, void *ctx)
{
    int total = 0, n = 0;

    for (int i = 0; i < lane->n_busy && n >= 0; i++) {
        n = deliver_one(post, lane, lane->busy[i], deliver, ctx);
        total += n;
    }
    forget_idle(lane);
    return n < 0 ? n : total;
}

int gwi_post_poll(gwi_post *post, int tag, int source, gwi_deliver *deliver, void *ctx)
{
    struct lane *lane = &post->lanes[tag];

    atomic_store_explicit(&lane->polled, 1, memory_order_relaxed);
    int err = source < 0 ? take_in_all(post, tag) : take_in(post, tag, source);
    if (err < 0)
        return err;
    if (source < 0)
        return poll_all(post, lane, deliver, ctx);
    int n = deliver_one(post, lane, source, deliver, ctx);
    forget_idle(lane);
    return n;
}

int gwi_post_arrived(const gwi_post *post, int tag, int source, uint64_t n_frames)
{
    const struct lane *lane = &post->lanes[tag];

    return !atomic_load_explicit(&lane->polled, memory_order_relaxed) ||
           atomic_load_explicit(&lane->in[source].n_arrived, memory_order_acquire) >= n_frames;
}

/* coming and going */

static void free_lane(struct lane *lane)
{
    free_parcels(lane->spare_out.small);
    free_parcels(lane->spare_out.large);
    free_parcels(lane->spare_in.small);
    free_parcels(lane->spare_in.large);
    free(lane->out);
    free(lane->in);
    free(lane->busy);
}

static void free_post(gwi_post *post)
{
    for (int tag = 0; tag < GWI_POST_LANES; tag++)
        free_lane(&post->lanes[tag]);
    free(post);
}

int gwi_post_open(const struct gwi_mpi_shim *shim, gwi_mpi_comm comm, int epoch, int size,
                  gwi_post **ret_post)
{
    gwi_post *post = aligned_alloc(GWI_LINE, sizeof *post);

    if (post == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", size);
    *post = (gwi_post){.shim = shim, .comm = comm, .size = size};
    /* Every MPI has 32768 tags; old worlds have long gone when they come round. */
    post->first_tag = epoch % (32768 / GWI_POST_LANES) * GWI_POST_LANES;
    for (int tag = 0; tag < GWI_POST_LANES; tag++) {
        struct lane *lane = &post->lanes[tag];
        lane->out = calloc((size_t)size, sizeof *lane->out);
        lane->in = calloc((size_t)size, sizeof *lane->in);
        lane->busy = calloc((size_t)size, sizeof *lane->busy);
        if (lane->out == NULL || lane->in == NULL || lane->busy == NULL) {
            free_post(post);
            return gwi_fail(GW_ENOMEM, "joining a job of %d processes", size);
        }
    }
    *ret_post = post;
    return 0;
}

/* How many parcels MPI still works on. */
static int flying(gwi_post *post)
{
    int n = 0;

    for (int tag = 0; tag < GWI_POST_LANES; tag++)
        for (int peer = 0; peer < post->size; peer++) {
            struct outbox *box = &post->lanes[tag].out[peer];
            if (box->flying != NULL && reap(post, &post->lanes[tag], box) == 0)
                n += box->n_flying;
        }
    return n;
}

/* Of what MPI keeps the memory is lost; there is no safe way to take it back. */
static void let_go(gwi_post *post)
{
    for (int tag = 0; tag < GWI_POST_LANES; tag++)
        for (int rank = 0; rank < post->size; rank++) {
            struct inbox *in = &post->lanes[tag].in[rank];
            for (struct parcel *p = post->lanes[tag].out[rank].flying; p != NULL; p = p->next)
                post->shim->forget(&p->request);
            note_arrivals(post, in);
            for (struct parcel *p = in->first, *next; p != NULL; p = next) {
                next = p->next;
                if (p->arrived)
                    free(p);
                else
                    post->shim->forget(&p->request);
            }
        }
}

void gwi_post_close(gwi_post *post, int64_t deadline_ns)
{
    if (post == NULL)
        return;
    /* If the program has ended MPI itself there is nothing more to ask of it. */
    if (post->shim->state() == GWI_MPI_RUNNING) {
        while (flying(post) > 0 && gwi_now_ns() < deadline_ns)
            gwi_nap_ns(20 * GWI_US);
        let_go(post);
    }
    free_post(post);
}
