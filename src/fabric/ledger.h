/* ledger.h - what each rank is doing, for whoever wants to know.
 *
 * Every rank has an entry in shared memory.  Entering or leaving an operation
 * writes a few words there and costs some nanoseconds; everything else happens
 * only when somebody asks: a rank whose wait passed its limit, or `godwit ps`
 * from outside.  Then each rank's witness, a thread that sleeps otherwise, is
 * asked from which line of the program the rank is in Godwit or has been last.
 *
 * If a process dies here: its entry stays as it was; a question to its witness
 * is not answered, and who asks waits a little in vain.                      */
#ifndef GWI_FABRIC_LEDGER_H
#define GWI_FABRIC_LEDGER_H

#include "base/clock.h"
#include "base/platform.h"
#include "base/thread.h"
#include "base/wait.h"
#include "fabric/board.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

/* The operations a rank can be in: name, text.  Those from ALLREDUCE on are in the order of
 * GW_COLLECTIVES. */
#define GWI_OPS(X)                         \
    X(NOTHING, "no call yet")              \
    X(BARRIER, "barrier")                  \
    X(SEND, "send to")                     \
    X(RECV, "recv from")                   \
    X(ISEND, "Isend to")                   \
    X(IRECV, "Irecv from")                 \
    X(IRECV_ANY, "Irecv from anyone")      \
    X(WAIT_SEND, "Wait, Isend to")         \
    X(WAIT_RECV, "Wait for")               \
    X(WAIT_ANY, "Wait for anyone")         \
    X(GROUP, "making a communicator")      \
    X(LATCH, "waiting for a key's latch")  \
    X(WORKERS_BARRIER, "workers' barrier") \
    X(PARAMS, "waiting for parameters")    \
    X(ALLREDUCE, "Allreduce")              \
    X(REDUCE, "Reduce")                    \
    X(BCAST, "Bcast")                      \
    X(GATHER, "Gather")                    \
    X(ALLGATHER, "Allgather")              \
    X(SCATTER, "Scatter")                  \
    X(ALLTOALL, "Alltoall")                \
    X(REDUCE_SCATTER, "Reduce_scatter")    \
    X(SCAN, "Scan")                        \
    X(COMM_BARRIER, "Barrier")

#define GWI_OP(name, text) GWI_OP_##name,
typedef enum gwi_op { GWI_OPS(GWI_OP) GWI_N_OPS } gwi_op;
#undef GWI_OP

/* Its text; before a peer, if it has one. */
const char *gwi_op_text(gwi_op op);

#define GWI_WHERE_BYTES 192

typedef struct gwi_entry {
    /* Written by threads of the rank, read by anyone.  With several threads in
     * Godwit at once the last one to enter or leave is seen. */
    _Alignas(GWI_LINE) _Atomic uint32_t op; /* a gwi_op, the one it is in or was in last */
    _Atomic uint32_t inside;                /* 1: in it now */
    _Atomic int32_t peer;                   /* the rank it is about, or -1 */
    _Atomic uint64_t calls;                 /* how many so far, this one included */
    _Atomic int64_t since_ns; /* when it was entered, or its wait was over, as gwi_coarse_ns() */
    /* Questions: `asked` is counted up by anyone, who then rings the bell. */
    _Alignas(GWI_LINE) gwi_bell bell;
    _Atomic uint32_t asked;
    /* Answers: written by the rank's witness.  `version` is odd while it writes. */
    _Atomic uint32_t answered; /* the value of `asked` that `where` answers */
    _Atomic uint32_t version;
    _Atomic uint32_t has_witness;
    _Alignas(GWI_LINE) _Atomic uint64_t
        where[GWI_WHERE_BYTES / 8]; /* text, such as "train.py:12 in main" */
    gwi_board board;
} gwi_entry;

_Static_assert(sizeof(gwi_entry) == 2 * GWI_LINE + GWI_WHERE_BYTES + sizeof(gwi_board),
               "entries are shared between processes");

/* A new entry, in memory that is zero. */
static inline void gwi_ledger_init(gwi_entry *e)
{
    atomic_store_explicit(&e->peer, -1, memory_order_relaxed);
    atomic_store_explicit(&e->since_ns, gwi_coarse_ns(), memory_order_relaxed);
}

/* Enter and leave an operation.  Returns the time, which callers may use. */
static inline int64_t gwi_ledger_enter(gwi_entry *e, gwi_op op, int peer)
{
    int64_t now = gwi_coarse_ns();

    atomic_store_explicit(&e->op, op, memory_order_relaxed);
    atomic_store_explicit(&e->peer, peer, memory_order_relaxed);
    uint64_t calls = atomic_load_explicit(&e->calls, memory_order_relaxed);
    atomic_store_explicit(&e->calls, calls + 1, memory_order_relaxed);
    atomic_store_explicit(&e->since_ns, now, memory_order_relaxed);
    atomic_store_explicit(&e->inside, 1, memory_order_relaxed);
    return now;
}

static inline void gwi_ledger_leave(gwi_entry *e)
{
    atomic_store_explicit(&e->inside, 0, memory_order_relaxed);
}

/* A wait inside an operation is over, so the operation nearly is. */
static inline void gwi_ledger_waited(gwi_entry *e)
{
    atomic_store_explicit(&e->since_ns, gwi_coarse_ns(), memory_order_relaxed);
}

/* The witness of this process.  `where` is called in its thread when somebody
 * asks and fills a text of at most GWI_WHERE_BYTES. */
typedef void gwi_where(void *ctx, char *text, size_t room);

/* Gives the figures of a panel; also called in the witness's thread. */
typedef void gwi_figures(void *ctx, uint64_t *ret_figures);

typedef struct gwi_witness {
    gwi_entry *entry; /* borrowed */
    gwi_where *where;
    void *ctx;
    _Atomic int stop;
    gwi_thread thread;
    /* under `lock`, which is held while figures are gathered; by panel */
    pthread_mutex_t lock;
    struct {
        gwi_figures *figures;
        void *ctx;
    } panels[GWI_N_PANELS];
} gwi_witness;

int gwi_witness_start(gwi_witness *w, gwi_entry *entry, gwi_where *where, void *ctx);
void gwi_witness_stop(gwi_witness *w); /* joins the thread */

/* Give something a panel on the board, and take it off again.  Without a free one it is counted
 * as left out. */
void gwi_witness_add(gwi_witness *w, gwi_figures *figures, void *ctx);
void gwi_witness_remove(gwi_witness *w, gwi_figures *figures, void *ctx);

/* One rank, as a row of the table. */
typedef struct gwi_ledger_row {
    int rank;
    int pid;
    const char *fate;  /* NULL: it is here */
    gwi_entry *entry;  /* NULL: on another machine */
    uint32_t question; /* gwi_ledger_print()'s own */
} gwi_ledger_row;

/* Ask all witnesses of the rows at once and write the table, a line a rank.  Waits
 * at most half a second for answers. */
void gwi_ledger_print(FILE *to, gwi_ledger_row *rows, int n);

#endif
