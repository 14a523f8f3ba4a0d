/* meeting.c - waiting until replicas are in step, and until all workers have come. */
#include "params/engine.h"
#include "base/error.h"

#include <stdlib.h>

/* wait_sync.  At its beginning a worker's node notes what must happen:
 *   TOLD     a replica's changes, those on their way and those untold, have arrived
 *   DROPPED  so has the last word about a replica that ends
 *   WANTED   a key that workers want is here, as a replica or for good
 * and asks every other node to refresh the replicas that are here. */
enum { TOLD, DROPPED, WANTED };

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
    const gwi_item *item;

    sync->n_points = 0;
    for (uint32_t at = 0; (item = gwi_item_next(node, &at)) != NULL;) {
        if (item->last_word.values != NULL)
            add_point(node, sync, DROPPED, item->key, item->last_word.term, 0);
        if (item->told.values != NULL)
            add_point(node, sync, TOLD, item->key, item->term,
                      item->seq + (uint32_t)item->tell_again);
    }
}

static void note_wanted(gwi_node *node, gwi_sync *sync)
{
    for (int w = 0; w < node->workers_n; w++) {
        const gwi_intents *intents = &node->workers[w].intents;
        for (size_t i = 0; i < intents->n_in_force; i++)
            for (size_t k = 0; k < intents->in_force[i].n; k++) {
                int64_t key = intents->in_force[i].keys[k];
                if (gwi_local_state(&node->local, key) == GWI_ABSENT)
                    add_point(node, sync, WANTED, key, 0, 0);
            }
    }
}

/* If keys only move, one that others want too may come and be gone again: it has been asked for. */
static int has_come(gwi_node *node, const gwi_item *item)
{
    return !gwi_is_wanted(node, item->key) ||
           gwi_local_state(&node->local, item->key) != GWI_ABSENT ||
           (node->technique == GWI_TECHNIQUE_RELOCATION && !item->asked &&
            item->last_word.values == NULL);
}

static int has_happened(gwi_node *node, const struct gwi_sync_point *point)
{
    const gwi_item *item = gwi_item_find(node, point->key);

    if (item == NULL)
        return 1;
    if (point->what == WANTED)
        return has_come(node, item);
    int ended = item->last_word.values == NULL || item->last_word.term != point->term;
    if (point->what == DROPPED || item->term != point->term)
        return ended;
    if (gwi_local_state(&node->local, point->key) != GWI_REPLICA)
        return ended;
    /* What was marked again may have gone with what was told already: then there is nothing. */
    if (item->told.values == NULL && !item->tell_again &&
        !gwi_local_is_marked(&node->local, point->key))
        return 1;
    uint32_t arrived = item->seq - (item->told.values != NULL);
    return (int32_t)(arrived - point->seq) >= 0;
}

int gwi_node_begin_sync(gwi_node *node, int worker)
{
    gwi_sync *sync = &node->workers[worker].sync;
    gwi_note note = {.kind = GWI_NOTE_SYNC, .key = -1, .number = ++node->tokens};

    /* Take note of what is untold now, and of intents that are due. */
    if (!GWI_MUTANT(23))
        gwi_act_due(node, worker);
    gwi_round(node, 0);
    note_points(node, sync);
    note_wanted(node, sync);
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
        gwi_round(node, 1);
    gwi_send(node, from, &synced, NULL, 0, NULL, 0);
}

void gwi_take_synced(gwi_node *node, const gwi_note *note)
{
    for (int w = 0; w < node->workers_n; w++)
        if (node->workers[w].sync.active && node->workers[w].sync.token == note->number)
            node->workers[w].sync.answers--;
}

/* Barriers.  The nodes form a tree, each with up to GWI_FAN children, node 0 on top.  A node tells
 * its parent when its workers, and all nodes below it, have come to barrier g; when node 0 knows
 * that all have, it tells its children, and they theirs.  Workers that have finished count as
 * come to all barriers, FOREVER. */
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

static int child(const gwi_node *node, int i)
{
    return node->id * GWI_FAN + 1 + i;
}

/* The barrier to which all workers here have come, and those of all nodes below. */
static uint64_t come_to(const gwi_node *node)
{
    uint64_t least = FOREVER;

    for (int w = 0; w < node->workers_n; w++)
        if (!node->workers[w].finished && node->workers[w].barriers < least)
            least = node->workers[w].barriers;
    for (int i = 0; i < GWI_FAN && child(node, i) < node->nodes; i++)
        least = node->arrived_below[i] < least ? node->arrived_below[i] : least;
    return least;
}

int gwi_meeting_is_idle(const gwi_node *node)
{
    return come_to(node) <= node->arrived_for;
}

static void release(gwi_node *node, uint64_t generation)
{
    gwi_note note = {.kind = GWI_NOTE_RELEASE, .key = -1, .number = generation};

    node->released = generation;
    for (int i = 0; i < GWI_FAN && child(node, i) < node->nodes; i++)
        gwi_send(node, child(node, i), &note, NULL, 0, NULL, 0);
}

void gwi_meeting_step(gwi_node *node)
{
    uint64_t come = come_to(node);
    gwi_note note = {.kind = GWI_NOTE_ARRIVE, .key = -1, .number = come};

    if (come <= node->arrived_for)
        return;
    node->arrived_for = come;
    if (node->id == 0)
        release(node, come);
    else
        gwi_send(node, (node->id - 1) / GWI_FAN, &note, NULL, 0, NULL, 0);
}

void gwi_take_arrive(gwi_node *node, int from, const gwi_note *note)
{
    if ((from - 1) / GWI_FAN == node->id)
        node->arrived_below[(from - 1) % GWI_FAN] = note->number;
}

void gwi_take_release(gwi_node *node, const gwi_note *note)
{
    release(node, note->number);
}
