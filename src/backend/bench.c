/* bench.c - measures a product or a convolution, and checks it against float64.
 *
 * A product is checked as a whole without computing another: with c = a b and any vector x, c x
 * must be a (b x).  Both are worked out in float64, and the difference is set against the sum of
 * the magnitudes that went into it.  A convolution is checked at places drawn by chance. */
#include "backend/blas.h"
#include "backend/child.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/flops.h"
#include "base/random.h"
#include "base/thread.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define N_PLACES 200 /* of a convolution that are checked */
#define MOST_ENTRIES (INT64_C(1) << 32)

/* ---- arrays of numbers in [-1, 1) -------------------------------------------------------- */

typedef struct array {
    gw_dtype dtype;
    int64_t n;
    void *at;
} array;

static double get(const array *a, int64_t i)
{
    return a->dtype == GW_F32 ? (double)((const float *)a->at)[i] : ((const double *)a->at)[i];
}

static int array_new(gw_dtype dtype, int64_t n, uint64_t seed, array *ret)
{
    size_t item = dtype == GW_F32 ? sizeof(float) : sizeof(double);
    gwi_random random;

    if (n < 0 || n > MOST_ENTRIES)
        return gwi_fail(GW_ERANGE, "an array of %lld entries is too large to measure",
                        (long long)n);
    ret->dtype = dtype;
    ret->n = n;
    ret->at = aligned_alloc(64, ((size_t)n * item + 63) / 64 * 64 + 64);
    if (ret->at == NULL)
        return gwi_fail(GW_ENOMEM, "an array of %lld entries", (long long)n);
    gwi_random_init(&random, seed, 0);
    for (int64_t i = 0; i < n; i++) {
        double x = 2.0 * gwi_random_double(&random) - 1.0;
        if (dtype == GW_F32)
            ((float *)ret->at)[i] = (float)x;
        else
            ((double *)ret->at)[i] = x;
    }
    return 0;
}

/* ---- what is measured -------------------------------------------------------------------- */

typedef struct subject {
    gw_blas *blas;
    const gw_blas_bench *bench;
    array a, b, c; /* x, weight and y of a convolution */
    double operations;
} subject;

static int run_once(const subject *s)
{
    const gw_gemm *g = &s->bench->gemm;

    if (s->bench->is_conv)
        return gw_blas_conv2d(s->blas, &s->bench->conv, s->a.at, s->b.at, NULL, s->c.at);
    return gw_blas_gemm(s->blas, &(gw_gemm){.dtype = g->dtype,
                                            .a_transposed = g->a_transposed,
                                            .b_transposed = g->b_transposed,
                                            .m = g->m,
                                            .n = g->n,
                                            .k = g->k,
                                            .alpha = 1,
                                            .beta = 0,
                                            .a = s->a.at,
                                            .b = s->b.at,
                                            .c = s->c.at,
                                            .lda = g->a_transposed ? g->m : g->k,
                                            .ldb = g->b_transposed ? g->k : g->n,
                                            .ldc = g->n});
}

static int subject_new(gw_blas *blas, const gw_blas_bench *bench, subject *s)
{
    const gw_gemm *g = &bench->gemm;
    const gw_conv2d *v = &bench->conv;
    gw_dtype dtype = bench->is_conv ? v->dtype : g->dtype;
    int64_t out_h = 0, out_w = 0, na, nb, nc;
    int err = gwi_blas_real(dtype);

    if (err < 0)
        return err;
    if (bench->is_conv) {
        if (v->groups < 1 || v->n < 1 || (out_h = gw_conv2d_out(v, 0)) < 1 ||
            (out_w = gw_conv2d_out(v, 1)) < 1)
            return gwi_fail(GW_EINVAL, "this convolution has no output");
        na = v->n * v->c_in * v->h * v->w;
        nb = v->c_out * (v->c_in / v->groups) * v->kh * v->kw;
        nc = v->n * v->c_out * out_h * out_w;
        s->operations = 2.0 * (double)nc * (double)(v->c_in / v->groups * v->kh * v->kw);
    } else {
        if (g->m < 1 || g->n < 1 || g->k < 1 || g->m > MOST_ENTRIES || g->n > MOST_ENTRIES ||
            g->k > MOST_ENTRIES)
            return gwi_fail(GW_EINVAL, "a product of %lld x %lld by %lld x %lld", (long long)g->m,
                            (long long)g->k, (long long)g->k, (long long)g->n);
        na = g->m * g->k;
        nb = g->k * g->n;
        nc = g->m * g->n;
        s->operations = 2.0 * (double)g->m * (double)g->n * (double)g->k;
    }
    s->blas = blas;
    s->bench = bench;
    if ((err = array_new(dtype, na, 1, &s->a)) < 0 || (err = array_new(dtype, nb, 2, &s->b)) < 0 ||
        (err = array_new(dtype, nc, 3, &s->c)) < 0)
        return err; /* the process ends anyway */
    return 0;
}

static void subject_free(subject *s)
{
    free(s->a.at);
    free(s->b.at);
    free(s->c.at);
}

/* ---- right or wrong ---------------------------------------------------------------------- */

/* y = op(a) x and the same with magnitudes; op(a) is rows x columns. */
static void times(const array *a, int64_t rows, int64_t columns, int transposed, const double *x,
                  const double *x_size, double *y, double *y_size)
{
    for (int64_t i = 0; i < rows; i++) {
        y[i] = y_size[i] = 0;
        for (int64_t j = 0; j < columns; j++) {
            double e = get(a, transposed ? j * rows + i : i * columns + j);
            y[i] += e * x[j];
            y_size[i] += fabs(e) * x_size[j];
        }
    }
}

static int check_gemm(const subject *s, double *ret_error)
{
    const gw_gemm *g = &s->bench->gemm;
    int64_t n[] = {g->n, g->n, g->k, g->k, g->m, g->m, g->m, g->m};
    double *v[8] = {NULL};
    gwi_random random;
    int err = 0;

    for (int i = 0; i < 8; i++)
        if ((v[i] = malloc((size_t)n[i] * sizeof(double))) == NULL)
            err = gwi_fail(GW_ENOMEM, "the check of a product");
    if (err == 0) {
        gwi_random_init(&random, 4, 0);
        for (int64_t j = 0; j < g->n; j++) {
            v[0][j] = 2.0 * gwi_random_double(&random) - 1.0;
            v[1][j] = fabs(v[0][j]);
        }
        times(&s->b, g->k, g->n, g->b_transposed, v[0], v[1], v[2], v[3]);
        times(&s->a, g->m, g->k, g->a_transposed, v[2], v[3], v[4], v[5]);
        times(&s->c, g->m, g->n, 0, v[0], v[1], v[6], v[7]);
        *ret_error = 0;
        for (int64_t i = 0; i < g->m; i++) {
            double off = fabs(v[4][i] - v[6][i]) / v[5][i];
            *ret_error = off <= *ret_error ? *ret_error : off; /* NaN counts */
        }
    }
    for (int i = 0; i < 8; i++)
        free(v[i]);
    return err;
}

static double check_place(const subject *s, int64_t place)
{
    const gw_conv2d *v = &s->bench->conv;
    int64_t ow = gw_conv2d_out(v, 1), oh = gw_conv2d_out(v, 0);
    int64_t x = place % ow, y = place / ow % oh, f = place / ow / oh % v->c_out;
    int64_t image = place / ow / oh / v->c_out, cg = v->c_in / v->groups;
    int64_t first = f / (v->c_out / v->groups) * cg;
    double sum = 0, size = 1e-300;

    for (int64_t c = 0; c < cg; c++)
        for (int64_t i = 0; i < v->kh; i++)
            for (int64_t j = 0; j < v->kw; j++) {
                int64_t row = y * v->stride[0] + i * v->dilation[0] - v->padding[0];
                int64_t col = x * v->stride[1] + j * v->dilation[1] - v->padding[1];
                if (row < 0 || row >= v->h || col < 0 || col >= v->w)
                    continue;
                double e = get(&s->a, ((image * v->c_in + first + c) * v->h + row) * v->w + col) *
                           get(&s->b, ((f * cg + c) * v->kh + i) * v->kw + j);
                sum += e;
                size += fabs(e);
            }
    return fabs(sum - get(&s->c, place)) / size;
}

static double check_conv(const subject *s)
{
    gwi_random random;
    double error = 0;

    gwi_random_init(&random, 5, 0);
    for (int i = 0; i < N_PLACES; i++) {
        double off = check_place(s, (int64_t)(gwi_random_double(&random) * (double)s->c.n));
        error = off <= error ? error : off;
    }
    return error;
}

/* ---- how fast ---------------------------------------------------------------------------- */

static int smaller(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int time_it(const subject *s, double *speeds)
{
    int64_t calls = 1;
    int err = run_once(s); /* the first call pays for threads and pages */

    for (int r = 0; r < s->bench->n_repeats && err == 0; r++)
        for (;;) {
            int64_t begun = gwi_now_ns();
            for (int64_t i = 0; i < calls && err == 0; i++)
                err = run_once(s);
            double took = (double)(gwi_now_ns() - begun) * 1e-9;
            if (err < 0 || took >= s->bench->least_s) {
                speeds[r] = s->operations * (double)calls / (took > 0 ? took : 1e-9) * 1e-9;
                break;
            }
            calls = took <= 0 ? 2 * calls
                              : (int64_t)((double)calls * 1.3 * s->bench->least_s / took) + 1;
        }
    return err;
}

int gwi_bench_run(gw_blas *blas, const gw_blas_bench *bench, gw_blas_speed *ret_speed)
{
    subject s = {0};
    gw_blas_info info = {.size_bytes = sizeof info};
    int n = bench->n_repeats;
    double *speeds = calloc((size_t)n, sizeof *speeds);
    int err = speeds == NULL ? gwi_fail(GW_ENOMEM, "%d repeats", n) : subject_new(blas, bench, &s);

    if (bench->n_threads > 0)
        gw_blas_set_threads(
            blas, bench->n_threads); /* what cannot be told has one, or the environment's */
    if (err == 0)
        err = time_it(&s, speeds);
    if (err == 0 && bench->is_conv)
        ret_speed->error = check_conv(&s);
    else if (err == 0)
        err = check_gemm(&s, &ret_speed->error);
    if (err == 0) {
        const gw_conv2d *v = &bench->conv;
        int64_t terms = bench->is_conv ? v->c_in / v->groups * v->kh * v->kw : bench->gemm.k;
        double epsilon = s.a.dtype == GW_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
        qsort(speeds, (size_t)n, sizeof *speeds, smaller);
        ret_speed->worst = speeds[0];
        ret_speed->median = n % 2 != 0 ? speeds[n / 2] : (speeds[n / 2 - 1] + speeds[n / 2]) / 2;
        ret_speed->best = speeds[n - 1];
        ret_speed->tolerance = epsilon * (2.0 + sqrt((double)terms));
        gwi_blas_identify(blas, &info);
        ret_speed->n_threads = info.n_threads;
    }
    subject_free(&s);
    free(speeds);
    return err;
}

/* ---- the limit --------------------------------------------------------------------------- */

typedef struct runner {
    double (*loop)(int64_t turns);
    int64_t span_ns;
    _Atomic int *waiting; /* everybody starts when nobody is missing */
    double gflops;        /* written by its thread, read after join */
} runner;

static void *run_loop(void *arg)
{
    runner *r = arg;
    double operations = 0;

    atomic_fetch_sub_explicit(r->waiting, 1, memory_order_acq_rel);
    while (atomic_load_explicit(r->waiting, memory_order_acquire) > 0)
        ;
    /* The best stretch of a tenth counts: others may have had the core meanwhile. */
    int64_t begun = gwi_now_ns(), stretch = begun, now = begun;
    while (now - begun < r->span_ns) {
        operations += r->loop(10000);
        now = gwi_now_ns();
        if (now - stretch >= r->span_ns / 10) {
            double gflops = operations / (double)(now - stretch);
            r->gflops = gflops > r->gflops ? gflops : r->gflops;
            operations = 0;
            stretch = now;
        }
    }
    return NULL;
}

int gw_peak_measure(gw_dtype dtype, int n_threads, double seconds, double *ret_gflops)
{
    _Atomic int waiting = n_threads;
    int real = gwi_blas_real(dtype), err = 0, started = 0;

    if (real < 0)
        return real;
    if (n_threads < 1 || n_threads > 4096 || !(seconds > 0) || seconds > 60)
        return gwi_fail(GW_EINVAL, "n_threads is %d (1 to 4096), seconds %g (above 0, up to 60)",
                        n_threads, seconds);
    runner *runners = calloc((size_t)n_threads, sizeof *runners);
    gwi_thread *threads = calloc((size_t)n_threads, sizeof *threads);
    if (runners == NULL || threads == NULL)
        err = gwi_fail(GW_ENOMEM, "%d threads", n_threads);
    for (int i = 0; i < n_threads && err == 0; i++) {
        runners[i] = (runner){.loop = real ? gwi_flops_f64 : gwi_flops_f32,
                              .span_ns = gwi_seconds_to_ns(seconds),
                              .waiting = &waiting};
        err = gwi_thread_start("godwit-peak", run_loop, &runners[i], &threads[i]);
        started += err == 0;
    }
    atomic_fetch_sub_explicit(&waiting, n_threads - started, memory_order_acq_rel);
    double sum = 0;
    for (int i = 0; i < started; i++) {
        gwi_thread_join(threads[i]);
        sum += runners[i].gflops;
    }
    free(runners);
    free(threads);
    if (err == 0)
        *ret_gflops = sum;
    return err;
}
