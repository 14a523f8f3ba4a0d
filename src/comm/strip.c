/* strip.c - copies between streams and the blocks of an array. */
#include "comm/strip.h"
#include "base/copy.h"

#include <string.h>

#define STREAM_BYTES ((size_t)4096) /* shorter pieces gain nothing */

/* Where a stream's byte lies, and how many follow it in its block. */
static unsigned char *locate(const gwi_strip *s, size_t offset, size_t *ret_left)
{
    size_t index = offset / s->block, within = offset % s->block;

    *ret_left = s->block - within;
    return s->base + index * s->stride + within;
}

void gwi_strip_read(const gwi_strip *strip, size_t offset, void *to, size_t n)
{
    unsigned char *at = to;

    while (n > 0) {
        size_t left, now;
        const unsigned char *from = locate(strip, offset, &left);
        now = n < left ? n : left;
        memcpy(at, from, now);
        at += now;
        offset += now;
        n -= now;
    }
}

void gwi_strip_write(const gwi_strip *strip, size_t offset, const void *from, size_t n, int stream)
{
    const unsigned char *at = from;

    while (n > 0) {
        size_t left, now;
        unsigned char *to = locate(strip, offset, &left);
        now = n < left ? n : left;
        if (stream && now >= STREAM_BYTES)
            gwi_copy_stream(to, at, now);
        else
            memcpy(to, at, now);
        at += now;
        offset += now;
        n -= now;
    }
}

void gwi_strip_copy(const gwi_strip *to, const gwi_strip *from, size_t offset, size_t n)
{
    while (n > 0) {
        size_t left, now;
        const unsigned char *at = locate(from, offset, &left);
        now = n < left ? n : left;
        gwi_strip_write(to, offset, at, now, 0);
        offset += now;
        n -= now;
    }
}

const void *gwi_strip_view(const gwi_strip *strip, size_t offset, size_t n)
{
    size_t left = 0;

    if (n == 0)
        return strip->base;
    const unsigned char *at = locate(strip, offset, &left);
    return n <= left ? at : NULL;
}
