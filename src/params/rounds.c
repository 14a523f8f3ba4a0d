/* rounds.c - every now and then owners and holders tell each other what has changed. */
#include "params/engine.h"

#include <stdlib.h>

/* Keys are gone through in steps, so that what is needed of one comes from memory while others are
 * seen to: the place of its item, the item and its word, the vector. */
#define FAR 24
#define MIDDLE 16
#define NEAR 8

/* The items of the keys to come, as far as they were looked up. */
struct outlook {
    gwi_item *item[MIDDLE]; /* of key i at i % MIDDLE */
};

static void look_up(gwi_node *node, struct outlook *o, const gwi_keys_noted *keys, size_t i)
{
    if (i < keys->n)
        o->item[i % MIDDLE] = gwi_item_fetch(node, keys->key[i]);
}

/* The item of key `i`, or NULL.  Nobody but who sees to a key lets its item be forgotten. */
static gwi_item *next(gwi_node *node, struct outlook *o, const gwi_keys_noted *keys, size_t i)
{
    if (i == 0)
        for (size_t j = 0; j < MIDDLE; j++)
            look_up(node, o, keys, j);
    gwi_item *item = o->item[i % MIDDLE];
    if (i + FAR < keys->n) {
        gwi_hash_fetch(&node->items, (uint64_t)keys->key[i + FAR]);
        gwi_local_fetch_word(&node->local, keys->key[i + FAR]);
    }
    look_up(node, o, keys, i + MIDDLE);
    if (i + NEAR < keys->n)
        gwi_local_fetch_vector(&node->local, keys->key[i + NEAR]);
    return item;
}

static void note_marked(void *ctx, int64_t index)
{
    gwi_node *node = ctx;

    gwi_note_key(node, &node->marked, gwi_spread_key(&node->local.spread, node->channel, index));
}

/* A key that workers of this node have changed. */
static void look_at(gwi_node *node, int64_t key, gwi_item *item)
{
    unsigned state = gwi_local_state(&node->local, key);

    node->stats.round_keys++;
    if (item == NULL)
        return; /* nobody watches it any more */
    if (state == GWI_REPLICA) {
        gwi_tell(node, item);
    } else if (state == GWI_OWNED) {
        gwi_local_see(&node->local, key);
        for (int i = 0; i < item->n_holders; i++)
            item->holders[i].stale = 1;
        gwi_make_due(node, item);
    }
}

static void refresh(gwi_node *node, gwi_item *item, int all)
{
    node->stats.round_keys++;
    if (gwi_local_state(&node->local, item->key) == GWI_OWNED &&
        gwi_refresh_holders(node, item, all))
        gwi_make_due_later(node, item);
    gwi_item_forget(node, item);
}

/* Those whose patience may have ended.  The list grows again meanwhile. */
static void refresh_later(gwi_node *node, int all)
{
    gwi_keys_noted later = node->later;
    struct outlook outlook;
    gwi_item *item;

    node->later = (gwi_keys_noted){0};
    for (size_t i = 0; i < later.n; i++) {
        item = next(node, &outlook, &later, i);
        if (item == NULL || !item->later)
            continue;
        item->later = 0;
        refresh(node, item, all);
    }
    free(later.key);
}

void gwi_round(gwi_node *node, int all)
{
    struct outlook outlook;
    gwi_item *item;

    node->stats.rounds++;
    node->marked.n = 0;
    gwi_marks_take(&node->local.marks[node->channel], note_marked, node);
    for (size_t i = 0; i < node->marked.n; i++) {
        item = next(node, &outlook, &node->marked, i);
        look_at(node, node->marked.key[i], item);
    }
    for (size_t i = 0; i < node->due.n; i++) {
        item = next(node, &outlook, &node->due, i);
        if (item == NULL || !item->due)
            continue;
        item->due = 0;
        refresh(node, item, all);
    }
    node->due.n = 0;
    if (all || node->now_ns >= node->next_later_ns) {
        node->next_later_ns = node->now_ns + node->patience_ns / 2;
        refresh_later(node, all);
    }
}
