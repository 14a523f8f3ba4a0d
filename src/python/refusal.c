/* refusal.c - the sentences with which tensors are refused. */
#include "module.h"
#include "refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int refuse_with(const gwi_state *state, int err, const gwi_need *need, PyObject *sentence)
{
    if (sentence == NULL)
        return -1;
    gwi_raise(state, err, "%s: %U", need->name, sentence);
    Py_DECREF(sentence);
    return -1;
}

int gwi_refuse(const gwi_state *state, int err, const gwi_need *need, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    PyObject *sentence = PyUnicode_FromFormatV(format, args);
    va_end(args);
    return refuse_with(state, err, need, sentence);
}

/* Text of an attribute, or NULL without an exception.  Owned. */
static PyObject *text_of(PyObject *object, const char *attribute)
{
    PyObject *value = PyObject_GetAttrString(object, attribute);
    PyObject *text = value != NULL ? PyObject_Str(value) : NULL;

    Py_XDECREF(value);
    if (text == NULL)
        PyErr_Clear();
    return text;
}

static bool is_text(PyObject *text, const char *expected)
{
    return text != NULL && PyUnicode_CompareWithASCIIString(text, expected) == 0;
}

static bool is_true(PyObject *object, const char *attribute)
{
    PyObject *value = PyObject_GetAttrString(object, attribute);
    bool result = value == Py_True;

    Py_XDECREF(value);
    if (value == NULL)
        PyErr_Clear();
    return result;
}

/* "a list", "an ndarray": the type of an object in a sentence.  Owned. */
static PyObject *a_type_of(PyObject *object)
{
    PyObject *name = PyType_GetName(Py_TYPE(object));
    if (name == NULL)
        return NULL;
    Py_UCS4 first = PyUnicode_GetLength(name) > 0 ? PyUnicode_ReadChar(name, 0) : 0;
    bool vowel = first != 0 && first < 128 && strchr("aeiouAEIOU", (int)first) != NULL;
    PyObject *text = PyUnicode_FromFormat("%s %U", vowel ? "an" : "a", name);
    Py_DECREF(name);
    return text;
}

int gwi_refuse_stranger(const gwi_state *state, PyObject *object, const gwi_need *need)
{
    PyObject *type = a_type_of(object);

    if (type == NULL)
        return -1;
    gwi_refuse(state, GW_ETYPE, need, "%U is no tensor; pass a tensor or a NumPy array", type);
    Py_DECREF(type);
    return -1;
}

int gwi_refuse_dims(const gwi_state *state, long long ndim, const gwi_need *need)
{
    return gwi_refuse(state, GW_EINVAL, need,
                      "it has %lld dimensions and %d are possible; reshape it first", ndim,
                      GWI_MAX_DIMS);
}

/* "(2, 3)" into `text`, which has room for GWI_MAX_DIMS numbers. */
static const char *tuple_text(const int64_t *number, int n, size_t text_bytes, char *text)
{
    size_t used = (size_t)snprintf(text, text_bytes, "(");

    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)number[i]);
    snprintf(text + used, text_bytes - used, n == 1 ? ",)" : ")");
    return text;
}

int gwi_refuse_strides(const gwi_state *state, const gwi_layout *layout, const gwi_need *need,
                       const char *problem, const char *advice)
{
    char shape[GWI_MAX_DIMS * 24], strides[GWI_MAX_DIMS * 24];

    return gwi_refuse(state, GW_EINVAL, need, "%s (shape %s, strides in bytes %s); %s", problem,
                      tuple_text(layout->shape, layout->ndim, sizeof shape, shape),
                      tuple_text(layout->stride_bytes, layout->ndim, sizeof strides, strides),
                      advice);
}

int gwi_refuse_unknown_dtype(const gwi_state *state, PyObject *object, const char *format,
                             const gwi_need *need)
{
    PyObject *dtype = text_of(object, "dtype");
    if (dtype == NULL)
        dtype = PyUnicode_FromFormat("format '%s'", format);
    if (dtype == NULL)
        return -1;
    if (is_true(object, "is_quantized"))
        gwi_refuse(state, GW_ETYPE, need, "it is quantized (%U); call .dequantize() first", dtype);
    else if (is_text(dtype, "object"))
        gwi_refuse(state, GW_ETYPE, need,
                   "its entries are Python objects (dtype object); give it a number type, "
                   "such as .astype('float32')");
    else
        gwi_refuse(state, GW_ETYPE, need,
                   "entries of %U are not supported; convert it, for example to float32 or int64",
                   dtype);
    Py_DECREF(dtype);
    return -1;
}

int gwi_refuse_dtype(const gwi_state *state, const gwi_layout *layout, const gwi_need *need)
{
    char allowed[GWI_N_DTYPES * 16] = "";
    size_t used = 0;
    const char *widest = NULL;

    for (int i = 0; i < GWI_N_DTYPES; i++) {
        if ((need->dtypes & GWI_DTYPE_BIT(i)) == 0)
            continue;
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s",
                                 widest != NULL ? " or " : "", gwi_dtype_table[i].name);
        widest = gwi_dtype_table[i].name;
    }
    return gwi_refuse(state, GW_ETYPE, need,
                      "its entries are %s and must be %s; convert it with .to(torch.%s) or "
                      ".astype('%s')",
                      gwi_dtype_table[layout->dtype].name, allowed, widest, widest);
}

int gwi_refuse_device(const gwi_state *state, PyObject *object, int dl_device, const gwi_need *need)
{
    PyObject *device = text_of(object, "device");
    if (device == NULL)
        device = PyUnicode_FromFormat("a device of DLPack's type %d", dl_device);
    if (device == NULL)
        return -1;
    if (is_text(device, "meta"))
        gwi_refuse(state, GW_ETYPE, need,
                   "it has no memory (device meta); make it a real tensor, for example with "
                   "torch.empty_like(x, device='cpu')");
    else
        gwi_refuse(state, GW_ETYPE, need,
                   "its memory is on %U and must be the CPU's; call .cpu() first", device);
    Py_DECREF(device);
    return -1;
}

/* Take the exception that is set; owned. */
static PyObject *take_exception(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

/* The first line of what `exception` says; owned. */
static PyObject *first_line_of(PyObject *exception)
{
    PyObject *text = PyObject_Str(exception);
    PyObject *newline = text != NULL ? PyUnicode_FromString("\n") : NULL;
    PyObject *pair = newline != NULL ? PyUnicode_Partition(text, newline) : NULL;
    PyObject *line = pair != NULL ? Py_NewRef(PyTuple_GetItem(pair, 0)) : NULL;

    Py_XDECREF(text);
    Py_XDECREF(newline);
    Py_XDECREF(pair);
    return line;
}

static int refuse_with_cause(const gwi_state *state, PyObject *cause, const gwi_need *need)
{
    PyObject *line = first_line_of(cause);
    if (line == NULL)
        return -1;
    gwi_refuse(state, GW_ETYPE, need, "its memory cannot be reached (%U); pass a plain tensor",
               line);
    Py_DECREF(line);

    PyObject *exception = take_exception();
    PyException_SetCause(exception, Py_NewRef(cause));
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF(exception);
    return -1;
}

int gwi_refuse_by_maker(const gwi_state *state, PyObject *object, const gwi_need *need)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError))
        return -1;

    PyObject *cause = take_exception();
    PyObject *layout = text_of(object, "layout");
    PyObject *device = text_of(object, "device");

    if (layout != NULL && !is_text(layout, "torch.strided"))
        gwi_refuse(state, GW_ETYPE, need,
                   "its layout is %U and must be torch.strided; call .to_dense() first", layout);
    else if (device != NULL && !is_text(device, "cpu"))
        gwi_refuse_device(state, object, 0, need);
    else if (is_true(object, "is_quantized"))
        gwi_refuse_unknown_dtype(state, object, "", need);
    else
        refuse_with_cause(state, cause, need);

    Py_XDECREF(device);
    Py_XDECREF(layout);
    Py_DECREF(cause);
    return -1;
}
