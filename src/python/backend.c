/* backend.c - BLAS libraries for godwit.backend: found, asked, measured, and called with tensors.
 */
#include "module.h"

#include <godwit/backend.h>

#include <string.h>

#define BLAS_NAME "godwit.blas" /* of the capsules that hold an open library */

static int add_path(const char *path, void *list)
{
    PyObject *text = PyUnicode_DecodeFSDefault(path);
    int err = text == NULL ? -1 : PyList_Append(list, text);

    Py_XDECREF(text);
    return err < 0 ? 1 : 0;
}

/* blas_find(directories) -> paths */
static PyObject *blas_find(PyObject *module, PyObject *directories)
{
    Py_ssize_t n = PySequence_Size(directories);
    PyObject *list = PyList_New(0), *keep = PyList_New(0);
    const char **more = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, sizeof *more);
    int err = n < 0 || list == NULL || keep == NULL || more == NULL ? -1 : 0;

    for (Py_ssize_t i = 0; i < n && err == 0; i++) {
        PyObject *item = PySequence_GetItem(directories, i), *bytes = NULL;
        if (item == NULL || !PyUnicode_FSConverter(item, &bytes) || PyList_Append(keep, bytes) < 0)
            err = -1;
        else
            more[i] = PyBytes_AsString(bytes);
        Py_XDECREF(bytes);
        Py_XDECREF(item);
    }
    if (err == 0)
        err = gw_blas_find(more, add_path, list); /* quick; it calls back into Python */
    if (err < 0 && !PyErr_Occurred())
        gwi_check(gwi_state_of(module), err);
    PyMem_Free(more);
    Py_XDECREF(keep);
    if (PyErr_Occurred())
        Py_CLEAR(list);
    return list;
}

static PyObject *dict_of(const gw_blas_info *info)
{
    return Py_BuildValue("{s:O&,s:O&,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:N,s:N,s:N,s:N}", "path",
                         PyUnicode_DecodeFSDefault, info->path, "file", PyUnicode_DecodeFSDefault,
                         info->file, "vendor", info->vendor, "version", info->version, "threading",
                         info->threading, "kernel", info->kernel, "prefix", info->prefix, "suffix",
                         info->suffix, "config", info->config, "int_bits", info->int_bits,
                         "threads", info->n_threads, "sgemm",
                         PyBool_FromLong(info->has & GW_BLAS_SGEMM), "dgemm",
                         PyBool_FromLong(info->has & GW_BLAS_DGEMM), "cblas",
                         PyBool_FromLong(info->has & GW_BLAS_CBLAS), "fortran",
                         PyBool_FromLong(info->has & GW_BLAS_FORTRAN));
}

/* blas_probe(path) -> dict */
static PyObject *blas_probe(PyObject *module, PyObject *path)
{
    gw_blas_info info = {.size_bytes = sizeof info};
    PyObject *bytes;
    int err;

    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const char *text = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS err = gw_blas_probe(text, &info);
    Py_END_ALLOW_THREADS Py_DECREF(bytes);
    return gwi_check(gwi_state_of(module), err) < 0 ? NULL : dict_of(&info);
}

static int parse_real(const gwi_state *state, const char *name, gw_dtype *ret_dtype)
{
    if (strcmp(name, "float32") == 0)
        *ret_dtype = GW_F32;
    else if (strcmp(name, "float64") == 0)
        *ret_dtype = GW_F64;
    else
        return gwi_raise(state, GW_EINVAL, "dtype: it is '%s'; products are of float32 or float64",
                         name);
    return 0;
}

#define CONV_FORMAT \
    "(LLLLLLL)(LL)(LL)(LL)L" /* n c_in h w c_out kh kw, stride, padding, dilation, groups */
#define CONV_ARGUMENTS(v)                                                                          \
    &(v)->n, &(v)->c_in, &(v)->h, &(v)->w, &(v)->c_out, &(v)->kh, &(v)->kw, &(v)->stride[0],       \
        &(v)->stride[1], &(v)->padding[0], &(v)->padding[1], &(v)->dilation[0], &(v)->dilation[1], \
        &(v)->groups

/* A shape: (m, n, k), or what CONV_FORMAT says. */
static int parse_shape(const gwi_state *state, PyObject *shape, gw_blas_bench *bench)
{
    gw_conv2d *v = &bench->conv;

    if (!PyTuple_Check(shape))
        return gwi_raise(state, GW_ETYPE, "shape: a tuple is needed");
    bench->is_conv = PyTuple_Size(shape) != 3;
    if (!bench->is_conv)
        return PyArg_ParseTuple(shape, "LLL", &bench->gemm.m, &bench->gemm.n, &bench->gemm.k) ? 0
                                                                                              : -1;
    return PyArg_ParseTuple(shape, CONV_FORMAT, CONV_ARGUMENTS(v)) ? 0 : -1;
}

/* blas_measure(path, dtype, shape, threads, repeats, seconds) -> dict */
static PyObject *blas_measure(PyObject *module, PyObject *args)
{
    const gwi_state *state = gwi_state_of(module);
    gw_blas_bench bench = {.size_bytes = sizeof bench};
    gw_blas_speed speed;
    PyObject *bytes = NULL, *shape;
    const char *dtype;
    int err = -1;

    if (!PyArg_ParseTuple(args, "O&sOiid", PyUnicode_FSConverter, &bytes, &dtype, &shape,
                          &bench.n_threads, &bench.n_repeats, &bench.least_s))
        return NULL;
    if (parse_shape(state, shape, &bench) == 0 &&
        parse_real(state, dtype, &bench.gemm.dtype) == 0) {
        bench.conv.dtype = bench.gemm.dtype;
        bench.path = PyBytes_AsString(bytes);
        Py_BEGIN_ALLOW_THREADS err = gw_blas_measure(&bench, &speed);
        Py_END_ALLOW_THREADS err = gwi_check(state, err);
    }
    Py_DECREF(bytes);
    if (err < 0)
        return NULL;
    return Py_BuildValue("{s:d,s:d,s:d,s:d,s:d,s:i}", "best", speed.best, "median", speed.median,
                         "worst", speed.worst, "error", speed.error, "tolerance", speed.tolerance,
                         "threads", speed.n_threads);
}

/* peak_measure(dtype, threads, seconds) -> GFLOP/s */
static PyObject *peak_measure(PyObject *module, PyObject *args)
{
    const gwi_state *state = gwi_state_of(module);
    const char *name;
    int n_threads, err;
    double seconds, gflops;
    gw_dtype dtype = GW_F32;

    if (!PyArg_ParseTuple(args, "sid", &name, &n_threads, &seconds) ||
        parse_real(state, name, &dtype) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS err = gw_peak_measure(dtype, n_threads, seconds, &gflops);
    Py_END_ALLOW_THREADS return gwi_check(state, err) < 0 ? NULL : PyFloat_FromDouble(gflops);
}

/* ---- an open library --------------------------------------------------------------------- */

static void close_blas(PyObject *capsule)
{
    gw_blas_close(PyCapsule_GetPointer(capsule, BLAS_NAME));
}

/* blas_open(path) -> capsule */
static PyObject *blas_open(PyObject *module, PyObject *path)
{
    PyObject *bytes;
    gw_blas *blas = NULL;
    int err;

    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    const char *text = PyBytes_AsString(bytes);
    Py_BEGIN_ALLOW_THREADS err = gw_blas_open(text, &blas);
    Py_END_ALLOW_THREADS Py_DECREF(bytes);
    if (gwi_check(gwi_state_of(module), err) < 0)
        return NULL;
    PyObject *capsule = PyCapsule_New(blas, BLAS_NAME, close_blas);
    if (capsule == NULL)
        gw_blas_close(blas);
    return capsule;
}

/* blas_describe(capsule) -> dict */
static PyObject *blas_describe(PyObject *module, PyObject *capsule)
{
    gw_blas_info info = {.size_bytes = sizeof info};
    gw_blas *blas = PyCapsule_GetPointer(capsule, BLAS_NAME);

    if (blas == NULL || gwi_check(gwi_state_of(module), gw_blas_describe(blas, &info)) < 0)
        return NULL;
    return dict_of(&info);
}

/* blas_set_threads(capsule, n) */
static PyObject *blas_set_threads(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    int n;

    if (!PyArg_ParseTuple(args, "Oi", &capsule, &n))
        return NULL;
    gw_blas *blas = PyCapsule_GetPointer(capsule, BLAS_NAME);
    if (blas == NULL || gwi_check(gwi_state_of(module), gw_blas_set_threads(blas, n)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* companion(file) -> path of a program or library that belongs to Godwit */
static PyObject *companion(PyObject *module, PyObject *args)
{
    const char *file;
    char path[4096];

    if (!PyArg_ParseTuple(args, "s", &file) ||
        gwi_check(gwi_state_of(module), gw_companion(file, path, sizeof path)) < 0)
        return NULL;
    return PyUnicode_DecodeFSDefault(path);
}

/* numpy_route(path, capsule or None) -> number of slots */
static PyObject *numpy_route(PyObject *module, PyObject *args)
{
    PyObject *bytes = NULL, *capsule;
    int n = 0;

    if (!PyArg_ParseTuple(args, "O&O", PyUnicode_FSConverter, &bytes, &capsule))
        return NULL;
    gw_blas *blas = capsule == Py_None ? NULL : PyCapsule_GetPointer(capsule, BLAS_NAME);
    int err = blas == NULL && capsule != Py_None
                  ? -1
                  : gwi_check(gwi_state_of(module),
                              gw_blas_reroute(PyBytes_AsString(bytes), blas, &n));
    Py_DECREF(bytes);
    if (err < 0)
        return NULL;
    if (blas != NULL)
        Py_INCREF(capsule); /* and never given back: a thread may be inside a product for as long as
                               it likes */
    return PyLong_FromLong(n);
}

/* blas_products(capsule) -> int */
static PyObject *blas_products(PyObject *module, PyObject *capsule)
{
    gw_blas *blas = PyCapsule_GetPointer(capsule, BLAS_NAME);

    (void)module;
    return blas == NULL ? NULL : PyLong_FromLongLong(gw_blas_products(blas));
}

#define REALS (GWI_DTYPE_BIT(GWI_F32) | GWI_DTYPE_BIT(GWI_F64))

/* How the last two dimensions lie: row by row, column by column, or neither (-1).  A dimension of
 * one entry may have any stride. */
static int orientation(const gwi_layout *l, int64_t *ret_ld)
{
    int d = l->ndim;
    int64_t rows = l->shape[d - 2], columns = l->shape[d - 1];
    int64_t down = l->stride_bytes[d - 2] / l->item_bytes;
    int64_t right = l->stride_bytes[d - 1] / l->item_bytes;

    if (rows == 0 || columns == 0) { /* nothing lies anywhere */
        *ret_ld = columns > 1 ? columns : 1;
        return 0;
    }
    if ((right == 1 || columns <= 1) && (down >= columns || rows <= 1) &&
        (rows <= 1 || down >= 1)) {
        *ret_ld = rows <= 1 ? (columns > 1 ? columns : 1) : down;
        return 0;
    }
    if ((down == 1 || rows <= 1) && (right >= rows || columns <= 1) &&
        (columns <= 1 || right >= 1)) {
        *ret_ld = columns <= 1 ? (rows > 1 ? rows : 1) : right;
        return 1;
    }
    return -1;
}

/* blas_shape(a, b, dims) -> the shape of their product, or None if they are no matrices (stacks of
 * them, if dims is 3) of float32 or float64 on this processor that fit together.  Whoever wants to
 * know why asks them himself. */
static PyObject *blas_shape(PyObject *module, PyObject *args)
{
    static const gwi_need need = {.name = "a", .dtypes = REALS};
    PyObject *object[2], *shape = NULL;
    gwi_intake in[2];
    int dims, n_open = 0;

    if (!PyArg_ParseTuple(args, "OOi", &object[0], &object[1], &dims))
        return NULL;
    while (n_open < 2 &&
           gwi_intake_open(gwi_state_of(module), object[n_open], &need, &in[n_open]) == 0)
        n_open++;
    const gwi_layout *a = &in[0].layout, *b = &in[1].layout;
    if (n_open < 2)
        PyErr_Clear();
    else if (a->ndim == dims && b->ndim == dims && a->dtype == b->dtype &&
             a->shape[dims - 1] == b->shape[dims - 2] && dims == 2)
        shape = Py_BuildValue("(LL)", (long long)a->shape[0], (long long)b->shape[1]);
    else if (a->ndim == 3 && b->ndim == 3 && dims == 3 && a->dtype == b->dtype &&
             a->shape[2] == b->shape[1] && a->shape[0] == b->shape[0])
        shape = Py_BuildValue("(LLL)", (long long)a->shape[0], (long long)a->shape[1],
                              (long long)b->shape[2]);
    while (n_open-- > 0)
        gwi_intake_close(&in[n_open]);
    if (shape == NULL && !PyErr_Occurred()) {
        Py_INCREF(Py_None);
        shape = Py_None;
    }
    return shape;
}

/* blas_gemm(capsule, a, b, c, alpha, beta) -> 0 if c is now alpha a b + beta c, else, and nothing
 * has happened, the sum of 1, 2 and 4 for those of a, b and c whose strides no BLAS can take.
 * Matrices, or stacks of matrices with the same number of them. */
static PyObject *blas_gemm(PyObject *module, PyObject *args)
{
    static const gwi_need needs[3] = {{.name = "a", .dtypes = REALS},
                                      {.name = "b", .dtypes = REALS},
                                      {.name = "c", .dtypes = REALS, .flags = GWI_WRITABLE}};
    gwi_state *state = gwi_state_of(module);
    PyObject *capsule, *object[3], *result = NULL;
    gwi_intake in[3];
    gw_gemm g = {0};
    int n_open = 0, flip[3], wrong = 0, err = 0;
    int64_t ld[3];

    if (!PyArg_ParseTuple(args, "OOOOdd", &capsule, &object[0], &object[1], &object[2], &g.alpha,
                          &g.beta))
        return NULL;
    gw_blas *blas = PyCapsule_GetPointer(capsule, BLAS_NAME);
    if (blas == NULL)
        return NULL;
    for (; n_open < 3; n_open++)
        if (gwi_intake_open(state, object[n_open], &needs[n_open], &in[n_open]) < 0)
            goto close;
    const gwi_layout *a = &in[0].layout, *b = &in[1].layout, *c = &in[2].layout;
    int d = a->ndim;
    int64_t n_stack = d == 3 ? a->shape[0] : 1;
    if (d < 2 || d > 3 || b->ndim != d || c->ndim != d || a->dtype != b->dtype ||
        a->dtype != c->dtype || a->shape[d - 1] != b->shape[d - 2] ||
        c->shape[d - 2] != a->shape[d - 2] || c->shape[d - 1] != b->shape[d - 1] ||
        (d == 3 && (b->shape[0] != n_stack || c->shape[0] != n_stack))) {
        gwi_raise(state, GW_EINVAL, "a, b, c: their shapes or types do not make a product");
        goto close;
    }
    for (int i = 0; i < 3; i++) {
        flip[i] = orientation(&in[i].layout, &ld[i]);
        if (flip[i] < 0)
            wrong |= 1 << i;
    }
    if (flip[2] == 1 && wrong == 0) {
        /* c column by column is its transposed row by row: swap the factors. */
        const gwi_layout *other = a;
        int64_t old = ld[0];
        a = b, b = other;
        ld[0] = ld[1], ld[1] = old;
        int turned = flip[0];
        flip[0] = !flip[1], flip[1] = !turned;
    }
    g.dtype = c->dtype == GWI_F32 ? GW_F32 : GW_F64;
    g.m = flip[2] == 1 ? c->shape[d - 1] : c->shape[d - 2];
    g.n = flip[2] == 1 ? c->shape[d - 2] : c->shape[d - 1];
    g.k = in[0].layout.shape[d - 1];
    g.a_transposed = flip[0], g.b_transposed = flip[1];
    g.lda = ld[0], g.ldb = ld[1], g.ldc = ld[2];
    if (wrong == 0) {
        Py_BEGIN_ALLOW_THREADS for (int64_t i = 0; i < n_stack && err == 0; i++)
        {
            g.a = (char *)a->data + (d == 3 ? i * a->stride_bytes[0] : 0);
            g.b = (char *)b->data + (d == 3 ? i * b->stride_bytes[0] : 0);
            g.c = (char *)c->data + (d == 3 ? i * c->stride_bytes[0] : 0);
            err = gw_blas_gemm(blas, &g);
        }
        Py_END_ALLOW_THREADS
    }
    if (gwi_check(state, err) == 0)
        result = PyLong_FromLong(wrong);
close:
    while (n_open-- > 0)
        gwi_intake_close(&in[n_open]);
    return result;
}

/* blas_conv2d(capsule, what, first, second, bias, result, stride, padding, dilation, groups): what
 * is 0 for y from x and weight, 1 for x's gradient from y's and weight, 2 for weight's from x and
 * y's. */
static PyObject *blas_conv2d(PyObject *module, PyObject *args)
{
    static const gwi_need needs[4] = {
        {.name = "first", .dtypes = REALS, .flags = GWI_CONTIGUOUS},
        {.name = "second", .dtypes = REALS, .flags = GWI_CONTIGUOUS},
        {.name = "result", .dtypes = REALS, .flags = GWI_CONTIGUOUS | GWI_WRITABLE},
        {.name = "bias", .dtypes = REALS, .flags = GWI_CONTIGUOUS}};
    gwi_state *state = gwi_state_of(module);
    PyObject *capsule, *object[4], *done = NULL;
    gwi_intake in[4];
    gw_conv2d v = {0};
    int what, n_open = 0, err = 0;

    if (!PyArg_ParseTuple(args, "OiOOOO(LL)(LL)(LL)L", &capsule, &what, &object[0], &object[1],
                          &object[3], &object[2], &v.stride[0], &v.stride[1], &v.padding[0],
                          &v.padding[1], &v.dilation[0], &v.dilation[1], &v.groups))
        return NULL;
    gw_blas *blas = PyCapsule_GetPointer(capsule, BLAS_NAME);
    if (blas == NULL)
        return NULL;
    int n = object[3] == Py_None ? 3 : 4;
    for (; n_open < n; n_open++)
        if (gwi_intake_open(state, object[n_open], &needs[n_open], &in[n_open]) < 0)
            goto close;
    const gwi_layout *x = what == 1 ? &in[2].layout : &in[0].layout;
    const gwi_layout *w = what == 2 ? &in[2].layout : &in[1].layout;
    const gwi_layout *y = what == 0 ? &in[2].layout : what == 1 ? &in[0].layout : &in[1].layout;
    bool fits = what >= 0 && what <= 2 && x->ndim == 4 && w->ndim == 4 && y->ndim == 4 &&
                x->dtype == w->dtype && x->dtype == y->dtype && v.groups >= 1;
    if (fits) {
        v.dtype = x->dtype == GWI_F32 ? GW_F32 : GW_F64;
        v.n = x->shape[0], v.c_in = x->shape[1], v.h = x->shape[2], v.w = x->shape[3];
        v.c_out = w->shape[0], v.kh = w->shape[2], v.kw = w->shape[3];
        fits = w->shape[1] * v.groups == v.c_in && y->shape[0] == v.n && y->shape[1] == v.c_out &&
               v.dilation[0] > 0 && v.dilation[1] > 0 && v.padding[0] >= 0 && v.padding[1] >= 0 &&
               y->shape[2] == gw_conv2d_out(&v, 0) && y->shape[3] == gw_conv2d_out(&v, 1) &&
               (n == 3 || (in[3].layout.ndim == 1 && in[3].layout.n == v.c_out &&
                           in[3].layout.dtype == x->dtype));
    }
    if (!fits) {
        gwi_raise(state, GW_EINVAL,
                  "first, second, result: their shapes or types do not make a convolution");
        goto close;
    }
    Py_BEGIN_ALLOW_THREADS if (what == 0) err = gw_blas_conv2d(
        blas, &v, x->data, w->data, n == 4 ? in[3].layout.data : NULL, y->data);
    else if (what == 1) err = gw_blas_conv2d_grad_input(blas, &v, y->data, w->data, x->data);
    else err = gw_blas_conv2d_grad_weight(blas, &v, x->data, y->data, w->data);
    Py_END_ALLOW_THREADS if (gwi_check(state, err) == 0)
    {
        Py_INCREF(Py_None);
        done = Py_None;
    }
close:
    while (n_open-- > 0)
        gwi_intake_close(&in[n_open]);
    return done;
}

static PyMethodDef methods[] = {
    {"blas_find", blas_find, METH_O,
     "blas_find(directories, /)\n--\n\nPaths of files that look like a BLAS."},
    {"blas_probe", blas_probe, METH_O,
     "blas_probe(path, /)\n--\n\nWhat a library says of itself, asked in a child process."},
    {"blas_measure", blas_measure, METH_VARARGS,
     "blas_measure(path, dtype, shape, threads, repeats, seconds, /)\n--\n\nGFLOP/s, in a child "
     "process."},
    {"peak_measure", peak_measure, METH_VARARGS,
     "peak_measure(dtype, threads, seconds, /)\n--\n\nGFLOP/s of multiply-adds in registers."},
    {"blas_open", blas_open, METH_O, "blas_open(path, /)\n--\n\nLoad a library into this process."},
    {"blas_describe", blas_describe, METH_O,
     "blas_describe(blas, /)\n--\n\nWhat an open library says of itself."},
    {"blas_set_threads", blas_set_threads, METH_VARARGS,
     "blas_set_threads(blas, n, /)\n--\n\nThreads of a product."},
    {"numpy_route", numpy_route, METH_VARARGS,
     "numpy_route(path, blas, /)\n--\n\nNumPy's products through a library, or, with None, its own "
     "again."},
    {"companion", companion, METH_VARARGS,
     "companion(file, /)\n--\n\nWhere a part of Godwit lies that is no Python."},
    {"blas_products", blas_products, METH_O,
     "blas_products(blas, /)\n--\n\nHow often its sgemm or dgemm was called."},
    {"blas_shape", blas_shape, METH_VARARGS,
     "blas_shape(a, b, dims, /)\n--\n\nThe shape of a product that can be routed, or None."},
    {"blas_gemm", blas_gemm, METH_VARARGS,
     "blas_gemm(blas, a, b, c, alpha, beta, /)\n--\n\n0 if c is now alpha a b + beta c; else the "
     "sum of 1, 2 and "
     "4 for those of a, b and c that have to be copied first."},
    {"blas_conv2d", blas_conv2d, METH_VARARGS,
     "blas_conv2d(blas, what, first, second, bias, result, stride, padding, dilation, groups, "
     "/)\n--\n\n"
     "A convolution (0), its input's gradient (1) or its weight's (2)."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_backend_part = {methods, NULL, NULL, NULL};
