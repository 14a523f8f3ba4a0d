/* layout.h - where the entries of a tensor lie, worked out from what its maker says.
 *
 * Arithmetic alone, without Python.  A maker's numbers are any numbers whatever:
 * what passes has entries that all lie inside the address space, as many as `n`
 * says, and no product or sum of its numbers overflows.  Whether the memory is
 * really the maker's, only the maker knows.                                  */
#ifndef GWI_PYTHON_LAYOUT_H
#define GWI_PYTHON_LAYOUT_H

#include "dlpack.h"
#include "dtype.h"

#define GWI_MAX_DIMS 8 /* more are refused */

typedef struct gwi_layout {
    void *data; /* of the first entry; may be NULL if there are none */
    int64_t n;  /* entries */
    int32_t ndim;
    uint8_t dtype; /* gwi_dtype */
    uint8_t item_bytes;
    int64_t shape[GWI_MAX_DIMS];
    int64_t stride_bytes[GWI_MAX_DIMS];
} gwi_layout;

typedef enum gwi_fault {
    GWI_FAULT_NONE,
    GWI_FAULT_DEVICE,     /* memory elsewhere */
    GWI_FAULT_DTYPE,      /* entries of a type that is not known here */
    GWI_FAULT_DIMS,       /* more dimensions than GWI_MAX_DIMS, or less than none */
    GWI_FAULT_NO_SHAPE,   /* dimensions whose sizes are not told */
    GWI_FAULT_SIZE,       /* a dimension below zero */
    GWI_FAULT_TOO_LARGE,  /* more than the address space holds */
    GWI_FAULT_NO_MEMORY,  /* entries at NULL */
    GWI_FAULT_MISALIGNED, /* entries beside the multiples of their alignment */
    GWI_FAULT_NOT_DENSE,
    GWI_FAULT_SHARED, /* entries that lie in the same place */
} gwi_fault;

enum { GWI_LAYOUT_DENSE = 1, GWI_LAYOUT_DISTINCT = 2 };

/* Set the type of the entries; it comes before the dimensions. */
void gwi_layout_set_dtype(gwi_layout *layout, int dtype);

/* Set the dimensions.  `strides` count in units of `unit` bytes; NULL: dense, row
 * by row.  Both are borrowed for the call. */
gwi_fault gwi_layout_set_dims(gwi_layout *layout, long long ndim, const int64_t *shape,
                              const int64_t *strides, int64_t unit);

/* Everything that DLPack says, but for the check below. */
gwi_fault gwi_layout_from_dlpack(const dl_tensor *tensor, gwi_layout *ret_layout);

/* Count the entries and find out whether they are as `wishes` has it. */
gwi_fault gwi_layout_check(gwi_layout *layout, unsigned wishes);

#endif
