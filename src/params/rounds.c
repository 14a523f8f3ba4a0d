/* rounds.c - every now and then owners and holders tell each other what has changed. */
#include "params/engine.h"

#include <stdlib.h>

/* A key that workers of this node have changed. */
static void look_at(void *ctx, int64_t index)
{
    gwi_node *node = ctx;
    int64_t key = gwi_spread_key(&node->local.spread, node->channel, index);
    gwi_item *item = gwi_item_find(node, key);
    unsigned state = gwi_local_state(&node->local, key);

    node->stats.round_keys++;
    if (item == NULL)
        return; /* nobody watches it any more */
    if (state == GWI_REPLICA) {
        gwi_tell(node, item);
    } else if (state == GWI_OWNED) {
        for (int i = 0; i < item->n_holders; i++)
            item->holders[i].stale = 1;
        gwi_make_due(node, item);
    }
}

static void refresh(gwi_node *node, int64_t key, int all)
{
    gwi_item *item = gwi_item_find(node, key);

    node->stats.round_keys++;
    if (item == NULL)
        return;
    if (gwi_local_state(&node->local, key) == GWI_OWNED && gwi_refresh_holders(node, item, all))
        gwi_make_due_later(node, item);
    gwi_item_forget(node, item);
}

/* Those whose patience may have ended.  The list grows again meanwhile. */
static void refresh_later(gwi_node *node, int all)
{
    gwi_keys_noted later = node->later;
    gwi_item *item;

    node->later = (gwi_keys_noted){0};
    for (size_t i = 0; i < later.n; i++) {
        if ((item = gwi_item_find(node, later.key[i])) == NULL || !item->later)
            continue;
        item->later = 0;
        refresh(node, later.key[i], all);
    }
    free(later.key);
}

void gwi_round(gwi_node *node, int all)
{
    gwi_item *item;

    node->stats.rounds++;
    gwi_marks_take(&node->local.marks[node->channel], look_at, node);
    for (size_t i = 0; i < node->due.n; i++) {
        if ((item = gwi_item_find(node, node->due.key[i])) == NULL || !item->due)
            continue;
        item->due = 0;
        refresh(node, node->due.key[i], all);
    }
    node->due.n = 0;
    if (all || node->now_ns >= node->next_later_ns) {
        node->next_later_ns = node->now_ns + node->patience_ns / 2;
        refresh_later(node, all);
    }
}
