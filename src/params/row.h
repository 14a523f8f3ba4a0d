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
#else
static inline void gwi_row_read(void *to, const void *row, size_t n_bytes)
{
    memcpy(to, row, n_bytes);
}

static inline void gwi_row_write(void *row, const void *from, size_t n_bytes)
{
    memcpy(row, from, n_bytes);
}
#endif

/* Add `n` entries to a row. */
typedef void gwi_row_add(void *row, const void *update, size_t n);

/* For a row and what it was before.  Entries whose bytes are equal have not changed, whatever they
 * are: so an infinity that both have says nothing about what was added. */

/* What was added since.  `before` becomes what it gives if that is added to it, as somebody else
 * will do: the row, or what is next to it.  Returns whether anything was added, and whether it is
 * the row. */
typedef enum gwi_row_added { GWI_NONE_ADDED, GWI_ADDED, GWI_ADDED_NEARLY } gwi_row_added;
typedef gwi_row_added gwi_row_take_added(const void *row, void *before, void *ret_added, size_t n);

/* `value`, with what was added since on top; `before` is `value` then.  Returns whether anything
 * was. */
typedef int gwi_row_rebase(void *row, void *before, const void *value, size_t n);

typedef struct gwi_row_ops {
    gwi_row_add *add;
    gwi_row_take_added *take_added;
    gwi_row_rebase *rebase;
} gwi_row_ops;

/* Those for this type, F32 or F64, and this processor. */
const gwi_row_ops *gwi_row_ops_of(gw_dtype dtype);

#endif
