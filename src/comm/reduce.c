/* reduce.c - combines arrays block by block, with loops that compilers vectorise.
 *
 * Each operation on each type is one small function of two entries.  A kernel is a
 * loop around it over two or four arrays; there is one for each target (see
 * base/target.h), and a table of them for each.  More than four arrays take several
 * passes, with the result so far in a block of memory that stays in the L1 cache:
 *
 *     in[0] in[1] in[2] in[3] -> block -> block -> out       ten arrays
 *                          in[4] .. in[6]  in[7] .. in[9]
 *
 * Only the last pass writes to `out`, when all of this block has been read: so `out`
 * may be any of the arrays.  A pair (complex, or value and index) is one entry here. */
#include "comm/reduce.h"

#include "base/error.h"
#include "base/half.h"
#include "base/target.h"

#include <assert.h>
#include <string.h>

#define BLOCK_BYTES 8192 /* a quarter of a common L1 cache */

/* The operations */

/* clang-format off */
/* FUNCTION makes one of two entries.  LOCATE makes MINLOC and MAXLOC; `before` is <
 * or >, `a_nan` whether the value of a is a NaN.  There are no || and && here, and reals
 * are chosen by masks: gcc makes jumps of the others, and no vectors of jumps. */
#define FUNCTION(op, id, T, ...)                                                    \
    static inline T op##_##id(const T a, const T b)                                 \
    {                                                                               \
        return __VA_ARGS__;                                                         \
    }
#define LOCATE(op, id, before, a_nan)                                               \
    static inline pair_##id op##_##id(const pair_##id a, const pair_##id b)         \
    {                                                                               \
        int first = (a_nan) | (a.value before b.value) |                            \
                    ((a.value == b.value) & (a.index <= b.index));                  \
        return (pair_##id){pick_##id(first, a.value, b.value),                      \
                           pick_##id(first, a.index, b.index)};                     \
    }

/* W is unsigned and at least an int: there numbers wrap around, and so they do when made
 * T again. */
#define INTEGER(id, T, W)                                                           \
    typedef struct { T value, index; } pair_##id;                                   \
    static inline T pick_##id(int first, T a, T b)                                  \
    {                                                                               \
        return first ? a : b;                                                       \
    }                                                                               \
    FUNCTION(MAX, id, T, a >= b ? a : b)                                            \
    FUNCTION(MIN, id, T, a <= b ? a : b)                                            \
    FUNCTION(SUM, id, T, (T)((W)a + (W)b))                                          \
    FUNCTION(PROD, id, T, (T)((W)a * (W)b))                                         \
    FUNCTION(LAND, id, T, (T)((a != 0) & (b != 0)))                                 \
    FUNCTION(BAND, id, T, (T)(a & b))                                               \
    FUNCTION(LOR, id, T, (T)((a != 0) | (b != 0)))                                  \
    FUNCTION(BOR, id, T, (T)(a | b))                                                \
    FUNCTION(LXOR, id, T, (T)((a != 0) ^ (b != 0)))                                 \
    FUNCTION(BXOR, id, T, (T)(a ^ b))                                               \
    LOCATE(MINLOC, id, <, 0)                                                        \
    LOCATE(MAXLOC, id, >, 0)

/* With the complex numbers made of them, whose product is by the book: C's own would look
 * for infinities, number by number.  The difference is written as a sum since gcc 12 would
 * fuse it with a product even under -ffp-contract=off.  W is unsigned, as wide as T. */
#define REAL(id, complex_id, T, W)                                                  \
    typedef struct { T value, index; } pair_##id;                                   \
    typedef struct { T re, im; } complex_##id;                                      \
    static inline T pick_##id(int first, T a, T b)                                  \
    {                                                                               \
        W mask = -(W)first, a_bits, b_bits;                                         \
        memcpy(&a_bits, &a, sizeof a);                                              \
        memcpy(&b_bits, &b, sizeof b);                                              \
        a_bits = (a_bits & mask) | (b_bits & ~mask);                                \
        memcpy(&a, &a_bits, sizeof a);                                              \
        return a;                                                                   \
    }                                                                               \
    FUNCTION(MAX, id, T, pick_##id((a >= b) | (a != a), a, b))                      \
    FUNCTION(MIN, id, T, pick_##id((a <= b) | (a != a), a, b))                      \
    FUNCTION(SUM, id, T, a + b)                                                     \
    FUNCTION(PROD, id, T, a * b)                                                    \
    LOCATE(MINLOC, id, <, a.value != a.value)                                       \
    LOCATE(MAXLOC, id, >, a.value != a.value)                                       \
    FUNCTION(PROD, complex_id, complex_##id,                                        \
             (complex_##id){a.re * b.re + -a.im * b.im, a.re * b.im + a.im * b.re})
/* clang-format on */

INTEGER(U8, uint8_t, uint32_t)
INTEGER(I8, int8_t, uint32_t)
INTEGER(I16, int16_t, uint32_t)
INTEGER(I32, int32_t, uint32_t)
INTEGER(I64, int64_t, uint64_t)
REAL(F32, C64, float, uint32_t)
REAL(F64, C128, double, uint64_t)

/* The kernels */

/* clang-format off */
/* All functions of above: id of the operation, id of the type, type. */
#define INTEGER_KERNELS(X, id, T)                                                   \
    X(MAX,  id, T) X(LAND, id, T) X(LOR, id, T) X(LXOR, id, T) X(SUM,  id, T)       \
    X(MIN,  id, T) X(BAND, id, T) X(BOR, id, T) X(BXOR, id, T) X(PROD, id, T)       \
    X(MINLOC, id, pair_##id) X(MAXLOC, id, pair_##id)
#define REAL_KERNELS(X, id, complex_id, T)                                          \
    X(MAX,  id, T) X(SUM,  id, T) X(MINLOC, id, pair_##id)                          \
    X(MIN,  id, T) X(PROD, id, T) X(MAXLOC, id, pair_##id)                          \
    X(PROD, complex_id, complex_##id)
#define KERNELS(X)                                                                  \
    INTEGER_KERNELS(X, U8, uint8_t)                                                 \
    INTEGER_KERNELS(X, I8, int8_t)                                                  \
    INTEGER_KERNELS(X, I16, int16_t)                                                \
    INTEGER_KERNELS(X, I32, int32_t)                                                \
    INTEGER_KERNELS(X, I64, int64_t)                                                \
    REAL_KERNELS(X, F32, C64, float)                                                \
    REAL_KERNELS(X, F64, C128, double)

/* What needs no kernel of its own: ids of operation and type, and whose it shares.  Halves
 * are made float32 before, and halves again afterwards. */
#define HALF_KERNELS(X, id)                                                         \
    X(MAX, id, MAX, F32) X(SUM,  id, SUM,  F32) X(MINLOC, id, MINLOC, F32)          \
    X(MIN, id, MIN, F32) X(PROD, id, PROD, F32) X(MAXLOC, id, MAXLOC, F32)
#define SHARED_KERNELS(X)                                                           \
    X(MAX,  BOOL, LOR,  U8) X(SUM,  BOOL, LOR,  U8) X(LXOR, BOOL, LXOR, U8)         \
    X(MIN,  BOOL, LAND, U8) X(PROD, BOOL, LAND, U8) X(BXOR, BOOL, LXOR, U8)         \
    X(LAND, BOOL, LAND, U8) X(LOR,  BOOL, LOR,  U8) X(SUM,  C64,  SUM,  F32)        \
    X(BAND, BOOL, LAND, U8) X(BOR,  BOOL, LOR,  U8) X(SUM,  C128, SUM,  F64)        \
    HALF_KERNELS(X, F16)                                                            \
    HALF_KERNELS(X, BF16)
/* clang-format on */

/* Combine 2 or 4 arrays.  `to` may be any of them. */
typedef void kernel(void *to, const void *const *from, int n_from, size_t n_bytes);

#define KERNEL(target, attribute, f, T)                                               \
    attribute static void f##_##target(void *to, const void *const *from, int n_from, \
                                       size_t n_bytes)                                \
    {                                                                                 \
        const T *a = from[0], *b = from[1];                                           \
        size_t n = n_bytes / sizeof(T);                                               \
        T *out = to;                                                                  \
                                                                                      \
        if (n_from == 2) {                                                            \
            GWI_SIDE_BY_SIDE                                                          \
            for (size_t i = 0; i < n; i++)                                            \
                out[i] = f(a[i], b[i]);                                               \
        } else {                                                                      \
            const T *c = from[2], *d = from[3];                                       \
            GWI_SIDE_BY_SIDE                                                          \
            for (size_t i = 0; i < n; i++)                                            \
                out[i] = f(f(f(a[i], b[i]), c[i]), d[i]);                             \
        }                                                                             \
    }
#define KERNEL_ON_TARGETS(op, id, T) GWI_TARGETS(KERNEL, op##_##id, T)
KERNELS(KERNEL_ON_TARGETS)

/* By operation, type and target; NULL where there is no such thing. */
#define NAME(target, attribute, f) f##_##target,
#define OWN(op, id, T) [GW_##op][GW_##id] = {GWI_TARGETS(NAME, op##_##id)},
#define SHARED(op, id, its_op, its_id) [GW_##op][GW_##id] = {GWI_TARGETS(NAME, its_op##_##its_id)},
static kernel *const kernels[GW_N_OPS][GW_N_DTYPES][GWI_N_TARGETS] = {KERNELS(OWN)
                                                                          SHARED_KERNELS(SHARED)};

typedef void widening(float *restrict to, const uint16_t *restrict from, size_t n);
typedef void narrowing(uint16_t *restrict to, const float *restrict from, size_t n);

/* By type and target; NULL where there is nothing to convert. */
static const struct {
    widening *widen[GWI_N_TARGETS];
    narrowing *narrow[GWI_N_TARGETS];
} halves[GW_N_DTYPES] = {
    [GW_F16] = {{GWI_TARGETS(NAME, gwi_f16_widen)}, {GWI_TARGETS(NAME, gwi_f16_narrow)}},
    [GW_BF16] = {{GWI_TARGETS(NAME, gwi_bf16_widen)}, {GWI_TARGETS(NAME, gwi_bf16_narrow)}},
};

/* Putting it together */

static int target_for_tests = -1;

void gwi_reduce_use(int target)
{
    assert(target <= gwi_target());
    target_for_tests = target;
}

/* A reduction under way. */
struct task {
    kernel *combine;
    widening *widen;   /* NULL if there is nothing to widen */
    narrowing *narrow; /* likewise */
    void *out;
    const void *const *in;
    int n_in;
};

/* The bytes from `at` on, as many as a block has. */
static void reduce_block(const struct task *task, size_t at, size_t n_bytes)
{
    _Alignas(64) unsigned char block[BLOCK_BYTES];
    const void *from[4] = {(const unsigned char *)task->in[0] + at};

    for (int done = 1, n_more; done < task->n_in; done += n_more) {
        n_more = task->n_in - done >= 3 ? 3 : 1;
        for (int i = 0; i < n_more; i++)
            from[1 + i] = (const unsigned char *)task->in[done + i] + at;
        void *to = done + n_more == task->n_in ? (unsigned char *)task->out + at : block;
        task->combine(to, from, 1 + n_more, n_bytes);
        from[0] = to;
    }
}

/* The same for halves, of which a block has half as many bytes. */
static void reduce_half_block(const struct task *task, size_t at, size_t n_bytes)
{
    _Alignas(64) float block[BLOCK_BYTES / sizeof(float)], next[BLOCK_BYTES / sizeof(float)];
    const void *both[] = {block, next};
    size_t first = at / sizeof(uint16_t), n = n_bytes / sizeof(uint16_t);

    task->widen(block, (const uint16_t *)task->in[0] + first, n);
    for (int i = 1; i < task->n_in; i++) {
        task->widen(next, (const uint16_t *)task->in[i] + first, n);
        task->combine(block, both, 2, n * sizeof(float));
    }
    task->narrow((uint16_t *)task->out + first, block, n);
}

static int has_pairs(gw_op op)
{
    return op == GW_MINLOC || op == GW_MAXLOC;
}

void gwi_reduce(gw_op op, gw_dtype dtype, void *out, const void *const *in, int n_in, size_t n)
{
    assert(n_in >= 1 && gw_op_check(op, dtype) == 0);

    int target = target_for_tests < 0 ? gwi_target() : target_for_tests;
    struct task task = {kernels[op][dtype][target],
                        halves[dtype].widen[target],
                        halves[dtype].narrow[target],
                        out,
                        in,
                        n_in};
    size_t n_bytes = n * gwi_dtype_bytes(dtype) * (has_pairs(op) ? 2 : 1);
    size_t step = task.widen != NULL ? BLOCK_BYTES / 2 : BLOCK_BYTES;

    if (n_in == 1) {
        if (out != in[0] && n_bytes > 0)
            memcpy(out, in[0], n_bytes);
        return;
    }
    for (size_t at = 0; at < n_bytes; at += step)
        (task.widen != NULL ? reduce_half_block
                            : reduce_block)(&task, at, n_bytes - at < step ? n_bytes - at : step);
}

/* Names and checks */

size_t gwi_dtype_bytes(gw_dtype dtype)
{
#define BYTES(id, name, bytes) bytes,
    static const unsigned char table[] = {GW_DTYPES(BYTES)};

    assert((unsigned)dtype < GW_N_DTYPES);
    return table[dtype];
}

const char *gwi_dtype_name(gw_dtype dtype)
{
#define DTYPE_NAME(id, name, bytes) #name,
    static const char *const table[] = {GW_DTYPES(DTYPE_NAME)};

    assert((unsigned)dtype < GW_N_DTYPES);
    return table[dtype];
}

const char *gwi_op_name(gw_op op)
{
#define OP_NAME(id, name) name,
    static const char *const table[] = {GW_OPS(OP_NAME)};

    assert((unsigned)op < GW_N_OPS);
    return table[op];
}

/* What somebody can do whose wish has no kernel. */
static const char *advice(gw_op op, gw_dtype dtype)
{
    if (dtype == GW_BOOL)
        return "bool is too small for an index: convert the array to uint8 or wider";
    if (op == GW_MAX || op == GW_MIN || has_pairs(op))
        return "complex numbers have no order: combine their absolute values, or real and "
               "imaginary parts as an array of real numbers";
    return "bits and truth are for integers and bool: compare the array with 0 (x != 0), or "
           "convert it to an integer type";
}

int gw_op_check(gw_op op, gw_dtype dtype)
{
    if ((unsigned)op >= GW_N_OPS)
        return gwi_fail(GW_ERANGE, "there is no operation number %d: they go from 0 to %d", (int)op,
                        GW_N_OPS - 1);
    if ((unsigned)dtype >= GW_N_DTYPES)
        return gwi_fail(GW_ERANGE, "there is no type number %d: they go from 0 to %d", (int)dtype,
                        GW_N_DTYPES - 1);
    if (kernels[op][dtype][0] == NULL)
        return gwi_fail(GW_EUNSUP, "%s cannot combine values of type %s; %s", gwi_op_name(op),
                        gwi_dtype_name(dtype), advice(op, dtype));
    return 0;
}
