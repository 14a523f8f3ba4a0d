/* sample.c - samples from Python: enabling them, preparing, pulling, finishing. */
#include "refusal.h"
#include "route.h"
#include "worker.h"

#include <stdlib.h>

#define MOST_KEYS_WITH_GIL 1024 /* that are drawn and announced */

#define BIT(dtype) GWI_DTYPE_BIT(GWI_##dtype)

/* ---- weights ------------------------------------------------------------------------- */

struct weights {
    const double *entries; /* `owned`, or the memory of `intake`; NULL: none were given */
    size_t n;
    double *owned;
    bool taken; /* `intake` is open */
    gwi_intake intake;
};

static void weights_fini(struct weights *weights)
{
    free(weights->owned);
    if (weights->taken)
        gwi_intake_close(&weights->intake);
}

static int allocate(const gwi_state *state, struct weights *weights, size_t n)
{
    weights->owned = malloc((n > 0 ? n : 1) * sizeof *weights->owned);
    weights->entries = weights->owned;
    weights->n = n;
    return weights->owned != NULL ? 0 : gwi_raise(state, GW_ENOMEM, "weights: %zu of them", n);
}

static void convert(const gwi_layout *from, double *to)
{
    for (int64_t i = 0; i < from->n; i++)
        to[i] = from->dtype == GWI_F32   ? (double)((const float *)from->data)[i]
                : from->dtype == GWI_I64 ? (double)((const int64_t *)from->data)[i]
                                         : (double)((const int32_t *)from->data)[i];
}

/* An array or a tensor; float64 is used as it lies. */
static int take_weights(gwi_state *state, PyObject *object, struct weights *ret_weights)
{
    static const gwi_need need = {"weights", GWI_CONTIGUOUS,
                                  BIT(F64) | BIT(F32) | BIT(I64) | BIT(I32)};
    static const double nothing = 0;
    const gwi_layout *layout = &ret_weights->intake.layout;

    if (gwi_intake_open(state, object, &need, &ret_weights->intake) < 0)
        return -1;
    ret_weights->taken = true;
    ret_weights->entries = layout->n > 0 ? layout->data : &nothing;
    ret_weights->n = (size_t)layout->n;
    if (layout->dtype == GWI_F64 || layout->n == 0)
        return 0;
    if (allocate(state, ret_weights, (size_t)layout->n) < 0)
        return -1;
    convert(layout, ret_weights->owned);
    return 0;
}

static int list_weights(const gwi_state *state, PyObject *object, struct weights *ret_weights)
{
    Py_ssize_t n = PySequence_Size(object);

    if (n < 0 || allocate(state, ret_weights, (size_t)n) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        double weight = item != NULL ? PyFloat_AsDouble(item) : -1;
        if (item != NULL && PyErr_Occurred()) {
            int err = PyErr_ExceptionMatches(PyExc_TypeError)       ? GW_ETYPE
                      : PyErr_ExceptionMatches(PyExc_OverflowError) ? GW_ERANGE
                                                                    : 0;
            if (err != 0)
                gwi_raise(state, err, "weights[%zd]: %R is no number that a float can be", i, item);
        }
        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
        ret_weights->owned[i] = weight;
    }
    return 0;
}

/* weights_fini() is for the caller, also on failure. */
static int parse_weights(gwi_state *state, PyObject *object, struct weights *ret_weights)
{
    gwi_route route;

    if (object == Py_None)
        return 0;
    if (gwi_route_of(state->intake.routes, object, &route) < 0)
        return -1;
    if (route.how == GWI_ROUTE_NONE && PySequence_Check(object) && !PyUnicode_Check(object))
        return list_weights(state, object, ret_weights);
    return take_weights(state, object, ret_weights);
}

/* ---- enabling ------------------------------------------------------------------------ */

static int find_name(const gwi_state *state, const char *argument, PyObject *object,
                     const char *const *names, const char *advice)
{
    if (!PyUnicode_Check(object))
        return gwi_raise(state, GW_ETYPE, "%s: %R is no text", argument, object);
    for (int i = 0; names[i] != NULL; i++)
        if (PyUnicode_CompareWithASCIIString(object, names[i]) == 0)
            return i;
    return gwi_raise(state, GW_EINVAL, "%s: %R is not known; give %s", argument, object, advice);
}

static int parse_scheme(const gwi_state *state, PyObject *object, int *ret_scheme)
{
    static const char *const names[] = {[GW_SAMPLING_NAIVE] = "naive",
                                        [GW_SAMPLING_PRELOC] = "preloc",
                                        [GW_SAMPLING_POOL] = "pool",
                                        [GW_SAMPLING_LOCAL] = "local",
                                        [GW_SAMPLING_LOCAL + 1] = NULL};
    int found = find_name(state, "scheme", object, names, "'naive', 'preloc', 'pool' or 'local'");

    *ret_scheme = found;
    return found < 0 ? -1 : 0;
}

static int parse_distribution(const gwi_state *state, PyObject *object, bool weighted,
                              int *ret_distribution)
{
    static const char *const names[] = {[GW_DISTRIBUTION_UNIFORM] = "uniform",
                                        [GW_DISTRIBUTION_LOG_UNIFORM] = "log-uniform",
                                        [GW_DISTRIBUTION_LOG_UNIFORM + 1] = NULL};
    int found = weighted ? GW_DISTRIBUTION_WEIGHTS : GW_DISTRIBUTION_UNIFORM;

    if (object != Py_None) {
        found = find_name(state, "distribution", object, names,
                          "'uniform' or 'log-uniform', or weights instead");
        if (found >= 0 && weighted)
            return gwi_raise(state, GW_EINVAL,
                             "distribution: %R and weights were both given; give one of them",
                             object);
    }
    *ret_distribution = found;
    return found < 0 ? -1 : 0;
}

static int parse_max(const gwi_state *state, PyObject *object, int64_t *ret_max)
{
    if (object == Py_None)
        return 0;
    if (gwi_parse_i64(state, "max", object, ret_max) < 0)
        return -1;
    return *ret_max >= 0
               ? 0
               : gwi_raise(state, GW_ERANGE, "max is %lld; keys begin with 0", (long long)*ret_max);
}

/* By argument; NULL: not given. */
enum { SCHEME, DISTRIBUTION, WEIGHTS, MIN, MAX, REPLACEMENT, POOL_SIZE, REUSE, SEED, N_ARGUMENTS };

static int parse_i64_of(const gwi_state *state, const char *name, PyObject *object,
                        int64_t *ret_value)
{
    return object == NULL ? 0 : gwi_parse_i64(state, name, object, ret_value);
}

static int parse_options(gwi_state *state, PyObject *const args[N_ARGUMENTS],
                         gw_sampling_options *options, struct weights *weights)
{
    int64_t seed = 0;
    int is_true = args[REPLACEMENT] != NULL ? PyObject_IsTrue(args[REPLACEMENT]) : 1;

    if (is_true < 0)
        return gwi_raise(state, GW_ETYPE, "replacement: %R is neither true nor false",
                         args[REPLACEMENT]);
    if (parse_weights(state, args[WEIGHTS], weights) < 0 ||
        (args[SCHEME] != NULL && parse_scheme(state, args[SCHEME], &options->scheme) < 0) ||
        parse_distribution(state, args[DISTRIBUTION], weights->entries != NULL,
                           &options->distribution) < 0 ||
        parse_i64_of(state, "min", args[MIN], &options->min) < 0 ||
        parse_max(state, args[MAX], &options->max) < 0 ||
        parse_i64_of(state, "pool_size", args[POOL_SIZE], &options->pool_size) < 0 ||
        parse_i64_of(state, "reuse", args[REUSE], &options->reuse) < 0 ||
        parse_i64_of(state, "seed", args[SEED], &seed) < 0)
        return -1;
    options->replacement = is_true;
    options->seed = (uint64_t)seed;
    options->weights = weights->entries;
    options->n_weights = weights->n;
    return 0;
}

static int enable(gwi_py_params *self, const gw_sampling_options *options)
{
    int err;

    if (gwi_py_params_enter(self) < 0)
        return -1;
    GWI_WITHOUT_GIL(err, gw_params_enable_sampling(self->params, options));
    return gwi_py_params_leave(self, err);
}

/* An argument was refused here; the others shall hear of it, and not wait for this process. */
static void refuse_with_others(gwi_py_params *self, const gwi_state *state)
{
    PyObject *type, *value, *traceback;

    if (!PyErr_ExceptionMatches(state->errors.base))
        return;
    PyErr_Fetch(&type, &value, &traceback);
    enable(self, NULL);
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) { /* Ctrl-C wins */
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return;
    }
    PyErr_Restore(type, value, traceback);
}

PyObject *gwi_py_enable_sampling(gwi_py_params *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"scheme",      "distribution", "weights", "min",  "max",
                                        "replacement", "pool_size",    "reuse",   "seed", NULL};
    gwi_state *state = PyType_GetModuleState(Py_TYPE((PyObject *)self));
    gw_sampling_options options = GW_SAMPLING_OPTIONS_INIT;
    PyObject *given[N_ARGUMENTS] = {[DISTRIBUTION] = Py_None, [WEIGHTS] = Py_None, [MAX] = Py_None};
    struct weights weights = {0};
    int err = -1;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OOOOOOOOO:enable_sampling",
                                     (char **)(uintptr_t)names, &given[0], &given[1], &given[2],
                                     &given[3], &given[4], &given[5], &given[6], &given[7],
                                     &given[8]) ||
        gwi_py_params_enter_here(self) < 0 || gwi_py_params_leave(self, 0) < 0)
        return NULL;
    if (parse_options(state, given, &options, &weights) < 0)
        refuse_with_others(self, state);
    else
        err = enable(self, &options);
    weights_fini(&weights);
    return err < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- preparing and finishing --------------------------------------------------------- */

struct preparation {
    size_t n;
    gw_clocks when;
    bool timed; /* there is a `when` */
    gw_sample sample;
};

static int prepare(gw_worker *worker, void *ctx)
{
    struct preparation *p = ctx;

    return gw_worker_prepare_sample(worker, p->n, p->timed ? &p->when : NULL, &p->sample);
}

static int parse_clocks(const gwi_state *state, PyObject *start, PyObject *end,
                        struct preparation *p)
{
    p->timed = start != Py_None;
    if (!p->timed && end != Py_None)
        return gwi_raise(state, GW_EINVAL, "end: %R was given without start", end);
    if (!p->timed)
        return 0;
    if (gwi_parse_i64(state, "start", start, &p->when.start) < 0)
        return -1;
    p->when.end = p->when.start < INT64_MAX ? p->when.start + 1 : p->when.start; /* refused */
    return end == Py_None ? 0 : gwi_parse_i64(state, "end", end, &p->when.end);
}

PyObject *gwi_py_prepare_sample(gwi_py_worker *self, PyObject *args, PyObject *keywords)
{
    static const char *const names[] = {"n", "start", "end", NULL};
    PyObject *number = NULL, *start = Py_None, *end = Py_None;
    struct preparation p = {0};
    int64_t n = 0;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OO:prepare_sample",
                                     (char **)(uintptr_t)names, &number, &start, &end) ||
        gwi_parse_i64(self->state, "n", number, &n) < 0 ||
        parse_clocks(self->state, start, end, &p) < 0)
        return NULL;
    if (n < 0) {
        gwi_raise(self->state, GW_EINVAL, "n: %lld is below 0", (long long)n);
        return NULL;
    }
    p.n = (size_t)n;
    if (gwi_py_worker_do(self, n <= MOST_KEYS_WITH_GIL, prepare, &p) < 0)
        return NULL;
    return PyLong_FromLongLong(p.sample.id);
}

static int finish(gw_worker *worker, void *ctx)
{
    return gw_worker_finish_sample(worker, *(gw_sample *)ctx);
}

PyObject *gwi_py_finish_sample(gwi_py_worker *self, PyObject *object)
{
    gw_sample sample = {0};

    if (gwi_parse_i64(self->state, "h", object, &sample.id) < 0 ||
        gwi_py_worker_do(self, true, finish, &sample) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- pulling ------------------------------------------------------------------------- */

static const gwi_need keys_need = {
    .name = "keys", .flags = GWI_CONTIGUOUS | GWI_WRITABLE, .dtypes = BIT(I64)};

static int misuse(const gwi_state *state, const char *problem, PyObject *name)
{
    return gwi_raise(state, GW_ETYPE, "pull_sample(h, keys, values, asynchronous=False): %s%V",
                     problem, name, "");
}

/* h, keys, values, asynchronous; borrowed. */
static int parse_arguments(const gwi_state *state, PyObject *const *args, Py_ssize_t n_args,
                           PyObject *names, PyObject *ret_given[4])
{
    static const char *const known[] = {"h", "keys", "values", "asynchronous"};
    Py_ssize_t n_names = names != NULL ? PyTuple_Size(names) : 0;

    if (n_args > 4)
        return misuse(state, "more than four arguments were given", NULL);
    for (Py_ssize_t i = 0; i < n_args; i++)
        ret_given[i] = args[i];
    for (Py_ssize_t i = 0; i < n_names; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int which = 0;
        while (which < 4 && PyUnicode_CompareWithASCIIString(name, known[which]) != 0)
            which++;
        if (which == 4)
            return misuse(state, "there is no argument ", name);
        if (ret_given[which] != NULL)
            return misuse(state, "given twice: ", name);
        ret_given[which] = args[n_args + i];
    }
    if (ret_given[0] == NULL || ret_given[1] == NULL || ret_given[2] == NULL)
        return misuse(state, "an argument is missing", NULL);
    return 0;
}

PyObject *gwi_py_pull_sample(gwi_py_worker *self, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *names)
{
    gwi_state *state = self->state;
    PyObject *given[4] = {NULL}, *result = NULL;
    gwi_py_call call;

    call.what = SAMPLE;
    call.need = &gwi_py_values_need[PULL][self->params->dtype == GW_F64];
    call.ticket.seq = -1;
    if (parse_arguments(state, args, n_args, names, given) < 0 ||
        gwi_parse_i64(state, "h", given[0], &call.sample.id) < 0 ||
        gwi_py_parse_asynchronous(state, given[3], &call.asynchronous) < 0)
        return NULL;
    call.args[0] = given[1];
    call.args[1] = given[2];
    if (gwi_intake_open(state, given[1], &keys_need, &call.keys) < 0)
        return NULL;
    if (gwi_intake_open(state, given[2], call.need, &call.values) == 0) {
        if (gwi_py_check_apart(state, &call) == 0)
            result = gwi_py_worker_call(self, &call);
        gwi_intake_close(&call.values);
    }
    gwi_intake_close(&call.keys);
    return result;
}

/* ---- what they are for --------------------------------------------------------------- */

const char gwi_py_enable_sampling_doc[] =
    "enable_sampling($self, /, scheme='preloc', distribution=None, weights=None, min=0, max=None,\n"
    "                replacement=True, pool_size=250, reuse=16, seed=0)\n--\n\n"
    "Let workers pull keys that chance chooses, among min to max - 1.\n\n"
    "    kv.enable_sampling(\"pool\", \"log-uniform\", min=10, max=500, seed=1)\n"
    "    h = w.prepare_sample(20)\n"
    "    chosen, values = torch.empty(20, dtype=torch.int64), torch.empty(20, 4)\n"
    "    w.pull_sample(h, chosen, values)\n"
    "    assert ((chosen >= 10) & (chosen < 500)).all()\n\n"
    "Collective, once: every process calls it with the same arguments.\n\n"
    "scheme        'naive': keys are pulled from wherever they are; 'preloc': they are\n"
    "  drawn when the sample is prepared, and brought here; 'pool': the same, but each of\n"
    "  pool_size keys is used `reuse` times; 'local': only keys that are here are drawn\n"
    "distribution  'uniform', which it is if nothing is said, or 'log-uniform'\n"
    "weights       instead: an array, tensor or list with one for each key, of any sum\n"
    "max           is not drawn itself; None: the number of keys\n"
    "replacement   False: the keys of one sample all differ; not with 'pool'\n"
    "seed          a worker draws the same keys for the same seed";

const char gwi_py_prepare_sample_doc[] =
    "prepare_sample($self, /, n, start=None, end=None)\n--\n\n"
    "Prepare a sample of n keys, and return its number for pull_sample().\n\n"
    "    kv.enable_sampling(\"preloc\")\n"
    "    h = w.prepare_sample(20, w.current_clock + 5)    # it is used 5 clocks later\n\n"
    "With the schemes 'preloc' and 'pool' the keys are announced for these clocks, as\n"
    "intent() does; end is start + 1 if it is not given.  Without start they are brought\n"
    "here at once, as localize() does, and the call does not wait for that.";

const char gwi_py_pull_sample_doc[] =
    "pull_sample($self, h, keys, values, asynchronous=False)\n--\n\n"
    "Pull as many keys of a sample as `keys` has entries, which are written, and their\n"
    "vectors into values.\n\n"
    "    kv.enable_sampling(\"naive\")\n"
    "    h = w.prepare_sample(20)\n"
    "    chosen, values = torch.empty(5, dtype=torch.int64), torch.empty(5, 4)\n"
    "    for portion in range(4):\n"
    "        w.pull_sample(h, chosen, values)\n\n"
    "h       what prepare_sample() returned\n"
    "keys    int64, of any shape\n"
    "values  as for pull(); if vectors differ in length, with room for the longest\n\n"
    "If asynchronous, values may not be there yet; keys are.  Returns a number for wait().";

const char gwi_py_finish_sample_doc[] =
    "finish_sample($self, h, /)\n--\n\n"
    "Forget what is left of a sample.  Not needed for one of which all was pulled.\n\n"
    "    kv.enable_sampling(\"naive\")\n"
    "    h = w.prepare_sample(20)\n"
    "    w.finish_sample(h)\n";
