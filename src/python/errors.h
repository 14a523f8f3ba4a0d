/* errors.h - Godwit's errors as Python exceptions.
 *
 * Error derives from Exception; for each line of GW_ERRORS there is a class
 * that derives from Error and from Python's own kind, so that both
 * `except godwit.Error` and `except TimeoutError` work.                      */
#ifndef GWI_PYTHON_ERRORS_H
#define GWI_PYTHON_ERRORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <godwit/base.h>

typedef struct gwi_state gwi_state;

#define GWI_COUNT_ERROR(name, value, python, kind, text) +1
#define GWI_N_ERRORS (0 GW_ERRORS(GWI_COUNT_ERROR))

typedef struct gwi_errors {
    PyObject *base;                /* godwit.Error */
    PyObject *kinds[GWI_N_ERRORS]; /* in the order of GW_ERRORS */
} gwi_errors;

/* The exception class of `err`, borrowed; godwit.Error for a stranger. */
PyObject *gwi_error_class(const gwi_state *state, int err);

/* Raise `err` with the sentence in `format` (as PyUnicode_FromFormat).
 * Returns -1. */
int gwi_raise(const gwi_state *state, int err, const char *format, ...);

/* For the result of a gw_ function: 0 if it is fine, else -1 with the exception
 * and the sentence that the library recorded in this thread.  If a signal
 * handler raised meanwhile, its exception (KeyboardInterrupt) wins. */
int gwi_check(const gwi_state *state, int err);

#endif
