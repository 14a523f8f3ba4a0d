/* file.c - whole memory from files and to files, each rank its rows.
 *
 * Before a row is read every rank has looked at all files, so what is wrong with one of them
 * changes nothing anywhere.  A file that is written has another name until it is complete. */
#include "base/error.h"
#include "comm/reduce.h"
#include "memory/memory.h"
#include "memory/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT_ONCE ((size_t)64 << 20)     /* bytes in one system call */
#define BUFFER_BYTES ((size_t)1 << 20) /* where rows do not lie close together */

static int ends_with_npy(const char *path)
{
    size_t n = strlen(path);

    return n >= 4 && strcmp(path + n - 4, ".npy") == 0;
}

static int format_of(const char *path, gw_file_format format, gw_file_format *ret_format)
{
    if (path == NULL || *path == '\0')
        return gwi_fail(GW_EINVAL, "a path is NULL or empty");
    if ((unsigned)format > GW_FILE_NPY)
        return gwi_fail(GW_EINVAL, "format is %d, which is none", (int)format);
    *ret_format = format != GW_FILE_BY_NAME ? format
                  : ends_with_npy(path)     ? GW_FILE_NPY
                                            : GW_FILE_RAW;
    return 0;
}

/* moving bytes */

static int read_all(int fd, const char *path, uint64_t at, unsigned char *to, size_t n)
{
    while (n > 0) {
        ssize_t now = pread(fd, to, n < AT_ONCE ? n : AT_ONCE, (off_t)at);
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            return gwi_fail_errno("reading '%s'", path);
        if (now == 0)
            return gwi_fail(GW_EINVAL, "'%s' became shorter while it was read", path);
        to += now;
        at += (uint64_t)now;
        n -= (size_t)now;
    }
    return 0;
}

static int write_all(int fd, const char *path, uint64_t at, const unsigned char *from, size_t n)
{
    while (n > 0) {
        ssize_t now = pwrite(fd, from, n < AT_ONCE ? n : AT_ONCE, (off_t)at);
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            return gwi_fail_errno("writing '%s'", path);
        from += now;
        at += (uint64_t)now;
        n -= (size_t)now;
    }
    return 0;
}

/* Our rows of a memory, from number `from` of them on: between a file and the place where they
 * lie, directly if they are dense there. */
static int move_rows(const gw_memory *memory, int64_t from, int64_t n, int fd, const char *path,
                     uint64_t at, int reads)
{
    const gwi_whole *w = memory->whole;
    size_t row_bytes = memory->row_bytes;
    unsigned char *rows = gw_memory_chunk(memory, w->rank), *buffer;
    int64_t most = row_bytes < BUFFER_BYTES ? (int64_t)(BUFFER_BYTES / row_bytes) : 1;
    int err = 0;

    rows += (size_t)from * w->pitch;
    if (w->pitch == row_bytes)
        return reads ? read_all(fd, path, at, rows, (size_t)n * row_bytes)
                     : write_all(fd, path, at, rows, (size_t)n * row_bytes);
    buffer = malloc((size_t)most * row_bytes);
    if (buffer == NULL)
        return gwi_fail(GW_ENOMEM, "a block of %lld rows", (long long)most);
    for (int64_t done = 0, now; done < n && err == 0; done += now) {
        now = n - done < most ? n - done : most;
        uint64_t there = at + (uint64_t)done * row_bytes;
        if (reads)
            err = read_all(fd, path, there, buffer, (size_t)now * row_bytes);
        for (int64_t i = 0; i < now && err == 0; i++) {
            unsigned char *row = rows + (size_t)(done + i) * w->pitch;
            if (reads)
                memcpy(row, buffer + (size_t)i * row_bytes, row_bytes);
            else
                memcpy(buffer + (size_t)i * row_bytes, row, row_bytes);
        }
        if (!reads && err == 0)
            err = write_all(fd, path, there, buffer, (size_t)now * row_bytes);
    }
    free(buffer);
    return err;
}

/* looking */

struct source {
    int fd;
    uint64_t at; /* where the rows begin */
    uint64_t n_bytes;
    gwi_npy npy; /* n_dims 0: raw */
};

static int read_header(struct source *s, const char *path, uint64_t file_bytes)
{
    unsigned char start[GWI_NPY_START], *header;
    size_t n = 0;
    int err;

    if (file_bytes >= sizeof start) {
        err = read_all(s->fd, path, 0, start, sizeof start);
        if (err < 0)
            return err;
        n = gwi_npy_length(start);
    }
    if (n == 0 || n > GWI_NPY_MAX || n > file_bytes)
        return gwi_fail(GW_EINVAL, "'%s': it is no .npy file, or was cut short", path);
    header = malloc(n);
    if (header == NULL)
        return gwi_fail(GW_ENOMEM, "a header of %zu bytes", n);
    err = read_all(s->fd, path, 0, header, n);
    if (err == 0 && (err = gwi_npy_read(header, n, &s->npy)) < 0) {
        char why[256];
        snprintf(why, sizeof why, "%s", gw_last_error());
        gwi_fail(err, "'%s': %s", path, why);
    }
    free(header);
    s->at = n;
    return err;
}

/* The entries that the header tells of must be there, and nothing else. */
static int check_header(const struct source *s, const char *path)
{
    uint64_t n = gwi_dtype_bytes(s->npy.dtype);

    for (int i = 0; i < s->npy.n_dims; i++)
        if (__builtin_mul_overflow(n, (uint64_t)s->npy.shape[i], &n))
            return gwi_fail(GW_EINVAL, "'%s': its shape is larger than any file", path);
    return n == s->n_bytes ? 0
                           : gwi_fail(GW_EINVAL,
                                      "'%s' has %llu bytes of entries, but its header tells of "
                                      "%llu: it is damaged",
                                      path, (unsigned long long)s->n_bytes, (unsigned long long)n);
}

static int open_source(const char *path, gw_file_format format, struct source *ret_source)
{
    struct source s = {.fd = -1};
    struct stat known;
    int err = format_of(path, format, &format);

    if (err < 0)
        return err;
    s.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s.fd < 0)
        return gwi_fail_errno("opening '%s'", path);
    if (fstat(s.fd, &known) < 0)
        err = gwi_fail_errno("looking at '%s'", path);
    else if (!S_ISREG(known.st_mode))
        err = gwi_fail(GW_EINVAL, "'%s' is no file", path);
    else if (format == GW_FILE_NPY)
        err = read_header(&s, path, (uint64_t)known.st_size);
    if (err == 0) {
        s.n_bytes = (uint64_t)known.st_size - s.at;
        err = format == GW_FILE_NPY ? check_header(&s, path) : 0;
    }
    if (err < 0) {
        close(s.fd);
        return err;
    }
    *ret_source = s;
    return 0;
}

int gw_file_look(const char *path, gw_file_format format, gw_file_info *ret_info)
{
    struct source s;

    if (ret_info->size_bytes < sizeof *ret_info)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; set it to sizeof(gw_file_info)",
                        ret_info->size_bytes);
    int err = open_source(path, format, &s);
    if (err < 0)
        return err;
    close(s.fd);
    *ret_info = (gw_file_info){.size_bytes = sizeof *ret_info,
                               .format = s.at > 0 ? GW_FILE_NPY : GW_FILE_RAW,
                               .n_bytes = s.n_bytes,
                               .dtype = s.npy.dtype,
                               .n_dims = s.npy.n_dims};
    memcpy(ret_info->shape, s.npy.shape, sizeof s.npy.shape);
    return 0;
}

/* loading */

static int fits(const gw_memory *memory, const struct source *s, const char *path)
{
    const gwi_whole *w = memory->whole;
    int same = s->npy.n_dims == memory->n_dims;

    if (s->at == 0) /* raw */
        return memory->row_bytes > 0 && s->n_bytes % memory->row_bytes == 0
                   ? 0
                   : gwi_fail(GW_EINVAL,
                              "'%s' has %llu bytes, which is no whole number of rows "
                              "of %zu bytes",
                              path, (unsigned long long)s->n_bytes, memory->row_bytes);
    if (s->npy.dtype != w->dtype)
        return gwi_fail(GW_EINVAL, "'%s' has entries of type %s, the memory has %s", path,
                        gwi_dtype_name(s->npy.dtype), gwi_dtype_name(w->dtype));
    for (int i = 1; i < memory->n_dims && same; i++)
        same = s->npy.shape[i] == memory->shape[i];
    return same ? 0
                : gwi_fail(GW_EINVAL,
                           "'%s' has rows of another shape than the memory, whose rows "
                           "have %zu entries in %d dimensions",
                           path, memory->row_entries, memory->n_dims - 1);
}

static int64_t rows_of(const gw_memory *memory, const struct source *s)
{
    return s->at > 0               ? s->npy.shape[0]
           : memory->row_bytes > 0 ? (int64_t)(s->n_bytes / memory->row_bytes)
                                   : 0;
}

static int open_sources(const gw_memory *memory, const char *const *paths, int n_paths,
                        gw_file_format format, struct source *sources, int *ret_n)
{
    int64_t n_rows = 0;
    int err = 0;

    for (int i = 0; i < n_paths && err == 0; i++) {
        err = open_source(paths[i], format, &sources[i]);
        if (err < 0)
            break;
        *ret_n = i + 1;
        err = fits(memory, &sources[i], paths[i]);
        if (err == 0)
            n_rows += rows_of(memory, &sources[i]);
    }
    if (err < 0 || n_rows == memory->shape[0])
        return err;
    return gwi_fail(GW_EINVAL,
                    n_paths == 1 ? "'%s' has %lld rows of %zu bytes, the memory has "
                                   "%lld"
                                 : "'%s' and those after it have %lld rows of %zu "
                                   "bytes, the memory has %lld",
                    paths[0], (long long)n_rows, memory->row_bytes, (long long)memory->shape[0]);
}

/* Read the part of a file that is ours; its rows are `first` and those that follow. */
static int load_source(const gw_memory *memory, const struct source *s, const char *path,
                       int64_t first)
{
    int64_t start, count, n = rows_of(memory, s);

    gw_memory_part(memory, memory->whole->rank, &start, &count);
    int64_t from = start > first ? start : first;
    int64_t to = start + count < first + n ? start + count : first + n;
    if (from >= to || memory->row_bytes == 0)
        return 0;
    return move_rows(memory, from - start, to - from, s->fd, path,
                     s->at + (uint64_t)(from - first) * memory->row_bytes, 1);
}

int gw_memory_load(gw_memory *memory, const char *const *paths, int n_paths, gw_file_format format)
{
    gw_comm *comm = memory->whole->comm;
    struct source *sources = calloc((size_t)(n_paths > 0 ? n_paths : 1), sizeof *sources);
    int64_t first = 0;
    int n = 0, err = 0;

    if (n_paths < 1 || paths == NULL)
        err = gwi_fail(GW_EINVAL, "no path was given");
    else if (sources == NULL)
        err = gwi_fail(GW_ENOMEM, "%d files", n_paths);
    else
        err = open_sources(memory, paths, n_paths, format, sources, &n);
    err = gwi_memory_agree(comm, err, "could not load the files, so nobody does");
    if (err == 0) {
        for (int i = 0; i < n && err == 0; i++) {
            err = load_source(memory, &sources[i], paths[i], first);
            first += rows_of(memory, &sources[i]);
        }
        err = gwi_memory_agree(comm, err, "could not read its rows");
    }
    for (int i = 0; i < n; i++)
        close(sources[i].fd);
    free(sources);
    return err;
}

/* storing */

struct target {
    char path[PATH_MAX];      /* when it is complete */
    char temporary[PATH_MAX]; /* until then */
    int fd;
    uint64_t at;
};

static int write_header(struct target *t, const gw_memory *memory, gw_file_format format,
                        int64_t n_rows)
{
    char header[64 + 10 + 24 * GW_MAX_DIMS + 64];
    int64_t shape[GW_MAX_DIMS];
    int n = 0, err;

    err = format_of(t->path, format, &format);
    if (err < 0 || format == GW_FILE_RAW)
        return err;
    memcpy(shape, memory->shape, (size_t)memory->n_dims * sizeof *shape);
    shape[0] = n_rows;
    n = gwi_npy_write(memory->whole->dtype, memory->n_dims, shape, header, sizeof header);
    if (n < 0)
        return n;
    t->at = (uint64_t)n;
    return t->fd < 0 ? 0
                     : write_all(t->fd, t->temporary, 0, (const unsigned char *)header, (size_t)n);
}

static int name_target(struct target *t, const char *path, int64_t number)
{
    int n = snprintf(t->path, sizeof t->path, "%s", path == NULL ? "" : path);
    int m = snprintf(t->temporary, sizeof t->temporary, "%s.incomplete-%llx", t->path,
                     (unsigned long long)number);

    t->fd = -1;
    if (n <= 0)
        return gwi_fail(GW_EINVAL, "a path is NULL or empty");
    return n < (int)sizeof t->path && m < (int)sizeof t->temporary
               ? 0
               : gwi_fail(GW_EINVAL, "the path '%.60s...' is too long", t->path);
}

static int open_target(struct target *t, int flags)
{
    t->fd = open(t->temporary, O_WRONLY | O_CLOEXEC | flags, 0666);
    return t->fd >= 0 ? 0 : gwi_fail_errno("making '%s'", t->path);
}

/* Make the file of `n_rows` with its header. */
static int make_target(struct target *t, const gw_memory *memory, gw_file_format format,
                       int64_t n_rows)
{
    int err = open_target(t, O_CREAT | O_TRUNC);

    if (err == 0)
        err = write_header(t, memory, format, n_rows);
    if (err == 0 && ftruncate(t->fd, (off_t)(t->at + (uint64_t)n_rows * memory->row_bytes)) < 0)
        err = gwi_fail_errno("making '%s' of %lld rows", t->path, (long long)n_rows);
    return err;
}

static int store_rows(const gw_memory *memory, struct target *t, int64_t first)
{
    int64_t start, count;

    gw_memory_part(memory, memory->whole->rank, &start, &count);
    if (count == 0 || memory->row_bytes == 0)
        return 0;
    return move_rows(memory, 0, count, t->fd, t->temporary,
                     t->at + (uint64_t)(start - first) * memory->row_bytes, 0);
}

static int close_target(struct target *t, int err)
{
    if (t->fd >= 0 && close(t->fd) < 0 && err == 0)
        err = gwi_fail_errno("writing '%s'", t->path);
    t->fd = -1;
    return err;
}

/* Give a complete file its name; or, after a failure, remove what there is of it. */
static int end_target(struct target *t, int err)
{
    if (err == 0 && rename(t->temporary, t->path) < 0)
        err = gwi_fail_errno("naming '%s'", t->path);
    if (err < 0 && t->temporary[0] != '\0') {
        int was = errno;
        unlink(t->temporary);
        errno = was;
    }
    return err;
}

int gw_memory_store(gw_memory *memory, const char *path, gw_file_format format)
{
    const gwi_whole *w = memory->whole;
    int64_t number = getpid(), n_rows = memory->shape[0];
    struct target t = {.fd = -1};
    int leads = w->rank == 0, err;

    err = gw_comm_bcast(w->comm, &number, 1, GW_I64, 0);
    if (err < 0)
        return err;
    err = name_target(&t, path, number);
    if (err == 0 && leads)
        err = make_target(&t, memory, format, n_rows);
    else if (err == 0)
        err = write_header(&t, memory, format, n_rows); /* only finds out where rows begin */
    err = gwi_memory_agree(w->comm, err, "could not store the memory");
    if (err == 0) {
        if (!leads)
            err = open_target(&t, 0);
        if (err == 0)
            err = store_rows(memory, &t, 0);
        err = close_target(&t, err);
        err = gwi_memory_agree(w->comm, err, "could not store its rows");
    }
    close_target(&t, 0);
    if (leads)
        err = end_target(&t, err);
    return gwi_memory_agree(w->comm, err, "could not store the memory");
}

int gw_memory_part_path(const char *path, int rank, int size, char *ret_path, size_t room)
{
    int stem = path == NULL ? 0 : (int)strlen(path) - 4 * ends_with_npy(path);
    int n = path == NULL ? -1
                         : snprintf(ret_path, room, "%.*s.part-%d-of-%d%s", stem, path, rank, size,
                                    path + stem);

    return n >= 0 && (size_t)n < room ? 0
                                      : gwi_fail(GW_EINVAL,
                                                 "the path is NULL or has more than "
                                                 "%zu characters",
                                                 room);
}

int gw_memory_store_parts(gw_memory *memory, const char *path, gw_file_format format)
{
    const gwi_whole *w = memory->whole;
    char part[PATH_MAX];
    struct target t = {.fd = -1};
    int64_t start, count;

    gw_memory_part(memory, w->rank, &start, &count);
    int err = gw_memory_part_path(path, w->rank, w->size, part, sizeof part);
    if (err == 0)
        err = name_target(&t, part, getpid());
    if (err == 0)
        err = make_target(&t, memory, format, count);
    if (err == 0)
        err = store_rows(memory, &t, start);
    err = close_target(&t, err);
    err = gwi_memory_agree(w->comm, err, "could not store its part");
    err = end_target(&t, err);
    return gwi_memory_agree(w->comm, err, "could not store its part");
}
