/* npy.h - the header of NumPy's .npy files, versions 1 to 3.
 *
 *     \x93NUMPY  major minor  length, 2 or 4 bytes, little-endian  text, to the length
 *
 * The text is a Python dictionary of 'descr', 'fortran_order' and 'shape'.  Only arrays of
 * types that Godwit knows, row by row, in this machine's order of bytes, can be read.   */
#ifndef GWI_MEMORY_NPY_H
#define GWI_MEMORY_NPY_H

#include <godwit/comm.h>

#include <stddef.h>
#include <stdint.h>

#define GWI_NPY_START 12               /* bytes to read to know how long the header is */
#define GWI_NPY_MAX ((size_t)64 << 10) /* longer headers are refused */

typedef struct gwi_npy {
    gw_dtype dtype;
    int n_dims;
    int64_t shape[GW_MAX_DIMS];
    size_t header_bytes; /* the entries begin there */
} gwi_npy;

/* How long the header is that begins with these GWI_NPY_START bytes; 0 if it is none. */
size_t gwi_npy_length(const unsigned char *bytes);

/* Read a header of `n` bytes, as gwi_npy_length() said.  GW_EINVAL with a sentence that says
 * what is wrong, to follow a file's name. */
int gwi_npy_read(const unsigned char *bytes, size_t n, gwi_npy *ret_npy);

/* Write a header.  Returns its length, or GW_EUNSUP if NumPy has no such type. */
int gwi_npy_write(gw_dtype dtype, int n_dims, const int64_t *shape, char *ret_bytes, size_t room);

#endif
