/* jobs.c - the running jobs of this machine, for `godwit ps`. */
#include "module.h"

#include <godwit/jobs.h>

/* Called without the GIL, so that a rank may look at its own job: its witness
 * needs the GIL to answer. */
static void add(void *list, const char *title, const char *table)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *pair = Py_BuildValue("(ss)", title, table);

    if (pair != NULL)
        PyList_Append(list, pair);
    Py_XDECREF(pair);
    PyGILState_Release(gil);
}

static PyObject *jobs(PyObject *module, PyObject *unused)
{
    (void)unused;
    PyObject *list = PyList_New(0);
    int n = 0;

    if (list == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS n = gw_jobs_show(add, list);
    Py_END_ALLOW_THREADS if (PyErr_Occurred() || gwi_check(gwi_state_of(module), n < 0 ? n : 0) < 0)
        Py_CLEAR(list);
    return list;
}

static PyMethodDef methods[] = {
    {"jobs", jobs, METH_NOARGS,
     "jobs()\n--\n\nThe jobs that run on this machine: for each a title and a table of its ranks."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_jobs_part = {methods, NULL, NULL, NULL};
