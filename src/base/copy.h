/* copy.h - copying memory past the caches. */
#ifndef GWI_BASE_COPY_H
#define GWI_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Copy `n` bytes without bringing the destination into this processor's caches:
 * right where somebody else will read it, or nobody soon.  The regions must not
 * overlap.  The copy is visible to others before any later store of this
 * thread, as with memcpy(). */
void gwi_copy_stream(void *restrict to, const void *restrict from, size_t n);

/* Copies for another processor to read: by way of the cache or past it, whichever is
 * faster here and now.  Lines that we cache are handed over from cache to cache: 25 GB/s
 * between processors that share a cache and 5 between such that do not, where going by
 * memory gives 14 in either case.  Which it is changes when a process moves, so some cached
 * copies are timed; those past the cache tell nothing, for they return before the bytes
 * have arrived.  Used by one thread at a time; begins as zero but for `time_from`. */
typedef struct gwi_copier {
    size_t time_from;   /* shorter copies are not timed */
    uint32_t n_timable; /* copies that could be timed, to choose some */
    int slow;           /* timed copies in a row that were slow */
    int stream;         /* so many copies more go past the cache */
} gwi_copier;

void gwi_copier_copy(gwi_copier *copier, void *restrict to, const void *restrict from, size_t n);

/* For who can write to where it goes, and then has nothing to copy: whether it should be written
 * elsewhere this time and copied, past the cache or to time it; and that copy, of at least a
 * byte. */
int gwi_copier_is_due(gwi_copier *copier);
void gwi_copier_copy_due(gwi_copier *copier, void *restrict to, const void *restrict from,
                         size_t n);

#endif
