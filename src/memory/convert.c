/* convert.c - a loop for every pair of types, made from two lists.
 *
 * Each type can be read as a number W that holds it (int64_t, float, double or a complex
 * double) and be made from any of those.  The loops have no jumps in them, so compilers
 * vectorise the common ones.                                                        */
#include "memory/convert.h"
#include "base/half.h"

#include <complex.h>
#include <stdbool.h>
#include <stdint.h>

/* id, how it is stored, what it is read as, how it is read */
#define ID(x) (x)
#define AS_FLOAT_F16(x) gwi_float_of_f16(x)
#define AS_FLOAT_BF16(x) gwi_float_of_bf16(x)
#define AS_BOOL(x) ((x) != 0)

#define SOURCES(X, ...)                                    \
    X(U8, uint8_t, int64_t, ID, __VA_ARGS__)               \
    X(I8, int8_t, int64_t, ID, __VA_ARGS__)                \
    X(I16, int16_t, int64_t, ID, __VA_ARGS__)              \
    X(I32, int32_t, int64_t, ID, __VA_ARGS__)              \
    X(I64, int64_t, int64_t, ID, __VA_ARGS__)              \
    X(BOOL, uint8_t, int64_t, AS_BOOL, __VA_ARGS__)        \
    X(F16, uint16_t, float, AS_FLOAT_F16, __VA_ARGS__)     \
    X(BF16, uint16_t, float, AS_FLOAT_BF16, __VA_ARGS__)   \
    X(F32, float, float, ID, __VA_ARGS__)                  \
    X(F64, double, double, ID, __VA_ARGS__)                \
    X(C64, float complex, double complex, ID, __VA_ARGS__) \
    X(C128, double complex, double complex, ID, __VA_ARGS__)

/* What is real of a number; a real one is that itself. */
#define REAL(x) _Generic((x), double complex : creal(x), default : (x))

/* To whole numbers by way of int64_t, which wraps around as it is cut. */
#define TO_U8(x) ((uint8_t)(int64_t)REAL(x))
#define TO_I8(x) ((int8_t)(int64_t)REAL(x))
#define TO_I16(x) ((int16_t)(int64_t)REAL(x))
#define TO_I32(x) ((int32_t)(int64_t)REAL(x))
#define TO_I64(x) ((int64_t)REAL(x))
#define TO_BOOL(x) ((uint8_t)((x) != 0))
#define TO_F16(x) gwi_f16_of_float((float)REAL(x))
#define TO_BF16(x) gwi_bf16_of_float((float)REAL(x))
#define TO_F32(x) ((float)REAL(x))
#define TO_F64(x) ((double)REAL(x))
#define TO_C64(x) ((float complex)(x))
#define TO_C128(x) ((double complex)(x))

#define LOOP(from_id, From, Wide, read, to_id, To)                                           \
    static void from_id##_to_##to_id(void *restrict to, const void *restrict from, size_t n) \
    {                                                                                        \
        const From *in = from;                                                               \
        To *out = to;                                                                        \
                                                                                             \
        for (size_t i = 0; i < n; i++) {                                                     \
            Wide x = (Wide)read(in[i]);                                                      \
            out[i] = TO_##to_id(x);                                                          \
        }                                                                                    \
    }

SOURCES(LOOP, U8, uint8_t)
SOURCES(LOOP, I8, int8_t)
SOURCES(LOOP, I16, int16_t)
SOURCES(LOOP, I32, int32_t)
SOURCES(LOOP, I64, int64_t)
SOURCES(LOOP, BOOL, uint8_t)
SOURCES(LOOP, F16, uint16_t)
SOURCES(LOOP, BF16, uint16_t)
SOURCES(LOOP, F32, float)
SOURCES(LOOP, F64, double)
SOURCES(LOOP, C64, float complex)
SOURCES(LOOP, C128, double complex)

#define NAME(from_id, From, Wide, read, to_id, To) [GW_##from_id] = from_id##_to_##to_id,
#define LINE(to_id, unused, bytes) [GW_##to_id] = {SOURCES(NAME, to_id, unused)},

static gwi_convert *const table[GW_N_DTYPES][GW_N_DTYPES] = {GW_DTYPES(LINE)};

#if GWI_N_TARGETS > 1

/* Halves have instructions of their own. */
static void f16_to_f32(void *restrict to, const void *restrict from, size_t n)
{
    gwi_f16_widen_avx2(to, from, n);
}

static void f32_to_f16(void *restrict to, const void *restrict from, size_t n)
{
    gwi_f16_narrow_avx2(to, from, n);
}

static gwi_convert *faster(gw_dtype to, gw_dtype from)
{
    if (gwi_target() == 0)
        return NULL;
    if (to == GW_F32 && from == GW_F16)
        return f16_to_f32;
    return to == GW_F16 && from == GW_F32 ? f32_to_f16 : NULL;
}

#else

static gwi_convert *faster(gw_dtype to, gw_dtype from)
{
    (void)to, (void)from;
    return NULL;
}

#endif

gwi_convert *gwi_converter(gw_dtype to, gw_dtype from)
{
    gwi_convert *best = to == from ? NULL : faster(to, from);

    return to == from ? NULL : best != NULL ? best : table[to][from];
}
