/* row.c - adding to vectors, and the copies for ThreadSanitizer. */
#include "params/row.h"
#include "base/target.h"

#include <stddef.h>

#if GWI_TSAN

/* Rows are whole numbers of 4 bytes, at multiples of 4.  Also who has the latch goes entry by
 * entry: ThreadSanitizer does not see what other processes do, so that of a place that was another
 * process's meanwhile it takes the last write here for one that nobody waited for. */

void gwi_row_read(void *to, const void *row, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes / 4; i++)
        ((uint32_t *)to)[i] = __atomic_load_n((const uint32_t *)row + i, __ATOMIC_RELAXED);
}

void gwi_row_write(void *row, const void *from, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes / 4; i++)
        __atomic_store_n((uint32_t *)row + i, ((const uint32_t *)from)[i], __ATOMIC_RELAXED);
}

void gwi_row_clear(void *row, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes / 4; i++)
        __atomic_store_n((uint32_t *)row + i, 0, __ATOMIC_RELAXED);
}

int gwi_row_is_zero(const void *row, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes / 4; i++)
        if (__atomic_load_n((const uint32_t *)row + i, __ATOMIC_RELAXED) != 0)
            return 0;
    return 1;
}

#define DEFINE_ADD(target, attribute, name, type)                                        \
    attribute static void add_##name##_##target(void *row, const void *update, size_t n) \
    {                                                                                    \
        for (size_t i = 0; i < n; i++) {                                                 \
            type sum;                                                                    \
            gwi_row_read(&sum, (type *)row + i, sizeof sum);                             \
            sum += ((const type *)update)[i];                                            \
            gwi_row_write((type *)row + i, &sum, sizeof sum);                            \
        }                                                                                \
    }

#else

#define DEFINE_ADD(target, attribute, name, type)                                        \
    attribute static void add_##name##_##target(void *row, const void *update, size_t n) \
    {                                                                                    \
        type *to = row;                                                                  \
        const type *from = update;                                                       \
                                                                                         \
        GWI_SIDE_BY_SIDE                                                                 \
        for (size_t i = 0; i < n; i++)                                                   \
            to[i] += from[i];                                                            \
    }

#endif

GWI_TARGETS(DEFINE_ADD, f32, float)
GWI_TARGETS(DEFINE_ADD, f64, double)

#define NAME_ADD(target, attribute, name) add_##name##_##target,

gwi_row_add *gwi_row_adder(gw_dtype dtype)
{
    static gwi_row_add *const f32[] = {GWI_TARGETS(NAME_ADD, f32)};
    static gwi_row_add *const f64[] = {GWI_TARGETS(NAME_ADD, f64)};

    return dtype == GW_F32 ? f32[gwi_target()] : f64[gwi_target()];
}
