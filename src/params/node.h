/* node.h - the parameter protocol: one node among others, as a state machine.
 *
 * Operations of workers, messages and the time go in; messages, and operations that are
 * done, come out.  It starts no thread, reads no clock and draws no random number.
 * docs/protocol.md tells how it works and why it is right.
 *
 * Owning   Arrays of an operation are lent until it is done.
 * Failing  Below zero is a gw_err; then the node is of no use any more.  Arguments are the
 *          caller's responsibility: keys are in range.
 * Threads  One at a time.                                                            */
#ifndef GWI_PARAMS_NODE_H
#define GWI_PARAMS_NODE_H

#include "fabric/fabric.h"
#include "params/local.h"
#include "params/note.h"

#include <stdio.h>

typedef struct gwi_node gwi_node;

/* Which ways an intent may be met; all but the first are for study. */
#define GWI_TECHNIQUES(X)         \
    X(ALL, "all")                 \
    X(REPLICATION, "replication") \
    X(RELOCATION, "relocation")   \
    X(STATIC, "static")
#define GWI_TECHNIQUE(id, name) GWI_TECHNIQUE_##id,
typedef enum gwi_technique { GWI_TECHNIQUES(GWI_TECHNIQUE) GWI_N_TECHNIQUES } gwi_technique;
#undef GWI_TECHNIQUE

/* How many clocks ahead to look of a worker whose clock is `clock`. */
typedef int64_t gwi_node_ahead(void *ctx, int worker, int64_t clock);

typedef struct gwi_node_options {
    const gwi_geometry *geometry; /* borrowed */
    int node, nodes;
    int workers; /* of this node */
    int channel; /* of `local`; 0 otherwise */
    gwi_technique technique;
    int64_t round_ns;       /* between rounds; 0: 100 us */
    int cache_keys;         /* places in the location cache; 0: 65,536 */
    gwi_node_ahead *ahead;  /* for study, called in every round; NULL: timing.h */
    void *ahead_ctx;        /* borrowed */
    const gwi_local *local; /* a view of the node's memory, copied; NULL: it makes its own */
    int lane;               /* of the fabric; 0: GWI_LANE_PARAMS */
    uint64_t opening;       /* the same number on all nodes, and another one each time */
    const int *ranks;       /* in the fabric, by node, and the reverse; borrowed.  NULL: the same */
    const int *nodes_of;
    FILE *trace; /* borrowed; a line for every note that comes in; NULL: none */
} gwi_node_options;

int gwi_node_new(const gwi_node_options *options, gwi_node **ret_node);
void gwi_node_free(gwi_node *node); /* NULL is fine */

/* Before it is freed, or when it has failed: take back what is half sent. */
void gwi_node_abandon(gwi_node *node, gwi_fabric *fabric);

/* operations of a worker */

typedef enum gwi_access { GWI_PULL, GWI_PUSH, GWI_ASSIGN_VALUES } gwi_access;

/* Start one, on keys on which the worker has none under way; the same key twice is fine, in the
 * order of the keys.  `ret_seq` is -1 if it was done at once, else what to ask gwi_node_is_done().
 */
int gwi_node_access(gwi_node *node, int worker, gwi_access access, const int64_t *keys, size_t n,
                    void *values, int64_t *ret_seq);
int gwi_node_localize(gwi_node *node, int worker, const int64_t *keys, size_t n, int64_t *ret_seq);
int gwi_node_is_done(const gwi_node *node, int worker, int64_t seq);

/* The same for an agent, which has it from a worker that tried in place: whatever is done is
 * told by setting `done` to 1.  A worker has at most one operation on a key under way. */

/* One key of an operation, and where its vector is or goes. */
typedef struct gwi_part {
    int64_t key;
    unsigned char *values;
} gwi_part;

/* The memory in which the vectors of an operation lie. */
typedef struct gwi_lent {
    unsigned char *values;
    size_t n_bytes;
} gwi_lent;

int gwi_node_order(gwi_node *node, gwi_access access, const gwi_part *parts, size_t n,
                   gwi_lent lent, _Atomic uint32_t *done);

#define GWI_ORDER_AHEAD 16 /* keys ahead of which something is fetched */

/* The same for who finds out key by key what is not here: begin, add each of them, end; nothing
 * else is done with the node meanwhile.  What a key needs can be fetched some keys before. */
int gwi_node_begin_order(gwi_node *node, gwi_access access, size_t n, gwi_lent lent,
                         _Atomic uint32_t *done);
void gwi_node_fetch_for_order(gwi_node *node, int64_t key);
void gwi_node_add_to_order(gwi_node *node, gwi_part part);
void gwi_node_add_all_to_order(gwi_node *node, const gwi_part *parts, size_t n);
int gwi_node_end_order(gwi_node *node);
int gwi_node_order_localize(gwi_node *node, const int64_t *keys, size_t n, _Atomic uint32_t *done);

/* The memory that was lent to the operation with this `done` is no longer; its end is told by
 * `done_instead`. */
void gwi_node_forget(gwi_node *node, const _Atomic uint32_t *done, _Atomic uint32_t *done_instead);

/* How many were told so far, and what the worker says of itself elsewhere. */
uint64_t gwi_node_finished(const gwi_node *node);
void gwi_node_see_worker(gwi_node *node, int worker, int64_t clock, uint64_t barriers);
uint64_t gwi_node_released(const gwi_node *node);

/* The worker will use the keys in clocks [start, end). */
int gwi_node_intent(gwi_node *node, int worker, const int64_t *keys, size_t n, int64_t start,
                    int64_t end);
void gwi_node_advance_clock(gwi_node *node, int worker);
int64_t gwi_node_clock(const gwi_node *node, int worker);

/* It is so late, as the next step will say, too: for what is begun before it. */
void gwi_node_see_time(gwi_node *node, int64_t now_ns);

/* Start to wait, and look whether it is over.  Acts on intents and tells: so it must know the time.
 */
int gwi_node_begin_sync(gwi_node *node, int worker);
int gwi_node_is_synced(gwi_node *node, int worker);
int gwi_node_arrive(gwi_node *node, int worker);
int gwi_node_is_released(const gwi_node *node, int worker);

/* The worker does nothing any more: its intents end, barriers do not wait for it. */
int gwi_node_finish(gwi_node *node, int worker);

int gwi_node_is_local(const gwi_node *node, int64_t key);

/* the node */

/* Take in what has come, do what is due, send what there is.  Returns 1 if anything
 * happened, else 0. */
int gwi_node_step(gwi_node *node, gwi_fabric *fabric, int64_t now_ns);

/* Whether what failed is another node: it says so itself, to all.  The sentence is its, too. */
int gwi_node_was_told(const gwi_node *node);

/* Whether the last step took in a message at its end, so that more may be there. */
int gwi_node_may_hear_more(const gwi_node *node);

/* Make no round before that, and do not act on intents before the other, unless something cannot
 * wait. */
void gwi_node_rest(gwi_node *node, int64_t until_ns, int64_t act_until_ns);

/* How often to look, at least, because workers' clocks and changes may give it something to do, of
 * which no message tells; 0: there is no need. */
int64_t gwi_node_watches(const gwi_node *node);

/* Whether keys that workers want, or wanted a moment ago, are on their way here. */
int gwi_node_expects(const gwi_node *node);

/* When it has something to do even if no message comes. */
int64_t gwi_node_next_ns(const gwi_node *node);

/* After how long a time without anything to do there is no need to look either, if from then on
 * changes and clocks are told of, too; INT64_MAX: there is, for time alone gives it something to
 * do.
 */
int64_t gwi_node_dozes_after(const gwi_node *node);

/* Do in the next step whatever clocks and changes so far ask for. */
void gwi_node_look_now(gwi_node *node);

/* The time up to the next step says nothing of how often it acts on intents, nor of how long
 * changes wait for a round. */
void gwi_node_learn_anew(gwi_node *node);

/* Whether nothing is under way here: no operation, nothing to send, nothing to tell. */
int gwi_node_is_idle(const gwi_node *node);

/* What it counts. */
#define GWI_NODE_STATS(X)                            \
    X(accesses, "keys accessed by workers")          \
    X(local, "of these, in place")                   \
    X(messages, "messages sent")                     \
    X(received, "messages received")                 \
    X(bytes, "bytes sent")                           \
    X(value_bytes, "of these, vectors")              \
    X(hops, "times that a request was passed on")    \
    X(requests, "requests that arrived at an owner") \
    X(moves, "keys that came here to stay")          \
    X(copied, "replicas that began here")            \
    X(dropped, "replicas that ended here")           \
    X(grants, "replicas given to other nodes")       \
    X(tells, "changes of replicas sent to owners")   \
    X(refreshes, "news sent to replicas")            \
    X(rounds, "rounds")                              \
    X(round_keys, "keys looked at in rounds")
typedef struct gwi_node_stats {
#define GWI_NODE_STAT(name, help) uint64_t name;
    GWI_NODE_STATS(GWI_NODE_STAT)
#undef GWI_NODE_STAT
    uint64_t replicas; /* here now */
    uint64_t owned;    /* the same of keys */
    uint64_t items;    /* keys with which something is going on */
    /* sent, by kind: notes and their bytes */
    uint64_t notes[GWI_N_NOTES], note_bytes[GWI_N_NOTES];
} gwi_node_stats;

const gwi_node_stats *gwi_node_count(gwi_node *node);
void gwi_node_count_anew(gwi_node *node);

/* What it has learned of how long things take. */
typedef struct gwi_node_times {
    int64_t staleness_ns; /* until a change is seen on other nodes, on average; 0: not known */
    int64_t intent_ns;    /* until a key that is wanted is here, but for few */
    int64_t clock_ns;     /* of the fastest worker; 0: not known */
} gwi_node_times;

gwi_node_times gwi_node_time(const gwi_node *node);

/* What it takes of memory, in bytes.  Memory that was never written takes none. */
#define GWI_NODE_MEMORY(X)                                         \
    X(words, "what is known of each key, and which have changed")  \
    X(rows, "vectors: owned, and pairs of replicas")               \
    X(directory, "the owners of keys whose home is here")          \
    X(cache, "where keys were seen")                               \
    X(items, "what is remembered of keys while something goes on") \
    X(post, "messages that are collected, sent or received")
typedef struct gwi_node_memory {
#define GWI_NODE_BYTES(name, help) size_t name;
    GWI_NODE_MEMORY(GWI_NODE_BYTES)
#undef GWI_NODE_BYTES
} gwi_node_memory;

gwi_node_memory gwi_node_measure(gwi_node *node);

/* for tests: what a node has, and what the home of a key believes */
gwi_local *gwi_node_local(gwi_node *node);
int gwi_node_owner(const gwi_node *node, int64_t key); /* the key's home only */
bool gwi_node_valid(const gwi_node *node);

#endif
