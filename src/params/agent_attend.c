/* agent_attend.c - what workers of the agent's process do for it, and what they ask of it.
 *
 * They hand their orders to the state machine themselves, and who waits for one does the agent's
 * work meanwhile: nobody has to be woken.                                                */
#include "params/agent_turn.h"

#include <sched.h>

#define ATTEND_NS (200 * GWI_US) /* after the last thing that a worker did for its agent */
#define LONGEST_ATTEND_NS (20 * GWI_MS)
#define LAST_TURNS 8                   /* of who attended, before it wakes the agent for the rest */
#define KEYS_TO_COME_NS (200 * GWI_US) /* for who asks whether they have */
#define LOOKS_PER_YIELD 32

static int help(gwi_agent *agent)
{
    if (pthread_mutex_trylock(&agent->lock) != 0)
        return 0;
    int busy = gwi_agent_take_turn(agent);
    pthread_mutex_unlock(&agent->lock);
    return busy > 0;
}

/* From now on the agent is woken again.  What came before, somebody must see who looks after
 * that: us, whoever else is at it now, all of it or so much that we wake the agent for the rest. If
 * the agent dozes, and we have left something for later, or somebody meant to wake it while we
 * attended, we wake it as well. */
static void stop_attending(gwi_agent *agent)
{
    gwi_fabric *f = agent->params->world->fabric;
    int turns = 0, more;

    gwi_attend_end(&agent->attendance);
    pthread_mutex_lock(&agent->lock);
    do
        more = gwi_agent_take_turn(agent) > 0 && gwi_node_may_hear_more(agent->node);
    while (more && ++turns < LAST_TURNS);
    pthread_mutex_unlock(&agent->lock);
    if (more || (gwi_agent_is_dozing(agent) &&
                 (!gwi_agent_may_doze(agent) || !gwi_slot_dozes(gwi_agent_slot(agent)))))
        f->ops->nudge(f, f->place.rank, agent->params->lane);
}

/* Until it is over; while there is something to do, or may be soon. */
static int attend_until(gwi_agent *agent, int (*is_over)(void *ctx), void *ctx)
{
    int64_t now = gwi_now_ns(), end = now + LONGEST_ATTEND_NS, limit = now + ATTEND_NS;
    int over, busy = 0;

    for (unsigned i = 1; !(over = is_over(ctx)); i++) {
        busy |= help(agent);
        gwi_cpu_relax();
        if (i % LOOKS_PER_YIELD != 0)
            continue;
        now = gwi_now_ns();
        if (now >= end || (!busy && now >= limit))
            break;
        if (busy)
            limit = now + ATTEND_NS;
        else
            sched_yield();
        busy = 0;
    }
    return over;
}

int gwi_agent_attend(gwi_agent *agent, int (*is_over)(void *ctx), void *ctx)
{
    gwi_attend(&agent->attendance);
    int over = attend_until(agent, is_over, ctx);
    stop_attending(agent);
    return over;
}

struct patience {
    const gwi_agent *agent;
    int64_t until_ns;
    int (*have_come)(void *ctx);
    void *ctx;
};

static int is_over(void *ctx)
{
    const struct patience *p = ctx;

    return !atomic_load_explicit(&p->agent->expects, memory_order_relaxed) ||
           p->have_come(p->ctx) || gwi_now_ns() >= p->until_ns;
}

int gwi_agent_await_keys(gwi_agent *agent, int (*have_come)(void *ctx), void *ctx)
{
    struct patience p = {agent, gwi_now_ns() + KEYS_TO_COME_NS, have_come, ctx};

    if (!is_over(&p)) {
        gwi_before_wait();
        gwi_agent_attend(agent, is_over, &p);
        gwi_after_wait();
    }
    return gwi_agent_check(agent->params);
}

static int is_done(void *ctx)
{
    return (int)atomic_load_explicit((_Atomic uint32_t *)ctx, memory_order_seq_cst);
}

/* Other threads of the program run meanwhile; and they may keep us from going on, so we stop
 * attending first. */
static void stay(gwi_agent *agent, _Atomic uint32_t *done)
{
    if (!is_done(done)) {
        gwi_before_wait();
        attend_until(agent, is_done, done);
        stop_attending(agent);
        gwi_after_wait();
    } else {
        stop_attending(agent);
    }
}

int gwi_agent_begin(gwi_agent *agent, gwi_access access, size_t n, gwi_lent lent,
                    _Atomic uint32_t *done)
{
    gwi_attend(&agent->attendance); /* answers may come before all is asked */
    pthread_mutex_lock(&agent->lock);
    int err = atomic_load_explicit(&agent->err, memory_order_relaxed);
    if (err == 0) {
        err = gwi_node_begin_order(agent->node, access, n, lent, done);
        if (err < 0)
            gwi_agent_fail(agent, err);
    }
    if (err == 0)
        return 0;
    pthread_mutex_unlock(&agent->lock);
    stop_attending(agent);
    return gwi_agent_check(agent->params);
}

void gwi_agent_fetch(gwi_agent *agent, int64_t key)
{
    gwi_node_fetch_for_order(agent->node, key);
}

void gwi_agent_ask(gwi_agent *agent, gwi_part part)
{
    gwi_node_add_to_order(agent->node, part);
}

int gwi_agent_end(gwi_agent *agent, _Atomic uint32_t *done, int stays)
{
    int err = gwi_node_end_order(agent->node);

    if (err < 0)
        gwi_agent_fail(agent, err);
    else
        gwi_agent_take_turn(agent);
    pthread_mutex_unlock(&agent->lock);
    if (stays && err >= 0)
        stay(agent, done);
    else
        stop_attending(agent);
    return gwi_agent_check(agent->params);
}

int gwi_agent_access(gwi_agent *agent, gwi_access access, const gwi_part *parts, size_t n,
                     gwi_lent lent, _Atomic uint32_t *done, int stays)
{
    int err = gwi_agent_begin(agent, access, n, lent, done);

    if (err < 0)
        return err;
    gwi_node_add_all_to_order(agent->node, parts, n);
    return gwi_agent_end(agent, done, stays);
}

int gwi_agent_order(gwi_agent *agent, int seat, gwi_order *order)
{
    gwi_attend(&agent->attendance);
    pthread_mutex_lock(&agent->lock);
    if (gwi_agent_take_order(agent, seat, order) >= 0)
        gwi_agent_take_turn(agent);
    pthread_mutex_unlock(&agent->lock);
    stop_attending(agent);
    return gwi_agent_check(agent->params);
}

int gwi_agent_note(gwi_agent *agent, int seat, gwi_order *order)
{
    gwi_fabric *f = agent->params->world->fabric;

    if (pthread_mutex_trylock(&agent->lock) != 0)
        return 0;
    gwi_agent_take_order(agent, seat, order);
    int64_t now = gwi_node_watches(agent->node);
    int64_t before = atomic_exchange_explicit(&agent->watches, now, memory_order_relaxed);
    gwi_agent_note_doze(agent);
    pthread_mutex_unlock(&agent->lock);
    /* Does it sleep for longer than it may from now on? */
    if (gwi_slot_rouse(gwi_agent_slot(agent)) || before == 0 || now < before)
        f->ops->nudge(f, f->place.rank, agent->params->lane);
    int err = gwi_agent_check(agent->params);
    return err < 0 ? err : 1;
}

void gwi_agent_forget(gwi_agent *agent, _Atomic uint32_t *done, int for_good)
{
    static _Atomic uint32_t nobody;

    pthread_mutex_lock(&agent->lock);
    gwi_node_forget(agent->node, done, for_good ? &nobody : done);
    pthread_mutex_unlock(&agent->lock);
}
