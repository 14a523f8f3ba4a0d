/* walk.c - walks over rows, with prefetching.
 *
 * A walk is compiled for each case that matters for speed: one mapping or one for each
 * rank, indices of 4 or 8 bytes, and rows so short that a call of memcpy() would be most of
 * the work.  What is the same for a whole walk is an argument that the compiler knows.  */
#include "memory/walk.h"
#include "base/error.h"
#include "base/platform.h"
#include "base/target.h"
#include "comm/reduce.h"
#include "memory/convert.h"

#include <sched.h>
#include <string.h>

#define AHEAD 16         /* rows between asking for one and using it; a power of 2 */
#define LINES_AHEAD 8    /* of a row; the processor fetches more of it by itself */
#define SPINS 200        /* looks at a latch before others may run */
#define YIELDS 1000      /* before the fabric is asked whether somebody died */
#define BLOCK_BYTES 4096 /* of a row that is converted before it is added */

/* What a walk knows when it is compiled. */
enum { ONE_MAPPING = 1, SHORT_INDICES = 2 };

struct walk {
    unsigned char *base; /* ONE_MAPPING: of row 0 */
    size_t pitch, column_at;
    int64_t first_row;
    const gwi_partition *parts;
    unsigned char *const *rows;
    const void *indices;
    size_t n, n_lines;
};

static struct walk walk_of(const gw_memory *memory, gwi_steps steps)
{
    const gwi_whole *w = memory->whole;
    size_t lines = (memory->row_bytes + GWI_LINE - 1) / GWI_LINE;

    return (struct walk){.base = w->kind == GW_CONTINUOUS ? w->rows[0] + memory->column_at : NULL,
                         .pitch = w->pitch,
                         .column_at = memory->column_at,
                         .first_row = steps.first_row,
                         .parts = &w->parts,
                         .rows = w->rows,
                         .indices = steps.indices.data,
                         .n = steps.indices.n,
                         .n_lines = lines < LINES_AHEAD ? lines : LINES_AHEAD};
}

static int known_of(const gw_memory *memory, gwi_steps steps)
{
    return (memory->whole->kind == GW_CONTINUOUS ? ONE_MAPPING : 0) |
           (steps.indices.dtype == GW_I32 ? SHORT_INDICES : 0);
}

GWI_INLINE int64_t row_number(const struct walk *w, size_t i, int known)
{
    return w->first_row + (known & SHORT_INDICES ? ((const int32_t *)w->indices)[i]
                                                 : ((const int64_t *)w->indices)[i]);
}

GWI_INLINE unsigned char *find(const struct walk *w, size_t i, int known)
{
    int64_t row = row_number(w, i, known);

    if (known & ONE_MAPPING)
        return w->base + (size_t)row * w->pitch;
    int owner = gwi_partition_owner(w->parts, row);
    return w->rows[owner] + (size_t)(row - w->parts->starts[owner]) * w->pitch + w->column_at;
}

/* Where the rows just ahead lie: row i at i % AHEAD. */
typedef unsigned char *ring[AHEAD];

GWI_INLINE void look_ahead(const struct walk *w, ring places, size_t i, int known)
{
    if (i >= w->n)
        return;
    unsigned char *row = places[i % AHEAD] = find(w, i, known);
    for (size_t line = 0; line < w->n_lines; line++)
        __builtin_prefetch(row + line * GWI_LINE, 0, 2);
}

GWI_INLINE void begin(const struct walk *w, ring places, int known)
{
    for (size_t i = 0; i < AHEAD; i++)
        look_ahead(w, places, i, known);
}

/* The place of row i, and the next one is asked for. */
GWI_INLINE unsigned char *step(const struct walk *w, ring places, size_t i, int known)
{
    unsigned char *row = places[i % AHEAD];

    look_ahead(w, places, i + AHEAD, known);
    return row;
}

GWI_INLINE size_t buffer_row(const uint32_t *at, size_t i)
{
    return at != NULL ? at[i] : i;
}

/* Run `call` with what is known of a walk. */
#define WITH_KNOWN(known, call)                \
    do {                                       \
        switch (known) {                       \
        case 0:                                \
            call(0);                           \
            break;                             \
        case ONE_MAPPING:                      \
            call(ONE_MAPPING);                 \
            break;                             \
        case SHORT_INDICES:                    \
            call(SHORT_INDICES);               \
            break;                             \
        default:                               \
            call(ONE_MAPPING | SHORT_INDICES); \
        }                                      \
    } while (0)

/* reading and writing as they are */

/* `n_bytes` is a constant for short rows. */
GWI_INLINE void copy_rows(const struct walk *w, const uint32_t *at, unsigned char *buffer,
                          size_t n_bytes, int reads, int known)
{
    ring places;

    begin(w, places, known);
    for (size_t i = 0; i < w->n; i++) {
        unsigned char *row = step(w, places, i, known);
        unsigned char *other = buffer + buffer_row(at, i) * n_bytes;
        if (reads)
            memcpy(other, row, n_bytes);
        else
            memcpy(row, other, n_bytes);
    }
}

/* Short ones, of one entry or a few, are copied without a call. */
GWI_INLINE void copy_rows_of(const struct walk *w, const uint32_t *at, unsigned char *buffer,
                             size_t n_bytes, int reads, int known)
{
    switch (n_bytes) {
    case 1:
        copy_rows(w, at, buffer, 1, reads, known);
        break;
    case 2:
        copy_rows(w, at, buffer, 2, reads, known);
        break;
    case 4:
        copy_rows(w, at, buffer, 4, reads, known);
        break;
    case 8:
        copy_rows(w, at, buffer, 8, reads, known);
        break;
    case 16:
        copy_rows(w, at, buffer, 16, reads, known);
        break;
    case 32:
        copy_rows(w, at, buffer, 32, reads, known);
        break;
    case 64:
        copy_rows(w, at, buffer, 64, reads, known);
        break;
    default:
        copy_rows(w, at, buffer, n_bytes, reads, known);
    }
}

/* converting */

static void read_converted(const struct walk *w, const gw_memory *memory, const uint32_t *at,
                           unsigned char *out, gw_dtype dtype, int known)
{
    gwi_convert *convert = gwi_converter(dtype, memory->whole->dtype);
    size_t n = memory->row_entries, out_bytes = n * gwi_dtype_bytes(dtype);
    ring places;

    begin(w, places, known);
    for (size_t i = 0; i < w->n; i++) {
        const unsigned char *row = step(w, places, i, known);
        convert(out + buffer_row(at, i) * out_bytes, row, n);
    }
}

static void write_converted(const struct walk *w, const gw_memory *memory, const uint32_t *at,
                            const unsigned char *values, gw_dtype dtype, int known)
{
    gwi_convert *convert = gwi_converter(memory->whole->dtype, dtype);
    size_t n = memory->row_entries, in_bytes = n * gwi_dtype_bytes(dtype);
    ring places;

    begin(w, places, known);
    for (size_t i = 0; i < w->n; i++) {
        unsigned char *row = step(w, places, i, known);
        convert(row, values + buffer_row(at, i) * in_bytes, n);
    }
}

void gwi_rows_read(const gw_memory *memory, gwi_steps steps, void *out, gw_dtype dtype)
{
    struct walk w = walk_of(memory, steps);
    int known = known_of(memory, steps);

    if (memory->row_entries == 0)
        return;
#define READ(known) copy_rows_of(&w, steps.at, out, memory->row_bytes, 1, known)
    if (dtype == memory->whole->dtype)
        WITH_KNOWN(known, READ);
    else
        read_converted(&w, memory, steps.at, out, dtype, known);
#undef READ
}

void gwi_rows_write(const gw_memory *memory, gwi_steps steps, const void *values, gw_dtype dtype)
{
    struct walk w = walk_of(memory, steps);
    int known = known_of(memory, steps);
    unsigned char *buffer = (unsigned char *)(uintptr_t)values; /* only read */

    if (memory->row_entries == 0)
        return;
#define WRITE(known) copy_rows_of(&w, steps.at, buffer, memory->row_bytes, 0, known)
    if (dtype == memory->whole->dtype)
        WITH_KNOWN(known, WRITE);
    else
        write_converted(&w, memory, steps.at, values, dtype, known);
#undef WRITE
}

/* adding */

typedef void adder(void *row, const void *values, size_t n);

#define DEFINE_ADD(target, attribute, name, type)                                        \
    attribute static void add_##name##_##target(void *row, const void *values, size_t n) \
    {                                                                                    \
        type *to = row;                                                                  \
        const type *from = values;                                                       \
                                                                                         \
        GWI_SIDE_BY_SIDE                                                                 \
        for (size_t i = 0; i < n; i++)                                                   \
            to[i] += from[i];                                                            \
    }

GWI_TARGETS(DEFINE_ADD, f32, float)
GWI_TARGETS(DEFINE_ADD, f64, double)

#define NAME_ADD(target, attribute, name) add_##name##_##target,

/* NULL: by gwi_reduce(), which knows all types. */
static adder *adder_of(gw_dtype dtype)
{
    static adder *const f32[] = {GWI_TARGETS(NAME_ADD, f32)};
    static adder *const f64[] = {GWI_TARGETS(NAME_ADD, f64)};

    return dtype == GW_F32 ? f32[gwi_target()] : dtype == GW_F64 ? f64[gwi_target()] : NULL;
}

int gwi_row_latch_take(const gwi_whole *whole, gwi_row_latch *latch)
{
    uint32_t mine = (uint32_t)whole->rank + 1;

    for (int looks = 1;; looks++) {
        uint32_t free_latch = 0;
        /* Pairs with gwi_row_latch_give(). */
        if (gwi_likely(atomic_compare_exchange_weak_explicit(
                latch, &free_latch, mine, memory_order_acquire, memory_order_relaxed)))
            return 0;
        if (looks % SPINS != 0) {
            gwi_cpu_relax();
            continue;
        }
        sched_yield();
        if (looks / SPINS % YIELDS == 0 && whole->generation == gwi_fork_generation()) {
            int err = whole->world->fabric->ops->check(whole->world->fabric);
            if (err < 0)
                return err;
        }
    }
}

/* Add one row of `n` entries, of which `convert` makes the memory's type, piece by piece. */
static void add_row(gw_dtype dtype, adder *add, gwi_convert *convert, size_t value_bytes,
                    unsigned char *row, const unsigned char *values, size_t n)
{
    _Alignas(GWI_LINE) unsigned char block[BLOCK_BYTES];
    size_t item = gwi_dtype_bytes(dtype), most = convert != NULL ? BLOCK_BYTES / item : n;

    for (size_t done = 0, now; done < n; done += now) {
        now = n - done < most ? n - done : most;
        const void *from = values + done * value_bytes;
        if (convert != NULL) {
            convert(block, from, now);
            from = block;
        }
        unsigned char *to = row + done * item;
        if (add != NULL)
            add(to, from, now);
        else
            gwi_reduce(GW_SUM, dtype, to, (const void *[]){to, from}, 2, now);
    }
}

/* The rows just ahead, with their latches. */
struct held {
    unsigned char *row;
    gwi_row_latch *latch;
};

GWI_INLINE void look_ahead_held(const struct walk *w, const gwi_whole *whole, struct held *places,
                                size_t i, int known)
{
    if (i >= w->n)
        return;
    int64_t row = row_number(w, i, known);
    int owner = known & ONE_MAPPING ? 0 : gwi_partition_owner(w->parts, row);
    unsigned char *at = known & ONE_MAPPING
                            ? w->base + (size_t)row * w->pitch
                            : w->rows[owner] + (size_t)(row - w->parts->starts[owner]) * w->pitch +
                                  w->column_at;
    gwi_row_latch *latch = &whole->latches[owner][(uint64_t)row & whole->latch_mask];
    places[i % AHEAD] = (struct held){at, latch};
    __builtin_prefetch(latch, 1, 2);
    for (size_t line = 0; line < w->n_lines; line++)
        __builtin_prefetch(at + line * GWI_LINE, 0, 2);
}

GWI_INLINE int add_rows(const struct walk *w, const gw_memory *memory, const uint32_t *at,
                        const unsigned char *values, gw_dtype dtype, int known)
{
    const gwi_whole *whole = memory->whole;
    gwi_convert *convert = gwi_converter(whole->dtype, dtype);
    size_t n = memory->row_entries, value_bytes = gwi_dtype_bytes(dtype);
    adder *add = adder_of(whole->dtype);
    struct held places[AHEAD];

    for (size_t i = 0; i < AHEAD; i++)
        look_ahead_held(w, whole, places, i, known);
    for (size_t i = 0; i < w->n; i++) {
        struct held now = places[i % AHEAD];
        look_ahead_held(w, whole, places, i + AHEAD, known);
        const unsigned char *from = values + buffer_row(at, i) * n * value_bytes;
        int err = gwi_row_latch_take(whole, now.latch);
        if (gwi_unlikely(err < 0))
            return err;
        if (convert == NULL && add != NULL)
            add(now.row, from, n);
        else
            add_row(whole->dtype, add, convert, value_bytes, now.row, from, n);
        gwi_row_latch_give(now.latch);
    }
    return 0;
}

int gwi_rows_add(const gw_memory *memory, gwi_steps steps, const void *values, gw_dtype dtype)
{
    struct walk w = walk_of(memory, steps);
    int known = known_of(memory, steps), err = 0;

    if (memory->row_entries == 0)
        return 0;
#define ADD(known) err = add_rows(&w, memory, steps.at, values, dtype, known)
    WITH_KNOWN(known, ADD);
#undef ADD
    return err;
}
