/* memory.c - the types Memory and Chunk: whole memory of memory.h, and its bytes.
 *
 * Thin: what a tensor of it looks like, the package knows.  A Chunk is some of the memory's
 * bytes, as the buffer protocol shows them; PyTorch and NumPy make their arrays of it and keep
 * it as long as they need it.  A memory that is closed while Chunks of it are in use, or while
 * another thread is in a call, is given back when the last of them is gone.  If the world is
 * left before that, its mapping stays until the process ends: views never dangle.   */
#include "memory.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct Chunk {
    PyObject_HEAD Memory *memory; /* owned */
    void *bytes;
    Py_ssize_t n_bytes;
} Chunk;

/* ---- living and ending --------------------------------------------------------------- */

static void give_back(Memory *self)
{
    gw_memory *memory = self->memory;

    if (memory == NULL || self->n_inside > 0 || self->n_chunks > 0)
        return;
    gwi_tenant_remove(&self->tenant);
    self->memory = NULL;
    if (gwi_world_of(gwi_comm_its_world(self->comm)) == NULL)
        return; /* a forked child has nothing to give back */
    Py_BEGIN_ALLOW_THREADS gw_memory_close(memory);
    Py_END_ALLOW_THREADS
}

static void end_with_world(gwi_tenant *tenant)
{
    Memory *self = (Memory *)(void *)((char *)tenant - offsetof(Memory, tenant));

    self->closed = true;
    if (self->n_inside > 0 || self->n_chunks > 0) {
        gwi_tenant_remove(tenant);
        self->memory = NULL; /* still mapped, and never closed */
        return;
    }
    give_back(self);
}

int gwi_memory_enter(Memory *self)
{
    if (self->closed || self->memory == NULL)
        return gwi_raise(state_of(self), GW_ESTATE, "this memory is closed");
    self->n_inside++;
    return 0;
}

int gwi_memory_leave(Memory *self, int err)
{
    int result = gwi_check(state_of(self), err); /* first, while the sentence is ours */

    self->n_inside--;
    if (self->closed)
        give_back(self);
    return result;
}

/* The same for what is collective. */
int gwi_memory_enter_together(Memory *self)
{
    gw_comm *comm;

    if (gwi_memory_enter(self) < 0)
        return -1;
    if (gwi_comm_enter(self->comm, &comm) == 0)
        return 0;
    gwi_memory_leave(self, 0);
    return -1;
}

int gwi_memory_leave_together(Memory *self, int err)
{
    int result = gwi_comm_leave(self->comm, err);

    gwi_memory_leave(self, 0);
    return result;
}

int gwi_memory_enter_access(Memory *self)
{
    return self->info.spans_nodes ? gwi_memory_enter_together(self) : gwi_memory_enter(self);
}

int gwi_memory_leave_access(Memory *self, int err)
{
    return self->info.spans_nodes ? gwi_memory_leave_together(self, err)
                                  : gwi_memory_leave(self, err);
}

static PyObject *memory_close(Memory *self, PyObject *unused)
{
    (void)unused;
    self->closed = true;
    give_back(self);
    Py_RETURN_NONE;
}

static void memory_dealloc(Memory *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);

    give_back(self);
    Py_XDECREF(self->comm);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- arguments ----------------------------------------------------------------------- */

int gwi_memory_expect(const gwi_state *state, Py_ssize_t n_args, Py_ssize_t n, const char *usage)
{
    return n_args == n ? 0 : gwi_raise(state, GW_ETYPE, "expected %s", usage);
}

/* The numbers of a sequence; at most `most`.  Returns how many. */
int gwi_memory_parse_numbers(const gwi_state *state, const char *name, PyObject *object, int most,
                             int64_t *ret_numbers)
{
    Py_ssize_t n = PySequence_Check(object) ? PySequence_Size(object) : -1;

    if (n < 0) {
        PyErr_Clear();
        return gwi_raise(state, GW_ETYPE, "%s: %R is no list of numbers", name, object);
    }
    if (n > most)
        return gwi_raise(state, GW_EINVAL, "%s: it has %zd entries; at most %d are possible", name,
                         n, most);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        ret_numbers[i] = item != NULL ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        if (ret_numbers[i] == -1 && PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_TypeError) &&
                !PyErr_ExceptionMatches(PyExc_OverflowError))
                return -1;
            PyErr_Clear();
            return gwi_raise(state, GW_ETYPE, "%s: its entry %zd is no whole number", name, i);
        }
    }
    return (int)n;
}

int gwi_memory_parse_int(const gwi_state *state, const char *name, PyObject *object, int *ret_value)
{
    int64_t value = 0;
    PyObject *list = PyTuple_Pack(1, object);

    if (list == NULL || gwi_memory_parse_numbers(state, name, list, 1, &value) < 0) {
        Py_XDECREF(list);
        return -1;
    }
    Py_DECREF(list);
    if (value < INT_MIN || value > INT_MAX)
        return gwi_raise(state, GW_ERANGE, "%s: %R is out of range", name, object);
    *ret_value = (int)value;
    return 0;
}

PyObject *gwi_memory_tuple(const int64_t *numbers, int n)
{
    PyObject *tuple = PyTuple_New(n);

    for (int i = 0; tuple != NULL && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* ---- opening ------------------------------------------------------------------------- */

static Memory *new_memory(gwi_state *state, PyObject *comm)
{
    Memory *self = (Memory *)PyType_GenericAlloc((PyTypeObject *)state->memory_type, 0);

    if (self != NULL) {
        self->comm = Py_NewRef(comm);
        self->closed = true; /* until there is something in it */
    }
    return self;
}

static void set_memory(Memory *self, gw_memory *memory)
{
    self->memory = memory;
    self->closed = false;
    self->info.size_bytes = sizeof self->info;
    gw_memory_get_info(memory, &self->info);
    self->row_entries = 1;
    for (int i = 1; i < self->info.n_dims; i++)
        self->row_entries *= self->info.shape[i];
    self->tenant.end = end_with_world;
    gwi_world_add(gwi_comm_its_world(self->comm), &self->tenant);
}

static int parse_options(const gwi_state *state, PyObject *const *args, int size,
                         gw_memory_options *options, int64_t *numbers, int64_t *rows)
{
    int kind = 0, dtype = 0, n;

    if (gwi_memory_parse_int(state, "kind", args[1], &kind) < 0 ||
        gwi_memory_parse_int(state, "dtype", args[2], &dtype) < 0 ||
        (options->n_dims = gwi_memory_parse_numbers(state, "shape", args[3], GW_MAX_DIMS,
                                                    numbers)) < 0)
        return -1;
    options->kind = (gw_memory_kind)kind;
    options->dtype = (gw_dtype)dtype;
    options->shape = numbers;
    if (args[4] != Py_None) {
        n = gwi_memory_parse_numbers(state, "strides", args[4], GW_MAX_DIMS, numbers + GW_MAX_DIMS);
        if (n < 0)
            return -1;
        if (n != options->n_dims)
            return gwi_raise(state, GW_EINVAL, "strides: it has %d entries, shape has %d", n,
                             options->n_dims);
        options->strides = numbers + GW_MAX_DIMS;
    }
    if (args[5] != Py_None) {
        n = gwi_memory_parse_numbers(state, "rows_per_rank", args[5], size, rows);
        if (n < 0)
            return -1;
        if (n != size)
            return gwi_raise(state, GW_EINVAL,
                             "rows_per_rank: it has %d entries, but there are "
                             "%d ranks",
                             n, size);
        options->rows_per_rank = rows;
    }
    return 0;
}

/* memory_open(comm, kind, dtype, shape, strides, rows_per_rank) */
static PyObject *memory_open(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = gwi_state_of(module);
    gw_memory_options options = {.size_bytes = sizeof options};
    int64_t numbers[2 * GW_MAX_DIMS];
    gw_memory *memory = NULL;
    gw_comm *comm;
    int err;

    if (gwi_memory_expect(state, n_args, 6, "comm, kind, dtype, shape, strides, rows_per_rank") < 0)
        return NULL;
    if (Py_TYPE(args[0]) != (PyTypeObject *)state->comm_type) {
        gwi_raise(state, GW_ETYPE, "comm: %R is no Comm", args[0]);
        return NULL;
    }
    if (gwi_comm_enter(args[0], &comm) < 0)
        return NULL;
    int size = gw_comm_size(comm);
    int64_t *rows = malloc((size_t)size * sizeof *rows);
    Memory *self = rows != NULL ? new_memory(state, args[0]) : NULL;
    PyObject *type = NULL, *value = NULL, *traceback = NULL;
    if (self == NULL || parse_options(state, args, size, &options, numbers, rows) < 0) {
        PyErr_Fetch(&type, &value, &traceback);
        options = (gw_memory_options){0}; /* refused on all ranks: none waits for this one */
    }
    WITHOUT_GIL(err, gw_memory_open(comm, &options, &memory));
    err = gwi_comm_leave(args[0], err);
    free(rows);
    if (type != NULL)
        PyErr_Restore(type, value, traceback);
    if (err < 0 || self == NULL) {
        Py_XDECREF((PyObject *)self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    set_memory(self, memory);
    return (PyObject *)self;
}

/* sub(starts, ends) -> a view */
static PyObject *memory_sub(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    int64_t starts[GW_MAX_DIMS], ends[GW_MAX_DIMS];
    gw_memory *memory = NULL;

    if (gwi_memory_expect(state, n_args, 2, "starts and ends") < 0 || gwi_memory_enter(self) < 0)
        return NULL;
    int n = gwi_memory_parse_numbers(state, "starts", args[0], GW_MAX_DIMS, starts);
    int m = n < 0 ? -1 : gwi_memory_parse_numbers(state, "ends", args[1], GW_MAX_DIMS, ends);
    if (m >= 0 && (n != self->info.n_dims || m != n))
        m = gwi_raise(state, GW_EINVAL, "starts and ends must have %d entries each",
                      self->info.n_dims);
    if (m < 0) {
        gwi_memory_leave(self, 0);
        return NULL;
    }
    Memory *view = new_memory(state, self->comm);
    int err = view != NULL ? gw_memory_sub(self->memory, starts, ends, &memory) : 0;
    if (gwi_memory_leave(self, err) < 0 || view == NULL) {
        Py_XDECREF((PyObject *)view);
        return NULL;
    }
    set_memory(view, memory);
    return (PyObject *)view;
}

/* ---- asking -------------------------------------------------------------------------- */

/* info() -> kind, dtype, shape, strides, rank, size, whether the group spans nodes */
static PyObject *memory_get_info(Memory *self, PyObject *unused)
{
    const gw_memory_info *info = &self->info;

    (void)unused;
    if (gwi_memory_enter(self) < 0)
        return NULL;
    PyObject *result = Py_BuildValue("iiNNiiO", (int)info->kind, (int)info->dtype,
                                     gwi_memory_tuple(info->shape, info->n_dims),
                                     gwi_memory_tuple(info->strides, info->n_dims), info->rank,
                                     info->size, info->spans_nodes ? Py_True : Py_False);
    gwi_memory_leave(self, 0);
    return result;
}

static PyObject *memory_part(Memory *self, PyObject *object)
{
    int64_t start = 0, count = 0;
    int rank = 0;

    if (gwi_memory_parse_int(state_of(self), "rank", object, &rank) < 0 ||
        gwi_memory_enter(self) < 0)
        return NULL;
    int err = gw_memory_part(self->memory, rank, &start, &count);
    if (gwi_memory_leave(self, err) < 0)
        return NULL;
    return Py_BuildValue("LL", (long long)start, (long long)count);
}

static PyObject *get_closed(Memory *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->closed);
}

/* chunk(rank) -> the bytes of a rank's rows, of all if the rank is below 0; None if they lie
 * elsewhere, or not together */
static PyObject *memory_chunk(Memory *self, PyObject *object)
{
    gwi_state *state = state_of(self);
    int64_t start = 0, count = self->info.n_dims > 0 ? self->info.shape[0] : 0;
    int rank = 0;

    if (gwi_memory_parse_int(state, "rank", object, &rank) < 0 || gwi_memory_enter(self) < 0)
        return NULL;
    int err = rank < 0 ? 0 : gw_memory_part(self->memory, rank, &start, &count);
    void *bytes = err < 0    ? NULL
                  : rank < 0 ? gw_memory_global(self->memory)
                             : gw_memory_chunk(self->memory, rank);
    if (gwi_memory_leave(self, err) < 0)
        return NULL;
    if (bytes == NULL)
        Py_RETURN_NONE;
    Chunk *chunk = (Chunk *)PyType_GenericAlloc((PyTypeObject *)state->chunk_type, 0);
    if (chunk == NULL)
        return NULL;
    chunk->memory = (Memory *)Py_NewRef((PyObject *)self);
    self->n_chunks++;
    chunk->bytes = bytes;
    size_t item = self->row_entries > 0 ? self->info.row_bytes / (size_t)self->row_entries : 0;
    if (count > 0)
        chunk->n_bytes = (Py_ssize_t)((size_t)(count - 1) * (size_t)self->info.strides[0] * item +
                                      self->info.row_bytes);
    return (PyObject *)chunk;
}

static int chunk_get_buffer(Chunk *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, self->bytes, self->n_bytes, 0, flags);
}

static PyObject *chunk_address(Chunk *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(self->bytes);
}

static void chunk_dealloc(Chunk *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Memory *memory = self->memory;

    memory->n_chunks--;
    if (memory->closed)
        give_back(memory);
    Py_DECREF((PyObject *)memory);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- the part ------------------------------------------------------------------------ */

#define GETTER(f) ((getter)(void (*)(void))(f))
#define SLOT(f) ((void *)(uintptr_t)(f))

static PyGetSetDef memory_fields[] = {
    {"closed", GETTER(get_closed), NULL, "Whether it, or its world, was closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef memory_methods[] = {
    {"info", GWI_FUNCTION(memory_get_info), METH_NOARGS,
     "info()\n--\n\nKind, dtype, shape, strides, rank, size, whether the group spans nodes."},
    {"part", GWI_FUNCTION(memory_part), METH_O,
     "part(rank, /)\n--\n\nWhich rows are a rank's: the first, and how many."},
    {"chunk", GWI_FUNCTION(memory_chunk), METH_O,
     "chunk(rank, /)\n--\n\nThe bytes of a rank's rows; below 0, of all.  None: not here."},
    {"sub", GWI_FUNCTION(memory_sub), METH_FASTCALL, "sub(starts, ends, /)\n--\n\nA view."},
    {"gather", GWI_FUNCTION(gwi_memory_gather), METH_FASTCALL,
     "gather(indices, out, /)\n--\n\nRead rows."},
    {"scatter", GWI_FUNCTION(gwi_memory_scatter), METH_FASTCALL,
     "scatter(indices, values, /)\n--\n\nWrite rows."},
    {"scatter_add", GWI_FUNCTION(gwi_memory_scatter_add), METH_FASTCALL,
     "scatter_add(indices, values, /)\n--\n\nAdd to rows."},
    {"fill", GWI_FUNCTION(gwi_memory_fill), METH_O, "fill(value, /)\n--\n\nCollective."},
    {"copy", GWI_FUNCTION(gwi_memory_copy), METH_O, "copy(other, /)\n--\n\nCollective: from it."},
    {"load", GWI_FUNCTION(gwi_memory_load), METH_FASTCALL,
     "load(paths, format, /)\n--\n\nCollective."},
    {"store", GWI_FUNCTION(gwi_memory_store), METH_FASTCALL,
     "store(path, format, parts, /)\n--\n\nCollective."},
    {"step", GWI_FUNCTION(gwi_memory_step), METH_FASTCALL,
     "step(kind, settings, state, state, counts, indices, gradients, /)\n--\n\nCollective."},
    {"close", GWI_FUNCTION(memory_close), METH_NOARGS,
     "close()\n--\n\nGive it back, as soon as nothing of it is in use."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "A tensor that all ranks of a group see."},
    {Py_tp_dealloc, SLOT(memory_dealloc)},
    {Py_tp_getset, memory_fields},
    {Py_tp_methods, memory_methods},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "godwit._native.Memory",
    .basicsize = sizeof(Memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = memory_slots,
};

static PyGetSetDef chunk_fields[] = {
    {"address", GETTER(chunk_address), NULL, "Where it lies in this process.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot chunk_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "Bytes of a Memory, which stays as long as they are used."},
    {Py_tp_dealloc, SLOT(chunk_dealloc)},
    {Py_tp_getset, chunk_fields},
    {Py_bf_getbuffer, SLOT(chunk_get_buffer)},
    {0, NULL},
};

static PyType_Spec chunk_spec = {
    .name = "godwit._native.Chunk",
    .basicsize = sizeof(Chunk),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = chunk_slots,
};

static int exec(PyObject *module)
{
    gwi_state *state = gwi_state_of(module);

    state->memory_type = PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    state->chunk_type = PyType_FromModuleAndSpec(module, &chunk_spec, NULL);
    if (state->memory_type == NULL || state->chunk_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "Memory", state->memory_type) < 0
               ? -1
               : PyModule_AddObjectRef(module, "Chunk", state->chunk_type);
}

static int traverse(gwi_state *state, visitproc visit, void *arg)
{
    Py_VISIT(state->memory_type);
    Py_VISIT(state->chunk_type);
    return 0;
}

static void clear(gwi_state *state)
{
    Py_CLEAR(state->memory_type);
    Py_CLEAR(state->chunk_type);
}

static PyMethodDef methods[] = {
    {"memory_open", GWI_FUNCTION(memory_open), METH_FASTCALL,
     "memory_open(comm, kind, dtype, shape, strides, rows_per_rank, /)\n--\n\nCollective."},
    {"memory_file", GWI_FUNCTION(gwi_memory_file), METH_FASTCALL,
     "memory_file(path, format, /)\n--\n\nWhat a file holds: format, bytes, dtype, shape."},
    {"memory_part_path", GWI_FUNCTION(gwi_memory_part_path), METH_FASTCALL,
     "memory_part_path(path, rank, size, /)\n--\n\nThe name of a rank's part."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_memory_part = {methods, exec, traverse, clear};
