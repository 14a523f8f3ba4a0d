/* where.c - at which line of the program a thread is.
 *
 * The library's witness calls it when somebody prints the ledger.  It needs the
 * GIL, so a rank that computes in native code without letting go of the GIL
 * answers late or not at all; who asks does not wait for long.              */
#include "module.h"
#include "where.h"

#include <stdio.h>
#include <string.h>

/* A new reference to the frame in which a thread is; 0 is the main thread. */
static PyObject *frame_of(unsigned long thread)
{
    PyObject *threading = PyImport_ImportModule("threading"), *sys = PyImport_ImportModule("sys");
    PyObject *main_thread = threading ? PyObject_CallMethod(threading, "main_thread", NULL) : NULL;
    PyObject *ident = thread != 0   ? PyLong_FromUnsignedLong(thread)
                      : main_thread ? PyObject_GetAttrString(main_thread, "ident")
                                    : NULL;
    PyObject *frames = sys ? PyObject_CallMethod(sys, "_current_frames", NULL) : NULL;
    PyObject *frame = frames && ident ? PyObject_GetItem(frames, ident) : NULL;

    Py_XDECREF(frames);
    Py_XDECREF(ident);
    Py_XDECREF(main_thread);
    Py_XDECREF(sys);
    Py_XDECREF(threading);
    return frame;
}

/* Whether a file is of this package, or of PyTorch, whose engine calls it in backward passes. */
static int is_ours(const char *path)
{
    return strstr(path, "/godwit/job.py") != NULL || strstr(path, "/godwit/comm/") != NULL ||
           strstr(path, "-packages/torch/") != NULL;
}

/* The name of the frame's file, function and line as "train.py:12 in main".
 * Returns 1 if it belongs to Godwit itself. */
static int describe(PyObject *frame, char *text, size_t room)
{
    PyCodeObject *code = PyFrame_GetCode((PyFrameObject *)frame);
    PyObject *file = PyObject_GetAttrString((PyObject *)code, "co_filename");
    PyObject *name = PyObject_GetAttrString((PyObject *)code, "co_name");
    const char *path = file ? PyUnicode_AsUTF8AndSize(file, NULL) : NULL;
    const char *function = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    int ours = 0;

    if (path != NULL && function != NULL) {
        const char *base = strrchr(path, '/');
        ours = is_ours(path);
        snprintf(text, room, "%s:%d in %s", base ? base + 1 : path,
                 PyFrame_GetLineNumber((PyFrameObject *)frame), function);
    }
    Py_XDECREF(name);
    Py_XDECREF(file);
    Py_DECREF(code);
    return ours;
}

static void look_up(unsigned long thread, char *text, size_t room)
{
    PyObject *frame = frame_of(thread);

    /* The line of the program, not that of the package which it called. */
    while (frame != NULL && frame != Py_None && describe(frame, text, room)) {
        PyObject *caller = PyObject_GetAttrString(frame, "f_back");
        Py_DECREF(frame);
        frame = caller;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
}

static void where(unsigned long thread, char *text, size_t room)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    /* A collection here could end a World, and with it the very thread we are in. */
    int collects = PyGC_Disable();
    look_up(thread, text, room);
    if (collects)
        PyGC_Enable();
    PyGILState_Release(gil);
}

void gwi_where_install(void)
{
    gw_set_where(where);
}
