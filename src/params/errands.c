/* errands.c - posting to agents, waiting for them, taking back. */
#include "params/errands.h"
#include "base/error.h"
#include "comm/mail.h"
#include "comm/wait.h"

#include <stdlib.h>
#include <string.h>

void gwi_errand_free(gwi_errand *e)
{
    if (e == NULL)
        return;
    free(e->parts);
    free(e);
}

int gwi_errand_make_busy(struct gwi_errands *errands, gwi_errand *e)
{
    for (; e->n_busy < e->n_parts; e->n_busy++) {
        uint64_t key = (uint64_t)e->parts[e->n_busy].key;
        uint64_t *count = gwi_hash_find(&errands->busy, key);
        if (count != NULL)
            ++*count;
        else if (gwi_hash_put(&errands->busy, key, 1) < 0)
            return GW_ENOMEM;
    }
    return 0;
}

static void make_free(struct gwi_errands *errands, const gwi_errand *e)
{
    for (size_t i = 0; i < e->n_busy; i++) {
        uint64_t key = (uint64_t)e->parts[i].key;
        uint64_t *count = gwi_hash_find(&errands->busy, key);
        if (count != NULL && --*count == 0)
            gwi_hash_remove(&errands->busy, key, NULL);
    }
}

/* taking orders back */

static void take_back(gw_worker *worker, gwi_errand *e)
{
    if (e->order != NULL && e->kind == GWI_ORDER_PULL && !e->forgotten) {
        const unsigned char *from = gwi_order_values(e->order);
        for (size_t i = 0; i < e->n_parts; i++) {
            size_t n = gwi_worker_row_bytes(worker, e->parts[i].key);
            memcpy(e->parts[i].values, from, n);
            from += n;
        }
    }
    make_free(worker->errands, e);
    if (e->order != NULL)
        gwi_tray_give_back_oldest(&worker->tray);
}

void gwi_errands_collect(gw_worker *worker)
{
    struct gwi_errands *errands = worker->errands;

    while (errands->first != NULL && gwi_errand_is_done(errands->first)) {
        gwi_errand *e = errands->first;
        take_back(worker, e);
        errands->first = e->next;
        if (errands->first == NULL)
            errands->last = NULL;
        gwi_errand_free(e);
    }
}

/* Whoever serves keys, on any node, must be there. */
static int check_agents(gw_worker *worker, const char *call)
{
    const gw_params *params = worker->params;
    int ranks[GWI_MAX_SIZE], n = 0, err = gwi_agent_check(params);

    for (int r = 0; r < params->world->fabric->place.size; r++)
        if (gwi_fabric_place(params->world->fabric, r).local_rank < params->n_channels)
            ranks[n++] = r;
    return err < 0 ? err : gwi_check_fates(params->world, ranks, n, call);
}

static int agents_missing(void *ctx, int *ret_ranks, int n_max)
{
    const gw_params *params = ((const gw_worker *)ctx)->params;

    for (int c = 0; c < params->n_channels && c < n_max; c++)
        ret_ranks[c] = gwi_agent_rank(params, c);
    return params->n_channels;
}

struct question {
    gw_worker *worker;
    int (*is_over)(gw_worker *, void *);
    void *ctx;
};

static int asks_is_over(void *ctx)
{
    const struct question *q = ctx;

    return q->is_over(q->worker, q->ctx);
}

int gwi_errands_wait(gw_worker *worker, int (*is_over)(gw_worker *, void *), void *ctx,
                     const char *call)
{
    gw_params *params = worker->params;
    gwi_wait wait = {.world = params->world,
                     .call = call,
                     .lane = GWI_LANE_MAIL,
                     .bell = &params->hall->bell,
                     .missing = agents_missing,
                     .ctx = worker,
                     .track = worker->track};
    int err = 0, over = 0;

    if (is_over(worker, ctx))
        return 0;
    err = gwi_world_begin(params->world, GWI_OP_PARAMS, -1);
    if (err < 0)
        return err;
    wait.began_ns = gwi_trace_began();
    gwi_before_wait();
    if (params->agent != NULL)
        over = gwi_agent_attend(params->agent, asks_is_over,
                                &(struct question){worker, is_over, ctx});
    /* Not once more when the wait has failed: who is told so must not have got anything. */
    while (err >= 0 && !over && !(over = is_over(worker, ctx))) {
        err = gwi_wait_pause(&wait);
        if (err > 0 && (err = gwi_mail_progress(params->world)) >= 0)
            err = check_agents(worker, call);
    }
    gwi_after_wait();
    gwi_wait_end(&wait);
    return gwi_world_end(params->world, err < 0 ? err : 0);
}

/* posting */

struct room {
    size_t n_bytes;
    gwi_order *order;
};

static int finds_room(gw_worker *worker, void *ctx)
{
    struct room *room = ctx;

    gwi_errands_collect(worker);
    room->order = gwi_tray_take(&worker->tray, room->n_bytes);
    return room->order != NULL;
}

const char *gwi_errand_end_of(unsigned kind)
{
    static const char *const texts[] = {
        [GWI_ORDER_PULL] = "the end of a pull",
        [GWI_ORDER_PUSH] = "the end of a push",
        [GWI_ORDER_SET] = "the end of a set",
        [GWI_ORDER_LOCALIZE] = "the end of localize",
        [GWI_ORDER_INTENT] = "the end of intent",
        [GWI_ORDER_SYNC] = "the end of wait_sync",
        [GWI_ORDER_FINISH] = "the closing of a worker",
    };

    return texts[kind];
}

gwi_errand *gwi_errand_new(gwi_order_kind kind, int64_t seq)
{
    gwi_errand *e = calloc(1, sizeof *e);

    if (e == NULL) {
        gwi_fail(GW_ENOMEM, "an operation");
        return NULL;
    }
    e->kind = kind;
    e->seq = seq;
    e->done = &e->own_done;
    return e;
}

int gwi_errand_with_order(gw_worker *worker, gwi_order_kind kind, size_t n_keys,
                          size_t values_bytes, int64_t seq, gwi_errand **ret_errand)
{
    struct room room = {.n_bytes = sizeof(gwi_order) + n_keys * sizeof(int64_t) + values_bytes};
    gwi_errand *e = gwi_errand_new(kind, seq);

    if (e == NULL)
        return GW_ENOMEM;
    int err = gwi_errands_wait(worker, finds_room, &room, gwi_errand_end_of(kind));
    if (err < 0) {
        gwi_errand_free(e);
        return err;
    }
    room.order->kind = kind;
    room.order->n_keys = (uint32_t)n_keys;
    e->order = room.order;
    e->done = &room.order->done;
    *ret_errand = e;
    return 0;
}

struct parcel {
    gwi_order *order;
    int channel;
};

static int is_dropped(gw_worker *worker, void *ctx)
{
    const struct parcel *parcel = ctx;
    const gw_params *params = worker->params;
    size_t at = (size_t)((unsigned char *)parcel->order - (unsigned char *)params->segment.base);

    return gwi_slot_drop(&params->slots[parcel->channel], (uint32_t)(worker->seat - params->seats),
                         at);
}

void gwi_errand_append(struct gwi_errands *errands, gwi_errand *e)
{
    if (errands->last != NULL)
        errands->last->next = e;
    else
        errands->first = e;
    errands->last = e;
}

int gwi_errand_withdraw(gwi_errand *e, int err)
{
    e->forgotten = 1;
    atomic_store_explicit(e->done, 1, memory_order_relaxed);
    return err;
}

/* Give an order to the agent of our own process.  An intent for later it only takes note of.
 * Returns 1, or 0: it is busy, and the order is to be dropped as others' are. */
static int hand(gw_worker *worker, gwi_order *order)
{
    const gw_params *params = worker->params;
    int seat = (int)(worker->seat - params->seats);

    if (order->kind == GWI_ORDER_INTENT &&
        order->start > atomic_load_explicit(&worker->seat->clock, memory_order_relaxed))
        return gwi_agent_note(params->agent, seat, order);
    int err = gwi_agent_order(params->agent, seat, order);
    return err < 0 ? err : 1;
}

int gwi_errand_post(gw_worker *worker, gwi_errand *e, int channel)
{
    const gw_params *params = worker->params;
    struct parcel parcel = {e->order, channel};
    gwi_fabric *f = params->world->fabric;

    gwi_errand_append(worker->errands, e);
    int err = gwi_errand_make_busy(worker->errands, e);
    if (err == 0 && gwi_agent_rank(params, channel) == f->place.rank && e->parts == NULL) {
        int taken = hand(worker, e->order);
        if (taken != 0)
            return taken < 0 ? taken : 0;
    }
    if (err == 0)
        err = gwi_errands_wait(worker, is_dropped, &parcel, gwi_errand_end_of(e->kind));
    if (err < 0)
        return gwi_errand_withdraw(e, err);
    f->ops->nudge(f, gwi_agent_rank(params, channel), params->lane);
    return 0;
}
