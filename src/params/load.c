/* load.c - reading a checkpoint, on any number of ranks and nodes.
 *
 * The files are cut into pieces of whole rows, and the pieces shared out over the ranks.  First
 * every byte is read and its checksum compared, and every key looked at; the ranks put their
 * pieces' sums together (crc32c.h).  Only if all is well on all ranks the vectors are set, by
 * reading them a second time, now mostly from the system's cache.                      */
#include "base/crc32c.h"
#include "base/error.h"
#include "base/hash.h"
#include "params/checkpoint.h"
#include "params/clerk.h"
#include "params/part.h"
#include "params/shelf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((uint64_t)4 << 20)
#define MOST_OPEN 256 /* files */
#define ATTEMPTS 5    /* to find a checkpoint that is not being replaced */

enum kind { HEAD, KEYS, VALUES };

struct piece {
    enum kind kind;
    uint32_t file;
    size_t class;
    uint64_t row, n_rows;
    uint64_t at, n_bytes;
};

struct file {
    char *path;
    int fd; /* -1: not open now */
    const gwi_manifest_part *entry;
    gwi_part_file part;
};

/* A load under way. */
struct load {
    gw_worker *clerk;
    gw_comm *comm;
    gw_checkpoint *checkpoint;
    struct file *files; /* by part */
    int n_open;
    struct piece *pieces; /* of all files, in order; the same on all ranks */
    size_t n_pieces, capacity;
    size_t first, end; /* those of this rank */
    uint32_t *sums;    /* by piece; of others 0 */
    /* of the keys that this rank has looked at */
    int64_t n_keys;
    uint64_t mixed;                 /* their hashes, by exclusive or */
    char wrong_key[PATH_MAX + 160]; /* what is wrong with the first one that is; "": none */
    int64_t next_look_ns;
};

static const gwi_geometry *geometry(const struct load *l)
{
    return &l->clerk->params->geometry;
}

/* finding the checkpoint */

/* The list of parts comes from rank 0, so that all have the same one. */
static int share_list(struct load *l, const char *dir)
{
    int first = gw_comm_rank(l->comm) == 0, err = 0;
    int64_t n_bytes = 0;
    gw_checkpoint *c = NULL;

    if (first)
        err = gw_checkpoint_open(dir, &c);
    else if ((c = calloc(1, sizeof *c)) == NULL || (c->dir = strdup(dir)) == NULL)
        err = gwi_fail(GW_ENOMEM, "loading");
    if (first && err == 0)
        n_bytes = (int64_t)strlen(c->text);
    err = gwi_checkpoint_agree(l->comm, err);
    if (err == 0)
        err = gw_comm_bcast(l->comm, &n_bytes, 1, GW_I64, 0);
    if (err == 0 && !first && (c->text = calloc((size_t)n_bytes + 1, 1)) == NULL)
        err = gwi_fail(GW_ENOMEM, "a list of %lld bytes", (long long)n_bytes);
    err = gwi_checkpoint_agree(l->comm, err);
    if (err == 0)
        err = gw_comm_bcast(l->comm, c->text, (size_t)n_bytes, GW_U8, 0);
    if (err == 0 && !first)
        err = gwi_manifest_parse(c->text, (size_t)n_bytes, &c->manifest);
    err = gwi_checkpoint_agree(l->comm, err);
    if (err < 0)
        gw_checkpoint_close(c);
    else
        l->checkpoint = c;
    return err;
}

static int is_foreign(const struct load *l, const char *what)
{
    return gwi_fail(GW_EINVAL, "the checkpoint in '%s' is of other parameters: %s",
                    l->checkpoint->dir, what);
}

static int compare_lengths(const struct load *l)
{
    const gwi_manifest *m = &l->checkpoint->manifest;
    const gwi_geometry *g = geometry(l);
    gwi_hash there;
    char what[160];
    int err = 0;

    gwi_hash_init(&there);
    for (size_t i = 0; i < m->n_lengths && err == 0; i++)
        err = gwi_hash_put(&there, (uint64_t)m->lengths[i].length, (uint64_t)m->lengths[i].n_keys);
    for (uint32_t c = 0; c < g->n_classes && err == 0; c++) {
        uint64_t n = 0;
        gwi_hash_get(&there, g->classes[c].length, &n);
        if (n == g->classes[c].n_keys)
            continue;
        snprintf(what, sizeof what, "it has %llu keys of length %llu, and these have %llu",
                 (unsigned long long)n, (unsigned long long)g->classes[c].length,
                 (unsigned long long)g->classes[c].n_keys);
        err = is_foreign(l, what);
    }
    gwi_hash_fini(&there);
    return err;
}

/* All ranks find the same. */
static int compare(const struct load *l)
{
    const gwi_manifest *m = &l->checkpoint->manifest;
    const gwi_geometry *g = geometry(l);
    char what[160];

    if (m->n_keys != g->n_keys) {
        snprintf(what, sizeof what, "it has %lld keys, and these have %lld", (long long)m->n_keys,
                 (long long)g->n_keys);
        return is_foreign(l, what);
    }
    if (m->dtype != g->dtype)
        return is_foreign(l, m->dtype == GW_F32 ? "it is float32, and these are float64"
                                                : "it is float64, and these are float32");
    return compare_lengths(l);
}

/* files and pieces */

static int open_file(struct load *l, struct file *f)
{
    if (f->fd >= 0)
        return 0;
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (f->fd >= 0) {
        /* More is read ahead.  To announce each piece (WILLNEED) takes twice as long. */
        posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        l->n_open++;
        return 0;
    }
    return errno == ENOENT ? gwi_fail(GW_ESYS, "a part of the checkpoint is missing: %s%s", f->path,
                                      l->clerk->params->world->fabric->place.nodes > 1
                                          ? "; all nodes need it, on a file system that they share"
                                          : "")
                           : gwi_fail_file("read", f->path);
}

static void close_file(struct load *l, struct file *f)
{
    if (f->fd < 0)
        return;
    close(f->fd);
    f->fd = -1;
    l->n_open--;
}

/* Not needed for the moment. */
static void rest_file(struct load *l, struct file *f)
{
    if (l->n_open > MOST_OPEN)
        close_file(l, f);
}

static int add_piece(struct load *l, struct piece piece)
{
    if (l->n_pieces == l->capacity) {
        size_t capacity = l->capacity == 0 ? 64 : 2 * l->capacity;
        struct piece *grown = realloc(l->pieces, capacity * sizeof *grown);
        if (grown == NULL)
            return gwi_fail(GW_ENOMEM, "a list of %zu pieces", capacity);
        l->pieces = grown;
        l->capacity = capacity;
    }
    l->pieces[l->n_pieces++] = piece;
    return 0;
}

/* The rows of an array. */
static int cut_array(struct load *l, struct piece piece, uint64_t n_rows, uint64_t row_bytes)
{
    uint64_t at = piece.at, most = row_bytes < PIECE_BYTES ? PIECE_BYTES / row_bytes : 1;
    int err = 0;

    for (piece.row = 0; piece.row < n_rows && err == 0; piece.row += piece.n_rows) {
        piece.n_rows = n_rows - piece.row < most ? n_rows - piece.row : most;
        piece.at = at + piece.row * row_bytes;
        piece.n_bytes = piece.n_rows * row_bytes;
        err = add_piece(l, piece);
    }
    return err;
}

/* In the order in which they lie, so that their sums can be joined. */
static int cut_file(struct load *l, uint32_t number)
{
    const gwi_part_file *part = &l->files[number].part;
    struct piece piece = {.kind = HEAD, .file = number, .n_bytes = part->head_bytes};
    int err = add_piece(l, piece);

    piece.kind = KEYS;
    for (size_t c = 0; c < part->n_classes && err == 0; c++) {
        piece.class = c;
        piece.at = part->classes[c].keys_at;
        err = cut_array(l, piece, part->classes[c].n_keys, sizeof(int64_t));
    }
    piece.kind = VALUES;
    for (size_t c = 0; c < part->n_classes && err == 0; c++) {
        piece.class = c;
        piece.at = part->classes[c].values_at;
        err = cut_array(l, piece, part->classes[c].n_keys,
                        part->classes[c].length * geometry(l)->item_bytes);
    }
    return err;
}

/* Each rank about as many bytes, one behind the other. */
static void deal_pieces(struct load *l)
{
    uint64_t total = 0, before = 0, rank = (uint64_t)gw_comm_rank(l->comm),
             size = (uint64_t)gw_comm_size(l->comm);

    for (size_t i = 0; i < l->n_pieces; i++)
        total += l->pieces[i].n_bytes;
    l->first = l->end = l->n_pieces;
    for (size_t i = 0; i < l->n_pieces; before += l->pieces[i++].n_bytes) {
        if (l->first == l->n_pieces && before >= total / size * rank)
            l->first = i;
        if (rank + 1 < size && l->end == l->n_pieces && before >= total / size * (rank + 1))
            l->end = i;
    }
    l->first = l->first < l->end ? l->first : l->end;
}

static int look_at_file(struct load *l, uint32_t number)
{
    const gwi_manifest *m = &l->checkpoint->manifest;
    struct file *f = &l->files[number];
    char name[96];

    f->entry = &m->parts[number];
    gwi_manifest_part_name(m, f->entry->rank, name, sizeof name);
    if (asprintf(&f->path, "%s/%s", l->checkpoint->dir, name) < 0) {
        f->path = NULL;
        return gwi_fail(GW_ENOMEM, "loading");
    }
    int err = open_file(l, f);
    if (err == 0)
        err = gwi_part_read(f->fd, f->path, (uint64_t)f->entry->n_bytes, m->save, &f->part);
    if (err == 0 && (f->part.n_keys != (uint64_t)f->entry->n_keys || f->part.dtype != m->dtype))
        err = gwi_fail(GW_EINVAL, "%s: it has other keys, or another type, than %s says", f->path,
                       GWI_MANIFEST_FILE);
    if (err == 0)
        err = cut_file(l, number);
    rest_file(l, f);
    return err;
}

static void forget_files(struct load *l)
{
    for (size_t i = 0; l->files != NULL && i < l->checkpoint->manifest.n_parts; i++) {
        close_file(l, &l->files[i]);
        gwi_part_fini(&l->files[i].part);
        free(l->files[i].path);
    }
    free(l->files);
    free(l->pieces);
    free(l->sums);
    l->files = NULL;
    l->pieces = NULL;
    l->sums = NULL;
    l->n_pieces = l->capacity = 0;
}

static int look_at_files(struct load *l)
{
    size_t n = l->checkpoint->manifest.n_parts;
    int err = 0;

    l->files = calloc(n, sizeof *l->files);
    if (l->files == NULL)
        return gwi_fail(GW_ENOMEM, "a list of %zu files", n);
    for (size_t i = 0; i < n; i++)
        l->files[i].fd = -1;
    for (size_t i = 0; i < n && err == 0; i++)
        err = look_at_file(l, (uint32_t)i);
    if (err == 0 && (l->sums = calloc(2 * l->n_pieces, sizeof *l->sums)) == NULL)
        err = gwi_fail(GW_ENOMEM, "the sums of %zu pieces", l->n_pieces);
    if (err == 0)
        deal_pieces(l);
    return err;
}

/* Whether somebody has saved over it since. */
static int was_replaced(struct load *l)
{
    gwi_manifest now = {0};
    int32_t replaced = 0;

    if (gw_comm_rank(l->comm) == 0 && gwi_manifest_read(l->checkpoint->dir, &now, NULL, NULL) == 0)
        replaced = strcmp(now.save, l->checkpoint->manifest.save) != 0;
    gwi_manifest_fini(&now);
    return gw_comm_bcast(l->comm, &replaced, 1, GW_I32, 0) == 0 && replaced;
}

static int find(struct load *l, const char *dir)
{
    int err = 0;

    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        err = share_list(l, dir);
        if (err < 0)
            return err;
        err = compare(l);
        if (err < 0)
            return err;
        err = gwi_checkpoint_agree(l->comm, look_at_files(l));
        char *sentence = err < 0 ? strdup(gw_last_error()) : NULL;
        if (err == 0 || !was_replaced(l)) {
            err = err < 0 ? gwi_fail(err, "%s", sentence != NULL ? sentence : "") : 0;
            free(sentence);
            return err;
        }
        free(sentence);
        forget_files(l);
        gw_checkpoint_close(l->checkpoint);
        l->checkpoint = NULL;
    }
    return err;
}

/* looking at everything */

/* That a key is wrong is told only if the file's sum is right: else it says less than that. */
static void check_keys(struct load *l, const struct piece *p, const int64_t *keys, size_t n)
{
    const gwi_geometry *g = geometry(l);
    const struct file *f = &l->files[p->file];
    uint64_t length = f->part.classes[p->class].length;

    l->n_keys += (int64_t)n;
    for (size_t i = 0; i < n && l->wrong_key[0] == 0; i++) {
        int is_there = keys[i] >= 0 && keys[i] < g->n_keys;
        if (!is_there || gwi_geometry_class(g, keys[i])->length != length)
            snprintf(l->wrong_key, sizeof l->wrong_key,
                     "%s: key %lld has a vector of length %llu there, and %s in these parameters",
                     f->path, (long long)keys[i], (unsigned long long)length,
                     is_there ? "another" : "is not");
        else
            l->mixed ^= gwi_hash_u64((uint64_t)keys[i]);
    }
}

static int check_piece(struct load *l, size_t i, void *buffer)
{
    const struct piece *p = &l->pieces[i];
    struct file *f = &l->files[p->file];
    int err = open_file(l, f);

    for (uint64_t done = 0; done < p->n_bytes && err == 0;) {
        uint64_t left = p->n_bytes - done;
        size_t n = left < GWI_CHECKPOINT_BATCH ? (size_t)left : GWI_CHECKPOINT_BATCH;
        err = gwi_checkpoint_pread(f->fd, f->path, buffer, n, p->at + done);
        if (err == 0) {
            l->sums[i] = gwi_crc32c(l->sums[i], buffer, n);
            if (p->kind == KEYS)
                check_keys(l, p, buffer, n / sizeof(int64_t));
        }
        if (err == 0)
            err = gwi_checkpoint_look(&l->next_look_ns, "load");
        done += n;
    }
    if (i + 1 == l->end || l->pieces[i + 1].file != p->file)
        rest_file(l, f);
    return err;
}

/* The sums of all pieces are known: those of the files, as all ranks find them. */
static int compare_sums(struct load *l, const uint32_t *sums)
{
    for (size_t i = 0; i < l->n_pieces;) {
        const struct file *f = &l->files[l->pieces[i].file];
        uint32_t number = l->pieces[i].file, crc = 0;
        for (; i < l->n_pieces && l->pieces[i].file == number; i++)
            crc = gwi_crc32c_join(crc, sums[i], l->pieces[i].n_bytes);
        if (crc != f->entry->crc)
            return gwi_fail(GW_EINVAL,
                            "%s: it is damaged: its checksum is %08x and should be %08x; nothing "
                            "was loaded",
                            f->path, (unsigned)crc, (unsigned)f->entry->crc);
    }
    return 0;
}

/* Each key once: as many as there are, and their hashes mixed are those of all. */
static int compare_keys(struct load *l)
{
    int64_t n = 0, mine = (int64_t)l->mixed, mixed = 0;
    uint64_t expected = 0;
    int err = gw_comm_allreduce(l->comm, &l->n_keys, &n, 1, GW_I64, GW_SUM);

    if (err == 0)
        err = gw_comm_allreduce(l->comm, &mine, &mixed, 1, GW_I64, GW_BXOR);
    if (err < 0)
        return err;
    for (int64_t key = 0; key < geometry(l)->n_keys; key++)
        expected ^= gwi_hash_u64((uint64_t)key);
    if (n != geometry(l)->n_keys || (uint64_t)mixed != expected)
        return gwi_fail(GW_EINVAL, "the checkpoint in '%s' does not hold each key once",
                        l->checkpoint->dir);
    return 0;
}

static int check_all(struct load *l, void *buffer)
{
    uint32_t *sums = l->sums + l->n_pieces;
    int err = 0;

    for (size_t i = l->first; i < l->end && err == 0; i++)
        err = check_piece(l, i, buffer);
    err = gwi_checkpoint_agree(l->comm, err);
    if (err == 0)
        err = gw_comm_allreduce(l->comm, l->sums, sums, l->n_pieces, GW_I32, GW_BOR);
    if (err == 0)
        err = compare_sums(l, sums);
    if (err < 0)
        return err;
    err = gwi_checkpoint_agree(l->comm,
                               l->wrong_key[0] != 0 ? gwi_fail(GW_EINVAL, "%s", l->wrong_key) : 0);
    return err < 0 ? err : compare_keys(l);
}

/* setting */

static int set_piece(struct load *l, const struct piece *p, int64_t *keys, void *values,
                     size_t values_bytes)
{
    struct file *f = &l->files[p->file];
    const gwi_part_class *class = &f->part.classes[p->class];
    size_t row_bytes = class->length * geometry(l)->item_bytes, most = values_bytes / row_bytes;
    int err = open_file(l, f);

    most = most < GWI_CHECKPOINT_BATCH / sizeof *keys ? most : GWI_CHECKPOINT_BATCH / sizeof *keys;
    for (uint64_t i = 0, n; i < p->n_rows && err == 0; i += n) {
        n = p->n_rows - i < most ? p->n_rows - i : most;
        err = gwi_checkpoint_pread(f->fd, f->path, keys, n * sizeof *keys,
                                   class->keys_at + (p->row + i) * sizeof *keys);
        if (err == 0)
            err = gwi_checkpoint_pread(f->fd, f->path, values, n * row_bytes,
                                       p->at + i * row_bytes);
        if (err == 0)
            err = gw_worker_set(l->clerk, (gw_keys){keys, n}, values, n * class->length, NULL);
    }
    return err;
}

static int set_all(struct load *l, void *buffer, size_t buffer_bytes)
{
    int64_t *keys = malloc(GWI_CHECKPOINT_BATCH);
    int err = keys == NULL ? gwi_fail(GW_ENOMEM, "loading") : 0;

    for (size_t i = l->first; i < l->end && err == 0; i++) {
        if (l->pieces[i].kind == VALUES)
            err = set_piece(l, &l->pieces[i], keys, buffer, buffer_bytes);
        if (i + 1 == l->end || l->pieces[i + 1].file != l->pieces[i].file)
            rest_file(l, &l->files[l->pieces[i].file]);
    }
    free(keys);
    return err == 0 ? 0
                    : gwi_fail(err, "%s; part of the checkpoint has been loaded, so load again",
                               gw_last_error());
}

static int load(struct load *l, const char *dir)
{
    size_t buffer_bytes = 0;
    void *buffer = gwi_checkpoint_buffer(geometry(l), &buffer_bytes);
    int err = gwi_checkpoint_agree(l->comm, buffer == NULL ? GW_ENOMEM : 0);

    if (err == 0)
        err = find(l, dir);
    if (err == 0)
        err = check_all(l, buffer);
    /* Updates from before must not come after what is set. */
    if (err == 0)
        err = gwi_checkpoint_sync(l->clerk, l->comm);
    if (err == 0)
        err = gwi_checkpoint_agree(l->comm, set_all(l, buffer, buffer_bytes));
    if (err == 0)
        err = gwi_checkpoint_sync(l->clerk, l->comm);
    if (l->checkpoint != NULL)
        forget_files(l);
    free(buffer);
    return err;
}

int gw_params_load(gw_params *params, const char *dir, gw_checkpoint **ret_checkpoint)
{
    struct load l = {0};
    int err = gwi_params_comm(params, &l.comm);

    if (err < 0)
        return err;
    err = gwi_checkpoint_check_dir(dir);
    if (err == 0)
        err = gwi_clerk_take(params, "load", &l.clerk);
    err = gwi_checkpoint_agree_on(l.comm, "load", dir, "", err);
    if (err == 0)
        err = load(&l, dir);
    if (l.clerk != NULL)
        gwi_clerk_give_back(params);
    if (err == 0 && ret_checkpoint != NULL)
        *ret_checkpoint = l.checkpoint;
    else
        gw_checkpoint_close(l.checkpoint);
    return err;
}
