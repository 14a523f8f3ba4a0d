/* host.h - what the processes of a job on one machine know of each other.
 *
 * All of it lies at the start of the job's shared file (arena.h):
 *
 *      0             header: what it is, for how many, the barrier
 *      4096          seats: one per rank; who it is, its fate, its bells
 *      ...           tables: one per node, for agreeing on segments
 *      2 MB aligned  extents
 *
 * docs/shm-layout.md draws it byte by byte.                                  */
#ifndef GWI_FABRIC_HOST_HOST_H
#define GWI_FABRIC_HOST_HOST_H

#include "base/platform.h"
#include "base/wait.h"
#include "fabric/fabric.h"
#include "fabric/host/arena.h"
#include "fabric/ledger.h"

#include <pthread.h>
#include <stdint.h>

#define GWI_HOST_MAX 1024 /* processes on one machine */

/* One lane's inbox of a rank. */
typedef struct gwi_port {
    /* rung by whoever sends to this rank or makes room for it; slept on by it */
    _Alignas(GWI_LINE) gwi_bell bell;
    /* bit s: rank s has opened its ring to here.  Set by rank s, once. */
    _Alignas(GWI_LINE) _Atomic uint64_t opened[GWI_HOST_MAX / 64];
} gwi_port;

/* A rank's place in shared memory. */
typedef struct gwi_seat {
    /* set by the gatherer before anybody joins, then constant */
    _Alignas(GWI_LINE) int32_t pid;
    int32_t rank; /* as the world calls it, which may span machines */
    uint64_t start;
    /* a gwi_fate: LEFT is set by the rank itself, DEAD by whoever finds it so */
    _Alignas(GWI_LINE) _Atomic int32_t fate;
    /* how many barriers the rank has arrived at; written by it */
    _Atomic uint64_t barriers;
    gwi_port ports[GWI_N_LANES];
    gwi_entry entry;
} gwi_seat;

/* Where a node's processes agree on the next segment.  The leader is the node's
 * first rank.  If a process dies here the others' waits end with its name. */
typedef struct gwi_table {
    /* written by the leader, then `round` with release */
    _Alignas(GWI_LINE) _Atomic uint64_t round;
    uint64_t offset, n_bytes;
    int32_t err;
    /* counted up by every process of the node when it has mapped the segment, or
     * failed to; monotonic, so a round is over at round * local_size */
    _Alignas(GWI_LINE) _Atomic uint64_t finished;
    /* [r % 2] is r if a process failed in round r; written by that process.  Round
     * r + 2 begins only after all have read the answer of round r. */
    _Atomic uint64_t failed[2];
} gwi_table;

/* The last page of a segment, behind what its users see.  Each process of the
 * node counts itself in when it has mapped the segment and out when it unmaps
 * it; the last one out gives the memory back.  If a process dies here, the
 * memory stays until the job ends. */
typedef struct gwi_segment_tail {
    _Atomic uint32_t users;
} gwi_segment_tail;

typedef struct gwi_host_header {
    /* set by the gatherer before anybody joins, then constant */
    uint64_t magic, layout;
    int32_t size, node_size;
    uint64_t file_bytes;     /* header, seats and tables */
    uint64_t private_offset; /* of the fabric's own extent */
    char job[200];           /* its name, for tools that look from outside */
    /* any process */
    _Alignas(GWI_LINE) gwi_arena_shared arena;
    _Alignas(GWI_LINE) gwi_crowd crowd;
    /* arrivals at barriers, ever; barrier k is complete at k * size */
    _Alignas(GWI_LINE) _Atomic uint64_t arrivals;
    /* whose death was found first, plus 1: set once, by who found it, before that rank's fate.  Who
     * looks later, when others have ended by it, names this one.  If the finder dies in between, the
     * next one sees to the fate */
    _Alignas(GWI_LINE) _Atomic int32_t first_dead_1;
} gwi_host_header;

/* docs/shm-layout.md says so. */
_Static_assert(sizeof(gwi_host_header) <= 4096, "the seats begin at byte 4096");
_Static_assert(offsetof(gwi_host_header, private_offset) == 32, "header");
_Static_assert(offsetof(gwi_host_header, arena) == 256, "header");
_Static_assert(offsetof(gwi_host_header, arrivals) == 384, "header");
_Static_assert(offsetof(gwi_host_header, first_dead_1) == 448, "header");
_Static_assert(offsetof(gwi_seat, fate) == 64 && offsetof(gwi_seat, barriers) == 72, "seat");
_Static_assert(offsetof(gwi_seat, ports) == 128, "seat");
_Static_assert(offsetof(gwi_table, finished) == 64 && sizeof(gwi_table) == 128, "table");
_Static_assert(sizeof(gwi_port) == 192 && offsetof(gwi_seat, entry) == 1664, "port");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "the shared file needs lock-free atomics");

/* This process's view.  Private to it. */
typedef struct gwi_host {
    /* set at open, then constant */
    gwi_place place;
    int fd;
    gwi_host_header *header;
    gwi_seat *seats;
    gwi_table *tables;
    size_t mapped_bytes;
    int *pidfds; /* by rank; -1: known to have ended, or ourselves */
    /* under `lock` */
    pthread_mutex_t lock;
    uint64_t barrier; /* the one we are in or were in last */
    uint64_t round;   /* at our node's table, the one we are in or were in last */
    enum { GWI_NOT_OPENING, GWI_MAPPING, GWI_FINISHING } opening;
    gwi_segment segment; /* being opened */
    size_t segment_now;  /* of it, what must have memory */
    int segment_err;     /* why that failed here */
    int dead;            /* a rank found dead, or -1 */
} gwi_host;

/* Collective: meet the others, map the file.  `private_bytes` of the file are
 * reserved (not allocated) for the fabric at header->private_offset. */
int gwi_host_open(const struct gwi_job *job, uint64_t private_bytes, gwi_host **ret_host);

/* Leave, tell the others, free everything. */
void gwi_host_close(gwi_host *host);

/* In a forked child: close descriptors, touch nothing else. */
void gwi_host_forked(gwi_host *host);

/* As in fabric.h. */
void gwi_host_barrier_arrive(gwi_host *host);
int gwi_host_barrier_done(gwi_host *host);
int gwi_host_barrier_missing(gwi_host *host, int *ret_ranks, int n_max);
gwi_fate gwi_host_fate(const gwi_host *host, int rank);
int gwi_host_check(gwi_host *host);
int gwi_host_segment_open(gwi_host *host, size_t n_bytes, size_t n_now, gwi_segment *ret_segment);
int gwi_host_segment_need(const gwi_host *host, const gwi_segment *segment, size_t at,
                          size_t n_bytes);
int gwi_host_segment_make(gwi_host *host, size_t n_bytes, size_t n_now, gwi_segment *ret_segment);
int gwi_host_segment_map(gwi_host *host, uint64_t offset, size_t n_bytes, gwi_segment *ret_segment);
void gwi_host_print_ledger(gwi_host *host, FILE *to);

/* Map a job's shared file, after looking whether it is one that we understand.
 * Sets everything in `host` that follows from the file. */
int gwi_host_map(gwi_host *host);
void gwi_host_segment_close(gwi_host *host, gwi_segment *segment);

/* Wake whoever of a rank waits on a lane. */
static inline void gwi_host_ring(const gwi_host *host, int rank, int lane)
{
    gwi_bell_ring(&host->seats[rank].ports[lane].bell);
}

/* The bell of a rank's lane, to wait on. */
static inline gwi_bell *gwi_host_bell(const gwi_host *host, int rank, int lane)
{
    return &host->seats[rank].ports[lane].bell;
}

#endif
