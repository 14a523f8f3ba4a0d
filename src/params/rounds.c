/* rounds.c - every now and then owners and holders tell each other what has changed. */
#include "params/engine.h"

#include <stdlib.h>

/* To look at a deadline takes 2 ns; it shall take a hundredth of the time, at most. */
#define LATER_NS 250

/* A round goes in parts of so many keys.  Before the next one, messages that have come are read, so
 * many at most; and changes that are on their way to the other nodes are waited for while they are
 * more bytes than that for each.  Who tells without hearing fills the rings, so that owners cannot
 * answer at once, and throws out of the caches what it will need when they do. */
#ifdef GWI_MUTANTS
#define PART 3 /* for simulations, which have few keys, and short ones */
#define HEARD_MOST 2
#define TOLD_MOST 48
#else
#define PART 256
#define HEARD_MOST 16 /* more than such a part makes others say */
#define TOLD_MOST (192 * 1024)
#endif
#define WAIT_MOST_NS (3 * GWI_MS) /* for either */

#define RECENT 8 /* rounds, whose times count most in averages */

/* going through keys */

/* What is needed of a key comes from memory while others are seen to: the place of its item, its
 * word; the item; the vector.  Each time for several keys, as in post.c. */
#define BURST 8
#define AHEAD 32 /* a power of two, above 2 bursts */

/* A key and its item, or NULL.  It may let this item be forgotten, and no other. */
typedef void visit(gwi_node *node, int64_t key, gwi_item *item, int all);

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void fetch_places(const gwi_node *node, const gwi_keys_noted *keys, size_t from, size_t to)
{
    for (size_t i = from; i < least(to, keys->n); i++) {
        gwi_fetch_memo(node, keys->key[i]);
        gwi_local_fetch_word(&node->local, keys->key[i]);
    }
}

static void fetch_items(gwi_node *node, const gwi_keys_noted *keys, size_t from, size_t to,
                        gwi_item **items)
{
    for (size_t i = from; i < least(to, keys->n); i++)
        items[i % AHEAD] = gwi_item_fetch(node, keys->key[i]);
}

/* Of those that will be looked at: not if what was told is still on its way. */
static void fetch_vectors(const gwi_node *node, const gwi_keys_noted *keys, size_t from, size_t to,
                          gwi_item *const *items)
{
    int64_t key[BURST];
    size_t n = 0;

    for (size_t i = from; i < least(to, keys->n); i++)
        if (items[i % AHEAD] != NULL && items[i % AHEAD]->told.values == NULL)
            key[n++] = keys->key[i];
    for (size_t i = 0; i < n; i++)
        gwi_local_fetch_vector(&node->local, key[i], 0, GWI_LINE);
    for (size_t i = 0; i < n; i++)
        gwi_local_fetch_vector(&node->local, key[i], GWI_LINE, GWI_LOCAL_FETCH);
}

/* `vectors`: of most keys, the vectors are needed as well. */
static void go_through(gwi_node *node, const gwi_keys_noted *keys, visit *see_to, int vectors,
                       int all)
{
    gwi_item *items[AHEAD];

    fetch_places(node, keys, 0, 3 * BURST);
    fetch_items(node, keys, 0, 2 * BURST, items);
    if (vectors)
        fetch_vectors(node, keys, 0, BURST, items);
    for (size_t i = 0; i < keys->n; i++) {
        if (i % BURST == 0) {
            fetch_places(node, keys, i + 3 * BURST, i + 4 * BURST);
            fetch_items(node, keys, i + 2 * BURST, i + 3 * BURST, items);
            if (vectors)
                fetch_vectors(node, keys, i + BURST, i + 2 * BURST, items);
        }
        see_to(node, keys->key[i], items[i % AHEAD], all);
    }
}

/* The same for a list that grows again meanwhile. */
static void go_through_once(gwi_node *node, gwi_keys_noted *keys, visit *see_to, int vectors,
                            int all)
{
    gwi_keys_noted now = *keys;

    *keys = (gwi_keys_noted){0};
    go_through(node, &now, see_to, vectors, all);
    free(now.key);
}

/* what is seen to */

static void note_marked(void *ctx, int64_t index)
{
    gwi_node *node = ctx;

    gwi_note_key(node, &node->marked, gwi_spread_key(&node->local.spread, node->channel, index));
}

/* A key that workers of this node have changed. */
static void look_at(gwi_node *node, int64_t key, gwi_item *item, int all)
{
    unsigned state = gwi_local_state(&node->local, key);

    node->stats.round_keys++;
    if (item == NULL)
        return; /* nobody watches it any more */
    if (state == GWI_REPLICA)
        gwi_tell(node, item);
    else if (state == GWI_OWNED)
        gwi_changed_here(node, item, all);
}

/* A replica that workers changed while what had been told before was on its way. */
static void tell_again(gwi_node *node, int64_t key, gwi_item *item, int all)
{
    if (item == NULL || !item->tell_again || item->told.values != NULL)
        return;
    item->tell_again = 0;
    look_at(node, key, item, all);
}

static void refresh(gwi_node *node, gwi_item *item, int all)
{
    node->stats.round_keys++;
    if (gwi_local_state(&node->local, item->key) == GWI_OWNED)
        gwi_refresh_holders(node, item, all);
    gwi_item_forget(node, item);
}

/* One for whose holders there was no room. */
static void refresh_due(gwi_node *node, int64_t key, gwi_item *item, int all)
{
    (void)key;
    if (item == NULL || !item->due)
        return;
    item->due = 0;
    refresh(node, item, all);
}

/* One of whose holders the patience may have ended. */
static void refresh_later(gwi_node *node, int64_t key, gwi_item *item, int all)
{
    (void)key;
    if (item == NULL || item->later_ns == 0 || (item->later_ns > node->now_ns && !all))
        return;
    item->later_ns = 0;
    refresh(node, item, all);
}

static int note_due(void *ctx, int64_t key)
{
    gwi_node *node = ctx;

    return gwi_note_key(node, &node->marked, key);
}

/* Some of the marked keys, from where the last part ended.  Returns whether there are more. */
static int do_part(gwi_node *node, size_t most, int all)
{
    node->marked.n = 0;
    int64_t next = gwi_marks_take_some(&node->local.marks[node->channel], node->round_at, most,
                                       note_marked, node);
    node->round_at = next < 0 ? 0 : next;
    go_through(node, &node->marked, look_at, 1, all);
    return next >= 0;
}

/* Of the last rounds; it is the same how many changes each one told of. */
double gwi_stale_ns(const gwi_node *node)
{
    if (node->n_stale == 0)
        return node->stale_ns;
    double mean = node->stale_sum_ns / (double)node->n_stale;
    return node->stale_ns == 0 ? mean : node->stale_ns + (mean - node->stale_ns) / RECENT;
}

static void begin_round(gwi_node *node, int all)
{
    node->stale_ns = gwi_stale_ns(node);
    node->stale_sum_ns = 0;
    node->n_stale = 0;
    node->round_at = 0;
    node->before_round_ns = node->round_began_ns > 0 ? node->now_ns - node->round_began_ns
                                                     : node->round_ns;
    node->round_began_ns = node->now_ns;
    node->found_before = node->stats.round_keys;
    go_through(node, &node->again, tell_again, 1, all);
    node->again.n = 0;
}

static int64_t next_later_ns(const gwi_node *node)
{
    return node->later.first_ns > node->later_rests_ns ? node->later.first_ns
                                                       : node->later_rests_ns;
}

static void end_round(gwi_node *node, int all)
{
    if (node->due.n > 0)
        go_through_once(node, &node->due, refresh_due, 1, all);
    if (node->later.n > 0 && (all || node->now_ns >= next_later_ns(node))) {
        node->later_rests_ns = node->now_ns + (int64_t)node->later.n * LATER_NS;
        node->marked.n = 0;
        gwi_deadlines_take(&node->later, all ? INT64_MAX : node->now_ns, note_due, node);
        go_through(node, &node->marked, refresh_later, 0, all);
    }
    node->stats.rounds++;
}

/* What it found has changed since the round before began, whether that one found anything or not:
 * so a pause, in which rounds find nothing, does not count. */
static void learn_between(gwi_node *node)
{
    double took = (double)node->before_round_ns;

    if (node->stats.round_keys != node->found_before)
        node->between_ns += node->between_ns == 0 ? took : (took - node->between_ns) / RECENT;
}

void gwi_round(gwi_node *node, int all)
{
    begin_round(node, all);
    do_part(node, SIZE_MAX, all);
    end_round(node, all);
}

/* Whether it is better to wait: what has come goes first, as what piles up there is late; and who
 * has told much should hear that it has arrived.  But not for long, nor for all that comes. */
static int should_wait(const gwi_node *node)
{
    int hears_more = node->heard > 0 && node->heard_since_part < HEARD_MOST;
    int told_much = node->told_bytes >= (size_t)(node->nodes - 1) * TOLD_MOST;

    return (hears_more || told_much) && node->now_ns < node->next_part_ns;
}

int64_t gwi_round_next_ns(const gwi_node *node)
{
    int64_t next_ns = node->round_at > 0 ? node->now_ns : node->next_round_ns;

    return should_wait(node) && next_ns < node->next_part_ns ? node->next_part_ns : next_ns;
}

void gwi_round_part(gwi_node *node)
{
    node->next_part_ns = node->now_ns + WAIT_MOST_NS;
    node->heard_since_part = 0;
    if (node->round_at == 0)
        begin_round(node, 0);
    if (!do_part(node, PART, 0)) {
        end_round(node, 0);
        learn_between(node);
    }
}
