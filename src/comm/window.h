/* window.h - collectives among ranks that share memory.
 *
 * The ranks of a group have a window: cards, on which each says what it is about to
 * do, and slots, through which data streams.  A small input travels with the card, so
 * that a small collective is one exchange of cards.  A large one goes through the slots
 * in steps, so the window's size does not depend on it; each rank combines its own
 * slice of every step, and nobody relays.
 *
 * Entries are always combined in the order of ranks, so a result is the same, bit for
 * bit, from run to run and on all ranks.                                        */
#ifndef GWI_COMM_WINDOW_H
#define GWI_COMM_WINDOW_H

#include "comm/group.h"

/* What the first rank of a group tells the others, so that they find the window. */
typedef struct gwi_window_key {
    uint64_t offset, n_bytes;
} gwi_window_key;

/* Whether all of these can share memory with us. */
int gwi_window_possible(const gw_world *world, const int *ranks, int size);

/* The first rank makes the window, the others map it by its key.  Then the group's
 * engine is set. */
int gwi_window_make(gw_comm *comm, gwi_window_key *ret_key);
int gwi_window_map(gw_comm *comm, const gwi_window_key *key);

#endif
