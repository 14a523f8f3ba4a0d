/* intake.c - takes tensors in by each of the routes, and checks what a use needs. */
#include "module.h"
#include "refusal.h"
#include "route.h"

#include <string.h>

/* How `held` is given back. */
enum { HELD_OBJECT, HELD_BUFFER, HELD_MANAGED, HELD_VERSIONED };

/* Everything that the steps of one intake share. */
struct visit {
    gwi_state *state;
    PyObject *object; /* borrowed */
    const gwi_need *need;
    gwi_route route;
};

/* A deleter may run Python code, which must not see an exception that is on its
 * way, for example the one with which this intake was refused. */
static void call_deleter(gwi_intake *intake)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    if (intake->held_as == HELD_MANAGED && intake->held.managed->deleter != NULL)
        intake->held.managed->deleter(intake->held.managed);
    if (intake->held_as == HELD_VERSIONED && intake->held.versioned->deleter != NULL)
        intake->held.versioned->deleter(intake->held.versioned);
    PyErr_Restore(type, value, traceback);
}

void gwi_intake_close(gwi_intake *intake)
{
    if (intake->held_as == HELD_OBJECT)
        Py_DECREF(intake->held.object);
    else if (intake->held_as == HELD_BUFFER)
        PyBuffer_Release(&intake->held.buffer);
    else
        call_deleter(intake);
}

/* The sentence for what is wrong with a layout; 0 if nothing is.  What takes
 * more than the layout to say, the callers say themselves. */
static int refuse_layout(const struct visit *visit, const gwi_layout *layout, gwi_fault fault)
{
    gwi_state *state = visit->state;
    const gwi_need *need = visit->need;
    int negative = 0;

    switch (fault) {
    case GWI_FAULT_NO_SHAPE:
        return gwi_refuse(state, GW_EINVAL, need,
                          "it has dimensions but does not tell their sizes");
    case GWI_FAULT_SIZE:
        while (layout->shape[negative] >= 0)
            negative++;
        return gwi_refuse(state, GW_EINVAL, need, "dimension %d has size %lld", negative,
                          (long long)layout->shape[negative]);
    case GWI_FAULT_TOO_LARGE:
        return gwi_refuse(state, GW_EINVAL, need,
                          "its shape and strides reach out of memory; pass a plain tensor");
    case GWI_FAULT_NO_MEMORY:
        return gwi_refuse(state, GW_ETYPE, need,
                          "it has entries but no memory, as a fake or wrapped tensor has; pass "
                          "a plain tensor");
    case GWI_FAULT_MISALIGNED:
        return gwi_refuse_strides(state, layout, need,
                                  "its entries do not lie at multiples of their size",
                                  "pass a copy");
    case GWI_FAULT_NOT_DENSE:
        return gwi_refuse_strides(state, layout, need, "it is not contiguous",
                                  "call .contiguous() or np.ascontiguousarray() first");
    case GWI_FAULT_SHARED:
        return gwi_refuse_strides(state, layout, need,
                                  "it is to be written to, but some entries share their memory",
                                  "pass a copy");
    default:
        return 0;
    }
}

/* Set the dimensions, as gwi_layout_set_dims(). */
static int set_dims(const struct visit *visit, long long ndim, const int64_t *shape,
                    const int64_t *strides, int64_t unit, gwi_intake *intake)
{
    gwi_fault fault = gwi_layout_set_dims(&intake->layout, ndim, shape, strides, unit);

    if (fault == GWI_FAULT_DIMS)
        return gwi_refuse_dims(visit->state, ndim, visit->need);
    return refuse_layout(visit, &intake->layout, fault);
}

/* ---- DLPack --------------------------------------------------------------- */

static int read_dlpack(const struct visit *visit, const dl_tensor *tensor, gwi_intake *intake)
{
    gwi_fault fault = gwi_layout_from_dlpack(tensor, &intake->layout);

    if (fault == GWI_FAULT_DEVICE)
        return gwi_refuse_device(visit->state, visit->object, tensor->device_type, visit->need);
    if (fault == GWI_FAULT_DTYPE)
        return gwi_refuse_unknown_dtype(visit->state, visit->object, "DLPack", visit->need);
    if (fault == GWI_FAULT_DIMS)
        return gwi_refuse_dims(visit->state, tensor->ndim, visit->need);
    return refuse_layout(visit, &intake->layout, fault);
}

/* Takes ownership of `managed`. */
static int take_versioned(const struct visit *visit, dl_managed_versioned *managed,
                          gwi_intake *intake)
{
    intake->held_as = HELD_VERSIONED;
    intake->held.versioned = managed;

    int err = -1;
    if (managed->version.major != DL_MAJOR)
        gwi_refuse(visit->state, GW_EUNSUP, visit->need,
                   "it speaks version %u of DLPack and Godwit version %d", managed->version.major,
                   DL_MAJOR);
    else
        err = read_dlpack(visit, &managed->tensor, intake);
    if (err < 0) {
        gwi_intake_close(intake);
        return -1;
    }
    /* What is written into a copy, the object never sees. */
    intake->writable = (managed->flags & (DL_READ_ONLY | DL_IS_COPY)) == 0;
    return 0;
}

static int take_managed(const struct visit *visit, dl_managed *managed, gwi_intake *intake)
{
    intake->held_as = HELD_MANAGED;
    intake->held.managed = managed;
    intake->writable = true; /* this kind cannot say */
    if (read_dlpack(visit, &managed->tensor, intake) < 0) {
        gwi_intake_close(intake);
        return -1;
    }
    return 0;
}

static int take_exchange(const struct visit *visit, gwi_intake *intake)
{
    const dl_exchange_api *api = visit->route.api;

    if ((visit->need->flags & GWI_KEEP) != 0 || api->tensor_from_object == NULL) {
        dl_managed_versioned *managed = NULL;
        if (api->managed_from_object(visit->object, &managed) != 0)
            return gwi_refuse_by_maker(visit->state, visit->object, visit->need);
        return take_versioned(visit, managed, intake);
    }

    dl_tensor tensor;
    if (api->tensor_from_object(visit->object, &tensor) != 0)
        return gwi_refuse_by_maker(visit->state, visit->object, visit->need);
    if (read_dlpack(visit, &tensor, intake) < 0)
        return -1;
    intake->writable = true;
    intake->held_as = HELD_OBJECT;
    intake->held.object = Py_NewRef(visit->object);
    return 0;
}

/* Call __dlpack__, with the version that we know if it takes one. */
static PyObject *call_dlpack(const struct visit *visit)
{
    PyObject *method = PyObject_GetAttr(visit->object, visit->state->intake.names.dlpack);
    PyObject *nothing = method != NULL ? PyTuple_New(0) : NULL;
    PyObject *capsule = NULL;

    if (nothing != NULL) {
        capsule = PyObject_Call(method, nothing, visit->state->intake.names.dlpack_keywords);
        if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear(); /* from before there were versions */
            capsule = PyObject_Call(method, nothing, NULL);
        }
    }
    Py_XDECREF(nothing);
    Py_XDECREF(method);
    return capsule;
}

static int take_capsule(const struct visit *visit, gwi_intake *intake)
{
    int err = -1;
    PyObject *capsule = call_dlpack(visit);

    if (capsule == NULL)
        return gwi_refuse_by_maker(visit->state, visit->object, visit->need);
    /* A renamed capsule is empty: from there on the deleter is ours to call. */
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        void *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        if (PyCapsule_SetName(capsule, "used_dltensor_versioned") == 0)
            err = take_versioned(visit, managed, intake);
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        void *managed = PyCapsule_GetPointer(capsule, "dltensor");
        if (PyCapsule_SetName(capsule, "used_dltensor") == 0)
            err = take_managed(visit, managed, intake);
    } else {
        gwi_refuse(visit->state, GW_ETYPE, visit->need, "its __dlpack__() gave no fresh capsule");
    }
    Py_DECREF(capsule);
    return err;
}

/* ---- PyTorch before DLPack's C functions ----------------------------------- */

static int load_torch_dtypes(gwi_intake_state *intake)
{
    PyObject *torch = PyImport_ImportModule("torch");

    for (int i = 0; i < GWI_N_DTYPES && torch != NULL; i++)
        if (intake->torch_dtypes[i] == NULL)
            intake->torch_dtypes[i] = PyObject_GetAttrString(torch, gwi_dtype_table[i].name);
    Py_XDECREF(torch);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_torch_dtype(const struct visit *visit, gwi_intake *intake)
{
    PyObject *const *known = visit->state->intake.torch_dtypes;
    PyObject *dtype = PyObject_GetAttr(visit->object, visit->state->intake.names.dtype);
    int i = 0;

    if (dtype == NULL)
        return -1;
    Py_DECREF(dtype); /* PyTorch keeps each for good */
    while (i < GWI_N_DTYPES && known[i] != dtype)
        i++;
    if (i == GWI_N_DTYPES)
        return gwi_refuse_unknown_dtype(visit->state, visit->object, "", visit->need);
    gwi_layout_set_dtype(&intake->layout, i);
    return 0;
}

/* The numbers of a tuple.  Takes the reference. */
static int read_tuple(PyObject *tuple, Py_ssize_t n, int64_t *ret_numbers)
{
    if (tuple == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(tuple, i);
        ret_numbers[i] = item != NULL ? PyLong_AsLongLong(item) : 0;
    }
    Py_DECREF(tuple);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_torch_shape(const struct visit *visit, gwi_intake *intake)
{
    int64_t sizes[GWI_MAX_DIMS], strides[GWI_MAX_DIMS];
    PyObject *shape = PyObject_GetAttr(visit->object, visit->state->intake.names.shape);
    Py_ssize_t ndim = shape != NULL ? PyTuple_Size(shape) : -1;

    if (ndim < 0 || ndim > GWI_MAX_DIMS) {
        Py_XDECREF(shape);
        return ndim < 0 ? -1 : gwi_refuse_dims(visit->state, ndim, visit->need);
    }
    if (read_tuple(shape, ndim, sizes) < 0)
        return -1;
    PyObject *stride = PyObject_CallMethodObjArgs(visit->object, visit->state->intake.names.stride,
                                                  NULL);
    if (read_tuple(stride, ndim, strides) < 0)
        return -1;
    return set_dims(visit, ndim, sizes, strides, intake->layout.item_bytes, intake);
}

static int read_torch_pointer(const struct visit *visit, gwi_intake *intake)
{
    PyObject *address = PyObject_CallMethodObjArgs(visit->object,
                                                   visit->state->intake.names.data_ptr, NULL);

    if (address == NULL)
        return -1;
    intake->layout.data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

static int take_torch(const struct visit *visit, gwi_intake *intake)
{
    gwi_intake_state *cache = &visit->state->intake;

    if (cache->torch_dtypes[GWI_N_DTYPES - 1] == NULL && load_torch_dtypes(cache) < 0)
        return -1;

    PyObject *is_cpu = PyObject_GetAttr(visit->object, cache->names.is_cpu);
    if (is_cpu == NULL)
        return gwi_refuse_by_maker(visit->state, visit->object, visit->need);
    Py_DECREF(is_cpu);
    if (is_cpu != Py_True)
        return gwi_refuse_device(visit->state, visit->object, 0, visit->need);

    if (read_torch_dtype(visit, intake) < 0 || read_torch_pointer(visit, intake) < 0 ||
        read_torch_shape(visit, intake) < 0) {
        bool ours = PyErr_ExceptionMatches(visit->state->errors.base);
        return ours ? -1 : gwi_refuse_by_maker(visit->state, visit->object, visit->need);
    }
    intake->writable = true;
    intake->held_as = HELD_OBJECT;
    intake->held.object = Py_NewRef(visit->object);
    return 0;
}

/* A lazily negated view is the imaginary part of a conjugated tensor, or a view
 * of one: it skips the real parts, so every stride is an even number of entries.
 * Not found are those that as_strided() lays over the real parts as well, and
 * what PyTorch's private _neg_view() makes. */
static bool may_be_negated(const gwi_layout *layout)
{
    if (gwi_dtype_table[layout->dtype].dl_code != DL_FLOAT)
        return false;
    for (int i = 0; i < layout->ndim; i++)
        if (layout->shape[i] > 1 && layout->stride_bytes[i] % (2 * layout->item_bytes) != 0)
            return false;
    return true;
}

static int check_torch_mark(const struct visit *visit, PyObject *method, const char *mark,
                            const char *advice)
{
    PyObject *set = PyObject_CallMethodObjArgs(visit->object, method, NULL);

    if (set == NULL)
        return -1;
    Py_DECREF(set); /* True and False stay */
    if (set == Py_True)
        return gwi_refuse(visit->state, GW_EINVAL, visit->need,
                          "its entries are %s only when read through PyTorch; call %s first", mark,
                          advice);
    return 0;
}

/* PyTorch may mark a view as conjugated or negated and leave memory as it was,
 * and not every export minds the mark.  To ask costs more than all the rest of
 * an intake, so only those are asked that can have one. */
static int check_torch_marks(const struct visit *visit, const gwi_layout *layout)
{
    if (gwi_dtype_table[layout->dtype].dl_code == DL_COMPLEX)
        return check_torch_mark(visit, visit->state->intake.names.is_conj, "conjugated",
                                ".resolve_conj()");
    if (may_be_negated(layout))
        return check_torch_mark(visit, visit->state->intake.names.is_neg, "negated",
                                ".resolve_neg()");
    return 0;
}

static int check_grad(const struct visit *visit)
{
    PyObject *grad = PyObject_GetAttr(visit->object, visit->state->intake.names.requires_grad);

    if (grad == NULL)
        return -1;
    Py_DECREF(grad);
    if (grad == Py_True)
        return gwi_refuse(visit->state, GW_EINVAL, visit->need,
                          "it requires a gradient, which would not be recorded; "
                          "call .detach() first");
    return 0;
}

/* ---- the buffer protocol --------------------------------------------------- */

static int read_buffer(const struct visit *visit, int dtype, gwi_intake *intake)
{
    const Py_buffer *buffer = &intake->held.buffer;

    if (dtype == GWI_DTYPE_FOREIGN_ORDER)
        return gwi_refuse(visit->state, GW_ETYPE, visit->need,
                          "its bytes are in the other order (format '%s'); convert it, for "
                          "example with x.astype(x.dtype.newbyteorder('='))",
                          buffer->format);
    if (dtype < 0)
        return gwi_refuse_unknown_dtype(visit->state, visit->object, buffer->format, visit->need);

    gwi_layout_set_dtype(&intake->layout, dtype);
    intake->layout.data = buffer->buf;
    intake->writable = !buffer->readonly;
    static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "shapes are read as they lie");
    return set_dims(visit, buffer->ndim, (const int64_t *)buffer->shape,
                    (const int64_t *)buffer->strides, 1, intake);
}

/* `dtype` as the object said elsewhere, or GWI_DTYPE_UNKNOWN to read the format. */
static int take_buffer_of(const struct visit *visit, PyObject *object, int dtype,
                          gwi_intake *intake)
{
    Py_buffer *buffer = &intake->held.buffer;
    int flags = dtype == GWI_DTYPE_UNKNOWN ? PyBUF_RECORDS_RO : PyBUF_STRIDED_RO;

    if (PyObject_GetBuffer(object, buffer, flags) < 0)
        return -1;
    intake->held_as = HELD_BUFFER;
    if (dtype == GWI_DTYPE_UNKNOWN)
        dtype = gwi_dtype_from_format(buffer->format, buffer->itemsize);
    if (read_buffer(visit, dtype, intake) < 0) {
        PyBuffer_Release(buffer);
        return -1;
    }
    return 0;
}

static int load_numpy_dtypes(gwi_intake_state *intake)
{
    PyObject *numpy = PyImport_ImportModule("numpy");

    for (int i = 0; i < GWI_N_DTYPES && numpy != NULL && !PyErr_Occurred(); i++)
        if (intake->numpy_dtypes[i] == NULL && i != GWI_BF16)
            intake->numpy_dtypes[i] = PyObject_CallMethod(numpy, "dtype", "s",
                                                          gwi_dtype_table[i].name);
    Py_XDECREF(numpy);
    return PyErr_Occurred() ? -1 : 0;
}

/* NumPy has one object for each common dtype, and to ask for it is cheaper than
 * to have NumPy write the format.  Any other dtype: GWI_DTYPE_UNKNOWN. */
static int numpy_dtype_of(const struct visit *visit)
{
    gwi_intake_state *cache = &visit->state->intake;

    if (cache->numpy_dtypes[GWI_N_DTYPES - 1] == NULL && load_numpy_dtypes(cache) < 0)
        PyErr_Clear();
    PyObject *dtype = PyObject_GetAttr(visit->object, cache->names.dtype);
    if (dtype == NULL) {
        PyErr_Clear();
        return GWI_DTYPE_UNKNOWN;
    }
    int i = GWI_N_DTYPES - 1;
    while (i >= 0 && cache->numpy_dtypes[i] != dtype)
        i--;
    Py_DECREF(dtype);
    return i; /* -1 is GWI_DTYPE_UNKNOWN */
}

/* NumPy has no bfloat16 of its own; that of ml_dtypes has no buffer.  The same
 * memory seen as 16-bit integers has. */
static int take_bfloat16(const struct visit *visit, PyObject *dtype, gwi_intake *intake)
{
    PyObject *name = PyObject_GetAttrString(dtype, "name");
    bool is_bfloat16 = name != NULL && PyUnicode_Check(name) &&
                       PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
    Py_XDECREF(name);
    PyErr_Clear();
    if (!is_bfloat16)
        return gwi_refuse_unknown_dtype(visit->state, visit->object, "", visit->need);

    PyObject *twin = PyObject_CallMethod(visit->object, "view", "s", "int16");
    if (twin == NULL)
        return gwi_refuse_by_maker(visit->state, visit->object, visit->need);
    int err = take_buffer_of(visit, twin, GWI_BF16, intake);
    Py_DECREF(twin);
    return err;
}

static int take_buffer(const struct visit *visit, gwi_intake *intake)
{
    int dtype = visit->route.is_ndarray ? numpy_dtype_of(visit) : GWI_DTYPE_UNKNOWN;
    int err = take_buffer_of(visit, visit->object, dtype, intake);

    if (err == 0 || PyErr_ExceptionMatches(visit->state->errors.base))
        return err;
    if (!PyErr_ExceptionMatches(PyExc_ValueError)) /* NumPy: a type that has no letter */
        return gwi_refuse_by_maker(visit->state, visit->object, visit->need);

    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *dtype_object = PyObject_GetAttr(visit->object, visit->state->intake.names.dtype);
    if (dtype_object == NULL) {
        PyErr_Restore(type, value, traceback);
        return gwi_refuse_by_maker(visit->state, visit->object, visit->need);
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    err = take_bfloat16(visit, dtype_object, intake);
    Py_DECREF(dtype_object);
    return err;
}

/* ---- what a use needs ------------------------------------------------------- */

static int check_layout(const struct visit *visit, gwi_layout *layout)
{
    unsigned flags = visit->need->flags;
    unsigned wishes = ((flags & GWI_CONTIGUOUS) != 0 ? GWI_LAYOUT_DENSE : 0) |
                      ((flags & GWI_WRITABLE) != 0 ? GWI_LAYOUT_DISTINCT : 0);

    return refuse_layout(visit, layout, gwi_layout_check(layout, wishes));
}

static int check_need(const struct visit *visit, gwi_intake *intake)
{
    const gwi_need *need = visit->need;

    if (need->dtypes != 0 && (need->dtypes & GWI_DTYPE_BIT(intake->layout.dtype)) == 0)
        return gwi_refuse_dtype(visit->state, &intake->layout, need);
    if (check_layout(visit, &intake->layout) < 0)
        return -1;
    if ((need->flags & GWI_WRITABLE) != 0 && !intake->writable)
        return gwi_refuse(visit->state, GW_EINVAL, need,
                          "it is to be written to, but is read-only; pass a copy");
    if (visit->route.is_torch) {
        if (check_torch_marks(visit, &intake->layout) < 0)
            return -1;
        if ((need->flags & GWI_NO_GRAD) != 0)
            return check_grad(visit);
    }
    return 0;
}

static int take(const struct visit *visit, gwi_intake *intake)
{
    switch (visit->route.how) {
    case GWI_ROUTE_EXCHANGE:
        return take_exchange(visit, intake);
    case GWI_ROUTE_TORCH:
        return take_torch(visit, intake);
    case GWI_ROUTE_BUFFER:
        return take_buffer(visit, intake);
    case GWI_ROUTE_CAPSULE:
        return take_capsule(visit, intake);
    default:
        return gwi_refuse_stranger(visit->state, visit->object, visit->need);
    }
}

/* `t.data = other` changes the memory inside the tensor object, and an export
 * made from the object goes with it.  A detached twin shares the memory, and
 * nobody else knows it. */
static int open_torch_kept(const struct visit *visit, gwi_intake *intake)
{
    gwi_need need = *visit->need;

    if ((need.flags & GWI_NO_GRAD) != 0 && check_grad(visit) < 0)
        return -1;
    need.flags &= ~(unsigned)(GWI_KEEP | GWI_NO_GRAD);

    PyObject *twin = PyObject_CallMethodObjArgs(visit->object, visit->state->intake.names.detach,
                                                NULL);
    if (twin == NULL)
        return gwi_refuse_by_maker(visit->state, visit->object, visit->need);
    int err = gwi_intake_open(visit->state, twin, &need, intake);
    Py_DECREF(twin);
    return err;
}

int gwi_intake_open(gwi_state *state, PyObject *object, const gwi_need *need,
                    gwi_intake *ret_intake)
{
    struct visit visit = {.state = state, .object = object, .need = need};

    if (gwi_route_of(state->intake.routes, object, &visit.route) < 0)
        return -1;
    if (visit.route.is_torch && (need->flags & GWI_KEEP) != 0)
        return open_torch_kept(&visit, ret_intake);
    if (take(&visit, ret_intake) < 0)
        return -1;
    if (check_need(&visit, ret_intake) < 0) {
        gwi_intake_close(ret_intake);
        return -1;
    }
    return 0;
}

/* ---- the part ---------------------------------------------------------------- */

/* One walk over every object that the part owns. */
#define EACH_OBJECT(intake, DO)                                                    \
    do {                                                                           \
        for (size_t i_ = 0; i_ < GWI_N_ROUTES; i_++)                               \
            DO((intake)->routes[i_].type);                                         \
        for (size_t i_ = 0; i_ < GWI_N_DTYPES; i_++)                               \
            DO((intake)->torch_dtypes[i_]);                                        \
        for (size_t i_ = 0; i_ < GWI_N_DTYPES; i_++)                               \
            DO((intake)->numpy_dtypes[i_]);                                        \
        PyObject **name_ = (PyObject **)&(intake)->names;                          \
        for (size_t i_ = 0; i_ < sizeof(intake)->names / sizeof(PyObject *); i_++) \
            DO(name_[i_]);                                                         \
    } while (0)

static int exec(PyObject *module)
{
    gwi_intake_state *intake = &gwi_state_of(module)->intake;
    const struct {
        PyObject **place;
        const char *text;
    } names[] = {
        {&intake->names.is_neg, "is_neg"},
        {&intake->names.is_conj, "is_conj"},
        {&intake->names.is_cpu, "is_cpu"},
        {&intake->names.dtype, "dtype"},
        {&intake->names.shape, "shape"},
        {&intake->names.stride, "stride"},
        {&intake->names.data_ptr, "data_ptr"},
        {&intake->names.detach, "detach"},
        {&intake->names.requires_grad, "requires_grad"},
        {&intake->names.dlpack, "__dlpack__"},
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *names[i].place = PyUnicode_InternFromString(names[i].text);
        if (*names[i].place == NULL)
            return -1;
    }
    intake->names.dlpack_keywords = Py_BuildValue("{s(ii)}", "max_version", DL_MAJOR, DL_MINOR);
    return intake->names.dlpack_keywords != NULL ? 0 : -1;
}

static int traverse(gwi_state *state, visitproc visit, void *arg)
{
    EACH_OBJECT(&state->intake, Py_VISIT);
    return 0;
}

static void clear(gwi_state *state)
{
    EACH_OBJECT(&state->intake, Py_CLEAR);
}

static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};

const gwi_part gwi_intake_part = {methods, exec, traverse, clear};
