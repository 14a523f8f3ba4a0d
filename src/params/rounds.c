/* rounds.c - every now and then owners and holders tell each other what has changed. */
#include "params/engine.h"

#include <assert.h>

/* A key that workers of this node have changed. */
static void look_at(void *ctx, int64_t key)
{
    gwi_node *node = ctx;
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

void gwi_round(gwi_node *node)
{
    node->stats.rounds++;
    gwi_marks_take(&node->local.marks, look_at, node);
    for (size_t i = 0; i < node->n_due; i++) {
        gwi_item *item = gwi_item_find(node, node->due[i]);
        if (item == NULL || !item->due)
            continue;
        item->due = 0;
        node->stats.round_keys++;
        if (gwi_local_state(&node->local, item->key) == GWI_OWNED)
            gwi_refresh_holders(node, item);
        gwi_item_forget(node, item);
    }
    node->n_due = 0;
}
