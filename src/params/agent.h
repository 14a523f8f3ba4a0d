/* agent.h - the thread that serves a process's share of its node's keys.
 *
 * The keys of a node are shared out over its processes in channels; the agent of a channel
 * runs a state machine (node.h) for these keys and talks to the agents of the same channel
 * on the other nodes.  Workers reach it through trays (tray.h), also from other processes
 * of the node.  It never runs Python, and sleeps when there is nothing to do.
 *
 * An agent that fails says why to the workers of its node, and to the agents of its channel on the
 * other nodes (farewell.h), which fail by that: so whoever waits hears which rank failed, and why.
 *
 * If a process dies here: its channel stands still; whoever waits for it, on this node or
 * another, hears from the fabric that it died.                                        */
#ifndef GWI_PARAMS_AGENT_H
#define GWI_PARAMS_AGENT_H

#include "params/params.h"

/* Start the agent of this process; does nothing for one node, or if this process has no
 * channel. */
int gwi_agent_start(gw_params *params, gwi_technique technique);

/* Ask it to end, and wait until it has: what it counted stays as it is.  Then free it.  NULL is
 * fine. */
void gwi_agent_join(gwi_agent *agent);
void gwi_agent_free(gwi_agent *agent);

/* 0, or the error that ended an agent of this node: its own, or one elsewhere of which it heard. */
int gwi_agent_check(const gw_params *params);

/* The process whose agent serves this channel of the node. */
static inline int gwi_agent_rank(const gw_params *params, int channel)
{
    return params->ranks[channel];
}

/* What it counts. */
typedef struct gwi_agent_figures {
    gwi_node_stats node;
    int64_t since_ns; /* when it began to */
    int64_t staleness_ns, intent_ns, clock_ns;
} gwi_agent_figures;

void gwi_agent_count(gwi_agent *agent, gwi_agent_figures *ret_figures);
void gwi_agent_count_anew(gwi_agent *agent);

/* What an order of this kind does to vectors. */
static inline gwi_access gwi_access_of(unsigned kind)
{
    return kind == GWI_ORDER_PULL   ? GWI_PULL
           : kind == GWI_ORDER_PUSH ? GWI_PUSH
                                    : GWI_ASSIGN_VALUES;
}

/* For workers of the agent's process.  What can fail returns what gwi_agent_check() does. */

/* Begin an operation: as gwi_node_order().  `stays`: and wait a while for its end. */
int gwi_agent_access(gwi_agent *agent, gwi_access access, const gwi_part *parts, size_t n,
                     gwi_lent lent, _Atomic uint32_t *done, int stays);

/* The same key by key.  From gwi_agent_begin(), if it does not fail, to gwi_agent_end() the caller
 * has the agent's lock: nobody is served, and no key comes.  So it must not take long, and must
 * wait for latches as the agent does, which runs no Python: by gwi_agent_stuck(), a gwi_stuck with
 * the agent. */
int gwi_agent_begin(gwi_agent *agent, gwi_access access, size_t n, gwi_lent lent,
                    _Atomic uint32_t *done);
void gwi_agent_fetch(gwi_agent *agent, int64_t key); /* some keys before it is asked for */
void gwi_agent_ask(gwi_agent *agent, gwi_part part); /* if it is not here */
int gwi_agent_end(gwi_agent *agent, _Atomic uint32_t *done, int stays);
int gwi_agent_stuck(void *agent, int64_t key);

/* Take an order without vectors. */
int gwi_agent_order(gwi_agent *agent, int seat, gwi_order *order);

/* The same for an order that need not be acted on at once, if nobody else is at it.  Returns 1, or
 * 0: it is to be dropped. */
int gwi_agent_note(gwi_agent *agent, int seat, gwi_order *order);

/* The memory of an operation is no longer lent; `for_good`: neither is `done`. */
void gwi_agent_forget(gwi_agent *agent, _Atomic uint32_t *done, int for_good);

/* Do its work for a while, until `is_over` says that it is enough.  Returns whether it did. */
int gwi_agent_attend(gwi_agent *agent, int (*is_over)(void *ctx), void *ctx);

/* As long as keys that were wanted are on their way to this node, and those of the caller have not
 * come, do its work for a moment. */
int gwi_agent_await_keys(gwi_agent *agent, int (*have_come)(void *ctx), void *ctx);

#endif
