/* board.h - figures of a rank's parameters, for who looks from outside.
 *
 * Every rank has a board in shared memory, with a panel for each of its open parameters.
 * Nothing is written there until somebody asks (`godwit top`): then the rank's witness, a
 * thread that sleeps otherwise, gathers the figures of that moment.  So it costs nothing
 * while nobody looks, and the workers themselves nothing at all.
 *
 * If a process dies here: its panels stay as they were, and a version may stay odd; who
 * reads gives up after some tries, and sees from the rank's fate why.                 */
#ifndef GWI_FABRIC_BOARD_H
#define GWI_FABRIC_BOARD_H

#include "base/platform.h"

#include <stdatomic.h>
#include <stdint.h>

/* What a panel says: name, and what it is.  Counts are of this process; they may begin at 0
 * again (end_setup). */
#define GWI_FIGURES(X)                                                \
    X(opening, "number of the parameters, the same on all ranks")     \
    X(at_ns, "when this was written, by the monotonic clock")         \
    X(node, "of this process")                                        \
    X(nodes, "of the job")                                            \
    X(num_keys, "keys in all")                                        \
    X(keys, "that are at home or have moved to this process's share") \
    X(replicas, "copies of others in this process's share")           \
    X(workers, "of this process that are open")                       \
    X(clock_least, "of these, that is furthest behind")               \
    X(clock_most, "of these, that is furthest ahead")                 \
    X(accesses, "keys that workers read or changed")                  \
    X(remote, "of these, that were not on the node")                  \
    X(calls, "of pull, push and set")                                 \
    X(moves, "keys that came to stay")                                \
    X(copied, "copies that began")                                    \
    X(dropped, "copies that ended")                                   \
    X(rounds, "of telling each other what has changed")               \
    X(messages, "sent to other nodes")                                \
    X(bytes, "sent to other nodes")                                   \
    X(bytes_access, "of these, for keys that were not here")          \
    X(bytes_replicas, "of these, for copies")                         \
    X(bytes_moves, "of these, for keys that moved")                   \
    X(bytes_meetings, "of these, for wait_sync and barriers")         \
    X(staleness_ns, "how long other nodes wait for a change, about")  \
    X(intent_ns, "from acting on an intent until the key is here")    \
    X(clock_ns, "between clocks of the fastest worker")               \
    X(shared_bytes, "memory that the processes of the node share")

#define GWI_FIGURE(name, help) GWI_FIGURE_##name,
enum { GWI_FIGURES(GWI_FIGURE) GWI_N_FIGURES };
#undef GWI_FIGURE

#define GWI_N_PANELS 6

typedef struct gwi_panel {
    /* by the rank's witness, and who closes the parameters; odd while it writes */
    _Alignas(GWI_LINE) _Atomic uint64_t version;
    _Atomic uint64_t figures[31]; /* the first GWI_N_FIGURES; opening 0: nothing */
} gwi_panel;

typedef struct gwi_board {
    /* counted up by anyone, who then rings the entry's bell */
    _Alignas(GWI_LINE) _Atomic uint32_t asked;
    /* by the witness: the value of `asked` that the panels answer */
    _Atomic uint32_t answered;
    /* by the rank: 0 not tracing yet, 1 tracing, 2 no longer */
    _Atomic uint32_t tracing;
    /* of the machine's first rank: 1 when the trace's file is begun (by that rank), and when it
     * is ended (by the last that traces) */
    _Atomic uint32_t trace_begun, trace_ended;
    /* by the rank: open parameters that have no panel */
    _Atomic uint32_t left_out;
    gwi_panel panels[GWI_N_PANELS];
} gwi_board;

_Static_assert(GWI_N_FIGURES <= 31 && sizeof(gwi_panel) == 4 * GWI_LINE &&
                   sizeof(gwi_board) == GWI_LINE + GWI_N_PANELS * sizeof(gwi_panel),
               "boards are shared between processes");

/* Write a panel; one thread at a time. */
static inline void gwi_panel_write(gwi_panel *panel, const uint64_t *figures)
{
    uint64_t version = atomic_load_explicit(&panel->version, memory_order_relaxed);

    /* Odd before the figures and even after them; pairs with gwi_panel_read(). */
    atomic_store_explicit(&panel->version, version + 1, memory_order_seq_cst);
    for (int i = 0; i < GWI_N_FIGURES; i++)
        atomic_store_explicit(&panel->figures[i], figures[i], memory_order_seq_cst);
    atomic_store_explicit(&panel->version, version + 2, memory_order_seq_cst);
}

/* Returns 1, or 0 if there is nothing, or its writer was killed while it wrote. */
static inline int gwi_panel_read(const gwi_panel *panel, uint64_t *ret_figures)
{
    for (int tries = 0; tries < 1000; tries++) {
        uint64_t before = atomic_load_explicit(&panel->version, memory_order_seq_cst);
        for (int i = 0; i < GWI_N_FIGURES; i++)
            ret_figures[i] = atomic_load_explicit(&panel->figures[i], memory_order_seq_cst);
        if (before % 2 == 0 &&
            before == atomic_load_explicit(&panel->version, memory_order_seq_cst))
            return ret_figures[GWI_FIGURE_opening] != 0;
    }
    return 0;
}

#endif
