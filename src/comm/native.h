/* native.h - collectives by what the fabric has itself, that is MPI, for ranks that do
 * not all share memory.
 *
 * A small input travels with the card.  A large one goes in steps through memory of our
 * own: the caller's arrays never lie with MPI, which knows no way to give up a collective,
 * so a wait can end at any moment and the arrays can be freed.
 *
 * Of large inputs MPI combines integers of 4 and 8 bytes, and sums and multiplies floating
 * and complex numbers of at least 4 bytes, in an order of its own.  All else is combined
 * here, entry by entry in the order of ranks, each rank its slice.                */
#ifndef GWI_COMM_NATIVE_H
#define GWI_COMM_NATIVE_H

#include "comm/group.h"

/* Whether the fabric has any. */
int gwi_native_possible(const gw_world *world);

/* Make `comm` one whose collectives go so.  Collective for its ranks; world, rank, size,
 * ranks and context are set.  Waits for the others with the usual limit, then makes a
 * communicator of MPI, which blocks for a moment, and for ever if one of them dies just
 * then. */
int gwi_native_open(gw_comm *comm);

#endif
