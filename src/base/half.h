/* half.h - numbers of 16 bits: IEEE's float16, and bfloat16, the upper half of a float.
 *
 * Rounding is to the nearest, ties to even; what is too large becomes infinite; a NaN
 * stays one, made quiet.  All cases are computed and then chosen from by masks, so that
 * loops over these functions have no jumps and compilers can vectorise them.          */
#ifndef GWI_BASE_HALF_H
#define GWI_BASE_HALF_H

#include "base/target.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t gwi_bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float gwi_float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t gwi_choose_bits(int first, uint32_t a, uint32_t b)
{
    uint32_t mask = -(uint32_t)first;
    return (a & mask) | (b & ~mask);
}

/* Small numbers go through an addition that lets the processor do the shifting and
 * rounding; its operands and results are no denormals of float32, so it works where
 * those are flushed to zero. */
static inline float gwi_float_of_f16(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    uint32_t normal = magnitude + ((127 - 15) << 23);
    uint32_t quiet = (uint32_t)(magnitude > 31 << 23) << 22;
    uint32_t special = (magnitude + ((255 - 31) << 23)) | quiet;
    uint32_t small = gwi_bits_of_float(gwi_float_of_bits(magnitude + ((127 - 14) << 23)) -
                                       0x1p-14f);

    normal = gwi_choose_bits(magnitude < 31 << 23, normal, special);
    normal = gwi_choose_bits(magnitude < 1 << 23, small, normal);
    return gwi_float_of_bits(normal | (uint32_t)(half & 0x8000) << 16);
}

static inline uint16_t gwi_f16_of_float(float x)
{
    uint32_t magnitude = gwi_bits_of_float(x) & 0x7fffffff;
    uint32_t odd = magnitude >> 13 & 1;
    uint32_t normal = (magnitude - ((127 - 15) << 23) + 0xfff + odd) >> 13;
    uint32_t small = gwi_bits_of_float(gwi_float_of_bits(magnitude) + 0.5f) - (126 << 23);
    uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x1ff);

    normal = gwi_choose_bits(magnitude < (127 - 14) << 23, small, normal);
    normal = gwi_choose_bits(magnitude < (127 + 16) << 23, normal, 0x7c00);
    normal = gwi_choose_bits(magnitude > 255u << 23, nan, normal);
    return (uint16_t)(normal | (gwi_bits_of_float(x) >> 16 & 0x8000));
}

static inline float gwi_float_of_bf16(uint16_t half)
{
    return gwi_float_of_bits((uint32_t)half << 16);
}

static inline uint16_t gwi_bf16_of_float(float x)
{
    uint32_t bits = gwi_bits_of_float(x);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

    return (uint16_t)gwi_choose_bits((bits & 0x7fffffff) > 255u << 23, bits >> 16 | 0x40, rounded);
}

/* Arrays, for each of the GWI_TARGETS: gwi_f16_widen_any(), gwi_f16_widen_avx2() and so on.
 * The arrays of a call do not overlap. */
#define GWI_HALF_LOOP(target, attribute, name, To, From, convert)                            \
    attribute static inline void name##_##target(To *restrict to, const From *restrict from, \
                                                 size_t n)                                   \
    {                                                                                        \
        for (size_t i = 0; i < n; i++)                                                       \
            to[i] = convert(from[i]);                                                        \
    }
GWI_TARGETS(GWI_HALF_LOOP, gwi_bf16_widen, float, uint16_t, gwi_float_of_bf16)
GWI_TARGETS(GWI_HALF_LOOP, gwi_bf16_narrow, uint16_t, float, gwi_bf16_of_float)
GWI_HALF_LOOP(any, , gwi_f16_widen, float, uint16_t, gwi_float_of_f16)
GWI_HALF_LOOP(any, , gwi_f16_narrow, uint16_t, float, gwi_f16_of_float)

#if GWI_N_TARGETS > 1
/* This processor has instructions for float16, which give the same to the bit. */
#include <immintrin.h>

__attribute__((target("avx2,f16c"))) static inline void
gwi_f16_widen_avx2(float *restrict to, const uint16_t *restrict from, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
    gwi_f16_widen_any(to + i, from + i, n - i);
}

__attribute__((target("avx2,f16c"))) static inline void
gwi_f16_narrow_avx2(uint16_t *restrict to, const float *restrict from, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    gwi_f16_narrow_any(to + i, from + i, n - i);
}
#endif

#endif
