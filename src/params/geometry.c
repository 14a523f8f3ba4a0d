/* geometry.c - sorts the keys into length classes. */
#include "params/geometry.h"
#include "base/error.h"
#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>

static int check_length(int64_t length, size_t i, size_t n_lengths)
{
    if (length >= 1 && length <= GWI_MAX_LENGTH)
        return 0;
    if (n_lengths == 1)
        return gwi_fail(GW_EINVAL, "lengths is %lld; a vector has 1 to %lld entries",
                        (long long)length, (long long)GWI_MAX_LENGTH);
    return gwi_fail(GW_EINVAL, "lengths[%zu] is %lld; a vector has 1 to %lld entries", i,
                    (long long)length, (long long)GWI_MAX_LENGTH);
}

static int check_arguments(int64_t n_keys, const int64_t *lengths, size_t n_lengths, gw_dtype dtype)
{
    int err = 0;

    if (n_keys < 1 || n_keys > (int64_t)UINT32_MAX - 2)
        return gwi_fail(GW_EINVAL, "num_keys is %lld; it must be from 1 to %lld", (long long)n_keys,
                        (long long)UINT32_MAX - 2);
    if (dtype != GW_F32 && dtype != GW_F64)
        return gwi_fail(GW_ETYPE, "dtype must be float32 or float64");
    if (n_lengths != 1 && n_lengths != (uint64_t)n_keys)
        return gwi_fail(GW_EINVAL,
                        "lengths has %zu entries; give one for all keys, or one for each of the "
                        "%lld keys",
                        n_lengths, (long long)n_keys);
    for (size_t i = 0; i < n_lengths && err == 0; i++)
        err = check_length(lengths[i], i, n_lengths);
    return err;
}

/* `seen`: from a length to its class. */
static int class_of_length(gwi_geometry *g, gwi_hash *seen, int64_t length, uint16_t *ret_class)
{
    uint64_t class = g->n_classes;

    if (!gwi_hash_get(seen, (uint64_t)length, &class)) {
        if (class == GWI_MAX_CLASSES)
            return gwi_fail(GW_EINVAL, "lengths has more than %d different lengths; round some up",
                            GWI_MAX_CLASSES);
        int err = gwi_hash_put(seen, (uint64_t)length, class);
        if (err < 0)
            return err;
        g->classes[g->n_classes++] = (gwi_length_class){
            .length = (uint64_t)length, .row_bytes = (size_t)length * g->item_bytes};
    }
    *ret_class = (uint16_t) class;
    return 0;
}

static int sort_keys(gwi_geometry *g, const int64_t *lengths)
{
    gwi_hash seen;
    int err = 0;

    gwi_hash_init(&seen);
    for (int64_t key = 0; key < g->n_keys && err == 0; key++) {
        err = class_of_length(g, &seen, lengths[key], &g->class_of[key]);
        if (err == 0)
            g->classes[g->class_of[key]].n_keys++;
    }
    gwi_hash_fini(&seen);
    return err;
}

int gwi_geometry_init(gwi_geometry *g, int64_t n_keys, const int64_t *lengths, size_t n_lengths,
                      gw_dtype dtype)
{
    int err = check_arguments(n_keys, lengths, n_lengths, dtype);
    if (err < 0)
        return err;

    *g = (gwi_geometry){.n_keys = n_keys,
                        .dtype = dtype,
                        .item_bytes = dtype == GW_F32 ? sizeof(float) : sizeof(double)};
    g->hash = gwi_hash_bytes(lengths, n_lengths * sizeof *lengths,
                             gwi_hash_u64((uint64_t)n_keys) + g->item_bytes);
    size_t n_classes = n_lengths < GWI_MAX_CLASSES ? n_lengths : GWI_MAX_CLASSES;
    g->classes = calloc(n_classes, sizeof *g->classes);
    if (n_lengths > 1)
        g->class_of = calloc(n_lengths, sizeof *g->class_of);
    if (g->classes == NULL || (n_lengths > 1 && g->class_of == NULL)) {
        err = gwi_fail(GW_ENOMEM, "the lengths of %lld keys", (long long)n_keys);
        goto fini;
    }
    if (n_lengths > 1) {
        err = sort_keys(g, lengths);
        if (err < 0)
            goto fini;
    } else {
        g->n_classes = 1;
        g->classes[0] = (gwi_length_class){.length = (uint64_t)lengths[0],
                                           .row_bytes = (size_t)lengths[0] * g->item_bytes,
                                           .n_keys = (uint64_t)n_keys};
    }
    if (g->n_classes == 1) { /* all lengths were equal */
        free(g->class_of);
        g->class_of = NULL;
    }
    return 0;

fini:
    gwi_geometry_fini(g);
    return err;
}

void gwi_geometry_fini(gwi_geometry *g)
{
    free(g->class_of);
    free(g->classes);
    *g = (gwi_geometry){0};
}

uint64_t gwi_geometry_entries(const gwi_geometry *g, const int64_t *keys, size_t n)
{
    uint64_t sum = 0;

    if (g->class_of == NULL)
        return n * g->classes[0].length;
    for (size_t i = 0; i < n; i++) {
        assert(keys[i] >= 0 && keys[i] < g->n_keys);
        sum += g->classes[g->class_of[keys[i]]].length;
    }
    return sum;
}
