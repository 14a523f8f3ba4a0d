/* launch.c - starts the processes of a job, for `godwit run`. */
#include "module.h"

#include <godwit/launch.h>

/* The texts of a sequence as bytes for the system, NULL at the end.  `ret_keep`
 * owns the bytes. */
static int parse_argv(const gwi_state *state, PyObject *sequence, PyObject **ret_keep,
                      const char ***ret_argv)
{
    Py_ssize_t n = PySequence_Size(sequence);
    if (n < 0)
        return -1;
    if (n == 0)
        return gwi_raise(state, GW_EINVAL, "argv: it is empty; give a program");

    PyObject *keep = PyList_New(0);
    const char **argv = PyMem_Calloc((size_t)n + 1, sizeof *argv);
    for (Py_ssize_t i = 0; i < n && keep != NULL && argv != NULL; i++) {
        PyObject *item = PySequence_GetItem(sequence, i), *bytes = NULL;
        if (item != NULL && PyUnicode_FSConverter(item, &bytes))
            argv[i] = PyBytes_AsString(bytes);
        if (bytes == NULL || PyList_Append(keep, bytes) < 0)
            Py_CLEAR(keep);
        Py_XDECREF(bytes);
        Py_XDECREF(item);
    }
    if (keep == NULL || argv == NULL) {
        Py_XDECREF(keep);
        PyMem_Free(argv);
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    *ret_keep = keep;
    *ret_argv = argv;
    return 0;
}

/* launch(argv, n_ranks, node_size) -> exit code */
static PyObject *launch(PyObject *module, PyObject *args)
{
    const gwi_state *state = gwi_state_of(module);
    gw_launch_options options = {.size_bytes = sizeof options};
    PyObject *sequence, *keep = NULL;
    const char **argv = NULL;
    int exit_code = 0, err;

    if (!PyArg_ParseTuple(args, "Oii", &sequence, &options.n_ranks, &options.node_size) ||
        parse_argv(state, sequence, &keep, &argv) < 0)
        return NULL;
    options.argv = argv;
    Py_BEGIN_ALLOW_THREADS err = gw_launch(&options, &exit_code);
    Py_END_ALLOW_THREADS PyMem_Free(argv);
    Py_DECREF(keep);
    return gwi_check(state, err) < 0 ? NULL : PyLong_FromLong(exit_code);
}

static PyMethodDef methods[] = {
    {"launch", launch, METH_VARARGS,
     "launch(argv, n_ranks, node_size, /)\n--\n\nRun a job and return its exit code.  "
     "node_size 0: not said."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_launch_part = {methods, NULL, NULL, NULL};
