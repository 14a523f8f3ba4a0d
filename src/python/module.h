/* module.h - the extension module godwit._native: its state and its parts.
 *
 * The module is compiled once, for the stable ABI of CPython 3.11, and reaches
 * the library through include/godwit only.  It is made of parts, a file each.
 * A part has a list of functions, a function that prepares it when the module
 * is imported, and its own fields in gwi_state.  To add one, write the file,
 * name it in `parts` (module.c), and give it fields here if it needs any.
 *
 * Failing  As everywhere in CPython: NULL or -1, with an exception set.
 * Threads  Everything is called with the GIL held, but where it says otherwise. */
#ifndef GWI_PYTHON_MODULE_H
#define GWI_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <godwit/world.h>

#include "errors.h"
#include "intake.h"

/* Set when the module is imported, then constant, but for the caches in
 * `intake`.  Every object here is owned. */
typedef struct gwi_state {
    gwi_errors errors;
    gwi_intake_state intake;
    PyObject *world_type, *comm_type, *request_type, *parameters_type, *worker_type;
    PyObject *memory_type, *chunk_type;
} gwi_state;

typedef struct gwi_part {
    PyMethodDef *methods;                            /* ends with a line of zeros */
    int (*exec)(PyObject *module);                   /* NULL: nothing to prepare */
    int (*traverse)(gwi_state *, visitproc, void *); /* NULL: owns no objects */
    void (*clear)(gwi_state *);
} gwi_part;

extern const gwi_part gwi_errors_part;
extern const gwi_part gwi_intake_part;
extern const gwi_part gwi_world_part;
extern const gwi_part gwi_comm_part;
extern const gwi_part gwi_memory_part;
extern const gwi_part gwi_params_part;
extern const gwi_part gwi_checkpoint_part;
extern const gwi_part gwi_worker_part;
extern const gwi_part gwi_rows_part;
extern const gwi_part gwi_launch_part;
extern const gwi_part gwi_jobs_part;
extern const gwi_part gwi_probe_part;
extern const gwi_part gwi_backend_part;

/* For PyMethodDef: CPython calls each function with the arguments that its
 * flags promise. */
#define GWI_FUNCTION(f) ((PyCFunction)(void (*)(void))(f))

static inline gwi_state *gwi_state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

/* ---- for parts whose objects live in a World (world.c) ----------------------------- */

/* Before and after a call of the library that may wait.  Between the two the world is not
 * closed.  leave() is given the call's result and raises what it means. */
int gwi_world_enter(PyObject *world);
int gwi_world_leave(PyObject *world, int err);

/* The library's world; NULL if it was left, or belongs to the process that forked this one. */
gw_world *gwi_world_of(PyObject *world);

/* What has to end before its world does.  `end` is called when the world is left, once,
 * when nobody is inside; never if remove() came first. */
typedef struct gwi_tenant {
    void (*end)(struct gwi_tenant *);
    struct gwi_tenant *next, **link; /* world.c's own */
} gwi_tenant;

void gwi_world_add(PyObject *world, gwi_tenant *tenant);
void gwi_tenant_remove(gwi_tenant *tenant);

/* comm.c: the World's own communicator, as an object. */
PyObject *gwi_comm_of_world(PyObject *world);

/* comm.c: as gwi_world_enter() and leave(), with a Comm that stays open between the two; and
 * its World, borrowed. */
struct gw_comm;
int gwi_comm_enter(PyObject *comm, struct gw_comm **ret_comm);
int gwi_comm_leave(PyObject *comm, int err);
PyObject *gwi_comm_its_world(PyObject *comm);

#endif
