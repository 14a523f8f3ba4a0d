/* blas_test.c - libraries are told apart, products and convolutions are right, and nothing harms
 * the caller. */
#include "backend/blas.h"
#include "base/random.h"
#include "base/test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where meson built tests/backend/tiny_blas.c in its forms. */
static const char *path_of(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", getenv("TINY_BLAS_DIR"), name);
    return path;
}

static gw_blas *open_tiny(const char *name)
{
    gw_blas *blas = NULL;

    assert_int_equal(gw_blas_open(path_of(name), &blas), 0);
    return blas;
}

static void integers_of_either_width_are_recognised(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int bits;
    } cases[] = {{"tiny-blas.so", 32}, {"tiny-blas-64.so", 64}};

    for (int i = 0; i < 2; i++) {
        gw_blas *blas = open_tiny(cases[i].file);
        gw_blas_info info = {.size_bytes = sizeof info};
        assert_int_equal(gw_blas_describe(blas, &info), 0);
        assert_int_equal(info.int_bits, cases[i].bits);
        assert_true((info.has & GW_BLAS_SGEMM) && (info.has & GW_BLAS_DGEMM) &&
                    !(info.has & GW_BLAS_CBLAS));
        gw_blas_close(blas);
    }
}

static void products_are_right_in_every_orientation(void **state)
{
    (void)state;
    enum { M = 3, N = 4, K = 5, LD = 7 };
    double a[LD * LD], b[LD * LD], c[LD * LD], before[LD * LD];
    gwi_random random;

    gwi_random_init(&random, 1, 0);
    for (int form = 0; form < 8; form++) {
        gw_blas *blas = open_tiny(form & 4 ? "tiny-blas-64.so" : "tiny-blas.so");
        int ta = form & 1, tb = form >> 1 & 1;
        for (int i = 0; i < LD * LD; i++) {
            a[i] = gwi_random_double(&random);
            b[i] = gwi_random_double(&random);
            before[i] = c[i] = gwi_random_double(&random);
        }
        assert_int_equal(gw_blas_gemm(blas, &(gw_gemm){.dtype = GW_F64,
                                                       .a_transposed = ta,
                                                       .b_transposed = tb,
                                                       .m = M,
                                                       .n = N,
                                                       .k = K,
                                                       .alpha = 2,
                                                       .beta = 0.5,
                                                       .a = a,
                                                       .b = b,
                                                       .c = c,
                                                       .lda = LD,
                                                       .ldb = LD,
                                                       .ldc = LD}),
                         0);
        assert_int_equal(gw_blas_products(blas), 1);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < LD; j++) {
                double sum = 0;
                for (int k = 0; k < K && j < N; k++)
                    sum += (ta ? a[k * LD + i] : a[i * LD + k]) *
                           (tb ? b[j * LD + k] : b[k * LD + j]);
                double expected = j < N ? 2 * sum + 0.5 * before[i * LD + j] : before[i * LD + j];
                assert_true(fabs(c[i * LD + j] - expected) < 1e-12);
            }
        gw_blas_close(blas);
    }
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    gw_blas *blas = open_tiny("tiny-blas.so"), *none = NULL;
    double x[4] = {1, 2, 3, 4}, out[4] = {9, 9, 9, 9};
    gw_gemm good = {.dtype = GW_F64,
                    .m = 2,
                    .n = 2,
                    .k = 2,
                    .alpha = 1,
                    .a = x,
                    .b = x,
                    .c = out,
                    .lda = 2,
                    .ldb = 2,
                    .ldc = 2};
    gw_gemm bad = good;

    bad.dtype = GW_BF16;
    assert_int_equal(gw_blas_gemm(blas, &bad), GW_ETYPE);
    bad = good, bad.m = -1;
    assert_int_equal(gw_blas_gemm(blas, &bad), GW_EINVAL);
    bad = good, bad.lda = 1;
    assert_int_equal(gw_blas_gemm(blas, &bad), GW_EINVAL);
    bad = good, bad.ldb = INT64_C(1) << 33;
    assert_int_equal(gw_blas_gemm(blas, &bad), GW_ERANGE);
    assert_true(out[0] == 9 && out[3] == 9);
    assert_int_equal(gw_blas_open("/nowhere/libblas.so", &none), GW_ESYS);
    assert_int_equal(gw_blas_open("", &none), GW_EINVAL);
    assert_int_equal(gw_blas_open("libm.so.6", &none), GW_EUNSUP);
    assert_int_equal(gw_blas_set_threads(blas, 0), GW_EINVAL);
    assert_int_equal(gw_blas_set_threads(blas, 2), GW_EUNSUP);
    gw_conv2d v = {.dtype = GW_F64,
                   .n = 1,
                   .c_in = 3,
                   .h = 2,
                   .w = 2,
                   .c_out = 2,
                   .kh = 1,
                   .kw = 1,
                   .stride = {1, 1},
                   .dilation = {1, 1},
                   .groups = 2};
    assert_int_equal(gw_blas_conv2d(blas, &v, x, x, NULL, out), GW_EINVAL); /* groups */
    v.groups = 1, v.kh = 3;
    assert_int_equal(gw_blas_conv2d(blas, &v, x, x, NULL, out),
                     GW_EINVAL); /* larger than the input */
    v.kh = 1, v.stride[0] = 0;
    assert_int_equal(gw_blas_conv2d(blas, &v, x, x, NULL, out), GW_EINVAL);
    gw_blas_close(blas);
}

/* ---- convolutions ------------------------------------------------------------------------------
 */

/* y, or the gradients, by the definition: `visit` for every product in it. */
typedef void visit(double *x, double *w, double *y);

static void forward(double *x, double *w, double *y)
{
    *y += *x * *w;
}
static void to_input(double *x, double *w, double *y)
{
    *x += *y * *w;
}
static void to_weight(double *x, double *w, double *y)
{
    *w += *x * *y;
}

static void by_definition(const gw_conv2d *v, double *x, double *w, double *y, visit *f)
{
    int64_t oh = gw_conv2d_out(v, 0), ow = gw_conv2d_out(v, 1), cg = v->c_in / v->groups,
            fg = v->c_out / v->groups;

    for (int64_t n = 0; n < v->n; n++)
        for (int64_t o = 0; o < v->c_out; o++)
            for (int64_t p = 0; p < oh * ow; p++)
                for (int64_t c = 0; c < cg; c++)
                    for (int64_t k = 0; k < v->kh * v->kw; k++) {
                        int64_t row = p / ow * v->stride[0] + k / v->kw * v->dilation[0] -
                                      v->padding[0];
                        int64_t col = p % ow * v->stride[1] + k % v->kw * v->dilation[1] -
                                      v->padding[1];
                        if (row >= 0 && row < v->h && col >= 0 && col < v->w)
                            f(&x[((n * v->c_in + o / fg * cg + c) * v->h + row) * v->w + col],
                              &w[(o * cg + c) * v->kh * v->kw + k],
                              &y[(n * v->c_out + o) * oh * ow + p]);
                    }
}

static double *numbers(gwi_random *random, int64_t n)
{
    double *x = malloc((size_t)n * sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = random != NULL ? gwi_random_double(random) - 0.5 : 0;
    return x;
}

static void assert_close(const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) < 1e-10))
            fail_msg("entry %lld is %.17g, not %.17g", (long long)i, a[i], b[i]);
}

static void convolutions_and_their_gradients_are_what_the_definition_says(void **state)
{
    (void)state;
    static const gw_conv2d layers[] = {
        {.n = 2,
         .c_in = 3,
         .h = 7,
         .w = 6,
         .c_out = 4,
         .kh = 3,
         .kw = 3,
         .stride = {1, 1},
         .padding = {1, 1},
         .dilation = {1, 1},
         .groups = 1},
        {.n = 3,
         .c_in = 4,
         .h = 9,
         .w = 8,
         .c_out = 6,
         .kh = 3,
         .kw = 2,
         .stride = {2, 3},
         .padding = {0, 2},
         .dilation = {2, 1},
         .groups = 2},
        {.n = 1,
         .c_in = 2,
         .h = 5,
         .w = 5,
         .c_out = 3,
         .kh = 1,
         .kw = 1,
         .stride = {1, 1},
         .padding = {0, 0},
         .dilation = {1, 1},
         .groups = 1},
        {.n = 5,
         .c_in = 2,
         .h = 5,
         .w = 4,
         .c_out = 2,
         .kh = 1,
         .kw = 1,
         .stride = {1, 1},
         .padding = {0, 0},
         .dilation = {1, 1},
         .groups = 2},
        {.n = 2,
         .c_in = 1,
         .h = 3,
         .w = 3,
         .c_out = 1,
         .kh = 3,
         .kw = 3,
         .stride = {1, 1},
         .padding = {4, 4},
         .dilation = {1, 1},
         .groups = 1},
        /* rows of an image in pieces: 2 MB of patches have 436 columns here */
        {.n = 1,
         .c_in = 150,
         .h = 30,
         .w = 32,
         .c_out = 2,
         .kh = 2,
         .kw = 2,
         .stride = {1, 1},
         .padding = {1, 0},
         .dilation = {1, 1},
         .groups = 1},
        /* depthwise, and more images than a piece takes */
        {.n = 600,
         .c_in = 2,
         .h = 2,
         .w = 2,
         .c_out = 2,
         .kh = 2,
         .kw = 2,
         .stride = {1, 1},
         .padding = {0, 0},
         .dilation = {1, 1},
         .groups = 2},
    };
    gw_blas *blas = open_tiny("tiny-blas.so");
    gwi_random random;

    gwi_random_init(&random, 2, 0);
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        gw_conv2d v = layers[i];
        v.dtype = GW_F64;
        int64_t nx = v.n * v.c_in * v.h * v.w, nw = v.c_out * v.c_in / v.groups * v.kh * v.kw;
        int64_t image = gw_conv2d_out(&v, 0) * gw_conv2d_out(&v, 1), ny = v.n * v.c_out * image;
        double *x = numbers(&random, nx), *w = numbers(&random, nw), *y = numbers(&random, ny);
        double *bias = numbers(&random, v.c_out), *got = numbers(&random, nx + nw + ny),
               *want = numbers(NULL, nx + nw + ny);

        assert_int_equal(gw_blas_conv2d(blas, &v, x, w, bias, got), 0);
        for (int64_t k = 0; k < ny; k++)
            want[k] = bias[k / image % v.c_out];
        by_definition(&v, x, w, want, forward);
        assert_close(got, want, ny);

        assert_int_equal(gw_blas_conv2d_grad_input(blas, &v, y, w, got), 0);
        memset(want, 0, (size_t)nx * sizeof *want);
        by_definition(&v, want, w, y, to_input);
        assert_close(got, want, nx);

        assert_int_equal(gw_blas_conv2d_grad_weight(blas, &v, x, y, got), 0);
        memset(want, 0, (size_t)nw * sizeof *want);
        by_definition(&v, x, want, y, to_weight);
        assert_close(got, want, nw);
        double *all[] = {x, w, y, bias, got, want};
        for (size_t k = 0; k < 6; k++)
            free(all[k]);
    }
    gw_blas_close(blas);
}

/* ---- children -----------------------------------------------------------------------------------
 */

static void a_library_is_asked_in_a_child(void **state)
{
    (void)state;
    gw_blas_info info = {.size_bytes = sizeof info};

    assert_int_equal(gw_blas_probe(path_of("tiny-blas-64.so"), &info), 0);
    assert_int_equal(info.int_bits, 64);
    assert_non_null(strstr(info.file, "tiny-blas-64.so"));
}

static void a_library_that_crashes_takes_nobody_along(void **state)
{
    (void)state;
    gw_blas_info info = {.size_bytes = sizeof info};

    assert_int_equal(gw_blas_probe(path_of("tiny-blas-crash.so"), &info), GW_ESYS);
    assert_non_null(strstr(gw_last_error(), "signal 6"));
    assert_int_equal(gw_blas_probe("/nowhere/libblas.so", &info), GW_ESYS);
    assert_int_equal(gw_blas_probe("libm.so.6", &info), GW_EUNSUP);
    info.size_bytes = 1;
    assert_int_equal(gw_blas_probe(path_of("tiny-blas.so"), &info), GW_EINVAL);
}

static void a_wrong_product_is_noticed(void **state)
{
    (void)state;
    gw_blas_bench bench = {.size_bytes = sizeof bench,
                           .n_repeats = 2,
                           .gemm = {.dtype = GW_F32, .m = 20, .n = 30, .k = 40}};
    gw_blas_speed speed;

    bench.path = strdup(path_of("tiny-blas.so"));
    assert_int_equal(gw_blas_measure(&bench, &speed), 0);
    assert_true(speed.error <= speed.tolerance && speed.worst > 0 && speed.median >= speed.worst &&
                speed.best >= speed.median);
    free((void *)(uintptr_t)bench.path);
    bench.path = strdup(path_of("tiny-blas-wrong.so"));
    assert_int_equal(gw_blas_measure(&bench, &speed), 0);
    assert_true(speed.error > speed.tolerance);
    bench.is_conv = 1;
    bench.conv = (gw_conv2d){.dtype = GW_F64,
                             .n = 1,
                             .c_in = 2,
                             .h = 6,
                             .w = 6,
                             .c_out = 3,
                             .kh = 3,
                             .kw = 3,
                             .stride = {1, 1},
                             .dilation = {1, 1},
                             .groups = 1};
    assert_int_equal(gw_blas_measure(&bench, &speed), 0);
    assert_true(speed.error > speed.tolerance);
    bench.n_repeats = 0;
    assert_int_equal(gw_blas_measure(&bench, &speed), GW_EINVAL);
    free((void *)(uintptr_t)bench.path);
}

static int count(const char *path, void *arg)
{
    int *n = arg;

    *n += strstr(path, "libblas-for-test.so") != NULL;
    return strstr(path, "stop-here") != NULL ? 5 : 0;
}

static void files_are_found_once_whatever_leads_to_them(void **state)
{
    (void)state;
    char dir[] = "/tmp/godwit-find-XXXXXX", path[64], link[64], libs[64];
    int n = 0;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/libblas-for-test.so", dir);
    snprintf(link, sizeof link, "%s/libblas-for-test.so.3", dir);
    snprintf(libs, sizeof libs, "%s/libblas-nowhere.so", dir);
    fclose(fopen(path, "w"));
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(symlink("/nowhere", libs), 0);
    assert_int_equal(gw_blas_find((const char *const[]){dir, dir, NULL}, count, &n), 0);
    assert_int_equal(n, 1);
    unlink(path), unlink(link), unlink(libs), rmdir(dir);
}

static void the_peak_is_a_speed(void **state)
{
    (void)state;
    double one = 0, single = 0;

    assert_int_equal(gw_peak_measure(GW_F64, 1, 0.02, &one), 0);
    assert_int_equal(gw_peak_measure(GW_F32, 2, 0.02, &single), 0);
    assert_true(one > 0.1 && single > 0.1);
    assert_int_equal(gw_peak_measure(GW_I32, 1, 0.02, &one), GW_ETYPE);
    assert_int_equal(gw_peak_measure(GW_F32, 0, 0.02, &one), GW_EINVAL);
}

static void *multiply(void *arg)
{
    double a[4] = {1, 2, 3, 4}, c[4];

    for (int i = 0; i < 1000; i++)
        gw_blas_gemm(arg, &(gw_gemm){.dtype = GW_F64,
                                     .m = 2,
                                     .n = 2,
                                     .k = 2,
                                     .alpha = 1,
                                     .a = a,
                                     .b = a,
                                     .c = c,
                                     .lda = 2,
                                     .ldb = 2,
                                     .ldc = 2});
    return NULL;
}

static void several_threads_share_a_library(void **state)
{
    (void)state;
    gw_blas *blas = open_tiny("tiny-blas.so");
    pthread_t thread[4];

    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, multiply, blas), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(gw_blas_products(blas), 4000);
    gw_blas_close(blas);
}

GWI_TESTS(cmocka_unit_test(integers_of_either_width_are_recognised),
          cmocka_unit_test(products_are_right_in_every_orientation),
          cmocka_unit_test(nonsense_is_refused),
          cmocka_unit_test(convolutions_and_their_gradients_are_what_the_definition_says),
          cmocka_unit_test(a_library_is_asked_in_a_child),
          cmocka_unit_test(a_library_that_crashes_takes_nobody_along),
          cmocka_unit_test(a_wrong_product_is_noticed),
          cmocka_unit_test(files_are_found_once_whatever_leads_to_them),
          cmocka_unit_test(the_peak_is_a_speed), cmocka_unit_test(several_threads_share_a_library))
