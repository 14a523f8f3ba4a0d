/* memory.c - the types Memory and Chunk: whole memory of memory.h, and its bytes.
 *
 * Thin: what a tensor of it looks like, the package knows.  A Chunk is some of the memory's
 * bytes, as the buffer protocol shows them; PyTorch and NumPy make their arrays of it and keep
 * it as long as they need it.  A memory that is closed while Chunks of it are in use, or while
 * another thread is in a call, is given back when the last of them is gone.  If the world is
 * left before that, its mapping stays until the process ends: views never dangle.  All fields
 * are read and written under the GIL.                                                */
#include "module.h"

#include <godwit/comm.h>
#include <godwit/memory.h>

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE ((uintptr_t)2 << 20)

typedef struct Memory {
    PyObject_HEAD PyObject *comm; /* owned */
    gw_memory *memory;            /* NULL: given back */
    bool closed;                  /* nobody enters any more */
    int n_inside;                 /* calls under way */
    int n_chunks;
    gwi_tenant tenant;
    /* set when made, then constant */
    gw_memory_info info; /* shape and strides are the library's until it is given back */
    int64_t row_entries;
} Memory;

typedef struct Chunk {
    PyObject_HEAD Memory *memory; /* owned */
    void *bytes;
    Py_ssize_t n_bytes;
} Chunk;

static gwi_state *state_of(void *self)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)self));
}

#define WITHOUT_GIL(err, call)               \
    do {                                     \
        Py_BEGIN_ALLOW_THREADS err = (call); \
        Py_END_ALLOW_THREADS                 \
    } while (0)

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

static int enter(Memory *self)
{
    if (self->closed || self->memory == NULL)
        return gwi_raise(state_of(self), GW_ESTATE, "this memory is closed");
    self->n_inside++;
    return 0;
}

static int leave(Memory *self, int err)
{
    int result = gwi_check(state_of(self), err); /* first, while the sentence is ours */

    self->n_inside--;
    if (self->closed)
        give_back(self);
    return result;
}

/* The same for what is collective. */
static int enter_together(Memory *self)
{
    gw_comm *comm;

    if (enter(self) < 0)
        return -1;
    if (gwi_comm_enter(self->comm, &comm) == 0)
        return 0;
    leave(self, 0);
    return -1;
}

static int leave_together(Memory *self, int err)
{
    int result = gwi_comm_leave(self->comm, err);

    leave(self, 0);
    return result;
}

static int enter_access(Memory *self)
{
    return self->info.spans_nodes ? enter_together(self) : enter(self);
}

static int leave_access(Memory *self, int err)
{
    return self->info.spans_nodes ? leave_together(self, err) : leave(self, err);
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

static int expect(const gwi_state *state, Py_ssize_t n_args, Py_ssize_t n, const char *usage)
{
    return n_args == n ? 0 : gwi_raise(state, GW_ETYPE, "expected %s", usage);
}

/* The numbers of a sequence; at most `most`.  Returns how many. */
static int parse_numbers(const gwi_state *state, const char *name, PyObject *object, int most,
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

static int parse_int(const gwi_state *state, const char *name, PyObject *object, int *ret_value)
{
    int64_t value = 0;
    PyObject *list = PyTuple_Pack(1, object);

    if (list == NULL || parse_numbers(state, name, list, 1, &value) < 0) {
        Py_XDECREF(list);
        return -1;
    }
    Py_DECREF(list);
    if (value < INT_MIN || value > INT_MAX)
        return gwi_raise(state, GW_ERANGE, "%s: %R is out of range", name, object);
    *ret_value = (int)value;
    return 0;
}

static const gwi_need index_need = {.name = "indices",
                                    .flags = GWI_CONTIGUOUS,
                                    .dtypes = GWI_DTYPE_BIT(GWI_I32) | GWI_DTYPE_BIT(GWI_I64)};
static const gwi_need values_need = {.name = "values", .flags = GWI_CONTIGUOUS};
static const gwi_need out_need = {.name = "out",
                                  .flags = GWI_CONTIGUOUS | GWI_WRITABLE | GWI_NO_GRAD};

static gw_indices indices_of(const gwi_intake *intake)
{
    return (gw_indices){intake->layout.data, (size_t)intake->layout.n,
                        (gw_dtype)intake->layout.dtype};
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

    if (parse_int(state, "kind", args[1], &kind) < 0 ||
        parse_int(state, "dtype", args[2], &dtype) < 0 ||
        (options->n_dims = parse_numbers(state, "shape", args[3], GW_MAX_DIMS, numbers)) < 0)
        return -1;
    options->kind = (gw_memory_kind)kind;
    options->dtype = (gw_dtype)dtype;
    options->shape = numbers;
    if (args[4] != Py_None) {
        n = parse_numbers(state, "strides", args[4], GW_MAX_DIMS, numbers + GW_MAX_DIMS);
        if (n < 0)
            return -1;
        if (n != options->n_dims)
            return gwi_raise(state, GW_EINVAL, "strides: it has %d entries, shape has %d", n,
                             options->n_dims);
        options->strides = numbers + GW_MAX_DIMS;
    }
    if (args[5] != Py_None) {
        n = parse_numbers(state, "rows_per_rank", args[5], size, rows);
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

    if (expect(state, n_args, 6, "comm, kind, dtype, shape, strides, rows_per_rank") < 0)
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

    if (expect(state, n_args, 2, "starts and ends") < 0 || enter(self) < 0)
        return NULL;
    int n = parse_numbers(state, "starts", args[0], GW_MAX_DIMS, starts);
    int m = n < 0 ? -1 : parse_numbers(state, "ends", args[1], GW_MAX_DIMS, ends);
    if (m >= 0 && (n != self->info.n_dims || m != n))
        m = gwi_raise(state, GW_EINVAL, "starts and ends must have %d entries each",
                      self->info.n_dims);
    if (m < 0) {
        leave(self, 0);
        return NULL;
    }
    Memory *view = new_memory(state, self->comm);
    int err = view != NULL ? gw_memory_sub(self->memory, starts, ends, &memory) : 0;
    if (leave(self, err) < 0 || view == NULL) {
        Py_XDECREF((PyObject *)view);
        return NULL;
    }
    set_memory(view, memory);
    return (PyObject *)view;
}

/* ---- asking -------------------------------------------------------------------------- */

static PyObject *tuple_of(const int64_t *numbers, int n)
{
    PyObject *tuple = PyTuple_New(n);

    for (int i = 0; tuple != NULL && i < n; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* info() -> kind, dtype, shape, strides, rank, size, whether the group spans nodes */
static PyObject *memory_get_info(Memory *self, PyObject *unused)
{
    const gw_memory_info *info = &self->info;

    (void)unused;
    if (enter(self) < 0)
        return NULL;
    PyObject *result = Py_BuildValue("iiNNiiO", (int)info->kind, (int)info->dtype,
                                     tuple_of(info->shape, info->n_dims),
                                     tuple_of(info->strides, info->n_dims), info->rank, info->size,
                                     info->spans_nodes ? Py_True : Py_False);
    leave(self, 0);
    return result;
}

static PyObject *memory_part(Memory *self, PyObject *object)
{
    int64_t start = 0, count = 0;
    int rank = 0;

    if (parse_int(state_of(self), "rank", object, &rank) < 0 || enter(self) < 0)
        return NULL;
    int err = gw_memory_part(self->memory, rank, &start, &count);
    if (leave(self, err) < 0)
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

    if (parse_int(state, "rank", object, &rank) < 0 || enter(self) < 0)
        return NULL;
    int err = rank < 0 ? 0 : gw_memory_part(self->memory, rank, &start, &count);
    void *bytes = err < 0    ? NULL
                  : rank < 0 ? gw_memory_global(self->memory)
                             : gw_memory_chunk(self->memory, rank);
    if (leave(self, err) < 0)
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

/* ---- rows ---------------------------------------------------------------------------- */

/* New memory comes page by page, and for a long output that is most of the time: large pages
 * where the machine has such.  A hint only. */
static void prefer_large_pages(void *data, size_t n_bytes)
{
    uintptr_t from = ((uintptr_t)data + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
    uintptr_t to = ((uintptr_t)data + n_bytes) & ~(LARGE_PAGE - 1);

    if (to > from)
        madvise((void *)from, to - from, MADV_HUGEPAGE);
}

static int check_rows(Memory *self, const gwi_intake *indices, const gwi_intake *rows,
                      const char *name)
{
    if (rows->layout.n == indices->layout.n * self->row_entries)
        return 0;
    return gwi_raise(
        state_of(self), GW_EINVAL, "%s: it has %lld entries; %lld rows of %lld entries need %lld",
        name, (long long)rows->layout.n, (long long)indices->layout.n, (long long)self->row_entries,
        (long long)(indices->layout.n * self->row_entries));
}

enum { READ, WRITE, ADD };

/* Arguments that are refused here are refused by the library too, so that no rank waits. */
static int refuse_together(Memory *self, int how)
{
    PyObject *type, *value, *traceback;
    gw_indices none = {NULL, 0, GW_N_DTYPES};
    int err;

    if (!self->info.spans_nodes || self->closed)
        return -1;
    PyErr_Fetch(&type, &value, &traceback);
    if (enter_together(self) == 0) {
        WITHOUT_GIL(err, how == READ    ? gw_memory_gather(self->memory, none, NULL, GW_U8)
                         : how == WRITE ? gw_memory_scatter(self->memory, none, NULL, GW_U8)
                                        : gw_memory_scatter_add(self->memory, none, NULL, GW_U8));
        leave_together(self, err);
    }
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    return -1;
}

static int access_rows(Memory *self, PyObject *const *args, int how)
{
    gwi_state *state = state_of(self);
    const gwi_need *need = how == READ ? &out_need : &values_need;
    gwi_intake indices, rows;
    int err;

    if (gwi_intake_open(state, args[0], &index_need, &indices) < 0)
        return refuse_together(self, how);
    err = gwi_intake_open(state, args[1], need, &rows);
    if (err < 0) {
        gwi_intake_close(&indices);
        return refuse_together(self, how);
    }
    gw_indices list = indices_of(&indices);
    gw_dtype dtype = (gw_dtype)rows.layout.dtype;
    void *data = rows.layout.data;
    if (check_rows(self, &indices, &rows, need->name) < 0) {
        err = refuse_together(self, how);
    } else if ((err = enter_access(self)) == 0) {
        if (how == READ)
            prefer_large_pages(data, (size_t)rows.layout.n * rows.layout.item_bytes);
        WITHOUT_GIL(err, how == READ    ? gw_memory_gather(self->memory, list, data, dtype)
                         : how == WRITE ? gw_memory_scatter(self->memory, list, data, dtype)
                                        : gw_memory_scatter_add(self->memory, list, data, dtype));
        err = leave_access(self, err);
    }
    gwi_intake_close(&rows);
    gwi_intake_close(&indices);
    return err;
}

/* gather(indices, out), scatter(indices, values), scatter_add(indices, values) */

static PyObject *memory_gather(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (expect(state_of(self), n_args, 2, "indices and out") < 0 ||
        access_rows(self, args, READ) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *memory_scatter(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (expect(state_of(self), n_args, 2, "indices and values") < 0 ||
        access_rows(self, args, WRITE) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *memory_scatter_add(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (expect(state_of(self), n_args, 2, "indices and values") < 0 ||
        access_rows(self, args, ADD) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* fill(value): of an array with one entry */
static PyObject *memory_fill(Memory *self, PyObject *object)
{
    gwi_state *state = state_of(self);
    gwi_intake value;
    int err;

    if (gwi_intake_open(state, object, &values_need, &value) < 0)
        return NULL;
    err = value.layout.n == 1 ? enter_together(self)
                              : gwi_raise(state, GW_EINVAL, "value: it has %lld entries, not 1",
                                          (long long)value.layout.n);
    if (err == 0) {
        WITHOUT_GIL(err,
                    gw_memory_fill(self->memory, value.layout.data, (gw_dtype)value.layout.dtype));
        err = leave_together(self, err);
    }
    gwi_intake_close(&value);
    return err < 0 ? NULL : Py_NewRef(Py_None);
}

static Memory *parse_memory(const gwi_state *state, const char *name, PyObject *object)
{
    if (Py_TYPE(object) == (PyTypeObject *)state->memory_type)
        return (Memory *)object;
    gwi_raise(state, GW_ETYPE, "%s: %R is no Memory", name, object);
    return NULL;
}

/* copy(other): from it */
static PyObject *memory_copy(Memory *self, PyObject *object)
{
    Memory *from = parse_memory(state_of(self), "other", object);
    int err;

    if (from == NULL || enter(from) < 0)
        return NULL;
    err = enter_together(self);
    if (err == 0) {
        WITHOUT_GIL(err, gw_memory_copy(self->memory, from->memory));
        err = leave_together(self, err);
    }
    leave(from, 0);
    return err < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- files --------------------------------------------------------------------------- */

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
    if (err == 0 && (err = enter_together(self)) == 0) {
        WITHOUT_GIL(err, gw_memory_load(self->memory, texts, (int)n, (gw_file_format)format));
        err = leave_together(self, err);
    }
    for (Py_ssize_t i = 0; i < n_taken; i++)
        Py_XDECREF(paths[i]);
    free(paths);
    free(texts);
    return err;
}

/* load(paths, format) */
static PyObject *memory_load(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    int format = 0;

    if (expect(state, n_args, 2, "paths and format") < 0 ||
        parse_int(state, "format", args[1], &format) < 0 || load_paths(self, args[0], format) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* store(path, format, parts) */
static PyObject *memory_store(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    int format = 0, err;

    if (expect(state, n_args, 3, "path, format, parts") < 0 ||
        parse_int(state, "format", args[1], &format) < 0)
        return NULL;
    int parts = PyObject_IsTrue(args[2]);
    PyObject *path = parts < 0 ? NULL : path_bytes(args[0]);
    if (path == NULL)
        return NULL;
    const char *text = PyBytes_AsString(path);
    err = enter_together(self);
    if (err == 0) {
        WITHOUT_GIL(err, parts ? gw_memory_store_parts(self->memory, text, (gw_file_format)format)
                               : gw_memory_store(self->memory, text, (gw_file_format)format));
        err = leave_together(self, err);
    }
    Py_DECREF(path);
    return err < 0 ? NULL : Py_NewRef(Py_None);
}

/* memory_file(path, format) -> format, bytes, dtype, shape */
static PyObject *memory_file(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = gwi_state_of(module);
    gw_file_info info = {.size_bytes = sizeof info};
    int format = 0, err;

    if (expect(state, n_args, 2, "path and format") < 0 ||
        parse_int(state, "format", args[1], &format) < 0)
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
                         (int)info.dtype, tuple_of(info.shape, info.n_dims));
}

/* memory_part_path(path, rank, size) */
static PyObject *memory_part_path(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = gwi_state_of(module);
    char text[PATH_MAX];
    int rank = 0, size = 0;

    if (expect(state, n_args, 3, "path, rank, size") < 0 ||
        parse_int(state, "rank", args[1], &rank) < 0 ||
        parse_int(state, "size", args[2], &size) < 0)
        return NULL;
    PyObject *path = path_bytes(args[0]);
    if (path == NULL)
        return NULL;
    int err = gw_memory_part_path(PyBytes_AsString(path), rank, size, text, sizeof text);
    Py_DECREF(path);
    return gwi_check(state, err) < 0 ? NULL : PyUnicode_DecodeFSDefault(text);
}

/* ---- optimizers ---------------------------------------------------------------------- */

/* Settings of a step, from a tuple of numbers: lr, weight_decay, eps, lr_decay, alpha, beta1,
 * beta2. */
static int parse_settings(const gwi_state *state, PyObject *object, gw_optimizer *o)
{
    double *const fields[] = {&o->lr,    &o->weight_decay, &o->eps,  &o->lr_decay,
                              &o->alpha, &o->beta1,        &o->beta2};
    const Py_ssize_t n = sizeof fields / sizeof fields[0];

    if (!PyTuple_Check(object) || PyTuple_Size(object) != n)
        return gwi_raise(state, GW_ETYPE, "settings: %R is no tuple of %zd numbers", object, n);
    for (Py_ssize_t i = 0; i < n; i++) {
        *fields[i] = PyFloat_AsDouble(PyTuple_GetItem(object, i));
        if (*fields[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* A Memory or None, entered. */
static int take_state(const gwi_state *state, PyObject *object, Memory **ret_memory,
                      gw_memory **ret_native)
{
    *ret_memory = NULL;
    *ret_native = NULL;
    if (object == Py_None)
        return 0;
    Memory *memory = parse_memory(state, "state", object);
    if (memory == NULL || enter(memory) < 0)
        return -1;
    *ret_memory = memory;
    *ret_native = memory->memory;
    return 0;
}

static const gwi_need f32_need = {
    .name = "gradients", .flags = GWI_CONTIGUOUS, .dtypes = GWI_DTYPE_BIT(GWI_F32)};
static const gwi_need f64_need = {
    .name = "gradients", .flags = GWI_CONTIGUOUS, .dtypes = GWI_DTYPE_BIT(GWI_F64)};

static int step_with(Memory *self, const gw_optimizer *o, PyObject *index_object,
                     PyObject *gradient_object)
{
    gwi_state *state = state_of(self);
    gwi_intake indices, gradients;
    int err;

    if (gwi_intake_open(state, index_object, &index_need, &indices) < 0)
        return -1;
    err = gwi_intake_open(state, gradient_object,
                          self->info.dtype == GW_F64 ? &f64_need : &f32_need, &gradients);
    if (err == 0) {
        err = check_rows(self, &indices, &gradients, "gradients");
        if (err == 0 && (err = enter_together(self)) == 0) {
            gw_indices list = indices_of(&indices);
            WITHOUT_GIL(err, gw_memory_step(self->memory, o, list, gradients.layout.data));
            err = leave_together(self, err);
        }
        gwi_intake_close(&gradients);
    }
    gwi_intake_close(&indices);
    return err;
}

/* step(kind, settings, state, state, counts, indices, gradients) */
static PyObject *memory_step(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    gw_optimizer o = {.size_bytes = sizeof o};
    gw_memory **natives[3] = {&o.states[0], &o.states[1], &o.counts};
    Memory *taken[3] = {NULL};
    int kind = 0, err;

    if (expect(state, n_args, 7, "kind, settings, state, state, counts, indices, gradients") < 0 ||
        parse_int(state, "kind", args[0], &kind) < 0 || parse_settings(state, args[1], &o) < 0)
        return NULL;
    o.kind = (gw_optimizer_kind)kind;
    err = 0;
    for (int i = 0; i < 3 && err == 0; i++)
        err = take_state(state, args[2 + i], &taken[i], natives[i]);
    if (err == 0)
        err = step_with(self, &o, args[5], args[6]);
    for (int i = 0; i < 3; i++)
        if (taken[i] != NULL)
            leave(taken[i], 0);
    return err < 0 ? NULL : Py_NewRef(Py_None);
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
    {"gather", GWI_FUNCTION(memory_gather), METH_FASTCALL,
     "gather(indices, out, /)\n--\n\nRead rows."},
    {"scatter", GWI_FUNCTION(memory_scatter), METH_FASTCALL,
     "scatter(indices, values, /)\n--\n\nWrite rows."},
    {"scatter_add", GWI_FUNCTION(memory_scatter_add), METH_FASTCALL,
     "scatter_add(indices, values, /)\n--\n\nAdd to rows."},
    {"fill", GWI_FUNCTION(memory_fill), METH_O, "fill(value, /)\n--\n\nCollective."},
    {"copy", GWI_FUNCTION(memory_copy), METH_O, "copy(other, /)\n--\n\nCollective: from it."},
    {"load", GWI_FUNCTION(memory_load), METH_FASTCALL, "load(paths, format, /)\n--\n\nCollective."},
    {"store", GWI_FUNCTION(memory_store), METH_FASTCALL,
     "store(path, format, parts, /)\n--\n\nCollective."},
    {"step", GWI_FUNCTION(memory_step), METH_FASTCALL,
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
    {"memory_file", GWI_FUNCTION(memory_file), METH_FASTCALL,
     "memory_file(path, format, /)\n--\n\nWhat a file holds: format, bytes, dtype, shape."},
    {"memory_part_path", GWI_FUNCTION(memory_part_path), METH_FASTCALL,
     "memory_part_path(path, rank, size, /)\n--\n\nThe name of a rank's part."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_memory_part = {methods, exec, traverse, clear};
