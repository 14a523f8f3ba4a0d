/* remote.c - operations on keys: in place what is here, and errands for the rest. */
#include "params/remote.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "params/errands.h"
#include "params/latch.h"

#include <stdlib.h>
#include <string.h>

/* Of a call that asks early, so that the agent's lock is free again soon: some 60 us. */
#define EARLY_KEYS 1024
#define EARLY_BYTES ((size_t)1 << 20)

int gwi_remote_open(gw_worker *worker)
{
    const gw_params *params = worker->params;
    int seat = (int)(worker->seat - params->seats);

    worker->errands = calloc(1, sizeof *worker->errands);
    if (worker->errands == NULL)
        return gwi_fail(GW_ENOMEM, "a worker");
    gwi_hash_init(&worker->errands->busy);
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
    if (worker->errands == NULL)
        return;
    while (worker->errands->first != NULL) {
        gwi_errand *e = worker->errands->first;
        worker->errands->first = e->next;
        if (e->order == NULL && !gwi_errand_is_done(e))
            gwi_agent_forget(worker->params->agent, e->done, 1);
        gwi_errand_free(e);
    }
    gwi_hash_fini(&worker->errands->busy);
    free(worker->errands);
    worker->errands = NULL;
}

static int channel_of(const gw_params *params, int64_t key)
{
    return gwi_spread_channel(&params->local.spread, key);
}

/* waiting */

static int nothing_up_to(gw_worker *worker, void *ctx)
{
    int64_t seq = *(const int64_t *)ctx;

    gwi_errands_collect(worker);
    return worker->errands->first == NULL || worker->errands->first->seq > seq;
}

int gwi_remote_is_done(gw_worker *worker, int64_t seq)
{
    return nothing_up_to(worker, &seq);
}

int gwi_remote_wait(gw_worker *worker, int64_t seq)
{
    int64_t last = seq < 0 ? INT64_MAX : seq;
    const gwi_errand *e = worker->errands->first;

    for (; e != NULL && e->next != NULL && e->next->seq <= last; e = e->next)
        ;
    return gwi_errands_wait(worker, nothing_up_to, &last,
                            e == NULL ? "" : gwi_errand_end_of(e->kind));
}

/* A wait failed, and the caller has its arrays back: nothing goes there any more.  What follows
 * on these keys still has to wait. */
void gwi_remote_forget(gw_worker *worker, int64_t seq)
{
    for (gwi_errand *e = worker->errands->first; e != NULL; e = e->next)
        if (e->seq == seq && e->parts != NULL && !e->forgotten) {
            e->forgotten = 1;
            gwi_errand_make_busy(worker->errands, e);
            if (e->order == NULL && !gwi_errand_is_done(e))
                gwi_agent_forget(worker->params->agent, e->done, 0);
        }
}

int64_t gwi_remote_last(const gw_worker *worker)
{
    return worker->errands->next_seq - 1;
}

/* operations */

/* An operation under way: what of it is not here. */
struct access {
    gw_worker *worker;
    gwi_order_kind kind;
    int asynchronous;
    size_t n_keys; /* of the whole */
    gwi_lent lent; /* its vectors */
    int64_t seq;
    gwi_part *away; /* owned */
    size_t n_away;
    size_t n_asked;     /* of these, while we look for more */
    gwi_errand *errand; /* what is asked for so; NULL: nothing */
    int follows;        /* some of our operations are with an agent, */
    int behind;         /* and some of the keys are among theirs */
    /* for keys that occur twice */
    uint64_t before; /* how much had arrived here when it began */
    gwi_hash noted;  /* of those that are away the first n_noted */
    size_t n_noted;
    int err; /* of taking note */
};

/* Returns 1 if it is done, 0 if the vector is elsewhere, or why its latch could not be had; this
 * call ends by that, and no other. */
static int do_here(gw_worker *worker, gwi_order_kind kind, int64_t key, unsigned char *values)
{
    gwi_local *local = &worker->local;
    int done = kind == GWI_ORDER_PULL
                   ? gwi_local_pull(local, key, values)
                   : gwi_local_change(local, key, kind == GWI_ORDER_PUSH ? GWI_ADD : GWI_ASSIGN,
                                      values);

    if (gwi_likely(local->err == 0))
        return done;
    int err = local->err;
    local->err = 0;
    return err;
}

/* Straight to the state machine of this process's agent, with the caller's arrays.  Takes the
 * parts. */
static int begin_at_once(const struct access *a, gwi_part *parts, size_t n)
{
    gw_worker *worker = a->worker;
    gwi_errand *e = gwi_errand_new(a->kind, a->seq);

    if (e == NULL) {
        free(parts);
        return GW_ENOMEM;
    }
    e->parts = parts;
    e->n_parts = n;
    gwi_errand_append(worker->errands, e);
    int err = a->asynchronous ? gwi_errand_make_busy(worker->errands, e) : 0;
    if (err < 0)
        return gwi_errand_withdraw(e, err);
    int64_t began_ns = a->asynchronous ? 0 : gwi_trace_began();
    err = gwi_agent_access(worker->params->agent, gwi_access_of(a->kind), parts, n, a->lent,
                           e->done, !a->asynchronous);
    gwi_track_waited(worker->track, gwi_errand_end_of(a->kind), began_ns);
    return err;
}

/* One order of as many of the parts as fit into half a tray; all are of one channel. */
static int post_some(const struct access *a, const gwi_part *parts, size_t n, int channel,
                     size_t *ret_n)
{
    gw_worker *worker = a->worker;
    size_t n_some = 0, values_bytes = 0,
           most = worker->tray.n_bytes / 2 - sizeof(gwi_order) - GWI_LINE;
    gwi_errand *e = NULL;

    while (n_some < n) {
        size_t row = gwi_worker_row_bytes(worker, parts[n_some].key);
        if (n_some > 0 && (n_some + 1) * sizeof(int64_t) + values_bytes + row > most)
            break;
        values_bytes += row;
        n_some++;
    }
    gwi_part *some = malloc(n_some * sizeof *some);
    if (some == NULL)
        return gwi_fail(GW_ENOMEM, "an operation on %zu keys", n_some);
    int err = gwi_errand_with_order(worker, a->kind, n_some, values_bytes, a->seq, &e);
    if (err < 0) {
        free(some);
        return err;
    }
    e->parts = some;
    e->n_parts = n_some;
    for (size_t i = 0; i < n_some; i++)
        e->order->keys[i] = parts[i].key;
    unsigned char *at = gwi_order_values(e->order);
    for (size_t i = 0; i < n_some; i++) {
        size_t row = gwi_worker_row_bytes(worker, parts[i].key);
        if (a->kind != GWI_ORDER_PULL)
            memcpy(at, parts[i].values, row);
        some[i] = parts[i];
        at += row;
    }
    *ret_n = n_some;
    return gwi_errand_post(worker, e, channel);
}

/* Whether a key occurs twice; 1 if that cannot be known. */
static int has_repeats(const gwi_part *parts, size_t n)
{
    gwi_hash keys = {0};
    int found = gwi_hash_reserve(&keys, n) < 0;

    for (size_t i = 0; i < n && !found; i++)
        found = gwi_hash_get(&keys, (uint64_t)parts[i].key, NULL) ||
                gwi_hash_put(&keys, (uint64_t)parts[i].key, 0) < 0;
    gwi_hash_fini(&keys);
    return found;
}

/* To an agent several orders are several operations, which may overtake each other: if a key occurs
 * twice, each waits for the one before. */
static int post_channel(const struct access *a, gwi_part *parts, size_t n, int channel)
{
    const gw_params *params = a->worker->params;
    size_t some = 0;
    int err = 0, one_by_one = 0;

    if (n > 0 && gwi_agent_rank(params, channel) == params->world->fabric->place.rank)
        return begin_at_once(a, parts, n);
    for (size_t i = 0; i < n && err == 0; i += some) {
        if (one_by_one)
            err = gwi_remote_wait(a->worker, a->seq);
        if (err == 0)
            err = post_some(a, parts + i, n - i, channel, &some);
        if (err == 0 && i == 0 && some < n)
            one_by_one = has_repeats(parts, n);
    }
    free(parts);
    return err;
}

/* Takes what is away. */
static int post_all(struct access *a)
{
    int n_channels = a->worker->params->n_channels, err = 0;
    gwi_part *away = a->away;

    a->away = NULL;
    if (n_channels == 1)
        return post_channel(a, away, a->n_away, 0);
    /* The others first: at our own we may stay. */
    for (int turn = 1; turn <= n_channels && err == 0; turn++) {
        int c = (a->worker->params->world->fabric->place.local_rank + turn) % n_channels;
        gwi_part *parts = malloc(a->n_away * sizeof *parts);
        size_t n = 0;
        if (parts == NULL)
            err = gwi_fail(GW_ENOMEM, "an operation on %zu keys", a->n_away);
        for (size_t i = 0; i < a->n_away && err == 0; i++)
            if (channel_of(a->worker->params, away[i].key) == c)
                parts[n++] = away[i];
        if (err == 0)
            err = post_channel(a, parts, n, c);
    }
    free(away);
    return err;
}

static uint64_t arrivals(const gw_worker *worker)
{
    return atomic_load_explicit(&worker->params->hall->arrivals, memory_order_acquire);
}

/* If no other process is on the node, and the keys are few, the agent is asked for those that are
 * away while we look for more, so that the other node is at work meanwhile.  From the first of them
 * on we have the agent's lock, and if there is a latch to wait for we wait with it, deaf to
 * everything: so who may have it must be a thread of this process, which is not stopped, and does
 * not die, by itself. */

static int can_ask_early(const struct access *a)
{
    const gw_params *params = a->worker->params;

    return params->agent != NULL && params->world->fabric->place.local_size == 1 && !a->follows &&
           a->n_keys <= EARLY_KEYS && a->lent.n_bytes <= EARLY_BYTES;
}

static void wait_at_latches(gw_worker *worker, gwi_stuck *stuck, void *ctx)
{
    worker->walker.stuck = worker->local.stuck = stuck;
    worker->walker.ctx = worker->local.ctx = ctx;
}

/* No key comes from now on: so of those that are away none will be found here later in the call. */
static int begin_early(struct access *a)
{
    gw_worker *worker = a->worker;
    gwi_errand *e = gwi_errand_new(a->kind, worker->errands->next_seq);
    gwi_hash *busy = &worker->errands->busy;
    int err = e == NULL         ? GW_ENOMEM
              : a->asynchronous ? gwi_hash_reserve(busy, busy->count + a->n_keys)
                                : 0;

    if (err == 0)
        err = gwi_agent_begin(worker->params->agent, gwi_access_of(a->kind), a->n_keys, a->lent,
                              e->done);
    if (err < 0) {
        gwi_errand_free(e);
        return err;
    }
    a->errand = e;
    a->seq = worker->errands->next_seq++;
    a->before = worker->walker.arrivals_before = arrivals(worker);
    wait_at_latches(worker, gwi_agent_stuck, worker->params->agent);
    return 0;
}

/* Up to so many of those that are away. */
static void ask_early(struct access *a, size_t end)
{
    for (; a->n_asked < end; a->n_asked++)
        gwi_agent_ask(a->worker->params->agent, a->away[a->n_asked]);
}

/* `err`: of the walk.  Then the operation ends, but nothing goes to the caller's arrays. */
static int end_early(struct access *a, int err)
{
    gw_worker *worker = a->worker;
    gwi_errand *e = a->errand;
    int stays = !a->asynchronous && err == 0;

    ask_early(a, a->n_away);
    e->parts = a->away;
    e->n_parts = a->n_away;
    a->away = NULL;
    gwi_errand_append(worker->errands, e);
    wait_at_latches(worker, gwi_latch_wait, worker->params);
    if (a->asynchronous && err == 0)
        err = gwi_errand_make_busy(worker->errands, e);
    int64_t began_ns = stays ? gwi_trace_began() : 0;
    int ended = gwi_agent_end(worker->params->agent, e->done, stays);
    gwi_track_waited(worker->track, gwi_errand_end_of(a->kind), began_ns);
    if (err < 0)
        gwi_remote_forget(worker, a->seq);
    return err < 0 ? err : ended;
}

/* Of a key that occurs twice in a call, and comes here meanwhile, the first is away and the second
 * is not.  They must not change places.  The store finds keys away only while nobody is about to
 * place them: so if one has come since, the count of arrivals has changed since the call began, and
 * as long as it has not, which is nearly always, nothing is looked up. */

/* If there is no memory for it the call fails. */
static void note_away(struct access *a)
{
    for (; a->n_noted < a->n_away && a->err == 0; a->n_noted++)
        a->err = gwi_hash_put(&a->noted, (uint64_t)a->away[a->n_noted].key, 0);
}

static int make_away(struct access *a, int64_t key, unsigned char *values)
{
    if (a->away == NULL)
        a->away = malloc(a->n_keys * sizeof *a->away);
    if (a->away == NULL)
        return gwi_fail(GW_ENOMEM, "an operation on %zu keys", a->n_keys);
    a->away[a->n_away++] = (gwi_part){key, values};
    return 0;
}

/* Whether a key is among those that are away already; 1 if that cannot be known. */
static int is_noted(void *ctx, int64_t key)
{
    struct access *a = ctx;

    if (a->n_away == 0 || arrivals(a->worker) == a->before)
        return 0;
    note_away(a);
    return a->err < 0 || gwi_hash_get(&a->noted, (uint64_t)key, NULL);
}

/* Keys have come while we read: what was read of a key behind one that was away is read again. */
static int read_again(struct access *a, gw_keys keys, unsigned char *values)
{
    gwi_part *away = malloc(a->n_keys * sizeof *away);
    size_t n = 0;

    if (away == NULL)
        return gwi_fail(GW_ENOMEM, "an operation on %zu keys", a->n_keys);
    for (size_t i = 0; i < keys.n && a->err == 0;
         values += gwi_worker_row_bytes(a->worker, keys.key[i++]))
        if (is_noted(a, keys.key[i]))
            away[n++] = (gwi_part){keys.key[i], values};
    free(a->away);
    a->away = away;
    a->n_away = n;
    return a->err;
}

/* A key that is here, and none of the call is before it.  Returns 1 if it was so and is done, else
 * 0, or an error. */
static int try_here(struct access *a, int64_t key, void *values)
{
    if (gwi_local_state(&a->worker->local, key) == GWI_ABSENT || is_noted(a, key))
        return 0;
    return do_here(a->worker, a->kind, key, values);
}

/* A key that is not here, or is among those of our operations that are with an agent. */
static int take_note(void *ctx, int64_t key, void *values)
{
    struct access *a = ctx;
    int busy = gwi_errands_is_busy(a->worker->errands, key);
    int done = busy ? 0 : try_here(a, key, values);

    if (done != 0)
        return done < 0 ? done : 0;
    a->behind |= busy;
    if (a->err < 0)
        return a->err;
    if (a->errand == NULL && can_ask_early(a)) {
        a->err = begin_early(a);
        /* It may have come just before; no other will. */
        done = a->err < 0 ? a->err : try_here(a, key, values);
        if (done != 0)
            return done < 0 ? done : 0;
    }
    int err = make_away(a, key, values);
    if (a->errand != NULL && err == 0) {
        gwi_agent_fetch(a->worker->params->agent, key);
        ask_early(a, a->n_away > GWI_ORDER_AHEAD ? a->n_away - GWI_ORDER_AHEAD : 0);
    }
    return err;
}

/* None of which is busy. */
static int walk_in_place(struct access *a, gw_keys keys, void *values)
{
    const gwi_store *store = &a->worker->params->store;
    gwi_walker *walker = &a->worker->walker;

    walker->other = take_note;
    walker->other_ctx = a;
    walker->special = gwi_local_change_latched;
    walker->special_soon = gwi_local_fetch_mark;
    walker->special_ctx = &a->worker->local;
    walker->arrivals = &a->worker->params->hall->arrivals;
    walker->arrivals_before = a->before;
    walker->behind = is_noted;
    walker->wary = a->n_away > 0;
    return a->kind == GWI_ORDER_PULL   ? gwi_store_pull(store, walker, keys.key, keys.n, values)
           : a->kind == GWI_ORDER_PUSH ? gwi_store_push(store, walker, keys.key, keys.n, values)
                                       : gwi_store_set(store, walker, keys.key, keys.n, values);
}

/* How many of the first keys are not busy, and the bytes of their vectors. */
static size_t count_free(const gw_worker *worker, gw_keys keys, size_t *ret_n_bytes)
{
    size_t n = 0, n_bytes = 0;

    for (; n < keys.n && !gwi_errands_is_busy(worker->errands, keys.key[n]); n++)
        n_bytes += gwi_worker_row_bytes(worker, keys.key[n]);
    *ret_n_bytes = n_bytes;
    return n;
}

/* While some of our operations are with an agent, their keys have to wait, and what is between them
 * is walked over as ever. */
static int walk_between(struct access *a, gw_keys keys, unsigned char *values)
{
    size_t n_bytes;
    int err = 0;

    while (keys.n > 0 && err == 0) {
        size_t n = count_free(a->worker, keys, &n_bytes);
        if (n > 0) {
            err = walk_in_place(a, (gw_keys){keys.key, n}, values);
        } else {
            err = take_note(a, keys.key[0], values);
            n_bytes = gwi_worker_row_bytes(a->worker, keys.key[0]);
            n = 1;
        }
        keys = (gw_keys){keys.key + n, keys.n - n};
        values += n_bytes;
    }
    return err;
}

static int walk(struct access *a, gw_keys keys, void *values)
{
    a->follows = a->worker->errands->busy.count > 0;
    return a->follows ? walk_between(a, keys, values) : walk_in_place(a, keys, values);
}

/* Changes and clocks ring no bell; but who dozes is woken. */
static void rouse(gw_worker *worker, int channel)
{
    gwi_fabric *f = worker->params->world->fabric;

    if (gwi_slot_rouse(&worker->params->slots[channel]))
        f->ops->nudge(f, gwi_agent_rank(worker->params, channel), worker->params->lane);
}

static void rouse_for_changes(gw_worker *worker)
{
    for (int c = 0; c < worker->params->n_channels; c++)
        if (gwi_slot_dozes(&worker->params->slots[c]) && gwi_marks_any(&worker->local.marks[c]))
            rouse(worker, c);
}

void gwi_remote_clock_advanced(gw_worker *worker)
{
    for (int c = 0; c < worker->params->n_channels; c++)
        rouse(worker, c);
}

/* For the agent, which likes to be where the vectors are in the caches. */
static void note_cpu(gwi_seat *seat)
{
    int32_t cpu_1 = gwi_cpu_now() + 1;

    if (atomic_load_explicit(&seat->cpu_1, memory_order_relaxed) != cpu_1)
        atomic_store_explicit(&seat->cpu_1, cpu_1, memory_order_relaxed);
}

/* What was found to be away. */
static int post_late(struct access *a, gw_keys keys, void *values)
{
    gw_worker *worker = a->worker;
    int err = 0;

    if (a->kind == GWI_ORDER_PULL && a->n_away > 0 && arrivals(worker) != a->before)
        err = read_again(a, keys, values);
    if (err == 0 && a->behind)
        err = gwi_remote_wait(worker, -1);
    if (err < 0 || a->n_away == 0)
        return err;
    a->seq = worker->errands->next_seq++;
    return post_all(a);
}

int gwi_remote_access(gw_worker *worker, gwi_order_kind kind, gw_keys keys, void *values,
                      size_t values_bytes, int asynchronous, size_t *ret_n_remote, int64_t *ret_seq)
{
    struct access a = {.worker = worker,
                       .kind = kind,
                       .asynchronous = asynchronous,
                       .n_keys = keys.n,
                       .lent = {values, values_bytes},
                       .seq = -1,
                       .before = arrivals(worker)};

    note_cpu(worker->seat);
    gwi_errands_collect(worker);
    int err = walk(&a, keys, values);
    err = a.errand != NULL ? end_early(&a, err) : err < 0 ? err : post_late(&a, keys, values);
    if (kind != GWI_ORDER_PULL)
        rouse_for_changes(worker);
    free(a.away);
    gwi_hash_fini(&a.noted);
    *ret_n_remote = a.n_away;
    *ret_seq = a.seq;
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
            gwi_errand *e = NULL;
            size_t n = 0, left = keys.n - i < most ? keys.n - i : most;
            err = gwi_errand_with_order(worker, kind, left, 0, seq, &e);
            if (err < 0)
                break;
            for (size_t j = 0; j < left; j++)
                if (channel_of(worker->params, keys.key[i + j]) == c)
                    e->order->keys[n++] = keys.key[i + j];
            e->order->n_keys = (uint32_t)n;
            e->order->start = start;
            e->order->end = end;
            err = gwi_errand_post(worker, e, c);
            i += left;
            if (keys.n == 0)
                break;
        }
    return err;
}

int gwi_remote_localize(gw_worker *worker, gw_keys keys, int64_t *ret_seq)
{
    *ret_seq = worker->errands->next_seq++;
    return post_keys(worker, GWI_ORDER_LOCALIZE, keys, 0, 0, *ret_seq);
}

/* It has the number of the operation that follows: those before do not wait for it. */
int gwi_remote_intent(gw_worker *worker, gw_keys keys, int64_t start, int64_t end)
{
    int64_t seq = worker->errands->next_seq;

    return keys.n == 0 ? 0 : post_keys(worker, GWI_ORDER_INTENT, keys, start, end, seq);
}

/* What this worker wrote is with the agent or in place by then: orders keep their order. */
int gwi_remote_sync(gw_worker *worker)
{
    int64_t seq = worker->errands->next_seq++;
    int err = post_keys(worker, GWI_ORDER_SYNC, (gw_keys){NULL, 0}, 0, 0, seq);

    return err < 0 ? err : gwi_remote_wait(worker, seq);
}

int gwi_remote_finish(gw_worker *worker)
{
    int64_t seq = worker->errands->next_seq++;
    int err = post_keys(worker, GWI_ORDER_FINISH, (gw_keys){NULL, 0}, 0, 0, seq);

    return err < 0 ? err : gwi_remote_wait(worker, seq);
}

void gwi_remote_nudge(gw_worker *worker)
{
    gwi_fabric *f = worker->params->world->fabric;

    f->ops->nudge(f, gwi_agent_rank(worker->params, 0), worker->params->lane);
}
