/* blas.h - a BLAS library that is loaded: its functions, under one roof.
 *
 * Makers name the same function sgemm_, sgemm, SGEMM, sgemm_64_ or scipy_sgemm_64_, and
 * give it integers of 32 or 64 bits.  A gw_blas knows which; callers do not. */
#ifndef GWI_BACKEND_BLAS_H
#define GWI_BACKEND_BLAS_H

#include <godwit/backend.h>

#include <stdatomic.h>
#include <stdbool.h>

/* Set when opened, then constant, but for the counter: any thread may read it. */
struct gw_blas {
    void *library;   /* dlopen's; never closed, because threads may be inside */
    void *gemm[2];   /* of float32 and float64; NULL: not there */
    bool by_cblas;   /* they are cblas_sgemm, else Fortran's sgemm */
    int int_bits;    /* 32 or 64 */
    char prefix[16]; /* of the names */
    char suffix[16];
    char path[1024];
    _Atomic int64_t n_products; /* counted by whoever calls */
};

/* Look up one of the library's own functions, such as "openblas_get_config": under that name,
 * and with the prefixes and suffixes that makers add.  NULL: not there. */
void *gwi_blas_symbol(const gw_blas *blas, const char *name);

/* Fill in who made it, which version, how it computes.  Prints of the library go nowhere. */
void gwi_blas_identify(const gw_blas *blas, gw_blas_info *ret_info);

/* The check of gw_blas_gemm and its kin: 0 for float32, 1 for float64, else GW_ETYPE. */
int gwi_blas_real(gw_dtype dtype);

#endif
