/* safetensors.h - the head of a safetensors file: which arrays it holds, and where.
 *
 *     8 bytes: length of the head | head, JSON | the arrays, one behind the other
 *
 *     {"__metadata__": {"name": "text", ...},
 *      "values": {"dtype": "F32", "shape": [250, 64], "data_offsets": [2000, 66000]}, ...}
 *
 * This reads what the format allows, with limits: arrays of at most two dimensions, of the
 * three types that checkpoints have.  As the format demands, the arrays fill the file without
 * gap or overlap.
 *
 * Owning   parse() gives the list to the caller, fini() takes it back.
 * Failing  GW_EINVAL with a sentence that does not name the file: the caller knows it. */
#ifndef GWI_PARAMS_SAFETENSORS_H
#define GWI_PARAMS_SAFETENSORS_H

#include <godwit/base.h>
#include <godwit/dtype.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define GWI_SAFETENSORS_HEAD 8
#define GWI_SAFETENSORS_MOST ((uint64_t)64 << 20) /* bytes of a head; others allow 100 MB */

typedef struct gwi_tensor {
    char name[64];
    gw_dtype dtype; /* GW_F32, GW_F64 or GW_I64 */
    int n_dims;     /* 1 or 2 */
    int64_t shape[2];
    uint64_t begin, end; /* in bytes behind the head */
} gwi_tensor;

typedef struct gwi_safetensors {
    gwi_tensor *tensors; /* owned; in the order of their places */
    size_t n;
    char mark[64]; /* the text in the metadata that was asked for; "": none */
} gwi_safetensors;

/* `head` are the bytes behind the first eight; `data_bytes` those that follow it in the file. */
int gwi_safetensors_parse(const char *head, size_t head_bytes, uint64_t data_bytes,
                          const char *mark_name, gwi_safetensors *ret_st);
void gwi_safetensors_fini(gwi_safetensors *st);

/* One entry of a head that is being written. */
void gwi_safetensors_print(FILE *to, const gwi_tensor *tensor);

const char *gwi_safetensors_dtype(gw_dtype dtype);
size_t gwi_safetensors_item(gw_dtype dtype);

#endif
