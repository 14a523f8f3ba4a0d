/* errands.h - what a worker has with agents: orders in its tray, and operations that the agent of
 * its process works on in the caller's arrays.
 *
 * They are in the order of posting, and taken back in that order: the tray is a ring.
 *
 * Owning   An errand whose own `done` an agent may still set must not be freed before that agent
 * was told to forget it (gwi_agent_forget). Threads  The worker's, one at a time.  Of an errand
 * agents set `done`; and they write vectors to where it says, the caller's arrays or its order. */
#ifndef GWI_PARAMS_ERRANDS_H
#define GWI_PARAMS_ERRANDS_H

#include "base/hash.h"
#include "params/agent.h"
#include "params/params.h"

typedef struct gwi_errand {
    struct gwi_errand *next;
    gwi_order_kind kind;
    int64_t seq;      /* never less than that of the errand before */
    gwi_order *order; /* NULL: it is in the caller's arrays */
    _Atomic uint32_t own_done;
    _Atomic uint32_t *done; /* of the order, or our own */
    /* of an access: its keys, and where each vector is or goes; owned */
    gwi_part *parts;
    size_t n_parts;
    size_t n_busy; /* how many of the keys we have marked as busy */
    int forgotten; /* nothing goes to the caller's arrays any more */
} gwi_errand;

struct gwi_errands {
    gwi_errand *first, *last;
    int64_t next_seq;
    gwi_hash busy; /* key -> how many operations of ours on it are with an agent */
};

/* With its own `done`; NULL: no memory. */
gwi_errand *gwi_errand_new(gwi_order_kind kind, int64_t seq);
void gwi_errand_free(gwi_errand *e); /* NULL is fine */

/* With an order in the tray, which may have to be waited for. */
int gwi_errand_with_order(gw_worker *worker, gwi_order_kind kind, size_t n_keys,
                          size_t values_bytes, int64_t seq, gwi_errand **ret_errand);

/* From here on it is among the worker's. */
void gwi_errand_append(struct gwi_errands *errands, gwi_errand *e);

/* The same, and its order goes to the agent of this channel. */
int gwi_errand_post(gw_worker *worker, gwi_errand *e, int channel);

/* No agent will ever see it, and nobody shall wait for that; returns `err`. */
int gwi_errand_withdraw(gwi_errand *e, int err);

/* Operations of a worker on a key keep their order: so it is remembered what is under way, until it
 * is taken back.  GW_ENOMEM: of some keys only; what is left is done when it is called again. */
int gwi_errand_make_busy(struct gwi_errands *errands, gwi_errand *e);

/* What somebody waits for, in messages. */
const char *gwi_errand_end_of(unsigned kind);

/* Take back those at the front that are done, with what they made busy. */
void gwi_errands_collect(gw_worker *worker);

/* Until `is_over` says so, which it does once. */
int gwi_errands_wait(gw_worker *worker, int (*is_over)(gw_worker *, void *), void *ctx,
                     const char *call);

static inline int gwi_errand_is_done(const gwi_errand *e)
{
    return (int)atomic_load_explicit(e->done, memory_order_seq_cst);
}

static inline int gwi_errands_is_busy(const struct gwi_errands *errands, int64_t key)
{
    return errands->busy.count > 0 && gwi_hash_get(&errands->busy, (uint64_t)key, NULL);
}

#endif
