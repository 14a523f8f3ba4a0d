/* blas.c - loads a BLAS and finds its matrix product, whatever its maker called it. */
#include "backend/blas.h"

#include "base/error.h"
#include "base/option.h"
#include "base/platform.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The library's calls of its own functions stay inside, even if the program has another BLAS in its
 * global scope: the reference cblas_sgemm calls sgemm_ by name.  Sanitizers want their own malloc
 * to win. */
#define DEEPBIND (GWI_ASAN || GWI_TSAN ? 0 : RTLD_DEEPBIND)

static const char *const prefixes[] = {"", "scipy_"};
static const char *const suffixes[] = {"", "_", "64_", "_64_", "_64"};
#define N_PREFIXES (sizeof prefixes / sizeof prefixes[0])
#define N_SUFFIXES (sizeof suffixes / sizeof suffixes[0])

/* `letter` is 's' or 'd'.  The Fortran names with an underscore come first: the bare "sgemm" may be
 * anything. */
static void *find_gemm(gw_blas *blas, char letter, bool cblas)
{
    static const char *const order[] = {"_", "_64_", "64_", "", "_64"};
    char name[64];

    for (size_t p = 0; p < N_PREFIXES; p++)
        for (size_t s = 0; s < N_SUFFIXES; s++) {
            const char *suffix = cblas ? suffixes[s] : order[s];
            if (blas->prefix[0] != '\0' && strcmp(prefixes[p], blas->prefix) != 0)
                continue;
            snprintf(name, sizeof name, "%s%s%cgemm%s", prefixes[p], cblas ? "cblas_" : "", letter,
                     suffix);
            void *found = dlsym(blas->library, name);
            if (found == NULL)
                continue;
            snprintf(blas->prefix, sizeof blas->prefix, "%s", prefixes[p]);
            snprintf(blas->suffix, sizeof blas->suffix, "%s", suffix);
            return found;
        }
    if (!cblas) { /* the spelling of Fortran compilers that shout */
        snprintf(name, sizeof name, "%cGEMM", letter - 'a' + 'A');
        return dlsym(blas->library, name);
    }
    return NULL;
}

void *gwi_blas_symbol(const gw_blas *blas, const char *name)
{
    char full[128];

    for (size_t p = 0; p < N_PREFIXES; p++)
        for (size_t s = 0; s < N_SUFFIXES; s++) {
            snprintf(full, sizeof full, "%s%s%s", prefixes[p], name, suffixes[s]);
            void *found = dlsym(blas->library, full);
            if (found != NULL)
                return found;
        }
    return NULL;
}

/* A count of which the lower half is 3 and the upper half says "negative": a library with integers
 * of 32 bits looks at three entries and finds the last to be the largest, one with 64 bits
 * sees less than none and answers 0.  Neither reads anything it should not. */
static int width_of_integers(const gw_blas *blas)
{
    static const float x[3] = {1.0F, 2.0F, 3.0F};
    const int64_t n = (int64_t)(UINT64_C(0xffffffff00000003)), step = 1;
    int64_t (*fortran)(const int64_t *, const float *, const int64_t *) = NULL;
    int64_t (*cblas)(int64_t, const float *, int64_t) = NULL;

    *(void **)&fortran = gwi_blas_symbol(blas, "isamax");
    if (fortran != NULL)
        return (int32_t)fortran(&n, x, &step) == 3 ? 32 : 64;
    *(void **)&cblas = gwi_blas_symbol(blas, "cblas_isamax");
    if (cblas != NULL)
        return (int32_t)cblas(n, x, step) == 2 ? 32 : 64;
    return strstr(blas->suffix, "64") != NULL ? 64 : 32;
}

int gw_blas_open(const char *path, gw_blas **ret_blas)
{
    if (path == NULL || path[0] == '\0')
        return gwi_fail(GW_EINVAL, "no library is given");
    gw_blas *blas = calloc(1, sizeof *blas);
    if (blas == NULL)
        return gwi_fail(GW_ENOMEM, "the library '%s'", path);
    snprintf(blas->path, sizeof blas->path, "%s", path);

    blas->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | DEEPBIND);
    if (blas->library == NULL) {
        const char *why = dlerror();
        gwi_fail(GW_ESYS, "the library '%s' cannot be loaded: %s", path, why != NULL ? why : "?");
        free(blas);
        return GW_ESYS;
    }
    blas->gemm[0] = find_gemm(blas, 's', false);
    blas->gemm[1] = find_gemm(blas, 'd', false);
    if (blas->gemm[0] == NULL && blas->gemm[1] == NULL) {
        blas->by_cblas = true;
        blas->gemm[0] = find_gemm(blas, 's', true);
        blas->gemm[1] = find_gemm(blas, 'd', true);
    }
    if (blas->gemm[0] == NULL && blas->gemm[1] == NULL) {
        dlclose(blas->library);
        free(blas);
        return gwi_fail(GW_EUNSUP,
                        "the library '%s' is no BLAS: it has neither sgemm_ nor cblas_sgemm", path);
    }
    blas->int_bits = width_of_integers(blas);
    *ret_blas = blas;
    return 0;
}

void gw_blas_close(gw_blas *blas)
{
    free(blas);
}

int gw_blas_describe(gw_blas *blas, gw_blas_info *ret_info)
{
    if (ret_info->size_bytes < sizeof *ret_info)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu, not sizeof(gw_blas_info), %zu",
                        ret_info->size_bytes, sizeof *ret_info);
    gwi_blas_identify(blas, ret_info);
    return 0;
}

int gw_blas_set_threads(gw_blas *blas, int n_threads)
{
    /* BLIS counts in its own integers of 64 bits, which a small number fits into either way. */
    static const char *const names[] = {"openblas_set_num_threads", "bli_thread_set_num_threads",
                                        "MKL_Set_Num_Threads"};
    void (*set)(int64_t) = NULL;

    if (n_threads < 1)
        return gwi_fail(GW_EINVAL, "n_threads is %d; at least 1 is needed", n_threads);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *(void **)&set = dlsym(blas->library, names[i]);
        if (set == NULL && i == 0)
            *(void **)&set = dlsym(blas->library, "scipy_openblas_set_num_threads64_");
        if (set == NULL && i == 0)
            *(void **)&set = dlsym(blas->library, "openblas_set_num_threads64_");
        if (set != NULL) {
            set(n_threads);
            return 0;
        }
    }
    return gwi_fail(GW_EUNSUP, "the library '%s' has no function that sets its threads",
                    blas->path);
}

/* ---- the product ------------------------------------------------------------------------- */

int gwi_blas_real(gw_dtype dtype)
{
    if (dtype == GW_F32 || dtype == GW_F64)
        return dtype == GW_F64;
    return gwi_fail(GW_ETYPE, "dtype is number %d; products are of float32 or float64", (int)dtype);
}

static int64_t at_least_1(int64_t x)
{
    return x > 1 ? x : 1;
}

static int check(const gw_blas *blas, const gw_gemm *g)
{
    int64_t a_row = g->a_transposed ? g->m : g->k, b_row = g->b_transposed ? g->k : g->n;
    int64_t most = blas->int_bits == 32 ? INT32_MAX : INT64_MAX;

    if (g->m < 0 || g->n < 0 || g->k < 0)
        return gwi_fail(GW_EINVAL, "a product of %lld x %lld by %lld x %lld", (long long)g->m,
                        (long long)g->k, (long long)g->k, (long long)g->n);
    if (g->lda < at_least_1(a_row) || g->ldb < at_least_1(b_row) || g->ldc < at_least_1(g->n))
        return gwi_fail(GW_EINVAL,
                        "lda, ldb, ldc are %lld, %lld, %lld; rows have %lld, %lld, %lld entries",
                        (long long)g->lda, (long long)g->ldb, (long long)g->ldc, (long long)a_row,
                        (long long)b_row, (long long)g->n);
    if (g->m > most || g->n > most || g->k > most || g->lda > most || g->ldb > most ||
        g->ldc > most)
        return gwi_fail(GW_ERANGE, "the integers of '%s' have 32 bits, too few for this product",
                        blas->path);
    return 0;
}

/* Fortran has columns where we have rows: it computes the transposed product, b by a. */
#define DEFINE_CALL(NAME, REAL, INT)                                                               \
    typedef void fortran_##NAME(const char *, const char *, const INT *, const INT *, const INT *, \
                                const REAL *, const REAL *, const INT *, const REAL *,             \
                                const INT *, const REAL *, REAL *, const INT *, size_t, size_t);   \
    typedef void cblas_##NAME(int, int, int, INT, INT, INT, REAL, const REAL *, INT, const REAL *, \
                              INT, REAL, REAL *, INT);                                             \
    static void call_##NAME(const gw_blas *blas, const gw_gemm *g)                                 \
    {                                                                                              \
        INT m = (INT)g->m, n = (INT)g->n, k = (INT)g->k;                                           \
        INT lda = (INT)g->lda, ldb = (INT)g->ldb, ldc = (INT)g->ldc;                               \
        REAL alpha = (REAL)g->alpha, beta = (REAL)g->beta;                                         \
        void *function = blas->gemm[sizeof(REAL) == sizeof(double)];                               \
        if (blas->by_cblas) {                                                                      \
            cblas_##NAME *call = NULL;                                                             \
            *(void **)&call = function;                                                            \
            call(101, g->a_transposed ? 112 : 111, g->b_transposed ? 112 : 111, m, n, k, alpha,    \
                 g->a, lda, g->b, ldb, beta, g->c, ldc);                                           \
        } else {                                                                                   \
            fortran_##NAME *call = NULL;                                                           \
            *(void **)&call = function;                                                            \
            call(g->b_transposed ? "T" : "N", g->a_transposed ? "T" : "N", &n, &m, &k, &alpha,     \
                 g->b, &ldb, g->a, &lda, &beta, g->c, &ldc, 1, 1);                                 \
        }                                                                                          \
    }
DEFINE_CALL(f32_i32, float, int32_t)
DEFINE_CALL(f64_i32, double, int32_t)
DEFINE_CALL(f32_i64, float, int64_t)
DEFINE_CALL(f64_i64, double, int64_t)

int gw_blas_gemm(gw_blas *blas, const gw_gemm *gemm)
{
    static void (*const calls[2][2])(const gw_blas *, const gw_gemm *) = {
        {call_f32_i32, call_f32_i64}, {call_f64_i32, call_f64_i64}};
    int real = gwi_blas_real(gemm->dtype);
    if (real < 0)
        return real;
    if (blas->gemm[real] == NULL)
        return gwi_fail(GW_EUNSUP, "the library '%s' has no product of %s", blas->path,
                        real ? "float64" : "float32");
    int err = check(blas, gemm);
    if (err < 0)
        return err;
    if (gemm->m == 0 || gemm->n == 0)
        return 0;
    atomic_fetch_add_explicit(&blas->n_products, 1, memory_order_relaxed);
    calls[real][blas->int_bits == 64](blas, gemm);
    return 0;
}

int64_t gw_blas_products(const gw_blas *blas)
{
    return atomic_load_explicit(&blas->n_products, memory_order_relaxed);
}

/* ---- companions -------------------------------------------------------------------------- */

int gw_companion(const char *file, char *ret_path, size_t room)
{
    static const char *const below[] = {"", "godwit/", "../src/"};
    const char *given;
    Dl_info us;

    if (gwi_option_text(GWI_OPTION_PLUGINS, &given) == 1) {
        snprintf(ret_path, room, "%s/%s", given, file);
        if (access(ret_path, R_OK) == 0)
            return 0;
    }
    if (dladdr((const void *)prefixes, &us) != 0 && us.dli_fname != NULL) {
        const char *slash = strrchr(us.dli_fname, '/');
        int dir_bytes = slash != NULL ? (int)(slash - us.dli_fname) + 1 : 0;
        for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
            snprintf(ret_path, room, "%.*s%s%s", dir_bytes, us.dli_fname, below[i], file);
            if (access(ret_path, R_OK) == 0)
                return 0;
        }
    }
    return gwi_fail(GW_EUNSUP,
                    "'%s', a part of Godwit, is not beside its library; install it again", file);
}
