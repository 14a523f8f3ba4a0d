/* remote.c - orders to agents, and what comes of them. */
#include "params/remote.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "comm/mail.h"
#include "comm/wait.h"
#include "params/agent.h"

#include <stdlib.h>
#include <string.h>

/* An order in the tray, in the order of posting. */
struct posted {
    struct posted *next;
    gwi_order *order;
    int64_t seq;
    unsigned char **to; /* of a pull: where the vector of each key goes; owned */
};

struct gwi_remote {
    struct posted *first, *last;
    int64_t next_seq;
    gwi_hash busy; /* key -> how many operations of ours on it are with an agent */
};

int gwi_remote_open(gw_worker *worker)
{
    const gw_params *params = worker->params;
    int seat = (int)(worker->seat - params->seats);

    worker->remote = calloc(1, sizeof *worker->remote);
    if (worker->remote == NULL)
        return gwi_fail(GW_ENOMEM, "a worker");
    gwi_hash_init(&worker->remote->busy);
    worker->tray = (gwi_tray){.base = params->trays + (size_t)seat * params->tray_bytes,
                              .n_bytes = params->tray_bytes};
    worker->local = params->local;
    worker->local.hand = worker->walker.hand;
    worker->local.stuck = worker->walker.stuck;
    worker->local.ctx = worker->walker.ctx;
    return 0;
}

void gwi_remote_close(gw_worker *worker)
{
    if (worker->remote == NULL)
        return;
    while (worker->remote->first != NULL) {
        struct posted *next = worker->remote->first->next;
        free(worker->remote->first->to);
        free(worker->remote->first);
        worker->remote->first = next;
    }
    gwi_hash_fini(&worker->remote->busy);
    free(worker->remote);
    worker->remote = NULL;
}

static size_t row_bytes(const gw_worker *worker, int64_t key)
{
    return gwi_geometry_class(&worker->params->geometry, key)->row_bytes;
}

static int channel_of(const gw_params *params, int64_t key)
{
    return (int)(key / params->world->fabric->place.nodes % params->n_channels);
}

static int agent_rank(const gw_params *params, int channel)
{
    return params->ranks[channel];
}

/* keys that are with an agent */

static int is_busy(const struct gwi_remote *remote, int64_t key)
{
    return remote->busy.count > 0 && gwi_hash_get(&remote->busy, (uint64_t)key, NULL);
}

static int make_busy(struct gwi_remote *remote, int64_t key)
{
    uint64_t *count = gwi_hash_find(&remote->busy, (uint64_t)key);

    if (count == NULL)
        return gwi_hash_put(&remote->busy, (uint64_t)key, 1);
    ++*count;
    return 0;
}

static void make_free(struct gwi_remote *remote, int64_t key)
{
    uint64_t *count = gwi_hash_find(&remote->busy, (uint64_t)key);

    if (count != NULL && --*count == 0)
        gwi_hash_remove(&remote->busy, (uint64_t)key, NULL);
}

/* taking orders back */

static int is_access(const gwi_order *order)
{
    return order->kind == GWI_ORDER_PULL || order->kind == GWI_ORDER_PUSH ||
           order->kind == GWI_ORDER_SET;
}

static void take_back(gw_worker *worker, struct posted *p)
{
    const unsigned char *from = gwi_order_values(p->order);

    for (uint32_t i = 0; is_access(p->order) && i < p->order->n_keys; i++) {
        size_t n = row_bytes(worker, p->order->keys[i]);
        if (p->to != NULL)
            memcpy(p->to[i], from, n);
        from += n;
        make_free(worker->remote, p->order->keys[i]);
    }
}

/* Those at the front that are done; the tray is a ring. */
static void collect(gw_worker *worker)
{
    struct gwi_remote *remote = worker->remote;

    while (remote->first != NULL &&
           atomic_load_explicit(&remote->first->order->done, memory_order_seq_cst)) {
        struct posted *p = remote->first;
        take_back(worker, p);
        gwi_tray_give_back_oldest(&worker->tray);
        remote->first = p->next;
        if (remote->first == NULL)
            remote->last = NULL;
        free(p->to);
        free(p);
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
        ret_ranks[c] = agent_rank(params, c);
    return params->n_channels;
}

/* Until `is_over` says so. */
static int wait_until(gw_worker *worker, int (*is_over)(gw_worker *, void *), void *ctx,
                      const char *call)
{
    gw_params *params = worker->params;
    gwi_wait wait = {.world = params->world,
                     .call = call,
                     .lane = GWI_LANE_MAIL,
                     .bell = &params->hall->bell,
                     .missing = agents_missing,
                     .ctx = worker};
    int err = 0;

    if (is_over(worker, ctx))
        return 0;
    err = gwi_world_begin(params->world, GWI_OP_PARAMS, -1);
    if (err < 0)
        return err;
    gwi_before_wait();
    while (!is_over(worker, ctx) && err >= 0) {
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

    collect(worker);
    room->order = gwi_tray_take(&worker->tray, room->n_bytes);
    return room->order != NULL;
}

/* What somebody waits for, in messages. */
static const char *end_of(unsigned kind)
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

static int make_order(gw_worker *worker, gwi_order_kind kind, size_t n_keys, size_t values_bytes,
                      int64_t seq, struct posted **ret_posted)
{
    struct room room = {.n_bytes = sizeof(gwi_order) + n_keys * sizeof(int64_t) + values_bytes};
    struct posted *p = calloc(1, sizeof *p);

    if (p == NULL)
        return gwi_fail(GW_ENOMEM, "an operation on %zu keys", n_keys);
    int err = wait_until(worker, finds_room, &room, end_of(kind));
    if (err < 0) {
        free(p);
        return err;
    }
    room.order->kind = kind;
    room.order->n_keys = (uint32_t)n_keys;
    p->order = room.order;
    p->seq = seq;
    *ret_posted = p;
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

/* Give an order to the agent of a channel.  From here on it is among ours. */
static int post(gw_worker *worker, struct posted *p, int channel)
{
    struct gwi_remote *remote = worker->remote;
    struct parcel parcel = {p->order, channel};
    gwi_fabric *f = worker->params->world->fabric;
    int err = 0;

    if (remote->last != NULL)
        remote->last->next = p;
    else
        remote->first = p;
    remote->last = p;
    uint32_t n_busy = 0;
    while (is_access(p->order) && n_busy < p->order->n_keys && err == 0)
        if ((err = make_busy(remote, p->order->keys[n_busy])) == 0)
            n_busy++;
    if (err == 0)
        err = wait_until(worker, is_dropped, &parcel, end_of(p->order->kind));
    if (err == 0) {
        f->ops->nudge(f, agent_rank(worker->params, channel), worker->params->lane);
        return 0;
    }
    /* The agent will never see it, and nobody shall wait for that. */
    if (is_access(p->order))
        p->order->n_keys = n_busy;
    free(p->to);
    p->to = NULL;
    atomic_store_explicit(&p->order->done, 1, memory_order_relaxed);
    return err;
}

/* waiting */

static int nothing_up_to(gw_worker *worker, void *ctx)
{
    int64_t seq = *(const int64_t *)ctx;

    collect(worker);
    return worker->remote->first == NULL || worker->remote->first->seq > seq;
}

int gwi_remote_is_done(gw_worker *worker, int64_t seq)
{
    return nothing_up_to(worker, &seq);
}

int gwi_remote_wait(gw_worker *worker, int64_t seq)
{
    int64_t last = seq < 0 ? INT64_MAX : seq;
    const struct posted *p = worker->remote->first;

    for (; p != NULL && p->next != NULL && p->next->seq <= last; p = p->next)
        ;
    return wait_until(worker, nothing_up_to, &last, p == NULL ? "" : end_of(p->order->kind));
}

/* A wait failed, and the caller has its arrays back: nothing goes there any more. */
void gwi_remote_forget(gw_worker *worker, int64_t seq)
{
    for (struct posted *p = worker->remote->first; p != NULL; p = p->next)
        if (p->seq == seq) {
            free(p->to);
            p->to = NULL;
        }
}

int64_t gwi_remote_last(const gw_worker *worker)
{
    return worker->remote->next_seq - 1;
}

/* operations */

/* A key that is not here, of an operation. */
struct away {
    int64_t key;
    unsigned char *values;
};

static int do_here(gw_worker *worker, gwi_order_kind kind, int64_t key, unsigned char *values)
{
    if (is_busy(worker->remote, key))
        return 0;
    if (kind == GWI_ORDER_PULL)
        return gwi_local_pull(&worker->local, key, values);
    return gwi_local_change(&worker->local, key, kind == GWI_ORDER_PUSH ? GWI_ADD : GWI_ASSIGN,
                            values);
}

/* One order of as many of the keys as fit into half a tray; all are of one channel. */
static int post_some(gw_worker *worker, gwi_order_kind kind, const struct away *away, size_t n,
                     int channel, int64_t seq, size_t *ret_n)
{
    size_t n_some = 0, values_bytes = 0,
           most = worker->tray.n_bytes / 2 - sizeof(gwi_order) - GWI_LINE;
    struct posted *p = NULL;

    while (n_some < n) {
        size_t row = row_bytes(worker, away[n_some].key);
        if (n_some > 0 && (n_some + 1) * sizeof(int64_t) + values_bytes + row > most)
            break;
        values_bytes += row;
        n_some++;
    }
    unsigned char **to = kind == GWI_ORDER_PULL ? malloc(n_some * sizeof *to) : NULL;
    if (to == NULL && kind == GWI_ORDER_PULL)
        return gwi_fail(GW_ENOMEM, "an operation on %zu keys", n_some);
    int err = make_order(worker, kind, n_some, values_bytes, seq, &p);
    if (err < 0) {
        free(to);
        return err;
    }
    p->to = to;
    for (size_t i = 0; i < n_some; i++)
        p->order->keys[i] = away[i].key;
    unsigned char *at = gwi_order_values(p->order);
    for (size_t i = 0; i < n_some; i++) {
        size_t row = row_bytes(worker, away[i].key);
        if (p->to != NULL)
            p->to[i] = away[i].values;
        else
            memcpy(at, away[i].values, row);
        at += row;
    }
    *ret_n = n_some;
    return post(worker, p, channel);
}

static int post_all(gw_worker *worker, gwi_order_kind kind, struct away *away, size_t n,
                    int64_t seq)
{
    struct away *of_channel = malloc(n * sizeof *of_channel);
    int err = of_channel == NULL ? gwi_fail(GW_ENOMEM, "an operation on %zu keys", n) : 0;

    for (int c = 0; c < worker->params->n_channels && err == 0; c++) {
        size_t m = 0, some = 0;
        for (size_t i = 0; i < n; i++)
            if (channel_of(worker->params, away[i].key) == c)
                of_channel[m++] = away[i];
        for (size_t i = 0; i < m && err == 0; i += some)
            err = post_some(worker, kind, of_channel + i, m - i, c, seq, &some);
    }
    free(of_channel);
    return err;
}

/* An operation under way: what of it is not here. */
struct access {
    gw_worker *worker;
    gwi_order_kind kind;
    size_t n_keys; /* of the whole */
    struct away *away;
    size_t n_away;
};

/* A replica, a key that others watch, or one that is not here. */
static int take_note(void *ctx, int64_t key, void *values)
{
    struct access *a = ctx;

    if (do_here(a->worker, a->kind, key, values))
        return a->worker->local.err;
    if (a->away == NULL)
        a->away = malloc(a->n_keys * sizeof *a->away);
    if (a->away == NULL)
        return gwi_fail(GW_ENOMEM, "an operation on %zu keys", a->n_keys);
    a->away[a->n_away++] = (struct away){key, values};
    return 0;
}

/* While some of our operations are with an agent, each key is looked up among theirs. */
static int walk_slowly(struct access *a, gw_keys keys, unsigned char *values)
{
    int err = 0;

    for (size_t i = 0; i < keys.n && err == 0; values += row_bytes(a->worker, keys.key[i++]))
        err = take_note(a, keys.key[i], values);
    return err;
}

static int walk(struct access *a, gw_keys keys, void *values)
{
    const gwi_store *store = &a->worker->params->store;
    gwi_walker *walker = &a->worker->walker;

    if (a->worker->remote->busy.count > 0)
        return walk_slowly(a, keys, values);
    walker->other = take_note;
    walker->other_ctx = a;
    return a->kind == GWI_ORDER_PULL   ? gwi_store_pull(store, walker, keys.key, keys.n, values)
           : a->kind == GWI_ORDER_PUSH ? gwi_store_push(store, walker, keys.key, keys.n, values)
                                       : gwi_store_set(store, walker, keys.key, keys.n, values);
}

int gwi_remote_access(gw_worker *worker, gwi_order_kind kind, gw_keys keys, void *values,
                      int64_t *ret_seq)
{
    struct access a = {.worker = worker, .kind = kind, .n_keys = keys.n};

    collect(worker);
    int err = walk(&a, keys, values);
    *ret_seq = -1;
    if (a.n_away > 0 && err == 0) {
        *ret_seq = worker->remote->next_seq++;
        err = post_all(worker, kind, a.away, a.n_away, *ret_seq);
    }
    free(a.away);
    return err;
}

/* One order without vectors for each channel that has keys, or for all. */
static int post_keys(gw_worker *worker, gwi_order_kind kind, gw_keys keys, int64_t start,
                     int64_t end, int64_t seq)
{
    size_t most = (worker->tray.n_bytes / 2 - sizeof(gwi_order) - GWI_LINE) / sizeof(int64_t);
    int err = 0;

    for (int c = 0; c < worker->params->n_channels; c++)
        for (size_t i = 0; err == 0 && (i < keys.n || (i == 0 && keys.n == 0));) {
            struct posted *p = NULL;
            size_t n = 0, left = keys.n - i < most ? keys.n - i : most;
            err = make_order(worker, kind, left, 0, seq, &p);
            if (err < 0)
                break;
            for (size_t j = 0; j < left; j++)
                if (channel_of(worker->params, keys.key[i + j]) == c)
                    p->order->keys[n++] = keys.key[i + j];
            p->order->n_keys = (uint32_t)n;
            p->order->start = start;
            p->order->end = end;
            err = post(worker, p, c);
            i += left;
            if (keys.n == 0)
                break;
        }
    return err;
}

int gwi_remote_localize(gw_worker *worker, gw_keys keys, int64_t *ret_seq)
{
    *ret_seq = worker->remote->next_seq++;
    return post_keys(worker, GWI_ORDER_LOCALIZE, keys, 0, 0, *ret_seq);
}

int gwi_remote_intent(gw_worker *worker, gw_keys keys, int64_t start, int64_t end)
{
    return keys.n == 0 ? 0 : post_keys(worker, GWI_ORDER_INTENT, keys, start, end, 0);
}

/* What this worker wrote is with the agent or in place by then: orders keep their order. */
int gwi_remote_sync(gw_worker *worker)
{
    int64_t seq = worker->remote->next_seq++;
    int err = post_keys(worker, GWI_ORDER_SYNC, (gw_keys){NULL, 0}, 0, 0, seq);

    return err < 0 ? err : gwi_remote_wait(worker, seq);
}

int gwi_remote_finish(gw_worker *worker)
{
    int64_t seq = worker->remote->next_seq++;
    int err = post_keys(worker, GWI_ORDER_FINISH, (gw_keys){NULL, 0}, 0, 0, seq);

    return err < 0 ? err : gwi_remote_wait(worker, seq);
}

void gwi_remote_nudge(gw_worker *worker)
{
    gwi_fabric *f = worker->params->world->fabric;

    f->ops->nudge(f, agent_rank(worker->params, 0), worker->params->lane);
}
