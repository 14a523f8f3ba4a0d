/* backend.h - BLAS libraries: which are here, how fast are they, and products through one of them.
 *
 * A BLAS is a shared library with the functions sgemm and dgemm, under whatever names and with
 * whatever integers its maker chose.  These functions find the libraries of a machine, tell them
 * apart, measure them, and call one that is chosen at run time.
 *
 * Owning   A gw_blas keeps its library loaded.  Arrays are borrowed for the call.
 * Failing  Results below zero are a gw_err.  A call that fails has changed nothing.
 * Threads  All functions may be called by any thread at any time.  gw_blas_close() is for
 *          whoever is the last to use a gw_blas.  How many threads a product itself uses
 *          is the library's affair.
 * Forking  A gw_blas works in a forked child if its library does (OpenBLAS does, libraries on
 *          OpenMP do not once they have started their threads).                              */
#ifndef GODWIT_BACKEND_H
#define GODWIT_BACKEND_H

#include <godwit/base.h>
#include <godwit/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- which are here -------------------------------------------------------------------- */

enum { GW_BLAS_SGEMM = 1, GW_BLAS_DGEMM = 2, GW_BLAS_CBLAS = 4, GW_BLAS_FORTRAN = 8 };

/* What a library says of itself.  Texts are "" where it says nothing. */
typedef struct gw_blas_info {
    size_t size_bytes; /* sizeof(gw_blas_info), set by the caller */
    char path[1024];   /* as it was asked for */
    char file[1024];   /* where sgemm really lies: `path` may only pass calls on */
    char vendor[32];   /* "openblas", "blis", "atlas", "mkl", "reference", "unknown" */
    char version[64];
    char threading[16];          /* "serial", "pthread", "openmp", "tbb", "intel", "unknown" */
    char kernel[64];             /* the architecture whose code it picked, such as "Zen" */
    char prefix[16], suffix[16]; /* of its names: "scipy_" and "64_" */
    char config[256];            /* its own description of how it was built */
    int int_bits;                /* of its integers: 32 or 64 */
    int n_threads;               /* that it would use now; 0: it does not say */
    unsigned has;                /* GW_BLAS_SGEMM ... */
} gw_blas_info;

/* Call `found` with the path of every file that looks like a BLAS by its name: in the system's
 * library directories and their alternatives, in LD_LIBRARY_PATH, and in and below the
 * directories of `more` (NULL at the end; NULL: none), to the depth of Python packages'
 * own libraries.  A file that several names lead to comes once.  If `found` returns something
 * else than 0 the search ends with it. */
GW_API int gw_blas_find(const char *const *more, int (*found)(const char *path, void *arg),
                        void *arg);

/* Load the library in a child process and ask it.  The caller's process is not touched by it,
 * whatever the library does.  GW_EUNSUP: it is no BLAS.  GW_ESYS: it cannot be loaded, or the
 * child died.  GW_ETIMEOUT: it took longer than a minute. */
GW_API int gw_blas_probe(const char *path, gw_blas_info *ret_info);

/* The path of a file that belongs to Godwit and lies beside its library, such as "godwit-audit.so",
 * what the dynamic loader puts into a program that is profiled.  GW_EUNSUP: not there. */
GW_API int gw_companion(const char *file, char *ret_path, size_t room);

/* ---- products through one of them -------------------------------------------------------- */

typedef struct gw_blas gw_blas;

/* Load a library into this process.  Its names stay its own (RTLD_LOCAL), and its own calls
 * stay inside it, so that several can be open at once. */
GW_API int gw_blas_open(const char *path, gw_blas **ret_blas);
GW_API void gw_blas_close(gw_blas *blas); /* NULL is fine; the library stays loaded */
GW_API int gw_blas_describe(gw_blas *blas, gw_blas_info *ret_info);

/* How many threads its products use.  GW_EUNSUP if it cannot be told. */
GW_API int gw_blas_set_threads(gw_blas *blas, int n_threads);

/* c = alpha op(a) op(b) + beta c, row by row: op(a) is m x k, op(b) k x n, c m x n.  If
 * `a_transposed`, a lies as k x m.  `lda` and so on are the distances of rows, in entries.
 * With beta 0, c is written without being read.  float32 or float64. */
typedef struct gw_gemm {
    gw_dtype dtype;
    int a_transposed, b_transposed;
    int64_t m, n, k;
    double alpha, beta;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
} gw_gemm;

GW_API int gw_blas_gemm(gw_blas *blas, const gw_gemm *gemm);

/* How often its sgemm or dgemm was called so far, by the function above and by convolutions. */
GW_API int64_t gw_blas_products(const gw_blas *blas);

/* A convolution layer.  x is n x c_in x h x w, weight c_out x c_in/groups x kh x kw, bias c_out
 * or NULL, y n x c_out x gw_conv2d_out(0) x gw_conv2d_out(1); all dense. */
typedef struct gw_conv2d {
    gw_dtype dtype;
    int64_t n, c_in, h, w, c_out, kh, kw;
    int64_t stride[2], padding[2], dilation[2];
    int64_t groups;
} gw_conv2d;

/* Height (0) or width (1) of the output; below zero: the layer makes no sense. */
GW_API int64_t gw_conv2d_out(const gw_conv2d *conv, int axis);

GW_API int gw_blas_conv2d(gw_blas *blas, const gw_conv2d *conv, const void *x, const void *weight,
                          const void *bias, void *y);
GW_API int gw_blas_conv2d_grad_input(gw_blas *blas, const gw_conv2d *conv, const void *grad_y,
                                     const void *weight, void *grad_x);
GW_API int gw_blas_conv2d_grad_weight(gw_blas *blas, const gw_conv2d *conv, const void *x,
                                      const void *grad_y, void *grad_weight);

/* From now on, the calls of cblas_sgemm and cblas_dgemm by the loaded library `path` (NumPy's
 * compiled core) are products of `blas`; NULL: its own again.  One library at a time. `ret_n_slots`
 * tells how many places were changed: 0 if the library calls no such function by the dynamic
 * linker.  `blas` has to stay open, also afterwards until no thread can be inside a product. */
GW_API int gw_blas_reroute(const char *path, gw_blas *blas, int *ret_n_slots);

/* ---- how fast ---------------------------------------------------------------------------- */

/* Measure, in a child process, so that every library has the machine and its threads as
 * it would have them alone.  The shape of a product is m, n, k. */
typedef struct gw_blas_bench {
    size_t size_bytes; /* sizeof(gw_blas_bench) */
    const char *path;
    int n_threads; /* 0: the library's own choice */
    int n_repeats; /* at least 1; each is at least `least_s` long */
    double least_s;
    int is_conv;
    gw_gemm gemm;   /* dtype, m, n, k, transposed; the rest is not looked at */
    gw_conv2d conv; /* if is_conv */
} gw_blas_bench;

typedef struct gw_blas_speed {
    double best, median, worst; /* GFLOP/s */
    double error;               /* largest, as a share of the sum of magnitudes, against float64 */
    double tolerance;           /* what float32 or float64 may be off */
    int n_threads;              /* in force; 0: the library does not say */
} gw_blas_speed;

GW_API int gw_blas_measure(const gw_blas_bench *bench, gw_blas_speed *ret_speed);

/* GFLOP/s of this machine's best multiply-add instructions, in `n_threads` threads at once, in a
 * loop that touches no memory: nothing computes faster. */
GW_API int gw_peak_measure(gw_dtype dtype, int n_threads, double seconds, double *ret_gflops);

#ifdef __cplusplus
}
#endif
#endif
