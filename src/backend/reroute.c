/* reroute.c - points a loaded library's calls of cblas_sgemm and cblas_dgemm to a gw_blas.
 *
 * A library reaches functions of others by slots (GOT) that the dynamic linker has filled.  Those
 * whose relocation names cblas_sgemm or cblas_dgemm, with whatever prefix and suffix, are given the
 * address of a function here, and their own back afterwards.  A slot is one aligned word, so that a
 * thread that calls meanwhile finds the old or the new. */
#include "backend/blas.h"
#include "base/error.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_SLOTS 16

/* Under `lock`, but for `target`, which the functions below read while other threads change it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    _Atomic uintptr_t *at;
    uintptr_t old;
} slots[MOST_SLOTS];
static int n_slots;
static char rerouted[1024]; /* the library; "": none */
static _Atomic(gw_blas *) target;

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111 };

static void product(gw_dtype dtype, int order, int ta, int tb, gw_gemm g)
{
    gw_blas *blas = atomic_load_explicit(&target, memory_order_acquire);

    g.dtype = dtype;
    g.a_transposed = ta != NO_TRANSPOSE;
    g.b_transposed = tb != NO_TRANSPOSE;
    if (order != ROW_MAJOR) { /* by columns: the transposed product by rows */
        gw_gemm turned = g;
        turned.a_transposed = g.b_transposed, turned.b_transposed = g.a_transposed;
        turned.a = g.b, turned.b = g.a, turned.lda = g.ldb, turned.ldb = g.lda;
        turned.m = g.n, turned.n = g.m;
        g = turned;
    }
    if (blas != NULL)
        gw_blas_gemm(blas, &g); /* refuses what the caller's own BLAS would have refused */
}

#define DEFINE_FRONT(NAME, REAL, INT, DTYPE)                                                    \
    static void NAME(int order, int ta, int tb, INT m, INT n, INT k, REAL alpha, const REAL *a, \
                     INT lda, const REAL *b, INT ldb, REAL beta, REAL *c, INT ldc)              \
    {                                                                                           \
        product(DTYPE, order, ta, tb,                                                           \
                (gw_gemm){.m = m,                                                               \
                          .n = n,                                                               \
                          .k = k,                                                               \
                          .alpha = alpha,                                                       \
                          .beta = beta,                                                         \
                          .a = a,                                                               \
                          .b = b,                                                               \
                          .c = c,                                                               \
                          .lda = lda,                                                           \
                          .ldb = ldb,                                                           \
                          .ldc = ldc});                                                         \
    }
DEFINE_FRONT(sgemm_i32, float, int32_t, GW_F32)
DEFINE_FRONT(dgemm_i32, double, int32_t, GW_F64)
DEFINE_FRONT(sgemm_i64, float, int64_t, GW_F32)
DEFINE_FRONT(dgemm_i64, double, int64_t, GW_F64)

/* The function for a slot of that name, or 0.  Names with 64 in their suffix have integers of 64
 * bits. */
static uintptr_t front_for(const char *name)
{
    const char *at = strstr(name, "cblas_");

    if (at == NULL)
        return 0;
    at += 6;
    if ((at[0] != 's' && at[0] != 'd') || strncmp(at + 1, "gemm", 4) != 0)
        return 0;
    const char *rest = at + 5;
    if (strcmp(rest, "") == 0 || strcmp(rest, "_") == 0)
        return at[0] == 's' ? (uintptr_t)sgemm_i32 : (uintptr_t)dgemm_i32;
    if (strcmp(rest, "64_") == 0 || strcmp(rest, "_64_") == 0 || strcmp(rest, "_64") == 0)
        return at[0] == 's' ? (uintptr_t)sgemm_i64 : (uintptr_t)dgemm_i64;
    return 0; /* gemm_batch and other things */
}

static int write_slot(_Atomic uintptr_t *slot, uintptr_t value)
{
    uintptr_t page = (uintptr_t)slot & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);

    /* Linkers protect slots that are filled at the start (RELRO).  It stays writable: what else is
     * on the page, and how it was, is not ours to know. */
    if (mprotect((void *)page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE) < 0)
        return gwi_fail_errno("the slots of a library cannot be written");
    atomic_store_explicit(slot, value, memory_order_release);
    return 0;
}

static void look_through(const struct link_map *map, const ElfW(Rela) * rela, size_t bytes,
                         const ElfW(Sym) * symbols, const char *strings)
{
    for (size_t i = 0; rela != NULL && i < bytes / sizeof *rela && n_slots < MOST_SLOTS; i++) {
        const char *name = strings + symbols[ELF64_R_SYM(rela[i].r_info)].st_name;
        if (front_for(name) == 0)
            continue;
        slots[n_slots].at = (_Atomic uintptr_t *)(map->l_addr + rela[i].r_offset);
        slots[n_slots].old = atomic_load_explicit(slots[n_slots].at, memory_order_acquire);
        if (write_slot(slots[n_slots].at, front_for(name)) == 0)
            n_slots++;
    }
}

static int install(const char *path)
{
    struct link_map *map = NULL;
    void *library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);

    if (library == NULL || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0)
        return gwi_fail(GW_ESTATE, "the library '%s' is not loaded", path);
    const ElfW(Rela) *plt = NULL, *rest = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t plt_bytes = 0, rest_bytes = 0;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        switch (d->d_tag) {
        case DT_JMPREL:
            plt = (const void *)d->d_un.d_ptr;
            break;
        case DT_PLTRELSZ:
            plt_bytes = d->d_un.d_val;
            break;
        case DT_RELA:
            rest = (const void *)d->d_un.d_ptr;
            break;
        case DT_RELASZ:
            rest_bytes = d->d_un.d_val;
            break;
        case DT_SYMTAB:
            symbols = (const void *)d->d_un.d_ptr;
            break;
        case DT_STRTAB:
            strings = (const void *)d->d_un.d_ptr;
            break;
        default:
            break;
        }
    }
    if (symbols != NULL && strings != NULL) {
        look_through(map, plt, plt_bytes, symbols, strings);
        look_through(map, rest, rest_bytes, symbols, strings);
    }
    dlclose(library); /* it was loaded before and stays so */
    return 0;
}

int gw_blas_reroute(const char *path, gw_blas *blas, int *ret_n_slots)
{
    int err = 0;

    if (path == NULL || strlen(path) >= sizeof rerouted)
        return gwi_fail(GW_EINVAL, "no library is given, or its path is too long");
    pthread_mutex_lock(&lock);
    if (blas != NULL && rerouted[0] == '\0') {
        atomic_store_explicit(&target, blas, memory_order_release);
        err = install(path);
        if (err == 0)
            strcpy(rerouted, path);
    } else if (blas != NULL && strcmp(rerouted, path) != 0) {
        err = gwi_fail(GW_ESTATE,
                       "the calls of '%s' are rerouted already, and only one library's can be",
                       rerouted);
    } else if (blas != NULL) {
        atomic_store_explicit(&target, blas, memory_order_release);
    } else {
        while (n_slots > 0) {
            n_slots--;
            atomic_store_explicit(slots[n_slots].at, slots[n_slots].old, memory_order_release);
        }
        rerouted[0] = '\0';
        /* `target` stays: a call that has passed its slot still needs it. */
    }
    *ret_n_slots = n_slots;
    pthread_mutex_unlock(&lock);
    return err;
}
