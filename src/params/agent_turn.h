/* agent_turn.h - what an agent has, and a turn of its work: orders in, a step of the state machine,
 * news out.
 *
 * Turns are taken by the agent's thread (agent.c) and by workers of its process that hand it
 * something or wait (agent_attend.c), whoever has the lock.                              */
#ifndef GWI_PARAMS_AGENT_TURN_H
#define GWI_PARAMS_AGENT_TURN_H

#include "base/clock.h"
#include "base/thread.h"
#include "params/agent.h"
#include "params/farewell.h"
#include "params/turns.h"

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
    struct gwi_sync_order *syncs;
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

/* Whatever there is to do now, with the lock.  Returns 1 if there was anything, 0, or an error, by
 * which the agent has failed. */
int gwi_agent_take_turn(gwi_agent *agent);

/* With the lock, an order that was not dropped into the agent's slot: what lies there comes first.
 * An error is one by which the agent has failed. */
int gwi_agent_take_order(gwi_agent *agent, int seat, gwi_order *order);

/* With the lock, and once: it ends by this error, of which the last sentence of this thread says
 * why.  Everybody on the node is let know; those elsewhere hear it from its thread, which looks
 * within 100 ms. */
void gwi_agent_fail(gwi_agent *agent, int err);

/* With the lock, after a turn: from when on it may doze. */
void gwi_agent_note_doze(gwi_agent *agent);

/* A gwi_local's `need` with the agent. */
int gwi_agent_need_memory(void *agent, void *at, size_t n_bytes);

void gwi_agent_drop_syncs(gwi_agent *agent); /* that have not ended */

static inline gwi_slot *gwi_agent_slot(const gwi_agent *agent)
{
    return &agent->params->slots[agent->channel];
}

static inline int gwi_agent_is_dozing(const gwi_agent *agent)
{
    return atomic_load_explicit(&agent->dozes, memory_order_seq_cst);
}

static inline int gwi_agent_may_doze(const gwi_agent *agent)
{
    return atomic_load_explicit(&agent->watches, memory_order_relaxed) > 0 &&
           gwi_now_ns() >= atomic_load_explicit(&agent->dozes_from_ns, memory_order_relaxed);
}

#endif
