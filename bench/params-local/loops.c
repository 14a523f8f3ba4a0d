/* loops.c - gather and scatter-add, as well as a plain loop does them. */
#include "loops.h"

#include <string.h>

#define LINE 64
#define FETCHED_BYTES (8 * LINE)

/* Inlined by force: GCC takes a function that only prefetches for useless. */
static inline __attribute__((always_inline)) void fetch(const float *row, size_t row_bytes)
{
    size_t n_bytes = row_bytes < FETCHED_BYTES ? row_bytes : FETCHED_BYTES;

    for (size_t at = 0; at < n_bytes; at += LINE)
        __builtin_prefetch((const char *)row + at, 0, 2);
}

/* Also with `ahead` 0 known, so that nothing of the prefetching is left there. */
static inline __attribute__((always_inline)) void gather(loop_table t, const int64_t *keys,
                                                         size_t n, size_t ahead, float *out)
{
    size_t row_bytes = t.length * sizeof(float);

    for (size_t i = 0; i < n; i++) {
        if (ahead > 0 && i + ahead < n)
            fetch(t.rows + (size_t)keys[i + ahead] * t.length, row_bytes);
        memcpy(out + i * t.length, t.rows + (size_t)keys[i] * t.length, row_bytes);
    }
}

void loop_gather(loop_table table, const int64_t *keys, size_t n, size_t ahead, float *out)
{
    if (ahead == 0)
        gather(table, keys, n, 0, out);
    else
        gather(table, keys, n, ahead, out);
}

static inline __attribute__((always_inline)) void
scatter(loop_table t, const int64_t *keys, size_t n, size_t ahead, const float *updates)
{
    for (size_t i = 0; i < n; i++) {
        float *restrict row = t.rows + (size_t)keys[i] * t.length;
        const float *restrict update = updates + i * t.length;
        if (ahead > 0 && i + ahead < n)
            fetch(t.rows + (size_t)keys[i + ahead] * t.length, t.length * sizeof(float));
        for (size_t j = 0; j < t.length; j++)
            row[j] += update[j];
    }
}

/* As wide as the processor can. */
#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))

WIDE static void scatter_wide(loop_table t, const int64_t *keys, size_t n, size_t ahead,
                              const float *updates)
{
    if (ahead == 0)
        scatter(t, keys, n, 0, updates);
    else
        scatter(t, keys, n, ahead, updates);
}
#endif

void loop_scatter_add(loop_table table, const int64_t *keys, size_t n, size_t ahead,
                      const float *updates)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        scatter_wide(table, keys, n, ahead, updates);
        return;
    }
#endif
    if (ahead == 0)
        scatter(table, keys, n, 0, updates);
    else
        scatter(table, keys, n, ahead, updates);
}
