/* agent.c - the agent's thread: turns, sleep, on which processor; its beginning and its end. */
#include "params/agent.h"
#include "base/error.h"
#include "params/agent_turn.h"
#include "params/clerk.h"

#include <stdlib.h>

#define LEAST_NAP_NS (500 * GWI_US)  /* each takes a processor from somebody who computes */
#define BRIEF_NS (50 * GWI_US)       /* one request, when all caches are cold */
#define IN_A_ROW_NS GWI_MS           /* between wake-ups by who asks again and again */
#define LONG_TURN_NS (100 * GWI_US)  /* worth a look at where it runs, which takes 10 us at most */
#define ROOM_NS GWI_MS               /* for who goes where its vectors are, and then stays there */
#define BESIDE_ROOM_NS (50 * GWI_US) /* each turn that is taken beside its asker costs as much */
#define LOOK_AROUND_NS (20 * GWI_MS) /* between looks for deaths, 4 us each */
#define SELDOM_NS (100 * GWI_MS)     /* the same, when somebody may wait for us to sleep */
#define FAREWELL_NS GWI_SECOND       /* for peers that have no room for the last note */

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
        gwi_agent_fail(agent, GW_EPEER);
    pthread_mutex_unlock(&agent->lock);
}

static void begin_waiting(gwi_agent *agent, gwi_waiter *waiter)
{
    gwi_fabric *f = agent->params->world->fabric;

    f->ops->waiter_init(f, agent->params->lane, waiter);
    waiter->attendance = &agent->attendance;
}

static void set_dozes(gwi_agent *agent, int dozes)
{
    if (!dozes && !gwi_agent_is_dozing(agent))
        return;
    /* Before the last look; pairs with gwi_slot_dozes(). */
    atomic_store_explicit(&agent->dozes, dozes, memory_order_seq_cst);
    atomic_store_explicit(&gwi_agent_slot(agent)->dozes, (uint32_t)dozes, memory_order_seq_cst);
}

/* It has looked and there was nothing to do.  If that was so for long enough it says that it dozes,
 * and looks once more, which may show that it must not; and somebody may have meant to wake it
 * meanwhile.  Where messages ring no bell it has to look every now and then anyway. */
static void consider_dozing(gwi_agent *agent, gwi_waiter *waiter)
{
    int dozes = gwi_agent_is_dozing(agent);
    int may = !agent->polls && gwi_agent_may_doze(agent) &&
              (!dozes || gwi_slot_dozes(gwi_agent_slot(agent)));

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
    if (!gwi_slot_dozes(gwi_agent_slot(agent)))
        atomic_store_explicit(&agent->busy_ns, gwi_now_ns(), memory_order_relaxed);
    set_dozes(agent, 0);
    agent->looks_now = 1;
}

/* Changes and clocks ring no bell, so look again while there may be any. */
static void sleep_a_while(gwi_agent *agent, gwi_waiter *waiter)
{
    consider_dozing(agent, waiter);
    int64_t watches = gwi_agent_is_dozing(agent)
                          ? 0
                          : atomic_load_explicit(&agent->watches, memory_order_relaxed);
    int asleep = waiter->armed;

    if (watches > 0) {
        /* For changes and clocks, about which nothing is done before the next round.  Messages
         * ring, so there is no hurry. */
        int64_t rest = atomic_load_explicit(&agent->next_round_ns, memory_order_relaxed) -
                       gwi_now_ns();
        int64_t least = watches < LEAST_NAP_NS ? watches : LEAST_NAP_NS;
        waiter->polls = 1;
        waiter->least_ns = least > rest ? least : rest;
        watches = watches > waiter->least_ns ? watches : waiter->least_ns;
    }
    waiter->longest_ns = watches;
    int around = gwi_waiter_pause(waiter);
    if (!waiter->armed && gwi_agent_is_dozing(agent))
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
    if (gwi_agent_is_dozing(agent) || agent->looks_now)
        gwi_node_look_now(agent->node);
    agent->looks_now = 0;
    int busy = gwi_agent_take_turn(agent);
    if (gwi_agent_is_dozing(agent))
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
    local.need = gwi_agent_need_memory;
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
    gwi_agent_drop_syncs(agent);
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
