/* memory.h - the type Memory, for the files that it is made of.
 *
 *   memory.c        living and ending, opening, asking; the type itself
 *   memory_rows.c   reading, writing and adding to rows, and the steps of optimizers
 *   memory_files.c  loading and storing
 *
 * All fields are read and written under the GIL.  A call of the library stands between enter and
 * leave, so that the memory is not given back meanwhile; what is collective, between enter_together
 * and leave_together, so that its group is not closed either.  leave() is given the call's result
 * and raises what it means.                                                              */
#ifndef GWI_PYTHON_MEMORY_H
#define GWI_PYTHON_MEMORY_H

#include "module.h"

#include <godwit/comm.h>
#include <godwit/memory.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct Memory {
    PyObject_HEAD PyObject *comm; /* owned */
    gw_memory *memory;            /* NULL: given back */
    bool closed;                  /* nobody enters any more */
    int n_inside;                 /* calls under way */
    int n_chunks;
    gwi_tenant tenant;
    /* set when made, then constant */
    gw_memory_info info; /* shape and strides are the library's until it is given back */
    int64_t row_entries;
} Memory;

static inline gwi_state *state_of(void *self)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)self));
}

#define WITHOUT_GIL(err, call)               \
    do {                                     \
        Py_BEGIN_ALLOW_THREADS err = (call); \
        Py_END_ALLOW_THREADS                 \
    } while (0)

int gwi_memory_enter(Memory *self);
int gwi_memory_leave(Memory *self, int err);
int gwi_memory_enter_together(Memory *self);
int gwi_memory_leave_together(Memory *self, int err);

/* Collective if the group spans nodes. */
int gwi_memory_enter_access(Memory *self);
int gwi_memory_leave_access(Memory *self, int err);

/* ---- arguments ------------------------------------------------------------------------ */

int gwi_memory_expect(const gwi_state *state, Py_ssize_t n_args, Py_ssize_t n, const char *usage);

/* The numbers of a sequence; at most `most`.  Returns how many. */
int gwi_memory_parse_numbers(const gwi_state *state, const char *name, PyObject *object, int most,
                             int64_t *ret_numbers);
int gwi_memory_parse_int(const gwi_state *state, const char *name, PyObject *object,
                         int *ret_value);
PyObject *gwi_memory_tuple(const int64_t *numbers, int n);

/* ---- methods that other files have ------------------------------------------------------ */

PyObject *gwi_memory_gather(Memory *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *gwi_memory_scatter(Memory *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *gwi_memory_scatter_add(Memory *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *gwi_memory_fill(Memory *self, PyObject *object);
PyObject *gwi_memory_copy(Memory *self, PyObject *object);
PyObject *gwi_memory_step(Memory *self, PyObject *const *args, Py_ssize_t n_args);

PyObject *gwi_memory_load(Memory *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *gwi_memory_store(Memory *self, PyObject *const *args, Py_ssize_t n_args);
PyObject *gwi_memory_file(PyObject *module, PyObject *const *args, Py_ssize_t n_args);
PyObject *gwi_memory_part_path(PyObject *module, PyObject *const *args, Py_ssize_t n_args);

#endif
