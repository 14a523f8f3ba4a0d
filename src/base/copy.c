/* copy.c - streaming copies with the processor's non-temporal stores. */
#include "base/copy.h"
#include "base/clock.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>

void gwi_copy_stream(void *restrict to, const void *restrict from, size_t n)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    size_t head = (size_t)(-(uintptr_t)t & 63);

    if (n < 256) {
        memcpy(t, f, n);
        return;
    }
    memcpy(t, f, head);
    t += head, f += head, n -= head;
    for (; n >= 64; t += 64, f += 64, n -= 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)f);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(f + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(f + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(f + 48));
        _mm_stream_si128((__m128i *)(void *)t, a);
        _mm_stream_si128((__m128i *)(void *)(t + 16), b);
        _mm_stream_si128((__m128i *)(void *)(t + 32), c);
        _mm_stream_si128((__m128i *)(void *)(t + 48), d);
    }
    /* Non-temporal stores are ordered with nothing, not even a later release. */
    _mm_sfence();
    memcpy(t, f, n);
}

#else

void gwi_copy_stream(void *restrict to, const void *restrict from, size_t n)
{
    memcpy(to, from, n);
}

#endif

#define STREAM_BYTES 4096 /* shorter copies always go by the cache */
/* Of the copies that may be long enough one is timed; a prime, since lengths may follow a pattern.
 */
#define TIME_EVERY 7
#define SLOW_COPIES 3 /* in a row, since a copy may just have been interrupted */
#define STREAMED 256  /* then so many go past the cache before we try again */

/* Slow is below 4 GB/s.  A copy by the cache reaches 2 GB/s where a line of the other processor
 * takes long, and elsewhere 6 to 13 (an Intel Xeon) or 20 (an AMD EPYC).  Past the cache it may be
 * quicker even there, but then who reads it waits for memory: for 1,024 keys 134 us instead of 100.
 */
static int is_slow(size_t n, int64_t ns)
{
    return ns >= (int64_t)n / 4;
}

static void copy_timed(gwi_copier *c, void *restrict to, const void *restrict from, size_t n)
{
    int64_t start = gwi_now_ns();

    memcpy(to, from, n);
    if (!is_slow(n, gwi_now_ns() - start)) {
        c->slow = 0;
    } else if (++c->slow >= SLOW_COPIES) {
        c->slow = SLOW_COPIES - 1; /* one more after that decides again */
        c->stream = STREAMED;
    }
}

int gwi_copier_is_due(gwi_copier *copier)
{
    return copier->stream > 0 || copier->slow > 0 || ++copier->n_timable % TIME_EVERY == 0;
}

void gwi_copier_copy_due(gwi_copier *copier, void *restrict to, const void *restrict from, size_t n)
{
    if (copier->stream > 0 && n >= STREAM_BYTES) {
        copier->stream--;
        gwi_copy_stream(to, from, n);
    } else if (n >= copier->time_from) {
        copy_timed(copier, to, from, n);
    } else {
        memcpy(to, from, n);
    }
}

void gwi_copier_copy(gwi_copier *copier, void *restrict to, const void *restrict from, size_t n)
{
    if (n >= STREAM_BYTES &&
        (copier->stream > 0 || (n >= copier->time_from && gwi_copier_is_due(copier))))
        gwi_copier_copy_due(copier, to, from, n);
    else if (n > 0)
        memcpy(to, from, n);
}
