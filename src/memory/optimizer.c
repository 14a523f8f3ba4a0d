/* optimizer.c - steps of rows: gradients go to the owners, are summed, and each touched row
 * is stepped once.
 *
 * An owner adds up what came for a row in the order of ranks, and within a rank in the order of
 * the indices, so the result is the same from run to run.                             */
#include "base/error.h"
#include "base/platform.h"
#include "base/target.h"
#include "comm/reduce.h"
#include "memory/distributed.h"
#include "memory/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 4      /* rows fetched before they are stepped */
#define N_FACTORS 64 /* of Adam, by count; a power of 2 */

/* One row.  `rate` is the step's own: lr, with what depends on the count. */
struct row {
    void *row, *states[2];
    const void *gradient;
    size_t n;
    double rate, root; /* Adam: the square root of 1 - beta2^count */
};

typedef void stepper(const struct row *r, const gw_optimizer *o);

/* The loops, for each type T with its root, and each target. */
#define DEFINE_STEPS(target, attribute, id, T, squareroot)                                      \
    attribute static void sgd_##id##_##target(const struct row *r, const gw_optimizer *o)       \
    {                                                                                           \
        T *restrict p = r->row;                                                                 \
        const T *restrict g = r->gradient;                                                      \
        T lr = (T)o->lr, decay = (T)o->weight_decay;                                            \
                                                                                                \
        for (size_t i = 0; i < r->n; i++)                                                       \
            p[i] -= lr * (g[i] + decay * p[i]);                                                 \
    }                                                                                           \
    attribute static void adagrad_##id##_##target(const struct row *r, const gw_optimizer *o)   \
    {                                                                                           \
        T *restrict p = r->row, *restrict sum = r->states[0];                                   \
        const T *restrict g = r->gradient;                                                      \
        T rate = (T)r->rate, decay = (T)o->weight_decay, eps = (T)o->eps;                       \
                                                                                                \
        for (size_t i = 0; i < r->n; i++) {                                                     \
            T x = g[i] + decay * p[i];                                                          \
            sum[i] += x * x;                                                                    \
            p[i] -= rate * (x / (squareroot(sum[i]) + eps));                                    \
        }                                                                                       \
    }                                                                                           \
    attribute static void rmsprop_##id##_##target(const struct row *r, const gw_optimizer *o)   \
    {                                                                                           \
        T *restrict p = r->row, *restrict mean = r->states[0];                                  \
        const T *restrict g = r->gradient;                                                      \
        T lr = (T)o->lr, decay = (T)o->weight_decay, eps = (T)o->eps;                           \
        T keep = (T)o->alpha, take = (T)(1 - o->alpha);                                         \
                                                                                                \
        for (size_t i = 0; i < r->n; i++) {                                                     \
            T x = g[i] + decay * p[i];                                                          \
            mean[i] = keep * mean[i] + take * x * x;                                            \
            p[i] -= lr * (x / (squareroot(mean[i]) + eps));                                     \
        }                                                                                       \
    }                                                                                           \
    attribute static void adam_##id##_##target(const struct row *r, const gw_optimizer *o)      \
    {                                                                                           \
        T *restrict p = r->row, *restrict m = r->states[0], *restrict v = r->states[1];         \
        const T *restrict g = r->gradient;                                                      \
        T rate = (T)r->rate, root = (T)r->root, decay = (T)o->weight_decay, eps = (T)o->eps;    \
        T take1 = (T)(1 - o->beta1), keep2 = (T)o->beta2, take2 = (T)(1 - o->beta2);            \
                                                                                                \
        for (size_t i = 0; i < r->n; i++) {                                                     \
            T x = g[i] + decay * p[i];                                                          \
            m[i] += take1 * (x - m[i]);                                                         \
            v[i] = keep2 * v[i] + take2 * x * x;                                                \
            p[i] -= rate * (m[i] / (squareroot(v[i]) / root + eps));                            \
        }                                                                                       \
    }                                                                                           \
    attribute static void add_##id##_##target(T *restrict to, const T *restrict from, size_t n) \
    {                                                                                           \
        for (size_t i = 0; i < n; i++)                                                          \
            to[i] += from[i];                                                                   \
    }

GWI_TARGETS(DEFINE_STEPS, F32, float, sqrtf)
GWI_TARGETS(DEFINE_STEPS, F64, double, sqrt)

#define STEPPERS(target, attribute, id)      \
    {[GW_SGD] = sgd_##id##_##target,         \
     [GW_ADAGRAD] = adagrad_##id##_##target, \
     [GW_RMSPROP] = rmsprop_##id##_##target, \
     [GW_ADAM] = adam_##id##_##target},

static stepper *stepper_of(gw_optimizer_kind kind, gw_dtype dtype)
{
    static stepper *const f32[][GW_N_OPTIMIZERS] = {GWI_TARGETS(STEPPERS, F32)};
    static stepper *const f64[][GW_N_OPTIMIZERS] = {GWI_TARGETS(STEPPERS, F64)};

    return dtype == GW_F32 ? f32[gwi_target()][kind] : f64[gwi_target()][kind];
}

#define ADDERS(target, attribute, id) add_##id##_##target,

static void add(gw_dtype dtype, void *to, const void *from, size_t n)
{
    static void (*const f32[])(float *, const float *, size_t) = {GWI_TARGETS(ADDERS, F32)};
    static void (*const f64[])(double *, const double *, size_t) = {GWI_TARGETS(ADDERS, F64)};

    if (dtype == GW_F32)
        f32[gwi_target()](to, from, n);
    else
        f64[gwi_target()](to, from, n);
}

/* checking */

static int n_states(gw_optimizer_kind kind)
{
    return kind == GW_SGD ? 0 : kind == GW_ADAM ? 2 : 1;
}

static int same_parts(const gw_memory *a, const gw_memory *b)
{
    const gwi_partition *p = &a->whole->parts, *q = &b->whole->parts;

    return a->whole->comm == b->whole->comm && a->first_row == b->first_row &&
           a->shape[0] == b->shape[0] &&
           memcmp(p->starts, q->starts, ((size_t)p->size + 1) * sizeof *p->starts) == 0;
}

static int check_counts(const gw_memory *rows, const gw_optimizer *o)
{
    int needed = o->kind == GW_ADAM || (o->kind == GW_ADAGRAD && o->lr_decay != 0);

    if (o->counts == NULL)
        return needed ? gwi_fail(GW_EINVAL, "counts is NULL; this optimizer counts the steps of "
                                            "each row")
                      : 0;
    if (o->counts->whole->dtype != GW_I64 || o->counts->row_entries != 1 ||
        !same_parts(rows, o->counts))
        return gwi_fail(GW_EINVAL, "counts must have one int64 for each row, on the same ranks");
    return 0;
}

static int check_optimizer(const gw_memory *rows, const gw_optimizer *o)
{
    const double all[] = {o->lr,    o->weight_decay, o->eps,  o->lr_decay,
                          o->alpha, o->beta1,        o->beta2};
    static const char *const names[] = {"lr",    "weight_decay", "eps",  "lr_decay",
                                        "alpha", "beta1",        "beta2"};

    if (o->size_bytes < sizeof *o)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; set it to sizeof(gw_optimizer)",
                        o->size_bytes);
    if ((unsigned)o->kind >= GW_N_OPTIMIZERS)
        return gwi_fail(GW_EINVAL, "the optimizer's kind is %d, which is none", (int)o->kind);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!(all[i] >= 0) || (i > 3 && all[i] > 1)) /* a NaN too */
            return gwi_fail(GW_EINVAL, "%s is %g; it must be at least 0%s", names[i], all[i],
                            i > 3 ? " and at most 1" : "");
    if (rows->whole->dtype != GW_F32 && rows->whole->dtype != GW_F64)
        return gwi_fail(GW_ETYPE, "rows are %s; those that are stepped must be float32 or float64",
                        gwi_dtype_name(rows->whole->dtype));
    for (int i = 0; i < n_states(o->kind); i++) {
        const gw_memory *state = o->states[i];
        if (state == NULL)
            return gwi_fail(GW_EINVAL, "states[%d] is NULL; this optimizer needs %d", i,
                            n_states(o->kind));
        if (state->whole->dtype != rows->whole->dtype || state->row_entries != rows->row_entries ||
            !same_parts(rows, state))
            return gwi_fail(GW_EINVAL,
                            "states[%d] must have the shape, the type and the parts of "
                            "the rows",
                            i);
    }
    return check_counts(rows, o);
}

/* summing */

/* The touched rows: of each, which arrival holds its sum. */
struct touched {
    uint32_t *first;
    size_t n;
};

static int sum_up(gw_memory *rows, gwi_arrivals arrivals, struct touched *ret_touched)
{
    gwi_whole *w = rows->whole;
    int64_t start = w->parts.starts[w->rank];
    unsigned char *values = (unsigned char *)(uintptr_t)arrivals.values; /* they are ours */
    size_t own = (size_t)gwi_partition_count(&w->parts, w->rank), n = 0;
    int err = gwi_room_need(&w->touched, arrivals.n * sizeof(uint32_t));

    if (err == 0 && w->slots == NULL) {
        w->slots = calloc(own > 0 ? own : 1, sizeof *w->slots);
        err = w->slots == NULL ? gwi_fail(GW_ENOMEM, "a table of %zu rows", own) : 0;
    }
    if (err == 0 && arrivals.n >= UINT32_MAX)
        err = gwi_fail(GW_EUNSUP, "%zu gradients for one rank at a time", arrivals.n);
    if (err < 0)
        return err;
    uint32_t *first = w->touched.bytes;
    for (size_t i = 0; i < arrivals.n; i++) {
        uint32_t *slot = &w->slots[arrivals.rows[i] - start];
        if (*slot == 0) {
            first[n] = (uint32_t)i;
            *slot = (uint32_t)++n;
        } else {
            add(w->dtype, values + first[*slot - 1] * rows->row_bytes, values + i * rows->row_bytes,
                rows->row_entries);
        }
    }
    for (size_t i = 0; i < n; i++)
        w->slots[arrivals.rows[first[i]] - start] = 0;
    *ret_touched = (struct touched){first, n};
    return 0;
}

/* stepping */

/* What Adam needs for a count; computed when it is first met. */
struct factors {
    int64_t count;
    double rate, root;
};

static void set_rate(const gw_optimizer *o, int64_t count, struct factors *known, struct row *r)
{
    struct factors *f = &known[(uint64_t)count % N_FACTORS];

    r->rate = o->kind == GW_ADAGRAD ? o->lr / (1 + (double)(count - 1) * o->lr_decay) : o->lr;
    if (o->kind != GW_ADAM)
        return;
    if (f->count != count)
        *f = (struct factors){count, o->lr / (1 - pow(o->beta1, (double)count)),
                              sqrt(1 - pow(o->beta2, (double)count))};
    r->rate = f->rate;
    r->root = f->root;
}

static void fetch(const gw_memory *rows, const gw_optimizer *o, int64_t row)
{
    const unsigned char *places[3] = {gwi_row_at(rows, row)};
    int n = 1;

    for (int i = 0; i < n_states(o->kind); i++)
        places[n++] = gwi_row_at(o->states[i], row);
    for (int i = 0; i < n; i++)
        for (size_t at = 0; at < rows->row_bytes && at < 4 * GWI_LINE; at += GWI_LINE)
            __builtin_prefetch(places[i] + at, 0, 2);
}

static void step_touched(const gw_memory *rows, const gw_optimizer *o, gwi_arrivals arrivals,
                         struct touched t)
{
    stepper *step = stepper_of(o->kind, rows->whole->dtype);
    struct factors known[N_FACTORS] = {{0}};

    for (size_t i = 0; i < t.n; i++) {
        int64_t row = arrivals.rows[t.first[i]], count = 1;
        struct row r = {.row = gwi_row_at(rows, row),
                        .gradient = arrivals.values + t.first[i] * rows->row_bytes,
                        .n = rows->row_entries};
        if (i + AHEAD < t.n)
            fetch(rows, o, arrivals.rows[t.first[i + AHEAD]]);
        for (int s = 0; s < n_states(o->kind); s++)
            r.states[s] = gwi_row_at(o->states[s], row);
        if (o->counts != NULL) {
            int64_t *counter = (int64_t *)(void *)gwi_row_at(o->counts, row);
            count = ++*counter;
        }
        set_rate(o, count, known, &r);
        step(&r, o);
    }
}

int gw_memory_step(gw_memory *rows, const gw_optimizer *optimizer, gw_indices indices,
                   const void *gradients)
{
    gwi_whole *w = rows->whole;
    gwi_arrivals arrivals = {0};
    struct touched touched = {0};
    int err = check_optimizer(rows, optimizer);

    if (err == 0 && gradients == NULL && indices.n > 0)
        err = gwi_fail(GW_EINVAL, "gradients is NULL, with %zu indices", indices.n);
    if (err == 0)
        err = gwi_check_indices(rows, indices);
    pthread_mutex_lock(&w->lock);
    err = gwi_bring_to_owners(rows, indices, gradients, err, &arrivals);
    if (err == 0) {
        err = gwi_memory_agree(w->comm, sum_up(rows, arrivals, &touched), "could not step");
        if (err == 0 && rows->row_entries > 0)
            step_touched(rows, optimizer, arrivals, touched);
        if (err == 0) /* all rows are stepped when it returns */
            err = gw_comm_barrier(w->comm);
    }
    pthread_mutex_unlock(&w->lock);
    return err;
}
