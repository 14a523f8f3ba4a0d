/* agenda.c - a heap with an index. */
#include "fabric/sim/agenda.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

#define CHILDREN 4 /* an entry's children share a line or two */

int gwi_agenda_init(gwi_agenda *a, uint32_t n_items)
{
    *a = (gwi_agenda){.n_items = n_items};
    a->entries = calloc(n_items, sizeof *a->entries);
    a->where = calloc(n_items, sizeof *a->where);
    if (a->entries == NULL || a->where == NULL) {
        gwi_agenda_fini(a);
        return gwi_fail(GW_ENOMEM, "an agenda of %u items", n_items);
    }
    return 0;
}

void gwi_agenda_fini(gwi_agenda *a)
{
    free(a->entries);
    free(a->where);
    *a = (gwi_agenda){0};
}

static void set(gwi_agenda *a, uint32_t i, gwi_agenda_entry entry)
{
    a->entries[i] = entry;
    a->where[entry.item] = i + 1;
}

/* Move the hole at `i` up to where `entry` belongs. */
static void rise(gwi_agenda *a, uint32_t i, gwi_agenda_entry entry)
{
    while (i > 0) {
        uint32_t parent = (i - 1) / CHILDREN;
        if (a->entries[parent].at_ns <= entry.at_ns)
            break;
        set(a, i, a->entries[parent]);
        i = parent;
    }
    set(a, i, entry);
}

static uint32_t earliest_child(const gwi_agenda *a, uint32_t i)
{
    uint32_t first = i * CHILDREN + 1, best = first;

    for (uint32_t c = first + 1; c < first + CHILDREN && c < a->n; c++)
        if (a->entries[c].at_ns < a->entries[best].at_ns)
            best = c;
    return best;
}

/* Move the hole at `i` down to where `entry` belongs. */
static void sink(gwi_agenda *a, uint32_t i, gwi_agenda_entry entry)
{
    while (i * CHILDREN + 1 < a->n) {
        uint32_t child = earliest_child(a, i);
        if (a->entries[child].at_ns >= entry.at_ns)
            break;
        set(a, i, a->entries[child]);
        i = child;
    }
    set(a, i, entry);
}

static void settle(gwi_agenda *a, uint32_t i, gwi_agenda_entry entry)
{
    if (i > 0 && a->entries[(i - 1) / CHILDREN].at_ns > entry.at_ns)
        rise(a, i, entry);
    else
        sink(a, i, entry);
}

void gwi_agenda_put(gwi_agenda *a, uint32_t item, int64_t at_ns)
{
    assert(item < a->n_items);
    if (a->where[item] == 0)
        rise(a, a->n++, (gwi_agenda_entry){at_ns, item});
    else
        settle(a, a->where[item] - 1, (gwi_agenda_entry){at_ns, item});
}

void gwi_agenda_drop(gwi_agenda *a, uint32_t item)
{
    uint32_t i = a->where[item];

    if (i == 0)
        return;
    a->where[item] = 0;
    gwi_agenda_entry last = a->entries[--a->n];
    if (last.item != item)
        settle(a, i - 1, last);
}

int gwi_agenda_take(gwi_agenda *a, gwi_agenda_entry *ret_entry)
{
    if (a->n == 0)
        return 0;
    *ret_entry = a->entries[0];
    gwi_agenda_drop(a, ret_entry->item);
    return 1;
}

int gwi_agenda_valid(const gwi_agenda *a)
{
    uint32_t n_in = 0;

    for (uint32_t i = 0; i < a->n; i++)
        if (a->where[a->entries[i].item] != i + 1 ||
            (i > 0 && a->entries[(i - 1) / CHILDREN].at_ns > a->entries[i].at_ns))
            return 0;
    for (uint32_t item = 0; item < a->n_items; item++)
        n_in += a->where[item] != 0;
    return n_in == a->n;
}
