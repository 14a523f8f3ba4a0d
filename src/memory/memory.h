/* memory.h - what the parts of whole memory share: the memory itself, and views of it.
 *
 * A gwi_whole is what one opening made: where the rows of each rank lie in this process.  A
 * gw_memory is a view of it: some of its rows and columns.  The rows of a rank and, behind
 * them, latches for scatter-add:
 *
 *     continuous           one segment for all ranks
 *     chunked, distributed one segment for each rank, which ranks of its node map
 *
 *          0                       page                    2^n * 4
 *          +-----------------------+-----------------------+
 *          | rows, `pitch` apart   | latches               |
 *          +-----------------------+-----------------------+
 *
 * Rows are written by any rank of the node, at any time; order is the program's business.  A
 * latch is written by who adds to a row whose number it goes with.  If a process dies here:
 * a row may be half written, and a latch may stay taken.  Whoever waits for that latch asks
 * the fabric now and then whether somebody died, and fails with its name.               */
#ifndef GWI_MEMORY_MEMORY_H
#define GWI_MEMORY_MEMORY_H

#include "base/pages.h"
#include "comm/group.h"
#include "comm/world.h"
#include "fabric/fabric.h"
#include "memory/partition.h"

#include <godwit/memory.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint32_t gwi_row_latch; /* 0: free; else whose it is: the rank in the group + 1 */

/* Memory that is kept from call to call, and grows. */
typedef struct gwi_room {
    void *bytes;
    size_t n_bytes;
} gwi_room;

/* Make room for so many bytes; what was in it is lost.  GW_ENOMEM. */
int gwi_room_need(gwi_room *room, size_t n_bytes);

typedef struct gwi_whole {
    /* set at opening, then constant */
    gw_comm *comm; /* borrowed */
    gw_world *world;
    uint32_t generation; /* of forks */
    gw_memory_kind kind;
    gw_dtype dtype;
    size_t item_bytes;
    size_t pitch; /* bytes from row to row */
    int rank, size;
    int spans;      /* several nodes: what is collective goes by messages */
    int64_t number; /* of the opening, the same on all ranks */
    gwi_partition parts;
    gwi_segment *segments;   /* by rank; only the first if continuous; base NULL: elsewhere */
    unsigned char **rows;    /* by rank: of its first row; NULL: on another node */
    gwi_row_latch **latches; /* by rank; continuous: all the same */
    uint32_t latch_mask;
    /* by the thread that put our rows into huge pages */
    gwi_pages pages;
    /* views of this process; any thread */
    _Atomic int users;
    /* under `lock`: one exchange between nodes at a time */
    pthread_mutex_t lock;
    gwi_room rows_out, at_out, values_out, rows_in, values_in, requests, touched;
    uint32_t *slots; /* for steps: by own row, 0 between calls; made by the first */
} gwi_whole;

struct gw_memory {
    /* set when made, then constant */
    gwi_whole *whole;
    int64_t first_row; /* of the whole */
    size_t column_at;  /* bytes from the beginning of a row */
    size_t row_bytes;  /* dense */
    size_t row_entries;
    int n_dims;
    int is_view;
    int64_t *shape, *strides; /* `strides` behind `shape` in one allocation */
};

/* All ranks come here with what became of their part; who failed keeps its own error.  `doing`:
 * "could not open the memory". */
int gwi_memory_agree(gw_comm *comm, int err, const char *doing);

/* 0, or GW_EINVAL, GW_ERANGE with a sentence that names the first bad entry. */
int gwi_check_indices(const gw_memory *memory, gw_indices indices);

static inline int64_t gwi_index_at(gw_indices indices, size_t i)
{
    return indices.dtype == GW_I64 ? ((const int64_t *)indices.data)[i]
                                   : ((const int32_t *)indices.data)[i];
}

/* Where a row of the whole lies, for a view's columns; it is on this node. */
static inline unsigned char *gwi_row_at(const gw_memory *memory, int64_t row)
{
    const gwi_whole *w = memory->whole;
    int owner = w->kind == GW_CONTINUOUS ? 0 : gwi_partition_owner(&w->parts, row);
    int64_t first = w->kind == GW_CONTINUOUS ? 0 : w->parts.starts[owner];

    return w->rows[owner] + (size_t)(row - first) * w->pitch + memory->column_at;
}

#endif
