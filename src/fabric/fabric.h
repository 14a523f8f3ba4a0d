/* fabric.h - what every fabric can do, as one small table of functions.
 *
 * A fabric connects the processes of a job.  It knows who they are and which of
 * them share a node, carries ordered messages on numbered lanes between any two
 * of them, and gives the processes of a node shared memory.
 *
 * Threads  A lane may be sent on by one thread at a time, and polled by one
 *          thread at a time; different lanes have nothing to do with each
 *          other.  All else may be called by any thread.
 * Order    Messages from one process to one other on one lane arrive in order,
 *          none lost, none twice.  Nothing else is promised.                 */
#ifndef GWI_FABRIC_FABRIC_H
#define GWI_FABRIC_FABRIC_H

#include "base/error.h"
#include "base/wait.h"
#include "fabric/ledger.h"

#include <godwit/comm.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gwi_fabric gwi_fabric;
struct gwi_job;

/* Who uses which lane.  Parameters have one each of those from GWI_LANE_PARAMS on. */
enum { GWI_LANE_WORLD, GWI_LANE_MAIL, GWI_LANE_PARAMS, GWI_N_LANES = 8 };

/* Where a process stands among the others.  Set at open, then constant. */
typedef struct gwi_place {
    int rank, size;
    int node, nodes;
    int local_rank, local_size;
    int node_size; /* of all nodes but the last of a machine, which may be smaller */
} gwi_place;

/* A message on its way out.  The bytes are lent to the fabric until it is done
 * or abandoned; `sent` and `begun` start as 0 and belong to the fabric. */
typedef struct gwi_outgoing {
    int peer, lane;
    const void *bytes;
    size_t n_bytes;
    size_t sent;
    int begun;
} gwi_outgoing;

/* A piece of a message coming in.  Any message may come in several pieces, however
 * short it is.  Pieces of one message come in order and nothing of the same source
 * and lane between them.  The bytes are borrowed for the call. */
typedef struct gwi_piece {
    int source;
    size_t total;  /* bytes in the whole message */
    size_t offset; /* of this piece in it; 0: the message begins */
    const void *bytes;
    size_t n_bytes;
    int abandoned; /* the sender took the message under way back; no bytes */
} gwi_piece;

/* Take a piece.  GW_EAGAIN declines it: it stays and is offered again.  Another
 * error stops the poll with it; the piece stays too. */
typedef int gwi_deliver(void *ctx, const gwi_piece *piece);

/* Memory shared by the processes of a node. */
typedef struct gwi_segment {
    void *base;      /* where it lies in this process */
    size_t n_bytes;  /* as asked for, rounded up to whole pages */
    uint64_t offset; /* where it lies in the node's arena */
} gwi_segment;

/* What became of a rank.  LEFT is seen only when everything that the rank sent
 * before can be polled. */
typedef enum gwi_fate { GWI_HERE, GWI_LEFT, GWI_DEAD } gwi_fate;

/* Some ranks for whom the fabric itself can do collectives, and one of these under
 * way. */
typedef struct gwi_native_group gwi_native_group;
typedef struct gwi_native_request {
    uint64_t word;
} gwi_native_request;

/* One collective of a group.  Everything it points to, the counts too, is lent until
 * it is done.  send and recv do not overlap.  What a kind does not use is 0; `counts`
 * and `at` (where in the buffer) are by rank in the group.
 *
 *   BCAST                     recv: n bytes, those of the root
 *   GATHER, ALLGATHER         send: n bytes; recv: counts, at.  Without counts all
 *                             ranks send equally many, which come one after the other
 *   SCATTER                   send: counts, at (the root's only); recv: n bytes
 *   ALLTOALL                  send and recv: counts, at
 *   ALLREDUCE, REDUCE, SCAN   send and recv: n entries
 *   REDUCE_SCATTER            send: all entries; recv: counts, of every rank
 *   BARRIER                   nothing
 *
 * Entries are I32 or I64, with any operation but MINLOC and MAXLOC, or F32, F64, C64 or
 * C128, with SUM and PROD. */
typedef struct gwi_native_call {
    gw_collective kind;
    gw_op op;
    gw_dtype dtype;
    int root;
    int n;
    const void *send;
    const int *send_counts, *send_at;
    void *recv;
    const int *recv_counts, *recv_at;
} gwi_native_call;

/* An ability that a fabric may lack.  One thread at a time works with a group. */
struct gwi_native_ops {
    int able; /* 0: nothing here works */

    /* Make a group of ranks of the world.  Collective for them alone, and it blocks
     * until all of them call it, without a time limit: let them agree just before.
     * No two groups of a rank have the same context. */
    int (*open)(gwi_fabric *f, const int *ranks, int n_ranks, uint64_t context,
                gwi_native_group **ret_group);

    /* Start a collective.  Never blocks.  All ranks start the same ones in the same
     * order, one after the other. */
    int (*start)(gwi_fabric *f, gwi_native_group *group, const gwi_native_call *call,
                 gwi_native_request *ret_request);

    /* Whether it is done; 1, 0 or an error, after which it must be forgotten.  It goes
     * on only while somebody asks. */
    int (*test)(gwi_fabric *f, gwi_native_request *request);

    /* Wait no longer.  What was lent stays so for ever; the group is of no use any more,
     * and is not closed. */
    void (*forget)(gwi_fabric *f, gwi_native_request *request);

    /* Free a group.  Not collective; all that it started is done. */
    void (*close)(gwi_fabric *f, gwi_native_group *group);
};

/* That of a fabric without it: opening says so. */
extern const struct gwi_native_ops gwi_no_native;

struct gwi_fabric_ops {
    const char *name;
    const struct gwi_native_ops *native;

    /* Send as much of `out` as there is room for.  Never blocks, never polls.
     * Returns 1 when the bytes may be used again, 0 when there is no room yet,
     * or an error, after which the message must be abandoned.  The messages to
     * one peer on one lane are sent one after the other. */
    int (*send)(gwi_fabric *f, gwi_outgoing *out);

    /* The same for a message that is written where it goes: room for it, and how long it may
     * be, or NULL if it cannot be done so or not now.  The next thing on this lane to the
     * peer commits it; or sends, or asks for room, which gives up what was written. */
    void *(*reserve)(gwi_fabric *f, int peer, int lane, size_t *ret_n_bytes);
    void (*commit)(gwi_fabric *f, int peer, int lane, size_t n_bytes);

    /* Give a message up that is not done.  The receiver gets all or nothing. */
    void (*abandon)(gwi_fabric *f, gwi_outgoing *out);

    /* Deliver what has arrived on a lane, from one source or from all (-1), at
     * most one piece per source.  Never blocks.  Returns how many pieces. */
    int (*poll)(gwi_fabric *f, int lane, int source, gwi_deliver *deliver, void *ctx);

    /* What to sleep on until something arrives on a lane, there may be room to
     * send on it, or somebody leaves. */
    void (*waiter_init)(gwi_fabric *f, int lane, gwi_waiter *ret_waiter);

    /* Wake whoever waits on a lane in the process `rank`: this one, or one for which
     * shares() says yes. */
    void (*nudge)(gwi_fabric *f, int rank, int lane);

    /* Arrive at the world's next barrier, or do nothing if this process has
     * arrived there already; then whether it is complete (1), and which ranks
     * are missing (up to `n_max`; returns how many in all). */
    void (*barrier_arrive)(gwi_fabric *f);
    int (*barrier_done)(gwi_fabric *f);
    int (*barrier_missing)(gwi_fabric *f, int *ret_ranks, int n_max);

    /* What is known of a rank; a cheap look that finds no new deaths. */
    gwi_fate (*fate)(gwi_fabric *f, int rank);

    /* What a rank is doing; NULL if that cannot be seen from here. */
    const gwi_entry *(*entry_of)(gwi_fabric *f, int rank);

    /* Write a table of what every rank is doing, a line each, no newline at the
     * end.  Waits up to half a second for answers. */
    void (*print_ledger)(gwi_fabric *f, FILE *to);

    /* Look for deaths on this machine.  May make a system call.  Returns 0, or
     * GW_EPEER with a sentence that names the rank if any rank is dead. */
    int (*check)(gwi_fabric *f);

    /* Map new memory, zeroed, for all processes of the node.  Collective for
     * the node's processes, which must open their segments in the same order,
     * one after the other.  Never blocks: call it with the same arguments until
     * it returns 1 (done) or an error, which then all of them get.  The first `n_now`
     * bytes have memory at once.  Any of the processes asks for more before they use it:
     * memory that was not asked for is there too if there is any, else whoever
     * touches it is killed. */
    int (*segment_open)(gwi_fabric *f, size_t n_bytes, size_t n_now, gwi_segment *ret_segment);
    int (*segment_need)(gwi_fabric *f, const gwi_segment *segment, size_t at, size_t n_bytes);
    void (*segment_close)(gwi_fabric *f, gwi_segment *segment);

    /* Memory for some processes only: those for whom shares() says yes, which may be
     * more than the node.  One makes the segment, zeroed, and tells the others its
     * offset and length; they map it before the maker closes it.  None blocks.  The first
     * `n_now` bytes have memory at once, as with segment_open(). */
    int (*shares)(gwi_fabric *f, int rank);
    int (*segment_make)(gwi_fabric *f, size_t n_bytes, size_t n_now, gwi_segment *ret_segment);
    int (*segment_map)(gwi_fabric *f, uint64_t offset, size_t n_bytes, gwi_segment *ret_segment);

    /* Leave the job and free the fabric.  Does not wait for anybody. */
    void (*leave)(gwi_fabric *f);
};

/* What all fabrics have in common; each fabric's own struct begins with it. */
struct gwi_fabric {
    const struct gwi_fabric_ops *ops;
    gwi_place place;
    const gwi_place *places; /* by rank; NULL: as gwi_place_of() says */
    gwi_entry *entry;        /* what this process is doing, seen by the others */
};

/* Join the job that `job` describes.  Collective. */
int gwi_fabric_open(const struct gwi_job *job, gwi_fabric **ret_fabric);

/* The place of `rank` in a world of `size` on one machine, cut into nodes of
 * `node_size`. */
gwi_place gwi_place_of(int rank, int size, int node_size);

/* The place of any rank of a fabric's world.  The ranks of a node need not follow
 * each other when the world spans machines. */
gwi_place gwi_fabric_place(const gwi_fabric *f, int rank);

/* One wait: a waiter with a time limit that also notices deaths and signals. */
typedef struct gwi_patience {
    gwi_fabric *fabric;
    gwi_waiter waiter;
    int64_t deadline_ns;
    int64_t next_check_ns; /* 0: the clock has not been looked at yet */
} gwi_patience;

void gwi_patience_begin(gwi_patience *p, gwi_fabric *f, int lane, int64_t deadline_ns);
void gwi_patience_end(gwi_patience *p);

/* Let time pass.  Returns 0: look again; 1: look again, and at the fates of the
 * ranks waited for; GW_EPEER: a rank died; GW_EINTR; GW_ETIMEOUT, for which the
 * caller makes the sentence, since it knows who is missing. */
int gwi_patience_pause(gwi_patience *p);

/* For fabrics in which no message is written where it goes. */
void *gwi_no_reserve(gwi_fabric *f, int peer, int lane, size_t *ret_n_bytes);
void gwi_no_commit(gwi_fabric *f, int peer, int lane, size_t n_bytes);

/* The same as the fabric's segment_open(), with the waiting. */
int gwi_fabric_segment_open(gwi_fabric *f, size_t n_bytes, size_t n_now, int64_t deadline_ns,
                            gwi_segment *ret_segment);

#endif
