/* params.c - the type Parameters: opening, closing, and what can be asked of them. */
#include "route.h"
#include "worker.h"

#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOSE_PATIENCE_S 5

static gwi_state *state_of(gwi_py_params *self)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)self));
}

/* ---- plain arguments ----------------------------------------------------------------- */

int gwi_parse_i64(const gwi_state *state, const char *name, PyObject *object, int64_t *ret_value)
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

/* The name of a dtype as NumPy and PyTorch have it: "float32", np.float32, np.dtype("float32"),
 * torch.float32.  Owned. */
static PyObject *dtype_name(PyObject *object)
{
    if (PyUnicode_Check(object))
        return Py_NewRef(object);
    return PyType_Check(object) ? PyType_GetName((PyTypeObject *)object) : PyObject_Str(object);
}

static int parse_dtype(const gwi_state *state, PyObject *object, gw_dtype *ret_dtype)
{
    PyObject *name = dtype_name(object);
    const char *text = name != NULL ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    bool known = false;

    if (text != NULL) {
        if (strncmp(text, "torch.", 6) == 0)
            text += 6;
        known = strcmp(text, "float32") == 0 || strcmp(text, "float64") == 0;
        *ret_dtype = strcmp(text, "float32") == 0 ? GW_F32 : GW_F64;
        if (!known)
            gwi_raise(state, GW_ETYPE, "dtype: %R is not possible; give 'float32' or 'float64'",
                      object);
    }
    Py_XDECREF(name);
    return known ? 0 : -1;
}

static int parse_technique(const gwi_state *state, PyObject *object, int *ret_technique)
{
    static const char *const names[] = {[GW_TECHNIQUE_ALL] = "all",
                                        [GW_TECHNIQUE_REPLICATION] = "replication",
                                        [GW_TECHNIQUE_RELOCATION] = "relocation",
                                        [GW_TECHNIQUE_STATIC] = "static"};

    if (!PyUnicode_Check(object))
        return gwi_raise(state, GW_ETYPE, "technique: %R is no text", object);
    for (int t = GW_TECHNIQUE_ALL; t <= GW_TECHNIQUE_STATIC; t++)
        if (PyUnicode_CompareWithASCIIString(object, names[t]) == 0) {
            *ret_technique = t;
            return 0;
        }
    return gwi_raise(state, GW_EINVAL,
                     "technique: %R is not known; give 'all', 'replication', 'relocation' or "
                     "'static'",
                     object);
}

/* ---- lengths ------------------------------------------------------------------------- */

struct lengths {
    const int64_t *entries; /* `one`, `owned`, or the memory of `intake` */
    size_t n;
    int64_t one;
    int64_t *owned;
    bool taken; /* `intake` is open */
    gwi_intake intake;
};

static void lengths_fini(struct lengths *lengths)
{
    free(lengths->owned);
    if (lengths->taken)
        gwi_intake_close(&lengths->intake);
}

static void widen(const int32_t *from, size_t n, int64_t *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i];
}

static int lengths_allocate(const gwi_state *state, struct lengths *lengths, size_t n)
{
    lengths->owned = malloc((n > 0 ? n : 1) * sizeof(int64_t));
    lengths->entries = lengths->owned;
    lengths->n = n;
    return lengths->owned != NULL ? 0 : gwi_raise(state, GW_ENOMEM, "lengths: %zu of them", n);
}

static const gwi_need lengths_need = {.name = "lengths",
                                      .flags = GWI_CONTIGUOUS,
                                      .dtypes = GWI_DTYPE_BIT(GWI_I64) | GWI_DTYPE_BIT(GWI_I32)};

static int take_lengths(gwi_state *state, PyObject *object, struct lengths *ret_lengths)
{
    static const int64_t nothing = 0;
    const gwi_layout *layout = &ret_lengths->intake.layout;

    if (gwi_intake_open(state, object, &lengths_need, &ret_lengths->intake) < 0)
        return -1;
    ret_lengths->taken = true;
    ret_lengths->entries = layout->n > 0 ? layout->data : &nothing;
    ret_lengths->n = (size_t)layout->n;
    if (layout->dtype == GWI_I64)
        return 0;
    if (lengths_allocate(state, ret_lengths, (size_t)layout->n) < 0)
        return -1;
    widen(layout->data, (size_t)layout->n, ret_lengths->owned);
    return 0;
}

static int list_lengths(const gwi_state *state, PyObject *object, struct lengths *ret_lengths)
{
    Py_ssize_t n = PySequence_Size(object);
    char name[40];

    if (n < 0 || lengths_allocate(state, ret_lengths, (size_t)n) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        PyOS_snprintf(name, sizeof name, "lengths[%zd]", i);
        int err = item != NULL ? gwi_parse_i64(state, name, item, &ret_lengths->owned[i]) : -1;
        Py_XDECREF(item);
        if (err < 0)
            return -1;
    }
    return 0;
}

/* A number for all keys, or one for each.  lengths_fini() is for the caller, also on failure. */
static int parse_lengths(gwi_state *state, PyObject *object, int64_t num_keys,
                         struct lengths *ret_lengths)
{
    gwi_route route;
    int err;

    if (gwi_route_of(state->intake.routes, object, &route) < 0)
        return -1;
    if (route.how == GWI_ROUTE_NONE && (PyIndex_Check(object) || !PySequence_Check(object))) {
        ret_lengths->entries = &ret_lengths->one;
        ret_lengths->n = 1;
        return gwi_parse_i64(state, "lengths", object, &ret_lengths->one);
    }
    err = route.how == GWI_ROUTE_NONE ? list_lengths(state, object, ret_lengths)
                                      : take_lengths(state, object, ret_lengths);
    if (err < 0 || (ret_lengths->taken && ret_lengths->intake.layout.ndim == 0))
        return err;
    if (ret_lengths->n != 1 || num_keys == 1)
        return 0; /* the library compares the numbers */
    return gwi_raise(state, GW_EINVAL,
                     "lengths: it has 1 entry, but there are %lld keys; give a number for all, or "
                     "one for each key",
                     (long long)num_keys);
}

/* ---- calls into the library ---------------------------------------------------------- */

int gwi_py_params_refuse_closed(gwi_py_params *self)
{
    return gwi_raise(state_of(self), GW_ESTATE,
                     self->left ? "these parameters are closed, because their world was left; "
                                  "open others"
                                : "these parameters are closed; open others");
}

int gwi_py_params_enter(gwi_py_params *self)
{
    if (self->params == NULL || self->closing)
        return gwi_py_params_refuse_closed(self);
    if (gwi_world_enter(self->world) < 0)
        return -1;
    self->n_inside++;
    return 0;
}

int gwi_py_params_leave(gwi_py_params *self, int err)
{
    self->n_inside--;
    return gwi_world_leave(self->world, err);
}

/* The same where the library does not look: not in a forked child. */
int gwi_py_params_enter_here(gwi_py_params *self)
{
    if (gwi_py_params_enter(self) < 0)
        return -1;
    if (gwi_world_of(self->world) != NULL)
        return 0;
    gwi_py_params_leave(self, 0);
    return gwi_raise(state_of(self), GW_ESTATE,
                     "these parameters belong to the process that forked this one; open them in "
                     "the child, in a job of its own");
}

/* ---- opening parameters -------------------------------------------------------------- */

/* The world of this process, which joins a job now if it has not yet.  Owned. */
static PyObject *find_world(const gwi_state *state)
{
    PyObject *job = PyImport_ImportModule("godwit.job");
    PyObject *world = job != NULL ? PyObject_CallMethod(job, "current", NULL) : NULL;

    Py_XDECREF(job);
    if (world != NULL && Py_TYPE(world) != (PyTypeObject *)state->world_type) {
        gwi_raise(state, GW_ETYPE, "godwit.job.current() gave %R, which is no World", world);
        Py_CLEAR(world);
    }
    return world;
}

static int open_in(PyObject *world, const gw_params_options *options, gw_params **ret_params)
{
    int err = gwi_world_enter(world);

    if (err < 0)
        return err;
    gw_world *native = gwi_world_of(world); /* job.current() has looked */
    GWI_WITHOUT_GIL(err, gw_params_open(native, options, ret_params));
    return gwi_world_leave(world, err);
}

/* An argument was refused here; the others shall hear of it, and not wait for this process.
 * To open with nothing is refused everywhere. */
static void refuse_with_others(const gwi_state *state, PyObject *world)
{
    gw_params_options nothing = GW_PARAMS_OPTIONS_INIT;
    PyObject *type, *value, *traceback;
    gw_params *none = NULL;

    if (!PyErr_ExceptionMatches(state->errors.base))
        return;
    PyErr_Fetch(&type, &value, &traceback);
    open_in(world, &nothing, &none);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) { /* Ctrl-C wins */
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return;
    }
    PyErr_Restore(type, value, traceback);
}

static int parse_parameters(gwi_state *state, PyObject *const args[5], gw_params_options *options,
                            struct lengths *lengths)
{
    int64_t workers = 1;

    if (gwi_parse_i64(state, "num_keys", args[0], &options->num_keys) < 0 ||
        parse_lengths(state, args[1], options->num_keys, lengths) < 0 ||
        (args[2] != NULL && parse_dtype(state, args[2], &options->dtype) < 0) ||
        (args[3] != NULL && gwi_parse_i64(state, "workers", args[3], &workers) < 0) ||
        (args[4] != NULL && parse_technique(state, args[4], &options->technique) < 0))
        return -1;
    if (workers < 0 || workers > INT_MAX)
        return gwi_raise(state, GW_EINVAL, "workers: %lld is out of range", (long long)workers);
    options->workers = (int)workers;
    options->lengths = lengths->entries;
    options->n_lengths = lengths->n;
    return 0;
}

static void end_with_world(gwi_tenant *tenant);

/* Before the collective part, so that nothing can fail after it. */
static gwi_py_params *new_parameters(PyTypeObject *type, PyObject *world,
                                     const gw_params_options *options)
{
    gwi_py_params *self = (gwi_py_params *)PyType_GenericAlloc(type, 0);

    if (self == NULL)
        return NULL;
    self->world = Py_NewRef(world);
    self->dtype = options->dtype;
    self->num_keys = options->num_keys;
    self->workers_each = options->workers;
    self->shortest = INT64_MAX;
    for (size_t i = 0; i < options->n_lengths; i++) {
        int64_t length = options->lengths[i];
        self->shortest = length < self->shortest ? length : self->shortest;
        self->longest = length > self->longest ? length : self->longest;
    }
    return self;
}

static gwi_py_params *open_parameters(PyTypeObject *type, gwi_state *state, PyObject *world,
                                      PyObject *const args[5])
{
    gw_params_options options = GW_PARAMS_OPTIONS_INIT;
    struct lengths lengths = {0};
    gwi_py_params *self = NULL;

    if (parse_parameters(state, args, &options, &lengths) < 0)
        refuse_with_others(state, world);
    else
        self = new_parameters(type, world, &options);
    if (self != NULL && open_in(world, &options, &self->params) < 0)
        Py_CLEAR(self);
    lengths_fini(&lengths);
    return self;
}

static PyObject *parameters_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"num_keys", "lengths",   "dtype",
                                        "workers",  "technique", NULL};
    gwi_state *state = PyType_GetModuleState(type);
    PyObject *given[5] = {NULL};

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|OOO:Parameters", (char **)(uintptr_t)names,
                                     &given[0], &given[1], &given[2], &given[3], &given[4]))
        return NULL;
    PyObject *world = find_world(state);
    if (world == NULL)
        return NULL;
    gwi_py_params *self = open_parameters(type, state, world, given);
    if (self != NULL) {
        self->tenant.end = end_with_world;
        gwi_world_add(world, &self->tenant);
    }
    Py_DECREF(world);
    return (PyObject *)self;
}

/* ---- closing parameters -------------------------------------------------------------- */

/* From here on nobody finds the library's objects through ours.  Returns what is to be closed. */
static gw_params *detach(gwi_py_params *self)
{
    gw_params *params = self->params;

    while (self->workers != NULL)
        gwi_py_worker_forget(self->workers);
    gwi_tenant_remove(&self->tenant);
    self->params = NULL;
    return params;
}

/* The thread that puts pages together is waited for, so the GIL goes. */
static void abandon(gw_params *params)
{
    Py_BEGIN_ALLOW_THREADS gw_params_abandon(params);
    Py_END_ALLOW_THREADS
}

static void end_with_world(gwi_tenant *tenant)
{
    gwi_py_params *self = (gwi_py_params *)(void *)((char *)tenant -
                                                    offsetof(gwi_py_params, tenant));

    self->left = true;
    abandon(detach(self));
}

/* Wait until no other thread is inside.  Their calls are short, but for barriers. */
static int wait_outside(gwi_py_params *self)
{
    const struct timespec moment = {.tv_nsec = 1000 * 1000};

    for (int ms = 0; self->n_inside > 0 && ms < CLOSE_PATIENCE_S * 1000; ms++) {
        Py_BEGIN_ALLOW_THREADS nanosleep(&moment, NULL);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return -1;
    }
    if (self->n_inside == 0)
        return 0;
    return gwi_raise(state_of(self), GW_ESTATE,
                     "cannot close these parameters: %d calls of other threads are still inside "
                     "them",
                     self->n_inside);
}

static int end_parameters(gwi_py_params *self, bool together)
{
    int err = 0;

    if (self->params == NULL || self->closing || gwi_world_of(self->world) == NULL)
        return 0; /* closed, being closed, or the parent's: a forked child leaves them alone */
    self->closing = true;
    err = wait_outside(self);
    self->closing = false;
    if (err < 0 || self->params == NULL) /* or the world was left meanwhile */
        return err;
    if (gwi_world_enter(self->world) < 0)
        return -1;
    gw_params *params = detach(self);
    if (together)
        GWI_WITHOUT_GIL(err, gw_params_close(params));
    else
        abandon(params);
    return gwi_world_leave(self->world, err);
}

static PyObject *parameters_close(gwi_py_params *self, PyObject *unused)
{
    (void)unused;
    return end_parameters(self, true) < 0 ? NULL : Py_NewRef(Py_None);
}

/* __exit__(type, value, traceback): after an exception nobody is waited for. */
static PyObject *parameters_exit(gwi_py_params *self, PyObject *const *args, Py_ssize_t n_args)
{
    bool fine = n_args == 0 || args[0] == Py_None;

    return end_parameters(self, fine) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *enter_with(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static void parameters_dealloc(gwi_py_params *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);

    if (self->params != NULL && gwi_world_of(self->world) != NULL)
        abandon(detach(self));
    gwi_tenant_remove(&self->tenant);
    Py_DECREF(self->world);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- what parameters know ------------------------------------------------------------ */

static PyObject *parameters_worker(gwi_py_params *self, PyObject *unused)
{
    (void)unused;
    return gwi_py_worker_new(self);
}

static PyObject *parameters_length(gwi_py_params *self, PyObject *object)
{
    int64_t key = 0;

    if (gwi_parse_i64(state_of(self), "key", object, &key) < 0 ||
        gwi_py_params_enter_here(self) < 0)
        return NULL;
    int64_t length = gw_params_length(self->params, key);
    if (gwi_py_params_leave(self, length < 0 ? (int)length : 0) < 0)
        return NULL;
    return PyLong_FromLongLong(length);
}

#define MOST_STATS 64

/* How many of the accesses were to keys that were there. */
static int add_share(PyObject *dict, const char *const *names, const int64_t *values, int n)
{
    double all = 0, remote = 0;

    for (int i = 0; i < n; i++) {
        int counts = strcmp(names[i], "keys_pulled") == 0 || strcmp(names[i], "keys_pushed") == 0 ||
                     strcmp(names[i], "keys_set") == 0;
        all += counts ? (double)values[i] : 0;
        remote += strcmp(names[i], "keys_remote") == 0 ? (double)values[i] : 0;
    }
    PyObject *share = PyFloat_FromDouble(all > 0 ? 1 - remote / all : 1);
    int err = share != NULL ? PyDict_SetItemString(dict, "local_share", share) : -1;
    Py_XDECREF(share);
    return err;
}

static PyObject *make_dict(const char *const *names, const int64_t *values, int n)
{
    PyObject *dict = PyDict_New();
    int err = 0;

    for (int i = 0; dict != NULL && i < n && err == 0; i++) {
        PyObject *value = PyLong_FromLongLong(values[i]);
        err = value != NULL ? PyDict_SetItemString(dict, names[i], value) : -1;
        Py_XDECREF(value);
    }
    if (dict != NULL && (err < 0 || add_share(dict, names, values, n) < 0))
        Py_CLEAR(dict);
    return dict;
}

/* It waits for the agent, or for all processes. */
static int count(gw_params *params, int total, int64_t *ret_values)
{
    int n;

    Py_BEGIN_ALLOW_THREADS n = total ? gw_params_stats_total(params, ret_values, MOST_STATS)
                                     : gw_params_stats_own(params, ret_values, MOST_STATS);
    Py_END_ALLOW_THREADS return n;
}

static PyObject *parameters_stats(gwi_py_params *self, PyObject *args, PyObject *keywords)
{
    static char total_name[] = "total";
    static char *known[] = {total_name, NULL};
    const char *names[MOST_STATS];
    int64_t values[MOST_STATS];
    int total = 0, n;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|p:stats", known, &total) ||
        gwi_py_params_enter_here(self) < 0)
        return NULL;
    n = count(self->params, total, values);
    if (gwi_py_params_leave(self, n < 0 ? n : 0) < 0)
        return NULL;
    n = n < MOST_STATS ? n : MOST_STATS;
    for (int i = 0; i < n; i++)
        names[i] = gw_params_stat_name(i);
    return make_dict(names, values, n);
}

static PyObject *get_num_keys(gwi_py_params *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(self->num_keys);
}

static const char *dtype_text(const gwi_py_params *self)
{
    return self->dtype == GW_F32 ? "float32" : "float64";
}

static PyObject *get_dtype(gwi_py_params *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(dtype_text(self));
}

static PyObject *get_closed(gwi_py_params *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(self->params == NULL);
}

static PyObject *parameters_repr(gwi_py_params *self)
{
    char lengths[64];

    if (self->shortest == self->longest)
        PyOS_snprintf(lengths, sizeof lengths, "length %lld", (long long)self->longest);
    else
        PyOS_snprintf(lengths, sizeof lengths, "lengths %lld to %lld", (long long)self->shortest,
                      (long long)self->longest);
    const char *state = self->params == NULL ? ", closed"
                        : gwi_world_of(self->world) == NULL
                            ? ", of the process that forked this one"
                            : "";
    return PyUnicode_FromFormat("<godwit.Parameters: %lld key%s of %s, %s%s>",
                                (long long)self->num_keys, self->num_keys == 1 ? "" : "s", lengths,
                                dtype_text(self), state);
}

/* ---- the part ------------------------------------------------------------------------ */

#define GETTER(f) ((getter)(void (*)(void))(f))
#define SLOT(f) ((void *)(uintptr_t)(f))

static PyGetSetDef parameters_fields[] = {
    {"num_keys", GETTER(get_num_keys), NULL, "How many keys there are; they go from 0 on.", NULL},
    {"dtype", GETTER(get_dtype), NULL, "Of the vectors: 'float32' or 'float64'.", NULL},
    {"closed", GETTER(get_closed), NULL, "Whether they, or their world, were closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef parameters_methods[] = {
    {"worker", GWI_FUNCTION(parameters_worker), METH_NOARGS,
     "worker($self, /)\n--\n\n"
     "The next worker of this process, of which there are `workers`.\n\n"
     "    with kv.worker() as w:\n"
     "        w.push(torch.tensor([7]), torch.ones(4))\n"},
    {"length", GWI_FUNCTION(parameters_length), METH_O,
     "length($self, key, /)\n--\n\nHow many entries the vector of a key has."},
    {"stats", GWI_FUNCTION(parameters_stats), METH_VARARGS | METH_KEYWORDS,
     "stats($self, /, total=False)\n--\n\n"
     "What the workers and the agent of this process have done so far, as a dict of\n"
     "numbers.  With total=True that of all processes; then it is collective.\n\n"
     "    print(kv.stats()[\"keys_pulled\"], \"keys were pulled\")\n"},
    {"enable_sampling", GWI_FUNCTION(gwi_py_enable_sampling), METH_VARARGS | METH_KEYWORDS,
     gwi_py_enable_sampling_doc},
    {"save", GWI_FUNCTION(gwi_py_params_save), METH_VARARGS | METH_KEYWORDS,
     "save($self, /, dir, meta={})\n--\n\n"
     "Write all vectors into a directory, which all nodes share.\n\n"
     "    kv.save(\"model\", {\"epoch\": 3, \"loss\": 0.25})\n\n"
     "Collective: every process calls it with the same arguments.  The directory is made\n"
     "if there is none; a checkpoint that is in it stays until the new one is complete\n"
     "and on disk, whoever is killed when.  Workers may go on meanwhile: each vector is\n"
     "saved as it was at one moment.  `meta` is a dict that JSON can hold, for load()."},
    {"load", GWI_FUNCTION(gwi_py_params_load), METH_VARARGS | METH_KEYWORDS,
     "load($self, /, dir)\n--\n\n"
     "Set all vectors to those that were saved, and return the `meta` of save().\n\n"
     "    kv.save(\"model\", {\"epoch\": 3})\n"
     "    assert kv.load(\"model\") == {\"epoch\": 3}\n\n"
     "Collective.  It may have been saved by any number of processes and nodes.  All files\n"
     "are checked first: if one is damaged, missing, or of other parameters, the error\n"
     "names it, and nothing has changed on any rank."},
    {"close", GWI_FUNCTION(parameters_close), METH_NOARGS,
     "close($self, /)\n--\n\n"
     "Collective: every process calls it, and the memory is given back.\n\n"
     "Workers that are open are closed first.  To leave the job does not close:\n"
     "the others see a rank that has left, as if it had died."},
    {"__enter__", GWI_FUNCTION(enter_with), METH_NOARGS, NULL},
    {"__exit__", GWI_FUNCTION(parameters_exit), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static const char parameters_doc[] =
    "Parameters(num_keys, lengths, dtype='float32', workers=1, technique='all')\n--\n\n"
    "Keyed vectors that all workers of the job read and change.\n\n"
    "    import torch\n"
    "    import godwit\n\n"
    "    with godwit.Parameters(num_keys=1000, lengths=4) as kv, kv.worker() as w:\n"
    "        keys = torch.tensor([3, 14, 3])\n"
    "        values = torch.empty(3, 4)\n"
    "        w.push(keys, torch.ones(3, 4))         # adds\n"
    "        w.pull(keys, values)\n"
    "        assert values.eq(torch.tensor([[2.0], [1.0], [2.0]])).all()\n\n"
    "Collective: every process calls it with the same arguments.  All vectors are\n"
    "zero at first.  A process that has not joined a job yet does so now.\n\n"
    "num_keys   keys are 0 to num_keys - 1\n"
    "lengths    of the vectors: a number, or a list, array or tensor with one for each key\n"
    "dtype      'float32' or 'float64', or NumPy's or PyTorch's object for it\n"
    "workers    how many workers each process will have; barriers count them all\n"
    "technique  'all': intents move keys or make copies, as fits; for study also\n"
    "  'replication' (only copies), 'relocation' (only moves), 'static' (neither)\n\n"
    "After an exception, `with` closes without waiting for the other processes.";

static PyType_Slot parameters_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)parameters_doc},
    {Py_tp_new, SLOT(parameters_new)},
    {Py_tp_dealloc, SLOT(parameters_dealloc)},
    {Py_tp_repr, SLOT(parameters_repr)},
    {Py_tp_getset, parameters_fields},
    {Py_tp_methods, parameters_methods},
    {0, NULL},
};

static PyType_Spec parameters_spec = {
    .name = "godwit.Parameters",
    .basicsize = sizeof(gwi_py_params),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = parameters_slots,
};

static int exec(PyObject *module)
{
    gwi_state *state = gwi_state_of(module);

    state->parameters_type = PyType_FromModuleAndSpec(module, &parameters_spec, NULL);
    if (state->parameters_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "Parameters", state->parameters_type);
}

static int traverse(gwi_state *state, visitproc visit, void *arg)
{
    Py_VISIT(state->parameters_type);
    return 0;
}

static void clear(gwi_state *state)
{
    Py_CLEAR(state->parameters_type);
}

static PyMethodDef methods[] = {{NULL, NULL, 0, NULL}};

const gwi_part gwi_params_part = {methods, exec, traverse, clear};
