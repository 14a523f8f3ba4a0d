/* errors.c - makes the exception classes and raises them. */
#include "module.h"

#include <stdarg.h>
#include <string.h>

/* What a class is made of.  `kind` points to the variable, because the
 * interpreter sets it only when it starts. */
static const struct {
    int err;
    const char *python;
    const char *text;
    PyObject **kind;
} table[GWI_N_ERRORS] = {
#define LINE(name, value, python, kind, text) {value, #python, text, &PyExc_##kind},
    GW_ERRORS(LINE)
#undef LINE
};

PyObject *gwi_error_class(const gwi_state *state, int err)
{
    for (size_t i = 0; i < GWI_N_ERRORS; i++)
        if (table[i].err == err)
            return state->errors.kinds[i];
    return state->errors.base;
}

int gwi_raise(const gwi_state *state, int err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    PyErr_FormatV(gwi_error_class(state, err), format, args);
    va_end(args);
    return -1;
}

int gwi_check(const gwi_state *state, int err)
{
    if (PyErr_Occurred())
        return -1;
    if (err >= 0)
        return 0;

    /* Not as a format: the sentence may hold a percent sign or bytes of a path
     * that are no UTF-8. */
    const char *sentence = gw_last_error();
    if (sentence[0] == '\0')
        sentence = gw_strerror(err);
    PyObject *text = PyUnicode_DecodeUTF8(sentence, (Py_ssize_t)strlen(sentence), "replace");
    if (text != NULL) {
        PyErr_SetObject(gwi_error_class(state, err), text);
        Py_DECREF(text);
    }
    return -1;
}

static PyObject *new_class(PyObject *module, const char *name, const char *doc, PyObject *bases)
{
    char full[64];

    PyOS_snprintf(full, sizeof full, "godwit.%s", name);
    PyObject *class = PyErr_NewExceptionWithDoc(full, doc, bases, NULL);
    if (class != NULL && PyModule_AddObjectRef(module, name, class) < 0)
        Py_CLEAR(class);
    return class;
}

static int exec(PyObject *module)
{
    gwi_errors *errors = &gwi_state_of(module)->errors;

    errors->base = new_class(module, "Error", "Anything that Godwit reports.", NULL);
    if (errors->base == NULL)
        return -1;
    for (size_t i = 0; i < GWI_N_ERRORS; i++) {
        PyObject *bases = PyTuple_Pack(2, errors->base, *table[i].kind);
        if (bases == NULL)
            return -1;
        errors->kinds[i] = new_class(module, table[i].python, table[i].text, bases);
        Py_DECREF(bases);
        if (errors->kinds[i] == NULL)
            return -1;
    }
    return 0;
}

/* error_classes() -> list of (number, name, class), for tests. */
static PyObject *error_classes(PyObject *module, PyObject *unused)
{
    (void)unused;
    const gwi_state *state = gwi_state_of(module);
    PyObject *list = PyList_New(0);

    for (size_t i = 0; i < GWI_N_ERRORS && list != NULL; i++) {
        PyObject *line = Py_BuildValue("isO", table[i].err, gw_errname(table[i].err),
                                       state->errors.kinds[i]);
        if (line == NULL || PyList_Append(list, line) < 0)
            Py_CLEAR(list);
        Py_XDECREF(line);
    }
    return list;
}

static int traverse(gwi_state *state, visitproc visit, void *arg)
{
    Py_VISIT(state->errors.base);
    for (size_t i = 0; i < GWI_N_ERRORS; i++)
        Py_VISIT(state->errors.kinds[i]);
    return 0;
}

static void clear(gwi_state *state)
{
    Py_CLEAR(state->errors.base);
    for (size_t i = 0; i < GWI_N_ERRORS; i++)
        Py_CLEAR(state->errors.kinds[i]);
}

static PyMethodDef methods[] = {
    {"error_classes", error_classes, METH_NOARGS, "The number, name and class of each error."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_errors_part = {methods, exec, traverse, clear};
