/* row.c - what is computed with vectors, and the copies for ThreadSanitizer. */
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

#endif

/* One entry of a row. */
#if GWI_TSAN
#define DEFINE_ENTRY(name, type)                        \
    static inline type get_##name(const type *at)       \
    {                                                   \
        type entry;                                     \
                                                        \
        gwi_row_read(&entry, at, sizeof entry);         \
        return entry;                                   \
    }                                                   \
                                                        \
    static inline void put_##name(type *at, type entry) \
    {                                                   \
        gwi_row_write(at, &entry, sizeof entry);        \
    }
#else
#define DEFINE_ENTRY(name, type)                        \
    static inline type get_##name(const type *at)       \
    {                                                   \
        return *at;                                     \
    }                                                   \
                                                        \
    static inline void put_##name(type *at, type entry) \
    {                                                   \
        *at = entry;                                    \
    }
#endif

DEFINE_ENTRY(f32, float)
DEFINE_ENTRY(f64, double)

/* A number by the bytes of another type of its size. */
#define AS(type, other, value) \
    (((union {                 \
         type from;            \
         other to;             \
     }){(value)})              \
         .to)

/* What was added, by its bytes.  Without a branch, so that entries are done side by side. */
#define ADDED(type, bits, is, was, differ) \
    (AS(type, bits, (is) - (was)) & (0 - (bits)((differ) != 0)))

#define DEFINE_OPS(target, attribute, name, type, bits)                                        \
    attribute static void add_##name##_##target(void *row, const void *update, size_t n)       \
    {                                                                                          \
        type *to = row;                                                                        \
        const type *from = update;                                                             \
                                                                                               \
        GWI_SIDE_BY_SIDE                                                                       \
        for (size_t i = 0; i < n; i++)                                                         \
            put_##name(to + i, get_##name(to + i) + from[i]);                                  \
    }                                                                                          \
                                                                                               \
    attribute static gwi_row_added take_added_##name##_##target(const void *row, void *before, \
                                                                void *ret_added, size_t n)     \
    {                                                                                          \
        const type *now = row;                                                                 \
        type *old = before, *added = ret_added;                                                \
        bits any = 0, rounded = 0;                                                             \
                                                                                               \
        GWI_SIDE_BY_SIDE                                                                       \
        for (size_t i = 0; i < n; i++) {                                                       \
            type is = get_##name(now + i), was = get_##name(old + i);                          \
            bits differ = AS(type, bits, is) ^ AS(type, bits, was);                            \
            type more = AS(bits, type, ADDED(type, bits, is, was, differ));                    \
            bits mask = 0 - (bits)(differ != 0), summed = AS(type, bits, was + more);          \
            bits sum = (summed & mask) | (AS(type, bits, is) & ~mask);                         \
            added[i] = more;                                                                   \
            put_##name(old + i, AS(bits, type, sum));                                          \
            any |= differ;                                                                     \
            rounded |= sum ^ AS(type, bits, is);                                               \
        }                                                                                      \
        return any == 0 ? GWI_NONE_ADDED : rounded == 0 ? GWI_ADDED : GWI_ADDED_NEARLY;        \
    }                                                                                          \
                                                                                               \
    attribute static int rebase_##name##_##target(void *row, void *before, const void *value,  \
                                                  size_t n)                                    \
    {                                                                                          \
        const type *new = value;                                                               \
        type *now = row, *old = before;                                                        \
        bits any = 0;                                                                          \
                                                                                               \
        GWI_SIDE_BY_SIDE                                                                       \
        for (size_t i = 0; i < n; i++) {                                                       \
            type is = get_##name(now + i), was = get_##name(old + i);                          \
            bits differ = AS(type, bits, is) ^ AS(type, bits, was);                            \
            put_##name(now + i, new[i] + AS(bits, type, ADDED(type, bits, is, was, differ)));  \
            put_##name(old + i, new[i]);                                                       \
            any |= differ;                                                                     \
        }                                                                                      \
        return any != 0;                                                                       \
    }

GWI_TARGETS(DEFINE_OPS, f32, float, uint32_t)
GWI_TARGETS(DEFINE_OPS, f64, double, uint64_t)

#define NAME_OPS(target, attribute, name) \
    {add_##name##_##target, take_added_##name##_##target, rebase_##name##_##target},

const gwi_row_ops *gwi_row_ops_of(gw_dtype dtype)
{
    static const gwi_row_ops f32[] = {GWI_TARGETS(NAME_OPS, f32)};
    static const gwi_row_ops f64[] = {GWI_TARGETS(NAME_OPS, f64)};

    return dtype == GW_F32 ? &f32[gwi_target()] : &f64[gwi_target()];
}
