/* worker.c - what a worker does: pull, push, set, its clock, and meeting the others. */
#include "params/params.h"
#include "base/error.h"
#include "base/thread.h"
#include "comm/mail.h"
#include "comm/wait.h"
#include "params/agent.h"
#include "params/latch.h"
#include "params/remote.h"
#include "params/sample.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* opening and closing */

int gw_params_worker(gw_params *params, gw_worker **ret_worker)
{
    int err = gwi_params_check_process(params);
    if (err < 0)
        return err;
    gw_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return gwi_fail(GW_ENOMEM, "a worker");

    pthread_mutex_lock(&params->lock);
    int number = params->n_given;
    if (number < params->workers_each) {
        *worker = (gw_worker){.params = params, .number = number};
        int local_rank = params->world->fabric->place.local_rank;
        worker->seat = &params->seats[local_rank * params->workers_each + number];
        worker->walker = (gwi_walker){
            .hand = &worker->seat->hand, .stuck = gwi_latch_wait, .ctx = params};
        if (params->world->fabric->place.nodes > 1)
            err = gwi_remote_open(worker);
        if (err == 0)
            worker->track = gwi_track_open("worker %d of parameters %llu", number,
                                           (unsigned long long)params->opening);
        if (err == 0)
            params->workers[number] = worker;
        params->n_given += err == 0;
    }
    pthread_mutex_unlock(&params->lock);

    if (err < 0) {
        free(worker);
        return err;
    }
    if (number == params->workers_each) {
        free(worker);
        return gwi_fail(GW_ESTATE,
                        "this process has had its %d worker%s; open the parameters with more "
                        "(workers=%d)",
                        number, number == 1 ? "" : "s", number + 1);
    }
    *ret_worker = worker;
    return 0;
}

uint64_t gwi_worker_counted(const gw_worker *worker, int what)
{
    const _Atomic uint64_t *counter = what == GWI_RETRIES ? &worker->walker.retries
                                      : what == GWI_WAITS ? &worker->walker.waits
                                                          : &worker->counted[what];

    return atomic_load_explicit(counter, memory_order_relaxed);
}

static int everybody_is_there(const gw_params *params, uint64_t barriers);

int gw_worker_close(gw_worker *worker)
{
    if (worker == NULL)
        return 0;
    gw_params *params = worker->params;
    int err = gwi_params_check_process(params);
    if (err < 0)
        return err;

    if (worker->errands != NULL) {
        err = gwi_remote_wait(worker, -1);
        err = err < 0 ? err : gwi_remote_finish(worker);
    }
    uint64_t barriers = atomic_load_explicit(&worker->seat->barriers, memory_order_relaxed);
    pthread_mutex_lock(&params->lock);
    for (int c = 0; c < GWI_N_COUNTED; c++)
        params->counted[c] += gwi_worker_counted(worker, c);
    params->workers[worker->number] = NULL;
    pthread_mutex_unlock(&params->lock);
    /* Somebody may wait for just this worker. */
    atomic_store_explicit(&worker->seat->barriers, GWI_SEAT_GONE, memory_order_seq_cst);
    if (everybody_is_there(params, barriers + 1))
        gwi_bell_ring(&params->hall->bell);
    if (worker->errands != NULL)
        gwi_remote_nudge(worker);
    gwi_remote_close(worker);
    gwi_sampler_free(worker);
    gwi_track_close(worker->track);
    free(worker);
    return err;
}

/* operations */

static inline void count(gw_worker *worker, int what, uint64_t n)
{
    uint64_t old = atomic_load_explicit(&worker->counted[what], memory_order_relaxed);

    atomic_store_explicit(&worker->counted[what], old + n, memory_order_relaxed);
}

static int wrong_number(const gw_params *params, gw_keys keys, const char *name, size_t n_values)
{
    uint64_t need = gwi_geometry_entries(&params->geometry, keys.key, keys.n);

    if (n_values == need)
        return gwi_fail(GW_EINVAL, "%s is NULL", name);
    return gwi_fail(GW_EINVAL, "%s has %zu entries, but the vectors of these %zu keys have %llu",
                    name, n_values, keys.n, (unsigned long long)need);
}

/* Refuse what cannot be done, before anything is. */
static inline int check_call(const gw_worker *worker, gw_keys keys, const char *name,
                             const void *values, size_t n_values)
{
    const gw_params *params = worker->params;
    int err = gwi_params_check_process(params);

    if (gwi_unlikely(err < 0))
        return err;
    err = gwi_params_check_keys(params, keys);
    if (gwi_unlikely(err < 0))
        return err;
    if (gwi_unlikely(gwi_geometry_entries(&params->geometry, keys.key, keys.n) != n_values ||
                     (values == NULL && n_values > 0)))
        return wrong_number(params, keys, name, n_values);
    return 0;
}

/* Everything is here, so everything is done at once. */
static inline int finish_call(gw_worker *worker, int what, size_t n, int err, gw_ticket *ret_ticket)
{
    if (gwi_unlikely(err < 0))
        return err;
    count(worker, what, n);
    count(worker, GWI_CALLS, 1);
    if (ret_ticket != NULL)
        ret_ticket->seq = -1;
    return 0;
}

/* With several nodes some of it may be elsewhere. */
static int finish_remote(gw_worker *worker, gwi_order_kind kind, gw_keys keys, const void *values,
                         size_t n_values, int what, gw_ticket *ret_ticket)
{
    int64_t seq;
    size_t n_remote = 0;
    int err = gwi_remote_access(worker, kind, keys, (void *)(uintptr_t)values,
                                n_values * worker->params->geometry.item_bytes, ret_ticket != NULL,
                                &n_remote, &seq);

    if (err == 0 && seq >= 0 && ret_ticket == NULL)
        err = gwi_remote_wait(worker, seq);
    if (err < 0)
        gwi_remote_forget(worker, seq);
    count(worker, GWI_REMOTE, n_remote);
    err = finish_call(worker, what, keys.n, err, ret_ticket);
    if (err == 0 && ret_ticket != NULL)
        ret_ticket->seq = seq;
    return err;
}

int gw_worker_pull(gw_worker *worker, gw_keys keys, void *values, size_t n_values,
                   gw_ticket *ret_ticket)
{
    int err = check_call(worker, keys, "values", values, n_values);

    if (gwi_likely(err == 0 && worker->errands == NULL))
        err = gwi_store_pull(&worker->params->store, &worker->walker, keys.key, keys.n, values);
    else if (err == 0)
        return finish_remote(worker, GWI_ORDER_PULL, keys, values, n_values, GWI_PULLED,
                             ret_ticket);
    return finish_call(worker, GWI_PULLED, keys.n, err, ret_ticket);
}

int gw_worker_push(gw_worker *worker, gw_keys keys, const void *values, size_t n_values,
                   gw_ticket *ret_ticket)
{
    int err = check_call(worker, keys, "updates", values, n_values);

    if (gwi_likely(err == 0 && worker->errands == NULL))
        err = gwi_store_push(&worker->params->store, &worker->walker, keys.key, keys.n, values);
    else if (err == 0)
        return finish_remote(worker, GWI_ORDER_PUSH, keys, values, n_values, GWI_PUSHED,
                             ret_ticket);
    return finish_call(worker, GWI_PUSHED, keys.n, err, ret_ticket);
}

int gw_worker_set(gw_worker *worker, gw_keys keys, const void *values, size_t n_values,
                  gw_ticket *ret_ticket)
{
    int err = check_call(worker, keys, "values", values, n_values);

    if (gwi_likely(err == 0 && worker->errands == NULL))
        err = gwi_store_set(&worker->params->store, &worker->walker, keys.key, keys.n, values);
    else if (err == 0)
        return finish_remote(worker, GWI_ORDER_SET, keys, values, n_values, GWI_SET, ret_ticket);
    return finish_call(worker, GWI_SET, keys.n, err, ret_ticket);
}

static int check_ticket(const gw_worker *worker, gw_ticket ticket)
{
    int64_t last = worker->errands == NULL ? -1 : gwi_remote_last(worker);
    int err = gwi_params_check_process(worker->params);

    if (err < 0 || (ticket.seq >= -1 && ticket.seq <= last))
        return err;
    return gwi_fail(GW_EINVAL, "ticket %lld was not given by this worker", (long long)ticket.seq);
}

int gw_worker_wait(gw_worker *worker, gw_ticket ticket)
{
    int err = check_ticket(worker, ticket);

    return err < 0 || ticket.seq == -1 ? err : gwi_remote_wait(worker, ticket.seq);
}

int gw_worker_is_done(gw_worker *worker, gw_ticket ticket)
{
    int err = check_ticket(worker, ticket);

    return err < 0 ? err : ticket.seq == -1 || gwi_remote_is_done(worker, ticket.seq);
}

int gw_worker_wait_all(gw_worker *worker)
{
    int err = gwi_params_check_process(worker->params);

    return err < 0 || worker->errands == NULL ? err : gwi_remote_wait(worker, -1);
}

int gw_worker_localize(gw_worker *worker, gw_keys keys, gw_ticket *ret_ticket)
{
    gw_ticket ticket = {-1};
    int err = gwi_params_check_process(worker->params);

    if (err == 0)
        err = gwi_params_check_keys(worker->params, keys);
    if (err == 0 && worker->errands != NULL && keys.n > 0)
        err = gwi_remote_localize(worker, keys, &ticket.seq);
    if (err == 0 && ret_ticket == NULL)
        err = gw_worker_wait(worker, ticket);
    if (err == 0 && ret_ticket != NULL)
        *ret_ticket = ticket;
    return err;
}

int gw_worker_intent(gw_worker *worker, gw_keys keys, int64_t start, int64_t end)
{
    int err = gwi_params_check_process(worker->params);

    if (err == 0)
        err = gwi_params_check_keys(worker->params, keys);
    if (err == 0 && end <= start)
        err = gwi_fail(GW_EINVAL, "end is %lld; it must be after start, which is %lld",
                       (long long)end, (long long)start);
    return err < 0 || worker->errands == NULL ? err : gwi_remote_intent(worker, keys, start, end);
}

int gw_worker_wait_sync(gw_worker *worker)
{
    int err = gwi_params_check_process(worker->params);

    return err < 0 || worker->errands == NULL ? err : gwi_remote_sync(worker);
}

int gw_worker_begin_setup(gw_worker *worker)
{
    int err = gw_worker_wait_sync(worker);

    return err < 0 ? err : gw_worker_barrier(worker);
}

/* What was counted so far was setting up.  What the agent counts comes from all workers of all
 * nodes: so none of them is at work before that, and none begins until all have done it. */
static void count_anew(gw_worker *worker)
{
    gw_params *params = worker->params;

    for (int c = 0; c <= GWI_REMOTE; c++)
        atomic_store_explicit(&worker->counted[c], 0, memory_order_relaxed);
    atomic_store_explicit(&worker->walker.retries, 0, memory_order_relaxed);
    atomic_store_explicit(&worker->walker.waits, 0, memory_order_relaxed);
    pthread_mutex_lock(&params->lock);
    for (int c = 0; c < GWI_N_COUNTED; c++)
        params->counted[c] = 0;
    pthread_mutex_unlock(&params->lock);
    if (params->agent != NULL)
        gwi_agent_count_anew(params->agent);
}

int gw_worker_end_setup(gw_worker *worker)
{
    int err = gw_worker_begin_setup(worker);

    if (err == 0)
        err = gw_worker_begin_setup(worker);
    if (err < 0)
        return err;
    count_anew(worker);
    return gw_worker_barrier(worker);
}

struct look {
    const gw_params *params;
    gw_keys keys;
    size_t first; /* that is not here */
};

static int are_here(void *ctx)
{
    struct look *look = ctx;

    while (look->first < look->keys.n &&
           gwi_store_has(&look->params->store, look->keys.key[look->first]))
        look->first++;
    return look->first == look->keys.n;
}

/* Who asks whether keys have come mostly waits for them. */
int gw_worker_is_local(gw_worker *worker, gw_keys keys, uint8_t *ret_local)
{
    const gw_params *params = worker->params;
    struct look look = {params, keys, 0};
    int err = gwi_params_check_process(worker->params);

    if (err == 0)
        err = gwi_params_check_keys(worker->params, keys);
    if (err == 0 && params->agent != NULL && !are_here(&look))
        err = gwi_agent_await_keys(params->agent, are_here, &look);
    if (err < 0)
        return err;
    for (size_t i = 0; i < keys.n; i++)
        ret_local[i] = gwi_store_has(&params->store, keys.key[i]);
    return 0;
}

/* clock and barrier */

int gw_worker_advance_clock(gw_worker *worker)
{
    int err = gwi_params_check_process(worker->params);

    if (err < 0)
        return err;
    /* Sequentially consistent, because somebody may have to be woken behind it. */
    atomic_store_explicit(&worker->seat->clock, gw_worker_clock(worker) + 1, memory_order_seq_cst);
    if (worker->errands != NULL)
        gwi_remote_clock_advanced(worker);
    return 0;
}

int64_t gw_worker_clock(const gw_worker *worker)
{
    return atomic_load_explicit(&worker->seat->clock, memory_order_relaxed);
}

static int has_come(const gw_params *params, int seat, uint64_t barriers)
{
    return atomic_load_explicit(&params->seats[seat].barriers, memory_order_seq_cst) >= barriers;
}

/* Of this node; with several nodes the agent knows of the others. */
static int everybody_is_there(const gw_params *params, uint64_t barriers)
{
    if (params->n_channels > 0)
        return atomic_load_explicit(&params->hall->released, memory_order_seq_cst) >= barriers;
    for (int s = 0; s < params->n_seats; s++)
        if (!has_come(params, s, barriers))
            return 0;
    return 1;
}

/* Of another node it is known only what the process is in, if it is on this machine. */
static int is_late_elsewhere(const gw_params *params, int rank)
{
    gwi_fabric *f = params->world->fabric;
    const gwi_entry *entry = f->ops->entry_of(f, rank);

    return gwi_fabric_place(f, rank).node != f->place.node && entry != NULL &&
           (atomic_load_explicit(&entry->op, memory_order_relaxed) != GWI_OP_WORKERS_BARRIER ||
            !atomic_load_explicit(&entry->inside, memory_order_relaxed));
}

/* The processes some of whose workers are missing, once each. */
static int missing(void *ctx, int *ret_ranks, int n_max)
{
    const gw_worker *worker = ctx;
    const gw_params *params = worker->params;
    uint64_t barriers = atomic_load_explicit(&worker->seat->barriers, memory_order_relaxed);
    int n = 0, last = -1;

    for (int s = 0; s < params->n_seats; s++)
        if (!has_come(params, s, barriers) && s / params->workers_each != last) {
            last = s / params->workers_each;
            if (n < n_max)
                ret_ranks[n] = params->ranks[last];
            n++;
        }
    for (int r = 0; worker->errands != NULL && r < params->world->fabric->place.size; r++)
        if (is_late_elsewhere(params, r)) {
            if (n < n_max)
                ret_ranks[n] = r;
            n++;
        }
    return n;
}

/* A process that has left will not come; of another node, also its agent will not. */
static int check_missing(gw_worker *worker, const char *call)
{
    gw_world *world = worker->params->world;
    int ranks[GWI_MAX_SIZE], n = 0, err = gwi_agent_check(worker->params);

    if (worker->errands == NULL)
        n = missing(worker, ranks, GWI_MAX_SIZE);
    else
        while (n < world->fabric->place.size) {
            ranks[n] = n;
            n++;
        }
    return err < 0 ? err : gwi_check_fates(world, ranks, n < GWI_MAX_SIZE ? n : GWI_MAX_SIZE, call);
}

static int meet(gw_worker *worker)
{
    gw_params *params = worker->params;
    uint64_t barriers = atomic_load_explicit(&worker->seat->barriers, memory_order_relaxed);
    gwi_wait wait = {.world = params->world,
                     .call = "the workers' barrier",
                     .lane = GWI_LANE_MAIL,
                     .bell = &params->hall->bell,
                     .missing = missing,
                     .ctx = worker,
                     .track = worker->track};
    int err = 0;

    if (!worker->in_barrier) {
        /* All announce themselves before they look, in one order for all: the last one
         * sees all, and rings. */
        atomic_store_explicit(&worker->seat->barriers, ++barriers, memory_order_seq_cst);
        if (everybody_is_there(params, barriers))
            gwi_bell_ring(&params->hall->bell);
        if (worker->errands != NULL)
            gwi_remote_nudge(worker);
    }
    while (!everybody_is_there(params, barriers) && err >= 0) {
        err = gwi_wait_pause(&wait);
        if (err > 0 && (err = gwi_mail_progress(params->world)) >= 0)
            err = check_missing(worker, wait.call);
    }
    gwi_wait_end(&wait);
    worker->in_barrier = err < 0;
    return err < 0 ? err : 0;
}

int gw_worker_barrier(gw_worker *worker)
{
    int err = gwi_params_check_process(worker->params);

    if (err == 0)
        err = gwi_world_begin(worker->params->world, GWI_OP_WORKERS_BARRIER, -1);
    return err < 0 ? err : gwi_world_end(worker->params->world, meet(worker));
}
