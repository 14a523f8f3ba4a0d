/* find.c - looks for files that are BLAS libraries by their names. */
#include "base/error.h"

#include <godwit/backend.h>

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where Linux distributions, people and package managers put libraries. */
static const char *const system_dirs[] = {
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/opt",
};

typedef struct search {
    int (*found)(const char *path, void *arg);
    void *arg;
    char **seen; /* real paths; owned */
    size_t n_seen, room;
} search;

static int looks_like_blas(const char *name)
{
    static const char *const starts[] = {
        "libblas",           "libopenblas",  "libblis",  "libcblas",
        "libf77blas",        "libmkl_rt",    "libatlas", "libsatlas",
        "libtatlas",         "libflexiblas", "libarmpl", "libnvpl_blas",
        "libscipy_openblas", "libgslcblas",  "libaocl",  "libtorch_cpu.so"};
    const char *so = strstr(name, ".so");

    if (so == NULL || (so[3] != '\0' && so[3] != '.'))
        return 0;
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return 1;
    return 0;
}

/* 1 if the file was not seen before. */
static int remember(search *s, const char *real)
{
    for (size_t i = 0; i < s->n_seen; i++)
        if (strcmp(s->seen[i], real) == 0)
            return 0;
    if (s->n_seen == s->room) {
        size_t room = s->room == 0 ? 64 : 2 * s->room;
        char **more = realloc(s->seen, room * sizeof *more);
        if (more == NULL)
            return gwi_fail(GW_ENOMEM, "the list of libraries");
        s->seen = more;
        s->room = room;
    }
    s->seen[s->n_seen] = strdup(real);
    if (s->seen[s->n_seen] == NULL)
        return gwi_fail(GW_ENOMEM, "the list of libraries");
    s->n_seen++;
    return 1;
}

static int offer(search *s, const char *path)
{
    char real[PATH_MAX];

    if (realpath(path, real) == NULL)
        return 0; /* a link that leads nowhere */
    int fresh = remember(s, real);
    return fresh == 1 ? s->found(real, s->arg) : fresh;
}

/* Directories below that may hold some: alternatives of a distribution, libraries of
 * Python packages (numpy.libs, torch/lib), and lib of whatever is in /opt. */
static int worth_entering(const char *name)
{
    static const char *const starts[] = {"openblas", "blis", "atlas",    "blas",
                                         "lapack",   "mkl",  "flexiblas"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(name, starts[i], strlen(starts[i])) == 0)
            return 1;
    return strcmp(name, "lib") == 0 || strcmp(name, "lib64") == 0 || strcmp(name, "torch") == 0 ||
           strcmp(name, ".libs") == 0 || strcmp(name, "numpy") == 0 || strcmp(name, "scipy") == 0 ||
           (n > 5 && strcmp(name + n - 5, ".libs") == 0);
}

static int is_dir(const char *path, const struct dirent *entry)
{
    struct stat st;

    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
        return entry->d_type == DT_DIR;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int look_into(search *s, const char *dir, int depth)
{
    DIR *open = opendir(dir);
    struct dirent *entry;
    char path[PATH_MAX];
    int err = 0, everything = strcmp(dir, "/opt") == 0;

    if (open == NULL)
        return 0; /* not there, or not for us */
    while (err == 0 && (entry = readdir(open)) != NULL) {
        if (entry->d_name[0] == '.' && strcmp(entry->d_name, ".libs") != 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) >= (int)sizeof path)
            continue;
        if (looks_like_blas(entry->d_name))
            err = offer(s, path);
        else if (depth > 0 && (everything || worth_entering(entry->d_name)) && is_dir(path, entry))
            err = look_into(s, path, depth - 1);
    }
    closedir(open);
    return err;
}

static int look_into_list(search *s, const char *list)
{
    char dir[PATH_MAX];
    int err = 0;

    while (list != NULL && *list != '\0' && err == 0) {
        size_t n = strcspn(list, ":");
        if (n > 0 && n < sizeof dir) {
            memcpy(dir, list, n);
            dir[n] = '\0';
            err = look_into(s, dir, 0);
        }
        list += n + (list[n] == ':');
    }
    return err;
}

int gw_blas_find(const char *const *more, int (*found)(const char *path, void *arg), void *arg)
{
    search s = {.found = found, .arg = arg};
    int err = look_into_list(&s, getenv("LD_LIBRARY_PATH"));

    for (size_t i = 0; err == 0 && i < sizeof system_dirs / sizeof system_dirs[0]; i++)
        err = look_into(&s, system_dirs[i], 2);
    for (; err == 0 && more != NULL && *more != NULL; more++)
        err = look_into(&s, *more, 2);
    for (size_t i = 0; i < s.n_seen; i++)
        free(s.seen[i]);
    free(s.seen);
    return err;
}
