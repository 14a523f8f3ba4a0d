/* access.c - operations of workers on keys that are elsewhere: asking for vectors, and fetching
 * keys. */
#include "params/engine.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

#ifdef GWI_MUTANTS
#define TAKE_IN 1 /* for simulations, which ask for few */
#else
#define TAKE_IN 64 /* keys asked for between looks at what has come, which piles up else */
#endif

/* operations that are not done at once */

static int more_pendings(gwi_node *node)
{
    uint32_t n = node->n_pendings == 0 ? 16 : 2 * node->n_pendings;
    gwi_pending **grown = realloc(node->pendings, n * sizeof(gwi_pending *));

    if (grown == NULL)
        return 0;
    node->pendings = grown;
    for (; node->n_pendings < n; node->n_pendings++) {
        gwi_pending *p = calloc(1, sizeof *p);
        if (p == NULL)
            return node->free_pendings != NULL;
        p->id = node->n_pendings;
        p->next = node->free_pendings;
        node->free_pendings = node->pendings[p->id] = p;
    }
    return 1;
}

static gwi_pending *new_pending(gwi_node *node, gwi_lent lent, size_t n_keys)
{
    if (node->free_pendings == NULL && !more_pendings(node)) {
        gwi_fail_node(node, gwi_fail(GW_ENOMEM, "an operation"));
        return NULL;
    }
    gwi_pending *pending = node->free_pendings;
    node->free_pendings = pending->next;
    node->n_operations += 1 + (node->n_operations == UINT32_MAX); /* never 0 */
    *pending = (gwi_pending){.id = pending->id,
                             .number = n_keys == 1 ? 0 : node->n_operations,
                             .values = lent.values,
                             .values_bytes = lent.n_bytes};
    return pending;
}

static void free_pending(gwi_node *node, gwi_pending *pending)
{
    pending->left = 0;
    pending->next = node->free_pendings;
    node->free_pendings = pending;
}

/* For who asks by number whether it is done; -1: it is. */
static int64_t number_of(gwi_node *node, gwi_node_worker *worker, gwi_pending *pending)
{
    if (pending == NULL)
        return -1;
    if (pending->left == 0) {
        free_pending(node, pending);
        return -1;
    }
    pending->seq = worker->next_seq++;
    pending->next = worker->pending;
    worker->pending = pending;
    return pending->seq;
}

/* NULL: there is no such operation. */
gwi_pending *gwi_pending_of(const gwi_node *node, uint64_t number, size_t *ret_offset)
{
    uint64_t id = number >> GWI_OFFSET_BITS;

    *ret_offset = (size_t)(number & ((UINT64_C(1) << GWI_OFFSET_BITS) - 1));
    return id < node->n_pendings && node->pendings[id]->left > 0 ? node->pendings[id] : NULL;
}

/* So many keys of it are done. */
static void finish_some(gwi_node *node, gwi_pending *pending, size_t n)
{
    pending->left -= n;
    if (pending->left > 0 || pending->done == NULL)
        return;
    /* All that was read is seen by who sees this. */
    atomic_store_explicit(pending->done, 1, memory_order_seq_cst);
    free_pending(node, pending);
    node->n_finished++;
}

static void finish_one(gwi_node *node, gwi_pending *pending)
{
    finish_some(node, pending, 1);
}

static void collect_done(gwi_node *node, gwi_node_worker *worker)
{
    for (gwi_pending **link = &worker->pending; *link != NULL;) {
        gwi_pending *pending = *link;
        if (pending->left == 0) {
            *link = pending->next;
            free_pending(node, pending);
        } else {
            link = &pending->next;
        }
    }
}

int gwi_node_is_done(const gwi_node *node, int worker, int64_t seq)
{
    for (const gwi_pending *p = node->workers[worker].pending; p != NULL; p = p->next)
        if (p->seq == seq)
            return p->left == 0;
    return 1;
}

void gwi_node_forget(gwi_node *node, const _Atomic uint32_t *done, _Atomic uint32_t *done_instead)
{
    for (uint32_t i = 0; i < node->n_pendings; i++)
        if (node->pendings[i]->left > 0 && node->pendings[i]->done == done) {
            node->pendings[i]->values = NULL;
            node->pendings[i]->done = done_instead;
        }
}

/* access */

static gwi_change change_by(gwi_access access)
{
    return access == GWI_PULL ? GWI_NO_CHANGE : access == GWI_PUSH ? GWI_ADD : GWI_ASSIGN;
}

static int do_here(gwi_node *node, gwi_access access, int64_t key, void *values)
{
    int done = access == GWI_PULL ? gwi_local_pull(&node->local, key, values)
                                  : gwi_local_change(&node->local, key, change_by(access), values);

    if (gwi_likely(node->local.err == 0))
        return done;
    /* Somebody died with the latch: the operation never ends, and its worker hears why. */
    gwi_fail_node(node, node->local.err);
    return 0;
}

static uint32_t *asked_by(gwi_node *node, int64_t key)
{
    return &node->asked_by[(uint64_t)key * GWI_HASH_STEP >> (64 - GWI_ASKED_BITS)];
}

/* Whether the operation may have asked for the key before; from now on it has.  If others that
 * began later have asked in between that is not known any more, and the answer is yes: a question
 * that is taken for a second one only goes a longer way.  How long ago both began is compared, for
 * the numbers begin again some day, and whoever asked last may have done so long ago. */
static int was_asked_for(gwi_node *node, const gwi_pending *pending, int64_t key)
{
    uint32_t *last = asked_by(node, key);
    int was = node->n_operations - *last <= node->n_operations - pending->number;

    *last = was ? *last : pending->number;
    return was && !GWI_MUTANT(31);
}

static void begin_questions(gwi_questions *q, gwi_access access, gwi_pending *pending)
{
    q->access = access;
    q->pending = pending;
    q->n = q->n_bytes = 0;
    q->most = GWI_FIRST_KEYS;
}

static int is_filled(const gwi_questions *q)
{
    _Static_assert(GWI_ASK_KEYS % GWI_FIRST_KEYS == 0 &&
                       (GWI_ASK_KEYS / GWI_FIRST_KEYS & (GWI_ASK_KEYS / GWI_FIRST_KEYS - 1)) == 0,
                   "doubled again and again it is what there is room for");

    return q->n >= q->most || (q->access != GWI_PULL && q->n_bytes >= GWI_ASK_BYTES);
}

static void send_questions(gwi_node *node, gwi_questions *q)
{
    if (q->n == 0)
        return;
    size_t more = (q->n - 1) * sizeof(int64_t), n_bytes = q->access == GWI_PULL ? 0 : q->n_bytes;
    gwi_note note = {.kind = GWI_NOTE_ASK,
                     .flags = (uint8_t)(q->flags |
                                        (q->access == GWI_PULL   ? GWI_NOTE_READS
                                         : q->access == GWI_PUSH ? GWI_NOTE_ADDS
                                                                 : GWI_NOTE_ASSIGNS) |
                                        (q->keys[0] < 0 ? GWI_NOTE_FOLLOWS : 0)),
                     .node = node->id,
                     .key = q->keys[0] & ~GWI_KEY_FOLLOWS,
                     .number = (uint64_t)q->pending->id << GWI_OFFSET_BITS |
                               (uint64_t)(q->values - q->pending->values),
                     .n = (uint32_t)q->n - 1};
    unsigned char *room = gwi_send_room(node, q->to, &note, more + n_bytes);
    if (room != NULL) {
        memcpy(room, q->keys + 1, more);
        memcpy(room + more, q->values, n_bytes);
        gwi_post_hurry(node, q->to, is_filled(q));
    }
    if (is_filled(q) && q->most < GWI_ASK_KEYS)
        q->most *= 2;
    q->n = q->n_bytes = 0;
}

/* Whether another question belongs into the same note. */
static int goes_with(const gwi_questions *q, int to, uint8_t flags, const unsigned char *values)
{
    return to == q->to && flags == q->flags && values == q->values + q->n_bytes;
}

static void ask(gwi_node *node, gwi_questions *q, int64_t key, const unsigned char *values)
{
    int follows = q->pending->number > 0 && was_asked_for(node, q->pending, key);
    uint8_t flags = 0;
    int to = gwi_way_to(node, key, &flags);

    if (q->n > 0 && !goes_with(q, to, flags, values))
        send_questions(node, q);
    if (q->n == 0) {
        q->to = to;
        q->flags = flags;
        q->values = values;
    }
    q->keys[q->n++] = follows ? key | GWI_KEY_FOLLOWS : key;
    q->n_bytes += gwi_row_bytes(node, key);
    if (is_filled(q))
        send_questions(node, q);
}

static int stand_in_line(gwi_node *node, gwi_item *item, gwi_access access, void *values,
                         gwi_pending *pending)
{
    gwi_op_in_line *op = malloc(sizeof *op);

    if (op == NULL)
        return gwi_fail_node(node,
                             gwi_fail(GW_ENOMEM, "an operation on key %lld", (long long)item->key));
    *op = (gwi_op_in_line){.access = access, .values = values, .pending = pending};
    if (item->last != NULL)
        item->last->next = op;
    else
        item->first = op;
    item->last = op;
    return 0;
}

/* Begin what cannot be done here.  Nothing may overtake the last word of a replica: so workers
 * see what they wrote there. */
static void begin_one(gwi_node *node, gwi_questions *q, int64_t key, unsigned char *values)
{
    gwi_item *item = node->n_last_words == 0 || GWI_MUTANT(1) ? NULL : gwi_item_find(node, key);

    q->pending->left++;
    if (item != NULL && item->last_word.values != NULL)
        stand_in_line(node, item, q->access, values, q->pending);
    else
        ask(node, q, key, values);
}

void gwi_line_move(gwi_node *node, gwi_item *item)
{
    int here = gwi_local_state(&node->local, item->key) != GWI_ABSENT;

    while (item->first != NULL && (here || item->last_word.values == NULL)) {
        gwi_op_in_line *op = item->first;
        item->first = op->next;
        if (item->first == NULL)
            item->last = NULL;
        gwi_questions q;
        begin_questions(&q, op->access, op->pending);
        if (op->pending->values == NULL || do_here(node, op->access, item->key, op->values))
            finish_one(node, op->pending);
        else
            ask(node, &q, item->key, op->values);
        send_questions(node, &q);
        free(op);
    }
}

void gwi_take_answer(gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    size_t offset;
    gwi_pending *pending = gwi_pending_of(node, note->number, &offset);

    if (note->flags & GWI_NOTE_READS && pending->values != NULL)
        memcpy(pending->values + offset, payload, note->n_bytes);
    finish_some(node, pending, 1 + (size_t)note->n);
}

int gwi_node_access(gwi_node *node, int worker, gwi_access access, const int64_t *keys, size_t n,
                    void *values, int64_t *ret_seq)
{
    gwi_node_worker *w = &node->workers[worker];
    unsigned char *at = values;
    size_t values_bytes = 0;

    for (size_t i = 0; i < n; i++)
        values_bytes += gwi_row_bytes(node, keys[i]);
    collect_done(node, w);
    gwi_pending *pending = new_pending(node, (gwi_lent){values, values_bytes}, n);
    gwi_questions q;
    begin_questions(&q, access, pending);
    for (size_t i = 0; i < n && node->err == 0; at += gwi_row_bytes(node, keys[i++])) {
        int done = do_here(node, access, keys[i], at);
        node->stats.accesses++;
        node->stats.local += (uint64_t)done;
        if (!done)
            begin_one(node, &q, keys[i], at);
    }
    if (node->err == 0)
        send_questions(node, &q);
    *ret_seq = number_of(node, w, pending);
    return node->err;
}

/* A pending operation with one key too many, which keeps it from being done too early. */
static gwi_pending *begin_order(gwi_node *node, gwi_lent lent, size_t n_keys,
                                _Atomic uint32_t *done)
{
    gwi_pending *pending = new_pending(node, lent, n_keys);

    if (pending != NULL) {
        pending->left = 1;
        pending->done = done;
    }
    return pending;
}

int gwi_node_begin_order(gwi_node *node, gwi_access access, size_t n, gwi_lent lent,
                         _Atomic uint32_t *done)
{
    begin_questions(&node->order, access, begin_order(node, lent, n, done));
    return node->err;
}

void gwi_node_fetch_for_order(gwi_node *node, int64_t key)
{
    __builtin_prefetch(gwi_cache_place(node, key), 0, 2);
    __builtin_prefetch(asked_by(node, key), 1, 2);
}

void gwi_node_add_to_order(gwi_node *node, gwi_part part)
{
    if (node->err == 0 && (gwi_local_state(&node->local, part.key) == GWI_ABSENT ||
                           !do_here(node, node->order.access, part.key, part.values)))
        begin_one(node, &node->order, part.key, part.values);
}

void gwi_node_add_all_to_order(gwi_node *node, const gwi_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i + GWI_ORDER_AHEAD < n) {
            gwi_local_fetch_word(&node->local, parts[i + GWI_ORDER_AHEAD].key);
            gwi_node_fetch_for_order(node, parts[i + GWI_ORDER_AHEAD].key);
        }
        gwi_node_add_to_order(node, parts[i]);
    }
}

int gwi_node_end_order(gwi_node *node)
{
    if (node->err == 0)
        send_questions(node, &node->order);
    if (node->err == 0)
        finish_one(node, node->order.pending);
    return node->err;
}

int gwi_node_order(gwi_node *node, gwi_access access, const gwi_part *parts, size_t n,
                   gwi_lent lent, _Atomic uint32_t *done)
{
    gwi_node_begin_order(node, access, n, lent, done);
    gwi_node_add_all_to_order(node, parts, n);
    return gwi_node_end_order(node);
}

/* localize */

void gwi_arrived_here(gwi_node *node, gwi_item *item)
{
    if (item->awaits == NULL)
        return;
    finish_one(node, item->awaits);
    item->awaits = NULL;
    while (item->arrivals != NULL) {
        struct gwi_arrival *next = item->arrivals->next;
        finish_one(node, item->arrivals->pending);
        free(item->arrivals);
        item->arrivals = next;
    }
}

/* Several operations wait for one arrival. */
static int await_too(gwi_item *item, gwi_pending *pending)
{
    struct gwi_arrival *arrival = malloc(sizeof *arrival);

    if (arrival == NULL)
        return gwi_fail(GW_ENOMEM, "moving key %lld", (long long)item->key);
    *arrival = (struct gwi_arrival){item->arrivals, pending};
    item->arrivals = arrival;
    return 0;
}

static void await_arrival(gwi_node *node, gwi_pending *pending, int64_t key)
{
    gwi_item *item = gwi_item_get(node, key);
    int err = 0;

    if (item == NULL)
        return;
    if (item->awaits == NULL) {
        item->awaits = pending;
        gwi_have_it_given(node, key);
    } else {
        err = await_too(item, pending);
    }
    if (err < 0)
        gwi_fail_node(node, err);
    else
        pending->left++;
}

static void bring_here(gwi_node *node, gwi_pending *pending, const int64_t *keys, size_t n)
{
    for (size_t i = 0; i < n && node->err == 0; i++) {
        if (i % TAKE_IN == TAKE_IN - 1 && node->fabric != NULL)
            gwi_post_step(node, node->fabric);
        for (size_t j = i; i % GWI_ORDER_AHEAD == 0 && j < n && j < i + GWI_ORDER_AHEAD; j++) {
            gwi_local_fetch_word(&node->local, keys[j]);
            gwi_fetch_memo(node, keys[j]);
            gwi_fetch_owner(node, keys[j]);
        }
        if (gwi_local_state(&node->local, keys[i]) != GWI_OWNED)
            await_arrival(node, pending, keys[i]);
    }
}

int gwi_node_localize(gwi_node *node, int worker, const int64_t *keys, size_t n, int64_t *ret_seq)
{
    gwi_node_worker *w = &node->workers[worker];

    collect_done(node, w);
    gwi_pending *pending = new_pending(node, (gwi_lent){NULL, 0}, n);
    bring_here(node, pending, keys, n);
    *ret_seq = number_of(node, w, pending);
    return node->err;
}

int gwi_node_order_localize(gwi_node *node, const int64_t *keys, size_t n, _Atomic uint32_t *done)
{
    gwi_pending *pending = begin_order(node, (gwi_lent){NULL, 0}, n, done);

    bring_here(node, pending, keys, n);
    if (node->err == 0)
        finish_one(node, pending);
    return node->err;
}
