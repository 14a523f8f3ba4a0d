/* fill.c - what is done to all rows at once: fill and copy, each rank its own. */
#include "base/error.h"
#include "comm/reduce.h"
#include "memory/convert.h"
#include "memory/memory.h"
#include "memory/walk.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)1 << 20) /* of rows copied at a time */

/* One row with the value in each entry, in the memory's type. */
static int make_row(const gw_memory *memory, const void *value, gw_dtype dtype, void **ret_row)
{
    size_t item = memory->whole->item_bytes;
    gwi_convert *convert = gwi_converter(memory->whole->dtype, dtype);
    _Alignas(16) unsigned char from[16], one[16];
    unsigned char *row = malloc(memory->row_bytes > 0 ? memory->row_bytes : 1);

    if (row == NULL)
        return gwi_fail(GW_ENOMEM, "a row of %zu bytes", memory->row_bytes);
    memcpy(from, value, gwi_dtype_bytes(dtype));
    if (convert != NULL)
        convert(one, from, 1);
    else
        memcpy(one, from, item);
    for (size_t i = 0; i < memory->row_entries; i++)
        memcpy(row + i * item, one, item);
    *ret_row = row;
    return 0;
}

int gw_memory_fill(gw_memory *memory, const void *value, gw_dtype dtype)
{
    const gwi_whole *w = memory->whole;
    int64_t start, count;
    void *row = NULL;
    int err = 0;

    if (value == NULL || (unsigned)dtype >= GW_N_DTYPES)
        err = gwi_fail(GW_EINVAL, "value is NULL, or dtype %d is no type", (int)dtype);
    if (err == 0)
        err = make_row(memory, value, dtype, &row);
    err = gwi_memory_agree(w->comm, err, "could not fill the memory");
    if (err == 0 && memory->row_bytes > 0) {
        gw_memory_part(memory, w->rank, &start, &count);
        unsigned char *to = gw_memory_chunk(memory, w->rank);
        for (int64_t i = 0; i < count; i++)
            memcpy(to + (size_t)i * w->pitch, row, memory->row_bytes);
    }
    free(row);
    return err < 0 ? err : gw_comm_barrier(w->comm);
}

/* copying */

static int check_copy(const gw_memory *to, const gw_memory *from)
{
    if (to->whole->comm != from->whole->comm)
        return gwi_fail(GW_EINVAL, "the two memories have different groups");
    if (to->n_dims != from->n_dims)
        return gwi_fail(GW_EINVAL, "the two memories have %d and %d dimensions", to->n_dims,
                        from->n_dims);
    for (int i = 0; i < to->n_dims; i++)
        if (to->shape[i] != from->shape[i])
            return gwi_fail(GW_EINVAL,
                            "the two memories have %lld and %lld entries along "
                            "dimension %d",
                            (long long)to->shape[i], (long long)from->shape[i], i);
    return 0;
}

/* A memory whose rows all lie here as in `to` could be copied in place, but this one way is
 * good for all: gather blocks of our rows of `to` from `from`. */
struct copying {
    gw_memory *to, *from;
    int64_t *rows;
    unsigned char *values;
    int64_t start, count, block;
};

static int copy_block(struct copying *c, int64_t b)
{
    const gwi_whole *w = c->to->whole;
    int64_t at = b * c->block, left = c->count - at;
    int64_t n = left < 0 ? 0 : left < c->block ? left : c->block;

    for (int64_t i = 0; i < n; i++)
        c->rows[i] = c->start + at + i;
    int err = gw_memory_gather(c->from, (gw_indices){c->rows, (size_t)n, GW_I64}, c->values,
                               w->dtype);
    unsigned char *to = gw_memory_chunk(c->to, w->rank);
    for (int64_t i = 0; i < n && err == 0; i++)
        memcpy(to + (size_t)(at + i) * w->pitch, c->values + (size_t)i * c->to->row_bytes,
               c->to->row_bytes);
    return err;
}

static int64_t most_rows(const gw_memory *memory)
{
    int64_t most = 0, start, count;

    for (int r = 0; r < memory->whole->size; r++) {
        gw_memory_part(memory, r, &start, &count);
        most = count > most ? count : most;
    }
    return most;
}

int gw_memory_copy(gw_memory *to, gw_memory *from)
{
    gwi_whole *w = to->whole;
    struct copying c = {.to = to, .from = from};
    size_t row_bytes = to->row_bytes > 0 ? to->row_bytes : 1;
    int err = check_copy(to, from);

    c.block = row_bytes < BLOCK_BYTES ? (int64_t)(BLOCK_BYTES / row_bytes) : 1;
    c.rows = malloc((size_t)c.block * sizeof *c.rows);
    c.values = malloc((size_t)c.block * row_bytes);
    if (err == 0 && (c.rows == NULL || c.values == NULL))
        err = gwi_fail(GW_ENOMEM, "a block of %lld rows", (long long)c.block);
    err = gwi_memory_agree(w->comm, err, "could not copy the memory");
    gw_memory_part(to, w->rank, &c.start, &c.count);
    for (int64_t b = 0; err == 0 && b * c.block < most_rows(to); b++)
        err = copy_block(&c, b);
    free(c.rows);
    free(c.values);
    return err < 0 ? err : gw_comm_barrier(w->comm);
}
