/* shm.c - the fabric of one machine.
 *
 * Every ordered pair of ranks has a ring per lane.  All rings have their place
 * in the job's shared file from the start, and take memory when their sender
 * first uses them: it allocates the ring, then sets its bit in the receiver's
 * port.  The receiver looks only at rings that are open.                     */
#include "fabric/shm/shm.h"
#include "base/error.h"
#include "fabric/host/host.h"
#include "fabric/shm/ring.h"

#include <stdlib.h>
#include <sys/mman.h>

#define EARLY_BYTES (64 * 1024) /* about 4 us of copying */
#define WORDS(size) (((size) + 63) / 64)

/* One lane: both ends of this process, by rank, and whose rings are open. */
struct lane {
    gwi_ring_giver *givers; /* by one sending thread */
    gwi_ring_taker *takers; /* by one polling thread, as the rest */
    int *open;              /* ranks whose rings to us are open */
    int n_open;
    uint64_t known[GWI_HOST_MAX / 64]; /* as `open`, as bits */
};

struct shm {
    gwi_fabric fabric;
    /* set at open, then constant */
    gwi_host *host;
    unsigned char *rings;
    uint64_t capacity, stride;
    uint64_t rings_bytes;
    struct lane lanes[GWI_N_LANES];
};

static struct shm *self(gwi_fabric *f)
{
    return (struct shm *)f;
}

/* Long rings let both ends of a long message copy at once; many ranks must
 * share what memory there is: 128 ranks that all talk to all take 0.5 GB. */
static uint64_t capacity_for(int size)
{
    return size <= 8 ? 1 << 20 : size <= 32 ? 256 << 10 : size <= 64 ? 64 << 10 : 32 << 10;
}

static uint64_t ring_index(const struct shm *s, int from, int to, int lane)
{
    return ((uint64_t)to * (uint64_t)s->fabric.place.size + (uint64_t)from) * GWI_N_LANES +
           (uint64_t)lane;
}

static gwi_ring_shared *ring_at(const struct shm *s, int from, int to, int lane)
{
    return (gwi_ring_shared *)(void *)(s->rings + ring_index(s, from, to, lane) * s->stride);
}

/* sending */

static int open_ring(struct shm *s, int peer, int lane)
{
    int me = s->fabric.place.rank;
    uint64_t offset = s->host->header->private_offset + ring_index(s, me, peer, lane) * s->stride;

    int err = gwi_arena_allocate(s->host->fd, offset, s->stride);
    if (err < 0)
        return err;
    gwi_ring_giver_init(&s->lanes[lane].givers[peer], ring_at(s, me, peer, lane), s->capacity);
    /* Pairs with find_new_rings(): the memory is there before the bit. */
    atomic_fetch_or_explicit(&s->host->seats[peer].ports[lane].opened[me / 64],
                             UINT64_C(1) << (me % 64), memory_order_release);
    return 0;
}

static int shm_send(gwi_fabric *f, gwi_outgoing *out)
{
    struct shm *s = self(f);
    gwi_ring_giver *giver = &s->lanes[out->lane].givers[out->peer];

    if (gwi_unlikely(giver->ring == NULL)) {
        int err = open_ring(s, out->peer, out->lane);
        if (err < 0)
            return err;
    }
    gwi_ring_given given;
    do {
        given = gwi_ring_give(giver, out);
        /* A receiver that sleeps is woken once for a short message, early for a
         * long one. */
        if (given != GWI_RING_PART || out->sent >= EARLY_BYTES)
            gwi_host_ring(s->host, out->peer, out->lane);
    } while (given == GWI_RING_PART);
    return given == GWI_RING_ALL;
}

static void *shm_reserve(gwi_fabric *f, int peer, int lane, size_t *ret_n_bytes)
{
    gwi_ring_giver *giver = &self(f)->lanes[lane].givers[peer];

    if (gwi_unlikely(giver->ring == NULL) && open_ring(self(f), peer, lane) < 0)
        return NULL; /* send() says why */
    return gwi_ring_reserve(giver, ret_n_bytes);
}

static void shm_commit(gwi_fabric *f, int peer, int lane, size_t n_bytes)
{
    gwi_ring_commit(&self(f)->lanes[lane].givers[peer], n_bytes);
    gwi_host_ring(self(f)->host, peer, lane);
}

static void shm_abandon(gwi_fabric *f, gwi_outgoing *out)
{
    gwi_ring_abandon(&self(f)->lanes[out->lane].givers[out->peer], out);
}

/* receiving */

static void find_new_rings(struct shm *s, int lane)
{
    struct lane *l = &s->lanes[lane];
    gwi_port *port = &s->host->seats[s->fabric.place.rank].ports[lane];

    for (int word = 0; word < WORDS(s->fabric.place.size); word++) {
        uint64_t bits = atomic_load_explicit(&port->opened[word], memory_order_acquire) &
                        ~l->known[word];
        for (; bits != 0; bits &= bits - 1) {
            int source = word * 64 + __builtin_ctzll(bits);
            if (source >= s->fabric.place.size)
                break;
            gwi_ring_taker_init(&l->takers[source], ring_at(s, source, s->fabric.place.rank, lane),
                                s->capacity);
            l->open[l->n_open++] = source;
            l->known[word] |= UINT64_C(1) << (source % 64);
        }
    }
}

static int poll_one(struct shm *s, int lane, int source, gwi_deliver *deliver, void *ctx)
{
    int room = 0;
    int n = gwi_ring_take(&s->lanes[lane].takers[source], source, deliver, ctx, &room);

    if (room)
        gwi_host_ring(s->host, source, lane);
    return n;
}

static int shm_poll(gwi_fabric *f, int lane, int source, gwi_deliver *deliver, void *ctx)
{
    struct shm *s = self(f);
    struct lane *l = &s->lanes[lane];
    int total = 0;

    if (source >= 0 && gwi_likely(l->takers[source].ring != NULL))
        return poll_one(s, lane, source, deliver, ctx);
    find_new_rings(s, lane);
    if (source >= 0)
        return l->takers[source].ring != NULL ? poll_one(s, lane, source, deliver, ctx) : 0;
    for (int i = 0; i < l->n_open; i++) {
        int n = poll_one(s, lane, l->open[i], deliver, ctx);
        if (n < 0)
            return n;
        total += n;
    }
    return total;
}

/* waiting */

static void shm_waiter_init(gwi_fabric *f, int lane, gwi_waiter *ret_waiter)
{
    struct shm *s = self(f);

    gwi_waiter_init(ret_waiter, gwi_host_bell(s->host, f->place.rank, lane),
                    &s->host->header->crowd);
}

static void shm_nudge(gwi_fabric *f, int rank, int lane)
{
    gwi_host_ring(self(f)->host, rank, lane);
}

/* what the host does for us */

static void shm_barrier_arrive(gwi_fabric *f)
{
    gwi_host_barrier_arrive(self(f)->host);
}

static int shm_barrier_done(gwi_fabric *f)
{
    return gwi_host_barrier_done(self(f)->host);
}

static int shm_barrier_missing(gwi_fabric *f, int *ret_ranks, int n_max)
{
    return gwi_host_barrier_missing(self(f)->host, ret_ranks, n_max);
}

static gwi_fate shm_fate(gwi_fabric *f, int rank)
{
    return gwi_host_fate(self(f)->host, rank);
}

static const gwi_entry *shm_entry_of(gwi_fabric *f, int rank)
{
    return &self(f)->host->seats[rank].entry;
}

static void shm_print_ledger(gwi_fabric *f, FILE *to)
{
    gwi_host_print_ledger(self(f)->host, to);
}

static int shm_check(gwi_fabric *f)
{
    return gwi_host_check(self(f)->host);
}

static int shm_segment_open(gwi_fabric *f, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    return gwi_host_segment_open(self(f)->host, n_bytes, n_now, ret_segment);
}

static int shm_segment_need(gwi_fabric *f, const gwi_segment *segment, size_t at, size_t n_bytes)
{
    return gwi_host_segment_need(self(f)->host, segment, at, n_bytes);
}

static int shm_shares(gwi_fabric *f, int rank)
{
    (void)f, (void)rank;
    return 1;
}

static int shm_segment_make(gwi_fabric *f, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    return gwi_host_segment_make(self(f)->host, n_bytes, n_now, ret_segment);
}

static int shm_segment_map(gwi_fabric *f, uint64_t offset, size_t n_bytes, gwi_segment *ret_segment)
{
    return gwi_host_segment_map(self(f)->host, offset, n_bytes, ret_segment);
}

static void shm_segment_close(gwi_fabric *f, gwi_segment *segment)
{
    gwi_host_segment_close(self(f)->host, segment);
}

/* coming and going */

static void free_shm(struct shm *s)
{
    for (int lane = 0; lane < GWI_N_LANES; lane++) {
        for (int peer = 0; s->lanes[lane].givers != NULL && peer < s->fabric.place.size; peer++)
            gwi_ring_giver_fini(&s->lanes[lane].givers[peer]);
        free(s->lanes[lane].givers);
        free(s->lanes[lane].takers);
        free(s->lanes[lane].open);
    }
    gwi_arena_unmap(s->rings, s->rings_bytes);
    gwi_host_close(s->host);
    free(s);
}

static void shm_leave(gwi_fabric *f)
{
    free_shm(self(f));
}

static const struct gwi_fabric_ops shm_ops = {
    .name = "shm",
    .native = &gwi_no_native,
    .send = shm_send,
    .reserve = shm_reserve,
    .commit = shm_commit,
    .abandon = shm_abandon,
    .poll = shm_poll,
    .waiter_init = shm_waiter_init,
    .nudge = shm_nudge,
    .barrier_arrive = shm_barrier_arrive,
    .barrier_done = shm_barrier_done,
    .barrier_missing = shm_barrier_missing,
    .fate = shm_fate,
    .entry_of = shm_entry_of,
    .print_ledger = shm_print_ledger,
    .check = shm_check,
    .segment_open = shm_segment_open,
    .segment_need = shm_segment_need,
    .segment_close = shm_segment_close,
    .shares = shm_shares,
    .segment_make = shm_segment_make,
    .segment_map = shm_segment_map,
    .leave = shm_leave,
};

static int allocate_ends(struct shm *s, int size)
{
    for (int lane = 0; lane < GWI_N_LANES; lane++) {
        struct lane *l = &s->lanes[lane];
        l->givers = calloc((size_t)size, sizeof *l->givers);
        l->takers = calloc((size_t)size, sizeof *l->takers);
        l->open = calloc((size_t)size, sizeof *l->open);
        if (l->givers == NULL || l->takers == NULL || l->open == NULL)
            return gwi_fail(GW_ENOMEM, "joining a job of %d processes", size);
    }
    return 0;
}

static int map_rings(struct shm *s)
{
    void *base;
    int err = gwi_arena_map(s->host->fd, s->host->header->private_offset, s->rings_bytes, &base);

    if (err < 0)
        return err;
    s->rings = base;
    madvise(base, s->rings_bytes, MADV_DONTFORK);
    madvise(base, s->rings_bytes, MADV_DONTDUMP);
    return 0;
}

int gwi_shm_open(const gwi_job *job, gwi_fabric **ret_fabric)
{
    int err;

    struct shm *s = calloc(1, sizeof *s);
    if (s == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", job->size);
    s->fabric.ops = &shm_ops;
    s->capacity = capacity_for(job->size);
    s->stride = (gwi_ring_bytes(s->capacity) + 4095) & ~UINT64_C(4095);
    s->rings_bytes = (uint64_t)job->size * (uint64_t)job->size * GWI_N_LANES * s->stride;
    err = allocate_ends(s, job->size);
    if (err < 0)
        goto free_shm;
    err = gwi_host_open(job, s->rings_bytes, &s->host);
    if (err < 0)
        goto free_shm;
    s->fabric.place = s->host->place;
    s->fabric.entry = &s->host->seats[s->fabric.place.rank].entry;
    err = map_rings(s);
    if (err < 0)
        goto free_shm;
    *ret_fabric = &s->fabric;
    return 0;

free_shm:
    free_shm(s);
    return err;
}
