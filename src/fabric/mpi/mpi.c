/* mpi.c - the fabric of an MPI world.
 *
 * The ranks of each host have a shm fabric among themselves, `local`, in which
 * they are numbered by hosts.index.  It carries the messages inside a node, the
 * segments, the deaths, and the host's part of a barrier.  Messages between nodes
 * go by MPI (post.h), also between virtual nodes of one host.
 *
 * Barriers over several hosts: when all ranks of a host have arrived, each of them
 * writes a note to some ranks of the other hosts, so that every rank hears once of
 * every other host.
 *
 * Leaving: MPI keeps order only within a lane, so the note that a rank has left may
 * come before what it sent last.  It therefore says how much that was, and is
 * believed when all of it is here.                                            */
#include "fabric/mpi/mpi.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "fabric/mpi/hosts.h"
#include "fabric/mpi/plugin.h"
#include "fabric/mpi/post.h"
#include "fabric/mpi/wire.h"
#include "fabric/shm/shm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x676f647769740101) /* "godwit", of frames, notes and cards */
#define LEAVE_NS (200 * GWI_MS) /* for the last frames and notes to go out; they need some us */

/* What is known of a rank on another node. */
struct far_rank {
    _Atomic int left;             /* its note has come; the rest is set before */
    uint64_t barrier;             /* at which it has arrived last */
    uint64_t frames[GWI_N_LANES]; /* it ever sent us */
};

struct mpi {
    gwi_fabric fabric;
    /* set at open, then constant */
    const struct gwi_mpi_shim *shim;
    gwi_mpi_comm comm;
    int epoch; /* how many worlds used it before */
    gwi_hosts hosts;
    gwi_fabric *local;
    gwi_post *post; /* NULL: there is one node only */
    struct far_rank *far_ranks;
    /* under `lock`, as are the lane of notes and the barrier */
    pthread_mutex_t lock;
    uint64_t barrier;  /* the one we are in or were in last */
    uint64_t told;     /* that we have told everybody of whom we have to tell */
    int told_ranks;    /* of the one after it: so many ranks were looked at */
    uint64_t *reached; /* by host: the last barrier at which all of it has arrived */
};

static struct mpi *self(gwi_fabric *f)
{
    return (struct mpi *)f;
}

static int same_node(const struct mpi *m, int rank)
{
    return m->hosts.places[rank].node == m->fabric.place.node;
}

static int same_host(const struct mpi *m, int rank)
{
    return m->hosts.host[rank] == m->hosts.host[m->fabric.place.rank];
}

/* messages */

static int mpi_send(gwi_fabric *f, gwi_outgoing *out)
{
    struct mpi *m = self(f);
    int peer = out->peer;

    if (!same_node(m, peer))
        return gwi_post_send(m->post, out);
    out->peer = m->hosts.index[peer];
    int done = m->local->ops->send(m->local, out);
    out->peer = peer;
    return done;
}

static void mpi_abandon(gwi_fabric *f, gwi_outgoing *out)
{
    struct mpi *m = self(f);
    int peer = out->peer;

    if (!same_node(m, peer)) {
        gwi_post_abandon(m->post, out);
        return;
    }
    out->peer = m->hosts.index[peer];
    m->local->ops->abandon(m->local, out);
    out->peer = peer;
}

/* A piece from the local fabric, with its source as the world knows it. */
struct renamed {
    const int *here;
    gwi_deliver *deliver;
    void *ctx;
};

static int deliver_renamed(void *ctx, const gwi_piece *piece)
{
    const struct renamed *r = ctx;
    gwi_piece named = *piece;

    named.source = r->here[piece->source];
    return r->deliver(r->ctx, &named);
}

static int poll_local(struct mpi *m, int lane, int source, gwi_deliver *deliver, void *ctx)
{
    struct renamed r = {m->hosts.here, deliver, ctx};

    if (m->hosts.n == 1)
        return m->local->ops->poll(m->local, lane, source, deliver, ctx);
    return m->local->ops->poll(m->local, lane, source < 0 ? source : m->hosts.index[source],
                               deliver_renamed, &r);
}

/* notes */

static int take_note(void *ctx, const gwi_piece *piece)
{
    struct mpi *m = ctx;
    struct far_rank *from = &m->far_ranks[piece->source];
    uint64_t *reached = &m->reached[m->hosts.host[piece->source]];
    gwi_note note;

    int err = gwi_note_read(piece->source, piece->bytes, piece->n_bytes, &note);
    if (err < 0)
        return err;
    if (note.kind == GWI_NOTE_LEFT) {
        from->barrier = note.barrier;
        memcpy(from->frames, note.frames, sizeof from->frames);
        atomic_store_explicit(&from->left, 1, memory_order_release);
    } else if (note.barrier > *reached) {
        *reached = note.barrier;
    }
    return 0;
}

/* Returns whether the note has been handed over. */
static int write_note(struct mpi *m, int peer, const gwi_note *note)
{
    gwi_outgoing out = {
        .peer = peer, .lane = GWI_LANE_NOTES, .bytes = note, .n_bytes = sizeof *note};

    int err = gwi_post_send(m->post, &out);
    return err < 0 ? err : out.begun;
}

/* Whether it is us who tells `rank` of our host's arrival. */
static int ours_to_tell(const struct mpi *m, int rank)
{
    return !same_host(m, rank) &&
           m->hosts.index[rank] % m->hosts.n_here == m->hosts.index[m->fabric.place.rank];
}

static int tell_arrival_locked(struct mpi *m)
{
    gwi_note note = {.kind = GWI_NOTE_BARRIER, .barrier = m->barrier};
    int done = 1;

    if (m->told == m->barrier || !m->local->ops->barrier_done(m->local))
        return 0;
    for (; m->told_ranks < m->hosts.size; m->told_ranks++)
        if (ours_to_tell(m, m->told_ranks) && (done = write_note(m, m->told_ranks, &note)) <= 0)
            return done;
    m->told = m->barrier;
    m->told_ranks = 0;
    return 0;
}

static int attend_locked(struct mpi *m)
{
    int err = gwi_post_poll(m->post, GWI_LANE_NOTES, -1, take_note, m);

    return err < 0 ? err : tell_arrival_locked(m);
}

/* Read and write the notes that are due, unless another thread is at it. */
static int attend(struct mpi *m)
{
    if (m->post == NULL || pthread_mutex_trylock(&m->lock) != 0)
        return 0;
    int err = attend_locked(m);
    pthread_mutex_unlock(&m->lock);
    return err < 0 ? err : 0;
}

static int mpi_poll(gwi_fabric *f, int lane, int source, gwi_deliver *deliver, void *ctx)
{
    struct mpi *m = self(f);
    int near = 0, far = 0;

    if (source < 0 || same_node(m, source))
        near = poll_local(m, lane, source, deliver, ctx);
    if (near < 0 || m->post == NULL)
        return near;
    if (source < 0 || !same_node(m, source))
        far = gwi_post_poll(m->post, lane, source, deliver, ctx);
    return far < 0 ? far : near + far;
}

/* waiting */

static void mpi_waiter_init(gwi_fabric *f, int lane, gwi_waiter *ret_waiter)
{
    struct mpi *m = self(f);

    m->local->ops->waiter_init(m->local, lane, ret_waiter);
    ret_waiter->polls = m->post != NULL;
}

static void mpi_nudge(gwi_fabric *f, int rank, int lane)
{
    struct mpi *m = self(f);

    m->local->ops->nudge(m->local, m->hosts.index[rank], lane);
}

/* the barrier */

static int barrier_done_locked(struct mpi *m)
{
    if (!m->local->ops->barrier_done(m->local))
        return 0;
    for (int host = 0; host < m->hosts.n; host++)
        if (host != m->hosts.host[m->fabric.place.rank] && m->reached[host] < m->barrier)
            return 0;
    /* Our own notes must be out, for we may do anything afterwards but poll. */
    return m->told == m->barrier;
}

static void mpi_barrier_arrive(gwi_fabric *f)
{
    struct mpi *m = self(f);

    if (m->hosts.n == 1) {
        m->local->ops->barrier_arrive(m->local);
        return;
    }
    pthread_mutex_lock(&m->lock);
    if (barrier_done_locked(m)) {
        m->barrier++;
        m->local->ops->barrier_arrive(m->local);
    }
    pthread_mutex_unlock(&m->lock);
}

static int mpi_barrier_done(gwi_fabric *f)
{
    struct mpi *m = self(f);

    if (m->hosts.n == 1)
        return m->local->ops->barrier_done(m->local);
    pthread_mutex_lock(&m->lock);
    /* An error comes again, at the check() that every wait makes. */
    attend_locked(m);
    int done = barrier_done_locked(m);
    pthread_mutex_unlock(&m->lock);
    return done;
}

/* Of another host it is not known who of it is missing; all its ranks are named, but
 * for those that left after they had arrived. */
static int may_be_missing(const struct mpi *m, int rank)
{
    const struct far_rank *r = &m->far_ranks[rank];
    int left = atomic_load_explicit(&r->left, memory_order_acquire);

    return !same_host(m, rank) && m->reached[m->hosts.host[rank]] < m->barrier &&
           !(left && r->barrier >= m->barrier);
}

static int mpi_barrier_missing(gwi_fabric *f, int *ret_ranks, int n_max)
{
    struct mpi *m = self(f);
    int n = m->local->ops->barrier_missing(m->local, ret_ranks, n_max);

    for (int i = 0; i < n && i < n_max; i++)
        ret_ranks[i] = m->hosts.here[ret_ranks[i]];
    if (m->hosts.n == 1)
        return n;
    pthread_mutex_lock(&m->lock);
    for (int rank = 0; rank < m->hosts.size; rank++)
        if (may_be_missing(m, rank)) {
            if (n < n_max)
                ret_ranks[n] = rank;
            n++;
        }
    pthread_mutex_unlock(&m->lock);
    return n;
}

/* fates */

static int has_left(const struct mpi *m, int rank)
{
    const struct far_rank *r = &m->far_ranks[rank];

    if (!atomic_load_explicit(&r->left, memory_order_acquire))
        return 0;
    for (int lane = 0; lane < GWI_N_LANES; lane++)
        if (!gwi_post_arrived(m->post, lane, rank, r->frames[lane]))
            return 0;
    return 1;
}

static gwi_fate mpi_fate(gwi_fabric *f, int rank)
{
    struct mpi *m = self(f);
    gwi_fate fate = GWI_HERE;

    if (same_host(m, rank))
        fate = m->local->ops->fate(m->local, m->hosts.index[rank]);
    if (same_node(m, rank) || fate == GWI_DEAD)
        return fate;
    return has_left(m, rank) ? GWI_LEFT : GWI_HERE;
}

static int mpi_check(gwi_fabric *f)
{
    struct mpi *m = self(f);
    int err = m->local->ops->check(m->local);

    if (err == GW_EPEER)
        gwi_plugin_note_death();
    return err < 0 ? err : attend(m);
}

static const gwi_entry *mpi_entry_of(gwi_fabric *f, int rank)
{
    struct mpi *m = self(f);

    return same_host(m, rank) ? m->local->ops->entry_of(m->local, m->hosts.index[rank]) : NULL;
}

static void mpi_print_ledger(gwi_fabric *f, FILE *to)
{
    struct mpi *m = self(f);
    int elsewhere = m->hosts.size - m->hosts.n_here;

    m->local->ops->print_ledger(m->local, to);
    if (elsewhere > 0)
        fprintf(to, "\n(%d more %s on other machines)", elsewhere,
                elsewhere == 1 ? "rank" : "ranks");
}

/* segments */

static int mpi_segment_open(gwi_fabric *f, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    return self(f)->local->ops->segment_open(self(f)->local, n_bytes, n_now, ret_segment);
}

static int mpi_segment_need(gwi_fabric *f, const gwi_segment *segment, size_t at, size_t n_bytes)
{
    return self(f)->local->ops->segment_need(self(f)->local, segment, at, n_bytes);
}

static int mpi_shares(gwi_fabric *f, int rank)
{
    return same_node(self(f), rank);
}

static int mpi_segment_make(gwi_fabric *f, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    return self(f)->local->ops->segment_make(self(f)->local, n_bytes, n_now, ret_segment);
}

static int mpi_segment_map(gwi_fabric *f, uint64_t offset, size_t n_bytes, gwi_segment *ret_segment)
{
    return self(f)->local->ops->segment_map(self(f)->local, offset, n_bytes, ret_segment);
}

static void mpi_segment_close(gwi_fabric *f, gwi_segment *segment)
{
    self(f)->local->ops->segment_close(self(f)->local, segment);
}

/* MPI's own collectives */

/* A group has a communicator of its own, that of all ranks too: a collective that was
 * given up must not come between those of others. */
struct gwi_native_group {
    gwi_mpi_comm comm;
};

static int group_open(gwi_fabric *f, const int *ranks, int n_ranks, uint64_t context,
                      gwi_native_group **ret_group)
{
    struct mpi *m = self(f);
    gwi_native_group *group = malloc(sizeof *group);

    if (group == NULL)
        return gwi_fail(GW_ENOMEM, "a communicator of %d ranks", n_ranks);
    int code = m->shim->group(m->comm, ranks, n_ranks, context, &group->comm);
    if (code != 0) {
        free(group);
        return gwi_mpi_failed(m->shim, code, "making a communicator");
    }
    *ret_group = group;
    return 0;
}

static int group_start(gwi_fabric *f, gwi_native_group *group, const gwi_native_call *call,
                       gwi_native_request *ret_request)
{
    struct mpi *m = self(f);
    gwi_mpi_request request;

    int code = m->shim->collective(group->comm, call, &request);
    if (code != 0)
        return gwi_mpi_failed(m->shim, code, "starting a collective");
    ret_request->word = request.word;
    return 0;
}

static int group_test(gwi_fabric *f, gwi_native_request *request)
{
    struct mpi *m = self(f);
    gwi_mpi_request r = {request->word};
    int done = 0;

    int code = m->shim->test(&r, &done);
    request->word = r.word;
    return code != 0 ? gwi_mpi_failed(m->shim, code, "doing a collective") : done;
}

/* MPI knows no way to take a collective back, and forbids to free its request: so that
 * is just left alone. */
static void group_forget(gwi_fabric *f, gwi_native_request *request)
{
    (void)f;
    *request = (gwi_native_request){0};
}

static void group_close(gwi_fabric *f, gwi_native_group *group)
{
    struct mpi *m = self(f);

    if (group != NULL && m->shim->state() == GWI_MPI_RUNNING)
        m->shim->ungroup(&group->comm);
    free(group);
}

static const struct gwi_native_ops mpi_native = {
    .able = 1,
    .open = group_open,
    .start = group_start,
    .test = group_test,
    .forget = group_forget,
    .close = group_close,
};

/* coming and going */

static void free_mpi(struct mpi *m)
{
    if (m->local != NULL)
        m->local->ops->leave(m->local);
    gwi_hosts_fini(&m->hosts);
    pthread_mutex_destroy(&m->lock);
    free(m->far_ranks);
    free(m->reached);
    free(m);
}

/* Tell everybody on other nodes.  Whoever cannot be told in time finds out by its
 * own time limit. */
static void tell_leaving(struct mpi *m, int64_t deadline_ns)
{
    gwi_note note = {.kind = GWI_NOTE_LEFT, .barrier = m->barrier};

    for (int rank = 0; rank < m->hosts.size; rank++) {
        if (same_node(m, rank))
            continue;
        for (int lane = 0; lane < GWI_N_LANES; lane++)
            note.frames[lane] = gwi_post_sent(m->post, lane, rank);
        while (write_note(m, rank, &note) == 0 && gwi_now_ns() < deadline_ns)
            gwi_nap_ns(20 * GWI_US);
    }
}

static void mpi_leave(gwi_fabric *f)
{
    struct mpi *m = self(f);
    int64_t deadline = gwi_deadline_ns(LEAVE_NS);

    if (m->post != NULL && m->shim->state() == GWI_MPI_RUNNING) {
        attend(m);
        tell_leaving(m, deadline);
    }
    gwi_post_close(m->post, deadline);
    free_mpi(m);
}

static const struct gwi_fabric_ops mpi_ops = {
    .name = "mpi",
    .native = &mpi_native,
    .send = mpi_send,
    .reserve = gwi_no_reserve,
    .commit = gwi_no_commit,
    .abandon = mpi_abandon,
    .poll = mpi_poll,
    .waiter_init = mpi_waiter_init,
    .nudge = mpi_nudge,
    .barrier_arrive = mpi_barrier_arrive,
    .barrier_done = mpi_barrier_done,
    .barrier_missing = mpi_barrier_missing,
    .fate = mpi_fate,
    .entry_of = mpi_entry_of,
    .print_ledger = mpi_print_ledger,
    .check = mpi_check,
    .segment_open = mpi_segment_open,
    .segment_need = mpi_segment_need,
    .segment_close = mpi_segment_close,
    .shares = mpi_shares,
    .segment_make = mpi_segment_make,
    .segment_map = mpi_segment_map,
    .leave = mpi_leave,
};

/* What each process tells all others first. */
struct card {
    uint64_t magic, job;
    gwi_host_id host;
    int32_t node_size, unused;
};

static int exchange_failed(const struct mpi *m, const gwi_job *job, int err)
{
    if (err != GW_ETIMEOUT)
        return err;
    return gwi_fail(err,
                    "not all %d processes of the MPI job joined within %g s; let each of them call "
                    "godwit.init(), "
                    "or raise GODWIT_TIMEOUT; rank %d waited",
                    job->size, (double)job->timeout_ns / 1e9, m->fabric.place.rank);
}

/* Give everybody's card to everybody. */
static int exchange(struct mpi *m, const gwi_job *job, const struct card *mine, struct card *all)
{
    int64_t deadline = gwi_deadline_ns(job->timeout_ns);
    gwi_mpi_request request;

    int err = gwi_plugin_comm(m->shim, deadline, &m->comm, &m->epoch);
    if (err == 0) {
        int code = m->shim->gather(m->comm, mine, sizeof *mine, all, &request);
        err = code != 0 ? gwi_mpi_failed(m->shim, code, "joining")
                        : gwi_mpi_wait(m->shim, &request, deadline, "joining");
    }
    return exchange_failed(m, job, err);
}

static int compare(const struct card *all, int size, int rank)
{
    for (int other = 0; other < size; other++) {
        if (all[other].magic != MAGIC)
            return gwi_fail(
                GW_EDISAGREE,
                "rank %d runs another version of Godwit than rank %d, or another kind of "
                "machine; install the same on all machines",
                other, rank);
        if (all[other].node_size != all[rank].node_size)
            return gwi_fail(
                GW_EDISAGREE,
                "rank %d says that a node has %d processes, rank %d says %d; give all the "
                "same GODWIT_NODE_SIZE",
                other, (int)all[other].node_size, rank, (int)all[rank].node_size);
    }
    return 0;
}

static int find_hosts(struct mpi *m, const gwi_job *job, uint64_t *ret_id)
{
    int size = job->size, rank = m->fabric.place.rank;
    struct card mine = {.magic = MAGIC, .host = gwi_host_id_get(), .node_size = job->node_size};
    struct card *all = calloc((size_t)size, sizeof *all);
    gwi_host_id *ids = calloc((size_t)size, sizeof *ids);
    int err;

    if (all == NULL || ids == NULL)
        err = gwi_fail(GW_ENOMEM, "joining a job of %d processes", size);
    else if ((err = gwi_random_entropy(&mine.job, sizeof mine.job)) == 0 &&
             (err = exchange(m, job, &mine, all)) == 0 && (err = compare(all, size, rank)) == 0) {
        for (int r = 0; r < size; r++)
            ids[r] = all[r].host;
        err = gwi_hosts_init(&m->hosts, ids, size, rank, job->node_size);
        *ret_id = all[0].job;
    }
    free(all);
    free(ids);
    return err;
}

/* Join those of our host. */
static int open_local(struct mpi *m, const gwi_job *job, uint64_t id)
{
    gwi_job local = *job;

    local.rank = m->hosts.index[m->fabric.place.rank];
    local.size = m->hosts.n_here;
    if (local.node_size > local.size)
        local.node_size = local.size;
    local.ranks = m->hosts.here;
    snprintf(local.name, sizeof local.name, "mpi:%016llx:%d", (unsigned long long)id,
             m->hosts.host[m->fabric.place.rank]);
    return gwi_shm_open(&local, &m->local);
}

/* The launcher's variables and MPI must speak of the same world. */
static int check_world(const struct mpi *m, const gwi_job *job, int size)
{
    char version[128];

    if (size == job->size)
        return 0;
    m->shim->version(version, sizeof version);
    return gwi_fail(
        GW_EUNSUP,
        "the launcher says that this job has %d processes, but MPI (%s) found %d: the launcher "
        "belongs to another MPI, or there is none; start the job with the mpirun of %s, or on one "
        "machine "
        "with godwit run -n %d",
        job->size, version, size, gwi_mpi_name(job->mpi), job->size);
}

static int start(struct mpi *m, const gwi_job *job)
{
    int rank, size, code, err;

    if ((err = gwi_plugin_load(job->mpi, &m->shim)) < 0 || (err = gwi_plugin_start(m->shim)) < 0)
        return err;
    if ((code = m->shim->world(&rank, &size)) != 0)
        return gwi_mpi_failed(m->shim, code, "asking for the rank");
    m->fabric.place.rank = rank;
    return check_world(m, job, size);
}

static int open_rest(struct mpi *m, const gwi_job *job)
{
    m->far_ranks = calloc((size_t)job->size, sizeof *m->far_ranks);
    m->reached = calloc((size_t)m->hosts.n, sizeof *m->reached);
    if (m->far_ranks == NULL || m->reached == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", job->size);
    m->fabric.place = m->hosts.places[m->fabric.place.rank];
    m->fabric.places = m->hosts.places;
    m->fabric.entry = m->local->entry;
    return m->fabric.place.nodes > 1
               ? gwi_post_open(m->shim, m->comm, m->epoch, job->size, &m->post)
               : 0;
}

int gwi_mpi_open(const gwi_job *job, gwi_fabric **ret_fabric)
{
    uint64_t id = 0;
    int err;

    struct mpi *m = calloc(1, sizeof *m);
    if (m == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", job->size);
    m->fabric.ops = &mpi_ops;
    pthread_mutex_init(&m->lock, NULL);
    if ((err = start(m, job)) < 0 || (err = find_hosts(m, job, &id)) < 0 ||
        (err = open_local(m, job, id)) < 0 || (err = open_rest(m, job)) < 0) {
        free_mpi(m);
        return err;
    }
    *ret_fabric = &m->fabric;
    return 0;
}
