/* part.h - one file of a checkpoint: some keys and their vectors, as safetensors.
 *
 *     keys     I64 [n]            values     F32 or F64 [n, length]        one length
 *     keys.16  I64 [n]            values.16  F32 or F64 [n, 16]            several
 *     keys.64  ...
 *
 * Row i of `values` is the vector of the key in row i of `keys`.  All keys come first, then
 * all vectors.  The metadata names the save that wrote it, so that parts of two checkpoints
 * are not mixed up.
 *
 * Owning   read() gives to the caller, fini() takes back.
 * Failing  With a sentence that names the file.                                       */
#ifndef GWI_PARAMS_PART_H
#define GWI_PARAMS_PART_H

#include "params/geometry.h"
#include "params/safetensors.h"

/* Of one length. */
typedef struct gwi_part_class {
    uint64_t length, n_keys;
    uint64_t keys_at, values_at; /* in bytes from the file's beginning */
} gwi_part_class;

typedef struct gwi_part_file {
    gwi_part_class *classes; /* owned */
    size_t n_classes;
    gw_dtype dtype;
    uint64_t n_keys;
    uint64_t head_bytes; /* what comes before the keys */
    uint64_t n_bytes;    /* of the file */
} gwi_part_file;

/* Work out places for classes whose `length` and `n_keys` are set, and make the head, which is
 * given to the caller (free() it), `head_bytes` long. */
int gwi_part_plan(gwi_part_file *part, gw_dtype dtype, int several_lengths, const char *save,
                  char **ret_head);

/* Read and check the head of a file that should have `n_bytes`, of the save `save`. */
int gwi_part_read(int fd, const char *path, uint64_t n_bytes, const char *save,
                  gwi_part_file *ret_part);

/* The same of a head in memory, which tells nothing of files: "its head ..." */
int gwi_part_parse(const char *head, size_t head_bytes, uint64_t n_bytes, const char *save,
                   gwi_part_file *ret_part);

void gwi_part_fini(gwi_part_file *part);

#endif
