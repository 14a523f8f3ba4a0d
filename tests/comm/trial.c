/* trial.c - drawing trials, and the reference that the library is compared with. */
#include "trial.h"
#include "base/half.h"
#include "base/hash.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* entries */

enum family { INTEGER, LOGICAL, REAL, COMPLEX };

static enum family family_of(gw_dtype dtype)
{
    if (dtype == GW_BOOL)
        return LOGICAL;
    if (dtype == GW_C64 || dtype == GW_C128)
        return COMPLEX;
    return dtype == GW_F16 || dtype == GW_BF16 || dtype == GW_F32 || dtype == GW_F64 ? REAL
                                                                                     : INTEGER;
}

#define ENTRY_BYTES(id, name, bytes) bytes,
static const size_t entry_sizes[] = {GW_DTYPES(ENTRY_BYTES)};
#define ENTRY_NAME(id, name, bytes) #name,
static const char *const entry_names[] = {GW_DTYPES(ENTRY_NAME)};
#define OP_NAME(id, name) name,
static const char *const op_names[] = {GW_OPS(OP_NAME)};
#define KIND_NAME(id, name) name,
static const char *const kind_names[] = {GW_COLLECTIVES(KIND_NAME)};

size_t entry_bytes(gw_dtype dtype)
{
    return entry_sizes[dtype];
}

/* An entry of any type.  Halves are numbers of single precision until they are stored. */
struct value {
    int64_t i;
    double _Complex x;
};

static struct value load(gw_dtype dtype, const void *array, int64_t at)
{
    struct value v = {0, 0};

    switch (dtype) {
#define INTEGER_CASE(id, T)           \
    case GW_##id:                     \
        v.i = ((const T *)array)[at]; \
        break;
        INTEGER_CASE(U8, uint8_t)
        INTEGER_CASE(I8, int8_t)
        INTEGER_CASE(I16, int16_t)
        INTEGER_CASE(I32, int32_t)
        INTEGER_CASE(I64, int64_t)
        INTEGER_CASE(BOOL, uint8_t)
#undef INTEGER_CASE
    case GW_F16:
        v.x = (double)gwi_float_of_f16(((const uint16_t *)array)[at]);
        break;
    case GW_BF16:
        v.x = (double)gwi_float_of_bf16(((const uint16_t *)array)[at]);
        break;
    case GW_F32:
        v.x = (double)((const float *)array)[at];
        break;
    case GW_F64:
        v.x = ((const double *)array)[at];
        break;
    case GW_C64:
        v.x = (double _Complex)((const float _Complex *)array)[at];
        break;
    default:
        v.x = ((const double _Complex *)array)[at];
    }
    return v;
}

static void store(gw_dtype dtype, void *array, int64_t at, struct value v)
{
    switch (dtype) {
#define INTEGER_CASE(id, T)        \
    case GW_##id:                  \
        ((T *)array)[at] = (T)v.i; \
        break;
        INTEGER_CASE(U8, uint8_t)
        INTEGER_CASE(I8, int8_t)
        INTEGER_CASE(I16, int16_t)
        INTEGER_CASE(I32, int32_t)
        INTEGER_CASE(I64, int64_t)
        INTEGER_CASE(BOOL, uint8_t)
#undef INTEGER_CASE
    case GW_F16:
        ((uint16_t *)array)[at] = gwi_f16_of_float((float)creal(v.x));
        break;
    case GW_BF16:
        ((uint16_t *)array)[at] = gwi_bf16_of_float((float)creal(v.x));
        break;
    case GW_F32:
        ((float *)array)[at] = (float)creal(v.x);
        break;
    case GW_F64:
        ((double *)array)[at] = creal(v.x);
        break;
    case GW_C64:
        ((float _Complex *)array)[at] = (float _Complex)v.x;
        break;
    default:
        ((double _Complex *)array)[at] = v.x;
    }
}

void entry_text(gw_dtype dtype, const void *array, int64_t index, char *text, size_t room)
{
    struct value v = load(dtype, array, index);

    switch (family_of(dtype)) {
    case REAL:
        snprintf(text, room, "%.17g", creal(v.x));
        break;
    case COMPLEX:
        snprintf(text, room, "%.17g%+.17gi", creal(v.x), cimag(v.x));
        break;
    default:
        snprintf(text, room, "%lld", (long long)v.i);
    }
}

/* combining */

static int is_pairs(gw_op op)
{
    return op == GW_MINLOC || op == GW_MAXLOC;
}

static int combines(gw_collective kind)
{
    return kind == GW_ALLREDUCE || kind == GW_REDUCE || kind == GW_SCAN ||
           kind == GW_REDUCE_SCATTER;
}

static int64_t combine_integers(gw_op op, int64_t a, int64_t b)
{
    switch (op) {
    case GW_MAX:
        return a > b ? a : b;
    case GW_MIN:
        return a < b ? a : b;
    case GW_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case GW_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case GW_LAND:
        return a && b;
    case GW_LOR:
        return a || b;
    case GW_LXOR:
        return !a != !b;
    case GW_BAND:
        return a & b;
    case GW_BOR:
        return a | b;
    default:
        return a ^ b;
    }
}

static int64_t combine_logical(gw_op op, int64_t a, int64_t b)
{
    if (op == GW_MIN || op == GW_PROD || op == GW_LAND || op == GW_BAND)
        return a && b;
    return op == GW_LXOR || op == GW_BXOR ? !a != !b : a || b;
}

static double combine_reals(gw_op op, double a, double b)
{
    if (op == GW_SUM || op == GW_PROD)
        return op == GW_SUM ? a + b : a * b;
    if (isnan(a) || a == b)
        return a;
    if (isnan(b))
        return b;
    return op == GW_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

static struct value combine(gw_op op, enum family family, struct value a, struct value b)
{
    switch (family) {
    case INTEGER:
        return (struct value){combine_integers(op, a.i, b.i), 0};
    case LOGICAL:
        return (struct value){combine_logical(op, a.i, b.i), 0};
    case REAL:
        return (struct value){0, combine_reals(op, creal(a.x), creal(b.x))};
    default:
        return (struct value){0, op == GW_SUM ? a.x + b.x : a.x * b.x};
    }
}

/* Whether pair b takes the place of a: its value comes first, or its index does. */
static int takes_place(gw_op op, enum family family, const struct value *a, const struct value *b)
{
    double va = family == REAL ? creal(a[0].x) : (double)a[0].i;
    double vb = family == REAL ? creal(b[0].x) : (double)b[0].i;
    double ia = family == REAL ? creal(a[1].x) : (double)a[1].i;
    double ib = family == REAL ? creal(b[1].x) : (double)b[1].i;

    if (isnan(va))
        return 0;
    if (isnan(vb) || (va == vb && ib < ia))
        return 1;
    return op == GW_MAXLOC ? vb > va : vb < va;
}

/* Entry by entry, or pair by pair, from the first rank on. */
static void combine_into(const struct trial *t, void **inputs, int n_ranks, int64_t n, void *out)
{
    enum family family = family_of(t->dtype);
    int width = is_pairs(t->op) ? 2 : 1;

    for (int64_t at = 0; at < n; at += width) {
        struct value sum[2], next[2];
        for (int k = 0; k < width; k++)
            sum[k] = load(t->dtype, inputs[0], at + k);
        for (int r = 1; r < n_ranks; r++) {
            for (int k = 0; k < width; k++)
                next[k] = load(t->dtype, inputs[r], at + k);
            if (width == 1)
                sum[0] = combine(t->op, family, sum[0], next[0]);
            else if (takes_place(t->op, family, sum, next))
                memcpy(sum, next, sizeof sum);
        }
        for (int k = 0; k < width; k++)
            store(t->dtype, out, at + k, sum[k]);
    }
}

/* drawing */

static int64_t below(gwi_random *random, int64_t n)
{
    return (int64_t)gwi_random_below(random, (uint64_t)n);
}

/* Often short, sometimes 0. */
static int64_t draw_length(gwi_random *random, int64_t longest)
{
    int64_t lot = below(random, 8);

    return lot == 0 ? 0 : lot < 4 ? 1 + below(random, 4) : below(random, longest + 1);
}

static int one_axis(const struct trial *t)
{
    return t->axis == t->axis2;
}

static void draw_op(struct trial *t, gwi_random *random)
{
    do
        t->op = (gw_op)below(random, GW_N_OPS);
    while (gw_op_check(t->op, t->dtype) < 0);
}

void trial_draw(struct trial *t, gwi_random *random, const struct range *range)
{
    *t = (struct trial){.seed = gwi_random_u64(random), .size = range->size};
    t->kind = range->kind < GW_N_COLLECTIVES ? range->kind
                                             : (gw_collective)below(random, GW_N_COLLECTIVES);
    t->dtype = range->dtype < GW_N_DTYPES ? range->dtype : (gw_dtype)below(random, GW_N_DTYPES);
    draw_op(t, random);
    t->root = (int)below(random, t->size);
    t->n_dims = 1 + (int)below(random, TRIAL_DIMS - 1);
    t->axis = (int)below(random, t->n_dims);
    t->axis2 = (int)below(random, t->n_dims);
    for (int i = 0; i < t->n_dims; i++)
        t->shape[i] = i == t->axis ? range->longest - below(random, 1 + range->longest / 8)
                                   : 1 + below(random, range->longest > 10000 ? 2 : 4);
    for (int r = 0; r < t->size; r++) {
        t->length[r] = draw_length(random, 2 * range->longest / t->size);
        t->count[r] = draw_length(random, 2 * range->longest / t->size);
        if (t->kind == GW_ALLTOALL && !one_axis(t))
            t->count[r] = below(random, 4); /* one long axis is enough */
    }
    if (below(random, 16) == 0)
        t->shape[below(random, t->n_dims)] = 0;
    if (combines(t->kind) && is_pairs(t->op))
        t->shape[t->n_dims++] = 2; /* behind the axes */
    t->same_memory = trial_keeps_shape(t) && below(random, 2) == 0;
    t->in_two_steps = below(random, 2) == 0;
}

void trial_describe(const struct trial *t, char *text, size_t room)
{
    size_t at = (size_t)snprintf(text, room, "%s %s %s, %d axes:", kind_names[t->kind],
                                 entry_names[t->dtype], op_names[t->op], t->n_dims);
    int64_t shape[TRIAL_DIMS];

    for (int r = 0; r < t->size && at < room; r++) {
        int64_t n = trial_input_shape(t, r, shape);
        at += (size_t)snprintf(text + at, room - at, " %lld", (long long)n);
    }
    if (at < room)
        snprintf(text + at, room - at, " entries, root %d, axes %d %d%s%s", t->root, t->axis,
                 t->axis2, t->same_memory ? ", same memory" : "",
                 t->in_two_steps ? ", in two steps" : "");
}

/* shapes */

static int64_t sum_of(const int64_t *numbers, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += numbers[i];
    return sum;
}

static int64_t product_of(const int64_t *numbers, int n)
{
    int64_t product = 1;

    for (int i = 0; i < n; i++)
        product *= numbers[i];
    return product;
}

int64_t trial_input_shape(const struct trial *t, int rank, int64_t *ret_shape)
{
    int64_t cut = sum_of(t->count, t->size);

    memcpy(ret_shape, t->shape, sizeof t->shape);
    if (t->kind == GW_BARRIER)
        return 0;
    if (t->kind == GW_GATHER || t->kind == GW_ALLGATHER || t->kind == GW_ALLTOALL)
        ret_shape[t->axis] = t->length[rank];
    if (t->kind == GW_SCATTER || t->kind == GW_REDUCE_SCATTER)
        ret_shape[t->axis] = cut;
    if (t->kind == GW_ALLTOALL)
        ret_shape[t->axis2] = cut;
    return t->kind == GW_SCATTER && rank != t->root ? 0 : product_of(ret_shape, t->n_dims);
}

int64_t trial_output_shape(const struct trial *t, int rank, int64_t *ret_shape)
{
    memcpy(ret_shape, t->shape, sizeof t->shape);
    if (t->kind == GW_BARRIER)
        return 0;
    if (t->kind == GW_GATHER || t->kind == GW_ALLGATHER || t->kind == GW_ALLTOALL)
        ret_shape[t->axis] = sum_of(t->length, t->size);
    if (t->kind == GW_GATHER && rank != t->root)
        ret_shape[t->axis] = 0;
    if (t->kind == GW_SCATTER || t->kind == GW_REDUCE_SCATTER)
        ret_shape[t->axis] = t->count[rank];
    if (t->kind == GW_ALLTOALL)
        ret_shape[t->axis2] = one_axis(t) ? t->size * t->count[rank] : t->count[rank];
    return product_of(ret_shape, t->n_dims);
}

int trial_keeps_shape(const struct trial *t)
{
    return t->kind == GW_ALLREDUCE || t->kind == GW_REDUCE || t->kind == GW_SCAN ||
           t->kind == GW_BCAST;
}

/* inputs */

/* Values of which all results are exact, whatever the order, but for halves, whose sums
 * tell how often they were rounded. */
static struct value draw_value(const struct trial *t, int rank, uint64_t lot)
{
    static const double _Complex units[] = {1, I, 1 + I, 1};
    double small = (double)(lot % 8) - 4;
    int logical = t->op == GW_LAND || t->op == GW_LOR || t->op == GW_LXOR;

    switch (family_of(t->dtype)) {
    case INTEGER:
        return (struct value){logical ? (int64_t)(lot % 3) : (int64_t)lot, 0};
    case LOGICAL:
        return (struct value){(int64_t)(lot % 2), 0};
    case COMPLEX:
        return (struct value){0, t->op == GW_PROD ? units[lot % 4] : small + 2 * I};
    default:
        break;
    }
    if (t->op == GW_PROD)
        return (struct value){0, lot % 4 == 0 ? 2 : 1};
    if (t->op == GW_SUM)
        return (struct value){0, lot % 16 > 0 ? small : rank == 0 ? 256 : 1};
    return (struct value){0, lot % 61 == 0 ? (double)NAN : lot % 7 == 0 ? -0.0 : small};
}

static void *allocate(int64_t n, size_t size)
{
    void *array = calloc((size_t)n + 1, size);

    if (array == NULL)
        abort();
    return array;
}

void *trial_input(const struct trial *t, int rank)
{
    int64_t shape[TRIAL_DIMS], n = trial_input_shape(t, rank, shape);
    size_t size = entry_bytes(t->dtype);
    unsigned char *array = allocate(n, size);
    gwi_random random;

    gwi_random_init(&random, t->seed, (uint64_t)rank);
    if (!combines(t->kind))
        gwi_random_fill(&random, array, (size_t)n * size);
    for (int64_t i = 0; i < n && combines(t->kind); i++) {
        uint64_t lot = gwi_random_u64(&random);
        int64_t small = (int64_t)(lot % 16) - 8;
        struct value pair = {small, (double)small};
        int nan = is_pairs(t->op) && i % 2 == 0 && lot % 61 == 0; /* a value, never an index */
        store(t->dtype, array, i, nan || !is_pairs(t->op) ? draw_value(t, rank, lot) : pair);
    }
    return array;
}

/* outputs */

/* Part of an array: `n` along `axis`, from `from` on. */
struct part {
    unsigned char *array;
    int64_t shape[TRIAL_DIMS];
    int axis;
    int64_t from;
};

static int64_t place_of(const struct part *p, const int64_t *index, int n_dims)
{
    int64_t place = 0;

    for (int i = 0; i < n_dims; i++)
        place = place * p->shape[i] + index[i] + (i == p->axis ? p->from : 0);
    return place;
}

/* Copy entries one by one; `shape` is that of both parts. */
static void copy_part(const struct part *to, const struct part *from, const int64_t *shape,
                      int n_dims, size_t size)
{
    int64_t n = product_of(shape, n_dims), index[TRIAL_DIMS] = {0};

    for (int64_t k = 0; k < n; k++) {
        memcpy(to->array + (size_t)place_of(to, index, n_dims) * size,
               from->array + (size_t)place_of(from, index, n_dims) * size, size);
        for (int i = n_dims - 1; i >= 0 && ++index[i] == shape[i]; i--)
            index[i] = 0;
    }
}

/* Cut what is this rank's out of `array`, or take all of it, and put it behind what is there
 * already. */
static void put_behind(const struct trial *t, int rank, struct part *to, void *array,
                       const int64_t *array_shape, int cut_axis)
{
    struct part from = {.array = array, .axis = cut_axis >= 0 ? cut_axis : 0};
    int64_t shape[TRIAL_DIMS];

    memcpy(from.shape, array_shape, sizeof from.shape);
    memcpy(shape, array_shape, sizeof shape);
    if (cut_axis >= 0) {
        from.from = sum_of(t->count, rank);
        shape[cut_axis] = t->count[rank];
    }
    copy_part(to, &from, shape, t->n_dims, entry_bytes(t->dtype));
    to->from += shape[to->axis];
}

static void *moved(const struct trial *t, int rank)
{
    struct part to = {.axis = t->axis};
    int64_t n = trial_output_shape(t, rank, to.shape), shape[TRIAL_DIMS];
    int cut = t->kind == GW_SCATTER ? t->axis : t->kind == GW_ALLTOALL ? t->axis2 : -1;
    int from_root = t->kind == GW_SCATTER || t->kind == GW_BCAST;

    to.array = allocate(n, entry_bytes(t->dtype));
    for (int r = 0; r < t->size; r++) {
        if (n == 0 || (from_root && r != t->root) || (t->kind == GW_GATHER && rank != t->root))
            continue;
        void *input = trial_input(t, r);
        trial_input_shape(t, r, shape);
        put_behind(t, rank, &to, input, shape, cut);
        free(input);
    }
    return to.array;
}

static void *combined(const struct trial *t, int rank)
{
    void *inputs[MAX_RANKS];
    int64_t shape[TRIAL_DIMS], n = trial_input_shape(t, rank, shape);
    int n_ranks = t->kind == GW_SCAN ? rank + 1 : t->size;
    void *all = allocate(n, entry_bytes(t->dtype));

    for (int r = 0; r < n_ranks; r++)
        inputs[r] = trial_input(t, r);
    if (t->kind != GW_REDUCE || rank == t->root)
        combine_into(t, inputs, n_ranks, n, all);
    for (int r = 0; r < n_ranks; r++)
        free(inputs[r]);
    if (t->kind != GW_REDUCE_SCATTER)
        return all;
    struct part to = {.axis = t->axis};
    to.array = allocate(trial_output_shape(t, rank, to.shape), entry_bytes(t->dtype));
    put_behind(t, rank, &to, all, shape, t->axis);
    free(all);
    return to.array;
}

void *trial_output(const struct trial *t, int rank)
{
    return combines(t->kind) ? combined(t, rank) : moved(t, rank);
}

/* comparing */

static int same_real(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b;
}

static int same_value(const struct trial *t, struct value a, struct value b)
{
    if (a.i != b.i || !same_real(creal(a.x), creal(b.x)) || !same_real(cimag(a.x), cimag(b.x)))
        return 0;
    /* Sums and products may have either zero, by the order in which they were made. */
    return t->op == GW_SUM || t->op == GW_PROD || isnan(creal(a.x)) ||
           !signbit(creal(a.x)) == !signbit(creal(b.x));
}

int64_t trial_compare(const struct trial *t, const void *expected, const void *got, int64_t n)
{
    size_t size = entry_bytes(t->dtype);

    for (int64_t i = 0; i < n; i++) {
        const unsigned char *a = (const unsigned char *)expected + (size_t)i * size;
        const unsigned char *b = (const unsigned char *)got + (size_t)i * size;
        if (memcmp(a, b, size) != 0 &&
            !(combines(t->kind) && same_value(t, load(t->dtype, a, 0), load(t->dtype, b, 0))))
            return i;
    }
    return -1;
}
