/* memory_rows.c - rows of a Memory: reading, writing, adding, and the steps of optimizers.
 *
 * If the group spans nodes, all of it is collective.  Then arguments that are refused here are
 * refused by the library too, on all ranks, so that nobody waits for one that has raised.   */
#include "memory.h"

#include <sys/mman.h>

#define LARGE_PAGE ((uintptr_t)2 << 20)

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
    if (gwi_memory_enter_together(self) == 0) {
        WITHOUT_GIL(err, how == READ    ? gw_memory_gather(self->memory, none, NULL, GW_U8)
                         : how == WRITE ? gw_memory_scatter(self->memory, none, NULL, GW_U8)
                                        : gw_memory_scatter_add(self->memory, none, NULL, GW_U8));
        gwi_memory_leave_together(self, err);
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
    } else if ((err = gwi_memory_enter_access(self)) == 0) {
        if (how == READ)
            prefer_large_pages(data, (size_t)rows.layout.n * rows.layout.item_bytes);
        WITHOUT_GIL(err, how == READ    ? gw_memory_gather(self->memory, list, data, dtype)
                         : how == WRITE ? gw_memory_scatter(self->memory, list, data, dtype)
                                        : gw_memory_scatter_add(self->memory, list, data, dtype));
        err = gwi_memory_leave_access(self, err);
    }
    gwi_intake_close(&rows);
    gwi_intake_close(&indices);
    return err;
}

/* gather(indices, out), scatter(indices, values), scatter_add(indices, values) */

PyObject *gwi_memory_gather(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (gwi_memory_expect(state_of(self), n_args, 2, "indices and out") < 0 ||
        access_rows(self, args, READ) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *gwi_memory_scatter(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (gwi_memory_expect(state_of(self), n_args, 2, "indices and values") < 0 ||
        access_rows(self, args, WRITE) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *gwi_memory_scatter_add(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (gwi_memory_expect(state_of(self), n_args, 2, "indices and values") < 0 ||
        access_rows(self, args, ADD) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* fill(value): of an array with one entry */
PyObject *gwi_memory_fill(Memory *self, PyObject *object)
{
    gwi_state *state = state_of(self);
    gwi_intake value;
    int err;

    if (gwi_intake_open(state, object, &values_need, &value) < 0)
        return NULL;
    err = value.layout.n == 1 ? gwi_memory_enter_together(self)
                              : gwi_raise(state, GW_EINVAL, "value: it has %lld entries, not 1",
                                          (long long)value.layout.n);
    if (err == 0) {
        WITHOUT_GIL(err,
                    gw_memory_fill(self->memory, value.layout.data, (gw_dtype)value.layout.dtype));
        err = gwi_memory_leave_together(self, err);
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
PyObject *gwi_memory_copy(Memory *self, PyObject *object)
{
    Memory *from = parse_memory(state_of(self), "other", object);
    int err;

    if (from == NULL || gwi_memory_enter(from) < 0)
        return NULL;
    err = gwi_memory_enter_together(self);
    if (err == 0) {
        WITHOUT_GIL(err, gw_memory_copy(self->memory, from->memory));
        err = gwi_memory_leave_together(self, err);
    }
    gwi_memory_leave(from, 0);
    return err < 0 ? NULL : Py_NewRef(Py_None);
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
    if (memory == NULL || gwi_memory_enter(memory) < 0)
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
        if (err == 0 && (err = gwi_memory_enter_together(self)) == 0) {
            gw_indices list = indices_of(&indices);
            WITHOUT_GIL(err, gw_memory_step(self->memory, o, list, gradients.layout.data));
            err = gwi_memory_leave_together(self, err);
        }
        gwi_intake_close(&gradients);
    }
    gwi_intake_close(&indices);
    return err;
}

/* step(kind, settings, state, state, counts, indices, gradients) */
PyObject *gwi_memory_step(Memory *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    gw_optimizer o = {.size_bytes = sizeof o};
    gw_memory **natives[3] = {&o.states[0], &o.states[1], &o.counts};
    Memory *taken[3] = {NULL};
    int kind = 0, err;

    if (gwi_memory_expect(state, n_args, 7,
                          "kind, settings, state, state, counts, indices, gradients") < 0 ||
        gwi_memory_parse_int(state, "kind", args[0], &kind) < 0 ||
        parse_settings(state, args[1], &o) < 0)
        return NULL;
    o.kind = (gw_optimizer_kind)kind;
    err = 0;
    for (int i = 0; i < 3 && err == 0; i++)
        err = take_state(state, args[2 + i], &taken[i], natives[i]);
    if (err == 0)
        err = step_with(self, &o, args[5], args[6]);
    for (int i = 0; i < 3; i++)
        if (taken[i] != NULL)
            gwi_memory_leave(taken[i], 0);
    return err < 0 ? NULL : Py_NewRef(Py_None);
}
