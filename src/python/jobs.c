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

/* A dictionary for each rank and each of its parameters. */
static PyObject *describe(const gw_job_rank *rank)
{
    PyObject *figures = PyDict_New();

    for (int i = 0; figures != NULL && i < rank->n_figures; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(rank->figures[i]);
        if (value == NULL || PyDict_SetItemString(figures, rank->names[i], value) < 0)
            Py_CLEAR(figures);
        Py_XDECREF(value);
    }
    if (figures == NULL)
        return NULL;
    return Py_BuildValue("{s:s,s:K,s:i,s:i,s:i,s:i,s:O,s:i,s:N}", "job", rank->job, "id",
                         (unsigned long long)rank->id, "size", rank->size, "rank", rank->rank,
                         "pid", rank->pid, "fate", rank->fate, "answers",
                         rank->answers ? Py_True : Py_False, "left_out", rank->left_out, "figures",
                         figures);
}

static void add_rank(void *list, const gw_job_rank *rank)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *seen = PyErr_Occurred() ? NULL : describe(rank);

    if (seen != NULL)
        PyList_Append(list, seen);
    Py_XDECREF(seen);
    PyGILState_Release(gil);
}

static PyObject *look(PyObject *module, PyObject *unused)
{
    (void)unused;
    PyObject *list = PyList_New(0);
    int n = 0;

    if (list == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS n = gw_jobs_look(add_rank, list);
    Py_END_ALLOW_THREADS if (PyErr_Occurred() || gwi_check(gwi_state_of(module), n < 0 ? n : 0) < 0)
        Py_CLEAR(list);
    return list;
}

static PyObject *trace_problem(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(gw_trace_problem());
}

static PyMethodDef methods[] = {
    {"look", look, METH_NOARGS,
     "look()\n--\n\nThe ranks of all jobs on this machine with the figures of their parameters: a "
     "dictionary for each\nrank and each of its parameters."},
    {"trace_problem", trace_problem, METH_NOARGS,
     "trace_problem()\n--\n\nWhy the trace of this process is not whole, or ''."},
    {"jobs", jobs, METH_NOARGS,
     "jobs()\n--\n\nThe jobs that run on this machine: for each a title and a table of its ranks."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_jobs_part = {methods, NULL, NULL, NULL};
