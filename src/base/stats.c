/* stats.c - who has which stripe, and adding up the stripes.
 *
 *     cells  | stripe 0 | stripe 1 | ... | stripe OWN-1 | shared | at reset |
 *
 * A stripe ends on a border of two cache lines: some processors fetch lines in
 * pairs.  Stripes that no thread has had stay untouched.
 *
 * A reset cannot write to the stripes of others, who would overwrite it; it
 * keeps the sums of that moment instead, which are then subtracted.  A largest
 * value has no difference; its cells are replaced in one step by everybody,
 * which is rare, as new largest values are.                                  */
#include "base/stats.h"
#include "base/error.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SHARED GWI_STATS_OWN
#define AT_RESET (GWI_STATS_OWN + 1)
#define N_STRIPES (GWI_STATS_OWN + 2)
#define STRIPE_ALIGN (2 * GWI_LINE)

static_assert(GWI_STATS_OWN % 64 == 0, "stripes are given out by bits of whole words");

_Thread_local unsigned gwi_stats_stripe = UINT_MAX;

/* --- Which thread has which stripe: one number for all gwi_stats. ---------- */

/* A bit is set while a living thread has the stripe.  In a forked child the
 * stripes of the parent's other threads stay taken. */
static _Atomic uint64_t taken[GWI_STATS_OWN / 64];
static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool have_key;

static void give_back(unsigned stripe)
{
    /* Pairs with claim(): the next owner sees what this one counted. */
    atomic_fetch_and_explicit(&taken[stripe / 64], ~(UINT64_C(1) << stripe % 64),
                              memory_order_release);
}

static void thread_ends(void *stripe_plus_1)
{
    /* Another destructor of this thread may still count: it shall not use the
     * stripe any more, nor take another that nobody would give back. */
    gwi_stats_stripe = SHARED;
    give_back((unsigned)(uintptr_t)stripe_plus_1 - 1);
}

static void make_key(void)
{
    have_key = pthread_key_create(&at_thread_end, thread_ends) == 0;
}

/* A stripe that no thread has, or SHARED if there is none. */
static unsigned claim(void)
{
    for (unsigned i = 0; i < GWI_STATS_OWN / 64; i++) {
        uint64_t seen = atomic_load_explicit(&taken[i], memory_order_relaxed);
        while (~seen != 0) {
            unsigned bit = (unsigned)__builtin_ctzll(~seen);
            /* Pairs with give_back(). */
            if (atomic_compare_exchange_weak_explicit(&taken[i], &seen, seen | UINT64_C(1) << bit,
                                                      memory_order_acquire, memory_order_relaxed))
                return i * 64 + bit;
        }
    }
    return SHARED;
}

/* Without a way to give it back at the end, a thread takes none. */
static unsigned stripe_for_life(void)
{
    pthread_once(&once, make_key);
    if (!have_key)
        return SHARED;

    unsigned stripe = claim();
    if (stripe == SHARED)
        return SHARED;
    if (pthread_setspecific(at_thread_end, (void *)(uintptr_t)(stripe + 1)) != 0) {
        give_back(stripe);
        return SHARED;
    }
    return stripe;
}

unsigned gwi_stats_take_stripe(void)
{
    gwi_stats_stripe = stripe_for_life();
    return gwi_stats_stripe;
}

void gwi_stats_raise(_Atomic uint64_t *at, uint64_t value)
{
    uint64_t seen = atomic_load_explicit(at, memory_order_relaxed);

    while (value > seen && !atomic_compare_exchange_weak_explicit(
                               at, &seen, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* --- Making ----------------------------------------------------------------- */

static unsigned cells_of(gwi_stats_kind kind)
{
    static const unsigned cells[] = {GWI_STATS_CELLS_SUM, GWI_STATS_CELLS_MAX,
                                     GWI_STATS_CELLS_TIMES};

    return cells[kind];
}

static void *aligned(unsigned char *memory)
{
    return memory + (STRIPE_ALIGN - (uintptr_t)memory % STRIPE_ALIGN);
}

int gwi_stats_init(gwi_stats *stats, const gwi_stats_row *rows, int n_rows)
{
    gwi_stats made = {.rows = rows, .n_rows = n_rows};

    for (int i = 0; i < n_rows; i++)
        made.n_cells += cells_of(rows[i].kind);
    assert(gwi_stats_valid(&made));

    size_t stripe_bytes = made.n_cells * sizeof *made.cells;
    stripe_bytes = (stripe_bytes + STRIPE_ALIGN - 1) / STRIPE_ALIGN * STRIPE_ALIGN;
    made.stripe_cells = stripe_bytes / sizeof *made.cells;
    made.memory = calloc(1, N_STRIPES * stripe_bytes + STRIPE_ALIGN);
    if (made.memory == NULL)
        return gwi_fail(GW_ENOMEM, "statistics of %u cells: no memory", made.n_cells);
    made.cells = aligned(made.memory);
    *stats = made;
    return 0;
}

void gwi_stats_fini(gwi_stats *stats)
{
    if (stats == NULL)
        return;
    free(stats->memory);
    *stats = (gwi_stats){0};
}

/* --- Reading ---------------------------------------------------------------- */

/* The sum of a cell since the beginning of time. */
static uint64_t sum_ever(const gwi_stats *stats, unsigned cell)
{
    uint64_t sum = 0;

    for (unsigned stripe = 0; stripe <= SHARED; stripe++)
        sum += atomic_load_explicit(gwi_stats_cell(stats, stripe, cell), memory_order_relaxed);
    return sum;
}

static uint64_t sum_of(const gwi_stats *stats, unsigned cell)
{
    /* The base first: what it holds is in the sum too, so that the difference
     * does not go below zero.  The acquire pairs with gwi_stats_reset(). */
    uint64_t base = atomic_load_explicit(gwi_stats_cell(stats, AT_RESET, cell),
                                         memory_order_acquire);

    return sum_ever(stats, cell) - base;
}

static uint64_t max_of(const gwi_stats *stats, unsigned cell)
{
    uint64_t max = 0;

    for (unsigned stripe = 0; stripe <= SHARED; stripe++) {
        uint64_t value = atomic_load_explicit(gwi_stats_cell(stats, stripe, cell),
                                              memory_order_relaxed);
        max = value > max ? value : max;
    }
    return max;
}

void gwi_stats_read_times(const gwi_stats *stats, unsigned cell, gwi_stats_times *ret_times)
{
    gwi_stats_times times = {0};

    for (unsigned b = 0; b < GWI_STATS_BUCKETS; b++) {
        times.bucket[b] = sum_of(stats, cell + b);
        times.count += times.bucket[b];
    }
    times.sum_ns = sum_of(stats, cell + GWI_STATS_BUCKETS);
    times.max_ns = max_of(stats, cell + GWI_STATS_BUCKETS + 1);
    *ret_times = times;
}

uint64_t gwi_stats_value(const gwi_stats *stats, const gwi_stats_row *row)
{
    gwi_stats_times times;

    switch (row->kind) {
    case GWI_STATS_SUM:
        return sum_of(stats, row->cell);
    case GWI_STATS_MAX:
        return max_of(stats, row->cell);
    case GWI_STATS_TIMES:
        break;
    }
    gwi_stats_read_times(stats, row->cell, &times);
    return times.count;
}

double gwi_stats_mean_ns(const gwi_stats_times *times)
{
    return times->count > 0 ? (double)times->sum_ns / (double)times->count : 0;
}

double gwi_stats_quantile_ns(const gwi_stats_times *times, double q)
{
    double rank = q * (double)times->count;
    double below = 0;

    for (unsigned b = 0; b < GWI_STATS_BUCKETS; b++) {
        double here = (double)times->bucket[b];
        if (here > 0 && below + here >= rank) {
            /* As if the times lay evenly in the bucket [low, 2 low). */
            double low = b > 0 ? (double)(UINT64_C(1) << b) : 0;
            double high = (double)(UINT64_C(1) << b) * 2;
            double share = rank > below ? (rank - below) / here : 0;
            double value = low + share * (high - low);
            return value < (double)times->max_ns ? value : (double)times->max_ns;
        }
        below += here;
    }
    return (double)times->max_ns;
}

/* --- Starting again --------------------------------------------------------- */

static void reset_sums(gwi_stats *stats, unsigned cell, unsigned n_cells)
{
    for (unsigned i = cell; i < cell + n_cells; i++)
        /* Pairs with sum_of(). */
        atomic_store_explicit(gwi_stats_cell(stats, AT_RESET, i), sum_ever(stats, i),
                              memory_order_release);
}

static void reset_max(gwi_stats *stats, unsigned cell)
{
    for (unsigned stripe = 0; stripe <= SHARED; stripe++)
        atomic_store_explicit(gwi_stats_cell(stats, stripe, cell), 0, memory_order_relaxed);
}

void gwi_stats_reset(gwi_stats *stats)
{
    for (int i = 0; i < stats->n_rows; i++) {
        unsigned cell = stats->rows[i].cell;
        switch (stats->rows[i].kind) {
        case GWI_STATS_SUM:
            reset_sums(stats, cell, 1);
            break;
        case GWI_STATS_MAX:
            reset_max(stats, cell);
            break;
        case GWI_STATS_TIMES:
            reset_sums(stats, cell, GWI_STATS_BUCKETS + 1);
            reset_max(stats, cell + GWI_STATS_BUCKETS + 1);
            break;
        }
    }
}

bool gwi_stats_valid(const gwi_stats *stats)
{
    unsigned cell = 0;

    for (int i = 0; i < stats->n_rows; i++) {
        if (stats->rows[i].cell != cell || stats->rows[i].name == NULL)
            return false;
        cell += cells_of(stats->rows[i].kind);
    }
    return cell == stats->n_cells;
}
