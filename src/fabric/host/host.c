/* host.c - the shared file of a job on one machine: seats, fates, barrier,
 * segments.  host.h has the layout. */
#include "fabric/host/host.h"
#include "base/error.h"
#include "base/thread.h"
#include "fabric/host/meet.h"
#include "fabric/host/process.h"
#include "fabric/job.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x746977646f67) /* "godwit" in the file's first bytes */
#define FORMAT UINT64_C(1)
#define SEATS_AT 4096

/* Differently built programs must refuse each other: the number changes with
 * whatever two processes must agree on. */
#define LAYOUT                                                                   \
    (FORMAT << 56 | (uint64_t)GWI_LINE << 48 | (uint64_t)GWI_N_LANES << 40 |     \
     (uint64_t)sizeof(gwi_host_header) << 24 | (uint64_t)sizeof(gwi_seat) << 8 | \
     (uint64_t)sizeof(gwi_table) >> 4)

static uint64_t tables_at(int size)
{
    return SEATS_AT + (uint64_t)size * sizeof(gwi_seat);
}

static uint64_t whole_bytes(int size, int nodes)
{
    return (tables_at(size) + (uint64_t)nodes * sizeof(gwi_table) + 4095) & ~UINT64_C(4095);
}

/* joining */

struct plan {
    const gwi_job *job;
    uint64_t private_bytes;
};

/* In the gatherer, when all are there: make the file. */
static int prepare(void *ctx, const gwi_attendee *all, int n, int *ret_fd)
{
    const struct plan *plan = ctx;
    int nodes = gwi_place_of(0, n, plan->job->node_size).nodes;
    uint64_t bytes = whole_bytes(n, nodes);
    void *base;
    int fd, err;

    err = gwi_arena_create("godwit", bytes, &fd);
    if (err < 0)
        return err;
    err = gwi_arena_map(fd, 0, bytes, &base);
    if (err < 0) {
        close(fd);
        return err;
    }
    gwi_host_header *h = base;
    h->magic = MAGIC;
    h->layout = LAYOUT;
    h->size = n;
    h->node_size = plan->job->node_size;
    h->file_bytes = bytes;
    snprintf(h->job, sizeof h->job, "%s", plan->job->name);
    gwi_arena_reserve(&h->arena, bytes);
    h->private_offset = gwi_arena_reserve(&h->arena, plan->private_bytes);
    gwi_seat *seats = (gwi_seat *)(void *)((char *)base + SEATS_AT);
    for (int rank = 0; rank < n; rank++) {
        seats[rank].pid = all[rank].pid;
        seats[rank].rank = plan->job->ranks != NULL ? plan->job->ranks[rank] : rank;
        seats[rank].start = all[rank].start;
        gwi_ledger_init(&seats[rank].entry);
        gwi_crowd_enter(&h->crowd);
    }
    gwi_arena_unmap(base, bytes);
    *ret_fd = fd;
    return 0;
}

static int watch_others(gwi_host *host)
{
    for (int rank = 0; rank < host->place.size; rank++) {
        host->pidfds[rank] = -1;
        if (rank == host->place.rank)
            continue;
        const gwi_seat *seat = &host->seats[rank];
        int err = gwi_process_open(seat->pid, seat->start, &host->pidfds[rank]);
        if (err < 0)
            return err;
        if (err == 1 && gwi_host_fate(host, rank) != GWI_LEFT)
            return gwi_fail(GW_EPEER, "rank %d (process %d) died while the job was joining",
                            seat->rank, seat->pid);
    }
    return 0;
}

/* Whether a file that anybody may have made can be mapped without fear: it is long
 * enough and cannot shrink. */
static int file_is_sound(int fd, uint64_t n_bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 &&
           (uint64_t)st.st_size >= n_bytes;
}

/* Whether its header is one that we understand. */
static int header_is_sound(const gwi_host_header *h)
{
    return h->magic == MAGIC && h->layout == LAYOUT && h->size >= 1 && h->size <= GWI_HOST_MAX &&
           h->node_size >= 1 && h->node_size <= h->size &&
           h->file_bytes == whole_bytes(h->size, gwi_place_of(0, h->size, h->node_size).nodes);
}

static int foreign_file(void)
{
    return gwi_fail(
        GW_EDISAGREE,
        "the job's shared memory was made by another version of Godwit; use one version for "
        "all processes of a job");
}

int gwi_host_map(gwi_host *host)
{
    void *base;

    if (!file_is_sound(host->fd, SEATS_AT))
        return foreign_file();
    int err = gwi_arena_map(host->fd, 0, SEATS_AT, &base);
    if (err < 0)
        return err;
    gwi_host_header header = *(const gwi_host_header *)base;
    gwi_arena_unmap(base, SEATS_AT);
    if (!header_is_sound(&header) || !file_is_sound(host->fd, header.file_bytes))
        return foreign_file();
    err = gwi_arena_map(host->fd, 0, header.file_bytes, &base);
    if (err < 0)
        return err;
    madvise(base, header.file_bytes, MADV_DONTFORK);
    host->mapped_bytes = header.file_bytes;
    host->header = base;
    host->seats = (gwi_seat *)(void *)((char *)base + SEATS_AT);
    host->tables = (gwi_table *)(void *)((char *)base + tables_at(header.size));
    return 0;
}

static void forked(void *host)
{
    gwi_host_forked(host);
}

static void free_host(gwi_host *host)
{
    gwi_fork_hook_remove(forked, host);
    gwi_host_segment_close(host, &host->segment); /* one whose opening was given up */
    for (int rank = 0; host->pidfds != NULL && rank < host->place.size; rank++)
        if (host->pidfds[rank] >= 0)
            close(host->pidfds[rank]);
    gwi_arena_unmap(host->header, host->mapped_bytes);
    if (host->fd >= 0)
        close(host->fd);
    pthread_mutex_destroy(&host->lock);
    free(host->pidfds);
    free(host);
}

static void ring_everybody(const gwi_host *host)
{
    for (int rank = 0; rank < host->place.size; rank++)
        for (int lane = 0; lane < GWI_N_LANES; lane++)
            gwi_host_ring(host, rank, lane);
}

/* Tell the others that we are gone, for good. */
static void leave_seat(gwi_host *host)
{
    gwi_seat *seat = &host->seats[host->place.rank];

    atomic_store_explicit(&seat->fate, GWI_LEFT, memory_order_seq_cst);
    gwi_crowd_forget(&host->header->crowd);
    ring_everybody(host);
}

int gwi_host_open(const gwi_job *job, uint64_t private_bytes, gwi_host **ret_host)
{
    struct plan plan = {job, private_bytes};
    int rank, err;

    if (job->size > GWI_HOST_MAX)
        return gwi_fail(GW_EINVAL, "size is %d; one machine holds at most %d processes of a job",
                        job->size, GWI_HOST_MAX);
    gwi_host *host = calloc(1, sizeof *host);
    if (host == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", job->size);
    host->fd = -1;
    host->dead = -1;
    pthread_mutex_init(&host->lock, NULL);
    host->place.size = job->size;
    host->pidfds = malloc((size_t)job->size * sizeof *host->pidfds);
    if (host->pidfds == NULL) {
        err = gwi_fail(GW_ENOMEM, "joining a job of %d processes", job->size);
        goto free_host;
    }
    memset(host->pidfds, 0xff, (size_t)job->size * sizeof *host->pidfds);

    err = gwi_meet(job, LAYOUT, prepare, &plan, &rank, &host->fd);
    if (err < 0)
        goto free_host;
    host->place = gwi_place_of(rank, job->size, job->node_size);
    err = gwi_host_map(host);
    if (err < 0)
        goto free_host;
    err = watch_others(host);
    if (err < 0)
        goto free_host;
    err = gwi_fork_hook_add(forked, host);
    if (err < 0)
        goto free_host;
    *ret_host = host;
    return 0;

free_host:
    if (host->header != NULL)
        leave_seat(host);
    free_host(host);
    return err;
}

/* leaving */

void gwi_host_close(gwi_host *host)
{
    if (host == NULL)
        return;
    leave_seat(host);
    free_host(host);
}

void gwi_host_forked(gwi_host *host)
{
    for (int rank = 0; rank < host->place.size; rank++)
        if (host->pidfds[rank] >= 0)
            close(host->pidfds[rank]);
    close(host->fd);
}

/* fates */

gwi_fate gwi_host_fate(const gwi_host *host, int rank)
{
    return (gwi_fate)atomic_load_explicit(&host->seats[rank].fate, memory_order_acquire);
}

static void close_pidfd(gwi_host *host, int rank)
{
    int fd = host->pidfds[rank];

    host->pidfds[rank] = -1; /* first: a child forked in between must not close it again */
    close(fd);
}

/* A rank's process has ended.  Did it leave before? */
static void note_end_locked(gwi_host *host, int rank)
{
    int32_t here = GWI_HERE, none = 0;

    close_pidfd(host, rank);
    if (gwi_host_fate(host, rank) == GWI_HERE)
        atomic_compare_exchange_strong(&host->header->first_dead_1, &none, rank + 1);
    /* Whoever makes the change mends what the dead one left behind. */
    if (atomic_compare_exchange_strong(&host->seats[rank].fate, &here, GWI_DEAD))
        gwi_crowd_forget(&host->header->crowd);
    if (gwi_host_fate(host, rank) == GWI_DEAD)
        host->dead = atomic_load(&host->header->first_dead_1) - 1;
}

static void find_deaths_locked(gwi_host *host)
{
    struct pollfd polls[GWI_HOST_MAX];
    nfds_t n = (nfds_t)host->place.size;

    for (nfds_t rank = 0; rank < n; rank++)
        polls[rank] = (struct pollfd){host->pidfds[rank], POLLIN, 0};
    if (poll(polls, n, 0) <= 0)
        return;
    for (nfds_t rank = 0; rank < n; rank++)
        if (polls[rank].revents != 0)
            note_end_locked(host, (int)rank);
}

int gwi_host_check(gwi_host *host)
{
    pthread_mutex_lock(&host->lock);
    find_deaths_locked(host);
    int dead = host->dead;
    pthread_mutex_unlock(&host->lock);
    if (dead < 0)
        return 0;
    return gwi_fail(GW_EPEER, "rank %d (process %d) died", host->seats[dead].rank,
                    host->seats[dead].pid);
}

/* the ledger */

void gwi_host_print_ledger(gwi_host *host, FILE *to)
{
    static const char *const fates[] = {
        [GWI_HERE] = NULL, [GWI_LEFT] = "has left", [GWI_DEAD] = "died"};
    int n = host->place.size;
    gwi_ledger_row *rows = calloc((size_t)n, sizeof *rows);

    if (rows == NULL)
        return;
    for (int rank = 0; rank < n; rank++) {
        gwi_seat *seat = &host->seats[rank];
        rows[rank] = (gwi_ledger_row){
            .rank = seat->rank,
            .pid = seat->pid,
            .fate = fates[(unsigned)gwi_host_fate(host, rank) % 3],
            .entry = &seat->entry,
        };
    }
    gwi_ledger_print(to, rows, n);
    free(rows);
}

/* the barrier */

void gwi_host_barrier_arrive(gwi_host *host)
{
    gwi_seat *me = &host->seats[host->place.rank];
    uint64_t size = (uint64_t)host->place.size;

    pthread_mutex_lock(&host->lock);
    uint64_t all = host->barrier * size;
    if (atomic_load_explicit(&host->header->arrivals, memory_order_acquire) >= all) {
        /* The last one is complete, so this is the next. */
        host->barrier++;
        atomic_store_explicit(&me->barriers, host->barrier, memory_order_relaxed);
        /* What we did before is seen by those who see the barrier complete. */
        uint64_t before = atomic_fetch_add_explicit(&host->header->arrivals, 1,
                                                    memory_order_seq_cst);
        if (before + 1 == host->barrier * size)
            for (int rank = 0; rank < host->place.size; rank++)
                gwi_host_ring(host, rank, GWI_LANE_WORLD);
    }
    pthread_mutex_unlock(&host->lock);
}

int gwi_host_barrier_done(gwi_host *host)
{
    return atomic_load_explicit(&host->header->arrivals, memory_order_acquire) >=
           host->barrier * (uint64_t)host->place.size;
}

int gwi_host_barrier_missing(gwi_host *host, int *ret_ranks, int n_max)
{
    int n = 0;

    for (int rank = 0; rank < host->place.size; rank++)
        if (atomic_load_explicit(&host->seats[rank].barriers, memory_order_relaxed) <
            host->barrier) {
            if (n < n_max)
                ret_ranks[n] = rank;
            n++;
        }
    return n;
}

/* segments */

#define TAIL_BYTES 4096

static gwi_segment_tail *tail_of(const gwi_segment *segment)
{
    return (gwi_segment_tail *)(void *)((char *)segment->base + segment->n_bytes);
}

static int map_segment(const gwi_host *host, gwi_segment *segment)
{
    int err = gwi_arena_map(host->fd, segment->offset, segment->n_bytes + TAIL_BYTES,
                            &segment->base);

    if (err == 0)
        atomic_fetch_add_explicit(&tail_of(segment)->users, 1, memory_order_relaxed);
    return err;
}

int gwi_host_segment_map(gwi_host *host, uint64_t offset, size_t n_bytes, gwi_segment *ret_segment)
{
    gwi_segment segment = {.offset = offset, .n_bytes = n_bytes};
    int err = map_segment(host, &segment);

    if (err == 0)
        *ret_segment = segment;
    return err;
}

/* The memory at its end, which says who uses it, and the first `n_now` bytes. */
static int fill_segment(gwi_host *host, size_t n_now, gwi_segment *segment)
{
    int err = gwi_arena_allocate(host->fd, segment->offset + segment->n_bytes, TAIL_BYTES);

    if (err < 0)
        return err;
    err = map_segment(host, segment);
    if (err == 0 && n_now > 0)
        err = gwi_host_segment_need(host, segment, 0, n_now);
    if (err < 0 && segment->base != NULL)
        gwi_host_segment_close(host, segment);
    else if (err < 0)
        gwi_arena_release(host->fd, segment->offset, segment->n_bytes + TAIL_BYTES);
    return err;
}

int gwi_host_segment_make(gwi_host *host, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    gwi_segment segment = {.n_bytes = (n_bytes + 4095) & ~(size_t)4095};

    segment.offset = gwi_arena_reserve(&host->header->arena, segment.n_bytes + TAIL_BYTES);
    int err = fill_segment(host, n_now < n_bytes ? n_now : segment.n_bytes, &segment);
    if (err == 0)
        *ret_segment = segment;
    return err;
}

void gwi_host_segment_close(gwi_host *host, gwi_segment *segment)
{
    if (segment->base == NULL)
        return;
    size_t whole = segment->n_bytes + TAIL_BYTES;
    uint32_t users = atomic_fetch_sub_explicit(&tail_of(segment)->users, 1, memory_order_acq_rel);
    gwi_arena_unmap(segment->base, whole);
    if (users == 1)
        gwi_arena_release(host->fd, segment->offset, whole);
    *segment = (gwi_segment){0};
}

static void ring_node(const gwi_host *host)
{
    int first = host->place.node * host->place.node_size;

    for (int i = 0; i < host->place.local_size; i++)
        gwi_host_ring(host, first + i, GWI_LANE_WORLD);
}

/* The leader makes the extent and tells where it is, or why there is none. */
static int lead(gwi_host *host, gwi_table *table, gwi_segment *segment)
{
    segment->offset = gwi_arena_reserve(&host->header->arena, segment->n_bytes + TAIL_BYTES);
    int err = fill_segment(host, host->segment_now, segment);
    table->offset = segment->offset;
    table->n_bytes = segment->n_bytes;
    table->err = err;
    /* Pairs with the acquire in map_locked(). */
    atomic_store_explicit(&table->round, host->round, memory_order_seq_cst);
    ring_node(host);
    return err;
}

static int follow(gwi_host *host, const gwi_table *table, gwi_segment *segment)
{
    int leader = host->seats[host->place.node * host->place.node_size].rank;

    if (table->err < 0)
        return gwi_fail(table->err, "rank %d could not make a segment of %zu bytes for node %d",
                        leader, segment->n_bytes, host->place.node);
    if (table->n_bytes != segment->n_bytes)
        return gwi_fail(GW_EDISAGREE, "rank %d asks for a segment of %zu bytes, rank %d for %llu",
                        host->seats[host->place.rank].rank, segment->n_bytes, leader,
                        (unsigned long long)table->n_bytes);
    segment->offset = table->offset;
    return map_segment(host, segment);
}

/* First half of a round: get the segment.  Returns 1 when that is over. */
static int map_locked(gwi_host *host, gwi_table *table)
{
    int leads = host->place.local_rank == 0;

    if (!leads && atomic_load_explicit(&table->round, memory_order_acquire) < host->round)
        return 0;
    host->segment_err = leads ? lead(host, table, &host->segment)
                              : follow(host, table, &host->segment);
    if (host->segment_err < 0)
        atomic_store_explicit(&table->failed[host->round % 2], host->round, memory_order_relaxed);
    atomic_fetch_add_explicit(&table->finished, 1, memory_order_seq_cst);
    ring_node(host);
    return 1;
}

/* Second half: wait until all have it or have failed; also those who failed, for
 * the table is free for the next round only when all have read it (R10). */
static int finish_locked(gwi_host *host, gwi_table *table, gwi_segment *ret_segment)
{
    uint64_t all = host->round * (uint64_t)host->place.local_size;

    if (atomic_load_explicit(&table->finished, memory_order_acquire) < all)
        return 0;
    int err = host->segment_err;
    if (err == 0 &&
        atomic_load_explicit(&table->failed[host->round % 2], memory_order_relaxed) == host->round)
        err = gwi_fail(GW_EDISAGREE,
                       "another process of node %d could not map the segment of %zu bytes",
                       host->place.node, host->segment.n_bytes);
    if (err < 0)
        gwi_host_segment_close(host, &host->segment);
    else
        *ret_segment = host->segment;
    host->segment = (gwi_segment){0}; /* the caller's now, or closed */
    return err < 0 ? err : 1;
}

static int open_locked(gwi_host *host, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    gwi_table *table = &host->tables[host->place.node];
    int done = 0;

    if (host->opening == GWI_NOT_OPENING) {
        host->round++;
        host->segment = (gwi_segment){.n_bytes = (n_bytes + 4095) & ~(size_t)4095};
        host->segment_now = n_now;
        host->opening = GWI_MAPPING;
    }
    if (host->opening == GWI_MAPPING && map_locked(host, table))
        host->opening = GWI_FINISHING;
    if (host->opening == GWI_FINISHING && (done = finish_locked(host, table, ret_segment)) != 0)
        host->opening = GWI_NOT_OPENING;
    return done;
}

int gwi_host_segment_open(gwi_host *host, size_t n_bytes, size_t n_now, gwi_segment *ret_segment)
{
    if (n_bytes == 0 || n_bytes > SIZE_MAX / 2 || n_now > n_bytes)
        return gwi_fail(GW_EINVAL, "a segment of %zu bytes was asked for", n_bytes);
    pthread_mutex_lock(&host->lock);
    int done = open_locked(host, n_bytes, n_now, ret_segment);
    pthread_mutex_unlock(&host->lock);
    return done;
}

int gwi_host_segment_need(const gwi_host *host, const gwi_segment *segment, size_t at,
                          size_t n_bytes)
{
    return gwi_arena_allocate_mapped(host->fd, segment->offset + at,
                                     (unsigned char *)segment->base + at, n_bytes);
}
