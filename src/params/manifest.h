/* manifest.h - checkpoint.json: what a checkpoint consists of.
 *
 * It is written last, and what it does not name does not count.  Its last entry is the sum of
 * all bytes before it, so that damage to it is noticed as well.
 *
 * Owning   read() and parse() give to the caller, fini() takes back.
 * Failing  Reading says which file; parse() speaks of "it".                           */
#ifndef GWI_PARAMS_MANIFEST_H
#define GWI_PARAMS_MANIFEST_H

#include "params/geometry.h"

#include <stdio.h>

#define GWI_MANIFEST_FILE "checkpoint.json"
#define GWI_MANIFEST_MOST ((size_t)256 << 20) /* bytes */
#define GWI_META_MOST ((size_t)64 << 20)
#define GWI_SAVE_ID 32 /* room for "20261116-101500-3f2a9c71" */

typedef struct gwi_manifest_part {
    int rank, node; /* who wrote it */
    int64_t n_keys, n_bytes;
    uint32_t crc;
} gwi_manifest_part;

typedef struct gwi_manifest_length {
    int64_t length, n_keys;
} gwi_manifest_length;

typedef struct gwi_manifest {
    char save[GWI_SAVE_ID];
    char created[32]; /* "2026-11-16T10:15:00Z" */
    char library[32]; /* the version that wrote it */
    int64_t n_keys;
    gw_dtype dtype;
    int ranks, nodes;
    gwi_manifest_length *lengths; /* owned, as are the others; none twice */
    size_t n_lengths;
    gwi_manifest_part *parts; /* in the order of ranks; those that had keys */
    size_t n_parts;
    char *meta; /* the caller's, a JSON object as text */
} gwi_manifest;

/* "save-20261116-101500-3f2a9c71/part-00003.safetensors" */
void gwi_manifest_part_name(const gwi_manifest *m, int rank, char *ret_name, size_t room);

int gwi_manifest_is_id(const char *text);

/* The file as it shall be; free() it. */
int gwi_manifest_print(const gwi_manifest *m, char **ret_text, size_t *ret_bytes);

int gwi_manifest_parse(const char *text, size_t n_bytes, gwi_manifest *ret_m);

/* Of the checkpoint in a directory.  GW_ESYS if there is none: then `ret_is_none` (or NULL) is
 * 1.  `ret_text` (or NULL) gets the whole file with a 0 behind it; free() it. */
int gwi_manifest_read(const char *dir, gwi_manifest *ret_m, char **ret_text, int *ret_is_none);

void gwi_manifest_fini(gwi_manifest *m);

#endif
