/* agent_turn.c - orders, steps, news to workers, and how long to leave the processor to them. */
#include "params/agent_turn.h"
#include "base/error.h"
#include "params/clerk.h"
#include "params/latch.h"

#include <stdlib.h>
#include <string.h>

/* At a latch that is not free.  Who naps less has its share of the processor sooner, and waits
 * longer then: docs/performance.md. */
#define NAP_NS (50 * GWI_US)
#define LOOKS 100 /* naps between looking for deaths */
#define REST 8    /* times as long as what was done */
#define LONGEST_REST_NS (3500 * GWI_US)
#define LEAST_REST 2.3 /* the same, however long that is: workers shall have most of it */
#define LONGEST_LEAST_REST_NS (20 * GWI_MS) /* who was kept from its processor did not work */
#define LONGEST_REST_FROM_INTENTS_NS GWI_MS

struct gwi_sync_order {
    struct gwi_sync_order *next;
    int seat;
    _Atomic uint32_t *done;
};

/* orders */

static int begin_sync(gwi_agent *agent, int seat, _Atomic uint32_t *done)
{
    struct gwi_sync_order *sync = malloc(sizeof *sync);

    if (sync == NULL)
        return gwi_fail(GW_ENOMEM, "wait_sync");
    *sync = (struct gwi_sync_order){agent->syncs, seat, done};
    agent->syncs = sync;
    gwi_node_see_time(agent->node, gwi_now_ns()); /* the last step may be long ago, or none yet */
    return gwi_node_begin_sync(agent->node, seat);
}

static int take_access(gwi_agent *agent, gwi_order *order)
{
    unsigned char *at = gwi_order_values(order);
    size_t n_bytes = order->n_bytes - (size_t)(at - (unsigned char *)order);
    gwi_part *parts = malloc((order->n_keys + 1) * sizeof *parts);

    if (parts == NULL)
        return gwi_fail(GW_ENOMEM, "an operation on %u keys", order->n_keys);
    gwi_lent lent = {at, n_bytes};
    for (uint32_t i = 0; i < order->n_keys; i++) {
        parts[i] = (gwi_part){order->keys[i], at};
        at += gwi_geometry_class(&agent->params->geometry, order->keys[i])->row_bytes;
    }
    int err = gwi_node_order(agent->node, gwi_access_of(order->kind), parts, order->n_keys, lent,
                             &order->done);
    free(parts);
    return err;
}

static int take_order(gwi_agent *agent, int seat, gwi_order *order)
{
    gwi_node *node = agent->node;
    int err = 0;

    switch ((gwi_order_kind)order->kind) {
    case GWI_ORDER_PULL:
    case GWI_ORDER_PUSH:
    case GWI_ORDER_SET:
        return take_access(agent, order);
    case GWI_ORDER_LOCALIZE:
        return gwi_node_order_localize(node, order->keys, order->n_keys, &order->done);
    case GWI_ORDER_SYNC:
        return begin_sync(agent, seat, &order->done);
    case GWI_ORDER_INTENT:
        err = gwi_node_intent(node, seat, order->keys, order->n_keys, order->start, order->end);
        break;
    case GWI_ORDER_FINISH:
        err = gwi_node_finish(node, seat);
        break;
    }
    atomic_store_explicit(&order->done, 1, memory_order_seq_cst);
    agent->has_news = 1;
    return err;
}

/* The clock, and on channel 0 the barriers, of a worker of the node. */
static void look_at_seat(gwi_agent *agent, int seat)
{
    const gwi_seat *s = &agent->params->seats[seat];
    uint64_t barriers = atomic_load_explicit(&s->barriers, memory_order_seq_cst);
    int64_t clock = atomic_load_explicit(&s->clock, memory_order_seq_cst);

    gwi_node_see_worker(agent->node, seat, clock, agent->channel == 0 ? barriers : 0);
}

static int take_orders(gwi_agent *agent, int *ret_any)
{
    gw_params *params = agent->params;
    uint32_t seat;
    uint64_t at;
    int err = 0;

    while (err >= 0 && gwi_slot_pick(&params->slots[agent->channel], &seat, &at)) {
        unsigned char *base = params->segment.base;
        look_at_seat(agent, (int)seat); /* an order comes after what its worker did before */
        err = take_order(agent, (int)seat, (gwi_order *)(void *)(base + at));
        *ret_any = 1;
    }
    return err;
}

static void end_syncs(gwi_agent *agent)
{
    for (struct gwi_sync_order **link = &agent->syncs; *link != NULL;) {
        struct gwi_sync_order *sync = *link;
        if (gwi_node_is_synced(agent->node, sync->seat)) {
            atomic_store_explicit(sync->done, 1, memory_order_seq_cst);
            agent->has_news = 1;
            *link = sync->next;
            free(sync);
        } else {
            link = &sync->next;
        }
    }
}

void gwi_agent_drop_syncs(gwi_agent *agent)
{
    while (agent->syncs != NULL) {
        struct gwi_sync_order *next = agent->syncs->next;
        free(agent->syncs);
        agent->syncs = next;
    }
}

/* Wake whom it concerns. */
static void tell_workers(gwi_agent *agent)
{
    gwi_hall *hall = agent->params->hall;
    uint64_t released = gwi_node_released(agent->node);
    int ring = agent->has_news || agent->finished != gwi_node_finished(agent->node);

    agent->has_news = 0;
    agent->finished = gwi_node_finished(agent->node);
    if (agent->channel == 0 &&
        released > atomic_load_explicit(&hall->released, memory_order_relaxed)) {
        atomic_store_explicit(&hall->released, released, memory_order_seq_cst);
        ring = 1;
    }
    if (ring)
        gwi_bell_ring(&hall->bell);
}

/* A worker has the latch of a key.  The agent must not wait as workers do: that may run Python. */
int gwi_agent_stuck(void *ctx, int64_t key)
{
    gwi_agent *agent = ctx;
    gwi_fabric *f = agent->params->world->fabric;

    for (int naps = 1; gwi_store_latched(&agent->params->store, key); naps++) {
        if (atomic_load_explicit(&agent->stop, memory_order_relaxed))
            return gwi_fail(GW_ESTATE, "the agent was ended at the latch of key %lld",
                            (long long)key);
        if (naps % LOOKS == 0 && f->ops->check(f) < 0 &&
            gwi_latch_check_death(agent->params, key) < 0)
            return GW_EPEER;
        gwi_nap_ns(NAP_NS);
    }
    return 0;
}

/* Vectors have come for which there is no memory yet.  It goes up to the end of a huge page, so
 * that all of it can be in such. */
int gwi_agent_need_memory(void *ctx, void *at, size_t n_bytes)
{
    const gwi_agent *agent = ctx;
    const gwi_segment *segment = &agent->params->segment;
    gwi_fabric *f = agent->params->world->fabric;
    size_t offset = (size_t)((unsigned char *)at - (unsigned char *)segment->base);
    size_t end = (offset + n_bytes + GWI_HUGE_PAGE - 1) & ~(GWI_HUGE_PAGE - 1);

    end = end < segment->n_bytes ? end : segment->n_bytes;
    int err = f->ops->segment_need(f, segment, offset, end - offset);
    if (err == 0)
        gwi_pages_map(at, end - offset);
    return err;
}

/* What everybody shall read of it.  The sentence about a death names the dead, and that about a
 * failure elsewhere the rank which failed; of any other we are the cause. */
static void explain(gwi_agent *agent, int err)
{
    const char *why = gw_last_error()[0] != '\0' ? gw_last_error() : gw_strerror(err);
    int others = err == GW_EPEER || gwi_node_was_told(agent->node);
    char who[80] = "";

    if (!others)
        snprintf(who, sizeof who, "rank %d serves keys no longer, for its agent has failed: ",
                 agent->params->world->fabric->place.rank);
    snprintf(agent->sentence, sizeof agent->sentence, "%s%s", who, why);
}

void gwi_agent_fail(gwi_agent *agent, int err)
{
    gwi_hall *hall = agent->params->hall;
    int32_t none = 0;

    explain(agent, err);
    atomic_store_explicit(&agent->err, err, memory_order_seq_cst);
    atomic_store_explicit(&agent->expects, 0, memory_order_relaxed);
    if (atomic_compare_exchange_strong_explicit(&hall->failing, &none, 1, memory_order_relaxed,
                                                memory_order_relaxed)) {
        memcpy(hall->sentence, agent->sentence, sizeof hall->sentence);
        atomic_store_explicit(&hall->agent_err, err, memory_order_seq_cst);
    }
    gwi_bell_ring_sleepers(&hall->bell);
}

static int64_t at_most(int64_t ns, int64_t most_ns)
{
    return ns < most_ns ? ns : most_ns;
}

/* How long after the beginning of a round the next one may begin, if it and all that was done for
 * other nodes since the one before took so long. */
static int64_t rest_ns(int64_t worked_ns)
{
    int64_t rest = at_most(REST * worked_ns, LONGEST_REST_NS);
    int64_t least = at_most((int64_t)(LEAST_REST * (double)worked_ns), LONGEST_LEAST_REST_NS);

    return rest > least ? rest : least;
}

/* Something was done since then.  The processor shall be left to workers most of the time: so after
 * each step nothing is done about intents for a while; and a round begins when all that was done
 * since the last one, for it and for other nodes, is but a share of the time. */
static void pace(gwi_agent *agent, int64_t began_ns)
{
    const gwi_node_stats *stats = gwi_node_count(agent->node);
    int64_t ended_ns = gwi_now_ns(), took_ns = ended_ns - began_ns, next_round_ns = 0;

    agent->took_ns = took_ns;
    agent->worked_ns += took_ns;
    if (stats->round_keys != agent->round_keys && agent->round_began_ns == 0)
        agent->round_began_ns = began_ns;
    if (stats->rounds != agent->rounds) { /* one has ended, mostly without any key */
        if (agent->round_began_ns > 0)
            next_round_ns = agent->round_began_ns + rest_ns(agent->worked_ns);
        agent->round_began_ns = 0;
        agent->worked_ns = 0;
    }
    agent->rounds = stats->rounds;
    agent->round_keys = stats->round_keys;
    gwi_node_rest(agent->node, next_round_ns,
                  ended_ns + at_most(REST * took_ns, LONGEST_REST_FROM_INTENTS_NS));
}

void gwi_agent_note_doze(gwi_agent *agent)
{
    int64_t after = gwi_node_dozes_after(agent->node);
    int64_t busy_ns = atomic_load_explicit(&agent->busy_ns, memory_order_relaxed);

    atomic_store_explicit(&agent->dozes_from_ns, after < INT64_MAX ? busy_ns + after : INT64_MAX,
                          memory_order_relaxed);
}

int gwi_agent_take_turn(gwi_agent *agent)
{
    int busy = 0, err = atomic_load_explicit(&agent->err, memory_order_relaxed);

    if (err < 0)
        return err;
    agent->took_ns = 0;
    for (int s = 0; s < gwi_all_seats(agent->params); s++)
        look_at_seat(agent, s);
    err = take_orders(agent, &busy);
    int64_t began_ns = gwi_now_ns();
    if (err >= 0)
        err = gwi_node_step(agent->node, agent->params->world->fabric, began_ns);
    if (err > 0)
        pace(agent, began_ns);
    busy |= err > 0;
    if (gwi_unlikely(agent->turns != NULL))
        gwi_turns_add(agent->turns, gwi_node_count(agent->node), began_ns, busy);
    end_syncs(agent);
    tell_workers(agent);
    if (err >= 0 && gwi_node_local(agent->node)->err < 0)
        err = gwi_node_local(agent->node)->err;
    if (busy)
        atomic_store_explicit(&agent->busy_ns, began_ns, memory_order_relaxed);
    gwi_agent_note_doze(agent);
    atomic_store_explicit(&agent->watches, gwi_node_watches(agent->node), memory_order_relaxed);
    atomic_store_explicit(&agent->next_round_ns, gwi_node_next_ns(agent->node),
                          memory_order_relaxed);
    atomic_store_explicit(&agent->expects, gwi_node_expects(agent->node), memory_order_relaxed);
    if (err < 0)
        gwi_agent_fail(agent, err);
    return err < 0 ? err : busy;
}

int gwi_agent_take_order(gwi_agent *agent, int seat, gwi_order *order)
{
    int any, err = atomic_load_explicit(&agent->err, memory_order_relaxed);

    if (err < 0)
        return err;
    err = take_orders(agent, &any);
    if (err >= 0) {
        look_at_seat(agent, seat);
        err = take_order(agent, seat, order);
    }
    if (err < 0)
        gwi_agent_fail(agent, err);
    return err;
}
