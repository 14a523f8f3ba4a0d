/* child.h - what the library and its helper program, godwit-blas, say to each other.
 *
 * Strange libraries are loaded, and measured, in a process of their own: `godwit-blas`, which
 * reads a gwi_child_order from descriptor 3 and writes a gwi_child_answer to it (a socket).  Both
 * are of one build; `magic` and `size_bytes` refuse another's.
 *
 * If the child dies, the parent reads the end of the socket, and how it died from waitpid. */
#ifndef GWI_BACKEND_CHILD_H
#define GWI_BACKEND_CHILD_H

#include <godwit/backend.h>

#define GWI_CHILD_MAGIC UINT32_C(0x67776231)
#define GWI_CHILD_FD 3

enum { GWI_CHILD_PROBE, GWI_CHILD_MEASURE };

typedef struct gwi_child_order {
    uint32_t magic, size_bytes;
    int what; /* GWI_CHILD_PROBE ... */
    char path[1024];
    gw_blas_bench bench; /* its `path` means nothing: see above */
} gwi_child_order;

typedef struct gwi_child_answer {
    uint32_t magic, size_bytes;
    int err;
    char error[512]; /* the sentence, if err is below 0 */
    gw_blas_info info;
    gw_blas_speed speed;
} gwi_child_answer;

/* bench.c: what the child does for GWI_CHILD_MEASURE. */
int gwi_bench_run(gw_blas *blas, const gw_blas_bench *bench, gw_blas_speed *ret_speed);

#endif
