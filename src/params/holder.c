/* holder.c - what a node does to have the keys that its workers want. */
#include "params/engine.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

/* how long it takes */

/* The time of an item, which has little room: it goes round after an hour. */
static uint32_t now_us(const gwi_node *node)
{
    return (uint32_t)(node->now_ns / GWI_US);
}

/* Since the key was asked for, or something was told. */
static double took_ns(const gwi_node *node, const gwi_item *item)
{
    return 1e3 * (uint32_t)(now_us(node) - item->since_us);
}

/* wanting */

/* The home need not ask whether it may have a key: it decides.  If workers of the owner want the
 * key as well they keep a copy, so one of the two has the key and the other one a copy, as if the
 * home had asked; but if they do not, which is so for most keys, this takes two notes less. */
static void ask_for(gwi_node *node, gwi_item *item)
{
    gwi_note note = {.kind = GWI_NOTE_WANT, .node = node->id, .key = item->key};

    item->asked = 1;
    node->n_asked++;
    item->since_us = now_us(node);
    note.term = item->term = ++node->terms;
    if (node->technique == GWI_TECHNIQUE_ALL && gwi_home(node, item->key) == node->id)
        gwi_have_it_given(node, item->key);
    else
        gwi_request(node, &note, NULL, 0);
}

/* Of a key that is here nothing else is to be done.  If it has holders, the owner keeps it for them
 * anyway, or has asked the home to let one have it, which is not taken back. */
void gwi_want(gwi_node *node, int64_t key)
{
    gwi_memo_of(node, key)->wants++;
    if (gwi_local_state(&node->local, key) != GWI_ABSENT)
        return;
    gwi_item *item = gwi_item_get(node, key);
    if (item != NULL)
        gwi_reconsider(node, item);
}

void gwi_unwant(gwi_node *node, int64_t key)
{
    gwi_memo *memo = gwi_memo_of(node, key);

    assert(memo->wants > 0);
    if (--memo->wants > 0)
        return;
    uint64_t word = gwi_word_look(&node->local.store.words[key]);
    if (gwi_word_state(word) == GWI_OWNED && !(word & GWI_WORD_WATCHED))
        return; /* no other node has it */
    gwi_item *item = gwi_item_find(node, key);
    if (item == NULL)
        return;
    item->unwanted = 1;
    gwi_reconsider(node, item);
    gwi_item_forget(node, item);
}

/* Told to the owner together with the last changes.  Until it answers, operations wait: they
 * must not overtake these. */
static void drop(gwi_node *node, gwi_item *item)
{
    gwi_note note = {.kind = GWI_NOTE_TELL,
                     .flags = GWI_NOTE_DROPS,
                     .node = node->id,
                     .key = item->key,
                     .term = item->term};
    size_t n_bytes = gwi_row_bytes(node, item->key);
    void *values = gwi_row_take(node, item->key);

    if (values == NULL)
        return;
    gwi_change change = gwi_local_drop(&node->local, item->key, values);
    if (GWI_MUTANT(14))
        change = GWI_NO_CHANGE; /* dropped before its flush */
    note.seq = ++item->seq;
    item->last_word = (gwi_told){values, change, item->term, item->seq};
    node->n_last_words++;
    node->n_replicas--;
    node->stats.dropped++;
    note.flags |= change == GWI_ADD ? GWI_NOTE_ADDS : change == GWI_ASSIGN ? GWI_NOTE_ASSIGNS : 0;
    gwi_cache_note(node, item->key, item->owner);
    gwi_request_for(node, item, &note, values, change == GWI_NO_CHANGE ? 0 : n_bytes);
}

void gwi_reconsider(gwi_node *node, gwi_item *item)
{
    unsigned state = gwi_local_state(&node->local, item->key);

    if (state == GWI_OWNED) {
        if (item->n_holders > 0 && !item->moving)
            gwi_settle(node, item);
    } else if (state == GWI_REPLICA) {
        if (item->told.values == NULL && item->last_word.values == NULL &&
            !gwi_is_wanted(node, item->key))
            drop(node, item);
    } else if (!item->asked && item->last_word.values == NULL && gwi_is_wanted(node, item->key)) {
        ask_for(node, item);
    }
}

static int waits_for(gwi_node *node, const gwi_item *item, uint32_t term)
{
    return item != NULL && item->asked && item->term == term &&
           gwi_local_state(&node->local, item->key) == GWI_ABSENT;
}

static int has_replica(gwi_node *node, const gwi_item *item, uint32_t term)
{
    return item != NULL && item->term == term &&
           gwi_local_state(&node->local, item->key) == GWI_REPLICA;
}

/* Its last word is on the way. */
static int has_ended(const gwi_item *item, uint32_t term)
{
    return item != NULL && item->last_word.values != NULL && item->last_word.term == term;
}

/* A key that was asked for is here: learn how long that takes. */
void gwi_end_asking(gwi_node *node, gwi_item *item)
{
    if (!item->asked)
        return;
    gwi_timing_learn(&node->act_ns, took_ns(node, item));
    item->asked = 0;
    node->n_asked--;
}

static void begin_replica(gwi_node *node, gwi_item *item, int owner, uint64_t stamp,
                          const unsigned char *value)
{
    gwi_end_asking(node, item);
    item->owner = owner;
    item->stamp = stamp;
    item->seq = 0;
    gwi_local_copy(&node->local, item->key, value);
    if (gwi_unlikely(node->local.err < 0))
        return;
    node->n_replicas++;
    node->stats.copied++;
    gwi_line_move(node, item);
    gwi_reconsider(node, item);
}

void gwi_take_grant(gwi_node *node, int from, const gwi_note *note, const unsigned char *payload)
{
    gwi_item *item = gwi_item_find(node, note->key);

    if (waits_for(node, item, note->term)) {
        begin_replica(node, item, from, note->number, payload);
    } else if (!has_replica(node, item, note->term) && !has_ended(item, note->term)) {
        /* We have got the key meanwhile, and perhaps given it away again. */
        gwi_note no = {.kind = GWI_NOTE_TELL,
                       .flags = GWI_NOTE_DROPS | GWI_NOTE_QUIET,
                       .node = node->id,
                       .key = note->key,
                       .term = note->term};
        gwi_cache_note(node, note->key, from);
        gwi_request(node, &no, NULL, 0);
    }
}

/* News from a new owner may overtake the grant of the old one; it is as good. */
void gwi_take_refresh(gwi_node *node, int from, const gwi_note *note, const unsigned char *payload)
{
    gwi_item *item = gwi_item_find(node, note->key);

    if (waits_for(node, item, note->term) && note->flags & GWI_NOTE_READS) {
        begin_replica(node, item, from, note->number, payload);
        return;
    }
    if (!has_replica(node, item, note->term) || (note->number <= item->stamp && !GWI_MUTANT(15)))
        return;
    item->owner = from;
    item->stamp = note->number;
    int arrived = item->told.values != NULL && (note->seq == item->seq || GWI_MUTANT(16));
    if (note->flags & GWI_NOTE_READS && GWI_MUTANT(22)) /* a set is overtaken by older news */
        gwi_local_flag(&node->local, note->key, GWI_WORD_SETTING, 0);
    if (note->flags & GWI_NOTE_READS)
        gwi_local_refresh(&node->local, note->key, payload,
                          arrived || item->told.values == NULL ? GWI_NO_CHANGE : item->told.change,
                          item->told.values);
    if (arrived)
        gwi_told_arrived(node, item);
}

/* What was told is not remembered any more. */
void gwi_end_telling(gwi_node *node, gwi_item *item)
{
    if (item->told.values == NULL)
        return;
    node->told_bytes -= gwi_row_bytes(node, item->key);
    gwi_row_give_back(node, item->key, item->told.values);
    item->told.values = NULL;
}

void gwi_told_arrived(gwi_node *node, gwi_item *item)
{
    double took = took_ns(node, item);

    node->told_ns += node->told_ns == 0 ? took : (took - node->told_ns) / 64;
    gwi_note_stale(node, gwi_round_awaited_ns(node) + took);
    gwi_end_telling(node, item);
    if (item->tell_again && !GWI_MUTANT(25))
        gwi_note_key(node, &node->again, item->key);
    if (item->unwanted)
        gwi_reconsider(node, item);
}

void gwi_take_dropped(gwi_node *node, const gwi_note *note)
{
    gwi_item *item = gwi_item_find(node, note->key);

    if (!has_ended(item, note->term))
        return;
    gwi_row_give_back(node, item->key, item->last_word.values);
    item->last_word.values = NULL;
    node->n_last_words--;
    gwi_line_move(node, item);
    gwi_reconsider(node, item);
    gwi_item_forget(node, item);
}

/* telling the owner what has changed */

void gwi_tell(gwi_node *node, gwi_item *item)
{
    gwi_note note = {.kind = GWI_NOTE_TELL, .node = node->id, .key = item->key, .term = item->term};
    size_t n_bytes = gwi_row_bytes(node, item->key);

    if (item->told.values != NULL) {
        item->tell_again = 1;
        return;
    }
    void *values = gwi_row_take(node, item->key);
    if (values == NULL)
        return;
    gwi_change change = gwi_local_take_untold(&node->local, item->key, values);
    if (change == GWI_NO_CHANGE) {
        gwi_row_give_back(node, item->key, values);
        return;
    }
    note.seq = ++item->seq;
    item->told = (gwi_told){values, change, item->term, item->seq};
    node->told_bytes += n_bytes;
    note.flags = change == GWI_ADD || GWI_MUTANT(20) ? GWI_NOTE_ADDS : GWI_NOTE_ASSIGNS;
    gwi_request_for(node, item, &note, values, n_bytes);
    item->since_us = now_us(node);
    node->stats.tells++;
}
