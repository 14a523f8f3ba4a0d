/* node.c - a node as a whole: intents, steps. */
#include "params/engine.h"
#include "base/error.h"
#include "base/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PATIENCE 10                 /* rounds, if clocks do not advance */
#define WATCH_NS (5 * GWI_MS)       /* between looks at what rings no bell, at most */
#define LEAST_WATCH 4               /* rounds; what takes longer is learned, and acted on earlier */
#define DOZE_NS (5 * GWI_MS)        /* to be woken then takes a worker 10 us at most */
#define LONG_DOZE_NS (200 * GWI_MS) /* while intents for a clock to come are there */
#define BURST 8                     /* keys for which something is fetched together, as in post.c */

#ifdef GWI_MUTANTS
int gwi_mutant;
#endif

/* making and freeing */

static int make_parts(gwi_node *node, const gwi_node_options *opt)
{
    const gwi_geometry *g = opt->geometry;
    gwi_spread spread = opt->local != NULL ? opt->local->spread
                                           : gwi_spread_of(opt->node, opt->nodes, 1);
    size_t longest = 0, n_places = gwi_spread_n_places(&spread, g->n_keys),
           n_memos = (size_t)gwi_spread_n_indices(&spread, g->n_keys);

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
    node->memos = calloc(n_memos, sizeof *node->memos);
    node->cache = calloc(node->cache_n, sizeof *node->cache);
    node->workers = calloc((size_t)opt->workers, sizeof *node->workers);
    node->kept_rows = calloc(g->n_classes, sizeof *node->kept_rows);
    node->scratch = malloc(longest);
    node->scratch2 = malloc(longest);
    if (node->directory == NULL || node->memos == NULL || node->cache == NULL ||
        node->workers == NULL || node->kept_rows == NULL || node->scratch == NULL ||
        node->scratch2 == NULL)
        return gwi_fail(GW_ENOMEM, "node %d of %d", opt->node, opt->nodes);
    for (size_t i = 0; i < n_places; i++)
        node->directory[i].owner = opt->node;
    if (opt->local != NULL) { /* not one of many in a simulation, most of whose keys sleep */
        node->local = *opt->local;
        gwi_pages_map(node->memos, n_memos * sizeof *node->memos);
        gwi_pages_map(node->cache, node->cache_n * sizeof *node->cache);
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
    node->owned_before = (uint64_t)gwi_spread_n_home(&node->local.spread, node->channel,
                                                     node->geometry->n_keys);
    *ret_node = node;
    return 0;
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

void gwi_node_free(gwi_node *node)
{
    if (node == NULL)
        return;
    gwi_items_fini(node);
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
    gwi_rows_fini(node);
    free(node->marked.key);
    free(node->due.key);
    gwi_deadlines_fini(&node->later);
    free(node->again.key);
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

int gwi_node_was_told(const gwi_node *node)
{
    return node->was_told;
}

static void take_failed(gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    node->was_told = 1;
    gwi_fail_node(node,
                  gwi_fail((int32_t)note->n, "%.*s", (int)note->n_bytes, (const char *)payload));
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

/* what agents ask */

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

void gwi_node_see_time(gwi_node *node, int64_t now_ns)
{
    node->now_ns = now_ns;
}

int gwi_node_intent(gwi_node *node, int worker, const int64_t *keys, size_t n, int64_t start,
                    int64_t end)
{
    gwi_node_worker *w = &node->workers[worker];

    if (node->technique == GWI_TECHNIQUE_STATIC || end <= w->clock || end <= start || w->finished)
        return 0;
    if (start <= w->clock)
        node->next_act_ns = 0; /* there is no time to lose */
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

/* More is needed of a key that is not here, or not alone. */
static void fetch_to_ask(gwi_node *node, int64_t key)
{
    uint64_t word = gwi_word_look(&node->local.store.words[key]);

    if (gwi_word_state(word) == GWI_OWNED && !(word & GWI_WORD_WATCHED))
        return;
    gwi_item_fetch(node, key);
    gwi_fetch_owner(node, key);
}

static void fetch_ahead(gwi_node *node, const gwi_intent *intent, size_t i)
{
    if (i % BURST != 0)
        return;
    for (size_t j = i == 0 ? 0 : i + 2 * BURST; j < intent->n && j < i + 3 * BURST; j++) {
        gwi_local_fetch_word(&node->local, intent->keys[j]);
        gwi_fetch_memo(node, intent->keys[j]);
    }
    for (size_t j = i == 0 ? 0 : i + BURST; j < intent->n && j < i + 2 * BURST; j++)
        fetch_to_ask(node, intent->keys[j]);
}

static void end_intent(gwi_node *node, const gwi_intent *intent)
{
    for (size_t i = 0; i < intent->n; i++) {
        fetch_ahead(node, intent, i);
        gwi_unwant(node, intent->keys[i]);
    }
    free(intent->keys);
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
    while (gwi_intents_end(&w->intents, w->clock, &ended))
        end_intent(node, &ended);
}

void gwi_act_due(gwi_node *node, int worker)
{
    act(node, &node->workers[worker], 1);
}

/* How long a replica that tells nothing may lack news: as long as a clock of our workers. */
static void set_patience(gwi_node *node)
{
    double shortest = (double)GWI_MOST_PATIENCE_NS;
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

static int has_intents_to_come(const gwi_node *node)
{
    for (int w = 0; w < node->workers_n; w++)
        if (node->workers[w].intents.n_to_come > 0)
            return 1;
    return 0;
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
    while (gwi_intents_end(&w->intents, INT64_MAX, &ended))
        end_intent(node, &ended);
    gwi_intents_fini(&w->intents);
    return node->err;
}

/* the node */

void gwi_trace_note(const gwi_node *node, int from, const gwi_note *note)
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
    switch ((gwi_note_kind)note->kind) {
    case GWI_NOTE_ASK:
        gwi_take_ask(node, note, payload);
        break;
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
    case GWI_NOTE_FAILED:
        take_failed(node, note, payload);
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
    if (gwi_unlikely(node->err < 0))
        return node->err; /* with the sentence of what happened first */
    if (now_ns >= node->next_act_ns) {
        if (node->last_act_ns > 0)
            gwi_timing_learn(&node->gap_ns, (double)(now_ns - node->last_act_ns));
        node->next_act_ns = now_ns + node->round_ns;
        act_on_intents(node);
        /* How long it sleeps with nothing to come says nothing of how soon it looks. */
        node->last_act_ns = has_intents_to_come(node) ? now_ns : 0;
    }
    if (now_ns >= gwi_round_next_ns(node)) {
        node->next_round_ns = now_ns + node->round_ns;
        uint64_t before = node->stats.round_keys;
        gwi_round_part(node);
        busy |= node->stats.round_keys != before;
    }
    gwi_meeting_step(node);
    if (gwi_post_step(node, fabric))
        busy = 1;
    return node->err < 0 ? node->err : busy;
}

int gwi_node_may_hear_more(const gwi_node *node)
{
    return node->heard > 0;
}

void gwi_node_rest(gwi_node *node, int64_t until_ns, int64_t act_until_ns)
{
    if (node->next_round_ns < until_ns)
        node->next_round_ns = until_ns;
    if (node->next_act_ns < act_until_ns)
        node->next_act_ns = act_until_ns;
}

int gwi_node_is_idle(const gwi_node *node)
{
    const gwi_item *item;

    if (!gwi_post_is_idle(node))
        return 0;
    for (uint32_t at = 0; (item = gwi_item_next(node, &at)) != NULL;)
        if (item->first != NULL || item->last_word.values != NULL || item->awaits != NULL ||
            item->asked || item->told.values != NULL || item->moving || item->due ||
            item->later_ns > 0 || item->parked != NULL)
            return 0;
    for (uint32_t i = 0; i < node->n_pendings; i++)
        if (node->pendings[i]->left > 0)
            return 0;
    return gwi_meeting_is_idle(node) && !gwi_marks_any(&node->local.marks[node->channel]);
}

int gwi_node_expects(const gwi_node *node)
{
    return node->n_asked > 0;
}

int64_t gwi_node_watches(const gwi_node *node)
{
    int64_t often = node->patience_ns / 2, least = LEAST_WATCH * node->round_ns;

    if (has_intents_to_come(node))
        return often < least ? least : often < WATCH_NS ? often : WATCH_NS;
    for (int w = 0; w < node->workers_n; w++)
        if (node->workers[w].intents.n_in_force > 0)
            return WATCH_NS;
    return node->n_items > 0 ? WATCH_NS : 0;
}

int64_t gwi_node_next_ns(const gwi_node *node)
{
    int64_t round_ns = gwi_round_next_ns(node);

    return has_intents_to_come(node) && node->next_act_ns < round_ns ? node->next_act_ns : round_ns;
}

int64_t gwi_node_dozes_after(const gwi_node *node)
{
    if (node->round_at > 0 || node->due.n + node->later.n + node->again.n > 0 ||
        !gwi_post_is_idle(node) || gwi_marks_any(&node->local.marks[node->channel]))
        return INT64_MAX;
    return has_intents_to_come(node) ? LONG_DOZE_NS : DOZE_NS;
}

void gwi_node_look_now(gwi_node *node)
{
    node->next_act_ns = node->next_round_ns = 0;
    gwi_node_learn_anew(node);
}

void gwi_node_learn_anew(gwi_node *node)
{
    node->last_act_ns = node->round_began_ns = 0;
}

int gwi_node_is_local(const gwi_node *node, int64_t key)
{
    return gwi_local_state(&node->local, key) != GWI_ABSENT;
}

const gwi_node_stats *gwi_node_count(gwi_node *node)
{
    node->stats.items = node->n_items;
    node->stats.replicas = node->n_replicas;
    node->stats.owned = node->owned_before + node->stats.moves -
                        node->stats.notes[GWI_NOTE_TRANSFER];
    return &node->stats;
}

void gwi_node_count_anew(gwi_node *node)
{
    node->owned_before = gwi_node_count(node)->owned;
    node->stats = (gwi_node_stats){0};
}

gwi_node_times gwi_node_time(const gwi_node *node)
{
    double clock = 0;

    for (int i = 0; i < node->workers_n; i++) {
        double period = gwi_timing_period_ns(&node->workers[i].timing);
        clock = clock == 0 || (period > 0 && period < clock) ? period : clock;
    }
    return (gwi_node_times){.staleness_ns = (int64_t)gwi_stale_ns(node),
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
    int64_t n_indices = gwi_spread_n_indices(&node->local.spread, g->n_keys);
    const gwi_item *item;
    gwi_node_memory m = {
        .words = (size_t)g->n_keys * (sizeof(gwi_word) + 2 * sizeof(uint32_t)) +
                 (size_t)n_indices * sizeof *node->memos + gwi_marks_bytes(n_indices),
        .directory = gwi_spread_n_places(&node->local.spread, g->n_keys) * sizeof *node->directory,
        .items = node->n_item_places * (sizeof *node->items + sizeof *node->free_places),
        .post = gwi_post_bytes(node)};

    for (size_t i = 0; i < node->cache_n; i++)
        m.cache += (node->cache[i].key_1 != 0) * sizeof *node->cache;
    for (uint32_t c = 0; c < g->n_classes; c++)
        m.rows += gwi_slab_in_use(&node->local.store.slabs[c]) * g->classes[c].row_bytes +
                  gwi_slab_in_use(&node->local.pairs[c]) * 2 * g->classes[c].row_bytes;
    for (uint32_t at = 0; (item = gwi_item_next(node, &at)) != NULL;)
        m.items += item_bytes(node, item);
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

static size_t count_asked(const gwi_node *node)
{
    const gwi_item *item;
    size_t n = 0;

    for (uint32_t at = 0; (item = gwi_item_next(node, &at)) != NULL;)
        n += item->asked;
    return n;
}

bool gwi_node_valid(const gwi_node *node)
{
    return gwi_local_valid(&node->local) && gwi_items_valid(node) &&
           node->n_asked == count_asked(node);
}
