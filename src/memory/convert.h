/* convert.h - entries of one type become entries of another.
 *
 * As PyTorch's to() does it: floating numbers are cut towards 0 to become whole, whole ones
 * wrap around, what is not 0 becomes true, complex ones lose their imaginary part, and
 * rounding is to the nearest.  A floating number that no whole one can hold becomes any.  */
#ifndef GWI_MEMORY_CONVERT_H
#define GWI_MEMORY_CONVERT_H

#include <godwit/dtype.h>

#include <stddef.h>

/* Convert `n` entries; the arrays do not overlap.  Both are aligned as their types are. */
typedef void gwi_convert(void *restrict to, const void *restrict from, size_t n);

/* NULL if the types are the same. */
gwi_convert *gwi_converter(gw_dtype to, gw_dtype from);

#endif
