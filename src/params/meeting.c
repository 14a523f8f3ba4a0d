/* meeting.c - waiting until replicas are in step, and until all workers have come. */
#include "params/engine.h"
#include "base/error.h"

#include <stdlib.h>

/* wait_sync.  At its beginning a worker's node notes what must happen:
 *   TOLD     a replica's changes, those on their way and those untold, have arrived
 *   DROPPED  so has the last word about a replica that ends
 *   ASKED    a key that was asked for is here, as a replica or for good
 * and asks every other node to refresh the replicas that are here. */
enum { TOLD, DROPPED, ASKED };

static void add_point(gwi_node *node, gwi_sync *sync, int what, int64_t key, uint32_t term,
                      uint32_t seq)
{
    if (sync->n_points == sync->capacity) {
        size_t capacity = sync->capacity == 0 ? 16 : 2 * sync->capacity;
        struct gwi_sync_point *grown = realloc(sync->points, capacity * sizeof *grown);
        if (grown == NULL) {
            gwi_fail_node(node, gwi_fail(GW_ENOMEM, "wait_sync for %zu keys", capacity));
            return;
        }
        sync->points = grown;
        sync->capacity = capacity;
    }
    sync->points[sync->n_points++] = (struct gwi_sync_point){key, term, seq, what};
}

static void note_points(gwi_node *node, gwi_sync *sync)
{
    gwi_hash_cursor cursor = gwi_hash_start(&node->items);
    uint64_t key, value;

    sync->n_points = 0;
    while (gwi_hash_next(&node->items, &cursor, &key, &value)) {
        const gwi_item *item = (const gwi_item *)(uintptr_t)value;
        if (item->last_word.values != NULL)
            add_point(node, sync, DROPPED, item->key, item->last_word.term, 0);
        if (item->told.values != NULL)
            add_point(node, sync, TOLD, item->key, item->term, item->seq + (uint32_t)item->tell_again);
        if (item->asked)
            add_point(node, sync, ASKED, item->key, item->term, 0);
    }
}

static int has_happened(gwi_node *node, const struct gwi_sync_point *point)
{
    const gwi_item *item = gwi_item_find(node, point->key);

    if (item == NULL)
        return 1;
    int ended = item->last_word.values == NULL || item->last_word.term != point->term;
    if (point->what == DROPPED || item->term != point->term)
        return ended;
    if (point->what == ASKED)
        return !item->asked;
    uint32_t arrived = item->seq - (item->told.values != NULL);
    return gwi_local_state(&node->local, point->key) == GWI_REPLICA
               ? (int32_t)(arrived - point->seq) >= 0
               : ended;
}

int gwi_node_begin_sync(gwi_node *node, int worker)
{
    gwi_sync *sync = &node->workers[worker].sync;
    gwi_note note = {.kind = GWI_NOTE_SYNC, .key = -1, .number = ++node->tokens};

    /* Take note of what is untold now, and of intents that are due. */
    gwi_round(node);
    note_points(node, sync);
    sync->active = 1;
    sync->token = note.number;
    sync->answers = node->nodes - 1;
    for (int n = 0; n < node->nodes; n++)
        if (n != node->id)
            gwi_send(node, n, &note, NULL, 0, NULL, 0);
    return node->err;
}

int gwi_node_is_synced(gwi_node *node, int worker)
{
    gwi_sync *sync = &node->workers[worker].sync;

    if (!sync->active)
        return 1;
    while (sync->n_points > 0 && has_happened(node, &sync->points[sync->n_points - 1]))
        sync->n_points--;
    if (sync->n_points > 0 || sync->answers > 0)
        return 0;
    sync->active = 0;
    return 1;
}

void gwi_take_sync(gwi_node *node, int from, const gwi_note *note)
{
    gwi_note synced = {.kind = GWI_NOTE_SYNCED, .key = -1, .number = note->number};

    if (!GWI_MUTANT(17))
        gwi_round(node);
    gwi_send(node, from, &synced, NULL, 0, NULL, 0);
}

void gwi_take_synced(gwi_node *node, const gwi_note *note)
{
    for (int w = 0; w < node->workers_n; w++)
        if (node->workers[w].sync.active && node->workers[w].sync.token == note->number)
            node->workers[w].sync.answers--;
}

/* Barriers.  A node tells node 0 when its workers have come to barrier g; node 0 tells all when
 * all nodes have.  A node whose workers have all finished says so once, with FOREVER. */
#define FOREVER UINT64_MAX

int gwi_node_arrive(gwi_node *node, int worker)
{
    node->workers[worker].barriers++;
    return node->err;
}

int gwi_node_is_released(const gwi_node *node, int worker)
{
    return node->released >= node->workers[worker].barriers;
}

/* The barrier to which all workers here have come. */
static uint64_t come_to(const gwi_node *node)
{
    uint64_t least = FOREVER;

    for (int w = 0; w < node->workers_n; w++)
        if (!node->workers[w].finished && node->workers[w].barriers < least)
            least = node->workers[w].barriers;
    return least;
}

int gwi_meeting_is_idle(const gwi_node *node)
{
    return come_to(node) <= node->arrived_for;
}

void gwi_meeting_step(gwi_node *node)
{
    uint64_t come = come_to(node);
    gwi_note note = {.kind = GWI_NOTE_ARRIVE, .key = -1, .number = come};

    if (come > node->arrived_for) {
        node->arrived_for = come;
        gwi_send(node, 0, &note, NULL, 0, NULL, 0);
    }
}

void gwi_take_arrive(gwi_node *node, int from, const gwi_note *note)
{
    uint64_t least = FOREVER;

    node->arrived_generation[from] = note->number;
    for (int n = 0; n < node->nodes; n++)
        least = node->arrived_generation[n] < least ? node->arrived_generation[n] : least;
    gwi_note release = {.kind = GWI_NOTE_RELEASE, .key = -1, .number = least};
    for (int n = 0; n < node->nodes && least > node->released; n++)
        if (n != node->id)
            gwi_send(node, n, &release, NULL, 0, NULL, 0);
    node->released = least > node->released ? least : node->released;
}

void gwi_take_release(gwi_node *node, const gwi_note *note)
{
    node->released = note->number > node->released ? note->number : node->released;
}
