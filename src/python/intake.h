/* intake.h - takes in tensors: pointer, type, shape, strides, of any maker.
 *
 * A PyTorch CPU tensor, a NumPy array, or any object with DLPack or the buffer
 * protocol becomes a gwi_intake, by the cheapest route that its type has:
 *
 *   PyTorch from 2.10, and others    DLPack's C functions, found on the type
 *   PyTorch before                   its attributes, by cached names
 *   NumPy, bytearray, memoryview...  the buffer protocol
 *   anything else with __dlpack__    a capsule, versioned or not
 *
 * The route is found once for each type.  Nothing is ever copied: what cannot
 * be used as it lies is refused, in a sentence that names the argument, says
 * what it is and what to do.
 *
 * Owning   From open to close the memory is borrowed from the object, and a
 *          reference is held; meanwhile the gwi_intake stays where it is.  With
 *          GWI_KEEP the memory itself is held, so it stays even if the tensor
 *          is given another (`t.data = other`).
 * Failing  -1 with an exception; then there is nothing to close.
 * Threads  With the GIL held; the memory may be used without it.             */
#ifndef GWI_PYTHON_INTAKE_H
#define GWI_PYTHON_INTAKE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "layout.h"

typedef struct gwi_state gwi_state;

enum {
    GWI_WRITABLE = 1,   /* will be written to */
    GWI_CONTIGUOUS = 2, /* dense, row by row */
    GWI_KEEP = 4,       /* used after the call has returned */
    GWI_NO_GRAD = 8,    /* must not require a gradient */
};

/* What a use asks of a tensor. */
typedef struct gwi_need {
    const char *name; /* of the argument, for messages */
    unsigned flags;
    unsigned dtypes; /* GWI_DTYPE_BIT(...) of those allowed; 0: all */
} gwi_need;

typedef struct gwi_intake {
    gwi_layout layout;
    bool writable;

    uint8_t held_as; /* which of `held`; private, as it is */
    union {
        PyObject *object;
        dl_managed *managed;
        dl_managed_versioned *versioned;
        Py_buffer buffer;
    } held;
} gwi_intake;

int gwi_intake_open(gwi_state *state, PyObject *object, const gwi_need *need,
                    gwi_intake *ret_intake);
void gwi_intake_close(gwi_intake *intake);

/* How objects of one type are taken in. */
typedef struct gwi_route {
    PyTypeObject *type; /* owned, so that its address is not used again */
    int how;
    bool is_torch;   /* torch.Tensor or a subclass */
    bool is_ndarray; /* numpy.ndarray itself */
    const dl_exchange_api *api;
} gwi_route;

#define GWI_N_ROUTES 64 /* a program uses a handful of types */

typedef struct gwi_intake_state {
    gwi_route routes[GWI_N_ROUTES];       /* at most one type a place, the newest */
    PyObject *torch_dtypes[GWI_N_DTYPES]; /* set when the first tensor of that kind comes */
    PyObject *numpy_dtypes[GWI_N_DTYPES];
    struct {
        PyObject *is_neg, *is_conj, *is_cpu, *dtype, *shape, *stride, *data_ptr, *detach;
        PyObject *requires_grad, *dlpack, *dlpack_keywords;
    } names;
} gwi_intake_state;

#endif
