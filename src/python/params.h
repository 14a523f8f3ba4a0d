/* params.h - what the types Parameters and Worker know of each other.
 *
 * Parameters hold on to their world, and workers to their parameters.  A world that is left
 * ends its parameters first, and these end their workers, so each of the library's objects
 * dies once, and before the one that it needs.  `n_inside` counts calls that are in the
 * library, and close() waits until there is none.
 *
 * Failing  -1 with an exception.
 * Threads  All fields are read and written under the GIL.                             */
#ifndef GWI_PYTHON_PARAMS_H
#define GWI_PYTHON_PARAMS_H

#include "module.h"

#include <godwit/params.h>

#include <stdbool.h>

#define GWI_WITHOUT_GIL(err, call)           \
    do {                                     \
        Py_BEGIN_ALLOW_THREADS err = (call); \
        Py_END_ALLOW_THREADS                 \
    } while (0)

typedef struct gwi_py_worker gwi_py_worker;

typedef struct gwi_py_params {
    PyObject_HEAD PyObject *world; /* owned */
    gw_params *params;             /* NULL: closed */
    bool closing;                  /* waits for those inside, and refuses others */
    bool left;                     /* closed because the world was left */
    int n_inside;
    int n_workers;          /* given away so far */
    gwi_py_worker *workers; /* not closed yet; borrowed */
    gwi_tenant tenant;
    /* set when made, then constant */
    gw_dtype dtype;
    int64_t num_keys, shortest, longest;
    int workers_each;
} gwi_py_params;

/* Before and after a call of the library.  Between the two the parameters stay.  leave() is
 * given the call's result and raises what it means. */
int gwi_py_params_enter(gwi_py_params *self);
int gwi_py_params_leave(gwi_py_params *self, int err);

/* The same where the library does not look whether this is a forked child. */
int gwi_py_params_enter_here(gwi_py_params *self);

int gwi_py_params_refuse_closed(gwi_py_params *self);

/* checkpoint.c: the methods save(dir, meta={}) and load(dir). */
PyObject *gwi_py_params_save(gwi_py_params *self, PyObject *args, PyObject *keywords);
PyObject *gwi_py_params_load(gwi_py_params *self, PyObject *args, PyObject *keywords);

/* worker.c: the next worker, and the end of one whose parameters end. */
PyObject *gwi_py_worker_new(gwi_py_params *params);
void gwi_py_worker_forget(gwi_py_worker *self);

int gwi_parse_i64(const gwi_state *state, const char *name, PyObject *object, int64_t *ret_value);

#endif
