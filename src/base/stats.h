/* stats.h - counting what happens, too cheaply to notice.
 *
 * A part lists what it counts once, by kind:
 *
 *     #define RING_STATS(X)                                              \
 *         X(RING_SENDS, SUM,   "messages sent")                          \
 *         X(RING_DEPTH, MAX,   "most messages that waited at once")      \
 *         X(RING_WAIT,  TIMES, "time that a sender waited for room")
 *
 *     enum { RING_STATS(GWI_STATS_CELL) RING_N_CELLS };
 *     static const gwi_stats_row ring_rows[] = {RING_STATS(GWI_STATS_ROW)};
 *
 *     gwi_stats_init(&stats, ring_rows, 3);
 *     gwi_stats_add(&stats, RING_SENDS, 1);
 *     gwi_stats_max(&stats, RING_DEPTH, depth);
 *     gwi_stats_time(&stats, RING_WAIT, gwi_now_ns() - start);
 *
 * Every thread counts in a stripe of its own, so counting is an ordinary
 * addition to memory that nobody else writes; whoever reads adds up the stripes.
 * The first GWI_STATS_OWN threads that are alive have one; those beyond share
 * one more with atomic additions, which is slower and as exact.
 *
 * Owning   The struct is the caller's, the stripes are its own; the rows are
 *          borrowed until fini.
 * Threads  All but init and fini may be called by any thread at any time, but
 *          not by a signal handler.  What a thread counted before something that
 *          the reader has seen is in the result; nothing is ever lost.
 * Forking  A child goes on with a copy.                                      */
#ifndef GWI_BASE_STATS_H
#define GWI_BASE_STATS_H

#include "base/platform.h"

#include <godwit/base.h>

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SUM adds up, MAX keeps the largest, TIMES is a histogram of nanoseconds: how
 * many there were in [2^b, 2^(b+1)) for each b, their sum and the largest. */
typedef enum gwi_stats_kind { GWI_STATS_SUM, GWI_STATS_MAX, GWI_STATS_TIMES } gwi_stats_kind;

#define GWI_STATS_BUCKETS 64 /* 0 counts with 1, in bucket 0 */
#define GWI_STATS_OWN 128

/* A stripe is an array of cells; the number of a statistic is its first cell. */
enum {
    GWI_STATS_CELLS_SUM = 1,
    GWI_STATS_CELLS_MAX = 1,
    GWI_STATS_CELLS_TIMES = GWI_STATS_BUCKETS + 2
};

typedef struct gwi_stats_row {
    const char *name;
    const char *help;
    unsigned cell;
    gwi_stats_kind kind;
} gwi_stats_row;

#define GWI_STATS_CELL(id, kind, help) id, id##_LAST_CELL = id + GWI_STATS_CELLS_##kind - 1,
#define GWI_STATS_ROW(id, kind, help) {#id, help, id, GWI_STATS_##kind},

typedef struct gwi_stats {
    /* Set by init, then constant. */
    const gwi_stats_row *rows;
    int n_rows;
    unsigned n_cells;
    size_t stripe_cells; /* n_cells, and what keeps the stripes apart */
    void *memory;        /* owned; the cells lie in it */

    /* GWI_STATS_OWN stripes written by the thread that has this stripe, one
     * that is shared, and one with the sums at the last reset. */
    _Atomic uint64_t *cells;
} gwi_stats;

/* All statistics start at 0.  `rows` are in the order of their cells. */
int gwi_stats_init(gwi_stats *stats, const gwi_stats_row *rows, int n_rows);
void gwi_stats_fini(gwi_stats *stats); /* NULL, zeros and a second time are fine */

/* The stripe of this thread: below GWI_STATS_OWN its own, GWI_STATS_OWN the
 * shared one, above that none yet. */
extern _Thread_local unsigned gwi_stats_stripe;

/* A stripe for this thread, which has none yet. */
unsigned gwi_stats_take_stripe(void);

/* Where this thread counts.  Each function below asks once: in a shared library
 * to find a thread's variable is a call, dearer than to count. */
static inline unsigned gwi_stats_my_stripe(void)
{
    unsigned stripe = gwi_stats_stripe;

    return gwi_likely(stripe <= GWI_STATS_OWN) ? stripe : gwi_stats_take_stripe();
}

static inline _Atomic uint64_t *gwi_stats_cell(const gwi_stats *stats, unsigned stripe,
                                               unsigned cell)
{
    assert(cell < stats->n_cells);
    return &stats->cells[stripe * stats->stripe_cells + cell];
}

static inline void gwi_stats_add_to(gwi_stats *stats, unsigned stripe, unsigned cell,
                                    uint64_t amount)
{
    _Atomic uint64_t *at = gwi_stats_cell(stats, stripe, cell);

    /* Relaxed, all of it: numbers order nothing. */
    if (gwi_unlikely(stripe == GWI_STATS_OWN)) {
        atomic_fetch_add_explicit(at, amount, memory_order_relaxed);
        return;
    }
    /* Nobody else writes here, so this need not be one step. */
    uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
    atomic_store_explicit(at, old + amount, memory_order_relaxed);
}

/* Replace the largest value, in one step, if `value` is still larger. */
void gwi_stats_raise(_Atomic uint64_t *at, uint64_t value);

static inline void gwi_stats_max_to(gwi_stats *stats, unsigned stripe, unsigned cell,
                                    uint64_t value)
{
    _Atomic uint64_t *at = gwi_stats_cell(stats, stripe, cell);

    if (gwi_unlikely(value > atomic_load_explicit(at, memory_order_relaxed)))
        gwi_stats_raise(at, value);
}

/* Add to a SUM. */
static inline void gwi_stats_add(gwi_stats *stats, unsigned cell, uint64_t amount)
{
    gwi_stats_add_to(stats, gwi_stats_my_stripe(), cell, amount);
}

/* Note a value for a MAX. */
static inline void gwi_stats_max(gwi_stats *stats, unsigned cell, uint64_t value)
{
    gwi_stats_max_to(stats, gwi_stats_my_stripe(), cell, value);
}

/* Enter a time into a TIMES.  Below zero counts as zero. */
static inline void gwi_stats_time(gwi_stats *stats, unsigned cell, int64_t time_ns)
{
    unsigned stripe = gwi_stats_my_stripe();
    uint64_t ns = time_ns > 0 ? (uint64_t)time_ns : 0;
    unsigned bucket = 63u - (unsigned)__builtin_clzll(ns | 1);

    gwi_stats_add_to(stats, stripe, cell + bucket, 1);
    gwi_stats_add_to(stats, stripe, cell + GWI_STATS_BUCKETS, ns);
    gwi_stats_max_to(stats, stripe, cell + GWI_STATS_BUCKETS + 1, ns);
}

/* What has been counted since the last reset: the sum of a SUM, the largest of
 * a MAX (0 if there was none), the number of times in a TIMES. */
uint64_t gwi_stats_value(const gwi_stats *stats, const gwi_stats_row *row);

/* A TIMES, read once.  While threads count, its parts may differ by what came
 * in meanwhile. */
typedef struct gwi_stats_times {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t max_ns;
    uint64_t bucket[GWI_STATS_BUCKETS];
} gwi_stats_times;

void gwi_stats_read_times(const gwi_stats *stats, unsigned cell, gwi_stats_times *ret_times);

/* The mean, or 0 if there is no time. */
double gwi_stats_mean_ns(const gwi_stats_times *times);

/* The time that a share `q` in [0, 1] of all times does not exceed, or 0 if
 * there is none.  It lies in the right bucket, so it is right within a factor
 * of 2, and is never above the largest time. */
double gwi_stats_quantile_ns(const gwi_stats_times *times, double q);

/* Start again at 0.  What other threads count meanwhile comes before or after. */
void gwi_stats_reset(gwi_stats *stats);

/* Whether the rows fit together: each has the next cells, and a name. */
bool gwi_stats_valid(const gwi_stats *stats);

#endif
