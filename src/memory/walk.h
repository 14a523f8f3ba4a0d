/* walk.h - reading, writing and adding to rows that lie on this node, many at a time.
 *
 * Rows come from memory in any order, so a walk asks for those a little ahead of the one it
 * is at.  Which rows they are was checked before.                                    */
#ifndef GWI_MEMORY_WALK_H
#define GWI_MEMORY_WALK_H

#include "memory/memory.h"

/* Rows to visit.  Number i of the view is indices[i]; its values are row at[i] of a buffer,
 * or i if `at` is NULL. */
typedef struct gwi_steps {
    gw_indices indices;
    const uint32_t *at;
    int64_t first_row; /* added to each index: the view's, or 0 */
    int only;          /* 1 + the rank that has all of them; 0: look who has which */
} gwi_steps;

/* Read rows into `out`, dense rows of `dtype`. */
void gwi_rows_read(const gw_memory *memory, gwi_steps steps, void *out, gw_dtype dtype);

/* Write rows of `values`. */
void gwi_rows_write(const gw_memory *memory, gwi_steps steps, const void *values, gw_dtype dtype);

/* Add them.  GW_EPEER if a latch is held by a rank that died: then some were added. */
int gwi_rows_add(const gw_memory *memory, gwi_steps steps, const void *values, gw_dtype dtype);

/* Move dense rows of so many bytes: row at[i] of `rows` to row i of `dense`, or back. */
void gwi_rows_pick(void *dense, const void *rows, const uint32_t *at, size_t n, size_t n_bytes);
void gwi_rows_place(void *rows, const void *dense, const uint32_t *at, size_t n, size_t n_bytes);

/* Take and give back the latch of a row of the whole. */
int gwi_row_latch_take(const gwi_whole *whole, gwi_row_latch *latch);

static inline void gwi_row_latch_give(gwi_row_latch *latch)
{
    /* Pairs with gwi_row_latch_take(). */
    atomic_store_explicit(latch, 0, memory_order_release);
}

#endif
