/* save.c - writing a checkpoint: every process its share, at the same time.  See checkpoint.h
 * for who writes what, and shelf.h for how it becomes the checkpoint. */
#include "base/crc32c.h"
#include "base/error.h"
#include "base/json.h"
#include "params/checkpoint.h"
#include "params/clerk.h"
#include "params/part.h"
#include "params/shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLAIMS ((int64_t)1 << 20)        /* keys that are decided about at a time */
#define FLUSH_BYTES ((uint64_t)16 << 20) /* written before the disk is set to work */
#define LEAST_MEETINGS 3                 /* of those who write */
#define MEETING_BYTES ((int64_t)1 << 30) /* between two, for who has most */

/* The keys that this process writes, by length class: as a list, or as a range. */
struct share {
    int64_t *keys; /* owned; NULL: from, from + 1, ... */
    int64_t from;
    size_t n, capacity;
};

/* shares */

/* The first key of local process `l` of `n`, so that each has about as many bytes. */
static int64_t range_begin(const gwi_geometry *g, int l, int n)
{
    uint64_t total = 0, so_far = 0;
    int64_t key = 0;

    if (g->class_of == NULL || l == n)
        return g->n_keys * l / n; /* there are less than 2^32 keys */
    for (uint32_t c = 0; c < g->n_classes; c++)
        total += g->classes[c].n_keys * g->classes[c].row_bytes;
    for (uint64_t before = total / (unsigned)n * (unsigned)l; so_far < before; key++)
        so_far += gwi_geometry_class(g, key)->row_bytes;
    return key;
}

static int add_key(struct share *share, int64_t key)
{
    if (share->n == share->capacity) {
        size_t capacity = share->capacity == 0 ? 1024 : 2 * share->capacity;
        int64_t *grown = realloc(share->keys, capacity * sizeof *grown);
        if (grown == NULL)
            return gwi_fail(GW_ENOMEM, "a list of %zu keys", capacity);
        share->keys = grown;
        share->capacity = capacity;
    }
    share->keys[share->n++] = key;
    return 0;
}

/* What this process says of keys begin to end - 1. */
static void claim(const gw_params *params, int64_t begin, int64_t end, int64_t range[2],
                  int32_t *ret_claims)
{
    const gwi_place *place = &params->world->fabric->place;

    for (int64_t key = begin; key < end; key++) {
        int32_t claimed = INT32_MAX;
        if (key >= range[0] && key < range[1]) {
            if (gwi_word_state(gwi_word_look(&params->store.words[key])) == GWI_OWNED)
                claimed = place->rank;
            else if (gwi_spread_home(&params->spread, key) == place->node)
                claimed = place->size + place->rank;
        }
        ret_claims[key - begin] = claimed;
    }
}

/* With several nodes: decide about all keys, together. */
static int decide(const gw_params *params, gw_comm *comm, int64_t range[2], struct share *share)
{
    const gwi_place *place = &params->world->fabric->place;
    int64_t n_keys = params->geometry.n_keys, most = n_keys < CLAIMS ? n_keys : CLAIMS;
    int32_t *claims = malloc(2 * (size_t)most * sizeof *claims);
    int err = gwi_checkpoint_agree(comm, claims == NULL ? gwi_fail(GW_ENOMEM, "claims") : 0);

    for (int64_t begin = 0, end; begin < n_keys && err == 0; begin = end) {
        int32_t *decided = claims + most;
        end = n_keys - begin < most ? n_keys : begin + most;
        claim(params, begin, end, range, claims);
        err = gw_comm_allreduce(comm, claims, decided, (size_t)(end - begin), GW_I32, GW_MIN);
        for (int64_t key = begin; key < end && err == 0; key++)
            if (decided[key - begin] % place->size == place->rank)
                err = add_key(share, key);
        /* A rank that failed must not leave the others in the next reduction. */
        err = gwi_checkpoint_agree(comm, err);
    }
    free(claims);
    return err;
}

/* Count the keys of each class, and put them in the order of classes. */
static int sort_by_class(const gwi_geometry *g, struct share *share, gwi_part_file *part)
{
    size_t *at = calloc((size_t)g->n_classes + 1, sizeof *at);
    int64_t *sorted = malloc((share->n + 1) * sizeof *sorted);

    part->classes = calloc(g->n_classes, sizeof *part->classes);
    if (at == NULL || sorted == NULL || part->classes == NULL) {
        free(at);
        free(sorted);
        return gwi_fail(GW_ENOMEM, "sorting %zu keys", share->n);
    }
    for (size_t i = 0; i < share->n; i++)
        at[gwi_geometry_class(g, share->keys[i]) - g->classes + 1]++;
    for (uint32_t c = 0; c < g->n_classes; c++) {
        if (at[c + 1] > 0)
            part->classes[part->n_classes++] = (gwi_part_class){.length = g->classes[c].length,
                                                                .n_keys = at[c + 1]};
        at[c + 1] += at[c];
    }
    for (size_t i = 0; i < share->n; i++)
        sorted[at[gwi_geometry_class(g, share->keys[i]) - g->classes]++] = share->keys[i];
    free(at);
    free(share->keys);
    share->keys = sorted;
    return 0;
}

static int find_share(const gw_params *params, gw_comm *comm, struct share *share,
                      gwi_part_file *part)
{
    const gwi_geometry *g = &params->geometry;
    const gwi_place *place = &params->world->fabric->place;
    int64_t range[2] = {range_begin(g, place->local_rank, place->local_size),
                        range_begin(g, place->local_rank + 1, place->local_size)};
    int err = 0;

    if (place->nodes > 1)
        err = decide(params, comm, range, share);
    else if (g->class_of == NULL)
        *share = (struct share){.from = range[0], .n = (size_t)(range[1] - range[0])};
    else
        for (int64_t key = range[0]; key < range[1] && err == 0; key++)
            err = add_key(share, key);
    if (err == 0 && g->class_of != NULL)
        return sort_by_class(g, share, part);
    if (err == 0 && (part->classes = calloc(1, sizeof *part->classes)) == NULL)
        return gwi_fail(GW_ENOMEM, "a part");
    if (err == 0) {
        part->n_classes = 1;
        part->classes[0] = (gwi_part_class){.length = g->classes[0].length, .n_keys = share->n};
    }
    return err;
}

/* writing */

/* While they write, the ranks meet a few times, after equal shares of what each has to write.  So
 * nobody waits for others for long, and one that cannot go on stops them all. */
struct writer {
    int fd;
    const char *path;
    uint64_t n_bytes, n_flushed;
    uint32_t crc;
    int64_t next_look_ns;
    gw_comm *comm;
    uint64_t total; /* bytes to be written */
    int n_meetings, n_met;
    int all_know; /* an error came from a meeting */
};

static int keep_in_step(struct writer *w)
{
    uint64_t between = w->total / (unsigned)(w->n_meetings + 1);
    int err = 0;

    while (err == 0 && w->n_met < w->n_meetings &&
           w->n_bytes >= between * (unsigned)(w->n_met + 1)) {
        w->n_met++;
        err = gwi_checkpoint_agree(w->comm, 0);
        w->all_know = err < 0;
    }
    return err;
}

static int put(struct writer *w, const void *bytes, size_t n_bytes)
{
    w->crc = gwi_crc32c(w->crc, bytes, n_bytes);
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = write(w->fd, (const char *)bytes + done, n_bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gwi_fail_file("write", w->path);
        done += (size_t)n;
    }
    w->n_bytes += n_bytes;
    if (w->n_bytes - w->n_flushed >= FLUSH_BYTES) {
        /* The disk shall not wait until all is written.  It is a wish: fsync() is what counts. */
        sync_file_range(w->fd, (off_t)w->n_flushed, (off_t)(w->n_bytes - w->n_flushed),
                        SYNC_FILE_RANGE_WRITE);
        w->n_flushed = w->n_bytes;
    }
    int err = gwi_checkpoint_look(&w->next_look_ns, "save");
    return err < 0 ? err : keep_in_step(w);
}

/* Keys i to i + n - 1 of the share: in the list, or in `room`. */
static const int64_t *keys_at(const struct share *share, size_t i, size_t n, int64_t *room)
{
    if (share->keys != NULL)
        return share->keys + i;
    for (size_t k = 0; k < n; k++)
        room[k] = share->from + (int64_t)(i + k);
    return room;
}

struct buffers {
    int64_t *keys;
    void *values;
    size_t n_bytes; /* of each */
};

static int put_keys(struct writer *w, const struct share *share, const struct buffers *b)
{
    size_t most = GWI_CHECKPOINT_BATCH / sizeof(int64_t);
    int err = 0;

    for (size_t i = 0, n; i < share->n && err == 0; i += n) {
        n = share->n - i < most ? share->n - i : most;
        err = put(w, keys_at(share, i, n, b->keys), n * sizeof(int64_t));
    }
    return err;
}

/* The vectors of one class, whose keys begin at number `first` of the share. */
static int put_values(struct writer *w, gw_worker *clerk, const struct share *share, size_t first,
                      const gwi_part_class *class, const struct buffers *b)
{
    size_t row_bytes = class->length * clerk->params->geometry.item_bytes;
    size_t most = b->n_bytes / row_bytes;
    int err = 0;

    most = most < GWI_CHECKPOINT_BATCH / sizeof(int64_t) ? most
                                                         : GWI_CHECKPOINT_BATCH / sizeof(int64_t);
    for (size_t i = 0, n; i < class->n_keys && err == 0; i += n) {
        n = class->n_keys - i < most ? class->n_keys - i : most;
        gw_keys keys = {keys_at(share, first + i, n, b->keys), n};
        err = gw_worker_pull(clerk, keys, b->values, n * class->length, NULL);
        if (err == 0)
            err = put(w, b->values, n * row_bytes);
    }
    return err;
}

static int put_all(struct writer *w, gw_worker *clerk, const struct share *share,
                   const gwi_part_file *part, const char *head)
{
    struct buffers b = {.keys = malloc(GWI_CHECKPOINT_BATCH)};
    size_t first = 0;
    int err = 0;

    b.values = gwi_checkpoint_buffer(&clerk->params->geometry, &b.n_bytes);
    if (b.keys == NULL || b.values == NULL)
        err = gwi_fail(GW_ENOMEM, "saving");
    if (err == 0)
        err = put(w, head, part->head_bytes);
    if (err == 0)
        err = put_keys(w, share, &b);
    for (size_t c = 0; c < part->n_classes && err == 0; first += part->classes[c++].n_keys)
        err = put_values(w, clerk, share, first, &part->classes[c], &b);
    free(b.keys);
    free(b.values);
    return err;
}

/* Rank 0 has made the directory.  If a rank has died meanwhile it has removed it again. */
static int fail_without_directory(const gw_params *params, const char *path, const char *dir)
{
    gwi_fabric *f = params->world->fabric;

    if (f->ops->check(f) < 0)
        return GW_EPEER;
    return gwi_fail(
        GW_ESYS,
        "cannot write %s: its directory, which rank 0 has made, is not there; all nodes "
        "need '%s' on a file system that they share",
        path, dir);
}

/* Create the file with all its room, so that a full disk is noticed early. */
static int make_file(const gw_params *params, const char *path, const char *dir, uint64_t n_bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

    if (fd < 0)
        return errno == ENOENT ? fail_without_directory(params, path, dir)
                               : gwi_fail_file("write", path);
    if (fallocate(fd, 0, 0, (off_t)n_bytes) < 0 &&
        (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
        int err = gwi_fail_file("write", path);
        close(fd);
        return err;
    }
    return fd;
}

/* All bytes of this process, on disk. */
static int write_file(struct writer *w, gw_worker *clerk, const char *dir,
                      const struct share *share, const gwi_part_file *part, const char *head)
{
    w->fd = make_file(clerk->params, w->path, dir, part->n_bytes);
    int err = w->fd < 0 ? w->fd : put_all(w, clerk, share, part, head);

    if (err == 0 && fsync(w->fd) < 0)
        err = gwi_fail_file("write", w->path);
    if (w->fd >= 0 && close(w->fd) < 0 && err == 0)
        err = gwi_fail_file("write", w->path);
    return err;
}

/* Together: each rank its part, or none if it has no keys. */
static int write_part(gw_worker *clerk, gw_comm *comm, const char *dir, const char *save,
                      const struct share *share, gwi_part_file *part, gwi_manifest_part *ret_entry)
{
    const gw_params *params = clerk->params;
    char path[PATH_MAX], *head = NULL;
    struct writer w = {.path = path, .comm = comm};
    int64_t most = 0;
    int err = 0;

    gwi_shelf_part_path(dir, save, params->world->fabric->place.rank, path, sizeof path);
    if (share->n > 0)
        err = gwi_part_plan(part, params->geometry.dtype, params->geometry.n_classes > 1, save,
                            &head);
    err = gwi_checkpoint_agree(comm, err);
    int64_t mine = share->n > 0 ? (int64_t)part->n_bytes : 0;
    if (err == 0)
        err = gw_comm_allreduce(comm, &mine, &most, 1, GW_I64, GW_MAX);
    if (err == 0) {
        w.total = (uint64_t)mine;
        w.n_meetings = LEAST_MEETINGS + (int)(most / MEETING_BYTES);
        err = share->n > 0 ? write_file(&w, clerk, dir, share, part, head) : keep_in_step(&w);
        if (!w.all_know)
            err = gwi_checkpoint_agree(comm, err);
    }
    free(head);
    *ret_entry = (gwi_manifest_part){.node = params->world->fabric->place.node,
                                     .n_keys = (int64_t)share->n,
                                     .n_bytes = (int64_t)w.n_bytes,
                                     .crc = w.crc};
    return err;
}

/* the whole */

#define ENTRY_FIELDS 4

/* All entries, on all ranks. */
static int gather_entries(gw_comm *comm, const gwi_manifest_part *mine, gwi_manifest *m)
{
    int size = gw_comm_size(comm);
    int64_t sent[ENTRY_FIELDS] = {mine->node, mine->n_keys, mine->n_bytes, (int64_t)mine->crc};
    int64_t *all = calloc((size_t)size, sizeof sent);
    m->parts = calloc((size_t)size, sizeof *m->parts);
    int err = gwi_checkpoint_agree(
        comm, all == NULL || m->parts == NULL ? gwi_fail(GW_ENOMEM, "%d parts", size) : 0);

    if (err == 0)
        err = gw_comm_allgather(comm, sent, all, ENTRY_FIELDS, GW_I64);
    for (int r = 0; r < size && err == 0; r++) {
        const int64_t *of = all + ENTRY_FIELDS * r;
        if (of[1] > 0)
            m->parts[m->n_parts++] = (gwi_manifest_part){.rank = r,
                                                         .node = (int)of[0],
                                                         .n_keys = of[1],
                                                         .n_bytes = of[2],
                                                         .crc = (uint32_t)of[3]};
    }
    free(all);
    return err;
}

static int make_manifest(const gw_params *params, gwi_manifest *m, const char *meta,
                         char **ret_text, size_t *ret_bytes)
{
    const gwi_geometry *g = &params->geometry;

    m->n_keys = g->n_keys;
    m->dtype = g->dtype;
    m->ranks = params->world->fabric->place.size;
    m->nodes = params->world->fabric->place.nodes;
    snprintf(m->library, sizeof m->library, "%s", gw_version());
    m->meta = strdup(meta);
    m->lengths = calloc(g->n_classes, sizeof *m->lengths);
    if (m->meta == NULL || m->lengths == NULL)
        return gwi_fail(GW_ENOMEM, "the list of parts");
    m->n_lengths = g->n_classes;
    for (uint32_t c = 0; c < g->n_classes; c++)
        m->lengths[c] = (gwi_manifest_length){(int64_t)g->classes[c].length,
                                              (int64_t)g->classes[c].n_keys};
    return gwi_manifest_print(m, ret_text, ret_bytes);
}

/* Rank 0: all parts are on disk. */
static int commit(const gw_params *params, gwi_shelf *shelf, gwi_manifest *m, const char *meta)
{
    char *text = NULL;
    size_t n_bytes = 0;
    int err = make_manifest(params, m, meta, &text, &n_bytes);

    if (err == 0)
        err = gwi_shelf_commit(shelf, text, n_bytes);
    free(text);
    return err;
}

/* With the .saving directory there: the parts, and what they are. */
static int write_parts(gw_worker *clerk, gw_comm *comm, const char *dir, gwi_manifest *m)
{
    struct share share = {0};
    gwi_part_file part = {0};
    gwi_manifest_part mine = {0};
    int err = gwi_checkpoint_sync(clerk, comm);

    if (err == 0)
        err = gwi_checkpoint_agree(comm, find_share(clerk->params, comm, &share, &part));
    if (err == 0)
        err = write_part(clerk, comm, dir, m->save, &share, &part, &mine);
    free(share.keys);
    gwi_part_fini(&part);
    return err < 0 ? err : gather_entries(comm, &mine, m);
}

static int save(gw_worker *clerk, gw_comm *comm, const char *dir, const char *meta)
{
    const gw_params *params = clerk->params;
    int first = gw_comm_rank(comm) == 0, err = 0;
    gwi_manifest m = {0};
    gwi_shelf *shelf = first ? malloc(sizeof *shelf) : NULL;

    if (first && shelf == NULL)
        err = gwi_fail(GW_ENOMEM, "saving");
    if (shelf != NULL) {
        shelf->fd = -1;
        err = gwi_shelf_name(m.save, m.created, sizeof m.created);
        err = err < 0 ? err : gwi_shelf_begin(shelf, dir, m.save);
    }
    err = gwi_checkpoint_agree(comm, err);
    if (err == 0)
        err = gw_comm_bcast(comm, m.save, sizeof m.save, GW_U8, 0);
    if (err == 0)
        err = write_parts(clerk, comm, dir, &m);
    if (err == 0)
        err = gwi_checkpoint_agree(comm, first ? commit(params, shelf, &m, meta) : 0);
    if (shelf != NULL) {
        char *sentence = err < 0 ? strdup(gw_last_error()) : NULL;
        gwi_shelf_end(shelf, err == 0);
        if (sentence != NULL)
            gwi_fail(err, "%s", sentence);
        free(sentence);
    }
    free(shelf);
    gwi_manifest_fini(&m);
    return err;
}

static int check_meta(const char *meta)
{
    size_t n = strlen(meta);
    const char *value = NULL;
    gwi_json j = gwi_json_of(meta, n);

    gwi_json_skip(&j, &value);
    gwi_json_end(&j);
    if (j.problem != NULL)
        return gwi_fail(GW_EINVAL, "meta is not JSON; at byte %zu: %s", (size_t)(j.at - j.begin),
                        j.problem);
    if (*value != '{')
        return gwi_fail(GW_EINVAL, "meta is no JSON object");
    if (n > GWI_META_MOST)
        return gwi_fail(GW_EINVAL, "meta has %zu bytes; at most %zu are possible", n,
                        GWI_META_MOST);
    return 0;
}

int gw_params_save(gw_params *params, const char *dir, const char *meta)
{
    gw_worker *clerk = NULL;
    gw_comm *comm;
    int err = gwi_params_comm(params, &comm);

    if (err < 0)
        return err;
    meta = meta == NULL ? "{}" : meta;
    err = gwi_checkpoint_check_dir(dir);
    if (err == 0)
        err = check_meta(meta);
    if (err == 0)
        err = gwi_clerk_take(params, "save", &clerk);
    err = gwi_checkpoint_agree_on(comm, "save", dir, meta, err);
    if (err == 0)
        err = save(clerk, comm, dir, meta);
    if (clerk != NULL)
        gwi_clerk_give_back(params);
    return err;
}
