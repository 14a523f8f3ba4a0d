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

#define AHEAD 16         /* rows, at least, between asking for one and using it */
#define BURST 8          /* rows whose beginnings are asked for at once */
#define RING 32          /* AHEAD + BURST, or more; a power of 2 */
#define LINES_AHEAD 8    /* of a row; the processor fetches more of it by itself */
#define SPINS 200        /* looks at a latch before others may run */
#define YIELDS 1000      /* before the fabric is asked whether somebody died */
#define BLOCK_BYTES 4096 /* of a row that is converted before it is added */

/* What a walk knows when it is compiled. */
enum { ONE_MAPPING = 1, SHORT_INDICES = 2 };

struct walk {
    unsigned char *base;    /* ONE_MAPPING: where row 0 is, or would be */
    gwi_row_latch *latches; /* ONE_MAPPING */
    size_t pitch, column_at;
    int64_t first_row;
    const gwi_partition *parts;
    unsigned char *const *rows;
    const void *indices;
    size_t n, n_lines;
};

/* The rank whose mapping has all rows of a walk; -1: there may be several. */
static int only_mapping(const gw_memory *memory, gwi_steps steps)
{
    return memory->whole->kind == GW_CONTINUOUS ? 0 : steps.only - 1;
}

static struct walk walk_of(const gw_memory *memory, gwi_steps steps)
{
    const gwi_whole *w = memory->whole;
    size_t lines = (memory->row_bytes + GWI_LINE - 1) / GWI_LINE;
    int only = only_mapping(memory, steps);
    uintptr_t base = 0;

    if (only >= 0) {
        int64_t first = w->kind == GW_CONTINUOUS ? 0 : w->parts.starts[only];
        base = (uintptr_t)w->rows[only] - (size_t)first * w->pitch + memory->column_at;
    }
    return (struct walk){.base = (unsigned char *)base,
                         .latches = only >= 0 ? w->latches[only] : NULL,
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
    return (only_mapping(memory, steps) >= 0 ? ONE_MAPPING : 0) |
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
        return (unsigned char *)((uintptr_t)w->base + (size_t)row * w->pitch);
    int owner = gwi_partition_owner(w->parts, row);
    return w->rows[owner] + (size_t)(row - w->parts->starts[owner]) * w->pitch + w->column_at;
}

/* Where the rows just ahead lie: row i at i % RING. */
typedef unsigned char *ring[RING];

/* Find some rows and ask for their beginnings, one right after the other.  In large memory each
 * takes a walk through page tables, which the processor waits for before it is done with the
 * instruction: so those walks go on side by side that are close in the program. */
GWI_INLINE void look_ahead(const struct walk *w, ring places, size_t first, int known)
{
    size_t end = first + BURST < w->n ? first + BURST : w->n;

    for (size_t i = first; i < end; i++)
        places[i % RING] = find(w, i, known);
    for (size_t i = first; i < end; i++)
        __builtin_prefetch(places[i % RING], 0, 2);
}

/* The rest of a row that was found. */
GWI_INLINE void ask_rest(const struct walk *w, const unsigned char *row)
{
    for (size_t line = 1; line < w->n_lines; line++)
        __builtin_prefetch(row + line * GWI_LINE, 0, 2);
}

GWI_INLINE void begin(const struct walk *w, ring places, int known)
{
    for (size_t i = 0; i < AHEAD; i += BURST)
        look_ahead(w, places, i, known);
    for (size_t i = 0; i < AHEAD && i < w->n; i++)
        ask_rest(w, places[i % RING]);
}

/* The place of row i, and those ahead are asked for. */
GWI_INLINE unsigned char *step(const struct walk *w, ring places, size_t i, int known)
{
    if (i % BURST == 0)
        look_ahead(w, places, i + AHEAD, known);
    if (i + AHEAD < w->n)
        ask_rest(w, places[(i + AHEAD) % RING]);
    return places[i % RING];
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

/* Run `call` with the length of a row; short ones, of one entry or a few, have it as a constant,
 * so that they are copied without a call. */
#define WITH_LENGTH(n_bytes, call) \
    do {                           \
        switch (n_bytes) {         \
        case 1:                    \
            call(1);               \
            break;                 \
        case 2:                    \
            call(2);               \
            break;                 \
        case 4:                    \
            call(4);               \
            break;                 \
        case 8:                    \
            call(8);               \
            break;                 \
        case 16:                   \
            call(16);              \
            break;                 \
        case 32:                   \
            call(32);              \
            break;                 \
        case 64:                   \
            call(64);              \
            break;                 \
        default:                   \
            call(n_bytes);         \
        }                          \
    } while (0)

GWI_INLINE void copy_rows_of(const struct walk *w, const uint32_t *at, unsigned char *buffer,
                             size_t n_bytes, int reads, int known)
{
#define COPY(n) copy_rows(w, at, buffer, n, reads, known)
    WITH_LENGTH(n_bytes, COPY);
#undef COPY
}

/* Between row i of `dense` and row at[i] of `rows`.  Those that are written are asked for ahead;
 * those that are read come in order, more or less, and the processor sees it. */
GWI_INLINE void move_rows(unsigned char *dense, unsigned char *rows, const uint32_t *at, size_t n,
                          size_t n_bytes, int picks)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char *row = rows + at[i] * n_bytes;
        if (!picks && i + AHEAD < n)
            __builtin_prefetch(rows + at[i + AHEAD] * n_bytes, 1, 2);
        if (picks)
            memcpy(dense + i * n_bytes, row, n_bytes);
        else
            memcpy(row, dense + i * n_bytes, n_bytes);
    }
}

void gwi_rows_pick(void *dense, const void *rows, const uint32_t *at, size_t n, size_t n_bytes)
{
    unsigned char *from = (unsigned char *)(uintptr_t)rows; /* only read */

#define PICK(n_bytes) move_rows(dense, from, at, n, n_bytes, 1)
    WITH_LENGTH(n_bytes, PICK);
#undef PICK
}

void gwi_rows_place(void *rows, const void *dense, const uint32_t *at, size_t n, size_t n_bytes)
{
    unsigned char *from = (unsigned char *)(uintptr_t)dense; /* only read */

#define PLACE(n_bytes) move_rows(from, rows, at, n, n_bytes, 0)
    WITH_LENGTH(n_bytes, PLACE);
#undef PLACE
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

    for (unsigned looks = 1;; looks++) {
        uint32_t holder = 0; /* nobody */
        /* Pairs with gwi_row_latch_give(). */
        if (gwi_likely(atomic_compare_exchange_weak_explicit(
                latch, &holder, mine, memory_order_acquire, memory_order_relaxed)))
            return 0;
        if (looks % SPINS != 0) {
            gwi_cpu_relax();
            continue;
        }
        sched_yield();
        if (looks / SPINS % YIELDS == 0 && whole->generation == gwi_fork_generation()) {
            gwi_fabric *f = whole->world->fabric;
            int err = f->ops->check(f);
            /* If somebody died; but who lives gives it back. */
            if (err < 0 && holder > 0 &&
                f->ops->fate(f, whole->comm->ranks[holder - 1]) != GWI_HERE)
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

GWI_INLINE gwi_row_latch *find_latch(const struct walk *w, const gwi_whole *whole, size_t i,
                                     int known)
{
    int64_t row = row_number(w, i, known);
    gwi_row_latch *latches = known & ONE_MAPPING
                                 ? w->latches
                                 : whole->latches[gwi_partition_owner(w->parts, row)];

    return &latches[(uint64_t)row & whole->latch_mask];
}

GWI_INLINE void look_ahead_at_latches(const struct walk *w, const gwi_whole *whole, size_t first,
                                      int known)
{
    size_t end = first + BURST < w->n ? first + BURST : w->n;

    for (size_t i = first; i < end; i++)
        __builtin_prefetch(find_latch(w, whole, i, known), 1, 2);
}

GWI_INLINE int add_rows(const struct walk *w, const gw_memory *memory, const uint32_t *at,
                        const unsigned char *values, gw_dtype dtype, int known)
{
    const gwi_whole *whole = memory->whole;
    gwi_convert *convert = gwi_converter(whole->dtype, dtype);
    size_t n = memory->row_entries, value_bytes = gwi_dtype_bytes(dtype);
    adder *add = adder_of(whole->dtype);
    ring places;

    begin(w, places, known);
    for (size_t i = 0; i < AHEAD; i += BURST)
        look_ahead_at_latches(w, whole, i, known);
    for (size_t i = 0; i < w->n; i++) {
        unsigned char *row = step(w, places, i, known);
        gwi_row_latch *latch = find_latch(w, whole, i, known);
        const unsigned char *from = values + buffer_row(at, i) * n * value_bytes;
        if (i % BURST == 0)
            look_ahead_at_latches(w, whole, i + AHEAD, known);
        int err = gwi_row_latch_take(whole, latch);
        if (gwi_unlikely(err < 0))
            return err;
        if (convert == NULL && add != NULL)
            add(row, from, n);
        else
            add_row(whole->dtype, add, convert, value_bytes, row, from, n);
        gwi_row_latch_give(latch);
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
