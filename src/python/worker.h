/* worker.h - the type Worker, for the files that give it its calls: worker.c and sample.c.
 *
 * Failing  -1 or NULL with an exception.
 * Threads  With the GIL held.                                                         */
#ifndef GWI_PYTHON_WORKER_H
#define GWI_PYTHON_WORKER_H

#include "params.h"

/* What a call that is not done needs: the library may read and write there. */
typedef struct gwi_py_held {
    struct gwi_py_held *next;
    int64_t seq; /* its ticket */
    gwi_intake keys, values;
    int64_t *widened; /* keys that were int32; owned */
} gwi_py_held;

struct gwi_py_worker {
    PyObject_HEAD gwi_py_params *params; /* owned */
    gwi_state *state;                    /* borrowed from the module, which the type owns */
    gw_worker *worker;                   /* NULL: closed */
    bool busy;
    int number;       /* in this process */
    int64_t *widened; /* room for keys that come as int32; owned */
    size_t widened_room;
    gwi_py_held *held, **held_end; /* oldest first, and where the next one goes */
    gwi_py_worker *next, **link;   /* in `params->workers` */
};

enum { PULL, PUSH, SET, SAMPLE };

typedef struct gwi_py_call {
    int what;
    PyObject *args[3]; /* keys, values, asynchronous; borrowed; the last may be NULL */
    const gwi_need *need;
    bool asynchronous;
    gw_sample sample; /* of SAMPLE */
    gwi_intake keys, values;
    gw_ticket ticket;
} gwi_py_call;

/* What is asked of values, by PULL, PUSH or SET and whether they are float64. */
extern const gwi_need gwi_py_values_need[3][2];

int gwi_py_parse_asynchronous(const gwi_state *state, PyObject *flag, bool *ret_flag);

/* Refuse values that are written over the keys. */
int gwi_py_check_apart(const gwi_state *state, const gwi_py_call *call);

/* Make a call whose arrays have been taken in, and keep them if it is not done when it returns. */
PyObject *gwi_py_worker_call(gwi_py_worker *self, gwi_py_call *call);

/* Do something with the library's worker, without the GIL unless it is done briefly. */
typedef int gwi_py_doing(gw_worker *worker, void *ctx);
int gwi_py_worker_do(gwi_py_worker *self, bool briefly, gwi_py_doing *what, void *ctx);

/* sample.c: methods of Worker and of Parameters. */
PyObject *gwi_py_prepare_sample(gwi_py_worker *self, PyObject *args, PyObject *keywords);
PyObject *gwi_py_pull_sample(gwi_py_worker *self, PyObject *const *args, Py_ssize_t n_args,
                             PyObject *names);
PyObject *gwi_py_finish_sample(gwi_py_worker *self, PyObject *object);
PyObject *gwi_py_enable_sampling(gwi_py_params *self, PyObject *args, PyObject *keywords);
extern const char gwi_py_prepare_sample_doc[], gwi_py_pull_sample_doc[], gwi_py_finish_sample_doc[],
    gwi_py_enable_sampling_doc[];

#endif
