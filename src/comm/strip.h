/* strip.h - part of an array as a stream of bytes.
 *
 * Cutting a dense array along an axis gives blocks of equal length at equal
 * distances, one for each index before that axis.  A strip walks them in order; the
 * stream of a strip is what the part would be as a dense array of its own.      */
#ifndef GWI_COMM_STRIP_H
#define GWI_COMM_STRIP_H

#include <stddef.h>
#include <stdint.h>

typedef struct gwi_strip {
    unsigned char *base; /* of the first block; borrowed */
    size_t block;        /* bytes in a block; 0 if n_bytes is 0 */
    size_t stride;       /* from block to block */
    size_t n_bytes;      /* of the whole stream */
} gwi_strip;

/* All of an array. */
static inline gwi_strip gwi_strip_whole(void *base, size_t n_bytes)
{
    return (gwi_strip){base, n_bytes, n_bytes, n_bytes};
}

/* Entries [from, from + n) along an axis with `length` entries in all; `outer` is the
 * product of the axes before it, `inner` the bytes of one entry along it.  `base` may be
 * NULL if only lengths matter. */
static inline gwi_strip gwi_strip_part(void *base, int64_t outer, int64_t length, int64_t inner,
                                       int64_t from, int64_t n)
{
    size_t block = (size_t)(n * inner);

    return (gwi_strip){base == NULL ? NULL : (unsigned char *)base + from * inner, block,
                       (size_t)(length * inner), (size_t)outer * block};
}

/* Copy bytes [offset, offset + n) of the stream out of the array, or into it.  With
 * `stream` long copies into the array go past the cache. */
void gwi_strip_read(const gwi_strip *strip, size_t offset, void *to, size_t n);
void gwi_strip_write(const gwi_strip *strip, size_t offset, const void *from, size_t n, int stream);

/* Copy `n` bytes from `offset` on of one stream into another. */
void gwi_strip_copy(const gwi_strip *to, const gwi_strip *from, size_t offset, size_t n);

/* The bytes themselves if they lie together in the array, else NULL. */
const void *gwi_strip_view(const gwi_strip *strip, size_t offset, size_t n);

#endif
