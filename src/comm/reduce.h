/* reduce.h - combining arrays entry by entry, as reductions do.
 *
 * Owning   Arrays are borrowed for the call.
 * Failing  Only gw_op_check() can; who calls the others has asked it.
 * Threads  Any thread may call anything.
 * Forking  All works in a forked child.                                        */
#ifndef GWI_COMM_REDUCE_H
#define GWI_COMM_REDUCE_H

#include <godwit/comm.h>
#include <godwit/dtype.h>

#include <stddef.h>

/* out[i] = in[0][i] op in[1][i] op ... in[n_in - 1][i], always from the left, so the
 * result is the same to the bit wherever it is computed (but for which NaN a NaN is).
 * `n` counts entries, and pairs (value, index) for MINLOC and MAXLOC.  `out` may be the
 * same memory as any of `in`, and must not overlap them otherwise.  Pointers are
 * aligned as the entries (complex ones as their parts) are.  gw_op_check(op, dtype) is
 * 0, and n_in at least 1; one array is copied as it is.
 *
 * Integers wrap around.  Logical results are 0 and 1.  On bool SUM and MAX are "or",
 * PROD and MIN are "and".  MAX, MIN, MAXLOC and MINLOC of anything with a NaN are the
 * first NaN; equal values keep the first, with its sign if 0, and in MAXLOC and MINLOC
 * that with the smaller index.  float16 and bfloat16 are combined as float32 and rounded
 * once at the end, to the nearest, ties to even. */
void gwi_reduce(gw_op op, gw_dtype dtype, void *out, const void *const *in, int n_in, size_t n);

/* For tests: which of the GWI_TARGETS computes, from 0 to gwi_target(), from now on.
 * Below 0: the best. */
void gwi_reduce_use(int target);

/* Of one entry. */
size_t gwi_dtype_bytes(gw_dtype dtype);

const char *gwi_dtype_name(gw_dtype dtype); /* "float32" */
const char *gwi_op_name(gw_op op);          /* "SUM" */

#endif
