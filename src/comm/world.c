/* world.c - the world of world.h on whatever fabric the job runs.
 *
 * Messages of the world use one lane.  What arrives for a receiver that waits
 * goes straight into its buffer; what nobody waits for yet is kept, in order,
 * per sender.  A process takes in what arrives whenever it is in any call of
 * the world, so senders get room even where nobody receives yet.
 *
 * One lock guards everything here.  It is held while bytes are moved, never
 * while waiting.                                                             */
#include <godwit/world.h>

#include "base/clock.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/platform.h"
#include "base/thread.h"
#include "comm/group.h"
#include "comm/mail.h"
#include "comm/tracing.h"
#include "comm/wait.h"
#include "comm/world.h"
#include "fabric/ranks.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_NS (500 * GWI_MS)        /* a call that does not wait looks for deaths so often */
#define STREAM_BYTES ((size_t)4 << 20) /* what would fill the cache is written past it */

/* A message that nobody waited for when it came. */
struct message {
    struct message *next;
    size_t n_bytes, filled;
    unsigned char bytes[];
};

/* What a receiver wants, and what became of it. */
enum want {
    NOTHING, /* nobody receives, or it gets a kept message */
    LENGTH,  /* peek: decline the message, but note its length */
    BYTES,   /* receive into the buffer */
    FILLING, /* the message is coming in */
    DONE,    /* it is there, or its length is known */
    TOO_LONG /* it was declined */
};

struct peer {
    struct message *first, *last; /* kept; only the last may be incomplete */
    enum want want;
    unsigned char *buffer; /* the receiver's */
    size_t capacity, filled, total;
    int sending, receiving; /* a thread is at it */
    int lost;               /* a message could not be kept for lack of memory */
};

/* Wake our own threads that wait on the world's lane. */
static void nudge(gw_world *world)
{
    gwi_fabric *f = world->fabric;

    f->ops->nudge(f, f->place.rank, GWI_LANE_WORLD);
}

/* joining and leaving */

int gw_world_plan(const gw_world_options *opt, gw_world_info *ret_info, char *ret_reason,
                  size_t reason_bytes)
{
    gwi_job job;
    gw_world_info info = {.size_bytes = sizeof info};

    if (ret_info->size_bytes < sizeof info)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; set it to sizeof(gw_world_info)",
                        ret_info->size_bytes);
    int err = gwi_job_find(opt, &job);
    if (err < 0)
        return err;
    gwi_place place = gwi_place_of(job.rank < 0 ? 0 : job.rank, job.size, job.node_size);
    snprintf(ret_reason, reason_bytes, "%s", job.reason);
    info.rank = job.rank;
    info.size = job.size;
    info.node = place.node;
    info.nodes = place.nodes;
    info.local_rank = place.local_rank;
    info.local_size = place.local_size;
    info.fabric = job.fabric;
    info.reason = ret_reason;
    *ret_info = info;
    return 0;
}

/* Asked in the witness's thread. */
static void where(void *ctx, char *text, size_t room)
{
    gw_world *world = ctx;
    gwi_where_function *hook = gwi_where_hook();

    if (hook != NULL)
        hook(atomic_load(&world->caller), text, room);
}

int gwi_world_need_witness(gw_world *world)
{
    int err = world->has_witness
                  ? 0
                  : gwi_witness_start(&world->witness, world->fabric->entry, where, world);

    world->has_witness = err == 0;
    return err;
}

/* While another world is joined: an error if anybody of this one has died or left. */
static int watch(const void *ctx)
{
    const gw_world *within = ctx;
    gwi_fabric *f = within->fabric;

    int err = f->ops->check(f);
    if (err < 0)
        return gwi_fail(err, "%s while rank %d was joining a job", gw_last_error(), f->place.rank);
    for (int rank = 0; rank < f->place.size && err == 0; rank++)
        err = gwi_check_fate(within, rank, "joining a job");
    return err;
}

int gw_world_join(const gw_world_options *opt, gw_world **ret_world)
{
    int err;

    gw_world *world = calloc(1, sizeof *world);
    if (world == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job");
    err = gwi_job_find(opt, &world->job);
    if (err == 0)
        err = gwi_tracing_check();
    if (err < 0)
        goto free_world;
    world->peers = calloc((size_t)world->job.size, sizeof *world->peers);
    if (world->peers == NULL) {
        err = gwi_fail(GW_ENOMEM, "joining a job of %d processes", world->job.size);
        goto free_world;
    }
    world->job.watch = opt->within != NULL ? watch : NULL;
    world->job.watch_ctx = opt->within;
    err = gwi_fabric_open(&world->job, &world->fabric);
    world->job.watch = NULL;
    if (err < 0)
        goto free_peers;
    world->generation = gwi_fork_generation();
    pthread_mutex_init(&world->lock, NULL);
    pthread_mutex_init(&world->comm_lock, NULL);
    err = gwi_mail_new(world, &world->mail);
    if (err < 0)
        goto leave;
    err = gwi_tracing_begin(world);
    if (err == 0 && gwi_where_hook() != NULL)
        err = gwi_world_need_witness(world);
    if (err < 0)
        goto free_mail;
    *ret_world = world;
    return 0;

free_mail:
    gwi_tracing_end(world);
    gwi_mail_free(world->mail);
leave:
    world->fabric->ops->leave(world->fabric);
free_peers:
    free(world->peers);
free_world:
    free(world);
    return err;
}

void gw_world_close(gw_world *world)
{
    /* A forked child must not touch what it shares with its parent. */
    if (world == NULL || world->generation != gwi_fork_generation())
        return;
    if (world->has_witness)
        gwi_witness_stop(&world->witness);
    gwi_tracing_end(world);
    gwi_comm_free_world(world);
    gwi_mail_free(world->mail);
    world->fabric->ops->leave(world->fabric);
    for (int rank = 0; rank < world->job.size; rank++)
        for (struct message *m = world->peers[rank].first, *next; m != NULL; m = next) {
            next = m->next;
            free(m);
        }
    pthread_mutex_destroy(&world->lock);
    free(world->peers);
    free(world);
}

/* A call of a world may begin: this is the process that joined. */
static int check_process(const gw_world *world)
{
    if (gwi_unlikely(world->generation != gwi_fork_generation()))
        return gwi_fail(
            GW_ESTATE,
            "this process was forked from rank %d and is not part of the job; call Godwit "
            "in the process that joined, or start children with spawn instead of fork",
            world->fabric->place.rank);
    return 0;
}

int gw_world_get_info(const gw_world *world, gw_world_info *ret_info)
{
    const gwi_place *p = &world->fabric->place;

    if (ret_info->size_bytes < sizeof *ret_info)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; set it to sizeof(gw_world_info)",
                        ret_info->size_bytes);
    *ret_info = (gw_world_info){
        sizeof *ret_info,  p->rank,       p->size,       p->node,
        p->nodes,          p->local_rank, p->local_size, world->fabric->ops->name,
        world->job.reason,
    };
    return 0;
}

/* A death that is found before the call has begun to wait. */
static int say_what_began(const gwi_fabric *f, int err, gwi_op op, int peer)
{
    if (peer < 0)
        return gwi_fail(err, "%s; rank %d was in %s", gw_last_error(), f->place.rank,
                        gwi_op_text(op));
    return gwi_fail(err, "%s; rank %d was in %s rank %d", gw_last_error(), f->place.rank,
                    gwi_op_text(op), peer);
}

int gwi_world_begin(gw_world *world, gwi_op op, int peer)
{
    gwi_fabric *f = world->fabric;
    int err = check_process(world);

    if (gwi_unlikely(err < 0))
        return err;
    int64_t now = gwi_ledger_enter(f->entry, op, peer);
    atomic_store_explicit(&world->caller, pthread_self(), memory_order_relaxed);
    if (gwi_unlikely(now - atomic_load_explicit(&world->checked_ns, memory_order_relaxed) >
                     CHECK_NS)) {
        atomic_store_explicit(&world->checked_ns, now, memory_order_relaxed);
        err = f->ops->check(f);
        if (err < 0) {
            gwi_ledger_leave(f->entry);
            err = say_what_began(f, err, op, peer);
        }
    }
    return err;
}

int gwi_world_end(gw_world *world, int err)
{
    gwi_ledger_leave(world->fabric->entry);
    return err;
}

/* A call about one peer begins. */
static int begin_call(gw_world *world, gwi_op op, int peer)
{
    if (gwi_unlikely(peer < 0 || peer >= world->job.size)) {
        int err = check_process(world);
        return err < 0 ? err
                       : gwi_fail(GW_ERANGE, "peer is %d; ranks go from 0 to %d", peer,
                                  world->job.size - 1);
    }
    return gwi_world_begin(world, op, peer);
}

/* what arrives */

static void drop_last(struct peer *p)
{
    struct message *gone = p->last, **link = &p->first;

    p->last = NULL;
    while (*link != gone) {
        p->last = *link;
        link = &(*link)->next;
    }
    *link = NULL;
    free(gone);
}

static void take_back(struct peer *p)
{
    if (p->want == FILLING)
        p->want = BYTES;
    else if (p->last != NULL && p->last->filled < p->last->n_bytes)
        drop_last(p);
}

static struct message *keep(struct peer *p, size_t n_bytes)
{
    struct message *m = malloc(sizeof *m + n_bytes);

    if (m == NULL)
        return NULL;
    *m = (struct message){.n_bytes = n_bytes};
    if (p->last != NULL)
        p->last->next = m;
    else
        p->first = m;
    p->last = m;
    return m;
}

/* Decide where a message that begins will go.  GW_EAGAIN: not yet. */
static int begin_message(struct peer *p, const gwi_piece *piece)
{
    switch (p->want) {
    case LENGTH:
        p->want = DONE;
        p->total = piece->total;
        return GW_EAGAIN;
    case BYTES:
        p->want = piece->total <= p->capacity ? FILLING : TOO_LONG;
        p->total = piece->total;
        p->filled = 0;
        return p->want == FILLING ? 0 : GW_EAGAIN;
    case TOO_LONG:
        return GW_EAGAIN;
    default:
        if (keep(p, piece->total) == NULL)
            return gwi_fail(GW_ENOMEM, "no memory to keep a message of %zu bytes from rank %d",
                            piece->total, piece->source);
        return 0;
    }
}

static void put(unsigned char *to, const gwi_piece *piece)
{
    if (piece->total >= STREAM_BYTES)
        gwi_copy_stream(to + piece->offset, piece->bytes, piece->n_bytes);
    else
        memcpy(to + piece->offset, piece->bytes, piece->n_bytes);
}

static int deliver(void *ctx, const gwi_piece *piece)
{
    gw_world *world = ctx;
    struct peer *p = &world->peers[piece->source];

    if (gwi_unlikely(p->lost))
        return 0; /* what follows a lost message is of no use */
    if (gwi_unlikely(piece->abandoned)) {
        take_back(p);
        return 0;
    }
    if (piece->offset == 0) {
        int err = begin_message(p, piece);
        if (err < 0)
            return err;
    }
    if (p->want == FILLING) {
        if (piece->n_bytes > 0)
            put(p->buffer, piece);
        p->filled += piece->n_bytes;
        if (p->filled == piece->total)
            p->want = DONE;
    } else {
        put(p->last->bytes, piece);
        p->last->filled += piece->n_bytes;
    }
    return 0;
}

static int poll_locked(gw_world *world, int source)
{
    return world->fabric->ops->poll(world->fabric, GWI_LANE_WORLD, source, deliver, world);
}

/* waiting */

/* Who is missing at the barrier. */
static int missing_at_barrier(void *ctx, int *ret_ranks, int n_max)
{
    gwi_fabric *f = ((gw_world *)ctx)->fabric;

    return f->ops->barrier_missing(f, ret_ranks, n_max);
}

/* Unlock, let time pass, lock.  Messages with tags move on meanwhile: somebody may wait for
 * one that was sent before. */
static int pause_locked(gwi_wait *w)
{
    int err = gwi_wait_pause_locked(w, &w->world->lock), moved = 0;

    if (err > 0)
        moved = gwi_mail_progress(w->world);
    return moved < 0 ? moved : err;
}

/* Take in what arrived from anybody; another thread may have waited for it. */
static int poll_all_locked(gw_world *world)
{
    int n = poll_locked(world, -1);

    if (n != 0)
        nudge(world);
    return n;
}

/* sending */

static int send_locked(gw_world *world, gwi_outgoing *out)
{
    const struct gwi_fabric_ops *ops = world->fabric->ops;
    struct peer *p = &world->peers[out->peer];
    gwi_wait w = {.world = world, .call = "send", .peer = out->peer};
    int done = 0, err = 0;

    while (p->sending && err >= 0)
        err = pause_locked(&w);
    if (err < 0) {
        gwi_wait_end(&w);
        return err;
    }
    p->sending = 1;
    while ((done = ops->send(world->fabric, out)) == 0) {
        /* Whoever cannot send takes in, so that nobody waits for ever. */
        if ((err = poll_all_locked(world)) == 0 && (err = pause_locked(&w)) > 0)
            err = gwi_check_fate(world, out->peer, "send");
        if (err < 0)
            break;
    }
    if (done != 1)
        ops->abandon(world->fabric, out);
    p->sending = 0;
    if (w.begun)
        nudge(world); /* another thread may wait for its turn */
    gwi_wait_end(&w);
    return done < 0 ? done : err < 0 ? err : 0;
}

int gw_world_send(gw_world *world, int peer, const void *bytes, size_t n_bytes)
{
    gwi_outgoing out = {.peer = peer, .lane = GWI_LANE_WORLD, .bytes = bytes, .n_bytes = n_bytes};
    int err = begin_call(world, GWI_OP_SEND, peer);

    if (err < 0)
        return err;
    err = gwi_check_fate(world, peer, "send");
    if (err == 0) {
        pthread_mutex_lock(&world->lock);
        err = send_locked(world, &out);
        pthread_mutex_unlock(&world->lock);
    }
    return gwi_world_end(world, err);
}

/* receiving */

/* A receiver gives up though a message has begun to come, or even come whole: keep
 * it, before any that came later. */
static void keep_begun(struct peer *p)
{
    struct message *m = malloc(sizeof *m + p->total);

    if (m == NULL) {
        p->lost = 1;
        return;
    }
    *m = (struct message){.next = p->first, .n_bytes = p->total, .filled = p->filled};
    memcpy(m->bytes, p->buffer, p->filled);
    p->first = m;
    if (p->last == NULL)
        p->last = m;
}

/* Whether a message is there or the wish is settled. */
static int settled(const struct peer *p)
{
    return p->want == DONE || p->want == TOO_LONG ||
           (p->first != NULL && p->first->filled == p->first->n_bytes);
}

/* The wait has failed.  Yet what it waited for may have come meanwhile, by another
 * thread or since a process that slept past its limit last looked. */
static int give_up(gw_world *world, int peer, enum want want, int err)
{
    struct peer *p = &world->peers[peer];

    if (err == GW_ETIMEOUT && !settled(p))
        poll_locked(world, peer);
    if (settled(p) && err != GW_EINTR)
        return 0;
    if (want == BYTES && (p->want == FILLING || p->want == DONE))
        keep_begun(p);
    return err;
}

/* Wait for the next message of `peer` to come into the buffer (BYTES) or to show
 * its length (LENGTH), or to be there as p->first. */
static int await(gw_world *world, int peer, enum want want)
{
    struct peer *p = &world->peers[peer];
    gwi_wait w = {.world = world, .call = "recv", .peer = peer};
    int err = 0, gone = 0;

    p->want = p->first == NULL ? want : NOTHING;
    while (!settled(p)) {
        err = poll_locked(world, peer);
        if (err == 0 && !settled(p)) {
            if (gone) {
                err = gwi_check_fate(world, peer, "recv");
                break;
            }
            /* One more look after the rank is known to be gone: what it sent
             * before still counts. */
            if ((err = pause_locked(&w)) > 0) {
                gone = world->fabric->ops->fate(world->fabric, peer) != GWI_HERE;
                err = poll_all_locked(world);
            }
        }
        if (err < 0)
            break;
    }
    gwi_wait_end(&w);
    return err < 0 ? give_up(world, peer, want, err) : 0;
}

/* One receiver per peer at a time. */
static int begin_receiving(gw_world *world, int peer)
{
    struct peer *p = &world->peers[peer];
    gwi_wait w = {.world = world, .call = "recv", .peer = peer};
    int err = 0;

    while (p->receiving && err >= 0)
        err = pause_locked(&w);
    gwi_wait_end(&w);
    if (err < 0)
        return err;
    if (p->lost)
        return gwi_fail(GW_ENOMEM, "a message from rank %d was lost for lack of memory", peer);
    p->receiving = 1;
    return 0;
}

static void end_receiving(gw_world *world, struct peer *p)
{
    p->want = NOTHING;
    p->receiving = 0;
    nudge(world);
}

int gw_world_peek(gw_world *world, int peer, size_t *ret_n_bytes)
{
    int err = begin_call(world, GWI_OP_RECV, peer);

    if (err < 0)
        return err;
    struct peer *p = &world->peers[peer];
    pthread_mutex_lock(&world->lock);
    err = begin_receiving(world, peer);
    if (err == 0) {
        err = await(world, peer, LENGTH);
        if (err == 0)
            *ret_n_bytes = p->first != NULL ? p->first->n_bytes : p->total;
        end_receiving(world, p);
    }
    pthread_mutex_unlock(&world->lock);
    return gwi_world_end(world, err);
}

static int too_long(int peer, size_t n_bytes, size_t capacity)
{
    return gwi_fail(
        GW_EINVAL,
        "the message from rank %d has %zu bytes, the buffer holds %zu; the message waits", peer,
        n_bytes, capacity);
}

static int take_kept(struct peer *p, int peer, void *buffer, size_t capacity, size_t *ret_n_bytes)
{
    struct message *m = p->first;

    if (m->n_bytes > capacity)
        return too_long(peer, m->n_bytes, capacity);
    if (m->n_bytes > 0)
        memcpy(buffer, m->bytes, m->n_bytes);
    *ret_n_bytes = m->n_bytes;
    p->first = m->next;
    if (p->first == NULL)
        p->last = NULL;
    free(m);
    return 0;
}

int gw_world_recv(gw_world *world, int peer, void *buffer, size_t capacity, size_t *ret_n_bytes)
{
    int err = begin_call(world, GWI_OP_RECV, peer);

    if (err < 0)
        return err;
    struct peer *p = &world->peers[peer];
    pthread_mutex_lock(&world->lock);
    err = begin_receiving(world, peer);
    if (err == 0) {
        p->buffer = buffer;
        p->capacity = capacity;
        err = await(world, peer, BYTES);
        if (err == 0 && p->want == TOO_LONG)
            err = too_long(peer, p->total, capacity);
        else if (err == 0 && p->want == DONE)
            *ret_n_bytes = p->total;
        else if (err == 0)
            err = take_kept(p, peer, buffer, capacity, ret_n_bytes);
        end_receiving(world, p);
    }
    pthread_mutex_unlock(&world->lock);
    return gwi_world_end(world, err);
}

/* the barrier */

/* A rank that has left or died will not arrive. */
static int check_missing(const gw_world *world)
{
    gwi_fabric *f = world->fabric;
    int missing[GWI_MAX_SIZE];
    int n = f->ops->barrier_missing(f, missing, GWI_MAX_SIZE);

    return gwi_check_fates(world, missing, n, "a barrier");
}

/* One thread of this process is in a barrier at a time. */
static int begin_barrier(gw_world *world, gwi_wait *w)
{
    int err = 0;

    while (world->in_barrier && err >= 0)
        err = pause_locked(w);
    if (err < 0)
        return err;
    world->in_barrier = 1;
    /* After a wait that failed we have arrived already, and go on waiting. */
    if (!world->arrived)
        world->fabric->ops->barrier_arrive(world->fabric);
    world->arrived = 1;
    return 0;
}

static int barrier_locked(gw_world *world)
{
    gwi_fabric *f = world->fabric;
    gwi_wait w = {.world = world, .call = "a barrier", .missing = missing_at_barrier, .ctx = world};
    int err = begin_barrier(world, &w), entered = err == 0;

    while (err >= 0 && !f->ops->barrier_done(f)) {
        err = poll_all_locked(world);
        if (err == 0 && (err = pause_locked(&w)) > 0)
            err = check_missing(world);
    }
    gwi_wait_end(&w);
    if (!entered)
        return err;
    world->arrived = !f->ops->barrier_done(f);
    world->in_barrier = 0;
    nudge(world);
    return world->arrived ? err : 0;
}

int gw_world_barrier(gw_world *world)
{
    int err = gwi_world_begin(world, GWI_OP_BARRIER, -1);

    if (err < 0)
        return err;
    pthread_mutex_lock(&world->lock);
    err = barrier_locked(world);
    pthread_mutex_unlock(&world->lock);
    return gwi_world_end(world, err);
}
