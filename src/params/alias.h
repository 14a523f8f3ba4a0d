/* alias.h - a table from which any weights are drawn in constant time.
 *
 * There is a cell for each number from 0 to n - 1, and all cells are equally likely.  A cell
 * belongs to its own number with a certain share, and to another one with the rest:
 *
 *     cell         0      1      2      3           weights 1 3 6 2
 *              +------+------+------+------+
 *     other    | 2    |      |      | 2    |
 *     own      | 0 1/3| 1    | 2    | 3 2/3|
 *              +------+------+------+------+
 *
 * A cell has 8 bytes, and a draw looks at one.  Shares are multiples of 2^-32: a probability is
 * off by less than that, divided by n.  What has weight is drawn, however little it is; what
 * has none is never drawn.
 *
 * Owning   The memory is the caller's; it may be shared between processes, and is constant once
 *          it is built.
 * Threads  Any number read.                                                             */
#ifndef GWI_PARAMS_ALIAS_H
#define GWI_PARAMS_ALIAS_H

#include <godwit/base.h>

#include <stddef.h>
#include <stdint.h>

#define GWI_ALIAS_MOST UINT32_MAX /* cells */

typedef struct gwi_alias_cell {
    uint32_t own;   /* its own share, of 2^32; 0: it has no weight */
    uint32_t other; /* whose the rest is; its own number if all is its own */
} gwi_alias_cell;

_Static_assert(sizeof(gwi_alias_cell) == 8, "cells are shared between processes");

/* Fill `n` cells, at least 1 and at most GWI_ALIAS_MOST.  Weights are finite and not below 0, and
 * one is above.  Needs 12 bytes a cell meanwhile; GW_ENOMEM if there are none. */
int gwi_alias_build(gwi_alias_cell *cells, const double *weights, size_t n);

/* Whose place in cell `at` is; `where` is anything from 0 to 2^64 - 1.  Without a branch, which
 * nobody could foresee, so that many cells come from memory at a time. */
static inline uint64_t gwi_alias_whose(const gwi_alias_cell *cells, uint64_t at, uint64_t where)
{
    gwi_alias_cell cell = cells[at];
    uint64_t its_own = -(uint64_t)(where >> 32 < cell.own);

    return (at & its_own) | (cell.other & ~its_own);
}

/* The reverse: of each number its probability, times n. */
void gwi_alias_weights(const gwi_alias_cell *cells, size_t n, double *ret_weights);

#endif
