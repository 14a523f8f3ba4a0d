/* memory_files.c - a Memory and files: loading, storing, and what a file holds. */
#include "memory.h"

#include <limits.h>
#include <stdlib.h>

/* The path as the system has it, owned; os.fspath() and its encoding. */
static PyObject *path_bytes(PyObject *object)
{
    PyObject *bytes = NULL;

    return PyUnicode_FSConverter(object, &bytes) ? bytes : NULL;
}

static int load_paths(Memory *self, PyObject *list, int format)
{
    Py_ssize_t n = PySequence_Size(list), n_taken = 0;
    PyObject **paths = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *paths);
    const char **texts = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *texts);
    int err = paths == NULL || texts == NULL || n > INT_MAX ? -1 : 0;

    if (err < 0 && !PyErr_Occurred())
        PyErr_NoMemory();
    for (; n_taken < n && err == 0; n_taken++) {
        PyObject *item = PySequence_GetItem(list, n_taken);
        paths[n_taken] = item != NULL ? path_bytes(item) : NULL;
        Py_XDECREF(item);
        err = paths[n_taken] != NULL ? 0 : -1;
        texts[n_taken] = err == 0 ? PyBytes_AsString(paths[n_taken]) : NULL;
    }
    if (err == 0 && (err = gwi_memory_enter_together(self)) == 0) {
        WITHOUT_GIL(err, gw_memory_load(self->memory, texts, (int)n, (gw_file_format)format));
        err = gwi_memory_leave_together(self, err);
    }
    for (Py_ssize_t i = 0; i < n_taken; i++)
        Py_XDECREF(paths[i]);
    free(paths);
    free(texts);
    return err;
}

/* load(paths, format) */
PyObject *gwi_memory_load(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    int format = 0;

    if (gwi_memory_expect(state, n_args, 2, "paths and format") < 0 ||
        gwi_memory_parse_int(state, "format", args[1], &format) < 0 ||
        load_paths(self, args[0], format) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* store(path, format, parts) */
PyObject *gwi_memory_store(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    int format = 0, err;

    if (gwi_memory_expect(state, n_args, 3, "path, format, parts") < 0 ||
        gwi_memory_parse_int(state, "format", args[1], &format) < 0)
        return NULL;
    int parts = PyObject_IsTrue(args[2]);
    PyObject *path = parts < 0 ? NULL : path_bytes(args[0]);
    if (path == NULL)
        return NULL;
    const char *text = PyBytes_AsString(path);
    err = gwi_memory_enter_together(self);
    if (err == 0) {
        WITHOUT_GIL(err, parts ? gw_memory_store_parts(self->memory, text, (gw_file_format)format)
                               : gw_memory_store(self->memory, text, (gw_file_format)format));
        err = gwi_memory_leave_together(self, err);
    }
    Py_DECREF(path);
    return err < 0 ? NULL : Py_NewRef(Py_None);
}

/* memory_file(path, format) -> format, bytes, dtype, shape */
PyObject *gwi_memory_file(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = gwi_state_of(module);
    gw_file_info info = {.size_bytes = sizeof info};
    int format = 0, err;

    if (gwi_memory_expect(state, n_args, 2, "path and format") < 0 ||
        gwi_memory_parse_int(state, "format", args[1], &format) < 0)
        return NULL;
    PyObject *path = path_bytes(args[0]);
    if (path == NULL)
        return NULL;
    const char *text = PyBytes_AsString(path);
    WITHOUT_GIL(err, gw_file_look(text, (gw_file_format)format, &info));
    Py_DECREF(path);
    if (gwi_check(state, err) < 0)
        return NULL;
    return Py_BuildValue("iKiN", (int)info.format, (unsigned long long)info.n_bytes,
                         (int)info.dtype, gwi_memory_tuple(info.shape, info.n_dims));
}

/* memory_part_path(path, rank, size) */
PyObject *gwi_memory_part_path(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = gwi_state_of(module);
    char text[PATH_MAX];
    int rank = 0, size = 0;

    if (gwi_memory_expect(state, n_args, 3, "path, rank, size") < 0 ||
        gwi_memory_parse_int(state, "rank", args[1], &rank) < 0 ||
        gwi_memory_parse_int(state, "size", args[2], &size) < 0)
        return NULL;
    PyObject *path = path_bytes(args[0]);
    if (path == NULL)
        return NULL;
    int err = gw_memory_part_path(PyBytes_AsString(path), rank, size, text, sizeof text);
    Py_DECREF(path);
    return gwi_check(state, err) < 0 ? NULL : PyUnicode_DecodeFSDefault(text);
}
