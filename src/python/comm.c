/* comm.c - the types Comm and Request: communicators of comm.h and their messages.
 *
 * Thin: what a derivative is, the package knows.  Calls that may wait run
 * without the GIL, between enter() and leave().  `n_inside` counts them: a
 * communicator that is closed while another thread uses it ends when the last
 * one is out.  A world that is left ends its communicators first, and a
 * communicator its requests, so each of the library's objects dies once, and
 * before the one that it needs.  All fields are read and written under the GIL. */
#include "module.h"

#include <godwit/comm.h>

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_PAGE ((uintptr_t)2 << 20)

#define SAME(id, name, bytes) \
    _Static_assert((int)GW_##id == (int)GWI_##id, "the library and the intake count types alike");
GW_DTYPES(SAME)
#undef SAME

typedef struct Request Request;

typedef struct Comm {
    PyObject_HEAD PyObject *world; /* owned */
    gw_comm *comm;                 /* NULL: closed */
    bool closing;                  /* as soon as nobody is inside */
    int n_inside;
    Request *requests; /* not done yet; borrowed */
    gwi_tenant tenant;
} Comm;

struct Request {
    PyObject_HEAD Comm *comm; /* owned */
    gw_request *request;      /* NULL: done, failed or given up */
    bool busy;                /* a thread waits for it */
    gwi_intake intake;        /* open as long as `request` is there */
    Request *next, **link;    /* in `comm->requests` */
};

static gwi_state *state_of(void *self)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)self));
}

/* ---- arguments --------------------------------------------------------------- */

static int expect(const gwi_state *state, Py_ssize_t n_args, Py_ssize_t n, const char *usage)
{
    return n_args == n ? 0 : gwi_raise(state, GW_ETYPE, "expected %s", usage);
}

static int parse_i64(const gwi_state *state, const char *name, PyObject *object, int64_t *ret_value)
{
    long long value = PyLong_AsLongLong(object); /* also of what has __index__ */

    if (value == -1 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError))
            return gwi_raise(state, GW_ERANGE, "%s: %R is out of range", name, object);
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            return gwi_raise(state, GW_ETYPE, "%s: %R is no whole number", name, object);
        return -1;
    }
    *ret_value = value;
    return 0;
}

static int parse_int(const gwi_state *state, const char *name, PyObject *object, int *ret_value)
{
    int64_t value = 0;

    if (parse_i64(state, name, object, &value) < 0)
        return -1;
    if (value < INT_MIN || value > INT_MAX)
        return gwi_raise(state, GW_ERANGE, "%s: %R is out of range", name, object);
    *ret_value = (int)value;
    return 0;
}

static int parse_flags(const gwi_state *state, PyObject *object, uint32_t *ret_flags)
{
    int flags = 0;

    if (parse_int(state, "flags", object, &flags) < 0)
        return -1;
    *ret_flags = (uint32_t)flags;
    return 0;
}

static const gwi_need reads = {.name = "tensor", .flags = GWI_CONTIGUOUS};
static const gwi_need writes = {.name = "output", .flags = GWI_CONTIGUOUS | GWI_WRITABLE};
static const gwi_need sends = {.name = "tensor", .flags = GWI_CONTIGUOUS | GWI_KEEP};
static const gwi_need receives = {.name = "tensor",
                                  .flags = GWI_CONTIGUOUS | GWI_KEEP | GWI_WRITABLE};

static gw_array array_of(const gwi_intake *intake)
{
    const gwi_layout *layout = &intake->layout;

    return (gw_array){layout->data, (gw_dtype)layout->dtype, layout->ndim, layout->shape};
}

static size_t bytes_of(const gwi_intake *intake)
{
    return (size_t)intake->layout.n * intake->layout.item_bytes;
}

/* ---- calls into the library ---------------------------------------------------- */

#define WITHOUT_GIL(err, call)               \
    do {                                     \
        Py_BEGIN_ALLOW_THREADS err = (call); \
        Py_END_ALLOW_THREADS                 \
    } while (0)

static void request_end(Request *self);

/* Give everything back.  In a forked child it is not ours to give.  The GIL stays, so that
 * the world cannot end meanwhile; nothing here waits. */
static void comm_end(Comm *self)
{
    while (self->requests != NULL)
        request_end(self->requests);
    gwi_tenant_remove(&self->tenant);
    if (self->comm != NULL && gwi_world_of(self->world) != NULL)
        gw_comm_close(self->comm);
    self->comm = NULL;
}

static void end_with_world(gwi_tenant *tenant)
{
    comm_end((Comm *)(void *)((char *)tenant - offsetof(Comm, tenant)));
}

static int enter(Comm *self)
{
    if (gwi_world_enter(self->world) < 0)
        return -1;
    if (self->comm == NULL || self->closing) {
        gwi_world_leave(self->world, 0);
        return gwi_raise(state_of(self), GW_ESTATE, "this communicator is closed");
    }
    self->n_inside++;
    return 0;
}

static int leave(Comm *self, int err)
{
    int result = gwi_world_leave(self->world, err); /* first, while the sentence is ours */

    self->n_inside--;
    if (self->closing && self->n_inside == 0)
        comm_end(self);
    return result;
}

/* For parts that use a communicator. */

int gwi_comm_enter(PyObject *comm, gw_comm **ret_comm)
{
    if (enter((Comm *)comm) < 0)
        return -1;
    *ret_comm = ((Comm *)comm)->comm;
    return 0;
}

int gwi_comm_leave(PyObject *comm, int err)
{
    return leave((Comm *)comm, err);
}

PyObject *gwi_comm_its_world(PyObject *comm)
{
    return ((Comm *)comm)->world;
}

/* ---- making communicators -------------------------------------------------------- */

/* Takes `comm`, which may be NULL. */
static PyObject *new_comm(gwi_state *state, PyObject *world, gw_comm *comm)
{
    Comm *self = (Comm *)PyType_GenericAlloc((PyTypeObject *)state->comm_type, 0);

    if (self == NULL) {
        gw_comm_close(comm);
        return NULL;
    }
    self->world = Py_NewRef(world);
    self->comm = comm;
    self->tenant.end = end_with_world;
    gwi_world_add(world, &self->tenant);
    return (PyObject *)self;
}

PyObject *gwi_comm_of_world(PyObject *world)
{
    gw_comm *comm = NULL;
    int err;

    if (gwi_world_enter(world) < 0)
        return NULL;
    gw_world *native = gwi_world_of(world);
    if (native == NULL) {
        gwi_state *state = state_of(world);
        gwi_world_leave(world, 0);
        gwi_raise(state, GW_ESTATE, "this process was forked and is not part of the job");
        return NULL;
    }
    WITHOUT_GIL(err, gw_comm_world(native, &comm));
    if (gwi_world_leave(world, err) < 0)
        return NULL;
    return new_comm(state_of(world), world, comm);
}

static PyObject *comm_split(Comm *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    int color = 0, key = 0, err;
    gw_comm *comm = NULL;

    if (expect(state, n_args, 2, "color and key") < 0 ||
        parse_int(state, "color", args[0], &color) < 0 ||
        parse_int(state, "key", args[1], &key) < 0 || enter(self) < 0)
        return NULL;
    WITHOUT_GIL(err, gw_comm_split(self->comm, color, key, &comm));
    if (leave(self, err) < 0)
        return NULL;
    return comm != NULL ? new_comm(state, self->world, comm) : Py_NewRef(Py_None);
}

/* The ranks of a sequence, in memory that the caller frees. */
static int parse_ranks(const gwi_state *state, PyObject *object, int **ret_ranks, int *ret_n)
{
    Py_ssize_t n = PySequence_Check(object) ? PySequence_Size(object) : -1;

    if (n < 0 || n > INT_MAX) {
        PyErr_Clear();
        return gwi_raise(state, GW_ETYPE, "ranks: %R is no list of ranks", object);
    }
    int *ranks = malloc((size_t)(n > 0 ? n : 1) * sizeof *ranks);
    if (ranks == NULL)
        return gwi_raise(state, GW_ENOMEM, "ranks: %zd of them", n);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        int err = item != NULL ? parse_int(state, "ranks", item, &ranks[i]) : -1;
        Py_XDECREF(item);
        if (err < 0) {
            free(ranks);
            return -1;
        }
    }
    *ret_ranks = ranks;
    *ret_n = (int)n;
    return 0;
}

static PyObject *comm_of_ranks(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = gwi_state_of(module);
    int *ranks = NULL, n_ranks = 0, err;
    gw_comm *comm = NULL;

    if (expect(state, n_args, 2, "a world and a list of ranks") < 0)
        return NULL;
    if (Py_TYPE(args[0]) != (PyTypeObject *)state->world_type) {
        gwi_raise(state, GW_ETYPE, "world: %R is no World", args[0]);
        return NULL;
    }
    if (parse_ranks(state, args[1], &ranks, &n_ranks) < 0)
        return NULL;
    err = gwi_world_enter(args[0]);
    if (err == 0) {
        gw_world *world = gwi_world_of(args[0]);
        if (world != NULL)
            WITHOUT_GIL(err, gw_comm_of_ranks(world, ranks, n_ranks, &comm));
        else
            gwi_raise(state, GW_ESTATE, "this process was forked and is not part of the job");
        err = gwi_world_leave(args[0], err);
    }
    free(ranks);
    return err < 0 ? NULL : new_comm(state, args[0], comm);
}

static PyObject *comm_close(Comm *self, PyObject *unused)
{
    (void)unused;
    if (self->n_inside > 0)
        self->closing = true;
    else
        comm_end(self);
    Py_RETURN_NONE;
}

static void comm_dealloc(Comm *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);

    comm_end(self); /* requests hold a reference, so none is left */
    Py_DECREF(self->world);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- collectives ------------------------------------------------------------------ */

static PyObject *comm_barrier(Comm *self, PyObject *unused)
{
    (void)unused;
    int err;

    if (enter(self) < 0)
        return NULL;
    WITHOUT_GIL(err, gw_comm_barrier(self->comm));
    return leave(self, err) < 0 ? NULL : Py_NewRef(Py_None);
}

static int parse_call(const gwi_state *state, PyObject *kind_object, PyObject *op_object,
                      PyObject *root_object, PyObject *flags_object, gw_call *ret_call)
{
    int kind = 0, op = 0;

    *ret_call = (gw_call){.size_bytes = sizeof *ret_call};
    if (parse_int(state, "kind", kind_object, &kind) < 0 ||
        parse_int(state, "op", op_object, &op) < 0 ||
        parse_int(state, "root", root_object, &ret_call->root) < 0 ||
        parse_flags(state, flags_object, &ret_call->flags) < 0)
        return -1;
    if (kind < 0 || kind >= GW_N_COLLECTIVES)
        return gwi_raise(state, GW_ERANGE, "kind: %d is no collective", kind);
    if (op < 0 || op >= GW_N_OPS)
        return gwi_raise(state, GW_ERANGE, "op: %d is no operation; use one of MPI_MAX...", op);
    ret_call->kind = (gw_collective)kind;
    ret_call->op = (gw_op)op;
    return 0;
}

/* Without the GIL. */
static int call_into(gw_comm *comm, const gw_call *call, void *output, size_t n_bytes,
                     gw_agreed *ret_agreed, bool *ret_wrong_size)
{
    int err = gw_comm_agree(comm, call, ret_agreed);

    if (err < 0)
        return err;
    if (ret_agreed->n_bytes != n_bytes) {
        gw_comm_abandon(comm);
        *ret_wrong_size = true;
        return 0;
    }
    return gw_comm_run(comm, output);
}

/* A long output is new memory, and most of the time would go into getting it page by page:
 * 80 MB are 20,000 pages, or 40 large ones, where the machine has such.  A hint only. */
static void prefer_large_pages(const gwi_intake *output)
{
    uintptr_t from = ((uintptr_t)output->layout.data + LARGE_PAGE - 1) & ~(LARGE_PAGE - 1);
    uintptr_t to = ((uintptr_t)output->layout.data + bytes_of(output)) & ~(LARGE_PAGE - 1);

    if (to > from)
        madvise((void *)from, to - from, MADV_HUGEPAGE);
}

/* call(kind, op, root, flags, input, output) -> flags of all */
static PyObject *comm_call(Comm *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    gw_agreed agreed = {.size_bytes = sizeof agreed};
    bool wrong_size = false;
    gwi_intake input, output;
    gw_call call;
    int err;

    if (expect(state, n_args, 6, "kind, op, root, flags, input, output") < 0 ||
        parse_call(state, args[0], args[1], args[2], args[3], &call) < 0 ||
        gwi_intake_open(state, args[4], &reads, &input) < 0)
        return NULL;
    err = gwi_intake_open(state, args[5], &writes, &output);
    if (err < 0)
        goto close_input;
    err = enter(self);
    if (err < 0)
        goto close_output;
    call.input = array_of(&input);
    if (output.layout.data != input.layout.data)
        prefer_large_pages(&output);
    WITHOUT_GIL(err, call_into(self->comm, &call, output.layout.data, bytes_of(&output), &agreed,
                               &wrong_size));
    err = leave(self, err);
    if (err == 0 && wrong_size)
        err = gwi_raise(state, GW_EINVAL, "output: it has %zu bytes and %zu are to come",
                        bytes_of(&output), agreed.n_bytes);
close_output:
    gwi_intake_close(&output);
close_input:
    gwi_intake_close(&input);
    return err < 0 ? NULL : PyLong_FromUnsignedLong(agreed.flags);
}

/* What make(shape, dtype, flags) gives, or NULL. */
static PyObject *make_output(PyObject *make, const gw_agreed *agreed)
{
    const gw_array *array = &agreed->output;
    PyObject *shape = PyTuple_New(array->n_dims);

    for (int i = 0; shape != NULL && i < array->n_dims; i++) {
        PyObject *length = PyLong_FromLongLong(array->shape[i]);
        if (length == NULL || PyTuple_SetItem(shape, i, length) < 0)
            Py_CLEAR(shape);
    }
    if (shape == NULL)
        return NULL;
    return PyObject_CallFunction(make, "NiI", shape, (int)array->dtype, agreed->flags);
}

/* After agree: have the output made, and fill it.  Returns what leave() wants to know. */
static int run_into_made(Comm *self, PyObject *make, const gw_agreed *agreed, PyObject **ret_output)
{
    gwi_state *state = state_of(self);
    gwi_intake intake;
    int err;

    PyObject *output = make_output(make, agreed);
    if (output == NULL)
        goto abandon;
    if (gwi_intake_open(state, output, &writes, &intake) < 0)
        goto drop_output;
    if (bytes_of(&intake) != agreed->n_bytes) {
        gwi_raise(state, GW_EINVAL, "output: it has %zu bytes and %zu are to come",
                  bytes_of(&intake), agreed->n_bytes);
        gwi_intake_close(&intake);
        goto drop_output;
    }
    prefer_large_pages(&intake);
    WITHOUT_GIL(err, gw_comm_run(self->comm, intake.layout.data));
    gwi_intake_close(&intake);
    *ret_output = output;
    return err;

drop_output:
    Py_DECREF(output);
abandon:
    gw_comm_abandon(self->comm);
    return GW_EINVAL; /* the exception is set */
}

/* exchange(kind, op, root, flags, axis, axis2, count, input, make) -> output, flags of all */
static PyObject *comm_exchange(Comm *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    gw_agreed agreed = {.size_bytes = sizeof agreed};
    PyObject *output = NULL;
    gwi_intake input;
    gw_call call;
    int err;

    if (expect(state, n_args, 9, "kind, op, root, flags, axis, axis2, count, input, make") < 0 ||
        parse_call(state, args[0], args[1], args[2], args[3], &call) < 0 ||
        parse_int(state, "axis", args[4], &call.axis) < 0 ||
        parse_int(state, "axis2", args[5], &call.axis2) < 0 ||
        parse_i64(state, "count", args[6], &call.count) < 0)
        return NULL;
    bool has_input = args[7] != Py_None;
    if (has_input && gwi_intake_open(state, args[7], &reads, &input) < 0)
        return NULL;
    if (has_input)
        call.input = array_of(&input);
    err = enter(self);
    if (err == 0) {
        WITHOUT_GIL(err, gw_comm_agree(self->comm, &call, &agreed));
        if (err == 0)
            err = run_into_made(self, args[8], &agreed, &output);
        err = leave(self, err);
    }
    if (has_input)
        gwi_intake_close(&input);
    if (err < 0) {
        Py_XDECREF(output);
        return NULL;
    }
    return Py_BuildValue("NI", output, agreed.flags);
}

/* ---- messages ----------------------------------------------------------------------- */

/* A request that is still empty; what it needs to be closed is not set. */
static Request *new_request(Comm *comm)
{
    PyTypeObject *type = (PyTypeObject *)state_of(comm)->request_type;
    Request *self = (Request *)PyType_GenericAlloc(type, 0);

    if (self != NULL)
        self->comm = (Comm *)Py_NewRef((PyObject *)comm);
    return self;
}

static void link_request(Request *self)
{
    Request **first = &self->comm->requests;

    self->next = *first;
    self->link = first;
    if (self->next != NULL)
        self->next->link = &self->next;
    *first = self;
}

static void unlink_request(Request *self)
{
    if (self->link == NULL)
        return;
    *self->link = self->next;
    if (self->next != NULL)
        self->next->link = self->link;
    self->link = NULL;
}

/* The library is done with it: the tensor's memory goes back. */
static void release(Request *self)
{
    if (self->link == NULL)
        return;
    unlink_request(self);
    gwi_intake_close(&self->intake);
}

/* Give up what is not done.  In a forked child nothing is touched. */
static void request_end(Request *self)
{
    if (self->request != NULL && gwi_world_of(self->comm->world) != NULL)
        gw_request_cancel(&self->request);
    self->request = NULL;
    release(self);
}

static void request_dealloc(Request *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);

    request_end(self);
    Py_DECREF((PyObject *)self->comm);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* isend(tensor, dest, tag, flags) -> request, number */
static PyObject *comm_isend(Comm *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    uint64_t number = 0;
    uint32_t flags = 0;
    int64_t tag = 0;
    int dest = 0, err;

    if (expect(state, n_args, 4, "tensor, dest, tag, flags") < 0 ||
        parse_int(state, "dest", args[1], &dest) < 0 ||
        parse_i64(state, "tag", args[2], &tag) < 0 || parse_flags(state, args[3], &flags) < 0)
        return NULL;
    Request *request = new_request(self);
    if (request == NULL)
        return NULL;
    const gwi_layout *layout = &request->intake.layout;
    if (gwi_intake_open(state, args[0], &sends, &request->intake) < 0)
        goto fail;
    link_request(request);
    if (enter(self) < 0)
        goto fail;
    WITHOUT_GIL(err,
                gw_comm_isend(self->comm, layout->data, (size_t)layout->n, (gw_dtype)layout->dtype,
                              dest, tag, flags, &number, &request->request));
    if (leave(self, err) < 0)
        goto fail;
    return Py_BuildValue("NK", request, (unsigned long long)number);

fail:
    Py_DECREF((PyObject *)request);
    return NULL;
}

/* irecv(tensor, source, tag) -> request */
static PyObject *comm_irecv(Comm *self, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = state_of(self);
    int64_t tag = 0;
    int source = 0, err;

    if (expect(state, n_args, 3, "tensor, source, tag") < 0 ||
        parse_int(state, "source", args[1], &source) < 0 ||
        parse_i64(state, "tag", args[2], &tag) < 0)
        return NULL;
    Request *request = new_request(self);
    if (request == NULL)
        return NULL;
    const gwi_layout *layout = &request->intake.layout;
    if (gwi_intake_open(state, args[0], &receives, &request->intake) < 0)
        goto fail;
    link_request(request);
    if (enter(self) < 0)
        goto fail;
    WITHOUT_GIL(err, gw_comm_irecv(self->comm, layout->data, (size_t)layout->n,
                                   (gw_dtype)layout->dtype, source, tag, &request->request));
    if (leave(self, err) < 0)
        goto fail;
    return (PyObject *)request;

fail:
    Py_DECREF((PyObject *)request);
    return NULL;
}

/* Test or wait; `ret_done` says whether there is a status. */
static int finish(Request *self, int (*call)(gw_request **, gw_status *), gw_status *ret_status,
                  bool *ret_done)
{
    int err;

    if (enter(self->comm) < 0)
        return -1;
    if (self->request == NULL || self->busy) {
        leave(self->comm, 0);
        return gwi_raise(state_of(self), GW_ESTATE,
                         self->busy ? "another thread waits for this message"
                                    : "this message is done, or was given up");
    }
    self->busy = true;
    WITHOUT_GIL(err, call(&self->request, ret_status));
    self->busy = false;
    *ret_done = err > 0 || (err == 0 && self->request == NULL);
    if (self->request == NULL)
        release(self);
    return leave(self->comm, err);
}

/* source, tag, n, flags, number */
static PyObject *status_tuple(const gw_status *status)
{
    return Py_BuildValue("iLKIK", status->source, (long long)status->tag,
                         (unsigned long long)status->n, status->flags,
                         (unsigned long long)status->number);
}

static PyObject *request_wait(Request *self, PyObject *unused)
{
    (void)unused;
    gw_status status = {0};
    bool done = false;

    if (finish(self, gw_request_wait, &status, &done) < 0)
        return NULL;
    return status_tuple(&status);
}

static PyObject *request_test(Request *self, PyObject *unused)
{
    (void)unused;
    gw_status status = {0};
    bool done = false;

    if (finish(self, gw_request_test, &status, &done) < 0)
        return NULL;
    return done ? status_tuple(&status) : Py_NewRef(Py_None);
}

static PyObject *request_done(Request *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->request == NULL);
}

/* ---- what a communicator knows ---------------------------------------------------------- */

static PyObject *get_rank(Comm *self, void *unused)
{
    (void)unused;
    if (enter(self) < 0)
        return NULL;
    int rank = gw_comm_rank(self->comm);
    return leave(self, 0) < 0 ? NULL : PyLong_FromLong(rank);
}

static PyObject *get_size(Comm *self, void *unused)
{
    (void)unused;
    if (enter(self) < 0)
        return NULL;
    int size = gw_comm_size(self->comm);
    return leave(self, 0) < 0 ? NULL : PyLong_FromLong(size);
}

static PyObject *get_closed(Comm *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->comm == NULL || self->closing);
}

static PyObject *comm_world_rank(Comm *self, PyObject *object)
{
    int rank = 0;

    if (parse_int(state_of(self), "rank", object, &rank) < 0 || enter(self) < 0)
        return NULL;
    int world_rank = gw_comm_world_rank(self->comm, rank);
    return leave(self, world_rank < 0 ? world_rank : 0) < 0 ? NULL : PyLong_FromLong(world_rank);
}

/* ---- the part ----------------------------------------------------------------------------- */

#define GETTER(f) ((getter)(void (*)(void))(f))
#define SLOT(f) ((void *)(uintptr_t)(f))

static PyGetSetDef comm_fields[] = {
    {"rank", GETTER(get_rank), NULL, "This process's number in it, from 0.", NULL},
    {"size", GETTER(get_size), NULL, "How many processes it has.", NULL},
    {"closed", GETTER(get_closed), NULL, "Whether it, or its world, was closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef comm_methods[] = {
    {"call", GWI_FUNCTION(comm_call), METH_FASTCALL,
     "call(kind, op, root, flags, input, output, /)\n--\n\nA collective whose output has the "
     "input's shape.  Returns the flags of all ranks, joined."},
    {"exchange", GWI_FUNCTION(comm_exchange), METH_FASTCALL,
     "exchange(kind, op, root, flags, axis, axis2, count, input, make, /)\n--\n\nA collective "
     "into what make(shape, dtype, flags) gives.  Returns that, and the flags of all ranks."},
    {"barrier", GWI_FUNCTION(comm_barrier), METH_NOARGS,
     "barrier()\n--\n\nReturn when every rank has called it."},
    {"isend", GWI_FUNCTION(comm_isend), METH_FASTCALL,
     "isend(tensor, dest, tag, flags, /)\n--\n\nStart to send.  Returns a Request and the "
     "message's number."},
    {"irecv", GWI_FUNCTION(comm_irecv), METH_FASTCALL,
     "irecv(tensor, source, tag, /)\n--\n\nStart to receive.  Returns a Request."},
    {"split", GWI_FUNCTION(comm_split), METH_FASTCALL,
     "split(color, key, /)\n--\n\nOne communicator for each color; None if it is below 0."},
    {"world_rank", GWI_FUNCTION(comm_world_rank), METH_O,
     "world_rank(rank, /)\n--\n\nThe rank in the world of a rank in here."},
    {"close", GWI_FUNCTION(comm_close), METH_NOARGS,
     "close()\n--\n\nGive it back.  Messages that are not done are given up."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot comm_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "Some processes of a job, in an order of their own."},
    {Py_tp_dealloc, SLOT(comm_dealloc)},
    {Py_tp_getset, comm_fields},
    {Py_tp_methods, comm_methods},
    {0, NULL},
};

static PyType_Spec comm_spec = {
    .name = "godwit._native.Comm",
    .basicsize = sizeof(Comm),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = comm_slots,
};

static PyGetSetDef request_fields[] = {
    {"done", GETTER(request_done), NULL, "Whether there is nothing to wait for any more.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef request_methods[] = {
    {"wait", GWI_FUNCTION(request_wait), METH_NOARGS,
     "wait()\n--\n\nWait for it.  Returns source, tag, number of entries, the sender's flags and "
     "the message's number."},
    {"test", GWI_FUNCTION(request_test), METH_NOARGS,
     "test()\n--\n\nThe same if it is done, else None."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot request_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "A message under way.  It keeps its tensor's memory alive."},
    {Py_tp_dealloc, SLOT(request_dealloc)},
    {Py_tp_getset, request_fields},
    {Py_tp_methods, request_methods},
    {0, NULL},
};

static PyType_Spec request_spec = {
    .name = "godwit._native.Request",
    .basicsize = sizeof(Request),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = request_slots,
};

static int exec(PyObject *module)
{
    gwi_state *state = gwi_state_of(module);

    state->comm_type = PyType_FromModuleAndSpec(module, &comm_spec, NULL);
    state->request_type = PyType_FromModuleAndSpec(module, &request_spec, NULL);
    if (state->comm_type == NULL || state->request_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "Comm", state->comm_type) < 0
               ? -1
               : PyModule_AddObjectRef(module, "Request", state->request_type);
}

static int traverse(gwi_state *state, visitproc visit, void *arg)
{
    Py_VISIT(state->comm_type);
    Py_VISIT(state->request_type);
    return 0;
}

static void clear(gwi_state *state)
{
    Py_CLEAR(state->comm_type);
    Py_CLEAR(state->request_type);
}

static PyMethodDef methods[] = {
    {"comm_of_ranks", GWI_FUNCTION(comm_of_ranks), METH_FASTCALL,
     "comm_of_ranks(world, ranks, /)\n--\n\nA communicator of these ranks of the world, made by "
     "all of them."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_comm_part = {methods, exec, traverse, clear};
