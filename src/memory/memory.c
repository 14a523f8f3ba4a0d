/* memory.c - opening and closing whole memory, views of it, and what can be asked of it. */
#include "memory/memory.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "comm/reduce.h"

#include <stdlib.h>
#include <string.h>

#define MOST_LATCHES ((size_t)1 << 14) /* 64 KB: they stay in a processor's own cache */
#define LEAST_LATCHES 16

const char *gw_memory_kind_name(gw_memory_kind kind)
{
    static const char *const names[] = {"continuous", "chunked", "distributed"};

    return (unsigned)kind < GW_N_MEMORY_KINDS ? names[kind] : "?";
}

int gwi_room_need(gwi_room *room, size_t n_bytes)
{
    if (n_bytes <= room->n_bytes)
        return 0;
    size_t more = n_bytes + n_bytes / 4;
    void *bytes = malloc(more);
    if (bytes == NULL)
        return gwi_fail(GW_ENOMEM, "%zu bytes for rows on their way", more);
    free(room->bytes);
    *room = (gwi_room){bytes, more};
    return 0;
}

/* checking */

static int check_shape(const gw_memory_options *opt, size_t *ret_entries)
{
    uint64_t entries = 1;

    if (opt->n_dims < 1 || opt->n_dims > GW_MAX_DIMS || opt->shape == NULL)
        return gwi_fail(GW_EINVAL, "shape has %d dimensions; there must be 1 to %d", opt->n_dims,
                        GW_MAX_DIMS);
    for (int i = 0; i < opt->n_dims; i++) {
        if (opt->shape[i] < 0)
            return gwi_fail(GW_EINVAL, "shape[%d] is %lld; it cannot be below 0", i,
                            (long long)opt->shape[i]);
        if (i > 0 && __builtin_mul_overflow(entries, (uint64_t)opt->shape[i], &entries))
            return gwi_fail(GW_EINVAL, "shape: a row has more entries than there are addresses");
    }
    *ret_entries = entries;
    return 0;
}

/* Entries from row to row; the rest of the strides must be dense. */
static int check_strides(const gw_memory_options *opt, size_t row_entries, uint64_t *ret_pitch)
{
    int64_t dense = 1;

    *ret_pitch = row_entries;
    if (opt->strides == NULL)
        return 0;
    for (int i = opt->n_dims - 1; i > 0; i--) {
        if (opt->strides[i] != dense && opt->shape[i] > 1)
            return gwi_fail(GW_EUNSUP,
                            "strides[%d] is %lld; rows are dense, so it must be %lld (only "
                            "strides[0] may be larger)",
                            i, (long long)opt->strides[i], (long long)dense);
        dense *= opt->shape[i];
    }
    if (opt->strides[0] < (int64_t)row_entries)
        return gwi_fail(GW_EINVAL, "strides[0] is %lld; a row has %zu entries",
                        (long long)opt->strides[0], row_entries);
    *ret_pitch = (uint64_t)opt->strides[0];
    return 0;
}

static int check_options(const gw_memory_options *opt, gwi_whole *w, size_t *ret_row_entries)
{
    uint64_t pitch, n_bytes;
    int err;

    if (opt->size_bytes < sizeof *opt)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; set it to sizeof(gw_memory_options)",
                        opt->size_bytes);
    if ((unsigned)opt->kind >= GW_N_MEMORY_KINDS)
        return gwi_fail(GW_EINVAL, "kind is %d, which is none", (int)opt->kind);
    if ((unsigned)opt->dtype >= GW_N_DTYPES)
        return gwi_fail(GW_ETYPE, "dtype is %d, which is no type", (int)opt->dtype);
    if ((err = check_shape(opt, ret_row_entries)) < 0 ||
        (err = check_strides(opt, *ret_row_entries, &pitch)) < 0)
        return err;
    w->kind = opt->kind;
    w->dtype = opt->dtype;
    w->item_bytes = gwi_dtype_bytes(opt->dtype);
    if (__builtin_mul_overflow(pitch, w->item_bytes, &pitch) ||
        __builtin_mul_overflow(pitch, (uint64_t)opt->shape[0], &n_bytes) ||
        n_bytes > PTRDIFF_MAX / 2)
        return gwi_fail(GW_EINVAL,
                        "shape: %lld rows of %zu entries are more than there are "
                        "addresses",
                        (long long)opt->shape[0], *ret_row_entries);
    w->pitch = pitch;
    return gwi_partition_init(&w->parts, opt->shape[0], w->size, opt->rows_per_rank);
}

static int node_of(const gw_comm *comm, int rank)
{
    return gwi_fabric_place(comm->world->fabric, comm->ranks[rank]).node;
}

static int check_nodes(gwi_whole *w)
{
    for (int r = 0; r < w->size; r++)
        w->spans |= node_of(w->comm, r) != node_of(w->comm, 0);
    if (!w->spans || w->kind == GW_DISTRIBUTED)
        return 0;
    w->spans = 0;
    return gwi_fail(GW_EUNSUP,
                    "kind is '%s', but the group spans several nodes, which share no memory; use "
                    "kind 'distributed'",
                    gw_memory_kind_name(w->kind));
}

/* agreeing */

/* What all ranks must have the same of.  `valid` is 0 where the arguments were refused. */
struct card {
    int64_t valid, kind, dtype, shape, strides, parts, number;
};

#define CARD_FIELDS (sizeof(struct card) / sizeof(int64_t))

static int64_t hash_of(const int64_t *numbers, int n)
{
    return numbers == NULL || n < 1
               ? 0
               : (int64_t)gwi_hash_bytes(numbers, (size_t)n * sizeof *numbers, 0);
}

static int differ(int rank, const struct card *mine, const struct card *theirs)
{
    const char *what = theirs->kind != mine->kind         ? "kind"
                       : theirs->dtype != mine->dtype     ? "dtype"
                       : theirs->shape != mine->shape     ? "shape"
                       : theirs->strides != mine->strides ? "strides"
                       : theirs->parts != mine->parts     ? "rows_per_rank"
                                                          : NULL;

    if (!theirs->valid)
        return gwi_fail(GW_EDISAGREE, "rank %d was refused its arguments, so nobody opens", rank);
    return what == NULL
               ? 0
               : gwi_fail(GW_EDISAGREE, "%s is not the same here and on rank %d", what, rank);
}

static int agree(gwi_whole *w, const gw_memory_options *opt, int refused)
{
    static _Atomic int64_t openings;
    struct card mine = {0}, *cards = calloc((size_t)w->size, sizeof *cards);

    if (cards == NULL)
        return gwi_fail(GW_ENOMEM, "opening memory with %d processes", w->size);
    if (refused == 0)
        mine = (struct card){1,
                             w->kind,
                             w->dtype,
                             hash_of(opt->shape, opt->n_dims),
                             (int64_t)w->pitch,
                             hash_of(w->parts.starts, w->size + 1),
                             atomic_fetch_add(&openings, 1)};
    /* The refusal's sentence is kept by calling nothing that fails. */
    int err = gw_comm_allgather(w->comm, &mine, cards, CARD_FIELDS, GW_I64);
    if (refused < 0)
        err = refused;
    for (int r = 0; r < w->size && err == 0; r++)
        err = differ(w->comm->ranks[r], &mine, &cards[r]);
    w->number = cards[0].number;
    free(cards);
    return err;
}

int gwi_memory_agree(gw_comm *comm, int err, const char *doing)
{
    int32_t mine = err, worst = 0;
    int wait_err = gw_comm_allreduce(comm, &mine, &worst, 1, GW_I32, GW_MIN);

    if (err < 0)
        return err;
    if (wait_err < 0)
        return wait_err;
    return worst < 0 ? gwi_fail(worst, "another rank %s: %s", doing, gw_strerror(worst)) : 0;
}

/* memory */

static size_t round_up(size_t n)
{
    return (n + GWI_PAGE - 1) / GWI_PAGE * GWI_PAGE;
}

static int64_t rows_in_segment(const gwi_whole *w, int rank)
{
    return w->kind == GW_CONTINUOUS ? w->parts.n_rows : gwi_partition_count(&w->parts, rank);
}

static size_t latches_at(const gwi_whole *w, int rank)
{
    return round_up((size_t)rows_in_segment(w, rank) * w->pitch);
}

static size_t segment_bytes(const gwi_whole *w, int rank)
{
    return latches_at(w, rank) + ((size_t)w->latch_mask + 1) * sizeof(gwi_row_latch);
}

static void count_latches(gwi_whole *w)
{
    size_t n = LEAST_LATCHES;

    while (n < MOST_LATCHES && (int64_t)n < w->parts.n_rows)
        n *= 2;
    w->latch_mask = (uint32_t)n - 1;
}

/* Who makes a rank's segment. */
static int maker_of(const gwi_whole *w, int rank)
{
    return w->kind == GW_CONTINUOUS ? 0 : rank;
}

/* Memory comes when it is asked for, and then lies near the processor of whoever asks: each
 * rank asks for its own rows. */
static int make_segment(gwi_whole *w, int64_t *ret_offset)
{
    gwi_fabric *f = w->world->fabric;
    int err = 0;

    if (maker_of(w, w->rank) == w->rank) {
        gwi_segment *mine = &w->segments[w->rank];
        err = f->ops->segment_make(f, segment_bytes(w, w->rank), 0, mine);
        if (err == 0)
            err = f->ops->segment_need(f, mine, latches_at(w, w->rank),
                                       mine->n_bytes - latches_at(w, w->rank));
        *ret_offset = err < 0 ? err : (int64_t)mine->offset;
    }
    return err;
}

static int map_segments(gwi_whole *w, const int64_t *offsets)
{
    gwi_fabric *f = w->world->fabric;
    int err = 0;

    for (int r = 0; r < w->size && err == 0; r++) {
        if (maker_of(w, r) != r || r == w->rank || node_of(w->comm, r) != node_of(w->comm, w->rank))
            continue;
        if (offsets[r] < 0)
            return gwi_fail((int)offsets[r], "rank %d could not make its part of the memory: %s",
                            w->comm->ranks[r], gw_strerror((int)offsets[r]));
        err = f->ops->segment_map(f, (uint64_t)offsets[r], round_up(segment_bytes(w, r)),
                                  &w->segments[r]);
    }
    return err;
}

static void find_rows(gwi_whole *w)
{
    for (int r = 0; r < w->size; r++) {
        const gwi_segment *segment = &w->segments[maker_of(w, r)];
        if (segment->base == NULL)
            continue;
        size_t at = w->kind == GW_CONTINUOUS ? (size_t)w->parts.starts[r] * w->pitch : 0;
        w->rows[r] = (unsigned char *)segment->base + at;
        w->latches[r] = (gwi_row_latch *)(void *)((unsigned char *)segment->base +
                                                  latches_at(w, maker_of(w, r)));
    }
}

static size_t own_bytes(const gwi_whole *w)
{
    return (size_t)gwi_partition_count(&w->parts, w->rank) * w->pitch;
}

static int touch_own_rows(gwi_whole *w)
{
    gwi_fabric *f = w->world->fabric;
    const gwi_segment *segment = &w->segments[maker_of(w, w->rank)];
    size_t at = (size_t)(w->rows[w->rank] - (unsigned char *)segment->base);
    size_t from = at / GWI_PAGE * GWI_PAGE, to = round_up(at + own_bytes(w));

    return own_bytes(w) == 0 ? 0 : f->ops->segment_need(f, segment, from, to - from);
}

/* Collective.  Each agreement also waits until all have come so far. */
static int share_memory(gwi_whole *w)
{
    int64_t mine = 0, *offsets = calloc((size_t)w->size, sizeof *offsets);
    int err = offsets == NULL ? gwi_fail(GW_ENOMEM, "sharing memory with %d ranks", w->size) : 0;

    err = gwi_memory_agree(w->comm, err, "could not open the memory");
    if (err == 0) {
        int made = make_segment(w, &mine);
        err = gw_comm_allgather(w->comm, &mine, offsets, 1, GW_I64);
        err = made < 0 ? made : err;
        if (err == 0)
            err = map_segments(w, offsets);
        if (err == 0) {
            find_rows(w);
            err = touch_own_rows(w);
        }
        err = gwi_memory_agree(w->comm, err, "could not open the memory");
    }
    free(offsets);
    return err;
}

/* opening and closing */

static void free_whole(gwi_whole *w)
{
    gwi_fabric *f = w->world->fabric;
    gwi_room *rooms[] = {&w->rows_out,  &w->at_out,   &w->values_out, &w->rows_in,
                         &w->values_in, &w->requests, &w->touched};

    gwi_pages_stop(&w->pages);
    for (int r = 0; r < w->size && w->segments != NULL; r++)
        f->ops->segment_close(f, &w->segments[r]);
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++)
        free(rooms[i]->bytes);
    free(w->slots);
    pthread_mutex_destroy(&w->lock);
    gwi_partition_fini(&w->parts);
    free(w->segments);
    free(w->rows);
    free(w->latches);
    free(w);
}

static int new_lists(gwi_whole *w)
{
    size_t size = (size_t)w->size;

    w->segments = calloc(size, sizeof *w->segments);
    w->rows = calloc(size, sizeof *w->rows);
    w->latches = calloc(size, sizeof *w->latches);
    return w->segments == NULL || w->rows == NULL || w->latches == NULL
               ? gwi_fail(GW_ENOMEM, "memory of %d ranks", w->size)
               : 0;
}

/* A view of all there is, or, with `of`, like another one. */
static int new_view(gwi_whole *w, const gw_memory *of, int n_dims, gw_memory **ret_memory)
{
    gw_memory *memory = calloc(1, sizeof *memory);
    int64_t *numbers = calloc(2 * (size_t)(n_dims > 0 ? n_dims : 1), sizeof *numbers);

    if (memory == NULL || numbers == NULL) {
        free(memory);
        free(numbers);
        return gwi_fail(GW_ENOMEM, "a view of whole memory");
    }
    if (of != NULL) {
        *memory = *of;
        memcpy(numbers, of->shape, 2 * (size_t)n_dims * sizeof *numbers);
    }
    memory->whole = w;
    memory->n_dims = n_dims;
    memory->shape = numbers;
    memory->strides = numbers + n_dims;
    atomic_fetch_add_explicit(&w->users, 1, memory_order_relaxed);
    *ret_memory = memory;
    return 0;
}

static void set_dims(gw_memory *memory, const int64_t *shape, size_t row_entries)
{
    const gwi_whole *w = memory->whole;
    int64_t dense = 1;

    memory->row_entries = row_entries;
    memory->row_bytes = row_entries * w->item_bytes;
    for (int i = memory->n_dims - 1; i >= 0; i--) {
        memory->shape[i] = shape[i];
        memory->strides[i] = i == 0 ? (int64_t)(w->pitch / w->item_bytes) : dense;
        dense *= shape[i];
    }
}

static int open_on(gwi_whole *w, const gw_memory_options *opt, gw_memory **ret_memory)
{
    size_t row_entries = 0;
    gw_memory *memory = NULL;
    int err = check_options(opt, w, &row_entries);

    if (err == 0)
        err = check_nodes(w);
    if (err == 0)
        err = new_lists(w);
    if (err == 0)
        err = new_view(w, NULL, opt->n_dims, &memory);
    err = agree(w, opt, err);
    if (err == 0) {
        set_dims(memory, opt->shape, row_entries);
        count_latches(w);
        err = share_memory(w);
    }
    if (err < 0) {
        if (memory != NULL)
            free(memory->shape);
        free(memory);
        return err;
    }
    *ret_memory = memory;
    return 0;
}

int gw_memory_open(gw_comm *comm, const gw_memory_options *opt, gw_memory **ret_memory)
{
    gw_memory *memory;
    gwi_whole *w = calloc(1, sizeof *w);

    if (w == NULL)
        return gwi_fail(GW_ENOMEM, "whole memory");
    w->comm = comm;
    w->world = comm->world;
    w->rank = comm->rank;
    w->size = comm->size;
    w->generation = comm->world->generation;
    pthread_mutex_init(&w->lock, NULL);
    int err = open_on(w, opt, &memory);
    if (err < 0) {
        free_whole(w);
        return err;
    }
    if (own_bytes(w) > 0)
        gwi_pages_start(&w->pages, w->rows[w->rank], own_bytes(w), 0);
    *ret_memory = memory;
    return 0;
}

void gw_memory_close(gw_memory *memory)
{
    /* A forked child must not touch what it shares with its parent. */
    if (memory == NULL || memory->whole->generation != gwi_fork_generation())
        return;
    gwi_whole *w = memory->whole;
    free(memory->shape);
    free(memory);
    if (atomic_fetch_sub_explicit(&w->users, 1, memory_order_acq_rel) == 1)
        free_whole(w);
}

int gw_memory_sub(const gw_memory *memory, const int64_t *starts, const int64_t *ends,
                  gw_memory **ret_memory)
{
    int64_t shape[GW_MAX_DIMS];
    size_t row_entries = 1, column_entries = 1;
    gw_memory *view = NULL;

    for (int i = 0; i < memory->n_dims; i++) {
        if (starts[i] < 0 || ends[i] < starts[i] || ends[i] > memory->shape[i])
            return gwi_fail(GW_ERANGE, "dimension %d from %lld to %lld; it has %lld entries", i,
                            (long long)starts[i], (long long)ends[i], (long long)memory->shape[i]);
        shape[i] = ends[i] - starts[i];
        if (i > 1 && shape[i] != memory->shape[i])
            return gwi_fail(GW_EUNSUP,
                            "dimension %d from %lld to %lld; only the first two can be cut, so "
                            "that rows stay dense",
                            i, (long long)starts[i], (long long)ends[i]);
        row_entries *= i > 0 ? (size_t)shape[i] : 1;
        column_entries *= i > 1 ? (size_t)shape[i] : 1;
    }
    int err = new_view(memory->whole, memory, memory->n_dims, &view);
    if (err < 0)
        return err;
    view->is_view = 1;
    view->first_row += starts[0];
    if (memory->n_dims > 1)
        view->column_at += (size_t)starts[1] * column_entries * memory->whole->item_bytes;
    set_dims(view, shape, row_entries);
    *ret_memory = view;
    return 0;
}

/* asking */

int gw_memory_get_info(const gw_memory *memory, gw_memory_info *ret_info)
{
    const gwi_whole *w = memory->whole;

    if (ret_info->size_bytes < sizeof *ret_info)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu; set it to sizeof(gw_memory_info)",
                        ret_info->size_bytes);
    *ret_info = (gw_memory_info){.size_bytes = sizeof *ret_info,
                                 .kind = w->kind,
                                 .dtype = w->dtype,
                                 .n_dims = memory->n_dims,
                                 .shape = memory->shape,
                                 .strides = memory->strides,
                                 .rank = w->rank,
                                 .size = w->size,
                                 .spans_nodes = w->spans,
                                 .row_bytes = memory->row_bytes,
                                 .is_view = memory->is_view};
    return 0;
}

int gw_memory_part(const gw_memory *memory, int rank, int64_t *ret_start, int64_t *ret_count)
{
    const gwi_whole *w = memory->whole;

    if (rank < 0 || rank >= w->size)
        return gwi_fail(GW_ERANGE, "rank is %d; ranks go from 0 to %d", rank, w->size - 1);
    int64_t start = w->parts.starts[rank] - memory->first_row;
    int64_t end = w->parts.starts[rank + 1] - memory->first_row;
    start = start < 0 ? 0 : start > memory->shape[0] ? memory->shape[0] : start;
    end = end < start ? start : end > memory->shape[0] ? memory->shape[0] : end;
    *ret_start = start;
    *ret_count = end - start;
    return 0;
}

void *gw_memory_chunk(const gw_memory *memory, int rank)
{
    const gwi_whole *w = memory->whole;
    int64_t start, count;

    if (gw_memory_part(memory, rank, &start, &count) < 0 || w->rows[rank] == NULL)
        return NULL;
    int64_t row = memory->first_row + start - w->parts.starts[rank]; /* of the rank's */
    return w->rows[rank] + (count > 0 ? (size_t)row * w->pitch + memory->column_at : 0);
}

void *gw_memory_global(const gw_memory *memory)
{
    const gwi_whole *w = memory->whole;

    return w->kind != GW_CONTINUOUS
               ? NULL
               : w->rows[0] + (size_t)memory->first_row * w->pitch + memory->column_at;
}
