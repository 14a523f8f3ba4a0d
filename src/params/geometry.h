/* geometry.h - how many keys there are and how long their vectors, by length class.
 *
 * Keys whose vectors are equally long form a class; their vectors lie in one slab.  With
 * one common length there is one class and nothing to look up; otherwise each key has
 * the number of its class, in two bytes.                                             */
#ifndef GWI_PARAMS_GEOMETRY_H
#define GWI_PARAMS_GEOMETRY_H

#include <godwit/base.h>
#include <godwit/dtype.h>

#include <stddef.h>
#include <stdint.h>

#define GWI_MAX_CLASSES 65536
#define GWI_MAX_LENGTH ((int64_t)1 << 31)

typedef struct gwi_length_class {
    uint64_t length;  /* entries */
    size_t row_bytes; /* of one vector */
    uint64_t n_keys;
} gwi_length_class;

/* Set by init, then constant. */
typedef struct gwi_geometry {
    int64_t n_keys;
    gw_dtype dtype;
    size_t item_bytes;
    uint32_t n_classes;
    gwi_length_class *classes; /* owned; in the order of their first keys */
    uint16_t *class_of;        /* owned; by key.  NULL: one class */
    uint64_t hash;             /* of all this: equal on all ranks, or they disagree */
} gwi_geometry;

/* `n_lengths` is 1 or the number of keys.  GW_EINVAL names the argument as the callers
 * of params.h know it. */
int gwi_geometry_init(gwi_geometry *g, int64_t n_keys, const int64_t *lengths, size_t n_lengths,
                      gw_dtype dtype);
void gwi_geometry_fini(gwi_geometry *g); /* zeros and a second time are fine */

static inline const gwi_length_class *gwi_geometry_class(const gwi_geometry *g, int64_t key)
{
    return &g->classes[g->class_of == NULL ? 0 : g->class_of[key]];
}

/* How many entries the vectors of these keys have together.  The keys are in range. */
uint64_t gwi_geometry_entries(const gwi_geometry *g, const int64_t *keys, size_t n);

#endif
