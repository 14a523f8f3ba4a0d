/* items.c - what a node remembers of keys: of all how often each is wanted, and of those with which
 * something is going on what that is.
 *
 * An item is found by its key's memo, which says where among all items it is: a line of memory for
 * the memo, one of an array that is mostly in the caches, and the item.  Memory of items, and of
 * vectors on their way, is used again and again. */
#include "params/engine.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

#define KEPT_ITEMS 16384 /* to be used again; and of vectors so many bytes */
#define KEPT_ROWS_BYTES ((size_t)8 << 20)
#define KEPT_AHEAD 4 /* of those kept, to be fetched before they are needed */

/* memory that is used again and again */

/* NULL: there is none.  What will be taken soon is on its way from memory. */
static void *take_kept(gwi_kept *kept, size_t n_bytes)
{
    if (kept->n == 0)
        return NULL;
    kept->n--;
    for (size_t at = 0; kept->n >= KEPT_AHEAD && at < GWI_LOCAL_FETCH && at < n_bytes;
         at += GWI_LINE)
        __builtin_prefetch((unsigned char *)kept->blocks[kept->n - KEPT_AHEAD] + at, 1);
    return kept->blocks[kept->n];
}

/* Returns whether there was room. */
static int keep(gwi_kept *kept, void *block)
{
    if (kept->n == kept->capacity) {
        size_t capacity = kept->capacity == 0 ? 64 : 2 * kept->capacity;
        void **blocks = realloc(kept->blocks, capacity * sizeof *blocks);
        if (blocks == NULL)
            return 0;
        kept->blocks = blocks;
        kept->capacity = capacity;
    }
    kept->blocks[kept->n++] = block;
    return 1;
}

static void free_kept(gwi_kept *kept)
{
    while (kept->n > 0)
        free(kept->blocks[--kept->n]);
    free(kept->blocks);
}

/* items */

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

/* Returns whether there is. */
static int have_free_place(gwi_node *node)
{
    if (node->n_free_places > 0)
        return 1;
    uint32_t n = node->n_item_places, more = n == 0 ? 64 : 2 * n;
    gwi_item **items = realloc(node->items, more * sizeof(gwi_item *));
    if (items != NULL)
        node->items = items;
    uint32_t *places = items == NULL ? NULL : realloc(node->free_places, more * sizeof *places);
    if (places == NULL)
        return 0;
    node->free_places = places;
    for (node->n_item_places = more; more > n;) {
        items[--more] = NULL;
        places[node->n_free_places++] = more;
    }
    return 1;
}

static gwi_item *make_item(gwi_node *node)
{
    gwi_item *item = have_free_place(node) ? aligned_alloc(GWI_LINE, sizeof *item) : NULL;

    if (item != NULL)
        item->place = node->free_places[--node->n_free_places];
    return item;
}

gwi_item *gwi_item_get(gwi_node *node, int64_t key)
{
    gwi_item *item = gwi_item_find(node, key);

    if (item != NULL)
        return item;
    item = take_kept(&node->kept_items, sizeof *item);
    if (item == NULL)
        item = make_item(node);
    if (item == NULL) {
        gwi_fail_node(node,
                      gwi_fail(GW_ENOMEM, "what there is to remember of key %lld", (long long)key));
        return NULL;
    }
    uint32_t place = item->place;
    *item = (gwi_item){.key = key, .place = place};
    node->items[place] = item;
    node->n_items++;
    gwi_memo_of(node, key)->item_1 = place + 1;
    return item;
}

/* Flags that lie beside each other are not asked in a row: the compiler would look at several at
 * once, and the processor, before it can, has to finish all that was written lately. */
static int is_quiet(const gwi_item *item)
{
    return item->n_holders == 0 && !item->asked && item->told.values == NULL && !item->moving &&
           item->first == NULL && !item->due && item->last_word.values == NULL &&
           item->later_ns == 0 && item->awaits == NULL && item->parked == NULL;
}

void gwi_item_forget(gwi_node *node, gwi_item *item)
{
    /* A replica's term and stamp must be known.  Those of an owned key need not: without holders
     * nobody remembers a stamp, and terms never come again. */
    if (!is_quiet(item) || gwi_local_state(&node->local, item->key) == GWI_REPLICA)
        return;
    gwi_memo_of(node, item->key)->item_1 = 0;
    node->items[item->place] = NULL;
    node->n_items--;
    empty_item(item);
    if (node->kept_items.n == KEPT_ITEMS || !keep(&node->kept_items, item)) {
        node->free_places[node->n_free_places++] = item->place;
        free(item);
    }
}

gwi_item *gwi_item_next(const gwi_node *node, uint32_t *at)
{
    while (*at < node->n_item_places)
        if (node->items[(*at)++] != NULL)
            return node->items[*at - 1];
    return NULL;
}

void gwi_items_fini(gwi_node *node)
{
    gwi_item *item;

    for (uint32_t at = 0; (item = gwi_item_next(node, &at)) != NULL;) {
        empty_item(item);
        free(item);
    }
    free(node->items);
    free(node->free_places);
    free_kept(&node->kept_items);
    free(node->memos);
}

bool gwi_items_valid(const gwi_node *node)
{
    const gwi_item *item;
    size_t n = 0;

    for (uint32_t at = 0; (item = gwi_item_next(node, &at)) != NULL; n++)
        if (item->place + 1 != at || gwi_memo_of(node, item->key)->item_1 != at)
            return false;
    return n == node->n_items &&
           n + node->kept_items.n + node->n_free_places == node->n_item_places;
}

/* vectors on their way, which are kept for a moment */

size_t gwi_row_bytes(const gwi_node *node, int64_t key)
{
    return gwi_geometry_class(node->geometry, key)->row_bytes;
}

void *gwi_row_take(gwi_node *node, int64_t key)
{
    const gwi_length_class *class = gwi_geometry_class(node->geometry, key);
    void *row = take_kept(&node->kept_rows[class - node->geometry->classes], class->row_bytes);

    if (row != NULL) {
        node->kept_rows_bytes -= class->row_bytes;
        return row;
    }
    row = malloc(class->row_bytes);
    if (row == NULL)
        gwi_fail_node(node, gwi_fail(GW_ENOMEM, "a vector of %zu bytes", class->row_bytes));
    return row;
}

void gwi_row_give_back(gwi_node *node, int64_t key, void *row)
{
    const gwi_length_class *class = gwi_geometry_class(node->geometry, key);

    if (row == NULL || node->kept_rows_bytes + class->row_bytes > KEPT_ROWS_BYTES ||
        !keep(&node->kept_rows[class - node->geometry->classes], row))
        free(row);
    else
        node->kept_rows_bytes += class->row_bytes;
}

void gwi_rows_fini(gwi_node *node)
{
    for (uint32_t c = 0; node->kept_rows != NULL && c < node->geometry->n_classes; c++)
        free_kept(&node->kept_rows[c]);
    free(node->kept_rows);
}
