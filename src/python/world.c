/* world.c - the type World, and what Python asks about jobs before it joins one.
 *
 * Calls that may wait run without the GIL.  `n_inside` counts them, so that
 * close() frees nothing that another thread is using: it ends their waits
 * first.  What lives in a world, such as communicators, it ends after that.
 * The fields of a World are read and written under the GIL.                  */
#include "module.h"
#include "interrupt.h"
#include "where.h"

#include <godwit/world.h>

#include <errno.h>
#include <limits.h>
#include <semaphore.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

/* Waits look for an interruption every 100 ms; this leaves room for a busy machine. */
#define CLOSE_PATIENCE_S 5

typedef struct World {
    PyObject_HEAD gw_world *world; /* NULL: closed */
    pid_t pid;                     /* the process that joined, not a child of it */
    int n_inside;
    bool closing;
    sem_t all_outside; /* posted by the last one out while closing */
    gwi_tenant *tenants;
} World;

static gwi_state *state_of(World *self)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)self));
}

/* ---- arguments --------------------------------------------------------------- */

/* A whole number of at least `low`. */
static int parse_int(const gwi_state *state, const char *name, PyObject *object, int low,
                     int *ret_value)
{
    PyObject *number = PyNumber_Index(object);
    if (number == NULL)
        return PyErr_ExceptionMatches(PyExc_TypeError)
                   ? gwi_raise(state, GW_ETYPE, "%s: %R is no whole number", name, object)
                   : -1;
    int overflow;
    long value = PyLong_AsLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    if (overflow != 0 || value < low || value > INT_MAX)
        return gwi_raise(state, GW_ERANGE, "%s: %R is out of range; the smallest is %d", name,
                         object, low);
    *ret_value = (int)value;
    return 0;
}

/* The same, but None leaves `ret_value` as it is. */
static int parse_given_int(const gwi_state *state, const char *name, PyObject *object, int low,
                           int *ret_value)
{
    return object == Py_None ? 0 : parse_int(state, name, object, low, ret_value);
}

static int parse_given_seconds(const gwi_state *state, PyObject *object, double *ret_seconds)
{
    if (object == Py_None)
        return 0;
    double seconds = PyFloat_AsDouble(object);
    if (PyErr_Occurred())
        return gwi_raise(state, GW_ETYPE, "timeout: %R is no number of seconds", object);
    if (!(seconds > 0))
        return gwi_raise(state, GW_EINVAL, "timeout: %R; give seconds above 0", object);
    *ret_seconds = seconds;
    return 0;
}

/* The arguments (rank, size, job, node_size, timeout), each of which may be
 * None.  `ret_options->job` is borrowed from `args`. */
static int parse_options(const gwi_state *state, PyObject *const *args, Py_ssize_t n_args,
                         gw_world_options *ret_options)
{
    if (n_args != 5 && n_args != 7)
        return gwi_raise(state, GW_ETYPE,
                         "expected rank, size, job, node_size, timeout, and perhaps with_parent, "
                         "within");
    if (parse_given_int(state, "rank", args[0], 0, &ret_options->rank) < 0 ||
        parse_given_int(state, "size", args[1], 1, &ret_options->size) < 0 ||
        parse_given_int(state, "node_size", args[3], 1, &ret_options->node_size) < 0 ||
        parse_given_seconds(state, args[4], &ret_options->timeout_s) < 0)
        return -1;
    if (args[2] == Py_None)
        return 0;
    if (!PyUnicode_Check(args[2]))
        return gwi_raise(state, GW_ETYPE, "job: %R is no text", args[2]);
    ret_options->job = PyUnicode_AsUTF8AndSize(args[2], NULL);
    return ret_options->job != NULL ? 0 : -1;
}

/* ---- calls into the library ---------------------------------------------------- */

/* Before and after a call that may wait.  Between the two `world` stays. */
static int enter(World *self)
{
    if (self->world == NULL || self->closing)
        return gwi_raise(state_of(self), GW_ESTATE,
                         "the world is closed; call godwit.init() to join a job");
    self->n_inside++;
    return 0;
}

static int leave(World *self, int err)
{
    self->n_inside--;
    if (!self->closing)
        return gwi_check(state_of(self), err);

    if (self->n_inside == 0)
        sem_post(&self->all_outside);
    if (err == GW_EINTR && !PyErr_Occurred())
        return gwi_raise(state_of(self), GW_ESTATE,
                         "the world was closed by another thread during this call");
    return gwi_check(state_of(self), err);
}

int gwi_world_enter(PyObject *world)
{
    return enter((World *)world);
}

int gwi_world_leave(PyObject *world, int err)
{
    return leave((World *)world, err);
}

gw_world *gwi_world_of(PyObject *world)
{
    World *self = (World *)world;
    return self->pid == getpid() ? self->world : NULL;
}

void gwi_world_add(PyObject *world, gwi_tenant *tenant)
{
    gwi_tenant **first = &((World *)world)->tenants;

    tenant->next = *first;
    tenant->link = first;
    if (tenant->next != NULL)
        tenant->next->link = &tenant->next;
    *first = tenant;
}

void gwi_tenant_remove(gwi_tenant *tenant)
{
    if (tenant->link == NULL)
        return;
    *tenant->link = tenant->next;
    if (tenant->next != NULL)
        tenant->next->link = tenant->link;
    tenant->link = NULL;
}

/* Run one call of the library without the GIL, between enter() and leave(). */
#define WITHOUT_GIL(err, call)               \
    do {                                     \
        Py_BEGIN_ALLOW_THREADS err = (call); \
        Py_END_ALLOW_THREADS                 \
    } while (0)

static PyObject *world_barrier(World *self, PyObject *unused)
{
    (void)unused;
    int err;

    if (enter(self) < 0)
        return NULL;
    WITHOUT_GIL(err, gw_world_barrier(self->world));
    if (leave(self, err) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The bytes of a message, which any object with a dense buffer has. */
static int get_message(const gwi_state *state, PyObject *object, Py_buffer *ret_buffer)
{
    if (PyObject_GetBuffer(object, ret_buffer, PyBUF_SIMPLE) == 0)
        return 0;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        return gwi_raise(state, GW_ETYPE,
                         "message: %R has no bytes to send; pass bytes, a bytearray or an array",
                         (PyObject *)Py_TYPE(object));
    if (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError))
        return gwi_raise(state, GW_EINVAL, "message: it is not contiguous; pass a copy");
    return -1;
}

static PyObject *world_send(World *self, PyObject *const *args, Py_ssize_t n_args)
{
    int peer = 0, err;
    Py_buffer message;

    if (n_args != 2) {
        gwi_raise(state_of(self), GW_ETYPE, "send takes a peer and a message");
        return NULL;
    }
    if (parse_int(state_of(self), "peer", args[0], 0, &peer) < 0 ||
        get_message(state_of(self), args[1], &message) < 0)
        return NULL;
    err = enter(self);
    if (err == 0) {
        WITHOUT_GIL(err, gw_world_send(self->world, peer, message.buf, (size_t)message.len));
        err = leave(self, err);
    }
    PyBuffer_Release(&message);
    return err < 0 ? NULL : Py_NewRef(Py_None);
}

/* Receive into new bytes of `n_bytes`.  Fails with GW_EINVAL if the message is
 * longer, because another thread took the one that was measured. */
static int receive_into_bytes(World *self, int peer, size_t n_bytes, PyObject **ret_bytes)
{
    size_t n_received = 0;
    int err;

    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n_bytes);
    if (bytes == NULL)
        return GW_ENOMEM;
    char *buffer = PyBytes_AsString(bytes);
    WITHOUT_GIL(err, gw_world_recv(self->world, peer, buffer, n_bytes, &n_received));
    if (err == 0 && n_received == n_bytes)
        *ret_bytes = Py_NewRef(bytes);
    else if (err == 0) /* shorter; CPython's stable ABI cannot cut bytes */
        *ret_bytes = PyBytes_FromStringAndSize(buffer, (Py_ssize_t)n_received);
    Py_DECREF(bytes);
    return err;
}

static PyObject *world_recv(World *self, PyObject *peer_object)
{
    PyObject *bytes = NULL;
    int peer = 0, err;

    if (parse_int(state_of(self), "peer", peer_object, 0, &peer) < 0 || enter(self) < 0)
        return NULL;
    do {
        size_t n_bytes = 0;
        WITHOUT_GIL(err, gw_world_peek(self->world, peer, &n_bytes));
        if (err < 0)
            break;
        err = receive_into_bytes(self, peer, n_bytes, &bytes);
    } while (err == GW_EINVAL && !PyErr_Occurred());
    if (leave(self, err) < 0)
        Py_CLEAR(bytes);
    return bytes;
}

/* ---- leaving -------------------------------------------------------------------- */

/* Wait until no other thread is inside; they are told to stop. */
static void wait_outside(World *self)
{
    struct timespec limit;

    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += CLOSE_PATIENCE_S;
    gwi_interrupt_begin_stop();
    Py_BEGIN_ALLOW_THREADS while (sem_timedwait(&self->all_outside, &limit) < 0 && errno == EINTR);
    Py_END_ALLOW_THREADS gwi_interrupt_end_stop();
}

static PyObject *world_close(World *self, PyObject *unused)
{
    (void)unused;

    if (self->world == NULL || self->closing || self->pid != getpid())
        Py_RETURN_NONE; /* closed, being closed, or not ours: a child leaves its parent's alone */

    self->closing = true;
    if (self->n_inside > 0)
        wait_outside(self);
    if (self->n_inside > 0) {
        self->closing = false;
        gwi_raise(state_of(self), GW_ESTATE,
                  "cannot close the world: %d other calls are still inside it", self->n_inside);
        return NULL;
    }
    while (self->tenants != NULL) {
        gwi_tenant *tenant = self->tenants;
        gwi_tenant_remove(tenant);
        tenant->end(tenant);
    }
    gw_world *world = self->world;
    self->world = NULL;
    self->closing = false;
    Py_BEGIN_ALLOW_THREADS gw_world_close(world);
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static void world_dealloc(World *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);

    if (self->world != NULL && self->pid == getpid()) {
        /* The library's witness may just be waiting for the GIL. */
        Py_BEGIN_ALLOW_THREADS gw_world_close(self->world);
        Py_END_ALLOW_THREADS
    }
    sem_destroy(&self->all_outside);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *world_comm(World *self, PyObject *unused)
{
    (void)unused;
    return gwi_comm_of_world((PyObject *)self);
}

/* ---- what it knows ---------------------------------------------------------------- */

static int get_info(World *self, gw_world_info *ret_info)
{
    *ret_info = (gw_world_info){.size_bytes = sizeof *ret_info};
    if (enter(self) < 0)
        return -1;
    return leave(self, gw_world_get_info(self->world, ret_info));
}

static PyObject *get_int(World *self, void *offset)
{
    gw_world_info info;

    if (get_info(self, &info) < 0)
        return NULL;
    return PyLong_FromLong(*(const int *)((const char *)&info + (uintptr_t)offset));
}

static PyObject *get_text(World *self, void *offset)
{
    gw_world_info info;

    if (get_info(self, &info) < 0)
        return NULL;
    return PyUnicode_FromString(*(const char *const *)((const char *)&info + (uintptr_t)offset));
}

static PyObject *get_closed(World *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->world == NULL || self->closing);
}

static PyObject *get_forked(World *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->pid != getpid());
}

static PyObject *world_repr(World *self)
{
    gw_world_info info;

    if (self->world == NULL || self->closing)
        return PyUnicode_FromString("<godwit.World, closed>");
    if (self->pid != getpid())
        return PyUnicode_FromString("<godwit.World of the process that forked this one>");
    if (get_info(self, &info) < 0)
        return NULL;
    return PyUnicode_FromFormat(
        "<godwit.World: rank %d of %d, node %d of %d, local rank %d of %d, fabric %s>", info.rank,
        info.size, info.node, info.nodes, info.local_rank, info.local_size, info.fabric);
}

/* ---- functions of the module ------------------------------------------------------ */

/* join()'s further arguments: with_parent, and within, a World or None, which is entered. */
static int enter_within(const gwi_state *state, PyObject *const *args, gw_world_options *options)
{
    options->with_parent = PyObject_IsTrue(args[0]);
    if (options->with_parent < 0 || args[1] == Py_None)
        return options->with_parent < 0 ? -1 : 0;
    if (Py_TYPE(args[1]) != (PyTypeObject *)state->world_type)
        return gwi_raise(state, GW_ETYPE, "within: %R is no World", args[1]);
    options->within = gwi_world_of(args[1]);
    if (options->within == NULL)
        return gwi_raise(state, GW_ESTATE, "within: %R is closed, or another process's", args[1]);
    return gwi_world_enter(args[1]);
}

static PyObject *join(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = gwi_state_of(module);
    gw_world_options options = GW_WORLD_OPTIONS_INIT;
    gw_world *world = NULL;
    int err;

    if (parse_options(state, args, n_args, &options) < 0)
        return NULL;
    PyTypeObject *type = (PyTypeObject *)state->world_type;
    World *self = (World *)PyType_GenericAlloc(type, 0); /* all zero: closed */
    if (self == NULL)
        return NULL;
    sem_init(&self->all_outside, 0, 0);
    self->pid = getpid();
    if (n_args == 7 && enter_within(state, args + 5, &options) < 0) {
        Py_CLEAR(self);
        return NULL;
    }
    WITHOUT_GIL(err, gw_world_join(&options, &world));
    self->world = world; /* NULL if it failed */
    err = options.within != NULL ? gwi_world_leave(args[6], err) : gwi_check(state, err);
    if (err < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *plan(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    gwi_state *state = gwi_state_of(module);
    gw_world_options options = GW_WORLD_OPTIONS_INIT;
    gw_world_info info = {.size_bytes = sizeof info};
    char reason[512] = "";

    if (parse_options(state, args, n_args, &options) < 0 ||
        gwi_check(state, gw_world_plan(&options, &info, reason, sizeof reason)) < 0)
        return NULL;
    return Py_BuildValue("{sisisisisisissss}", "rank", info.rank, "size", info.size, "node",
                         info.node, "nodes", info.nodes, "local_rank", info.local_rank,
                         "local_size", info.local_size, "fabric", info.fabric, "reason", reason);
}

/* options() -> list of (name, help, value, problem, given) */
static PyObject *options(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    gw_option_info info = {.size = sizeof info};
    PyObject *list = PyList_New(0);

    for (int i = 0; list != NULL && gw_option_get(i, &info) == 0; i++) {
        PyObject *line = Py_BuildValue("ssssN", info.name, info.help, info.value, info.problem,
                                       PyBool_FromLong(info.given));
        if (line == NULL || PyList_Append(list, line) < 0)
            Py_CLEAR(list);
        Py_XDECREF(line);
    }
    return list;
}

/* ---- the part ----------------------------------------------------------------------- */

#define GETTER(f) ((getter)(void (*)(void))(f))
#define INT(field, doc)                                                            \
    {                                                                              \
#field, GETTER(get_int), NULL, doc, (void *)offsetof(gw_world_info, field) \
    }
#define TEXT(field, doc)                                                            \
    {                                                                               \
#field, GETTER(get_text), NULL, doc, (void *)offsetof(gw_world_info, field) \
    }

static PyGetSetDef world_fields[] = {
    INT(rank, "This process's number, from 0."),
    INT(size, "How many processes the job has."),
    INT(node, "The number of this process's node: the processes that share memory with it."),
    INT(nodes, "How many nodes the job has."),
    INT(local_rank, "This process's number within its node."),
    INT(local_size, "How many processes its node has."),
    TEXT(fabric, "How the processes talk: 'shm' on one machine."),
    TEXT(reason, "Why this fabric and these numbers, in one line."),
    {"closed", GETTER(get_closed), NULL, "Whether this process has left.", NULL},
    {"forked", GETTER(get_forked), NULL,
     "Whether this process was forked from the one that joined.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef world_methods[] = {
    {"barrier", GWI_FUNCTION(world_barrier), METH_NOARGS,
     "barrier()\n--\n\nReturn when every process has called it."},
    {"send", GWI_FUNCTION(world_send), METH_FASTCALL,
     "send(peer, message, /)\n--\n\nSend bytes to rank `peer`."},
    {"recv", GWI_FUNCTION(world_recv), METH_O,
     "recv(peer, /)\n--\n\nWait for the next message from rank `peer` and return it."},
    {"comm", GWI_FUNCTION(world_comm), METH_NOARGS,
     "comm()\n--\n\nThe communicator of all its processes."},
    {"close", GWI_FUNCTION(world_close), METH_NOARGS,
     "close()\n--\n\nLeave the job.  Calls that wait in other threads end with WrongState."},
    {NULL, NULL, 0, NULL},
};

#define SLOT(f) ((void *)(uintptr_t)(f))
static PyType_Slot world_slots[] = {
    {Py_tp_doc,
     (void *)(uintptr_t) "The processes of a job, seen from this one.  Made by godwit.init()."},
    {Py_tp_dealloc, SLOT(world_dealloc)},
    {Py_tp_repr, SLOT(world_repr)},
    {Py_tp_getset, world_fields},
    {Py_tp_methods, world_methods},
    {0, NULL},
};

static PyType_Spec world_spec = {
    .name = "godwit.World",
    .basicsize = sizeof(World),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = world_slots,
};

static int exec(PyObject *module)
{
    gwi_state *state = gwi_state_of(module);

    state->world_type = PyType_FromModuleAndSpec(module, &world_spec, NULL);
    if (state->world_type == NULL)
        return -1;
    gwi_interrupt_install();
    gwi_where_install();
    return PyModule_AddObjectRef(module, "World", state->world_type);
}

static int traverse(gwi_state *state, visitproc visit, void *arg)
{
    Py_VISIT(state->world_type);
    return 0;
}

static void clear(gwi_state *state)
{
    Py_CLEAR(state->world_type);
}

static PyMethodDef methods[] = {
    {"join", GWI_FUNCTION(join), METH_FASTCALL,
     "join(rank, size, job, node_size, timeout, with_parent=False, within=None, /)\n--\n\n"
     "Join a job; None: find it out.  Give up when the parent process ends, or anybody of\n"
     "the world `within` does."},
    {"plan", GWI_FUNCTION(plan), METH_FASTCALL,
     "plan(rank, size, job, node_size, timeout, /)\n--\n\nWhat join() would do, as a dict."},
    {"options", options, METH_NOARGS,
     "options()\n--\n\nA list of (name, help, value, problem, given)."},
    {NULL, NULL, 0, NULL},
};

const gwi_part gwi_world_part = {methods, exec, traverse, clear};
