/* row.h - one vector in memory that others read without asking.
 *
 * The writer of a row holds its latch; a reader does not, and may read what is being
 * written.  It finds out afterwards and throws it away (word.h).  The language calls
 * that a race; what it needs is that bytes are only copied, by code that the compiler
 * does not know: memcpy() here, and entry by entry where ThreadSanitizer looks on.   */
#ifndef GWI_PARAMS_ROW_H
#define GWI_PARAMS_ROW_H

#include "base/platform.h"

#include <godwit/dtype.h>

#include <stdint.h>
#include <string.h>

#if GWI_TSAN
void gwi_row_read(void *to, const void *row, size_t n_bytes);
void gwi_row_write(void *row, const void *from, size_t n_bytes);
void gwi_row_clear(void *row, size_t n_bytes);
int gwi_row_is_zero(const void *row, size_t n_bytes);
#else
static inline void gwi_row_read(void *to, const void *row, size_t n_bytes)
{
    memcpy(to, row, n_bytes);
}

static inline void gwi_row_write(void *row, const void *from, size_t n_bytes)
{
    memcpy(row, from, n_bytes);
}

static inline void gwi_row_clear(void *row, size_t n_bytes)
{
    memset(row, 0, n_bytes);
}

static inline int gwi_row_is_zero(const void *row, size_t n_bytes)
{
    const unsigned char *bytes = row;

    return bytes[0] == 0 && memcmp(bytes, bytes + 1, n_bytes - 1) == 0;
}
#endif

/* Add `n` entries to a row. */
typedef void gwi_row_add(void *row, const void *update, size_t n);

/* The function for this type, F32 or F64, and this processor. */
gwi_row_add *gwi_row_adder(gw_dtype dtype);

#endif
