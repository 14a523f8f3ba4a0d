/* worker.c - the type Worker: pull, push and set from Python.
 *
 * A call that moves little keeps the GIL, because to let go of it costs more than to move
 * the data; if such a call has to wait after all, the library's hooks let go of it then.
 * `busy` says that a thread is in a call of the worker: another one is refused.       */
#include "refusal.h"
#include "route.h"
#include "worker.h"

#include <stdlib.h>

#define MOST_BYTES_WITH_GIL 16384

typedef gwi_py_call Call;
typedef gwi_py_held Held;

/* ---- the GIL of small calls ---------------------------------------------------------- */

/* Of this thread: whether it is in the library with the GIL, and what it let go of there. */
static _Thread_local struct {
    bool with_gil;
    PyThreadState *let_go;
} inside;

static void before_wait(void)
{
    if (inside.with_gil)
        inside.let_go = PyEval_SaveThread();
}

static void after_wait(void)
{
    if (inside.let_go != NULL) {
        PyEval_RestoreThread(inside.let_go);
        inside.let_go = NULL;
    }
}

/* ---- calls into the library ---------------------------------------------------------- */

static int refuse_worker(const gwi_py_worker *self)
{
    if (self->busy)
        return gwi_raise(self->state, GW_ESTATE,
                         "another thread is in a call of this worker; give each thread a worker "
                         "of its own (workers=%d when the parameters are opened)",
                         self->params->workers_each + 1);
    if (self->params->params == NULL)
        return gwi_py_params_refuse_closed(self->params);
    return gwi_raise(self->state, GW_ESTATE, "this worker is closed");
}

static inline int enter(gwi_py_worker *self)
{
    if (self->worker == NULL || self->busy)
        return refuse_worker(self);
    if (gwi_py_params_enter(self->params) < 0)
        return -1;
    self->busy = true;
    return 0;
}

static inline int leave(gwi_py_worker *self, int err)
{
    self->busy = false;
    return gwi_py_params_leave(self->params, err);
}

/* ---- arrays that a call leaves with the library -------------------------------------- */

static void release(Held *held)
{
    while (held != NULL) {
        Held *next = held->next;
        gwi_intake_close(&held->keys);
        gwi_intake_close(&held->values);
        free(held->widened);
        PyMem_Free(held);
        held = next;
    }
}

static void release_all(gwi_py_worker *self)
{
    Held *held = self->held;

    self->held = NULL;
    self->held_end = &self->held;
    release(held);
}

/* Those of one ticket. */
static Held *take_done(gwi_py_worker *self, int64_t seq)
{
    Held *done = NULL, **link = &self->held;

    while (*link != NULL) {
        Held *held = *link;
        if (held->seq == seq) {
            *link = held->next;
            held->next = done;
            done = held;
        } else {
            link = &held->next;
        }
    }
    self->held_end = link;
    return done;
}

/* The oldest ones that are done; the library finishes calls in their order.  Between enter()
 * and leave(). */
static Held *take_oldest_done(gwi_py_worker *self)
{
    Held *first = self->held, **link = &self->held;

    while (*link != NULL && gw_worker_is_done(self->worker, (gw_ticket){(*link)->seq}) == 1)
        link = &(*link)->next;
    if (link == &self->held)
        return NULL;
    self->held = *link;
    *link = NULL;
    if (self->held == NULL)
        self->held_end = &self->held;
    return first;
}

/* A program that never waits gets its arrays back all the same.  Outside of enter() and
 * leave(), because it runs code of others. */
static inline int release_done(gwi_py_worker *self)
{
    if (self->held == NULL)
        return 0;
    if (enter(self) < 0)
        return -1;
    Held *done = take_oldest_done(self);
    int err = leave(self, 0);
    release(done);
    return err;
}

/* ---- pull, push, set ----------------------------------------------------------------- */

#define BIT(dtype) GWI_DTYPE_BIT(GWI_##dtype)
#define READS GWI_CONTIGUOUS
#define WRITES (GWI_CONTIGUOUS | GWI_WRITABLE | GWI_NO_GRAD)

static const gwi_need keys_need = {.name = "keys", .flags = READS, .dtypes = BIT(I64) | BIT(I32)};
const gwi_need gwi_py_values_need[3][2] = {
    [PULL] = {{"values", WRITES, BIT(F32)}, {"values", WRITES, BIT(F64)}},
    [PUSH] = {{"updates", READS, BIT(F32)}, {"updates", READS, BIT(F64)}},
    [SET] = {{"values", READS, BIT(F32)}, {"values", READS, BIT(F64)}},
};

static const char *const call_names[] = {"pull", "push", "set"};

static int misuse(const gwi_state *state, const Call *call, const char *problem, PyObject *name)
{
    return gwi_raise(state, GW_ETYPE, "%s(keys, %s, asynchronous=False): %s%V",
                     call_names[call->what], call->need->name, problem, name, "");
}

static int parse_keywords(const gwi_state *state, Call *call, PyObject *const *values,
                          PyObject *names)
{
    const char *const known[3] = {"keys", call->need->name, "asynchronous"};
    Py_ssize_t n = PyTuple_Size(names);

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int which = 0;
        while (which < 3 && PyUnicode_CompareWithASCIIString(name, known[which]) != 0)
            which++;
        if (which == 3)
            return misuse(state, call, "there is no argument ", name);
        if (call->args[which] != NULL)
            return misuse(state, call, "given twice: ", name);
        call->args[which] = values[i];
    }
    return 0;
}

int gwi_py_parse_asynchronous(const gwi_state *state, PyObject *flag, bool *ret_flag)
{
    *ret_flag = false;
    if (flag == NULL || flag == Py_False)
        return 0;
    int is_true = flag == Py_True ? 1 : PyObject_IsTrue(flag);
    if (is_true < 0)
        return gwi_raise(state, GW_ETYPE, "asynchronous: %R is neither true nor false", flag);
    *ret_flag = is_true;
    return 0;
}

static int parse_call(const gwi_state *state, Call *call, PyObject *const *args, Py_ssize_t n_args,
                      PyObject *names)
{
    if (n_args > 3)
        return misuse(state, call, "more than three arguments were given", NULL);
    for (Py_ssize_t i = 0; i < n_args; i++)
        call->args[i] = args[i];
    if (names != NULL && parse_keywords(state, call, args + n_args, names) < 0)
        return -1;
    if (call->args[0] == NULL || call->args[1] == NULL)
        return misuse(state, call, "an array is missing", NULL);

    return gwi_py_parse_asynchronous(state, call->args[2], &call->asynchronous);
}

/* Values that are written over the keys, while these are read. */
int gwi_py_check_apart(const gwi_state *state, const gwi_py_call *call)
{
    const gwi_layout *keys = &call->keys.layout, *values = &call->values.layout;
    uintptr_t key_at = (uintptr_t)keys->data, value_at = (uintptr_t)values->data;
    size_t keys_bytes = (size_t)keys->n * keys->item_bytes;
    size_t values_bytes = (size_t)values->n * values->item_bytes;

    if (key_at + keys_bytes <= value_at || value_at + values_bytes <= key_at || keys_bytes == 0 ||
        values_bytes == 0)
        return 0;
    return gwi_refuse(state, GW_EINVAL, call->need,
                      "it shares memory with keys, and is to be written to; pass a copy");
}

static void widen(const int32_t *from, size_t n, int64_t *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}

/* Make room for keys that have to be converted. */
static inline int prepare_keys(gwi_py_worker *self, const gwi_layout *layout)
{
    size_t n = (size_t)layout->n;

    if (layout->dtype == GWI_I64 || n <= self->widened_room)
        return 0;
    free(self->widened);
    self->widened = malloc(n * sizeof(int64_t));
    self->widened_room = self->widened != NULL ? n : 0;
    if (self->widened == NULL) {
        gwi_raise(self->state, GW_ENOMEM, "keys: %zu of them have to be converted to int64", n);
        return GW_ENOMEM;
    }
    return 0;
}

/* Keys as the library wants them.  Needs no GIL. */
static inline gw_keys find_keys(gwi_py_worker *self, const gwi_layout *layout)
{
    if (layout->dtype == GWI_I64)
        return (gw_keys){layout->data, (size_t)layout->n};
    widen(layout->data, (size_t)layout->n, self->widened);
    return (gw_keys){self->widened, (size_t)layout->n};
}

static inline int run(gwi_py_worker *self, Call *call)
{
    const gwi_layout *values = &call->values.layout;
    gw_ticket *ticket = call->asynchronous ? &call->ticket : NULL;
    gw_keys keys = find_keys(self, &call->keys.layout);

    switch (call->what) {
    case PULL:
        return gw_worker_pull(self->worker, keys, values->data, (size_t)values->n, ticket);
    case SAMPLE: /* the keys are written */
        return gw_worker_pull_sample(self->worker, call->sample, call->keys.layout.data, keys.n,
                                     values->data, (size_t)values->n, ticket);
    case PUSH:
        return gw_worker_push(self->worker, keys, values->data, (size_t)values->n, ticket);
    default:
        return gw_worker_set(self->worker, keys, values->data, (size_t)values->n, ticket);
    }
}

static inline int run_with_or_without_gil(gwi_py_worker *self, Call *call)
{
    const gwi_layout *values = &call->values.layout;
    int err = prepare_keys(self, &call->keys.layout);

    if (err < 0)
        return err;
    if (values->n > MOST_BYTES_WITH_GIL / values->item_bytes) {
        GWI_WITHOUT_GIL(err, run(self, call));
        return err;
    }
    inside.with_gil = true;
    err = run(self, call);
    inside.with_gil = false;
    return err;
}

/* Take the arrays of a call once more, to keep.  They may have been given other memory
 * meanwhile, by another thread: then it is too late. */
static int hold(gwi_py_worker *self, const Call *call, Held *held)
{
    gwi_need keys_kept = keys_need, values_kept = *call->need;

    keys_kept.flags |= GWI_KEEP;
    values_kept.flags |= GWI_KEEP;
    if (gwi_intake_open(self->state, call->args[0], &keys_kept, &held->keys) < 0)
        return -1;
    if (gwi_intake_open(self->state, call->args[1], &values_kept, &held->values) < 0)
        goto close_keys;
    if (held->keys.layout.data == call->keys.layout.data &&
        held->values.layout.data == call->values.layout.data)
        return 0;
    gwi_intake_close(&held->values);
close_keys:
    gwi_intake_close(&held->keys);
    return -1;
}

/* The call goes on after it has returned, so its arrays are kept.  Where that fails, it does
 * not go on: it is waited for. */
static int keep(gwi_py_worker *self, Call *call)
{
    Held *held = PyMem_Malloc(sizeof *held);
    int err;

    if (held != NULL && hold(self, call, held) == 0) {
        held->seq = call->ticket.seq;
        held->widened = NULL;
        if (call->keys.layout.dtype == GWI_I32) {
            held->widened = self->widened;
            self->widened = NULL;
            self->widened_room = 0;
        }
        held->next = NULL;
        *self->held_end = held;
        self->held_end = &held->next;
        return 0;
    }
    PyMem_Free(held);
    PyErr_Clear();
    GWI_WITHOUT_GIL(err, gw_worker_wait(self->worker, call->ticket));
    call->ticket.seq = -1;
    if (err < 0) { /* the library may still be at it, so they live for ever */
        Py_INCREF(call->args[0]);
        Py_INCREF(call->args[1]);
        self->widened = NULL;
        self->widened_room = 0;
    }
    return err;
}

PyObject *gwi_py_worker_call(gwi_py_worker *self, gwi_py_call *call)
{
    if (release_done(self) < 0 || enter(self) < 0)
        return NULL;
    int err = run_with_or_without_gil(self, call);
    if (err == 0 && call->ticket.seq != -1)
        err = keep(self, call);
    if (leave(self, err) < 0)
        return NULL;
    return PyLong_FromLongLong(call->ticket.seq);
}

static inline PyObject *make_call(gwi_py_worker *self, int what, PyObject *const *args,
                                  Py_ssize_t n_args, PyObject *names)
{
    gwi_state *state = self->state;
    PyObject *result = NULL;
    Call call;

    call.what = what;
    call.need = &gwi_py_values_need[what][self->params->dtype == GW_F64];
    call.args[0] = call.args[1] = call.args[2] = NULL;
    call.asynchronous = false;
    call.ticket.seq = -1;
    if (parse_call(state, &call, args, n_args, names) < 0 ||
        gwi_intake_open(state, call.args[0], &keys_need, &call.keys) < 0)
        return NULL;
    if (gwi_intake_open(state, call.args[1], call.need, &call.values) < 0)
        goto close_keys;
    if (what != PULL || gwi_py_check_apart(state, &call) == 0)
        result = gwi_py_worker_call(self, &call);
    gwi_intake_close(&call.values);
close_keys:
    gwi_intake_close(&call.keys);
    return result;
}

static PyObject *worker_pull(gwi_py_worker *self, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *names)
{
    return make_call(self, PULL, args, n_args, names);
}

static PyObject *worker_push(gwi_py_worker *self, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *names)
{
    return make_call(self, PUSH, args, n_args, names);
}

static PyObject *worker_set(gwi_py_worker *self, PyObject *const *args, Py_ssize_t n_args,
                            PyObject *names)
{
    return make_call(self, SET, args, n_args, names);
}

/* ---- which keys shall be here -------------------------------------------------------- */

/* localize() if there is a ticket to be given, else intent(). */
typedef struct Wish {
    bool localizes, asynchronous;
    int64_t start, end;
    gw_ticket ticket;
} Wish;

static int run_wish(gwi_py_worker *self, const gwi_layout *layout, Wish *wish)
{
    gw_keys keys = find_keys(self, layout);

    if (!wish->localizes)
        return gw_worker_intent(self->worker, keys, wish->start, wish->end);
    return gw_worker_localize(self->worker, keys, wish->asynchronous ? &wish->ticket : NULL);
}

/* The library copies the keys. */
static int make_wish(gwi_py_worker *self, PyObject *object, Wish *wish)
{
    gwi_intake keys;
    int err = release_done(self);

    if (err < 0 || gwi_intake_open(self->state, object, &keys_need, &keys) < 0)
        return -1;
    err = enter(self);
    if (err == 0) {
        err = prepare_keys(self, &keys.layout);
        if (err == 0 && keys.layout.n <= MOST_BYTES_WITH_GIL / (int)sizeof(int64_t)) {
            inside.with_gil = true;
            err = run_wish(self, &keys.layout, wish);
            inside.with_gil = false;
        } else if (err == 0) {
            GWI_WITHOUT_GIL(err, run_wish(self, &keys.layout, wish));
        }
        err = leave(self, err);
    }
    gwi_intake_close(&keys);
    return err;
}

static PyObject *worker_localize(gwi_py_worker *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"keys", "asynchronous", NULL};
    Wish wish = {.localizes = true, .ticket = {-1}};
    PyObject *keys = NULL, *flag = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:localize", (char **)(uintptr_t)names,
                                     &keys, &flag) ||
        gwi_py_parse_asynchronous(self->state, flag, &wish.asynchronous) < 0 ||
        make_wish(self, keys, &wish) < 0)
        return NULL;
    return PyLong_FromLongLong(wish.ticket.seq);
}

static PyObject *worker_intent(gwi_py_worker *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"keys", "start", "end", NULL};
    PyObject *keys = NULL, *start = NULL, *end = Py_None;
    Wish wish = {.localizes = false};

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|O:intent", (char **)(uintptr_t)names,
                                     &keys, &start, &end) ||
        gwi_parse_i64(self->state, "start", start, &wish.start) < 0)
        return NULL;
    wish.end = wish.start < INT64_MAX ? wish.start + 1 : wish.start; /* the library refuses that */
    if ((end != Py_None && gwi_parse_i64(self->state, "end", end, &wish.end) < 0) ||
        make_wish(self, keys, &wish) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- what sample.c calls ------------------------------------------------------------- */

int gwi_py_worker_do(gwi_py_worker *self, bool briefly, gwi_py_doing *what, void *ctx)
{
    int err = 0;

    if (release_done(self) < 0 || enter(self) < 0)
        return -1;
    inside.with_gil = briefly;
    if (briefly)
        err = what(self->worker, ctx);
    else
        GWI_WITHOUT_GIL(err, what(self->worker, ctx));
    inside.with_gil = false;
    return leave(self, err);
}

/* ---- waiting ------------------------------------------------------------------------- */

static PyObject *worker_wait(gwi_py_worker *self, PyObject *object)
{
    gw_ticket ticket = {-1};
    Held *done = NULL;
    int err = 0;

    if (gwi_parse_i64(self->state, "ts", object, &ticket.seq) < 0 || enter(self) < 0)
        return NULL;
    if (ticket.seq == -1)
        err = gw_worker_wait(self->worker, ticket);
    else
        GWI_WITHOUT_GIL(err, gw_worker_wait(self->worker, ticket));
    if (err == 0 && self->held != NULL)
        done = take_done(self, ticket.seq);
    err = leave(self, err);
    if (err < 0) { /* Ctrl-C came when it was done */
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        release(done);
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    release(done);
    return release_done(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *worker_wait_all(gwi_py_worker *self, PyObject *unused)
{
    (void)unused;
    int err;

    if (enter(self) < 0)
        return NULL;
    GWI_WITHOUT_GIL(err, gw_worker_wait_all(self->worker));
    if (leave(self, err) < 0)
        return NULL;
    release_all(self);
    Py_RETURN_NONE;
}

static PyObject *meet(gwi_py_worker *self, int (*call)(gw_worker *))
{
    int err;

    if (release_done(self) < 0 || enter(self) < 0)
        return NULL;
    GWI_WITHOUT_GIL(err, call(self->worker));
    return leave(self, err) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *worker_barrier(gwi_py_worker *self, PyObject *unused)
{
    (void)unused;
    return meet(self, gw_worker_barrier);
}

static PyObject *worker_wait_sync(gwi_py_worker *self, PyObject *unused)
{
    (void)unused;
    return meet(self, gw_worker_wait_sync);
}

static PyObject *worker_begin_setup(gwi_py_worker *self, PyObject *unused)
{
    (void)unused;
    return meet(self, gw_worker_begin_setup);
}

static PyObject *worker_end_setup(gwi_py_worker *self, PyObject *unused)
{
    (void)unused;
    return meet(self, gw_worker_end_setup);
}

/* ---- the clock ----------------------------------------------------------------------- */

static PyObject *worker_advance_clock(gwi_py_worker *self, PyObject *unused)
{
    (void)unused;

    if (enter(self) < 0)
        return NULL;
    int err = gw_worker_advance_clock(self->worker);
    return leave(self, err) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *get_current_clock(gwi_py_worker *self, void *unused)
{
    (void)unused;

    if (self->worker == NULL) {
        refuse_worker(self);
        return NULL;
    }
    if (gwi_py_params_enter_here(self->params) < 0)
        return NULL;
    int64_t clock = gw_worker_clock(self->worker);
    return gwi_py_params_leave(self->params, 0) < 0 ? NULL : PyLong_FromLongLong(clock);
}

/* ---- which keys are here ------------------------------------------------------------- */

/* Its shape, also of what has only a buffer, such as an array of the standard library. */
static PyObject *shape_of(PyObject *keys)
{
    PyObject *shape = PyObject_GetAttrString(keys, "shape");

    if (shape != NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return shape;
    PyErr_Clear();
    PyObject *view = PyMemoryView_FromObject(keys);
    shape = view != NULL ? PyObject_GetAttrString(view, "shape") : NULL;
    Py_XDECREF(view);
    return shape;
}

/* An empty array of bools, of the same shape and by the same maker as `keys`. */
static PyObject *new_bools(PyObject *keys, bool is_torch)
{
    PyObject *maker = PyImport_ImportModule(is_torch ? "torch" : "numpy");
    PyObject *shape = maker != NULL ? shape_of(keys) : NULL;
    PyObject *dtype = shape != NULL ? PyObject_GetAttrString(maker, is_torch ? "bool" : "bool_")
                                    : NULL;
    PyObject *empty = dtype != NULL ? PyObject_GetAttrString(maker, "empty") : NULL;
    PyObject *args = shape != NULL ? PyTuple_Pack(1, shape) : NULL;
    PyObject *keywords = dtype != NULL ? Py_BuildValue("{sO}", "dtype", dtype) : NULL;
    PyObject *bools = NULL;

    if (empty != NULL && args != NULL && keywords != NULL)
        bools = PyObject_Call(empty, args, keywords);
    Py_XDECREF(keywords);
    Py_XDECREF(args);
    Py_XDECREF(empty);
    Py_XDECREF(dtype);
    Py_XDECREF(shape);
    Py_XDECREF(maker);
    return bools;
}

/* Between enter() and leave(). */
static int look_up(gwi_py_worker *self, const gwi_layout *keys, uint8_t *bools)
{
    int err = prepare_keys(self, keys);

    if (err < 0)
        return err;
    if (keys->n > MOST_BYTES_WITH_GIL / (int)sizeof(int64_t)) {
        GWI_WITHOUT_GIL(err, gw_worker_is_local(self->worker, find_keys(self, keys), bools));
        return err;
    }
    inside.with_gil = true;
    err = gw_worker_is_local(self->worker, find_keys(self, keys), bools);
    inside.with_gil = false;
    return err;
}

static int fill_bools(gwi_py_worker *self, const gwi_intake *keys, PyObject *object)
{
    static const gwi_need need = {"bools", GWI_CONTIGUOUS | GWI_WRITABLE, BIT(BOOL)};
    gwi_intake bools;
    int err;

    if (gwi_intake_open(self->state, object, &need, &bools) < 0)
        return -1;
    err = bools.layout.n == keys->layout.n
              ? enter(self)
              : gwi_raise(self->state, GW_EINVAL, "keys: their number changed meanwhile");
    if (err == 0)
        err = leave(self, look_up(self, &keys->layout, bools.layout.data));
    gwi_intake_close(&bools);
    return err;
}

static PyObject *worker_is_local(gwi_py_worker *self, PyObject *object)
{
    gwi_route route;
    gwi_intake keys;

    if (gwi_intake_open(self->state, object, &keys_need, &keys) < 0)
        return NULL;
    PyObject *bools = NULL;
    if (gwi_route_of(self->state->intake.routes, object, &route) == 0)
        bools = new_bools(object, route.is_torch);
    if (bools != NULL && fill_bools(self, &keys, bools) < 0)
        Py_CLEAR(bools);
    gwi_intake_close(&keys);
    return bools;
}

/* ---- beginning and end --------------------------------------------------------------- */

static void link_worker(gwi_py_worker *self)
{
    gwi_py_worker **first = &self->params->workers;

    self->next = *first;
    self->link = first;
    if (self->next != NULL)
        self->next->link = &self->next;
    *first = self;
}

static void unlink_worker(gwi_py_worker *self)
{
    if (self->link == NULL)
        return;
    *self->link = self->next;
    if (self->next != NULL)
        self->next->link = self->link;
    self->link = NULL;
}

/* What the library had of it is gone, or goes with the parameters. */
void gwi_py_worker_forget(gwi_py_worker *self)
{
    unlink_worker(self);
    self->worker = NULL;
}

PyObject *gwi_py_worker_new(gwi_py_params *self)
{
    gwi_state *state = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    gw_worker *native = NULL;

    if (gwi_py_params_enter(self) < 0)
        return NULL;
    gwi_py_worker *worker = (gwi_py_worker *)PyType_GenericAlloc((PyTypeObject *)state->worker_type,
                                                                 0);
    int err = worker != NULL ? gw_params_worker(self->params, &native) : GW_ENOMEM;
    if (worker != NULL) {
        worker->params = (gwi_py_params *)Py_NewRef((PyObject *)self);
        worker->state = state;
        worker->worker = native;
        worker->held_end = &worker->held;
    }
    if (native != NULL) {
        worker->number = self->n_workers++;
        link_worker(worker);
    }
    if (gwi_py_params_leave(self, err) < 0)
        Py_CLEAR(worker);
    return (PyObject *)worker;
}

static PyObject *worker_close(gwi_py_worker *self, PyObject *unused)
{
    (void)unused;
    int err;

    if (self->worker == NULL || gwi_world_of(self->params->world) == NULL)
        Py_RETURN_NONE; /* closed, or the parent's: a forked child leaves it alone */
    if (enter(self) < 0)
        return NULL;
    GWI_WITHOUT_GIL(err, gw_worker_close(self->worker));
    gwi_py_worker_forget(self); /* it is closed even if its wait failed */
    if (leave(self, err) < 0)
        return NULL;
    release_all(self);
    Py_RETURN_NONE;
}

/* Nobody refers to the worker any more.  What it started goes on without its arrays: only its
 * own calls touch them. */
static void close_quietly(gwi_py_worker *self, gw_worker *worker)
{
    PyObject *type, *value, *traceback;
    int err;

    PyErr_Fetch(&type, &value, &traceback);
    if (gwi_py_params_enter(self->params) == 0) { /* else who closes them closes it */
        GWI_WITHOUT_GIL(err, gw_worker_close(worker));
        gwi_py_params_leave(self->params, err);
    }
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(self->state->errors.base))
        PyErr_WriteUnraisable(NULL); /* Ctrl-C */
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

static void worker_dealloc(gwi_py_worker *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    gw_worker *worker = self->worker;

    gwi_py_worker_forget(self);
    if (worker != NULL && gwi_world_of(self->params->world) != NULL)
        close_quietly(self, worker);
    release_all(self);
    free(self->widened);
    Py_DECREF((PyObject *)self->params);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *worker_exit(gwi_py_worker *self, PyObject *const *args, Py_ssize_t n_args)
{
    (void)args, (void)n_args;
    return worker_close(self, NULL);
}

static PyObject *enter_with(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *get_worker_closed(gwi_py_worker *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->worker == NULL);
}

static PyObject *worker_repr(gwi_py_worker *self)
{
    if (self->worker == NULL)
        return PyUnicode_FromFormat("<godwit.Worker %d of %d, closed>", self->number,
                                    self->params->workers_each);
    if (gwi_world_of(self->params->world) == NULL)
        return PyUnicode_FromString("<godwit.Worker of the process that forked this one>");
    return PyUnicode_FromFormat("<godwit.Worker %d of %d, clock %lld, of %R>", self->number,
                                self->params->workers_each,
                                (long long)gw_worker_clock(self->worker), (PyObject *)self->params);
}

/* ---- the part ------------------------------------------------------------------------ */

#define GETTER(f) ((getter)(void (*)(void))(f))
#define SLOT(f) ((void *)(uintptr_t)(f))
#define FAST_KEYWORDS (METH_FASTCALL | METH_KEYWORDS)

static PyGetSetDef worker_fields[] = {
    {"current_clock", GETTER(get_current_clock), NULL, "This worker's clock, which starts at 0.",
     NULL},
    {"closed", GETTER(get_worker_closed), NULL, "Whether it, or its parameters, were closed.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef worker_methods[] = {
    {"pull", GWI_FUNCTION(worker_pull), FAST_KEYWORDS,
     "pull($self, keys, values, asynchronous=False)\n--\n\n"
     "Read the vectors of keys into values, one after the other.\n\n"
     "    values = torch.empty(len(keys), 4)\n"
     "    w.pull(keys, values)\n\n"
     "keys    int64 (or int32), of any shape, any number of times each\n"
     "values  of the parameters' dtype and any shape; as many entries as the vectors have\n\n"
     "Both are contiguous tensors or arrays.  If asynchronous, the call may return\n"
     "before it is done.  Returns a number for wait(); -1: it is done."},
    {"push", GWI_FUNCTION(worker_push), FAST_KEYWORDS,
     "push($self, keys, updates, asynchronous=False)\n--\n\n"
     "Add updates to the vectors of keys; of a key that occurs twice, both.\n\n"
     "    w.push(keys, torch.full((len(keys), 4), 0.5))\n\n"
     "Arguments and result are those of pull()."},
    {"set", GWI_FUNCTION(worker_set), FAST_KEYWORDS,
     "set($self, keys, values, asynchronous=False)\n--\n\n"
     "Assign values to the vectors of keys; of a key that occurs twice, the last stays.\n\n"
     "    w.set(keys, torch.randn(len(keys), 4))\n\n"
     "Arguments and result are those of pull()."},
    {"localize", GWI_FUNCTION(worker_localize), METH_VARARGS | METH_KEYWORDS,
     "localize($self, /, keys, asynchronous=False)\n--\n\n"
     "Bring keys to this worker's node; done when each has been there.\n\n"
     "    w.localize(keys)\n"
     "    assert w.is_local(keys).all()          # unless others want them too\n\n"
     "If asynchronous, the call returns at once.  Returns a number for wait();\n"
     "-1: it is done.  On one node all keys are there."},
    {"intent", GWI_FUNCTION(worker_intent), METH_VARARGS | METH_KEYWORDS,
     "intent($self, /, keys, start, end=None)\n--\n\n"
     "Announce that this worker will use keys while its clock is at start or later\n"
     "and before end, which is start + 1 if it is not given.\n\n"
     "    w.intent(keys, w.current_clock + 5)    # for the batch after the next four\n"
     "    for batch in range(5):\n"
     "        w.advance_clock()\n"
     "    w.pull(keys, torch.empty(len(keys), 4))\n\n"
     "The keys come to this node by then, or copies of them.  A hint: what pull\n"
     "returns does not depend on it, only how long it takes."},
    {"prepare_sample", GWI_FUNCTION(gwi_py_prepare_sample), METH_VARARGS | METH_KEYWORDS,
     gwi_py_prepare_sample_doc},
    {"pull_sample", GWI_FUNCTION(gwi_py_pull_sample), FAST_KEYWORDS, gwi_py_pull_sample_doc},
    {"finish_sample", GWI_FUNCTION(gwi_py_finish_sample), METH_O, gwi_py_finish_sample_doc},
    {"wait_sync", GWI_FUNCTION(worker_wait_sync), METH_NOARGS,
     "wait_sync($self, /)\n--\n\n"
     "Return when what was written on this node is with the keys' owners, copies here\n"
     "are as new as what the owners had, and intents that are due have been met.\n\n"
     "    w.push(keys, torch.ones(len(keys), 4))\n"
     "    w.wait_sync()\n"
     "    w.barrier()                            # what all have pushed is with the owners\n"
     "    w.wait_sync()                          # and here\n"},
    {"begin_setup", GWI_FUNCTION(worker_begin_setup), METH_NOARGS,
     "begin_setup($self, /)\n--\n\n"
     "Collective: before parameters are given their first values.\n\n"
     "    w.begin_setup()\n"
     "    w.set(keys, torch.randn(len(keys), 4)) # each worker some of them\n"
     "    w.end_setup()                          # now all see all\n"},
    {"end_setup", GWI_FUNCTION(worker_end_setup), METH_NOARGS,
     "end_setup($self, /)\n--\n\n"
     "Collective: what was written before, by any worker, all see after it."},
    {"wait", GWI_FUNCTION(worker_wait), METH_O,
     "wait($self, ts, /)\n--\n\n"
     "Return when the call that gave this number is done.\n\n"
     "    values = torch.empty(len(keys), 4)\n"
     "    ts = w.pull(keys, values, asynchronous=True)\n"
     "    # ... do something else\n"
     "    w.wait(ts)                             # now values are there\n"},
    {"wait_all", GWI_FUNCTION(worker_wait_all), METH_NOARGS,
     "wait_all($self, /)\n--\n\nReturn when all calls of this worker are done."},
    {"advance_clock", GWI_FUNCTION(worker_advance_clock), METH_NOARGS,
     "advance_clock($self, /)\n--\n\n"
     "Add 1 to this worker's clock, for example after each batch.\n\n"
     "    w.advance_clock()\n"
     "    assert w.current_clock == 1\n"},
    {"barrier", GWI_FUNCTION(worker_barrier), METH_NOARGS,
     "barrier($self, /)\n--\n\n"
     "Collective: return when all workers of all processes have called it or were closed."},
    {"is_local", GWI_FUNCTION(worker_is_local), METH_O,
     "is_local($self, keys, /)\n--\n\n"
     "Which keys need no message to be pulled now: bools in the shape of keys.\n"
     "If some do, and announced keys are on their way here, it helps them to come first,\n"
     "for about 0.2 ms.\n\n"
     "    assert w.is_local(keys).all()\n"},
    {"close", GWI_FUNCTION(worker_close), METH_NOARGS,
     "close($self, /)\n--\n\nFinish what it began.  Barriers count it no longer."},
    {"__enter__", GWI_FUNCTION(enter_with), METH_NOARGS, NULL},
    {"__exit__", GWI_FUNCTION(worker_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot worker_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t) "Reads and changes Parameters, for one thread at a time.\n\n"
                                    "Made by Parameters.worker()."},
    {Py_tp_dealloc, SLOT(worker_dealloc)},
    {Py_tp_repr, SLOT(worker_repr)},
    {Py_tp_getset, worker_fields},
    {Py_tp_methods, worker_methods},
    {0, NULL},
};

static PyType_Spec worker_spec = {
    .name = "godwit.Worker",
    .basicsize = sizeof(gwi_py_worker),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = worker_slots,
};

static int exec(PyObject *module)
{
    gwi_state *state = gwi_state_of(module);

    state->worker_type = PyType_FromModuleAndSpec(module, &worker_spec, NULL);
    if (state->worker_type == NULL)
        return -1;
    gw_set_wait_hooks(before_wait, after_wait);
    return PyModule_AddObjectRef(module, "Worker", state->worker_type);
}

static int traverse(gwi_state *state, visitproc visit, void *arg)
{
    Py_VISIT(state->worker_type);
    return 0;
}

static void clear(gwi_state *state)
{
    Py_CLEAR(state->worker_type);
}

static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};

const gwi_part gwi_worker_part = {methods, exec, traverse, clear};
