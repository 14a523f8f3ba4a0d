/* partition.h - which rank has which rows.
 *
 * Parts follow each other in the order of ranks; some may be empty.  To find the owner of a
 * row quickly, the rows are cut into buckets of a power of 2, at most N_BUCKETS, and for each
 * the owner of its first row is known.                                                */
#ifndef GWI_MEMORY_PARTITION_H
#define GWI_MEMORY_PARTITION_H

#include <godwit/memory.h>

#include <stdint.h>

typedef struct gwi_partition {
    /* set by init, then constant */
    int size;
    int64_t n_rows;
    int64_t *starts;   /* by rank; starts[size] is n_rows */
    uint16_t *buckets; /* by row >> shift */
    int shift;
} gwi_partition;

/* `rows_per_rank` may be NULL.  GW_EINVAL if it does not add up to `n_rows`. */
int gwi_partition_init(gwi_partition *p, int64_t n_rows, int size, const int64_t *rows_per_rank);
void gwi_partition_fini(gwi_partition *p);

static inline int64_t gwi_partition_count(const gwi_partition *p, int rank)
{
    return p->starts[rank + 1] - p->starts[rank];
}

/* Who has a row, which is one of 0 to n_rows - 1. */
static inline int gwi_partition_owner(const gwi_partition *p, int64_t row)
{
    int rank = p->buckets[row >> p->shift];

    while (row >= p->starts[rank + 1])
        rank++;
    return rank;
}

#endif
