/* access.c - gather, scatter and scatter-add: checked, then done in place or by messages. */
#include "base/error.h"
#include "base/platform.h"
#include "comm/reduce.h"
#include "memory/distributed.h"
#include "memory/memory.h"
#include "memory/walk.h"

/* Entries of type T that are not rows show in one bit, without jumps. */
#define DEFINE_ANY_BAD(T, U)                                                 \
    static int any_bad_##T(const T *indices, size_t n, int64_t n_rows)       \
    {                                                                        \
        U limit = n_rows > (int64_t)((U)-1 / 2) ? (U)-1 / 2 + 1 : (U)n_rows; \
        int bad = 0;                                                         \
                                                                             \
        for (size_t i = 0; i < n; i++)                                       \
            bad |= (U)indices[i] >= limit;                                   \
        return bad;                                                          \
    }

DEFINE_ANY_BAD(int32_t, uint32_t)
DEFINE_ANY_BAD(int64_t, uint64_t)

static int name_bad(const gw_memory *memory, gw_indices indices)
{
    int64_t n_rows = memory->shape[0];

    for (size_t i = 0; i < indices.n; i++) {
        int64_t row = gwi_index_at(indices, i);
        if (row >= 0 && row < n_rows)
            continue;
        if (n_rows == 0)
            return gwi_fail(GW_ERANGE, "indices[%zu] is %lld; there are no rows", i,
                            (long long)row);
        return gwi_fail(GW_ERANGE, "indices[%zu] is %lld; rows go from 0 to %lld", i,
                        (long long)row, (long long)n_rows - 1);
    }
    return gwi_fail(GW_ERANGE, "indices changed while they were looked at");
}

int gwi_check_indices(const gw_memory *memory, gw_indices indices)
{
    int bad;

    if (indices.dtype != GW_I32 && indices.dtype != GW_I64)
        return gwi_fail(GW_ETYPE, "indices are %s; they must be int32 or int64",
                        (unsigned)indices.dtype < GW_N_DTYPES ? gwi_dtype_name(indices.dtype)
                                                              : "of no known type");
    if (indices.data == NULL && indices.n > 0)
        return gwi_fail(GW_EINVAL, "indices is NULL, with n %zu", indices.n);
    if (indices.n > UINT32_MAX)
        return gwi_fail(GW_EUNSUP, "%zu indices at a time; at most %u are possible", indices.n,
                        UINT32_MAX);
    bad = indices.dtype == GW_I64 ? any_bad_int64_t(indices.data, indices.n, memory->shape[0])
                                  : any_bad_int32_t(indices.data, indices.n, memory->shape[0]);
    return gwi_likely(!bad) ? 0 : name_bad(memory, indices);
}

static int check(const gw_memory *memory, gw_indices indices, const void *values, gw_dtype dtype)
{
    if ((unsigned)dtype >= GW_N_DTYPES)
        return gwi_fail(GW_ETYPE, "dtype is %d, which is no type", (int)dtype);
    if (values == NULL && indices.n > 0 && memory->row_entries > 0)
        return gwi_fail(GW_EINVAL, "the buffer of %zu rows is NULL", indices.n);
    return gwi_check_indices(memory, indices);
}

static gwi_steps steps_of(const gw_memory *memory, gw_indices indices)
{
    return (gwi_steps){.indices = indices, .first_row = memory->first_row};
}

int gw_memory_gather(gw_memory *memory, gw_indices indices, void *out, gw_dtype dtype)
{
    int err = check(memory, indices, out, dtype);

    if (memory->whole->spans)
        return gwi_distributed_gather(memory, indices, out, dtype, err);
    if (err == 0)
        gwi_rows_read(memory, steps_of(memory, indices), out, dtype);
    return err;
}

int gw_memory_scatter(gw_memory *memory, gw_indices indices, const void *values, gw_dtype dtype)
{
    int err = check(memory, indices, values, dtype);

    if (memory->whole->spans)
        return gwi_distributed_scatter(memory, indices, values, dtype, 0, err);
    if (err == 0)
        gwi_rows_write(memory, steps_of(memory, indices), values, dtype);
    return err;
}

int gw_memory_scatter_add(gw_memory *memory, gw_indices indices, const void *values, gw_dtype dtype)
{
    int err = check(memory, indices, values, dtype);

    if (memory->whole->spans)
        return gwi_distributed_scatter(memory, indices, values, dtype, 1, err);
    return err < 0 ? err : gwi_rows_add(memory, steps_of(memory, indices), values, dtype);
}
