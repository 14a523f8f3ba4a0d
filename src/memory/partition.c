/* partition.c - cutting rows into parts. */
#include "memory/partition.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define N_BUCKETS 4096 /* 8 KB: they stay in the cache */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int set_starts(gwi_partition *p, const int64_t *rows_per_rank)
{
    int64_t each = p->n_rows / p->size + (p->n_rows % p->size != 0), sum = 0;

    for (int r = 0; r < p->size; r++) {
        int64_t n = rows_per_rank != NULL ? rows_per_rank[r] : least(each, p->n_rows - sum);
        if (n < 0)
            return gwi_fail(GW_EINVAL, "rows_per_rank[%d] is %lld; it cannot be below 0", r,
                            (long long)n);
        if (n > p->n_rows - sum)
            return gwi_fail(GW_EINVAL,
                            "rows_per_rank adds up to more than the %lld rows there are, at "
                            "rows_per_rank[%d] = %lld",
                            (long long)p->n_rows, r, (long long)n);
        p->starts[r] = sum;
        sum += n;
    }
    p->starts[p->size] = sum;
    if (sum != p->n_rows)
        return gwi_fail(GW_EINVAL, "rows_per_rank adds up to %lld, but there are %lld rows",
                        (long long)sum, (long long)p->n_rows);
    return 0;
}

static void set_buckets(gwi_partition *p)
{
    int rank = 0;

    for (int64_t b = 0; b << p->shift < p->n_rows; b++) {
        while (b << p->shift >= p->starts[rank + 1])
            rank++;
        p->buckets[b] = (uint16_t)rank;
    }
}

int gwi_partition_init(gwi_partition *p, int64_t n_rows, int size, const int64_t *rows_per_rank)
{
    *p = (gwi_partition){.size = size, .n_rows = n_rows};
    if (size > UINT16_MAX)
        return gwi_fail(GW_EUNSUP, "whole memory of %d ranks; at most %d can share one", size,
                        UINT16_MAX);
    while (n_rows >> p->shift >= N_BUCKETS)
        p->shift++;
    p->starts = calloc((size_t)size + 1, sizeof *p->starts);
    p->buckets = calloc(N_BUCKETS, sizeof *p->buckets);
    if (p->starts == NULL || p->buckets == NULL) {
        gwi_partition_fini(p);
        return gwi_fail(GW_ENOMEM, "the parts of %d ranks", size);
    }
    int err = set_starts(p, rows_per_rank);
    if (err < 0) {
        gwi_partition_fini(p);
        return err;
    }
    set_buckets(p);
    return 0;
}

void gwi_partition_fini(gwi_partition *p)
{
    free(p->starts);
    free(p->buckets);
    *p = (gwi_partition){0};
}
