/* distributed.c - exchanges of rows between ranks.
 *
 * Everything that one call needs lies in rooms of the memory, by rank one after the other:
 *
 *     rows_out   numbers of the rows that we ask for; those of rank r from at_out[r] on, and
 *                those that we reach in place last
 *     at_out     for each of them, where in the caller's buffer it belongs
 *     rows_in    numbers of the rows that others ask of us
 *     values_*   the values that go with them, in the memory's type; a gather has a window of
 *                blocks for each rank, which are used again and again                  */
#include "memory/distributed.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/envelope.h"
#include "comm/reduce.h"
#include "memory/convert.h"
#include "memory/walk.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)64 << 10) /* what is read, sent and put in place at a time */
#define WINDOW 4 /* blocks of a gather with a rank, each way: they fit a cache */
#define ROWS_TAG (GWI_LIBRARY_TAG + 0x6d0)
#define VALUES_TAG (GWI_LIBRARY_TAG + 0x6d1)

enum what { GATHER = 1, SCATTER, SCATTER_ADD, TO_OWNERS };

static const char *const names[] = {"?", "gather", "scatter", "scatter_add", "step"};

/* What each rank tells every other. */
struct ask {
    int64_t code; /* of the call; all have the same */
    int64_t n;    /* rows; -1: the caller was refused */
};

struct exchange {
    gw_memory *memory;
    gwi_whole *whole;
    enum what what;
    size_t row_bytes, block; /* rows in a block */
    struct ask *out, *in;    /* by rank, as the next five */
    size_t *at_out, *at_in;
    size_t **cursors; /* where in rows_out the next row of a rank goes */
    gw_request **index_out, **index_in;
    gw_request **values_out, **values_in; /* by block, rank after rank */
    size_t *first_out, *first_in;         /* by rank: the first of its blocks */
    size_t near_at, n_near, next_near;    /* in rows_out: rows reached in place */
    int only_near;                        /* 1 + the rank that has them; 0: several may */
    size_t n_in;
    size_t n_requests; /* all of them lie in one array, from index_out on */
};

/* Whether rows of a rank travel. */
static int is_far(const struct exchange *x, int rank)
{
    return x->what == TO_OWNERS ? rank != x->whole->rank : x->whole->rows[rank] == NULL;
}

/* ... or are kept for us among what arrives. */
static int is_kept(const struct exchange *x, int rank)
{
    return x->what == TO_OWNERS && rank == x->whole->rank;
}

static int64_t *rows_out(const struct exchange *x)
{
    return x->whole->rows_out.bytes;
}

static int64_t *rows_in(const struct exchange *x)
{
    return x->whole->rows_in.bytes;
}

static uint32_t *places(const struct exchange *x)
{
    return x->whole->at_out.bytes;
}

static unsigned char *sent_values(const struct exchange *x, size_t row)
{
    return (unsigned char *)x->whole->values_out.bytes + row * x->row_bytes;
}

static unsigned char *come_values(const struct exchange *x, size_t row)
{
    return (unsigned char *)x->whole->values_in.bytes + row * x->row_bytes;
}

/* The block of a gather in the window of a rank. */
static unsigned char *window_of(const struct exchange *x, const gwi_room *room, int r, size_t b)
{
    size_t index = (size_t)r * WINDOW + b % WINDOW;

    return (unsigned char *)room->bytes + index * x->block * x->row_bytes;
}

static size_t n_blocks(const struct exchange *x, int64_t n)
{
    return ((size_t)n + x->block - 1) / x->block;
}

static size_t block_rows(const struct exchange *x, int64_t n, size_t b)
{
    size_t left = (size_t)n - b * x->block;

    return left < x->block ? left : x->block;
}

/* beginning */

static int new_lists(struct exchange *x)
{
    size_t size = (size_t)x->whole->size;

    x->out = calloc(size, 2 * sizeof *x->out + 4 * sizeof *x->at_out + sizeof *x->cursors);
    if (x->out == NULL)
        return gwi_fail(GW_ENOMEM, "an exchange between %zu ranks", size);
    x->in = x->out + size;
    x->at_out = (size_t *)(void *)(x->in + size);
    x->at_in = x->at_out + size;
    x->first_out = x->at_in + size;
    x->first_in = x->first_out + size;
    x->cursors = (size_t **)(void *)(x->first_in + size);
    return 0;
}

/* Sort the indices by owner. */
static int split(struct exchange *x, gw_indices indices)
{
    gwi_whole *w = x->whole;
    int64_t first = x->memory->first_row;
    size_t sum = 0;
    int n_owners = 0, err = gwi_room_need(&w->rows_out, indices.n * sizeof(int64_t));

    if (err == 0)
        err = gwi_room_need(&w->at_out, indices.n * sizeof(uint32_t));
    if (err < 0)
        return err;
    for (size_t i = 0; i < indices.n; i++)
        x->out[gwi_partition_owner(&w->parts, first + gwi_index_at(indices, i))].n++;
    for (int r = 0; r < w->size; r++) {
        x->at_out[r] = sum;
        if (is_far(x, r) || is_kept(x, r)) {
            x->cursors[r] = &x->at_out[r];
            sum += (size_t)x->out[r].n;
        } else {
            x->cursors[r] = &x->next_near;
            x->n_near += (size_t)x->out[r].n;
            if (x->out[r].n > 0) {
                n_owners++;
                x->only_near = 1 + r;
            }
            x->out[r].n = 0;
        }
    }
    x->only_near = n_owners == 1 ? x->only_near : 0;
    x->near_at = x->next_near = sum;
    /* Owners come in any order, so there is no jump that depends on them. */
    int64_t *rows = rows_out(x);
    uint32_t *at = places(x);
    for (size_t i = 0; i < indices.n; i++) {
        int64_t row = first + gwi_index_at(indices, i);
        size_t next = (*x->cursors[gwi_partition_owner(&w->parts, row)])++;
        rows[next] = row;
        at[next] = (uint32_t)i;
    }
    for (int r = 0; r < w->size; r++)
        x->at_out[r] -= (size_t)x->out[r].n;
    return 0;
}

/* Calls that can go together: of one kind, on one memory, and the same columns of it. */
static int64_t code_of(const struct exchange *x)
{
    const uint64_t all[] = {x->what, (uint64_t)x->whole->number, x->memory->column_at,
                            x->row_bytes};

    return (int64_t)(gwi_hash_bytes(all, sizeof all, 0) & ~UINT64_C(7)) | x->what;
}

static int compare(const struct exchange *x)
{
    const gwi_whole *w = x->whole;

    for (int r = 0; r < w->size; r++) {
        int rank = w->comm->ranks[r];
        if (x->in[r].code == x->out[r].code && x->in[r].n >= 0)
            continue;
        if (x->in[r].code == x->out[r].code)
            return gwi_fail(GW_EDISAGREE,
                            "rank %d was refused its arguments, so nobody does "
                            "this %s",
                            rank, names[x->what]);
        int theirs = (int)(x->in[r].code & 7);
        if (theirs == (int)x->what)
            return gwi_fail(GW_EDISAGREE,
                            "rank %d calls %s of another memory, or of other columns, than rank "
                            "%d does",
                            rank, names[theirs], w->comm->ranks[w->rank]);
        return gwi_fail(GW_EDISAGREE,
                        "rank %d calls %s while rank %d calls %s of a distributed "
                        "memory; all ranks of its group must call the same",
                        rank, names[theirs <= TO_OWNERS ? theirs : 0], w->comm->ranks[w->rank],
                        names[x->what]);
    }
    return 0;
}

/* Tell how many rows we want of whom, and hear the same. */
static int ask_all(struct exchange *x, int refused)
{
    gwi_whole *w = x->whole;
    int64_t code = code_of(x);

    for (int r = 0; r < w->size; r++) {
        x->out[r].code = code;
        x->out[r].n = refused < 0 ? -1 : x->out[r].n;
    }
    /* The refusal's sentence is kept by calling nothing that fails. */
    int err = gw_comm_alltoall(w->comm, x->out, x->in, sizeof(struct ask) / sizeof(int64_t),
                               GW_I64);
    if (refused < 0)
        return refused;
    return err < 0 ? err : compare(x);
}

static int make_room(struct exchange *x)
{
    gwi_whole *w = x->whole;
    size_t n_out = x->near_at, size = (size_t)w->size, blocks_out = 0, blocks_in = 0;
    size_t windows = size * WINDOW * x->block;
    int reads = x->what == GATHER, err;

    x->n_in = 0;
    for (int r = 0; r < w->size; r++) {
        x->at_in[r] = x->n_in;
        x->n_in += (size_t)x->in[r].n;
        x->first_out[r] = blocks_out;
        x->first_in[r] = blocks_in;
        blocks_out += n_blocks(x, x->out[r].n);
        blocks_in += n_blocks(x, x->in[r].n);
    }
    size_t n_requests = 2 * size + blocks_out + blocks_in;
    if ((err = gwi_room_need(&w->rows_in, x->n_in * sizeof(int64_t))) < 0 ||
        (err = gwi_room_need(&w->values_out, (reads ? windows : n_out) * x->row_bytes)) < 0 ||
        (err = gwi_room_need(&w->values_in, (reads ? windows : x->n_in) * x->row_bytes)) < 0 ||
        (err = gwi_room_need(&w->requests, n_requests * sizeof(gw_request *))) < 0)
        return err;
    x->n_requests = n_requests;
    x->index_out = w->requests.bytes;
    memset(x->index_out, 0, x->n_requests * sizeof(gw_request *));
    x->index_in = x->index_out + size;
    x->values_out = x->index_in + size;
    x->values_in = x->values_out + blocks_out;
    return 0;
}

/* The numbers of rows go out, and those that others want come in. */
static int send_rows(struct exchange *x)
{
    gwi_whole *w = x->whole;
    int err = 0;

    for (int r = 0; r < w->size && err == 0; r++)
        if (is_far(x, r) && x->in[r].n > 0)
            err = gw_comm_irecv(w->comm, rows_in(x) + x->at_in[r], (size_t)x->in[r].n, GW_I64, r,
                                ROWS_TAG, &x->index_in[r]);
    for (int r = 0; r < w->size && err == 0; r++)
        if (is_far(x, r) && x->out[r].n > 0)
            err = gw_comm_isend(w->comm, rows_out(x) + x->at_out[r], (size_t)x->out[r].n, GW_I64, r,
                                ROWS_TAG, 0, NULL, &x->index_out[r]);
    return err;
}

/* Start to receive blocks of values from a rank, `n` rows in all, from row `at` on. */
static int receive_values(struct exchange *x, int r, int64_t n, size_t at, gw_request **requests)
{
    int err = 0;

    for (size_t b = 0; b < n_blocks(x, n) && err == 0; b++)
        err = gw_comm_irecv(x->whole->comm, come_values(x, at + b * x->block),
                            block_rows(x, n, b) * x->row_bytes, GW_U8, r, VALUES_TAG, &requests[b]);
    return err;
}

static int begin(struct exchange *x, gw_memory *memory, enum what what, gw_indices indices,
                 int refused)
{
    int err;

    *x = (struct exchange){.memory = memory,
                           .whole = memory->whole,
                           .what = what,
                           .row_bytes = memory->row_bytes,
                           .block = memory->row_bytes < BLOCK_BYTES / 2 && memory->row_bytes > 0
                                        ? BLOCK_BYTES / memory->row_bytes
                                        : 1};
    err = new_lists(x);
    if (err < 0)
        return err; /* the others wait for us in vain, and time out */
    if (refused == 0)
        refused = split(x, indices);
    if ((err = ask_all(x, refused)) < 0 || (err = make_room(x)) < 0)
        return err;
    return send_rows(x);
}

static int finish(struct exchange *x, int err)
{
    for (size_t i = 0; i < x->n_requests && err == 0; i++)
        if (x->index_out[i] != NULL)
            err = gw_request_wait(&x->index_out[i], NULL);
    for (size_t i = 0; i < x->n_requests && err < 0; i++)
        gw_request_cancel(&x->index_out[i]);
    free(x->out);
    return err;
}

/* Wait for the numbers of the rows that a rank wants of us, and look at them. */
static int await_rows(struct exchange *x, int r)
{
    const gwi_whole *w = x->whole;
    const int64_t *rows = rows_in(x) + x->at_in[r];
    int64_t first = w->parts.starts[w->rank], end = w->parts.starts[w->rank + 1];
    int err = gw_request_wait(&x->index_in[r], NULL);

    for (int64_t i = 0; i < x->in[r].n && err == 0; i++)
        if (rows[i] < first || rows[i] >= end)
            err = gwi_fail(GW_EBROKEN, "rank %d asks for row %lld, which is not one of rank %d",
                           w->comm->ranks[r], (long long)rows[i], w->comm->ranks[w->rank]);
    return err;
}

/* Rows that others ask for, or bring: ours. */
static gwi_steps own_steps(const struct exchange *x, size_t at, size_t n)
{
    return (gwi_steps){.indices = {rows_in(x) + at, n, GW_I64}, .only = 1 + x->whole->rank};
}

static gwi_steps near_steps(const struct exchange *x)
{
    return (gwi_steps){.indices = {rows_out(x) + x->near_at, x->n_near, GW_I64},
                       .at = places(x) + x->near_at,
                       .only = x->only_near};
}

/* gathering */

/* What arrives, and where in the caller's array it goes. */
struct arrival {
    int rank;     /* whose blocks come now */
    size_t block; /* of it, the next one */
    unsigned char *out;
    size_t out_bytes; /* of a row there */
    gwi_convert *convert;
};

static int receive_block(struct exchange *x, int r, size_t b)
{
    return gw_comm_irecv(x->whole->comm, window_of(x, &x->whole->values_in, r, b),
                         block_rows(x, x->out[r].n, b) * x->row_bytes, GW_U8, r, VALUES_TAG,
                         &x->values_out[x->first_out[r] + b]);
}

static void place(const struct exchange *x, const struct arrival *a)
{
    const unsigned char *from = window_of(x, &x->whole->values_in, a->rank, a->block);
    const uint32_t *at = places(x) + x->at_out[a->rank] + a->block * x->block;
    size_t n = block_rows(x, x->out[a->rank].n, a->block);

    if (a->convert == NULL)
        gwi_rows_place(a->out, from, at, n, x->row_bytes);
    for (size_t i = 0; i < n && a->convert != NULL; i++)
        a->convert(a->out + at[i] * a->out_bytes, from + i * x->row_bytes, x->memory->row_entries);
}

/* Put in place what is there; or, if it `waits`, everything.  A block of the window that is free
 * again is given to the next one. */
static int take_values(struct exchange *x, struct arrival *a, int waits)
{
    for (; a->rank < x->whole->size; a->rank++, a->block = 0) {
        int64_t n = is_far(x, a->rank) ? x->out[a->rank].n : 0;
        for (; a->block < n_blocks(x, n); a->block++) {
            gw_request **request = &x->values_out[x->first_out[a->rank] + a->block];
            int done = waits ? gw_request_wait(request, NULL) : gw_request_test(request, NULL);
            if (done < 0 || (!waits && done == 0))
                return done;
            place(x, a);
            if (a->block + WINDOW < n_blocks(x, n) &&
                (done = receive_block(x, a->rank, a->block + WINDOW)) < 0)
                return done;
        }
    }
    return 0;
}

/* Read what a rank asked for and send it. */
static int serve(struct exchange *x, int r, struct arrival *a)
{
    gw_request **sends = &x->values_in[x->first_in[r]];
    int err = x->in[r].n > 0 ? await_rows(x, r) : 0;

    for (size_t b = 0; b < n_blocks(x, x->in[r].n) && err == 0; b++) {
        size_t n = block_rows(x, x->in[r].n, b);
        unsigned char *values = window_of(x, &x->whole->values_out, r, b);
        /* While it waits what others send comes in, so they can go on. */
        if (b >= WINDOW && sends[b - WINDOW] != NULL)
            err = gw_request_wait(&sends[b - WINDOW], NULL);
        if (err < 0)
            break;
        gwi_rows_read(x->memory, own_steps(x, x->at_in[r] + b * x->block, n), values,
                      x->whole->dtype);
        err = gw_comm_isend(x->whole->comm, values, n * x->row_bytes, GW_U8, r, VALUES_TAG, 0, NULL,
                            &sends[b]);
        if (err == 0)
            err = take_values(x, a, 0);
    }
    return err < 0 ? err : 0;
}

static int gather(struct exchange *x, void *out, gw_dtype dtype)
{
    gwi_whole *w = x->whole;
    struct arrival a = {.out = out,
                        .out_bytes = x->memory->row_entries * gwi_dtype_bytes(dtype),
                        .convert = gwi_converter(dtype, w->dtype)};
    int err = 0;

    for (int r = 0; r < w->size && err == 0 && x->row_bytes > 0; r++)
        for (size_t b = 0; is_far(x, r) && b < WINDOW && b < n_blocks(x, x->out[r].n) && err == 0;
             b++)
            err = receive_block(x, r, b);
    if (err < 0)
        return err;
    gwi_rows_read(x->memory, near_steps(x), out, dtype);
    /* Each begins with another one, so that not all ask the same first. */
    for (int i = 1; i < w->size && err == 0 && x->row_bytes > 0; i++) {
        int r = (w->rank + i) % w->size;
        if (is_far(x, r))
            err = serve(x, r, &a);
    }
    return err < 0 || x->row_bytes == 0 ? err : take_values(x, &a, 1);
}

int gwi_distributed_gather(gw_memory *memory, gw_indices indices, void *out, gw_dtype dtype,
                           int refused)
{
    struct exchange x;

    pthread_mutex_lock(&memory->whole->lock);
    int err = begin(&x, memory, GATHER, indices, refused);
    if (err == 0)
        err = gather(&x, out, dtype);
    err = finish(&x, err);
    pthread_mutex_unlock(&memory->whole->lock);
    return err;
}

/* scattering */

static int send_values(struct exchange *x, int r, const unsigned char *values, gw_dtype dtype)
{
    size_t in_bytes = x->memory->row_entries * gwi_dtype_bytes(dtype);
    gwi_convert *convert = gwi_converter(x->whole->dtype, dtype);
    int err = 0;

    for (size_t b = 0; b < n_blocks(x, x->out[r].n) && err == 0; b++) {
        size_t n = block_rows(x, x->out[r].n, b), at = x->at_out[r] + b * x->block;
        if (convert == NULL)
            gwi_rows_pick(sent_values(x, at), values, places(x) + at, n, x->row_bytes);
        for (size_t i = at; i < at + n && convert != NULL; i++)
            convert(sent_values(x, i), values + places(x)[i] * in_bytes, x->memory->row_entries);
        if (is_far(x, r))
            err = gw_comm_isend(x->whole->comm, sent_values(x, at), n * x->row_bytes, GW_U8, r,
                                VALUES_TAG, 0, NULL, &x->values_out[x->first_out[r] + b]);
    }
    return err;
}

/* Receive from all and send to all. */
static int exchange_values(struct exchange *x, const void *values, gw_dtype dtype)
{
    gwi_whole *w = x->whole;
    int err = 0;

    for (int r = 0; r < w->size && err == 0 && x->row_bytes > 0; r++)
        if (is_far(x, r))
            err = receive_values(x, r, x->in[r].n, x->at_in[r], &x->values_in[x->first_in[r]]);
    for (int i = 1; i <= w->size && err == 0 && x->row_bytes > 0; i++) {
        int r = (w->rank + i) % w->size;
        if (is_far(x, r) || is_kept(x, r))
            err = send_values(x, r, values, dtype);
    }
    return err;
}

static int write_arrived(struct exchange *x, int r)
{
    int err = x->in[r].n > 0 ? await_rows(x, r) : 0;

    for (size_t b = 0; b < n_blocks(x, x->in[r].n) && err == 0; b++) {
        size_t n = block_rows(x, x->in[r].n, b), at = x->at_in[r] + b * x->block;
        gwi_steps steps = own_steps(x, at, n);
        err = x->row_bytes > 0 ? gw_request_wait(&x->values_in[x->first_in[r] + b], NULL) : 0;
        if (err == 0 && x->what == SCATTER_ADD)
            err = gwi_rows_add(x->memory, steps, come_values(x, at), x->whole->dtype);
        else if (err == 0)
            gwi_rows_write(x->memory, steps, come_values(x, at), x->whole->dtype);
    }
    return err;
}

static int scatter(struct exchange *x, const void *values, gw_dtype dtype)
{
    gwi_whole *w = x->whole;
    int err = exchange_values(x, values, dtype);

    if (err == 0 && x->what == SCATTER_ADD)
        err = gwi_rows_add(x->memory, near_steps(x), values, dtype);
    else if (err == 0)
        gwi_rows_write(x->memory, near_steps(x), values, dtype);
    for (int r = 0; r < w->size && err == 0; r++)
        if (is_far(x, r))
            err = write_arrived(x, r);
    return err;
}

int gwi_distributed_scatter(gw_memory *memory, gw_indices indices, const void *values,
                            gw_dtype dtype, int adds, int refused)
{
    struct exchange x;

    pthread_mutex_lock(&memory->whole->lock);
    int err = begin(&x, memory, adds ? SCATTER_ADD : SCATTER, indices, refused);
    if (err == 0)
        err = scatter(&x, values, dtype);
    err = finish(&x, err);
    if (err == 0) /* who reads in place afterwards sees what others wrote */
        err = gw_comm_barrier(memory->whole->comm);
    pthread_mutex_unlock(&memory->whole->lock);
    return err;
}

/* to owners */

static int keep_own(struct exchange *x)
{
    int r = x->whole->rank;
    size_t n = (size_t)x->out[r].n;

    memcpy(rows_in(x) + x->at_in[r], rows_out(x) + x->at_out[r], n * sizeof(int64_t));
    memcpy(come_values(x, x->at_in[r]), sent_values(x, x->at_out[r]), n * x->row_bytes);
    return 0;
}

int gwi_bring_to_owners(gw_memory *memory, gw_indices indices, const void *values, int refused,
                        gwi_arrivals *ret_arrivals)
{
    gwi_whole *w = memory->whole;
    struct exchange x;
    int err = begin(&x, memory, TO_OWNERS, indices, refused);

    if (err == 0)
        err = exchange_values(&x, values, w->dtype);
    if (err == 0 && x.out[w->rank].n > 0)
        err = keep_own(&x);
    for (int r = 0; r < w->size && err == 0; r++)
        if (is_far(&x, r) && x.in[r].n > 0)
            err = await_rows(&x, r);
    gwi_arrivals arrivals = {0};
    if (err == 0)
        arrivals = (gwi_arrivals){rows_in(&x), come_values(&x, 0), x.n_in};
    err = finish(&x, err);
    if (err == 0)
        *ret_arrivals = arrivals;
    return err;
}
