/* node.c - a node as its workers see it: operations, intents. */
#include "params/engine.h"
#include "base/clock.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MOST_PATIENCE_NS (100.0 * GWI_MS)
#define PATIENCE 10           /* rounds, if clocks do not advance */
#define WATCH_NS (5 * GWI_MS) /* between looks at what rings no bell, at most */
#define LEAST_WATCH 4         /* rounds; what takes longer is learned, and acted on earlier */
#define AHEAD 8               /* keys ahead of which something is fetched */

#ifdef GWI_MUTANTS
int gwi_mutant;
#endif

/* making and freeing */

static int make_parts(gwi_node *node, const gwi_node_options *opt)
{
    const gwi_geometry *g = opt->geometry;
    gwi_spread spread = opt->local != NULL ? opt->local->spread
                                           : gwi_spread_of(opt->node, opt->nodes, 1);
    size_t longest = 0, n_places = gwi_spread_n_places(&spread, g->n_keys);

    for (uint32_t c = 0; c < g->n_classes; c++)
        longest = g->classes[c].row_bytes > longest ? g->classes[c].row_bytes : longest;
    node->cache_n = 1;
    while (2 * node->cache_n <= (size_t)(opt->cache_keys > 0 ? opt->cache_keys : 65536) &&
           node->cache_n < (size_t)g->n_keys)
        node->cache_n *= 2;
    node->memory_bytes = opt->local == NULL ? gwi_local_bytes(g, &spread) : 0;
    if (opt->local == NULL)
        node->memory = mmap(NULL, node->memory_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (node->memory == MAP_FAILED) {
        node->memory = NULL;
        return gwi_fail(GW_ENOMEM, "node %d: %zu bytes for %lld keys", opt->node,
                        node->memory_bytes, (long long)g->n_keys);
    }
    node->directory = calloc(n_places, sizeof *node->directory);
    node->cache = calloc(node->cache_n, sizeof *node->cache);
    node->workers = calloc((size_t)opt->workers, sizeof *node->workers);
    node->free_rows = calloc(g->n_classes, sizeof *node->free_rows);
    node->scratch = malloc(longest);
    node->scratch2 = malloc(longest);
    if (node->directory == NULL || node->cache == NULL || node->workers == NULL ||
        node->free_rows == NULL || node->scratch == NULL || node->scratch2 == NULL)
        return gwi_fail(GW_ENOMEM, "node %d of %d", opt->node, opt->nodes);
    for (size_t i = 0; i < n_places; i++)
        node->directory[i].owner = opt->node;
    if (opt->local != NULL) {
        node->local = *opt->local;
        return 0;
    }
    return gwi_local_init(&node->local, g, &spread, node->memory, node->memory_bytes);
}

int gwi_node_new(const gwi_node_options *opt, gwi_node **ret_node)
{
    gwi_node *node = calloc(1, sizeof *node);

    if (node == NULL)
        return gwi_fail(GW_ENOMEM, "a node");
    node->id = opt->node;
    node->nodes = opt->nodes;
    node->channel = opt->channel;
    node->workers_n = opt->workers;
    node->technique = opt->technique;
    node->round_ns = opt->round_ns > 0 ? opt->round_ns : 100000;
    node->geometry = opt->geometry;
    node->ahead = opt->ahead;
    node->ahead_ctx = opt->ahead_ctx;
    node->trace = opt->trace;
    node->lane = opt->lane > 0 ? opt->lane : GWI_LANE_PARAMS;
    node->opening = opt->opening;
    node->ranks = opt->ranks;
    node->nodes_of = opt->nodes_of;
    int err = make_parts(node, opt);
    if (err < 0) {
        gwi_node_free(node);
        return err;
    }
    *ret_node = node;
    return 0;
}

static void free_line(gwi_op_in_line *op)
{
    while (op != NULL) {
        gwi_op_in_line *next = op->next;
        free(op);
        op = next;
    }
}

/* What it owns; the item itself can be used again. */
static void empty_item(gwi_item *item)
{
    free_line(item->first);
    while (item->arrivals != NULL) {
        struct gwi_arrival *next = item->arrivals->next;
        free(item->arrivals);
        item->arrivals = next;
    }
    while (item->parked != NULL) {
        gwi_parked *next = item->parked->next;
        free(item->parked);
        item->parked = next;
    }
    free(item->told.values); /* there are such only when the node ends */
    free(item->last_word.values);
    if (item->holders != item->few)
        free(item->holders);
}

static void free_worker(gwi_node_worker *worker)
{
    gwi_intents_fini(&worker->intents);
    free(worker->sync.points);
}

void gwi_node_abandon(gwi_node *node, gwi_fabric *fabric)
{
    gwi_post_give_up(node, fabric);
}

static void free_rows(gwi_node *node);

void gwi_node_free(gwi_node *node)
{
    uint64_t key, value;

    if (node == NULL)
        return;
    gwi_hash_cursor cursor = gwi_hash_start(&node->items);
    while (gwi_hash_next(&node->items, &cursor, &key, &value)) {
        gwi_item *item = (gwi_item *)(uintptr_t)value;
        empty_item(item);
        free(item);
    }
    gwi_hash_fini(&node->items);
    while (node->free_items != NULL) {
        gwi_item *next = node->free_items->next_free;
        free(node->free_items);
        node->free_items = next;
    }
    for (uint32_t i = 0; i < node->n_pendings; i++)
        free(node->pendings[i]);
    free(node->pendings);
    for (int w = 0; w < node->workers_n && node->workers != NULL; w++)
        free_worker(&node->workers[w]);
    gwi_post_fini(node);
    if (node->memory != NULL)
        gwi_local_fini(&node->local);
    if (node->memory != NULL)
        munmap(node->memory, node->memory_bytes);
    free(node->directory);
    free(node->cache);
    free(node->workers);
    free_rows(node);
    free(node->marked.key);
    free(node->due.key);
    free(node->later.key);
    free(node->scratch);
    free(node->scratch2);
    free(node);
}

int gwi_fail_node(gwi_node *node, int err)
{
    if (node->err == 0)
        node->err = err;
    return err;
}

/* items */

gwi_item *gwi_item_find(gwi_node *node, int64_t key)
{
    uint64_t value;

    return gwi_hash_get(&node->items, (uint64_t)key, &value) ? (gwi_item *)(uintptr_t)value : NULL;
}

gwi_item *gwi_item_get(gwi_node *node, int64_t key)
{
    gwi_item *item = gwi_item_find(node, key);

    if (item != NULL)
        return item;
    item = node->free_items;
    if (item != NULL)
        node->free_items = item->next_free;
    else
        item = malloc(sizeof *item);
    if (item != NULL)
        *item = (gwi_item){.key = key};
    if (item == NULL || gwi_hash_put(&node->items, (uint64_t)key, (uint64_t)(uintptr_t)item) < 0) {
        free(item);
        gwi_fail_node(node,
                      gwi_fail(GW_ENOMEM, "what there is to remember of key %lld", (long long)key));
        return NULL;
    }
    return item;
}

static int is_quiet(const gwi_item *item)
{
    return item->first == NULL && item->last_word.values == NULL && item->awaits == NULL &&
           item->want == 0 && !item->asked && item->told.values == NULL && item->n_holders == 0 &&
           !item->moving && !item->due && !item->later && item->parked == NULL;
}

void gwi_item_forget(gwi_node *node, gwi_item *item)
{
    unsigned state = gwi_local_state(&node->local, item->key);

    /* A replica's term and stamp must be known.  Those of an owned key need not: without holders
     * nobody remembers a stamp, and terms never come again. */
    if (!is_quiet(item) || state == GWI_REPLICA)
        return;
    gwi_hash_remove(&node->items, (uint64_t)item->key, NULL);
    empty_item(item);
    item->next_free = node->free_items;
    node->free_items = item;
}

size_t gwi_row_bytes(const gwi_node *node, int64_t key)
{
    return gwi_geometry_class(node->geometry, key)->row_bytes;
}

/* Vectors on their way are kept for a moment, again and again. */

void *gwi_row_take(gwi_node *node, int64_t key)
{
    const gwi_length_class *class = gwi_geometry_class(node->geometry, key);
    void **free_row = &node->free_rows[class - node->geometry->classes], *row = *free_row;

    if (row == NULL) {
        row = malloc(class->row_bytes < sizeof(void *) ? sizeof(void *) : class->row_bytes);
        if (row == NULL)
            gwi_fail_node(node, gwi_fail(GW_ENOMEM, "a vector of %zu bytes", class->row_bytes));
        return row;
    }
    memcpy(free_row, row, sizeof(void *));
    return row;
}

void gwi_row_give_back(gwi_node *node, int64_t key, void *row)
{
    const gwi_length_class *class = gwi_geometry_class(node->geometry, key);
    void **free_row = &node->free_rows[class - node->geometry->classes];

    if (row == NULL)
        return;
    memcpy(row, free_row, sizeof(void *));
    *free_row = row;
}

static void free_rows(gwi_node *node)
{
    for (uint32_t c = 0; node->free_rows != NULL && c < node->geometry->n_classes; c++)
        while (node->free_rows[c] != NULL) {
            void *row = node->free_rows[c];
            memcpy(&node->free_rows[c], row, sizeof(void *));
            free(row);
        }
    free(node->free_rows);
}

/* the location cache */

void gwi_cache_note(gwi_node *node, int64_t key, int owner)
{
    gwi_place_seen *place = gwi_cache_place(node, key);

    if (owner != gwi_home(node, key))
        *place = (gwi_place_seen){key + 1, owner};
    else if (place->key_1 == key + 1)
        place->key_1 = 0; /* it is at home again, where others are asked for anyway */
}

int gwi_cache_look(const gwi_node *node, int64_t key)
{
    const gwi_place_seen *seen = gwi_cache_place(node, key);

    return seen->key_1 == key + 1 && seen->owner != node->id ? seen->owner : gwi_home(node, key);
}

/* operations that are not done at once */

#define OFFSET_BITS                                                              \
    40 /* of the number that an ASK and its ANSWER bear: id, place in the values \
        */

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

static gwi_pending *new_pending(gwi_node *node, unsigned char *values, size_t values_bytes)
{
    if (node->free_pendings == NULL && !more_pendings(node)) {
        gwi_fail_node(node, gwi_fail(GW_ENOMEM, "an operation"));
        return NULL;
    }
    gwi_pending *pending = node->free_pendings;
    node->free_pendings = pending->next;
    *pending = (gwi_pending){.id = pending->id, .values = values, .values_bytes = values_bytes};
    return pending;
}

static void free_pending(gwi_node *node, gwi_pending *pending)
{
    pending->left = 0;
    pending->next = node->free_pendings;
    node->free_pendings = pending;
}

/* For who asks by number whether it is done. */
static void list_pending(gwi_node_worker *worker, gwi_pending *pending)
{
    pending->seq = worker->next_seq++;
    pending->next = worker->pending;
    worker->pending = pending;
}

/* NULL: there is no such operation. */
gwi_pending *gwi_pending_of(const gwi_node *node, uint64_t number, size_t *ret_offset)
{
    uint64_t id = number >> OFFSET_BITS;

    *ret_offset = (size_t)(number & ((UINT64_C(1) << OFFSET_BITS) - 1));
    return id < node->n_pendings && node->pendings[id]->left > 0 ? node->pendings[id] : NULL;
}

/* One key of it is done. */
static void finish_one(gwi_node *node, gwi_pending *pending)
{
    if (--pending->left > 0 || pending->done == NULL)
        return;
    /* All that was read is seen by who sees this. */
    atomic_store_explicit(pending->done, 1, memory_order_seq_cst);
    free_pending(node, pending);
    node->n_finished++;
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
    return access == GWI_PULL ? gwi_local_pull(&node->local, key, values)
                              : gwi_local_change(&node->local, key, change_by(access), values);
}

static void ask(gwi_node *node, gwi_access access, int64_t key, unsigned char *values,
                const gwi_pending *pending)
{
    gwi_note note = {.kind = GWI_NOTE_ASK,
                     .flags = access == GWI_PULL   ? GWI_NOTE_READS
                              : access == GWI_PUSH ? GWI_NOTE_ADDS
                                                   : GWI_NOTE_ASSIGNS,
                     .node = node->id,
                     .key = key,
                     .number = (uint64_t)pending->id << OFFSET_BITS |
                               (uint64_t)(values - pending->values)};

    gwi_request(node, &note, values, access == GWI_PULL ? 0 : gwi_row_bytes(node, key));
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
static void begin_one(gwi_node *node, gwi_access access, int64_t key, unsigned char *values,
                      gwi_pending *pending)
{
    gwi_item *item = node->n_last_words == 0 || GWI_MUTANT(1) ? NULL : gwi_item_find(node, key);

    pending->left++;
    if (item != NULL && item->last_word.values != NULL)
        stand_in_line(node, item, access, values, pending);
    else
        ask(node, access, key, values, pending);
}

void gwi_line_move(gwi_node *node, gwi_item *item)
{
    int here = gwi_local_state(&node->local, item->key) != GWI_ABSENT;

    while (item->first != NULL && (here || item->last_word.values == NULL)) {
        gwi_op_in_line *op = item->first;
        item->first = op->next;
        if (item->first == NULL)
            item->last = NULL;
        if (op->pending->values == NULL || do_here(node, op->access, item->key, op->values))
            finish_one(node, op->pending);
        else
            ask(node, op->access, item->key, op->values, op->pending);
        free(op);
    }
}

void gwi_take_answer(gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    size_t offset;
    gwi_pending *pending = gwi_pending_of(node, note->number, &offset);

    if (note->flags & GWI_NOTE_READS && pending->values != NULL)
        memcpy(pending->values + offset, payload, note->n_bytes);
    finish_one(node, pending);
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
    gwi_pending *pending = new_pending(node, values, values_bytes);
    for (size_t i = 0; i < n && node->err == 0; at += gwi_row_bytes(node, keys[i++])) {
        int done = do_here(node, access, keys[i], at);
        node->stats.accesses++;
        node->stats.local += (uint64_t)done;
        if (!done)
            begin_one(node, access, keys[i], at, pending);
    }
    if (node->err == 0 && pending->left > 0) {
        list_pending(w, pending);
        *ret_seq = pending->seq;
    } else if (pending != NULL) {
        free_pending(node, pending);
        *ret_seq = -1;
    }
    return node->err;
}

/* A pending operation with one key too many, which keeps it from being done too early. */
static gwi_pending *begin_order(gwi_node *node, gwi_lent lent, _Atomic uint32_t *done)
{
    gwi_pending *pending = new_pending(node, lent.values, lent.n_bytes);

    if (pending != NULL) {
        pending->left = 1;
        pending->done = done;
    }
    return pending;
}

int gwi_node_order(gwi_node *node, gwi_access access, const gwi_part *parts, size_t n,
                   gwi_lent lent, _Atomic uint32_t *done)
{
    gwi_pending *pending = begin_order(node, lent, done);

    for (size_t i = 0; i < n && node->err == 0; i++) {
        if (i + AHEAD < n) {
            gwi_local_fetch_word(&node->local, parts[i + AHEAD].key);
            __builtin_prefetch(gwi_cache_place(node, parts[i + AHEAD].key));
        }
        if (gwi_local_state(&node->local, parts[i].key) == GWI_ABSENT ||
            !do_here(node, access, parts[i].key, parts[i].values))
            begin_one(node, access, parts[i].key, parts[i].values, pending);
    }
    if (node->err == 0)
        finish_one(node, pending);
    return node->err;
}

/* localize */

void gwi_arrived_here(gwi_node *node, gwi_item *item)
{
    if (item->awaits != NULL)
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
    gwi_note note = {.kind = GWI_NOTE_LOCALIZE, .node = node->id, .key = key};
    gwi_item *item = gwi_item_get(node, key);
    int err = 0;

    if (item == NULL)
        return;
    if (item->awaits == NULL) {
        item->awaits = pending;
        gwi_send(node, gwi_home(node, key), &note, NULL, 0, NULL, 0);
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
        if (i + AHEAD < n)
            gwi_local_fetch_word(&node->local, keys[i + AHEAD]);
        if (gwi_local_state(&node->local, keys[i]) != GWI_OWNED)
            await_arrival(node, pending, keys[i]);
    }
}

int gwi_node_localize(gwi_node *node, int worker, const int64_t *keys, size_t n, int64_t *ret_seq)
{
    gwi_node_worker *w = &node->workers[worker];

    collect_done(node, w);
    gwi_pending *pending = new_pending(node, NULL, 0);
    bring_here(node, pending, keys, n);
    if (node->err == 0 && pending->left > 0) {
        list_pending(w, pending);
        *ret_seq = pending->seq;
    } else if (pending != NULL) {
        free_pending(node, pending);
        *ret_seq = -1;
    }
    return node->err;
}

int gwi_node_order_localize(gwi_node *node, const int64_t *keys, size_t n, _Atomic uint32_t *done)
{
    gwi_pending *pending = begin_order(node, (gwi_lent){NULL, 0}, done);

    bring_here(node, pending, keys, n);
    if (node->err == 0)
        finish_one(node, pending);
    return node->err;
}

uint64_t gwi_node_finished(const gwi_node *node)
{
    return node->n_finished;
}

uint64_t gwi_node_released(const gwi_node *node)
{
    return node->released;
}

/* intents and clocks */

void gwi_node_see_worker(gwi_node *node, int worker, int64_t clock, uint64_t barriers)
{
    node->workers[worker].clock = clock;
    node->workers[worker].barriers = barriers;
}

int gwi_node_intent(gwi_node *node, int worker, const int64_t *keys, size_t n, int64_t start,
                    int64_t end)
{
    gwi_node_worker *w = &node->workers[worker];

    if (node->technique == GWI_TECHNIQUE_STATIC || end <= w->clock || end <= start || w->finished)
        return 0;
    if (start <= w->clock)
        node->next_round_ns = 0; /* there is no time to lose */
    return gwi_intents_add(&w->intents, keys, n, start, end);
}

void gwi_node_advance_clock(gwi_node *node, int worker)
{
    node->workers[worker].clock++;
}

int64_t gwi_node_clock(const gwi_node *node, int worker)
{
    return node->workers[worker].clock;
}

static void fetch_ahead(gwi_node *node, const gwi_intent *intent, size_t i)
{
    const gwi_item *item;

    if (i + 2 * AHEAD < intent->n) {
        gwi_local_fetch_word(&node->local, intent->keys[i + 2 * AHEAD]);
        gwi_hash_fetch(&node->items, (uint64_t)intent->keys[i + 2 * AHEAD]);
        __builtin_prefetch(gwi_cache_place(node, intent->keys[i + 2 * AHEAD]));
    }
    if (i + AHEAD < intent->n && (item = gwi_item_find(node, intent->keys[i + AHEAD])) != NULL)
        for (size_t at = 0; at < sizeof *item; at += GWI_LINE)
            __builtin_prefetch((const unsigned char *)item + at);
}

/* Act on what begins or ends by `ahead` clocks from now. */
static void act(gwi_node *node, gwi_node_worker *w, int64_t ahead)
{
    const gwi_intent *begun;
    gwi_intent ended;

    while (gwi_intents_begin(&w->intents, w->clock + ahead, &begun) == 0 && begun != NULL)
        for (size_t i = 0; i < begun->n; i++) {
            fetch_ahead(node, begun, i);
            gwi_want(node, begun->keys[i]);
        }
    while (gwi_intents_end(&w->intents, w->clock, &ended)) {
        for (size_t i = 0; i < ended.n; i++) {
            fetch_ahead(node, &ended, i);
            gwi_unwant(node, ended.keys[i]);
        }
        free(ended.keys);
    }
}

/* How long a replica that tells nothing may lack news: as long as a clock of our workers. */
static void set_patience(gwi_node *node)
{
    double shortest = MOST_PATIENCE_NS;
    int known = 0;

    for (int i = 0; i < node->workers_n; i++) {
        double period = gwi_timing_period_ns(&node->workers[i].timing);
        known |= period > 0;
        shortest = period > 0 && period < shortest ? period : shortest;
    }
    node->patience_ns = !known                              ? PATIENCE * node->round_ns
                        : shortest > (double)node->round_ns ? (int64_t)shortest
                                                            : node->round_ns;
}

void gwi_act_due(gwi_node *node, int worker)
{
    act(node, &node->workers[worker], 1);
}

/* Between rounds, at most but for few. */
static double gap_ns(const gwi_node *node)
{
    return node->gap_ns > (double)node->round_ns ? node->gap_ns : (double)node->round_ns;
}

/* How many clocks. */
static int64_t look_ahead(const gwi_node *node, int worker)
{
    const gwi_node_worker *w = &node->workers[worker];

    return node->ahead != NULL
               ? node->ahead(node->ahead_ctx, worker, w->clock)
               : gwi_timing_ahead(&w->timing, node->now_ns, 2 * gap_ns(node) + node->act_ns);
}

static void act_on_intents(gwi_node *node)
{
    set_patience(node);
    for (int i = 0; i < node->workers_n; i++) {
        gwi_node_worker *w = &node->workers[i];
        gwi_timing_look(&w->timing, w->clock, node->now_ns);
        if (w->intents.n_to_come + w->intents.n_in_force == 0)
            continue;
        act(node, w, w->intents.n_to_come > 0 ? look_ahead(node, i) : 0);
    }
}

int gwi_node_finish(gwi_node *node, int worker)
{
    gwi_node_worker *w = &node->workers[worker];
    gwi_intent ended;

    w->finished = 1;
    while (gwi_intents_end(&w->intents, INT64_MAX, &ended)) {
        for (size_t i = 0; i < ended.n; i++)
            gwi_unwant(node, ended.keys[i]);
        free(ended.keys);
    }
    gwi_intents_fini(&w->intents);
    return node->err;
}

/* the node */

static void trace(const gwi_node *node, int from, const gwi_note *note)
{
    static const char *const states[] = {"absent", "", "owned", "", "replica"};

    fprintf(node->trace,
            "%14.3f us  node %-3d  from %-3d  %-8s key %lld flags %02x node %d number %llu term %u "
            "seq %u n %u, %u bytes; here %s\n",
            (double)node->now_ns / 1e3, node->id, from, gwi_note_name(note->kind),
            (long long)note->key, note->flags, note->node, (unsigned long long)note->number,
            note->term, note->seq, note->n, note->n_bytes,
            note->key < 0 ? "" : states[gwi_local_state(&node->local, note->key)]);
}

void gwi_handle(gwi_node *node, int from, gwi_note *note, const unsigned char *payload)
{
    if (gwi_unlikely(node->trace != NULL))
        trace(node, from, note);
    switch ((gwi_note_kind)note->kind) {
    case GWI_NOTE_ASK:
    case GWI_NOTE_WANT:
    case GWI_NOTE_TELL:
        gwi_route(node, note, payload);
        break;
    case GWI_NOTE_ANSWER:
        gwi_cache_note(node, note->key, from);
        gwi_take_answer(node, note, payload);
        break;
    case GWI_NOTE_GRANT:
        gwi_take_grant(node, from, note, payload);
        break;
    case GWI_NOTE_REFRESH:
        gwi_take_refresh(node, from, note, payload);
        break;
    case GWI_NOTE_DROPPED:
        gwi_take_dropped(node, note);
        break;
    case GWI_NOTE_LOCALIZE:
        gwi_take_localize(node, note);
        break;
    case GWI_NOTE_MOVE:
        gwi_take_move(node, note);
        break;
    case GWI_NOTE_GIVE:
        gwi_take_give(node, note);
        break;
    case GWI_NOTE_TRANSFER:
        gwi_take_transfer(node, note, payload);
        break;
    case GWI_NOTE_SYNC:
        gwi_take_sync(node, from, note);
        break;
    case GWI_NOTE_SYNCED:
        gwi_take_synced(node, note);
        break;
    case GWI_NOTE_ARRIVE:
        gwi_take_arrive(node, from, note);
        break;
    case GWI_NOTE_RELEASE:
        gwi_take_release(node, note);
        break;
    case GWI_N_NOTES:
        break;
    }
}

int gwi_node_step(gwi_node *node, gwi_fabric *fabric, int64_t now_ns)
{
    int busy;

    node->now_ns = now_ns;
    node->fabric = fabric;
    busy = gwi_post_step(node, fabric);
    if (now_ns >= node->next_round_ns) {
        if (node->last_round_ns > 0)
            gwi_timing_learn(&node->gap_ns, (double)(now_ns - node->last_round_ns));
        node->last_round_ns = now_ns;
        node->next_round_ns = now_ns + node->round_ns;
        uint64_t before = node->stats.round_keys;
        act_on_intents(node);
        gwi_round(node, 0);
        busy |= node->stats.round_keys != before;
    }
    gwi_meeting_step(node);
    if (gwi_post_step(node, fabric))
        busy = 1;
    return node->err < 0 ? node->err : busy;
}

void gwi_node_rest(gwi_node *node, int64_t until_ns)
{
    if (node->next_round_ns < until_ns)
        node->next_round_ns = until_ns;
}

int gwi_node_is_idle(const gwi_node *node)
{
    gwi_hash_cursor cursor = gwi_hash_start(&node->items);
    uint64_t key, value;

    if (!gwi_post_is_idle(node))
        return 0;
    while (gwi_hash_next(&node->items, &cursor, &key, &value)) {
        const gwi_item *item = (const gwi_item *)(uintptr_t)value;
        if (item->first != NULL || item->last_word.values != NULL || item->awaits != NULL ||
            item->asked || item->told.values != NULL || item->moving || item->due || item->later ||
            item->parked != NULL)
            return 0;
    }
    for (uint32_t i = 0; i < node->n_pendings; i++)
        if (node->pendings[i]->left > 0)
            return 0;
    return gwi_meeting_is_idle(node) && !gwi_marks_any(&node->local.marks[node->channel]);
}

int64_t gwi_node_watches(const gwi_node *node)
{
    int64_t often = node->patience_ns / 2, least = LEAST_WATCH * node->round_ns;

    for (int w = 0; w < node->workers_n; w++)
        if (node->workers[w].intents.n_to_come > 0)
            return often < least ? least : often < WATCH_NS ? often : WATCH_NS;
    for (int w = 0; w < node->workers_n; w++)
        if (node->workers[w].intents.n_in_force > 0)
            return WATCH_NS;
    return node->items.count > 0 ? WATCH_NS : 0;
}

int64_t gwi_node_next_ns(const gwi_node *node)
{
    return node->next_round_ns;
}

int gwi_node_is_local(const gwi_node *node, int64_t key)
{
    return gwi_local_state(&node->local, key) != GWI_ABSENT;
}

const gwi_node_stats *gwi_node_count(gwi_node *node)
{
    node->stats.items = node->items.count;
    node->stats.replicas = node->n_replicas;
    return &node->stats;
}

void gwi_node_count_anew(gwi_node *node)
{
    node->stats = (gwi_node_stats){0};
}

gwi_node_times gwi_node_time(const gwi_node *node)
{
    double clock = 0;

    for (int i = 0; i < node->workers_n; i++) {
        double period = gwi_timing_period_ns(&node->workers[i].timing);
        clock = clock == 0 || (period > 0 && period < clock) ? period : clock;
    }
    return (gwi_node_times){
        .staleness_ns = (int64_t)(node->told_ns > 0 ? node->told_ns + gap_ns(node) : 0),
        .intent_ns = (int64_t)node->act_ns,
        .clock_ns = (int64_t)clock};
}

static size_t item_bytes(const gwi_node *node, const gwi_item *item)
{
    size_t row = gwi_row_bytes(node, item->key);

    return sizeof *item + (size_t)item->holders_capacity * sizeof *item->holders +
           (item->told.values != NULL ? row : 0) + (item->last_word.values != NULL ? row : 0);
}

gwi_node_memory gwi_node_measure(gwi_node *node)
{
    const gwi_geometry *g = node->geometry;
    gwi_hash_cursor cursor = gwi_hash_start(&node->items);
    uint64_t key, value;
    gwi_node_memory m = {
        .words = (size_t)g->n_keys * (sizeof(gwi_word) + 2 * sizeof(uint32_t)) +
                 gwi_marks_bytes(gwi_spread_n_indices(&node->local.spread, g->n_keys)),
        .directory = gwi_spread_n_places(&node->local.spread, g->n_keys) * sizeof *node->directory,
        .items = node->items.n_slots * (sizeof(gwi_hash_entry) + 1),
        .post = gwi_post_bytes(node)};

    for (size_t i = 0; i < node->cache_n; i++)
        m.cache += (node->cache[i].key_1 != 0) * sizeof *node->cache;
    for (uint32_t c = 0; c < g->n_classes; c++)
        m.rows += gwi_slab_in_use(&node->local.store.slabs[c]) * g->classes[c].row_bytes +
                  gwi_slab_in_use(&node->local.pairs[c]) * 2 * g->classes[c].row_bytes;
    while (gwi_hash_next(&node->items, &cursor, &key, &value))
        m.items += item_bytes(node, (const gwi_item *)(uintptr_t)value);
    return m;
}

gwi_local *gwi_node_local(gwi_node *node)
{
    return &node->local;
}

int gwi_node_owner(const gwi_node *node, int64_t key)
{
    assert(gwi_home(node, key) == node->id);
    return gwi_directory(node, key)->owner;
}

bool gwi_node_valid(const gwi_node *node)
{
    return gwi_local_valid(&node->local) && gwi_hash_valid(&node->items);
}
