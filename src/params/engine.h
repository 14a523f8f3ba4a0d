/* engine.h - what the parts of a node share.
 *
 *   node.c     the node as a whole: intents, steps
 *   items.c    what is remembered of keys
 *   access.c   workers' operations on keys that are elsewhere
 *   answer.c   what the owner does for those of others
 *   owner.c    what else the owner of a key does, and its home
 *   holder.c   what a node does for its replicas, and to get keys
 *   rounds.c   telling owners and refreshing replicas
 *   meeting.c  wait_sync and barriers
 *   post.c     notes out and in                                                      */
#ifndef GWI_PARAMS_ENGINE_H
#define GWI_PARAMS_ENGINE_H

#include "base/clock.h"
#include "base/hash.h"
#include "params/deadlines.h"
#include "params/intents.h"
#include "params/node.h"
#include "params/note.h"
#include "params/timing.h"

/* Errors that a test build can make on purpose, to see whether they are found. */
#ifdef GWI_MUTANTS
extern int gwi_mutant;
#define GWI_MUTANT(n) (gwi_mutant == (n))
#else
#define GWI_MUTANT(n) 0
#endif

#define GWI_FAN 8                           /* children of a node in the tree of nodes */
#define GWI_MOST_PATIENCE_NS (100 * GWI_MS) /* of a replica that lacks news */

/* The number that an ASK and its ANSWER bear: which operation, and where in its values. */
#define GWI_OFFSET_BITS 40

/* Links that are kept when there is nothing for them: who asks for one key after the other would
 * make one for each. */
#define GWI_KEPT_LINKS 16

#define GWI_ASKED_BITS 14 /* so of 1,024 keys 3 % are taken for ones that were asked for before */

/* An operation that is not done at once, and how many of its keys are left. */
typedef struct gwi_pending {
    struct gwi_pending *next; /* of the same worker; or of those that are free */
    int64_t seq;
    size_t left;
    uint32_t id;           /* in node->pendings: answers bear it */
    uint32_t number;       /* of all such; 0: it has one key only */
    unsigned char *values; /* lent; NULL: what comes is not wanted any more */
    size_t values_bytes;
    _Atomic uint32_t *done; /* set to 1 when none are left; NULL: somebody asks */
} gwi_pending;

/* How many keys, and bytes of vectors, go into one ASK and into one ANSWER; the last key may lead
 * beyond.  The first ASK of an operation is short, and each may be twice as long as the one before,
 * so that the other side begins soon. */
#ifdef GWI_MUTANTS
#define GWI_FIRST_KEYS 2 /* for simulations, which ask for few, and short ones */
#define GWI_ASK_KEYS 4
#define GWI_ASK_BYTES 32
#define GWI_RUN_BYTES 24
#else
#define GWI_FIRST_KEYS 32
#define GWI_ASK_KEYS 128 /* doubled until it is that */
#define GWI_ASK_BYTES 16384
#define GWI_RUN_BYTES 16384
#endif

/* Questions of an operation that go into one note: to one node, about vectors that lie behind each
 * other where they are or go. */
typedef struct gwi_questions {
    gwi_access access;
    gwi_pending *pending;
    int to;
    uint8_t flags;     /* of a note that the home sends */
    size_t n, n_bytes; /* keys, and of their vectors */
    size_t most;       /* keys that go into this one */
    const unsigned char *values;
    int64_t keys[GWI_ASK_KEYS]; /* as they are sent; not set beyond n */
} gwi_questions;

/* One key of an operation, which waits. */
typedef struct gwi_op_in_line {
    struct gwi_op_in_line *next;
    gwi_access access;
    void *values; /* lent: to read into, or to write */
    gwi_pending *pending;
} gwi_op_in_line;

/* A node that has a replica of a key, or wants one.  A tombstone stands for changes that
 * the holder has already counted itself and that are still on their way to the owner. */
typedef struct gwi_holder {
    int node;
    uint32_t term;   /* which of its replicas */
    uint32_t seq;    /* the last TELL that arrived */
    uint8_t granted; /* it has a replica */
    uint8_t tombstone;
    uint8_t stale;    /* it lacks something that we know */
    uint8_t ack;      /* it waits to hear that its TELL arrived */
    uint8_t by_us;    /* its last vector came from us */
    int64_t heard_ns; /* when it was sent something last */
    int64_t told_ns;  /* when it told us something last; 0: never */
    int64_t often_ns; /* how long before that the time before was */
} gwi_holder;

/* A note that waits for the key. */
typedef struct gwi_parked {
    struct gwi_parked *next;
    gwi_note note;
    unsigned char payload[];
} gwi_parked;

/* Changes of a replica on their way to the owner. */
typedef struct gwi_told {
    void *values; /* owned; NULL: there are none */
    gwi_change change;
    uint32_t term, seq;
} gwi_told;

/* What a node remembers of a key while something is going on with it. */
typedef struct gwi_item {
    _Alignas(GWI_LINE) int64_t key;
    /* of a replica: the news that it has, and what was told last */
    uint64_t stamp; /* of an owned key: the last one given out */
    gwi_told told;
    uint32_t since_us; /* when that was; or when the key was asked for */
    int32_t owner;     /* who sent its last news */
    uint32_t seq;
    uint32_t term; /* of the replica, or of asking for the key, which goes on: */
    uint8_t asked;
    uint8_t tell_again; /* marked while something was on its way */
    uint8_t unwanted;   /* there was a time when nobody wanted it any more */
    /* of an owned key */
    uint8_t moving; /* the home was asked to let somebody own it */
    uint8_t due;    /* in the list of those whose holders must hear something */
    uint8_t unseen; /* it is marked and will stay so: what is changed now is not known */
    int n_holders, holders_capacity;
    gwi_holder *holders; /* `few`, or owned */
    gwi_holder few[1];
    /* of a replica that has ended, until the owner answers; and workers' operations, which
     * must not overtake it, in line */
    gwi_told last_word;
    gwi_op_in_line *first;
    gwi_pending *awaits; /* an operation that waits for the key to come here */
    gwi_parked *parked;  /* for the key's next stay here */
    int64_t later_ns;    /* of an owned key: its deadline in `later`; 0: none */
    uint32_t tenure;     /* of an owned key: how often it has changed owners */
    uint32_t place;      /* among all items; constant */
    /* what is rarely needed: the ends of these lists, and other operations that wait */
    gwi_op_in_line *last;
    gwi_parked *last_parked;
    struct gwi_arrival {
        struct gwi_arrival *next;
        gwi_pending *pending;
    } * arrivals;
} gwi_item;

#define GWI_ITEM_FETCH (3 * GWI_LINE) /* bytes that are needed most of the time */
_Static_assert(offsetof(gwi_item, last) <= GWI_ITEM_FETCH, "what is needed comes in three lines");

/* What it remembers of every key. */
typedef struct gwi_memo {
    uint32_t item_1; /* the place of its item plus 1; 0: there is none */
    uint32_t wants;  /* how many intents of our workers for it are in force */
} gwi_memo;

typedef struct gwi_sync {
    int active;
    uint64_t token;
    int answers; /* still to come */
    struct gwi_sync_point {
        int64_t key;
        uint32_t term, seq;
        int what; /* of enum in meeting.c */
    } * points;
    size_t n_points, capacity;
} gwi_sync;

typedef struct gwi_node_worker {
    int64_t clock;
    int64_t next_seq;
    gwi_pending *pending;
    gwi_intents intents;
    gwi_timing timing;
    gwi_sync sync;
    uint64_t barriers; /* arrived at */
    int finished;
} gwi_node_worker;

/* What there is for another node, and what comes from it.  It exists while there is anything, and
 * a little longer: so what a node remembers and looks through is in proportion to those it talks to
 * just now. */
typedef struct gwi_link {
    int peer;
    int listed;            /* among those with something to send */
    int busy;              /* listed, or something is coming */
    int rests_1;           /* its place among those that rest plus 1; 0: none */
    struct gwi_link *next; /* there */
    gwi_frame collecting, sending;
    int n_notes;      /* in `collecting`; of questions, keys */
    int in_place;     /* `collecting` lies in the fabric's memory */
    gwi_outgoing out; /* of `sending` */
    int under_way;
    gwi_frame coming; /* the message that comes in, in pieces */
} gwi_link;

/* Of a key whose home is here. */
typedef struct gwi_place_of_key {
    int32_t owner;
    uint32_t tenure;
} gwi_place_of_key;

typedef struct gwi_keys_noted {
    int64_t *key; /* owned */
    size_t n, capacity;
} gwi_keys_noted;

/* Memory of one size, to be used again: what came last first. */
typedef struct gwi_kept {
    void **blocks; /* owned, as they are */
    size_t n, capacity;
} gwi_kept;

typedef struct gwi_place_seen {
    int64_t key_1; /* the key plus 1; 0: empty */
    int32_t owner;
} gwi_place_seen;

struct gwi_node {
    int id, nodes, workers_n;
    int channel;
    gwi_technique technique;
    int64_t round_ns;
    gwi_node_ahead *ahead;
    void *ahead_ctx;
    const gwi_geometry *geometry;
    void *memory; /* mapped: what nobody has touched is not there */
    size_t memory_bytes;
    gwi_local local;
    gwi_memo *memos;       /* by index in the channel */
    gwi_item **items;      /* [n_item_places]; NULL: nothing is there now */
    uint32_t *free_places; /* [n_free_places], where an item may be made */
    uint32_t n_item_places, n_free_places;
    size_t n_items;      /* that there are now */
    gwi_kept kept_items; /* each has its place */
    gwi_kept *kept_rows; /* by length class */
    size_t kept_rows_bytes;
    size_t n_last_words;    /* items that have one */
    gwi_pending **pendings; /* [n_pendings], by id; each is used again */
    uint32_t n_pendings;
    gwi_pending *free_pendings;
    uint32_t n_operations;
    gwi_questions order; /* of the order that is begun */
    /* by hash of a key, the last operation that asked for one */
    uint32_t asked_by[1 << GWI_ASKED_BITS];
    gwi_place_of_key *directory; /* by place, of those at home here */
    gwi_place_seen *cache;       /* of keys that are not at home */
    size_t cache_n;              /* a power of two */
    gwi_node_worker *workers;
    gwi_hash links;                    /* node -> gwi_link * */
    size_t n_busy_links;               /* of them */
    gwi_link *resting[GWI_KEPT_LINKS]; /* others of them; NULL: none */
    size_t n_rests;                    /* so far */
    gwi_link *last_link;               /* that was looked up; NULL: none */
    gwi_link *first_to_send, *last_to_send;
    int heard;          /* pieces that were there when it looked last, one of a peer at most */
    int hears_itself;   /* reads what it said to itself */
    gwi_frame to_self;  /* what we say to ourselves */
    gwi_frame spare[4]; /* empty, to be filled again */
    gwi_fabric *fabric; /* of the last step; NULL: none yet */
    /* keys whose holders must hear something, in the next round; those that are seen to just now */
    gwi_keys_noted due, marked;
    gwi_deadlines later;  /* of keys whose holders must hear something: when their patience ends */
    gwi_keys_noted again; /* replicas that have more to tell */
    int64_t patience_ns;
    int64_t later_rests_ns; /* `later` is not looked at before */
    size_t told_bytes;      /* of changes that we have not heard to have arrived */
    int64_t next_part_ns;   /* when a round goes on, if it waits for others */
    int heard_since_part;   /* messages since it went on last */
    uint32_t terms;         /* given out */
    uint64_t tokens;
    int64_t now_ns, next_round_ns;
    int64_t round_at;        /* where the next part of a round begins; 0: a new one */
    int64_t round_began_ns;  /* the last one; 0: that says nothing of the next one */
    int64_t before_round_ns; /* from the beginning of the one before */
    uint64_t found_before;   /* keys in rounds until then */
    double between_ns;   /* beginnings of rounds that find something, on average; 0: not known */
    int64_t next_act_ns; /* on intents */
    int64_t last_act_ns; /* if intents were to come after it; else 0 */
    double gap_ns;       /* between acting, at most but for few */
    size_t n_replicas;   /* here now */
    size_t n_asked;      /* keys that we want and have asked for */
    double told_ns;      /* until what is told has arrived, on average; 0: not known */
    double stale_ns;     /* until others see a change, on average; 0: not known */
    double stale_sum_ns; /* the same of those since the last round, */
    uint64_t n_stale;    /* which are so many */
    double act_ns;       /* until such a key is here, at most but for few */
    /* barriers */
    uint64_t arrived_for, released;    /* generations */
    uint64_t arrived_below[GWI_FAN];   /* by child in the tree of meeting.c */
    unsigned char *scratch, *scratch2; /* a vector each */
    FILE *trace;
    int lane;
    uint64_t opening;    /* of these parameters; what speaks of others is late */
    const int *ranks;    /* in the fabric, by node; NULL: they are the same */
    const int *nodes_of; /* the reverse */
    uint64_t n_finished; /* operations whose `done` was set */
    int err;             /* the first failure */
    int was_told;        /* that is of another node, which said so */
    gwi_node_stats stats;
    uint64_t owned_before; /* what `stats` counts */
};

static inline int gwi_home(const gwi_node *node, int64_t key)
{
    return gwi_spread_home(&node->local.spread, key);
}

static inline gwi_place_of_key *gwi_directory(const gwi_node *node, int64_t key)
{
    return &node->directory[gwi_spread_place(&node->local.spread, key)];
}

/* items.c */
GWI_INLINE gwi_memo *gwi_memo_of(const gwi_node *node, int64_t key)
{
    return &node->memos[gwi_spread_index(&node->local.spread, key)];
}

GWI_INLINE void gwi_fetch_memo(const gwi_node *node, int64_t key)
{
    __builtin_prefetch(gwi_memo_of(node, key), 1, 2);
}

/* NULL: there is none. */
GWI_INLINE gwi_item *gwi_item_find(const gwi_node *node, int64_t key)
{
    uint32_t place_1 = gwi_memo_of(node, key)->item_1;

    return place_1 == 0 ? NULL : node->items[place_1 - 1];
}

gwi_item *gwi_item_get(gwi_node *node, int64_t key);  /* made if need be; NULL: no memory */
void gwi_item_forget(gwi_node *node, gwi_item *item); /* if nothing is going on any more */

/* Find an item, and get it on its way from memory: of a replica the first line is what is needed
 * most of the time, of an owned key two. */
GWI_INLINE gwi_item *gwi_item_fetch(const gwi_node *node, int64_t key)
{
    gwi_item *item = gwi_item_find(node, key);
    unsigned state = gwi_word_state(
        atomic_load_explicit(&node->local.store.words[key], memory_order_relaxed));
    size_t n_bytes = state == GWI_REPLICA ? GWI_LINE
                     : state == GWI_OWNED ? 2 * GWI_LINE
                                          : GWI_ITEM_FETCH;

    for (size_t at = 0; item != NULL && at < n_bytes; at += GWI_LINE)
        __builtin_prefetch((unsigned char *)item + at, 0, 2);
    return item;
}

/* From `*at` on, in any order, which is 0 at first; NULL: there are no more. */
gwi_item *gwi_item_next(const gwi_node *node, uint32_t *at);
void gwi_items_fini(gwi_node *node);
bool gwi_items_valid(const gwi_node *node);

size_t gwi_row_bytes(const gwi_node *node, int64_t key);
void *gwi_row_take(gwi_node *node, int64_t key); /* memory for a vector; NULL: there is none */
void gwi_row_give_back(gwi_node *node, int64_t key, void *row); /* NULL is fine */
void gwi_rows_fini(gwi_node *node);

/* Whether nothing that we said to ourselves is still to be heard, so that more need not be said. */
static inline int gwi_has_heard_itself(const gwi_node *node)
{
    return node->to_self.n_bytes == 0 && !node->hears_itself;
}

/* post.c */
void gwi_send(gwi_node *node, int to, gwi_note *note, const void *part, size_t part_bytes,
              const void *part2, size_t part2_bytes);

/* The same, with a payload that is yet to be written to where this says; NULL: the node has failed.
 */
void *gwi_send_room(gwi_node *node, int to, gwi_note *note, size_t n_bytes);

/* Of the room that this note was just given only so much is needed: it is written again. */
void gwi_send_cut(gwi_node *node, int to, gwi_note *note, void *room, size_t n_bytes);

/* What is collected for that node leaves now, if it is much or `now` says so: it is busy while we
 * go on. */
void gwi_post_hurry(gwi_node *node, int to, int now);
int gwi_post_step(gwi_node *node, gwi_fabric *fabric);
int gwi_post_is_idle(const gwi_node *node);
int gwi_post_is_full(const gwi_node *node, int peer); /* what is to be sent there has to wait */
size_t gwi_post_bytes(const gwi_node *node);
void gwi_post_give_up(gwi_node *node, gwi_fabric *fabric); /* what is half sent */
void gwi_post_fini(gwi_node *node);

/* access.c */
void gwi_line_move(gwi_node *node, gwi_item *item); /* do or ask what waited */
gwi_pending *gwi_pending_of(const gwi_node *node, uint64_t number, size_t *ret_offset);
void gwi_take_answer(gwi_node *node, const gwi_note *note, const unsigned char *payload);
void gwi_arrived_here(gwi_node *node, gwi_item *item);

/* node.c */
void gwi_act_due(gwi_node *node, int worker); /* on intents that begin or end by now */
void gwi_trace_note(const gwi_node *node, int from, const gwi_note *note);
void gwi_handle(gwi_node *node, int from, gwi_note *note, const unsigned char *payload);
int gwi_fail_node(gwi_node *node, int err);

/* answer.c */
void gwi_take_ask(gwi_node *node, const gwi_note *note, const unsigned char *payload);

/* owner.c */
/* A question that follows another about its key: that one may have come here before the key did,
 * and be on its way over the home; so this one must go there, too.  In that order both go to the
 * home, and from there to the owner. */
GWI_INLINE int gwi_takes_the_long_way(const gwi_node *node, const gwi_note *note, int64_t key,
                                      int follows)
{
    return follows && !(note->flags & GWI_NOTE_BY_HOME) && gwi_home(node, key) != node->id;
}

/* Serve a note for the owner, or pass it on. */
void gwi_route(gwi_node *node, gwi_note *note, const unsigned char *payload);
/* Where to send a note of ours about the key: to the owner, or where it may be known.  Adds to the
 * note's flags if the home says so. */
int gwi_way_to(const gwi_node *node, int64_t key, uint8_t *flags);
void gwi_request(gwi_node *node, gwi_note *note, const void *payload, size_t n_bytes);
void gwi_request_for(gwi_node *node, const gwi_item *replica, gwi_note *note, const void *payload,
                     size_t n_bytes);
void gwi_settle(gwi_node *node, gwi_item *item);
void gwi_take_localize(gwi_node *node, const gwi_note *note);
void gwi_have_it_given(gwi_node *node, int64_t key); /* to us, whoever has it and wants it */
void gwi_take_move(gwi_node *node, const gwi_note *note);
void gwi_take_give(gwi_node *node, const gwi_note *note);
void gwi_take_transfer(gwi_node *node, const gwi_note *note, const unsigned char *payload);
void gwi_refresh_holders(gwi_node *node, gwi_item *item, int all);
int gwi_note_key(gwi_node *node, gwi_keys_noted *keys, int64_t key); /* 0: no memory */
void gwi_changed_here(gwi_node *node, gwi_item *item, int all);

/* holder.c */
/* Whether an intent for the key is in force here. */
static inline int gwi_is_wanted(const gwi_node *node, int64_t key)
{
    return gwi_memo_of(node, key)->wants > 0;
}

void gwi_want(gwi_node *node, int64_t key);
void gwi_unwant(gwi_node *node, int64_t key);
void gwi_reconsider(gwi_node *node, gwi_item *item); /* drop, or ask for, what should be */
void gwi_take_grant(gwi_node *node, int from, const gwi_note *note, const unsigned char *payload);
void gwi_take_refresh(gwi_node *node, int from, const gwi_note *note, const unsigned char *payload);
void gwi_take_dropped(gwi_node *node, const gwi_note *note);
void gwi_tell(gwi_node *node, gwi_item *item);
void gwi_end_asking(gwi_node *node, gwi_item *item);
void gwi_end_telling(gwi_node *node, gwi_item *item);
void gwi_told_arrived(gwi_node *node, gwi_item *item);

/* rounds.c */
/* A whole round, or the next part of one: between parts the node takes in what has come.  `all`:
 * nobody's patience is asked for. */
void gwi_round(gwi_node *node, int all);
void gwi_round_part(gwi_node *node);
int64_t gwi_round_next_ns(const gwi_node *node); /* when that may be */

/* A change waits for a round: half of the time from one to the next, on average. */
static inline double gwi_round_awaited_ns(const gwi_node *node)
{
    return node->between_ns / 2;
}

/* Somebody sees one that is so old. */
static inline void gwi_note_stale(gwi_node *node, double age_ns)
{
    node->stale_sum_ns += age_ns;
    node->n_stale++;
}

double gwi_stale_ns(const gwi_node *node); /* with those since the last round */

/* meeting.c */
void gwi_meeting_step(gwi_node *node);
int gwi_meeting_is_idle(const gwi_node *node);
void gwi_take_sync(gwi_node *node, int from, const gwi_note *note);
void gwi_take_synced(gwi_node *node, const gwi_note *note);
void gwi_take_arrive(gwi_node *node, int from, const gwi_note *note);
void gwi_take_release(gwi_node *node, const gwi_note *note);

/* What a note does to the vector. */
static inline gwi_change gwi_change_in(const gwi_note *note)
{
    return note->flags & GWI_NOTE_ADDS      ? GWI_ADD
           : note->flags & GWI_NOTE_ASSIGNS ? GWI_ASSIGN
                                            : GWI_NO_CHANGE;
}

/* the location cache */
void gwi_cache_note(gwi_node *node, int64_t key, int owner);
int gwi_cache_look(const gwi_node *node, int64_t key); /* the home if nothing else is known */

static inline gwi_place_seen *gwi_cache_place(const gwi_node *node, int64_t key)
{
    return &node->cache[(size_t)key & (node->cache_n - 1)];
}

/* Get what is known of the key's owner on its way from memory. */
GWI_INLINE void gwi_fetch_owner(const gwi_node *node, int64_t key)
{
    if (gwi_home(node, key) == node->id)
        __builtin_prefetch(gwi_directory(node, key), 0, 2);
    else
        __builtin_prefetch(gwi_cache_place(node, key), 0, 2);
}

#endif
