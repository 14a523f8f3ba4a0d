/* distributed.h - rows of ranks on other nodes, by messages.
 *
 * All ranks of the group call together.  Each tells every other how many of its rows it wants,
 * then sends their numbers; what is asked of a rank it reads from its own rows and sends back,
 * block by block, so that reading, sending and putting in place overlap.  Rows of ranks on the
 * same node are read and written in place meanwhile.
 *
 * Rows travel in the memory's type; who asks converts.  A call that is refused on one rank, or
 * in which ranks want different things, fails on all before anything is written.        */
#ifndef GWI_MEMORY_DISTRIBUTED_H
#define GWI_MEMORY_DISTRIBUTED_H

#include "memory/memory.h"

/* `refused`: 0, or why this rank's arguments were not accepted; the others hear of it. */
int gwi_distributed_gather(gw_memory *memory, gw_indices indices, void *out, gw_dtype dtype,
                           int refused);
int gwi_distributed_scatter(gw_memory *memory, gw_indices indices, const void *values,
                            gw_dtype dtype, int adds, int refused);

/* What came to a rank: rows of its own, by number in the whole, with their values, those of
 * rank 0 first.  Borrowed until the next call on this memory. */
typedef struct gwi_arrivals {
    const int64_t *rows;
    const unsigned char *values; /* row_bytes each */
    size_t n;
} gwi_arrivals;

/* Bring rows of values to their owners, on all nodes and this one: `values` has n dense rows in
 * the memory's type.  The caller holds whole->lock until it is done with the arrivals. */
int gwi_bring_to_owners(gw_memory *memory, gw_indices indices, const void *values, int refused,
                        gwi_arrivals *ret_arrivals);

#endif
