/* checkpoint.c - saving and loading parameters, and looking at what was saved. */
#include "params.h"

static gwi_state *state_of(gwi_py_params *self)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)self));
}

/* ---- arguments ----------------------------------------------------------------------- */

/* A path, as bytes.  Owned. */
static PyObject *parse_dir(const gwi_state *state, PyObject *object)
{
    PyObject *bytes = NULL;

    if (PyUnicode_FSConverter(object, &bytes))
        return bytes;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        gwi_raise(state, GW_ETYPE, "dir: %R is no path", object);
    else if (PyErr_ExceptionMatches(PyExc_ValueError))
        gwi_raise(state, GW_EINVAL, "dir: %R is no path", object);
    return NULL;
}

/* What json.dumps() refused, as an error of ours. */
static void refuse_meta(const gwi_state *state)
{
    int kind = PyErr_ExceptionMatches(PyExc_TypeError)        ? GW_ETYPE
               : PyErr_ExceptionMatches(PyExc_ValueError)     ? GW_EINVAL
               : PyErr_ExceptionMatches(PyExc_RecursionError) ? GW_EINVAL
                                                              : 0;
    PyObject *type, *value, *traceback;

    if (kind == 0)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    gwi_raise(state, kind, "meta: it must be possible to write it as JSON: %S", value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* A dict as JSON.  Owned; what is infinite or not a number has no place in JSON. */
static PyObject *parse_meta(const gwi_state *state, PyObject *object)
{
    if (object != NULL && !PyDict_Check(object)) {
        gwi_raise(state, GW_ETYPE, "meta: %R is no dict", object);
        return NULL;
    }
    PyObject *json = PyImport_ImportModule("json");
    PyObject *dumps = json != NULL ? PyObject_GetAttrString(json, "dumps") : NULL;
    PyObject *arguments = object != NULL ? Py_BuildValue("(O)", object) : Py_BuildValue("({})");
    PyObject *keywords = Py_BuildValue("{s:O}", "allow_nan", Py_False);
    PyObject *text = NULL;

    if (dumps != NULL && arguments != NULL && keywords != NULL) {
        text = PyObject_Call(dumps, arguments, keywords);
        if (text == NULL)
            refuse_meta(state);
    }
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(dumps);
    Py_XDECREF(json);
    return text;
}

static PyObject *read_json(const char *text)
{
    PyObject *json = PyImport_ImportModule("json");
    PyObject *value = json != NULL ? PyObject_CallMethod(json, "loads", "s", text) : NULL;

    Py_XDECREF(json);
    return value;
}

/* An argument was refused here; the others shall hear of it, and not wait for this process.  To
 * save or load nowhere is refused everywhere. */
static void refuse_with_others(gwi_py_params *self, bool saves)
{
    PyObject *type, *value, *traceback;
    int err;

    if (!PyErr_ExceptionMatches(state_of(self)->errors.base))
        return;
    PyErr_Fetch(&type, &value, &traceback);
    if (gwi_py_params_enter(self) == 0) {
        GWI_WITHOUT_GIL(err, saves ? gw_params_save(self->params, NULL, NULL)
                                   : gw_params_load(self->params, NULL, NULL));
        gwi_py_params_leave(self, err);
    }
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) { /* Ctrl-C wins */
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return;
    }
    PyErr_Restore(type, value, traceback);
}

/* ---- methods of Parameters ----------------------------------------------------------- */

PyObject *gwi_py_params_save(gwi_py_params *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"dir", "meta", NULL};
    PyObject *dir_object, *meta_object = NULL;
    int err;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:save", (char **)(uintptr_t)names,
                                     &dir_object, &meta_object))
        return NULL;
    PyObject *dir = parse_dir(state_of(self), dir_object);
    PyObject *meta = dir != NULL ? parse_meta(state_of(self), meta_object) : NULL;
    const char *text = meta != NULL ? PyUnicode_AsUTF8AndSize(meta, NULL) : NULL;
    if (text == NULL) {
        refuse_with_others(self, true);
        err = -1;
    } else if ((err = gwi_py_params_enter(self)) == 0) {
        GWI_WITHOUT_GIL(err, gw_params_save(self->params, PyBytes_AsString(dir), text));
        err = gwi_py_params_leave(self, err);
    }
    Py_XDECREF(meta);
    Py_XDECREF(dir);
    return err < 0 ? NULL : Py_NewRef(Py_None);
}

PyObject *gwi_py_params_load(gwi_py_params *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"dir", NULL};
    PyObject *dir_object, *meta = NULL;
    gw_checkpoint *checkpoint = NULL;
    int err;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:load", (char **)(uintptr_t)names,
                                     &dir_object))
        return NULL;
    PyObject *dir = parse_dir(state_of(self), dir_object);
    if (dir == NULL) {
        refuse_with_others(self, false);
        err = -1;
    } else if ((err = gwi_py_params_enter(self)) == 0) {
        GWI_WITHOUT_GIL(err, gw_params_load(self->params, PyBytes_AsString(dir), &checkpoint));
        err = gwi_py_params_leave(self, err);
    }
    if (err == 0)
        meta = read_json(gw_checkpoint_meta(checkpoint));
    gw_checkpoint_close(checkpoint);
    Py_XDECREF(dir);
    return meta;
}

/* ---- looking --------------------------------------------------------------------------- */

/* What is wrong with each part: None, or a sentence. */
static PyObject *check_parts(const gwi_state *state, const gw_checkpoint *checkpoint)
{
    PyObject *problems = PyList_New(0);

    for (int part = 0; problems != NULL; part++) {
        int err;
        GWI_WITHOUT_GIL(err, gw_checkpoint_check(checkpoint, part));
        if (err == GW_ERANGE)
            break;
        if (err == GW_EINTR && gwi_check(state, err) < 0) {
            Py_CLEAR(problems);
            break;
        }
        PyObject *problem = err == 0 ? Py_NewRef(Py_None)
                                     : PyUnicode_DecodeFSDefault(gw_last_error());
        if (problem == NULL || PyList_Append(problems, problem) < 0)
            Py_CLEAR(problems);
        Py_XDECREF(problem);
    }
    return problems;
}

static PyObject *look(PyObject *module, PyObject *args)
{
    const gwi_state *state = gwi_state_of(module);
    gw_checkpoint *checkpoint = NULL;
    PyObject *dir_object, *result = NULL;
    int check = 1;

    if (!PyArg_ParseTuple(args, "O|p:checkpoint", &dir_object, &check))
        return NULL;
    PyObject *dir = parse_dir(state, dir_object);
    if (dir != NULL &&
        gwi_check(state, gw_checkpoint_open(PyBytes_AsString(dir), &checkpoint)) == 0) {
        PyObject *what = read_json(gw_checkpoint_text(checkpoint));
        PyObject *problems = what == NULL ? NULL
                             : check      ? check_parts(state, checkpoint)
                                          : Py_NewRef(Py_None);
        if (problems != NULL)
            result = Py_BuildValue("(OO)", what, problems);
        Py_XDECREF(problems);
        Py_XDECREF(what);
    }
    gw_checkpoint_close(checkpoint);
    Py_XDECREF(dir);
    return result;
}

static PyMethodDef methods[] = {
    {"checkpoint", look, METH_VARARGS,
     "checkpoint(dir, check=True, /)\n--\n\n"
     "What checkpoint.json says, and for each part None or what is wrong with it."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_checkpoint_part = {methods, NULL, NULL, NULL};
