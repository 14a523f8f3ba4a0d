/* copy.h - copying memory past the caches. */
#ifndef GWI_BASE_COPY_H
#define GWI_BASE_COPY_H

#include <stddef.h>

/* Copy `n` bytes without bringing the destination into this processor's caches:
 * right where somebody else will read it, or nobody soon.  The regions must not
 * overlap.  The copy is visible to others before any later store of this
 * thread, as with memcpy(). */
void gwi_copy_stream(void *restrict to, const void *restrict from, size_t n);

#endif
