/* checkpoint.c - checkpoints as a single process sees them, and how ranks agree about them. */
#include "params/checkpoint.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/thread.h"
#include "params/part.h"
#include "params/shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS (100 * GWI_MS)
#define SENTENCE 1000

void *gwi_checkpoint_buffer(const gwi_geometry *g, size_t *ret_bytes)
{
    size_t n = GWI_CHECKPOINT_BATCH;
    void *buffer = NULL;

    for (uint32_t c = 0; c < g->n_classes; c++)
        n = g->classes[c].row_bytes > n ? g->classes[c].row_bytes : n;
    if (posix_memalign(&buffer, GWI_PAGE, n) != 0) {
        gwi_fail(GW_ENOMEM, "%zu bytes to save or load with", n);
        return NULL;
    }
    *ret_bytes = n;
    return buffer;
}

/* agreeing */

/* What a rank says of its part. */
struct statement {
    int32_t err;
    char sentence[SENTENCE];
};

/* Somebody failed: everybody hears of the first one's reason. */
static int tell_reason(gw_comm *comm, const struct statement *mine)
{
    int size = gw_comm_size(comm);
    struct statement *all = calloc((size_t)size, sizeof *all);

    if (all == NULL)
        return gwi_fail(GW_ENOMEM, "the statements of %d ranks", size);
    int err = gw_comm_allgather(comm, mine, all, sizeof *mine, GW_U8);
    if (mine->err < 0)
        err = gwi_fail(mine->err, "%s", mine->sentence);
    for (int r = 0; r < size && err == 0; r++) {
        all[r].sentence[SENTENCE - 1] = 0;
        if (all[r].err < 0)
            err = gwi_fail(all[r].err, "rank %d: %s", gw_comm_world_rank(comm, r), all[r].sentence);
    }
    free(all);
    return err;
}

int gwi_checkpoint_agree(gw_comm *comm, int err)
{
    struct statement mine = {.err = err};
    int32_t worst = 0;

    if (err < 0)
        snprintf(mine.sentence, sizeof mine.sentence, "%s", gw_last_error());
    int wait_err = gw_comm_allreduce(comm, &mine.err, &worst, 1, GW_I32, GW_MIN);
    if (wait_err == 0 && worst < 0)
        return tell_reason(comm, &mine);
    return err < 0 ? gwi_fail(err, "%s", mine.sentence) : wait_err;
}

int gwi_checkpoint_agree_on(gw_comm *comm, const char *call, const char *dir, const char *meta,
                            int refused)
{
    int64_t mine[3] = {refused == 0, 0, 0};
    int size = gw_comm_size(comm), err;

    if (refused == 0) {
        mine[1] = (int64_t)gwi_hash_bytes(dir, strlen(dir), 1);
        mine[2] = (int64_t)gwi_hash_bytes(meta, strlen(meta), 2);
    }
    int64_t *all = calloc((size_t)size, sizeof mine);
    if (all == NULL)
        return gwi_fail(GW_ENOMEM, "the arguments of %d ranks", size);
    err = gw_comm_allgather(comm, mine, all, 3, GW_I64);
    if (refused < 0)
        err = refused; /* its sentence is still there */
    for (int r = 0; r < size && err == 0; r++) {
        int rank = gw_comm_world_rank(comm, r);
        if (!all[3 * r])
            err = gwi_fail(GW_EDISAGREE, "rank %d was refused its arguments, so nobody %ss", rank,
                           call);
        else if (all[3 * r + 1] != mine[1])
            err = gwi_fail(GW_EDISAGREE, "%s: dir is '%s' here and another on rank %d", call, dir,
                           rank);
        else if (all[3 * r + 2] != mine[2])
            err = gwi_fail(GW_EDISAGREE, "%s: meta is not the same here and on rank %d", call,
                           rank);
    }
    free(all);
    return err;
}

int gwi_checkpoint_check_dir(const char *dir)
{
    if (dir == NULL || dir[0] == 0)
        return gwi_fail(GW_EINVAL, "dir is empty; give the name of a directory");
    if (strlen(dir) > PATH_MAX - 128)
        return gwi_fail(GW_EINVAL, "dir has %zu characters; a path may have %d", strlen(dir),
                        PATH_MAX - 128);
    return 0;
}

int gwi_checkpoint_sync(gw_worker *clerk, gw_comm *comm)
{
    int err = gwi_checkpoint_agree(comm, gw_worker_wait_sync(clerk));

    return err < 0 || clerk->errands == NULL
               ? err
               : gwi_checkpoint_agree(comm, gw_worker_wait_sync(clerk));
}

int gwi_checkpoint_look(int64_t *next_look_ns, const char *call)
{
    int64_t now = gwi_coarse_ns();

    if (now < *next_look_ns)
        return 0;
    *next_look_ns = now + LOOK_NS;
    return gwi_interrupted() ? gwi_fail(GW_EINTR, "%s was interrupted by a signal", call) : 0;
}

int gwi_checkpoint_pread(int fd, const char *path, void *to, size_t n_bytes, uint64_t at)
{
    for (size_t done = 0; done < n_bytes;) {
        ssize_t got = pread(fd, (char *)to + done, n_bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return gwi_fail_file("read", path);
        if (got == 0)
            return gwi_fail(GW_EINVAL, "%s: it is truncated at byte %llu", path,
                            (unsigned long long)(at + done));
        done += (size_t)got;
    }
    return 0;
}

/* a checkpoint that is looked at */

int gw_checkpoint_open(const char *dir, gw_checkpoint **ret_checkpoint)
{
    int err = gwi_checkpoint_check_dir(dir);
    if (err < 0)
        return err;
    gw_checkpoint *c = calloc(1, sizeof *c);
    if (c == NULL || (c->dir = strdup(dir)) == NULL) {
        free(c);
        return gwi_fail(GW_ENOMEM, "the checkpoint in '%s'", dir);
    }
    err = gwi_manifest_read(dir, &c->manifest, &c->text, NULL);
    if (err < 0) {
        gw_checkpoint_close(c);
        return err;
    }
    *ret_checkpoint = c;
    return 0;
}

void gw_checkpoint_close(gw_checkpoint *c)
{
    if (c == NULL)
        return;
    gwi_manifest_fini(&c->manifest);
    free(c->text);
    free(c->dir);
    free(c);
}

const char *gw_checkpoint_text(const gw_checkpoint *c)
{
    return c->text;
}

const char *gw_checkpoint_meta(const gw_checkpoint *c)
{
    return c->manifest.meta;
}

/* Read it from beginning to end. */
static int check_sum(int fd, const char *path, const gwi_manifest_part *entry)
{
    char *buffer = malloc(GWI_CHECKPOINT_BATCH);
    uint32_t crc = 0;
    int64_t next_look_ns = 0;
    int err = buffer == NULL ? gwi_fail(GW_ENOMEM, "reading %s", path) : 0;

    for (uint64_t at = 0, total = (uint64_t)entry->n_bytes; at < total && err == 0;) {
        size_t n = total - at < GWI_CHECKPOINT_BATCH ? (size_t)(total - at) : GWI_CHECKPOINT_BATCH;
        err = gwi_checkpoint_pread(fd, path, buffer, n, at);
        if (err == 0) {
            crc = gwi_crc32c(crc, buffer, n);
            err = gwi_checkpoint_look(&next_look_ns, "the check");
        }
        at += n;
    }
    free(buffer);
    if (err == 0 && crc != entry->crc)
        err = gwi_fail(GW_EINVAL, "%s: it is damaged: its checksum is %08x and should be %08x",
                       path, (unsigned)crc, (unsigned)entry->crc);
    return err;
}

int gw_checkpoint_check(const gw_checkpoint *c, int part)
{
    char path[PATH_MAX], name[96];

    if (part < 0 || (size_t)part >= c->manifest.n_parts)
        return gwi_fail(GW_ERANGE, "part is %d; there are %zu", part, c->manifest.n_parts);
    const gwi_manifest_part *entry = &c->manifest.parts[part];
    gwi_part_file file = {0};
    gwi_manifest_part_name(&c->manifest, entry->rank, name, sizeof name);
    snprintf(path, sizeof path, "%s/%s", c->dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return gwi_fail_file("read", path);
    int err = gwi_part_read(fd, path, (uint64_t)entry->n_bytes, c->manifest.save, &file);
    if (err == 0)
        err = check_sum(fd, path, entry);
    gwi_part_fini(&file);
    close(fd);
    return err;
}
