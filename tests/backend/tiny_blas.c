/* tiny_blas.c - the least that is a BLAS, for tests: slow, right, and with integers of either
 * width.
 *
 * Compiled with TINY_64 its names end in 64_ and its integers have 64 bits.  With TINY_CRASH it
 * kills whoever loads it.  With TINY_WRONG every product is off by one. */
#include <stdint.h>
#include <stdlib.h>

#ifdef TINY_64
typedef int64_t integer;
#define NAME(x) x##64_
#else
typedef int32_t integer;
#define NAME(x) x
#endif

#define DEFINE(FUNCTION, REAL)                                                                     \
    void FUNCTION(const char *ta, const char *tb, const integer *m, const integer *n,              \
                  const integer *k, const REAL *alpha, const REAL *a, const integer *lda,          \
                  const REAL *b, const integer *ldb, const REAL *beta, REAL *c,                    \
                  const integer *ldc);                                                             \
    void FUNCTION(const char *ta, const char *tb, const integer *m, const integer *n,              \
                  const integer *k, const REAL *alpha, const REAL *a, const integer *lda,          \
                  const REAL *b, const integer *ldb, const REAL *beta, REAL *c,                    \
                  const integer *ldc)                                                              \
    {                                                                                              \
        for (int64_t j = 0; j < *n; j++)                                                           \
            for (int64_t i = 0; i < *m; i++) {                                                     \
                REAL sum = 0;                                                                      \
                for (int64_t l = 0; l < *k; l++)                                                   \
                    sum += (*ta == 'T' ? a[l + i * *lda] : a[i + l * *lda]) *                      \
                           (*tb == 'T' ? b[j + l * *ldb] : b[l + j * *ldb]);                       \
                c[i + j * *ldc] = *alpha * sum + (*beta == 0 ? 0 : *beta * c[i + j * *ldc]) + OFF; \
            }                                                                                      \
    }
#ifdef TINY_WRONG
#define OFF 1
#else
#define OFF 0
#endif
DEFINE(NAME(sgemm_), float)
DEFINE(NAME(dgemm_), double)

integer NAME(isamax_)(const integer *n, const float *x, const integer *step);
integer NAME(isamax_)(const integer *n, const float *x, const integer *step)
{
    integer best = 0;

    for (integer i = 0; i < *n; i++)
        if (best == 0 || x[i * *step] > x[(best - 1) * *step])
            best = i + 1;
    return best;
}

#ifdef TINY_CRASH
__attribute__((constructor)) static void crash(void)
{
    abort();
}
#endif
