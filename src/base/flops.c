/* flops.c - loops of multiply-adds that depend on nothing but registers.
 *
 * A multiply-add takes about four cycles and two start in each, so at least eight sums must be
 * under way; there are twelve, which is what fits into sixteen registers. */
#include "base/flops.h"

#define N_SUMS 12

/* One loop for vectors of BYTES bytes.  FMA is written so that the compiler cannot work out the
 * result, and KEEP so that it cannot leave it out. */
#define DEFINE_LOOP(NAME, TARGET, REAL, BYTES, FMA)                               \
    TARGET static double NAME(int64_t turns)                                      \
    {                                                                             \
        typedef REAL vector __attribute__((vector_size(BYTES)));                  \
        vector x, y;                                                              \
        for (unsigned i = 0; i < BYTES / sizeof(REAL); i++) {                     \
            x[i] = (REAL)0.999;                                                   \
            y[i] = (REAL)0.001;                                                   \
        }                                                                         \
        vector s0 = y, s1 = y, s2 = y, s3 = y, s4 = y, s5 = y;                    \
        vector s6 = y, s7 = y, s8 = y, s9 = y, s10 = y, s11 = y;                  \
        for (int64_t t = 0; t < turns; t++) {                                     \
            FMA(s0, x, y);                                                        \
            FMA(s1, x, y);                                                        \
            FMA(s2, x, y);                                                        \
            FMA(s3, x, y);                                                        \
            FMA(s4, x, y);                                                        \
            FMA(s5, x, y);                                                        \
            FMA(s6, x, y);                                                        \
            FMA(s7, x, y);                                                        \
            FMA(s8, x, y);                                                        \
            FMA(s9, x, y);                                                        \
            FMA(s10, x, y);                                                       \
            FMA(s11, x, y);                                                       \
        }                                                                         \
        vector sum = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11; \
        KEEP(sum);                                                                \
        return 2.0 * N_SUMS * (double)turns * (double)(BYTES / sizeof(REAL));     \
    }

#if defined(__x86_64__)
#define KEEP(v) __asm__ volatile("" : "+x"(v))
#define FMA_PS(s, x, y) __asm__ volatile("vfmadd213ps %2, %1, %0" : "+x"(s) : "x"(x), "x"(y))
#define FMA_PD(s, x, y) __asm__ volatile("vfmadd213pd %2, %1, %0" : "+x"(s) : "x"(x), "x"(y))
#define FMA_512_PS(s, x, y) __asm__ volatile("vfmadd213ps %2, %1, %0" : "+v"(s) : "v"(x), "v"(y))
#define FMA_512_PD(s, x, y) __asm__ volatile("vfmadd213pd %2, %1, %0" : "+v"(s) : "v"(x), "v"(y))
#define MUL_ADD(s, x, y) \
    do {                 \
        (s) = (s) * (x); \
        (s) = (s) + (y); \
        KEEP(s);         \
    } while (0)
#define TARGET_OF(what) __attribute__((target(what)))
DEFINE_LOOP(sse_f32, , float, 16, MUL_ADD)
DEFINE_LOOP(sse_f64, , double, 16, MUL_ADD)
DEFINE_LOOP(avx_f32, TARGET_OF("avx2,fma"), float, 32, FMA_PS)
DEFINE_LOOP(avx_f64, TARGET_OF("avx2,fma"), double, 32, FMA_PD)
#undef KEEP
#define KEEP(v) __asm__ volatile("" : "+v"(v))
DEFINE_LOOP(avx512_f32, TARGET_OF("avx512f"), float, 64, FMA_512_PS)
DEFINE_LOOP(avx512_f64, TARGET_OF("avx512f"), double, 64, FMA_512_PD)

double gwi_flops_f32(int64_t turns)
{
    if (__builtin_cpu_supports("avx512f"))
        return avx512_f32(turns);
    return __builtin_cpu_supports("fma") ? avx_f32(turns) : sse_f32(turns);
}

double gwi_flops_f64(int64_t turns)
{
    if (__builtin_cpu_supports("avx512f"))
        return avx512_f64(turns);
    return __builtin_cpu_supports("fma") ? avx_f64(turns) : sse_f64(turns);
}
#else
#define KEEP(v) __asm__ volatile("" : "+w"(v))
#define MUL_ADD(s, x, y)                                        \
    do {                                                        \
        for (unsigned i = 0; i < sizeof(s) / sizeof(s)[0]; i++) \
            (s)[i] = __builtin_fma((s)[i], (x)[i], (y)[i]);     \
        KEEP(s);                                                \
    } while (0)
DEFINE_LOOP(any_f32, , float, 16, MUL_ADD)
DEFINE_LOOP(any_f64, , double, 16, MUL_ADD)

double gwi_flops_f32(int64_t turns)
{
    return any_f32(turns);
}

double gwi_flops_f64(int64_t turns)
{
    return any_f64(turns);
}
#endif
