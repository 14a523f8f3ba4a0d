/* owner.c - what the owner of a key does, and the key's home, which decides who that is.
 *
 * All changes of ownership are decided by the key's home, one after the other.  It tells the
 * owner to give the key away and from then on sends requests to the new one.  On the way
 * from the home to a node notes keep their order; so what the home sends to a node reaches it
 * before the home's next decision does, and is served there: now, or when the key arrives. */
#include "params/engine.h"
#include "base/error.h"

#include <assert.h>
#include <stdlib.h>

/* finding the owner */

static void park(gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    gwi_item *item = gwi_item_get(node, note->key);
    gwi_parked *parked = malloc(sizeof *parked + note->n_bytes);

    if (item == NULL || parked == NULL) {
        free(parked);
        gwi_fail_node(node, gwi_fail(GW_ENOMEM, "a request for key %lld", (long long)note->key));
        return;
    }
    parked->next = NULL;
    parked->note = *note;
    if (note->n_bytes > 0)
        memcpy(parked->payload, payload, note->n_bytes);
    if (item->parked == NULL)
        item->parked = parked;
    else
        item->last_parked->next = parked;
    item->last_parked = parked;
}

static void pass_on(gwi_node *node, int to, gwi_note *note, const void *payload)
{
    note->hops++;
    node->stats.hops++;
    assert(note->hops <= 2); /* to a node that was the owner, the home, the owner */
    gwi_send(node, to, note, payload, note->n_bytes, NULL, 0);
}

static void serve(gwi_node *node, gwi_note *note, const unsigned char *payload);

void gwi_route(gwi_node *node, gwi_note *note, const unsigned char *payload)
{
    int home = gwi_home(node, note->key), follows = note->flags & GWI_NOTE_FOLLOWS;

    if (gwi_local_state(&node->local, note->key) == GWI_OWNED &&
        !gwi_takes_the_long_way(node, note, note->key, follows)) {
        serve(node, note, payload);
    } else if (home == node->id) {
        int owner = gwi_directory(node, note->key)->owner;
        note->flags |= GWI_NOTE_BY_HOME;
        if (owner == node->id)
            park(node, note, payload);
        else
            pass_on(node, owner, note, payload);
    } else if (note->flags & GWI_NOTE_BY_HOME) {
        if (GWI_MUTANT(2)) { /* a request that comes before the key is sent away again */
            note->flags &= (uint8_t)~GWI_NOTE_BY_HOME;
            pass_on(node, home, note, payload);
            return;
        }
        park(node, note, payload);
    } else {
        pass_on(node, home, note, payload);
    }
}

int gwi_way_to(const gwi_node *node, int64_t key, uint8_t *flags)
{
    if (gwi_home(node, key) != node->id)
        return gwi_cache_look(node, key);
    *flags |= GWI_NOTE_BY_HOME;
    return gwi_directory(node, key)->owner;
}

void gwi_request(gwi_node *node, gwi_note *note, const void *payload, size_t n_bytes)
{
    int to = gwi_way_to(node, note->key, &note->flags);

    gwi_send(node, to, note, payload, n_bytes, NULL, 0);
}

/* The same about a replica, which knows itself who the owner is. */
void gwi_request_for(gwi_node *node, const gwi_item *replica, gwi_note *note, const void *payload,
                     size_t n_bytes)
{
    int home = gwi_home(node, note->key), to = replica->owner;

    if (home == node->id)
        to = gwi_way_to(node, note->key, &note->flags);
    else if (GWI_MUTANT(1) && note->flags & GWI_NOTE_DROPS)
        to = home; /* the long way, so that it is overtaken */
    gwi_send(node, to, note, payload, n_bytes, NULL, 0);
}

/* holders */

static gwi_holder *find_holder(gwi_item *item, int node, uint32_t term)
{
    for (int i = 0; i < item->n_holders; i++)
        if (item->holders[i].node == node && item->holders[i].term == term)
            return &item->holders[i];
    return NULL;
}

static gwi_holder *add_holder(gwi_node *node, gwi_item *item, gwi_holder holder)
{
    if (item->holders == NULL) {
        item->holders = item->few;
        item->holders_capacity = sizeof item->few / sizeof item->few[0];
    }
    if (item->n_holders == item->holders_capacity) {
        int capacity = 4 * item->holders_capacity;
        gwi_holder *grown = malloc((size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            gwi_fail_node(node, gwi_fail(GW_ENOMEM, "replicas of key %lld", (long long)item->key));
            return NULL;
        }
        memcpy(grown, item->holders, (size_t)item->n_holders * sizeof *grown);
        if (item->holders != item->few)
            free(item->holders);
        item->holders = grown;
        item->holders_capacity = capacity;
    }
    item->holders[item->n_holders] = holder;
    return &item->holders[item->n_holders++];
}

static void remove_holder(gwi_item *item, gwi_holder *holder)
{
    *holder = item->holders[--item->n_holders];
}

static int n_granted(const gwi_item *item)
{
    int n = 0;

    for (int i = 0; i < item->n_holders; i++)
        n += item->holders[i].granted;
    return n;
}

static int has_replica_elsewhere(const gwi_item *item, int than_on)
{
    for (int i = 0; i < item->n_holders; i++)
        if (item->holders[i].granted && item->holders[i].node != than_on)
            return 1;
    return 0;
}

static void make_stale(gwi_item *item, const gwi_holder *but)
{
    for (int i = 0; i < item->n_holders; i++)
        if (&item->holders[i] != but)
            item->holders[i].stale = 1;
}

/* What workers here have changed is known from now on: what they change next is marked again. */
static void see(gwi_node *node, gwi_item *item)
{
    if (!item->unseen)
        return;
    item->unseen = 0;
    gwi_local_see(&node->local, item->key);
    if (!GWI_MUTANT(24))
        make_stale(item, NULL);
}

/* Somebody watches: changes by our workers are marked. */
static void set_watched(gwi_node *node, gwi_item *item)
{
    see(node, item);
    gwi_local_flag(&node->local, item->key, GWI_WORD_WATCHED,
                   n_granted(item) > 0 && !GWI_MUTANT(3));
}

int gwi_note_key(gwi_node *node, gwi_keys_noted *keys, int64_t key)
{
    if (keys->n == keys->capacity) {
        size_t capacity = keys->capacity == 0 ? 64 : 2 * keys->capacity;
        int64_t *grown = realloc(keys->key, capacity * sizeof *grown);
        if (grown == NULL) {
            gwi_fail_node(node, gwi_fail(GW_ENOMEM, "%zu keys with news", capacity));
            return 0;
        }
        keys->key = grown;
        keys->capacity = capacity;
    }
    keys->key[keys->n++] = key;
    return 1;
}

static void make_due(gwi_node *node, gwi_item *item)
{
    if (!item->due)
        item->due = (uint8_t)gwi_note_key(node, &node->due, item->key);
}

/* When that time comes.  A deadline that is in the list and later says nothing from then on. */
static void make_due_later(gwi_node *node, gwi_item *item, int64_t at_ns)
{
    if (item->later_ns > 0 && item->later_ns <= at_ns)
        return;
    item->later_ns = at_ns;
    int err = GWI_MUTANT(30) ? 0 : gwi_deadlines_add(&node->later, at_ns, item->key);
    if (err < 0)
        gwi_fail_node(node, err);
}

/* When the patience of a holder that lacks something ends: it has not heard anything for a while.
 * Who tells us something every now and then will hear it the next time. */
static int64_t waits_until(const gwi_node *node, const gwi_holder *h)
{
    int64_t often = 2 * h->often_ns, patience = node->patience_ns;

    if (often > patience)
        patience = often < GWI_MOST_PATIENCE_NS ? often : GWI_MOST_PATIENCE_NS;
    return h->heard_ns + patience;
}

/* A holder hears what it lacked.  If it heard the time before so long ago that it would have been
 * told at once, the change is new, and has only waited for a round; else it may be of any moment
 * since then. */
static void note_stale(gwi_node *node, const gwi_holder *h)
{
    double waited = (double)(node->now_ns - h->heard_ns) / 2;
    double longest = (double)(waits_until(node, h) - h->heard_ns) + node->between_ns;

    gwi_note_stale(node, (2 * waited <= longest ? waited : gwi_round_awaited_ns(node)) +
                             node->told_ns / 2);
}

/* `value`: what the vector is, or was when we gave it away; NULL: look. */
static void refresh(gwi_node *node, gwi_item *item, gwi_holder *h, const void *value)
{
    gwi_note note = {.kind = GWI_NOTE_REFRESH,
                     .key = item->key,
                     .number = ++item->stamp,
                     .term = h->term,
                     .seq = h->seq};
    /* What another owner sent may still be on its way, so only we know what is missing there
     * if its last vector came from us. */
    int whole = h->stale || item->unseen || !h->by_us;
    size_t n_bytes = whole ? gwi_row_bytes(node, item->key) : 0;

    if (whole)
        note.flags |= GWI_NOTE_READS;
    void *room = gwi_send_room(node, h->node, &note, n_bytes);
    if (room == NULL)
        return;
    if (whole && value != NULL)
        memcpy(room, value, n_bytes);
    else if (whole)
        gwi_local_read(&node->local, item->key, room);
    node->stats.refreshes++;
    if (h->stale || item->unseen)
        note_stale(node, h);
    h->stale = h->ack = 0;
    h->by_us = 1;
    h->heard_ns = node->now_ns;
}

/* Who has told us something hears that it has arrived, and what else it lacks; in the next round if
 * messages do not get through. */
static void answer_tell(gwi_node *node, gwi_item *item, gwi_holder *h)
{
    if (gwi_post_is_full(node, h->node))
        make_due(node, item);
    else
        refresh(node, item, h, NULL);
}

/* Tell the holders what they lack, all or those whose time has come; the others, later.  So a
 * replica that is in use is refreshed as often as it is changed there, whatever others do, and one
 * that nobody uses, rarely; and none faster than messages get through. */
void gwi_refresh_holders(gwi_node *node, gwi_item *item, int all)
{
    int64_t later_ns = INT64_MAX;
    int granted = 0;

    for (int i = 0; i < item->n_holders; i++) {
        gwi_holder *h = &item->holders[i];
        granted += h->granted;
        if (!h->granted || !(h->stale || h->ack || item->unseen))
            continue;
        if (all || (node->now_ns >= waits_until(node, h) && !gwi_post_is_full(node, h->node))) {
            see(node, item);
            refresh(node, item, h, NULL);
        } else if (h->ack) {
            answer_tell(node, item, h);
        }
        if ((h->stale || item->unseen) && waits_until(node, h) < later_ns)
            later_ns = waits_until(node, h);
    }
    if (granted == 0)
        see(node, item);
    else if (later_ns < INT64_MAX)
        make_due_later(node, item, later_ns);
}

/* Workers of this node have changed the vector.  Until some holder's patience has ended the mark
 * stays, so that further changes cost nobody anything. */
void gwi_changed_here(gwi_node *node, gwi_item *item, int all)
{
    item->unseen = 1;
    gwi_refresh_holders(node, item, all);
}

/* The key has left with this value: the holders hear all that we knew. */
static void refresh_after(gwi_node *node, gwi_item *item, int but, const void *value)
{
    for (int i = 0; i < item->n_holders; i++) {
        gwi_holder *h = &item->holders[i];
        if (h->granted && h->node != but && (h->stale || h->ack))
            refresh(node, item, h, value);
    }
}

static void grant(gwi_node *node, gwi_item *item, gwi_holder *h)
{
    gwi_note note = {
        .kind = GWI_NOTE_GRANT, .key = item->key, .number = ++item->stamp, .term = h->term};

    see(node, item);
    /* First watched, then read: a change by a worker in between is marked. */
    gwi_local_flag(&node->local, item->key, GWI_WORD_WATCHED, !GWI_MUTANT(3));
    gwi_local_read(&node->local, item->key, node->scratch);
    gwi_send(node, h->node, &note, node->scratch, gwi_row_bytes(node, item->key), NULL, 0);
    h->granted = h->by_us = 1;
    h->stale = 0;
    h->heard_ns = node->now_ns;
    node->stats.grants++;
}

static void ask_to_move(gwi_node *node, gwi_item *item, int to)
{
    gwi_note note = {
        .kind = GWI_NOTE_MOVE, .node = to, .key = item->key, .number = (uint64_t)node->id};

    if (item->moving)
        return;
    item->moving = 1;
    gwi_send(node, gwi_home(node, item->key), &note, NULL, 0, NULL, 0);
}

/* Decide for an owned key who gets it and who gets a replica: if one node alone wants it, it
 * gets the key; else all that want it get replicas. */
void gwi_settle(gwi_node *node, gwi_item *item)
{
    gwi_holder *only = NULL, *newest = NULL;
    int n = 0;

    assert(gwi_local_state(&node->local, item->key) == GWI_OWNED);
    for (int i = 0; i < item->n_holders; i++) {
        gwi_holder *h = &item->holders[i];
        if (h->tombstone)
            continue;
        n++;
        only = h;
        if (!h->granted)
            newest = h;
    }
    if (node->technique == GWI_TECHNIQUE_RELOCATION) {
        if (newest != NULL)
            ask_to_move(node, item, newest->node);
    } else if (n == 1 && node->technique == GWI_TECHNIQUE_ALL && !gwi_is_wanted(node, item->key)) {
        ask_to_move(node, item, only->node);
    } else {
        for (int i = 0; i < item->n_holders; i++)
            if (!item->holders[i].granted && !item->holders[i].tombstone)
                grant(node, item, &item->holders[i]);
    }
    set_watched(node, item);
}

/* serving */

/* A granted replica of the asker that lacks what it asked for would hide its own writes from
 * it: so news goes before the answer. */
static void refresh_asker(gwi_node *node, int asker, int64_t key)
{
    gwi_item *item = gwi_item_find(node, key);

    for (int i = 0; item != NULL && i < item->n_holders; i++)
        if (item->holders[i].node == asker && item->holders[i].granted && !GWI_MUTANT(4)) {
            item->holders[i].stale = 1;
            refresh(node, item, &item->holders[i], NULL);
        }
}

static void serve_ask(gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    gwi_note answer = {.kind = GWI_NOTE_ANSWER,
                       .flags = note->flags & GWI_NOTE_READS,
                       .key = note->key,
                       .number = note->number};
    gwi_change change = gwi_change_in(note);
    size_t n_bytes = note->flags & GWI_NOTE_READS ? gwi_row_bytes(node, note->key) : 0;

    if (change != GWI_NO_CHANGE) {
        gwi_local_apply(&node->local, note->key, change, payload);
        refresh_asker(node, note->node, note->key);
    }
    void *room = gwi_send_room(node, note->node, &answer, n_bytes);
    if (room != NULL && n_bytes > 0)
        gwi_local_read(&node->local, note->key, room);
}

static void decide(gwi_node *node, int64_t key, int new_owner);

/* Nobody else has or wants the key, its home is here, and no earlier decision is under way. */
static int can_decide_at_once(gwi_node *node, int64_t key)
{
    return gwi_home(node, key) == node->id && node->technique == GWI_TECHNIQUE_ALL &&
           gwi_has_heard_itself(node) && !gwi_is_wanted(node, key) &&
           gwi_item_find(node, key) == NULL;
}

/* An older WANT of the same node that comes late is of no use to anybody, and neither is the
 * entry of an older one when a newer comes. */
static void serve_want(gwi_node *node, const gwi_note *note)
{
    if (note->node == node->id)
        return;
    if (can_decide_at_once(node, note->key)) {
        decide(node, note->key, note->node);
        return;
    }
    gwi_item *item = gwi_item_get(node, note->key);
    if (item == NULL)
        return;
    for (int i = 0; i < item->n_holders; i++) {
        gwi_holder *h = &item->holders[i];
        if (h->node != note->node || h->tombstone)
            continue;
        if ((int32_t)(h->term - note->term) >= 0)
            return;
        remove_holder(item, h);
        break;
    }
    add_holder(node, item, (gwi_holder){.node = note->node, .term = note->term});
    gwi_settle(node, item);
}

static void say_dropped(gwi_node *node, const gwi_note *note)
{
    gwi_note dropped = {.kind = GWI_NOTE_DROPPED, .key = note->key, .term = note->term};

    if (note->flags & GWI_NOTE_DROPS && !(note->flags & GWI_NOTE_QUIET))
        gwi_send(node, note->node, &dropped, NULL, 0, NULL, 0);
}

static void serve_tell(gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    gwi_item *item = gwi_item_get(node, note->key);
    gwi_holder *h = item == NULL ? NULL : find_holder(item, note->node, note->term);
    gwi_change change = gwi_change_in(note);

    if (h == NULL || (h->tombstone && !GWI_MUTANT(5))) {
        /* The holder has counted it itself, or never had the replica that it ends. */
        assert(h != NULL || change == GWI_NO_CHANGE);
        /* A grant that came late is refused with the term of a replica that news had begun
         * before: what that one told, the tombstone still waits for. */
        if (h != NULL && !(note->flags & GWI_NOTE_QUIET))
            remove_holder(item, h);
        say_dropped(node, note);
    } else {
        if (change != GWI_NO_CHANGE && !GWI_MUTANT(6)) {
            gwi_local_apply_unmarked(&node->local, note->key, change, payload);
            if (item->n_holders > 1 && !GWI_MUTANT(7)) {
                make_stale(item, h);
                make_due(node, item);
            }
        }
        h->seq = note->seq;
        h->ack = 1;
        h->often_ns = h->told_ns == 0 ? 0 : node->now_ns - h->told_ns;
        h->told_ns = node->now_ns;
        if (note->flags & GWI_NOTE_DROPS) {
            remove_holder(item, h);
            say_dropped(node, note);
            gwi_settle(node, item);
        } else {
            answer_tell(node, item, h);
        }
    }
    if (item != NULL)
        gwi_item_forget(node, item);
}

static void serve(gwi_node *node, gwi_note *note, const unsigned char *payload)
{
    node->stats.requests++;
    switch (note->kind) {
    case GWI_NOTE_ASK:
        serve_ask(node, note, payload);
        break;
    case GWI_NOTE_WANT:
        serve_want(node, note);
        break;
    case GWI_NOTE_TELL:
        serve_tell(node, note, payload);
        break;
    default:
        assert(0);
    }
}

/* the home */

static void decide(gwi_node *node, int64_t key, int new_owner)
{
    gwi_place_of_key *place = gwi_directory(node, key);
    gwi_note give = {.kind = GWI_NOTE_GIVE, .node = new_owner, .key = key, .seq = ++place->tenure};
    int old_owner = place->owner;

    assert(new_owner != old_owner);
    place->owner = GWI_MUTANT(18) ? old_owner : new_owner;
    /* At once if nothing that we said to ourselves is before it, such as an earlier GIVE. */
    if (old_owner == node->id && gwi_has_heard_itself(node))
        gwi_take_give(node, &give);
    else
        gwi_send(node, old_owner, &give, NULL, 0, NULL, 0);
}

void gwi_take_localize(gwi_node *node, const gwi_note *note)
{
    if (gwi_directory(node, note->key)->owner != note->node)
        decide(node, note->key, note->node);
}

void gwi_have_it_given(gwi_node *node, int64_t key)
{
    gwi_note note = {.kind = GWI_NOTE_LOCALIZE, .node = node->id, .key = key};

    if (gwi_home(node, key) == node->id && gwi_has_heard_itself(node))
        gwi_take_localize(node, &note);
    else
        gwi_send(node, gwi_home(node, key), &note, NULL, 0, NULL, 0);
}

/* If the owner changed since it asked, whoever it is now knows who wants the key. */
void gwi_take_move(gwi_node *node, const gwi_note *note)
{
    if (gwi_directory(node, note->key)->owner == (int)note->number || GWI_MUTANT(8))
        decide(node, note->key, note->node);
}

/* handing over */

/* Our workers still need the key. */
static int keeps_replica(const gwi_node *node, int64_t key)
{
    return node->technique != GWI_TECHNIQUE_RELOCATION && gwi_is_wanted(node, key);
}

static int list_holders(const gwi_item *item, gwi_note *transfer, gwi_note_holder *list)
{
    int n = 0;

    for (int i = 0; i < item->n_holders; i++) {
        const gwi_holder *h = &item->holders[i];
        if (h->node == transfer->node && !h->tombstone) {
            transfer->flags |= GWI_NOTE_WAS_HOLDER;
            transfer->term = h->term;
            transfer->n = h->seq - (GWI_MUTANT(19) && h->seq > 0);
            continue;
        }
        if (GWI_MUTANT(9) && i == 0)
            continue; /* forgets a holder */
        list[n++] = (gwi_note_holder){h->node, h->term, h->seq, h->tombstone ? 2u : h->granted};
    }
    return n;
}

/* What the new owner needs: vector, holders.  When the vector is out of our workers' reach, and
 * not before, we know what the holders lack. */
static void hand_over(gwi_node *node, gwi_item *item, int to, uint32_t tenure)
{
    gwi_note note = {.kind = GWI_NOTE_TRANSFER, .node = to, .key = item->key, .seq = tenure};
    gwi_note_holder few[8], *list = few;
    int keeps = keeps_replica(node, item->key);

    if (item->n_holders >= (int)(sizeof few / sizeof few[0]))
        list = malloc((size_t)(item->n_holders + 1) * sizeof *list);
    if (list == NULL) {
        gwi_fail_node(node, gwi_fail(GW_ENOMEM, "replicas of key %lld", (long long)item->key));
        return;
    }
    gwi_local_disown(&node->local, item->key, keeps, node->scratch2);
    if (gwi_unlikely(node->local.err < 0))
        goto free_list;
    if (has_replica_elsewhere(item, to) &&
        (item->unseen || gwi_local_is_marked(&node->local, item->key)) && !GWI_MUTANT(21))
        make_stale(item, NULL);
    item->unseen = 0;
    refresh_after(node, item, to, node->scratch2);
    int n = list_holders(item, &note, list);
    if (keeps) {
        node->n_replicas++;
        node->stats.copied++;
        item->term = ++node->terms;
        item->seq = 0;
        item->owner = to;
        list[n++] = (gwi_note_holder){node->id, item->term, 0, 1};
    }
    note.number = item->stamp;
    gwi_send(node, to, &note, node->scratch2, gwi_row_bytes(node, item->key), list,
             (size_t)n * sizeof *list);
    item->n_holders = 0;
    item->moving = 0;
    item->tenure = 0;
    gwi_cache_note(node, item->key, to);
free_list:
    if (list != few)
        free(list);
}

/* The same for a key of which nothing is to be remembered: from its place into the message. */
static void hand_over_plainly(gwi_node *node, int64_t key, int to, uint32_t tenure)
{
    gwi_note note = {.kind = GWI_NOTE_TRANSFER, .node = to, .key = key, .seq = tenure};
    void *room = gwi_send_room(node, to, &note, gwi_row_bytes(node, key));

    if (room != NULL)
        gwi_local_disown(&node->local, key, 0, room);
    gwi_cache_note(node, key, to);
}

void gwi_take_give(gwi_node *node, const gwi_note *note)
{
    if (gwi_local_state(&node->local, note->key) != GWI_OWNED) {
        park(node, note, NULL);
        return;
    }
    gwi_item *item = keeps_replica(node, note->key) ? gwi_item_get(node, note->key)
                                                    : gwi_item_find(node, note->key);
    if (item == NULL) {
        hand_over_plainly(node, note->key, note->node, note->seq);
        return;
    }
    assert(item->tenure == 0 || item->tenure == note->seq - 1 || GWI_MUTANT(8));
    hand_over(node, item, note->node, note->seq);
    gwi_item_forget(node, item);
}

/* Serve what came before the key did, until it is to be given away again. */
static void unpark(gwi_node *node, gwi_item *item)
{
    if (GWI_MUTANT(10)) { /* loses the queue */
        while (item->parked != NULL && item->parked->note.kind != GWI_NOTE_GIVE) {
            gwi_parked *gone = item->parked;
            item->parked = gone->next;
            free(gone);
        }
    }
    while (item->parked != NULL && node->local.err == 0 &&
           gwi_local_state(&node->local, item->key) == GWI_OWNED) {
        gwi_parked *parked = item->parked;
        item->parked = parked->next;
        if (parked->note.kind == GWI_NOTE_GIVE) {
            assert(item->tenure == parked->note.seq - 1 || GWI_MUTANT(8));
            hand_over(node, item, parked->note.node, parked->note.seq);
        } else {
            int64_t key = item->key;
            serve(node, &parked->note, parked->payload);
            item = gwi_item_get(node, key); /* a served note may let it be forgotten */
        }
        free(parked);
        if (item == NULL)
            return;
    }
}

/* The holders, and those whose changes we have counted already. */
static void take_holders(gwi_node *node, gwi_item *item, const gwi_note *note,
                         const unsigned char *payload)
{
    size_t row = gwi_row_bytes(node, item->key);
    gwi_note_holder listed;

    assert(note->n_bytes >= row);
    for (size_t at = row; at + sizeof listed <= note->n_bytes; at += sizeof listed) {
        memcpy(&listed, payload + at, sizeof listed);
        add_holder(node, item,
                   (gwi_holder){.node = listed.node,
                                .term = listed.term,
                                .seq = listed.seq,
                                .heard_ns = node->now_ns,
                                .granted = listed.granted == 1,
                                .tombstone = listed.granted == 2});
    }
}

/* Our replica becomes the key.  What we told and has not arrived is counted now; when it
 * arrives, here or wherever the key is then, the tombstone tells that it was. */
static int count_told(gwi_node *node, gwi_item *item, const gwi_note *note, const gwi_told *told,
                      void *value)
{
    if (told->values == NULL || note->term != told->term || (int32_t)(note->n - told->seq) >= 0)
        return 0;
    if (!GWI_MUTANT(11))
        gwi_change_value(&node->local, item->key, value, told->change, told->values);
    if (!GWI_MUTANT(12))
        add_holder(
            node, item,
            (gwi_holder){.node = node->id, .term = told->term, .seq = told->seq, .tombstone = 1});
    return 1;
}

void gwi_take_transfer(gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    gwi_item *item = gwi_item_get(node, note->key);
    unsigned state = gwi_local_state(&node->local, note->key);

    if (item == NULL)
        return;
    assert(state != GWI_OWNED);
    const void *value = payload;
    int changed = 0;
    item->n_holders = 0;
    take_holders(node, item, note, payload);
    if (note->flags & GWI_NOTE_WAS_HOLDER) {
        value = memcpy(node->scratch2, payload, gwi_row_bytes(node, item->key));
        changed = count_told(node, item, note, &item->last_word, node->scratch2) |
                  count_told(node, item, note, &item->told, node->scratch2);
    }
    gwi_end_telling(node, item);
    item->tell_again = 0;
    if (GWI_MUTANT(13) && state == GWI_REPLICA)
        gwi_local_take_untold(&node->local, item->key, node->scratch);
    changed |= gwi_local_own(&node->local, item->key, value, n_granted(item) > 0 && !GWI_MUTANT(3));
    if (gwi_unlikely(node->local.err < 0)) /* it has not arrived */
        return;
    node->n_replicas -= state == GWI_REPLICA;
    node->stats.dropped += state == GWI_REPLICA;
    item->stamp = note->number;
    item->tenure = note->seq;
    gwi_end_asking(node, item);
    /* The holders have heard from the last owner all that it knew. */
    if (changed && item->n_holders > 0) {
        make_stale(item, NULL);
        gwi_refresh_holders(node, item, 0);
    }
    node->stats.moves++;
    gwi_arrived_here(node, item);
    gwi_line_move(node, item);
    unpark(node, item);
    item = gwi_item_find(node, note->key);
    if (item != NULL && item->n_holders > 0 &&
        gwi_local_state(&node->local, note->key) == GWI_OWNED)
        gwi_settle(node, item);
    if (item != NULL)
        gwi_item_forget(node, item);
}
