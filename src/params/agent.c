/* agent.c - the loop around the state machine: orders in, steps, news out, sleep.
 *
 * A worker of the agent's own process hands its orders to the state machine itself, and while
 * it waits for one it does the agent's work: nobody has to be woken.                  */
#include "params/agent.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "params/clerk.h"
#include "params/farewell.h"
#include "params/latch.h"
#include "params/turns.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define NAP_NS (50 * GWI_US)     /* at a latch that is not free */
#define LOOKS 100                /* naps between looking for deaths */
#define ATTEND_NS (200 * GWI_US) /* after the last thing that a worker did for its agent */
#define LONGEST_ATTEND_NS (20 * GWI_MS)
#define LAST_TURNS 8                   /* of who attended, before it wakes the agent for the rest */
#define KEYS_TO_COME_NS (200 * GWI_US) /* for who asks whether they have */
#define LOOKS_PER_YIELD 32
#define LEAST_NAP_NS (500 * GWI_US) /* each takes a processor from somebody who computes */
#define REST 8                      /* times as long as what was done */
#define LONGEST_REST_NS (3500 * GWI_US)
#define LEAST_REST 2.3 /* the same, however long that is: workers shall have most of it */
#define LONGEST_LEAST_REST_NS (20 * GWI_MS) /* who was kept from its processor did not work */
#define LONGEST_REST_FROM_INTENTS_NS GWI_MS
#define BRIEF_NS (50 * GWI_US)       /* one request, when all caches are cold */
#define IN_A_ROW_NS GWI_MS           /* between wake-ups by who asks again and again */
#define LONG_TURN_NS (100 * GWI_US)  /* worth a look at where it runs, which takes 10 us at most */
#define ROOM_NS GWI_MS               /* for who goes where its vectors are, and then stays there */
#define BESIDE_ROOM_NS (50 * GWI_US) /* each turn that is taken beside its asker costs as much */
#define LOOK_AROUND_NS (20 * GWI_MS) /* between looks for deaths, 4 us each */
#define SELDOM_NS (100 * GWI_MS)     /* the same, when somebody may wait for us to sleep */
#define FAREWELL_NS GWI_SECOND       /* for peers that have no room for the last note */

struct sync_order {
    struct sync_order *next;
    int seat;
    _Atomic uint32_t *done;
};

struct gwi_agent {
    /* set at start, then constant */
    gw_params *params; /* borrowed */
    gwi_node *node;
    int *ranks, *nodes_of;
    uint64_t *backed;
    int channel;
    gwi_thread thread;
    gwi_attendance attendance; /* of workers that do its work */
    /* the node above and the following under `lock`: who has it is the agent */
    pthread_mutex_t lock;
    struct sync_order *syncs;
    int64_t counts_since_ns;
    uint64_t finished;           /* by the state machine, of which workers were told */
    int has_news;                /* for workers, of other kinds */
    uint64_t rounds, round_keys; /* as counted in the last turn with anything to do */
    int64_t round_began_ns;      /* of one that goes on and has keys; 0: there is none */
    int64_t worked_ns;           /* how long it was busy since the last round; */
    int64_t took_ns;             /* and in the last turn */
    gwi_turns *turns;            /* for a trace; NULL: there is none */
    /* by who has the lock, read by anyone: as the node says, how often to look, when the next round
     * is, from when on it may doze, and whether it expects keys */
    _Atomic int64_t watches, next_round_ns, dozes_from_ns;
    _Atomic int expects;
    /* by who has the lock, and by its thread when it is woken: when there was anything to do */
    _Atomic int64_t busy_ns;
    /* by who has the lock, read by anyone */
    _Atomic int err;
    char sentence[GWI_SENTENCE_BYTES]; /* before `err` */
    gwi_farewell farewell;             /* by its thread, at its end */
    /* by its thread: when it was woken last, whether by somebody on its processor, and whether soon
     * after the time before; and when it looked for deaths */
    int64_t woken_ns;
    int beside, in_a_row;
    int64_t looked_around_ns;
    int looks_now; /* it has dozed */
    int polls;     /* not all messages ring; set at its beginning */
    /* by its thread, read by anyone: it dozes, or will, if there is nothing to do when it has
     * looked once more */
    _Atomic int dozes;
    /* by who stops it */
    _Atomic int stop;
};

/* orders */

static int begin_sync(gwi_agent *agent, int seat, _Atomic uint32_t *done)
{
    struct sync_order *sync = malloc(sizeof *sync);

    if (sync == NULL)
        return gwi_fail(GW_ENOMEM, "wait_sync");
    *sync = (struct sync_order){agent->syncs, seat, done};
    agent->syncs = sync;
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
    for (struct sync_order **link = &agent->syncs; *link != NULL;) {
        struct sync_order *sync = *link;
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
static int need_memory(void *ctx, void *at, size_t n_bytes)
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

/* It ends by an error: let everybody on the node know.  Those elsewhere hear it from its thread,
 * which looks within 100 ms. */
static void fail(gwi_agent *agent, int err)
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

static void note_doze(gwi_agent *agent)
{
    int64_t after = gwi_node_dozes_after(agent->node);
    int64_t busy_ns = atomic_load_explicit(&agent->busy_ns, memory_order_relaxed);

    atomic_store_explicit(&agent->dozes_from_ns, after < INT64_MAX ? busy_ns + after : INT64_MAX,
                          memory_order_relaxed);
}

/* Whatever there is to do now.  Returns 1 if there was anything, else 0. */
static int take_turn(gwi_agent *agent)
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
    note_doze(agent);
    atomic_store_explicit(&agent->watches, gwi_node_watches(agent->node), memory_order_relaxed);
    atomic_store_explicit(&agent->next_round_ns, gwi_node_next_ns(agent->node),
                          memory_order_relaxed);
    atomic_store_explicit(&agent->expects, gwi_node_expects(agent->node), memory_order_relaxed);
    if (err < 0)
        fail(agent, err);
    return err < 0 ? err : busy;
}

/* A wake-up puts a thread where it ran last, also beside who woke it, who most likely waits there
 * for what it does now.  So it sleeps again at once when that is done.  When there is more to do,
 * now or soon again, it goes to another processor if one is free, and both work at the same time.
 */

static void note_waking(gwi_agent *agent, int beside)
{
    int64_t now = gwi_now_ns();

    agent->in_a_row = now - agent->woken_ns < IN_A_ROW_NS;
    agent->beside = beside;
    agent->woken_ns = now;
}

/* Something was done.  Returns whether to sleep at once. */
static int make_way(gwi_agent *agent)
{
    if (!agent->beside || atomic_load_explicit(&agent->watches, memory_order_relaxed) > 0)
        return 0;
    if (!agent->in_a_row && gwi_now_ns() - agent->woken_ns < BRIEF_NS)
        return 1;
    if (gwi_has_room_to_run(BESIDE_ROOM_NS)) {
        gwi_thread_leave_cpu();
        agent->beside = 0;
    }
    return agent->beside;
}

/* It has worked for long, mostly on vectors that workers of its process use all the time.  If
 * nobody has a processor to spare, it is better off on that of one of them than on a stranger's. */
static void stay_near(const gwi_agent *agent)
{
    const gw_params *params = agent->params;
    const gwi_seat *seats = params->seats +
                            params->world->fabric->place.local_rank * params->workers_each;
    int here = gwi_cpu_now(), there = -1;

    if (gwi_has_room_to_run(ROOM_NS))
        return;
    for (int w = 0; w < params->workers_each; w++) {
        int cpu = atomic_load_explicit(&seats[w].cpu_1, memory_order_relaxed) - 1;
        if (cpu == here)
            return;
        there = cpu >= 0 ? cpu : there;
    }
    if (there >= 0)
        gwi_thread_go_to_cpu(there);
}

/* Deaths ring no bell; but to look for them takes as long as an answer, so not too often. */
static void look_around(gwi_agent *agent, int64_t ago_ns)
{
    gwi_fabric *f = agent->params->world->fabric;
    int64_t now = gwi_now_ns();

    if (now - agent->looked_around_ns < ago_ns)
        return;
    agent->looked_around_ns = now;
    if (f->ops->check(f) >= 0)
        return;
    pthread_mutex_lock(&agent->lock);
    if (atomic_load_explicit(&agent->err, memory_order_relaxed) == 0)
        fail(agent, GW_EPEER);
    pthread_mutex_unlock(&agent->lock);
}

static void begin_waiting(gwi_agent *agent, gwi_waiter *waiter)
{
    gwi_fabric *f = agent->params->world->fabric;

    f->ops->waiter_init(f, agent->params->lane, waiter);
    waiter->attendance = &agent->attendance;
}

static gwi_slot *slot_of(const gwi_agent *agent)
{
    return &agent->params->slots[agent->channel];
}

static int is_dozing(const gwi_agent *agent)
{
    return atomic_load_explicit(&agent->dozes, memory_order_seq_cst);
}

static void set_dozes(gwi_agent *agent, int dozes)
{
    if (!dozes && !is_dozing(agent))
        return;
    /* Before the last look; pairs with gwi_slot_dozes(). */
    atomic_store_explicit(&agent->dozes, dozes, memory_order_seq_cst);
    atomic_store_explicit(&slot_of(agent)->dozes, (uint32_t)dozes, memory_order_seq_cst);
}

static int may_doze(const gwi_agent *agent)
{
    return atomic_load_explicit(&agent->watches, memory_order_relaxed) > 0 &&
           gwi_now_ns() >= atomic_load_explicit(&agent->dozes_from_ns, memory_order_relaxed);
}

/* It has looked and there was nothing to do.  If that was so for long enough it says that it dozes,
 * and looks once more, which may show that it must not; and somebody may have meant to wake it
 * meanwhile.  Where messages ring no bell it has to look every now and then anyway. */
static void consider_dozing(gwi_agent *agent, gwi_waiter *waiter)
{
    int dozes = is_dozing(agent);
    int may = !agent->polls && may_doze(agent) && (!dozes || gwi_slot_dozes(slot_of(agent)));

    if (may && !dozes) {
        gwi_waiter_fini(waiter);
        begin_waiting(agent, waiter);
        waiter->at_once = 1;
    }
    if (may != dozes)
        set_dozes(agent, may);
}

/* It was woken.  If for a change or a clock, more of them will follow, so it does not doze again at
 * once. */
static void end_doze(gwi_agent *agent)
{
    if (!gwi_slot_dozes(slot_of(agent)))
        atomic_store_explicit(&agent->busy_ns, gwi_now_ns(), memory_order_relaxed);
    set_dozes(agent, 0);
    agent->looks_now = 1;
}

/* Changes and clocks ring no bell, so look again while there may be any. */
static void sleep_a_while(gwi_agent *agent, gwi_waiter *waiter)
{
    consider_dozing(agent, waiter);
    int64_t watches = is_dozing(agent)
                          ? 0
                          : atomic_load_explicit(&agent->watches, memory_order_relaxed);
    int asleep = waiter->armed;

    if (watches > 0) {
        /* For changes and clocks, about which nothing is done before the next round.  Messages
         * ring, so there is no hurry. */
        int64_t rest = atomic_load_explicit(&agent->next_round_ns, memory_order_relaxed) -
                       gwi_now_ns();
        int64_t least = at_most(watches, LEAST_NAP_NS);
        waiter->polls = 1;
        waiter->least_ns = least > rest ? least : rest;
        watches = watches > waiter->least_ns ? watches : waiter->least_ns;
    }
    waiter->longest_ns = watches;
    int around = gwi_waiter_pause(waiter);
    if (!waiter->armed && is_dozing(agent))
        end_doze(agent);
    if (asleep && !waiter->armed)
        note_waking(agent, waiter->beside);
    else if (around)
        look_around(agent, waiter->at_once ? SELDOM_NS : LOOK_AROUND_NS);
}

/* A turn of its own thread; the last one before it dozes, and the first one after, act on whatever
 * there is.  How long it dozes says nothing of how soon it looks else, so it is not learned. */
static int look(gwi_agent *agent)
{
    if (is_dozing(agent) || agent->looks_now)
        gwi_node_look_now(agent->node);
    agent->looks_now = 0;
    int busy = take_turn(agent);
    if (is_dozing(agent))
        gwi_node_learn_anew(agent->node);
    return busy;
}

/* If it has failed, the other nodes shall hear why.  From then on nobody else sends anything, and
 * nobody shall believe what is half sent.  Who has no room may have failed as well, and look at
 * nothing. */
static void say_farewell(gwi_agent *agent)
{
    gwi_fabric *f = agent->params->world->fabric;
    int64_t end = gwi_now_ns() + FAREWELL_NS;

    pthread_mutex_lock(&agent->lock);
    int err = atomic_load_explicit(&agent->err, memory_order_relaxed);
    if (err < 0 && !gwi_node_was_told(agent->node)) {
        gwi_node_abandon(agent->node, f);
        gwi_farewell_write(&agent->farewell, f, err, agent->sentence);
    }
    pthread_mutex_unlock(&agent->lock);
    while (gwi_farewell_send(&agent->farewell, f) > 0 && gwi_now_ns() < end &&
           !atomic_load_explicit(&agent->stop, memory_order_relaxed))
        gwi_nap_ns(GWI_MS);
    gwi_farewell_give_up(&agent->farewell, f);
}

static void *run(void *arg)
{
    gwi_agent *agent = arg;
    gwi_waiter waiter;
    int busy = 0;

    gwi_thread_serve();
    begin_waiting(agent, &waiter);
    agent->polls = waiter.polls;
    while (busy >= 0 && !atomic_load_explicit(&agent->stop, memory_order_relaxed)) {
        /* While workers have the lock they do what there is to do.  But who is about to sleep must
         * have looked: somebody else may have looked before it was announced. */
        int ours = waiter.armed ? pthread_mutex_lock(&agent->lock) == 0
                                : pthread_mutex_trylock(&agent->lock) == 0;
        busy = ours ? look(agent) : 0;
        int long_turn = busy > 0 && agent->took_ns >= LONG_TURN_NS;
        if (ours)
            pthread_mutex_unlock(&agent->lock);
        if (long_turn)
            stay_near(agent);
        if (busy > 0) {
            set_dozes(agent, 0);
            gwi_waiter_fini(&waiter);
            begin_waiting(agent, &waiter);
            waiter.at_once = make_way(agent);
        }
        if (busy == 0 || (busy > 0 && waiter.at_once))
            sleep_a_while(agent, &waiter);
    }
    gwi_waiter_fini(&waiter);
    say_farewell(agent);
    return NULL;
}

/* for workers of this process */

static int help(gwi_agent *agent)
{
    if (pthread_mutex_trylock(&agent->lock) != 0)
        return 0;
    int busy = take_turn(agent);
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
        more = take_turn(agent) > 0 && gwi_node_may_hear_more(agent->node);
    while (more && ++turns < LAST_TURNS);
    pthread_mutex_unlock(&agent->lock);
    if (more || (is_dozing(agent) && (!may_doze(agent) || !gwi_slot_dozes(slot_of(agent)))))
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
            fail(agent, err);
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
        fail(agent, err);
    else
        take_turn(agent);
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

/* With the lock: what was dropped before comes first. */
static int take_order_now(gwi_agent *agent, int seat, gwi_order *order)
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
        fail(agent, err);
    return err;
}

int gwi_agent_order(gwi_agent *agent, int seat, gwi_order *order)
{
    gwi_attend(&agent->attendance);
    pthread_mutex_lock(&agent->lock);
    if (take_order_now(agent, seat, order) >= 0)
        take_turn(agent);
    pthread_mutex_unlock(&agent->lock);
    stop_attending(agent);
    return gwi_agent_check(agent->params);
}

int gwi_agent_note(gwi_agent *agent, int seat, gwi_order *order)
{
    gwi_fabric *f = agent->params->world->fabric;

    if (pthread_mutex_trylock(&agent->lock) != 0)
        return 0;
    take_order_now(agent, seat, order);
    int64_t now = gwi_node_watches(agent->node);
    int64_t before = atomic_exchange_explicit(&agent->watches, now, memory_order_relaxed);
    note_doze(agent);
    pthread_mutex_unlock(&agent->lock);
    /* Does it sleep for longer than it may from now on? */
    if (gwi_slot_rouse(slot_of(agent)) || before == 0 || now < before)
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

/* counting */

void gwi_agent_count(gwi_agent *agent, gwi_agent_figures *ret_figures)
{
    pthread_mutex_lock(&agent->lock);
    gwi_node_times times = gwi_node_time(agent->node);
    *ret_figures = (gwi_agent_figures){.node = *gwi_node_count(agent->node),
                                       .since_ns = agent->counts_since_ns,
                                       .staleness_ns = times.staleness_ns,
                                       .intent_ns = times.intent_ns,
                                       .clock_ns = times.clock_ns};
    pthread_mutex_unlock(&agent->lock);
}

void gwi_agent_count_anew(gwi_agent *agent)
{
    pthread_mutex_lock(&agent->lock);
    gwi_node_count_anew(agent->node);
    agent->rounds = agent->round_keys = 0;
    agent->counts_since_ns = gwi_now_ns();
    pthread_mutex_unlock(&agent->lock);
}

/* starting and stopping */

/* The process of each node that serves this channel. */
static int find_peers(gwi_agent *agent)
{
    const gwi_fabric *f = agent->params->world->fabric;

    agent->ranks = calloc((size_t)f->place.nodes, sizeof *agent->ranks);
    agent->nodes_of = calloc((size_t)f->place.size, sizeof *agent->nodes_of);
    if (agent->ranks == NULL || agent->nodes_of == NULL)
        return gwi_fail(GW_ENOMEM, "an agent among %d nodes", f->place.nodes);
    for (int r = 0; r < f->place.size; r++) {
        gwi_place place = gwi_fabric_place(f, r);
        agent->nodes_of[r] = place.node;
        if (place.local_rank == agent->channel)
            agent->ranks[place.node] = r;
    }
    return 0;
}

int gwi_agent_start(gw_params *params, gwi_technique technique)
{
    const gwi_fabric *f = params->world->fabric;
    int err;

    if (f->place.nodes == 1 || f->place.local_rank >= params->n_channels)
        return 0;
    gwi_agent *agent = calloc(1, sizeof *agent);
    if (agent == NULL)
        return gwi_fail(GW_ENOMEM, "an agent");
    agent->params = params;
    agent->channel = f->place.local_rank;
    agent->counts_since_ns = gwi_now_ns();
    pthread_mutex_init(&agent->lock, NULL);
    gwi_attendance_init(&agent->attendance);
    err = find_peers(agent);
    if (err == 0)
        err = gwi_farewell_init(&agent->farewell, params->opening, params->lane, agent->ranks,
                                f->place.nodes);
    if (err < 0)
        goto free_agent;
    gwi_local local = params->local;
    local.hand = &params->agent_hands[agent->channel];
    local.stuck = gwi_agent_stuck;
    local.ctx = agent;
    local.need = need_memory;
    local.arrivals = &params->hall->arrivals;
    local.backed = agent->backed = calloc(2 * params->geometry.n_classes, sizeof *local.backed);
    if (agent->backed == NULL) {
        err = gwi_fail(GW_ENOMEM, "an agent");
        goto free_agent;
    }
    gwi_node_options options = {.geometry = &params->geometry,
                                .node = f->place.node,
                                .nodes = f->place.nodes,
                                .workers = gwi_all_seats(params),
                                .channel = agent->channel,
                                .technique = technique,
                                .lane = params->lane,
                                .opening = params->opening,
                                .local = &local,
                                .ranks = agent->ranks,
                                .nodes_of = agent->nodes_of};
    err = gwi_node_new(&options, &agent->node);
    if (err < 0)
        goto free_agent;
    agent->turns = gwi_turns_open(params->opening);
    err = gwi_thread_start("gw-agent", run, agent, &agent->thread);
    if (err < 0)
        goto free_agent;
    params->agent = agent;
    return 0;

free_agent:
    gwi_agent_free(agent);
    return err;
}

void gwi_agent_join(gwi_agent *agent)
{
    if (agent == NULL)
        return;
    gwi_fabric *f = agent->params->world->fabric;
    atomic_store_explicit(&agent->stop, 1, memory_order_seq_cst);
    f->ops->nudge(f, f->place.rank, agent->params->lane);
    gwi_thread_join(agent->thread);
    gwi_node_abandon(agent->node, f);
}

void gwi_agent_free(gwi_agent *agent)
{
    if (agent == NULL)
        return;
    while (agent->syncs != NULL) {
        struct sync_order *next = agent->syncs->next;
        free(agent->syncs);
        agent->syncs = next;
    }
    if (agent->turns != NULL)
        gwi_turns_close(agent->turns, gwi_node_count(agent->node));
    pthread_mutex_destroy(&agent->lock);
    gwi_attendance_fini(&agent->attendance);
    gwi_node_free(agent->node);
    gwi_farewell_fini(&agent->farewell);
    free(agent->ranks);
    free(agent->nodes_of);
    free(agent->backed);
    free(agent);
}

int gwi_agent_check(const gw_params *params)
{
    const gwi_agent *agent = params->agent;
    int err = atomic_load_explicit(&params->hall->agent_err, memory_order_seq_cst);

    if (err < 0)
        return gwi_fail(err, "%s", params->hall->sentence);
    /* Who fails first on the node may still be about to say so there, or have died meanwhile. */
    err = agent == NULL ? 0 : atomic_load_explicit(&agent->err, memory_order_seq_cst);
    return err == 0 ? 0 : gwi_fail(err, "%s", agent->sentence);
}
