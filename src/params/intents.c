/* intents.c - two heaps. */
#include "params/intents.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

typedef int64_t moment(const gwi_intent *intent);

static int64_t start_of(const gwi_intent *intent)
{
    return intent->start;
}

static int64_t end_of(const gwi_intent *intent)
{
    return intent->end;
}

static int make_room(gwi_intent **heap, size_t n, size_t *room)
{
    if (n < *room)
        return 0;
    size_t more = *room == 0 ? 16 : 2 * *room;
    gwi_intent *grown = realloc(*heap, more * sizeof **heap);
    if (grown == NULL)
        return gwi_fail(GW_ENOMEM, "%zu intents", more);
    *heap = grown;
    *room = more;
    return 0;
}

static void swap(gwi_intent *a, gwi_intent *b)
{
    gwi_intent kept = *a;

    *a = *b;
    *b = kept;
}

/* Returns where it went. */
static size_t push(gwi_intent *heap, size_t *n, gwi_intent intent, moment *when)
{
    size_t at = (*n)++;

    heap[at] = intent;
    for (; at > 0 && when(&heap[at]) < when(&heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
    return at;
}

static gwi_intent pop(gwi_intent *heap, size_t *n, moment *when)
{
    gwi_intent first = heap[0];

    heap[0] = heap[--*n];
    for (size_t at = 0, child; (child = 2 * at + 1) < *n; at = child) {
        if (child + 1 < *n && when(&heap[child + 1]) < when(&heap[child]))
            child++;
        if (when(&heap[at]) <= when(&heap[child]))
            break;
        swap(&heap[at], &heap[child]);
    }
    return first;
}

void gwi_intents_fini(gwi_intents *intents)
{
    for (size_t i = 0; i < intents->n_to_come; i++)
        free(intents->to_come[i].keys);
    for (size_t i = 0; i < intents->n_in_force; i++)
        free(intents->in_force[i].keys);
    free(intents->to_come);
    free(intents->in_force);
    *intents = (gwi_intents){0};
}

int gwi_intents_add(gwi_intents *intents, const int64_t *keys, size_t n, int64_t start, int64_t end)
{
    gwi_intent intent = {start, end, n, malloc((n > 0 ? n : 1) * sizeof *keys)};

    if (intent.keys == NULL)
        return gwi_fail(GW_ENOMEM, "an intent of %zu keys", n);
    int err = make_room(&intents->to_come, intents->n_to_come, &intents->room_to_come);
    if (err < 0) {
        free(intent.keys);
        return err;
    }
    memcpy(intent.keys, keys, n * sizeof *keys);
    push(intents->to_come, &intents->n_to_come, intent, start_of);
    return 0;
}

int gwi_intents_begin(gwi_intents *intents, int64_t clock, const gwi_intent **ret_intent)
{
    *ret_intent = NULL;
    if (intents->n_to_come == 0 || intents->to_come[0].start >= clock)
        return 0;
    int err = make_room(&intents->in_force, intents->n_in_force, &intents->room_in_force);
    if (err < 0)
        return err;
    gwi_intent intent = pop(intents->to_come, &intents->n_to_come, start_of);
    *ret_intent = &intents->in_force[push(intents->in_force, &intents->n_in_force, intent, end_of)];
    return 0;
}

int gwi_intents_end(gwi_intents *intents, int64_t clock, gwi_intent *ret_intent)
{
    if (intents->n_in_force == 0 || intents->in_force[0].end > clock)
        return 0;
    *ret_intent = pop(intents->in_force, &intents->n_in_force, end_of);
    return 1;
}
