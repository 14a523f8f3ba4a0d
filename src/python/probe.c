/* probe.c - looks at tensor intake from Python, for tests and bench/intake.py. */
#include "module.h"

#include <string.h>

/* A bit for each name in the sequence; None stands for any. */
static int parse_dtypes(const gwi_state *state, PyObject *names, unsigned *ret_dtypes)
{
    if (names == Py_None)
        return 0;
    Py_ssize_t n = PySequence_Size(names);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(names, i);
        const char *name = item != NULL ? PyUnicode_AsUTF8AndSize(item, NULL) : NULL;
        int dtype = name != NULL ? gwi_dtype_from_name(name) : -1;

        if (name != NULL && dtype < 0)
            gwi_raise(state, GW_EINVAL, "dtypes: there is no dtype '%s'", name);
        Py_XDECREF(item);
        if (dtype < 0)
            return -1;
        *ret_dtypes |= GWI_DTYPE_BIT(dtype);
    }
    return n < 0 ? -1 : 0;
}

/* The arguments of describe() and hold(). */
static int parse(PyObject *module, PyObject *args, PyObject *keywords, PyObject **ret_object,
                 gwi_need *ret_need)
{
    static const char *const names[] = {"object", "name", "writable", "contiguous",
                                        "dtypes", "keep", "no_grad",  NULL};
    int writable = 0, contiguous = 0, keep = 0, no_grad = 0;
    PyObject *dtypes = Py_None;

    *ret_need = (gwi_need){.name = "x"};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|sppOpp", (char **)(uintptr_t)names,
                                     ret_object, &ret_need->name, &writable, &contiguous, &dtypes,
                                     &keep, &no_grad))
        return -1;
    ret_need->flags = (writable ? GWI_WRITABLE : 0) | (contiguous ? GWI_CONTIGUOUS : 0) |
                      (keep ? GWI_KEEP : 0) | (no_grad ? GWI_NO_GRAD : 0);
    return parse_dtypes(gwi_state_of(module), dtypes, &ret_need->dtypes);
}

static PyObject *tuple_of(const int64_t *number, int n)
{
    PyObject *tuple = PyTuple_New(n);

    for (int i = 0; i < n && tuple != NULL; i++) {
        PyObject *item = PyLong_FromLongLong(number[i]);
        if (item == NULL || PyTuple_SetItem(tuple, i, item) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *dict_of(const gwi_intake *intake)
{
    const gwi_layout *layout = &intake->layout;

    return Py_BuildValue(
        "{sNsssNsNsLsisN}", "address", PyLong_FromVoidPtr(layout->data), "dtype",
        gwi_dtype_table[layout->dtype].name, "shape", tuple_of(layout->shape, layout->ndim),
        "strides", tuple_of(layout->stride_bytes, layout->ndim), "n", (long long)layout->n,
        "itemsize", (int)layout->item_bytes, "writable", PyBool_FromLong(intake->writable));
}

static PyObject *describe(PyObject *module, PyObject *args, PyObject *keywords)
{
    PyObject *object;
    gwi_need need;
    gwi_intake intake;

    if (parse(module, args, keywords, &object, &need) < 0 ||
        gwi_intake_open(gwi_state_of(module), object, &need, &intake) < 0)
        return NULL;
    PyObject *dict = dict_of(&intake);
    gwi_intake_close(&intake);
    return dict;
}

/* A held intake is a capsule; when it goes, the memory is given back. */
#define HELD "godwit.intake"

static void held_free(PyObject *capsule)
{
    gwi_intake *intake = PyCapsule_GetPointer(capsule, HELD);

    if (intake != NULL) {
        gwi_intake_close(intake);
        PyMem_Free(intake);
    }
}

static PyObject *hold(PyObject *module, PyObject *args, PyObject *keywords)
{
    PyObject *object;
    gwi_need need;

    if (parse(module, args, keywords, &object, &need) < 0)
        return NULL;
    gwi_intake *intake = PyMem_Malloc(sizeof *intake);
    if (intake == NULL)
        return PyErr_NoMemory();
    if (gwi_intake_open(gwi_state_of(module), object, &need, intake) < 0)
        goto free_intake;
    PyObject *capsule = PyCapsule_New(intake, HELD, held_free);
    if (capsule == NULL)
        goto close_intake;
    return capsule;

close_intake:
    gwi_intake_close(intake);
free_intake:
    PyMem_Free(intake);
    return NULL;
}

/* Copy entry after entry, in row-major order, to `to`. */
static void copy_out(const gwi_layout *layout, int dim, const char *from, char **to)
{
    if (dim == layout->ndim) {
        memcpy(*to, from, layout->item_bytes);
        *to += layout->item_bytes;
        return;
    }
    for (int64_t i = 0; i < layout->shape[dim]; i++)
        copy_out(layout, dim + 1, from + i * layout->stride_bytes[dim], to);
}

static PyObject *held_bytes(PyObject *module, PyObject *capsule)
{
    (void)module;
    const gwi_intake *intake = PyCapsule_GetPointer(capsule, HELD);
    if (intake == NULL)
        return NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, intake->layout.n * intake->layout.item_bytes);
    char *to = bytes != NULL ? PyBytes_AsString(bytes) : NULL;
    if (to != NULL)
        copy_out(&intake->layout, 0, intake->layout.data, &to);
    return bytes;
}

static PyObject *touch(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    static const gwi_need need = {.name = "x"};
    gwi_state *state = gwi_state_of(module);
    gwi_intake intake;

    for (Py_ssize_t i = 0; i < n_args; i++) {
        if (gwi_intake_open(state, args[i], &need, &intake) < 0)
            return NULL;
        gwi_intake_close(&intake);
    }
    Py_RETURN_NONE;
}

static PyObject *nothing(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    (void)module, (void)args, (void)n_args;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"describe", GWI_FUNCTION(describe), METH_VARARGS | METH_KEYWORDS,
     "describe(object, name='x', writable=False, contiguous=False, dtypes=None, keep=False, "
     "no_grad=False)\n--\n\nWhat intake finds; strides are in bytes."},
    {"hold", GWI_FUNCTION(hold), METH_VARARGS | METH_KEYWORDS,
     "As describe, but keeps it and returns a capsule that gives it back when it goes."},
    {"held_bytes", held_bytes, METH_O, "The entries of what hold() keeps, row by row."},
    {"touch", GWI_FUNCTION(touch), METH_FASTCALL, "Take each argument in and give it back."},
    {"nothing", GWI_FUNCTION(nothing), METH_FASTCALL, "Do nothing with the arguments."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_probe_part = {methods, NULL, NULL, NULL};
