/* copy.c - streaming copies with the processor's non-temporal stores. */
#include "base/copy.h"

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
