/* identify.c - asks a BLAS who it is. */
#include "backend/blas.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SET(field, ...) snprintf((field), sizeof(field), __VA_ARGS__)

/* The library's functions that answer with a text or a number. */
static const char *text_of(const gw_blas *blas, const char *name)
{
    const char *(*ask)(void) = NULL;

    *(void **)&ask = gwi_blas_symbol(blas, name);
    const char *text = ask != NULL ? ask() : NULL;
    return text != NULL ? text : "";
}

static int number_of(const gw_blas *blas, const char *name, int otherwise)
{
    int (*ask)(void) = NULL;

    *(void **)&ask = gwi_blas_symbol(blas, name);
    return ask != NULL ? ask() : otherwise;
}

static bool openblas(const gw_blas *blas, gw_blas_info *info)
{
    static const char *const kinds[] = {"serial", "pthread", "openmp"};

    if (gwi_blas_symbol(blas, "openblas_get_config") == NULL)
        return false;
    SET(info->vendor, "openblas");
    SET(info->config, "%s", text_of(blas, "openblas_get_config"));
    if (sscanf(info->config, "OpenBLAS %63s", info->version) != 1)
        info->version[0] = '\0';
    int kind = number_of(blas, "openblas_get_parallel", -1);
    SET(info->threading, "%s", kind >= 0 && kind < 3 ? kinds[kind] : "unknown");
    SET(info->kernel, "%s", text_of(blas, "openblas_get_corename"));
    info->n_threads = number_of(blas, "openblas_get_num_threads", 0);
    return true;
}

static bool blis(const gw_blas *blas, gw_blas_info *info)
{
    const char *(*name_of)(int) = NULL;

    if (gwi_blas_symbol(blas, "bli_info_get_version_str") == NULL)
        return false;
    SET(info->vendor, "blis");
    SET(info->version, "%s", text_of(blas, "bli_info_get_version_str"));
    SET(info->threading, "%s",
        number_of(blas, "bli_info_get_enable_openmp", 0)     ? "openmp"
        : number_of(blas, "bli_info_get_enable_pthreads", 0) ? "pthread"
                                                             : "serial");
    *(void **)&name_of = gwi_blas_symbol(blas, "bli_arch_string");
    int architecture = number_of(blas, "bli_arch_query_id", -1);
    if (name_of != NULL && architecture >= 0)
        SET(info->kernel, "%s", name_of(architecture));
    /* -1: one, unless BLIS_NUM_THREADS or the like says more. */
    int n = number_of(blas, "bli_thread_get_num_threads", -1);
    info->n_threads = n > 0 ? n : 1;
    return true;
}

static bool mkl(const gw_blas *blas, gw_blas_info *info)
{
    void (*version)(char *, int) = NULL;
    char text[256] = "";

    *(void **)&version = dlsym(blas->library, "MKL_Get_Version_String");
    if (version == NULL)
        return false;
    version(text, (int)sizeof text - 1);
    SET(info->vendor, "mkl");
    SET(info->config, "%s", text);
    char *at = strstr(text, "Version ");
    if (at == NULL || sscanf(at, "Version %63s", info->version) != 1)
        info->version[0] = '\0';
    char *cpu = strstr(text, "for Intel");
    if (strstr(text, "Intel(R) Architecture") != NULL || cpu != NULL)
        SET(info->kernel, "%s", "by dispatch");
    SET(info->threading, "%s", "unknown");
    info->n_threads = number_of(blas, "MKL_Get_Max_Threads", 0);
    return true;
}

/* ATLAS only prints: send standard output to a file in memory meanwhile. */
static bool atlas(const gw_blas *blas, gw_blas_info *info)
{
    void (*print)(void) = NULL;
    char text[8192] = "";

    *(void **)&print = dlsym(blas->library, "ATL_buildinfo");
    if (print == NULL && dlsym(blas->library, "ATL_sgemm") == NULL)
        return false;
    SET(info->vendor, "atlas");
    SET(info->threading, "serial");
    info->n_threads = 1;
    if (print == NULL)
        return true;
    fflush(stdout);
    int kept = dup(STDOUT_FILENO), memory = memfd_create("godwit-atlas", MFD_CLOEXEC);
    if (kept >= 0 && memory >= 0 && dup2(memory, STDOUT_FILENO) >= 0) {
        print();
        fflush(stdout);
        dup2(kept, STDOUT_FILENO);
        ssize_t n = pread(memory, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = '\0';
    }
    if (kept >= 0)
        close(kept);
    if (memory >= 0)
        close(memory);
    char *at = strstr(text, "ATLAS version ");
    if (at != NULL && sscanf(at, "ATLAS version %63[0-9.]", info->version) != 1)
        info->version[0] = '\0';
    at = strstr(text, "ARCHDEFS    :");
    if (at == NULL)
        at = strstr(text, "-DATL_OS_Linux");
    char *arch = at != NULL ? strstr(at, "-DATL_ARCH_") : NULL;
    if (arch != NULL)
        sscanf(arch, "-DATL_ARCH_%63[A-Za-z0-9_]", info->kernel);
    return true;
}

/* Whether the file holds `text`: for libraries that export BLAS's names and nothing of their own.
 */
static bool file_holds(const char *path, const char *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd >= 0 ? lseek(fd, 0, SEEK_END) : 0;
    void *bytes = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    bool holds = bytes != MAP_FAILED && memmem(bytes, (size_t)size, text, strlen(text)) != NULL;

    if (bytes != MAP_FAILED)
        munmap(bytes, (size_t)size);
    if (fd >= 0)
        close(fd);
    return holds;
}

static bool hidden(gw_blas_info *info)
{
    static const struct {
        const char *vendor, *text;
    } marks[] = {{"blis", "libblis"}, {"openblas", "OPENBLAS_NUM_THREADS"}};

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (file_holds(info->file, marks[i].text)) {
            SET(info->vendor, "%s", marks[i].vendor);
            SET(info->threading, "unknown");
            return true;
        }
    return false;
}

/* The reference from Netlib says nothing at all; its file's name has the version. */
static void reference(const gw_blas *blas, gw_blas_info *info)
{
    char real[4096];
    const char *file = realpath(info->file, real) != NULL ? real : info->file;
    const char *so = strstr(file, ".so.");

    SET(info->threading, "serial");
    info->n_threads = 1;
    bool known = dlsym(blas->library, "xerbla_") != NULL && dlsym(blas->library, "lsame_") != NULL;
    SET(info->vendor, "%s", known ? "reference" : "unknown");
    if (so != NULL)
        SET(info->version, "%s", so + 4);
    if (known)
        SET(info->config, "its version is the one in its file's name");
}

void gwi_blas_identify(const gw_blas *blas, gw_blas_info *ret_info)
{
    gw_blas_info info = {.size_bytes = sizeof info};
    Dl_info where;
    static const unsigned bits[2] = {GW_BLAS_SGEMM, GW_BLAS_DGEMM};

    SET(info.path, "%s", blas->path);
    SET(info.prefix, "%s", blas->prefix);
    SET(info.suffix, "%s", blas->suffix);
    for (int i = 0; i < 2; i++)
        if (blas->gemm[i] != NULL) {
            info.has |= bits[i];
            if (dladdr(blas->gemm[i], &where) != 0 && where.dli_fname != NULL)
                SET(info.file, "%s", where.dli_fname);
        }
    if (info.file[0] == '\0') /* a profiler stands between */
        SET(info.file, "%s", blas->path);
    if (gwi_blas_symbol(blas, "cblas_sgemm") != NULL)
        info.has |= GW_BLAS_CBLAS;
    if (!blas->by_cblas)
        info.has |= GW_BLAS_FORTRAN;
    info.int_bits = blas->int_bits;
    if (!openblas(blas, &info) && !blis(blas, &info) && !mkl(blas, &info) && !atlas(blas, &info) &&
        !hidden(&info))
        reference(blas, &info);
    *ret_info = info;
}
