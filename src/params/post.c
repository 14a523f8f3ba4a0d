/* post.c - notes to other nodes and from them, in frames. */
#include "params/engine.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* A frame leaves at once if it is so long, and lies in one piece in the rings of shm; or has so
 * many notes, so that the other side is busy while we go on. */
#define FRAME_FULL 24576
#ifdef GWI_MUTANTS
#define NOTES_FULL 2 /* for simulations, which say little */
#else
#define NOTES_FULL 128
#endif

/* The longest that is used again: making one takes the system a while. */
#define FRAME_KEPT ((size_t)16 << 20)

/* How many notes are looked at together, and how many are known ahead. */
#define BURST 8
#define AHEAD 32           /* a power of two, above 3 bursts */
#define MESSAGE_AHEAD 3072 /* bytes before the first look at a note */
#define ROOM_AHEAD 1024    /* bytes before what is written; half and twice as much do as well */

/* links */

static gwi_link *link_with(gwi_node *node, int peer)
{
    uint64_t value;

    if (gwi_likely(node->last_link != NULL && node->last_link->peer == peer))
        return node->last_link;
    if (gwi_hash_get(&node->links, (uint64_t)peer, &value))
        return node->last_link = (gwi_link *)(uintptr_t)value;
    gwi_link *link = calloc(1, sizeof *link);
    if (link == NULL || gwi_hash_put(&node->links, (uint64_t)peer, (uint64_t)(uintptr_t)link) < 0) {
        free(link);
        gwi_fail_node(node, gwi_fail(GW_ENOMEM, "a message for node %d", peer));
        return NULL;
    }
    link->peer = peer;
    return node->last_link = link;
}

/* Frames are used again: a long one takes the system a while to make. */
static gwi_frame take_frame(gwi_node *node)
{
    gwi_frame *longest = &node->spare[0];

    for (size_t i = 1; i < sizeof node->spare / sizeof node->spare[0]; i++)
        if (node->spare[i].capacity > longest->capacity)
            longest = &node->spare[i];
    gwi_frame frame = *longest;
    *longest = (gwi_frame){0};
    return frame;
}

static void give_back_frame(gwi_node *node, gwi_frame *frame)
{
    gwi_frame *shortest = &node->spare[0];

    for (size_t i = 1; i < sizeof node->spare / sizeof node->spare[0]; i++)
        if (node->spare[i].capacity < shortest->capacity)
            shortest = &node->spare[i];
    if (frame->capacity > shortest->capacity && frame->capacity <= FRAME_KEPT) {
        gwi_frame kept = *frame;
        *frame = *shortest;
        *shortest = kept;
        shortest->n_bytes = 0;
    }
    gwi_frame_fini(frame);
}

static void free_link(gwi_link *link)
{
    if (!link->in_place)
        gwi_frame_fini(&link->collecting);
    gwi_frame_fini(&link->sending);
    gwi_frame_fini(&link->coming);
    free(link);
}

static void set_busy(gwi_node *node, gwi_link *link, int busy)
{
    node->n_busy_links += (size_t)busy;
    node->n_busy_links -= (size_t)link->busy;
    link->busy = busy;
    if (busy && link->rests_1 > 0) {
        node->resting[link->rests_1 - 1] = NULL;
        link->rests_1 = 0;
    }
}

static void forget_link(gwi_node *node, gwi_link *link)
{
    gwi_hash_remove(&node->links, (uint64_t)link->peer, NULL);
    if (node->last_link == link)
        node->last_link = NULL;
    free_link(link);
}

/* If there is nothing for it any more.  It takes the place of one that rests for long. */
static void rest_link(gwi_node *node, gwi_link *link)
{
    if (link->listed || link->coming.bytes != NULL)
        return;
    set_busy(node, link, 0);
    if (link->rests_1 > 0)
        return;
    size_t at = node->n_rests++ % GWI_KEPT_LINKS;
    if (node->resting[at] != NULL)
        forget_link(node, node->resting[at]);
    node->resting[at] = link;
    link->rests_1 = (int)at + 1;
}

static int rank_of(const gwi_node *node, int peer)
{
    return node->ranks == NULL ? peer : node->ranks[peer];
}

static void list(gwi_node *node, gwi_link *link)
{
    if (link->listed)
        return;
    link->listed = 1;
    set_busy(node, link, 1);
    link->next = NULL;
    if (node->first_to_send == NULL)
        node->first_to_send = link;
    else
        node->last_to_send->next = link;
    node->last_to_send = link;
}

/* Nothing is to be sent or half received. */
int gwi_post_is_idle(const gwi_node *node)
{
    return node->n_busy_links == 0 && node->to_self.n_bytes == 0;
}

int gwi_post_is_full(const gwi_node *node, int peer)
{
    uint64_t value;

    if (node->last_link != NULL && node->last_link->peer == peer)
        return node->last_link->under_way;
    return gwi_hash_get(&node->links, (uint64_t)peer, &value) &&
           ((const gwi_link *)(uintptr_t)value)->under_way;
}

size_t gwi_post_bytes(const gwi_node *node)
{
    gwi_hash_cursor cursor = gwi_hash_start(&node->links);
    uint64_t peer, value;
    size_t sum = node->to_self.capacity + node->links.n_slots * (sizeof(gwi_hash_entry) + 1);

    while (gwi_hash_next(&node->links, &cursor, &peer, &value)) {
        const gwi_link *link = (const gwi_link *)(uintptr_t)value;
        sum += sizeof *link + link->collecting.capacity + link->sending.capacity +
               link->coming.capacity;
    }
    return sum;
}

void gwi_post_give_up(gwi_node *node, gwi_fabric *fabric)
{
    gwi_hash_cursor cursor = gwi_hash_start(&node->links);
    uint64_t peer, value;

    while (gwi_hash_next(&node->links, &cursor, &peer, &value)) {
        gwi_link *link = (gwi_link *)(uintptr_t)value;
        if (link->under_way)
            fabric->ops->abandon(fabric, &link->out);
        link->under_way = 0;
    }
}

void gwi_post_fini(gwi_node *node)
{
    gwi_hash_cursor cursor = gwi_hash_start(&node->links);
    uint64_t peer, value;

    while (gwi_hash_next(&node->links, &cursor, &peer, &value))
        free_link((gwi_link *)(uintptr_t)value);
    gwi_hash_fini(&node->links);
    gwi_frame_fini(&node->to_self);
    for (size_t i = 0; i < sizeof node->spare / sizeof node->spare[0]; i++)
        gwi_frame_fini(&node->spare[i]);
}

/* notes */

/* Begin to collect, where it goes if that can be. */
static int begin_frame(gwi_node *node, gwi_link *link, size_t n_first)
{
    gwi_frame *frame = &link->collecting;
    size_t room = 0;
    void *bytes = link->under_way || node->fabric == NULL
                      ? NULL
                      : node->fabric->ops->reserve(node->fabric, rank_of(node, link->peer),
                                                   node->lane, &room);

    link->in_place = bytes != NULL && room >= sizeof node->opening + n_first;
    *frame = link->in_place ? (gwi_frame){.bytes = bytes, .capacity = room} : take_frame(node);
    return gwi_frame_begin(frame, node->opening);
}

/* What lies where it goes needs only to be let go. */
static void commit(gwi_node *node, gwi_fabric *fabric, gwi_link *link)
{
    fabric->ops->commit(fabric, rank_of(node, link->peer), node->lane, link->collecting.n_bytes);
    link->collecting = (gwi_frame){0};
    link->n_notes = 0;
    link->in_place = 0;
    node->stats.messages++;
}

/* Returns 1 if all is sent, 0 if some is left for later, or an error, after which nothing is. */
static int send_all(gwi_node *node, gwi_fabric *fabric, gwi_link *link, int *ret_sent)
{
    /* Somebody died with a latch: what was read of that vector may be half a change. */
    if (gwi_unlikely(node->local.err < 0))
        return gwi_fail_node(node, node->local.err);
    if (link->in_place) {
        commit(node, fabric, link);
        *ret_sent = 1;
    }
    while (link->under_way || link->collecting.n_bytes > 0) {
        if (!link->under_way) {
            link->sending = link->collecting;
            link->collecting = (gwi_frame){0};
            link->n_notes = 0;
            link->out = (gwi_outgoing){.peer = rank_of(node, link->peer),
                                       .lane = node->lane,
                                       .bytes = link->sending.bytes,
                                       .n_bytes = link->sending.n_bytes};
            link->under_way = 1;
            node->stats.messages++;
        }
        int done = fabric->ops->send(fabric, &link->out);
        if (done <= 0)
            return done < 0 ? gwi_fail_node(node, done) : 0;
        give_back_frame(node, &link->sending);
        link->under_way = 0;
        *ret_sent = 1;
    }
    return 1;
}

static int is_full(const gwi_link *link, size_t more)
{
    return link->n_notes >= NOTES_FULL || link->collecting.n_bytes >= FRAME_FULL ||
           (link->in_place && link->collecting.n_bytes + more > link->collecting.capacity);
}

/* Notes about one key are written to lines of the ring that the other side has read last.  What
 * waits for them is not these writes but the next latch, by which all must be done; so they are
 * fetched some notes ahead.  Longer ones do better by themselves. */
static void fetch_room_ahead(const gwi_link *link, size_t whole)
{
    size_t begin = link->collecting.n_bytes + ROOM_AHEAD, end = begin + whole;

    if (!link->in_place || whole > ROOM_AHEAD || end > link->collecting.capacity)
        return;
    for (size_t i = begin; i < end; i += GWI_LINE)
        gwi_fetch_to_write(link->collecting.bytes + i);
}

void *gwi_send_room(gwi_node *node, int to, gwi_note *note, size_t n_bytes)
{
    gwi_link *link = to == node->id ? NULL : link_with(node, to);
    gwi_frame *frame = to == node->id ? &node->to_self : link == NULL ? NULL : &link->collecting;
    size_t whole = gwi_note_bytes(n_bytes);
    int sent;

    if (frame == NULL)
        return NULL;
    if (link != NULL && is_full(link, whole) && node->fabric != NULL &&
        send_all(node, node->fabric, link, &sent) < 0)
        return NULL; /* what lies in the fabric's memory cannot grow */
    if (link != NULL && frame->n_bytes == 0 && begin_frame(node, link, whole) < 0) {
        gwi_fail_node(node, GW_ENOMEM);
        return NULL;
    }
    size_t before = frame->n_bytes;
    if (link != NULL)
        fetch_room_ahead(link, whole);
    void *room = gwi_frame_room(frame, note, n_bytes);
    if (room == NULL)
        gwi_fail_node(node, GW_ENOMEM);
    if (link == NULL || room == NULL)
        return room;
    list(node, link);
    size_t n_more = note->kind == GWI_NOTE_ASK ? note->n : 0; /* keys, which are in the payload */
    link->n_notes += 1 + (int)n_more;
    node->stats.notes[note->kind]++;
    node->stats.note_bytes[note->kind] += frame->n_bytes - before;
    node->stats.bytes += frame->n_bytes - before;
    node->stats.value_bytes += n_bytes - n_more * sizeof(int64_t);
    return room;
}

void gwi_send_cut(gwi_node *node, int to, gwi_note *note, void *room, size_t n_bytes)
{
    gwi_frame *frame = to == node->id ? &node->to_self : &link_with(node, to)->collecting;
    size_t less = gwi_note_bytes(note->n_bytes) - gwi_note_bytes(n_bytes);

    if (to != node->id) {
        node->stats.note_bytes[note->kind] -= less;
        node->stats.bytes -= less;
        node->stats.value_bytes -= note->n_bytes - n_bytes;
    }
    gwi_frame_cut(frame, note, room, n_bytes);
}

void gwi_post_hurry(gwi_node *node, int to, int now)
{
    gwi_link *link = to == node->id ? NULL : link_with(node, to);
    int sent;

    if (link != NULL && (now || is_full(link, 0)) && node->fabric != NULL)
        send_all(node, node->fabric, link, &sent);
}

void gwi_send(gwi_node *node, int to, gwi_note *note, const void *part, size_t part_bytes,
              const void *part2, size_t part2_bytes)
{
    unsigned char *room = gwi_send_room(node, to, note, part_bytes + part2_bytes);

    if (room == NULL)
        return;
    if (part_bytes > 0)
        memcpy(room, part, part_bytes);
    if (part2_bytes > 0)
        memcpy(room + part_bytes, part2, part2_bytes);
}

static int is_expected(const gwi_node *node, const gwi_note *answer, size_t row)
{
    size_t offset, n_bytes = answer->n_bytes > row ? answer->n_bytes : row;
    const gwi_pending *pending = gwi_pending_of(node, answer->number, &offset);

    return pending != NULL && offset <= pending->values_bytes &&
           n_bytes <= pending->values_bytes - offset && answer->n < pending->left;
}

static int check_key(const gwi_node *node, int64_t key)
{
    const gwi_spread *spread = &node->local.spread;

    if (gwi_unlikely(key < 0 || key >= node->geometry->n_keys))
        return gwi_fail(GW_EBROKEN, "a note about key %lld; keys go from 0 to %lld", (long long)key,
                        (long long)node->geometry->n_keys - 1);
    if (gwi_unlikely(spread->channels > 1 && gwi_spread_channel(spread, key) != node->channel))
        return gwi_fail(GW_EBROKEN, "a note about key %lld, of channel %d, to channel %d",
                        (long long)key, gwi_spread_channel(spread, key), node->channel);
    return 0;
}

/* The further keys of a question.  Adds the bytes of their vectors. */
static int check_more_keys(const gwi_node *node, const gwi_note *note, const unsigned char *payload,
                           size_t *rows_bytes)
{
    if (note->n >= GWI_ASK_KEYS || note->n_bytes < note->n * sizeof(int64_t))
        return gwi_fail(GW_EBROKEN, "a question of %u bytes about %u keys", note->n_bytes,
                        note->n + 1);
    for (uint32_t i = 0; i < note->n; i++) {
        int64_t key;
        memcpy(&key, payload + i * sizeof key, sizeof key);
        key &= ~GWI_KEY_FOLLOWS;
        if (check_key(node, key) < 0)
            return GW_EBROKEN;
        *rows_bytes += gwi_row_bytes(node, key);
    }
    return 0;
}

/* Why another node failed is passed on to whoever waits here, so it must be an error of ours. */
static int check_failed(const gwi_note *note)
{
    int err = (int32_t)note->n;

    return err < 0 && strcmp(gw_errname(err), "?") != 0 && note->n_bytes > 0 &&
                   note->n_bytes <= GWI_SENTENCE_BYTES
               ? 0
               : gwi_fail(GW_EBROKEN, "a note of a failure with error %d and %u bytes, not 1 to %d",
                          err, note->n_bytes, GWI_SENTENCE_BYTES);
}

/* What a peer of another build, or with broken memory, might send. */
static int check_note(const gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    int about_key = note->kind < GWI_NOTE_SYNC;

    if (about_key && check_key(node, note->key) < 0)
        return GW_EBROKEN;
    if (note->node < 0 || note->node >= node->nodes)
        return gwi_fail(GW_EBROKEN, "a note that speaks of node %d of %d", note->node, node->nodes);
    size_t row = about_key ? gwi_row_bytes(node, note->key) : 0, need = 0;
    switch ((gwi_note_kind)note->kind) {
    case GWI_NOTE_ASK:
        if (note->n > 0 && check_more_keys(node, note, payload, &row) < 0)
            return GW_EBROKEN;
        need = note->n * sizeof(int64_t) +
               (note->flags & (GWI_NOTE_ADDS | GWI_NOTE_ASSIGNS) ? row : 0);
        break;
    case GWI_NOTE_TELL:
        need = note->flags & (GWI_NOTE_ADDS | GWI_NOTE_ASSIGNS) ? row : 0;
        break;
    case GWI_NOTE_ANSWER:
        if (gwi_unlikely(!is_expected(node, note, row)))
            return gwi_fail(GW_EBROKEN, "an answer %llx to no question",
                            (unsigned long long)note->number);
        need = !(note->flags & GWI_NOTE_READS) ? 0 : note->n > 0 ? note->n_bytes : row;
        break;
    case GWI_NOTE_REFRESH:
        need = note->flags & GWI_NOTE_READS ? row : 0;
        break;
    case GWI_NOTE_GRANT:
        need = row;
        break;
    case GWI_NOTE_TRANSFER:
        need = note->n_bytes < row ? row
                                   : row + (note->n_bytes - row) / sizeof(gwi_note_holder) *
                                               sizeof(gwi_note_holder);
        break;
    case GWI_NOTE_FAILED:
        return check_failed(note);
    default:
        break;
    }
    return note->n_bytes == need
               ? 0
               : gwi_fail(GW_EBROKEN, "a note %s about key %lld with %u bytes, not %zu",
                          gwi_note_name(note->kind), (long long)note->key, note->n_bytes, need);
}

/* The notes to come.  What these will need is fetched ahead: first the key's word and memo, then
 * its item and its vector.  Each time for several notes, because to fetch from a page that was not
 * used lately keeps the processor from going on, but not from fetching from others meanwhile. */
struct outlook {
    size_t at;          /* of the first note that was not looked at */
    uint64_t n;         /* that were */
    uint64_t n_fetched; /* of these, whose vectors were */
    int64_t key[AHEAD]; /* whose vector will be needed; -1: none */
};

static int64_t fetch_first(const gwi_node *node, const gwi_note *note)
{
    int64_t key = note->key;

    if (gwi_unlikely(key < 0 || key >= node->geometry->n_keys))
        return -1;
    /* Questions are served by who is the owner, and replicas know it. */
    if (note->kind != GWI_NOTE_ASK && note->kind != GWI_NOTE_TELL && note->kind != GWI_NOTE_REFRESH)
        gwi_fetch_owner(node, key);
    if (note->kind == GWI_NOTE_ANSWER || (note->kind == GWI_NOTE_ASK && note->n > 0))
        return -1;
    gwi_local_fetch_word(&node->local, key);
    gwi_fetch_memo(node, key);
    return key;
}

/* Notes up to `end`, as far as there are any. */
static void look_at_notes(gwi_node *node, struct outlook *o, const unsigned char *bytes,
                          size_t n_bytes, uint64_t end)
{
    gwi_note note;

    while (o->n < end && n_bytes - o->at >= sizeof note) {
        memcpy(&note, bytes + o->at, sizeof note);
        size_t whole = gwi_note_bytes(note.n_bytes);
        if (whole > n_bytes - o->at)
            return;
        for (size_t i = o->at + MESSAGE_AHEAD, n = 0;
             i < n_bytes && n < whole && n < GWI_LOCAL_FETCH; i += GWI_LINE, n += GWI_LINE)
            __builtin_prefetch(bytes + i, 0, 2);
        o->key[o->n++ % AHEAD] = fetch_first(node, &note);
        o->at += whole;
    }
}

static void fetch_vectors(gwi_node *node, struct outlook *o, uint64_t end)
{
    uint64_t begin = o->n_fetched;

    o->n_fetched = end < o->n ? end : o->n;
    for (uint64_t i = begin; i < o->n_fetched; i++)
        if (o->key[i % AHEAD] >= 0)
            gwi_local_fetch_vector(&node->local, o->key[i % AHEAD], 0, GWI_LINE);
    for (uint64_t i = begin; i < o->n_fetched; i++) {
        int64_t key = o->key[i % AHEAD];
        if (key < 0)
            continue;
        gwi_item_fetch(node, key);
        gwi_local_fetch_vector(&node->local, key, GWI_LINE, GWI_LOCAL_FETCH);
    }
}

static void look_ahead(gwi_node *node, struct outlook *o, const unsigned char *bytes,
                       size_t n_bytes, uint64_t handled)
{
    if (handled % BURST == 0) {
        look_at_notes(node, o, bytes, n_bytes, handled + 3 * BURST);
        fetch_vectors(node, o, handled + 2 * BURST);
    }
}

static int read_frame(gwi_node *node, int from, const unsigned char *bytes, size_t n_bytes)
{
    struct outlook outlook = {.at = 0};
    const unsigned char *payload;
    uint64_t handled = 0;
    gwi_note note;
    size_t at = 0;
    int more;

    for (size_t i = 0; i < MESSAGE_AHEAD && i < n_bytes; i += GWI_LINE)
        __builtin_prefetch(bytes + i, 0, 2);
    for (; (more = gwi_frame_next(bytes, n_bytes, &at, &note, &payload)) > 0 && node->err == 0;
         handled++) {
        more = check_note(node, &note, payload);
        if (more < 0)
            break;
        if (gwi_unlikely(node->trace != NULL))
            gwi_trace_note(node, from, &note);
        look_ahead(node, &outlook, bytes, n_bytes, handled);
        gwi_handle(node, from, &note, payload);
        if (gwi_unlikely(node->local.err < 0)) /* nothing is to be believed any more */
            gwi_fail_node(node, node->local.err);
    }
    return more < 0 ? gwi_fail_node(node, more) : node->err;
}

/* One of a peer.  The lane may have served other parameters before, which were closed when
 * not all was read. */
static int read_message(gwi_node *node, int from, const unsigned char *bytes, size_t n_bytes)
{
    uint64_t opening;

    if (n_bytes < sizeof opening)
        return gwi_fail_node(node, gwi_fail(GW_EBROKEN, "a message of %zu bytes", n_bytes));
    memcpy(&opening, bytes, sizeof opening);
    if (opening != node->opening)
        return 0;
    node->stats.received++;
    node->heard_since_part++;
    return read_frame(node, from, bytes + sizeof opening, n_bytes - sizeof opening);
}

/* What we say to ourselves is heard in order, after what is being heard. */
static void hear_ourselves(gwi_node *node)
{
    while (node->to_self.n_bytes > 0 && node->err == 0) {
        gwi_frame frame = node->to_self;
        node->to_self = take_frame(node);
        node->hears_itself = 1;
        read_frame(node, node->id, frame.bytes, frame.n_bytes);
        node->hears_itself = 0;
        give_back_frame(node, &frame);
    }
}

struct delivery {
    gwi_node *node;
    int n;
};

/* A message in pieces is put together.  Returns 1 when it is whole. */
static int put_together(gwi_frame *coming, const gwi_piece *piece)
{
    if (piece->offset != coming->n_bytes)
        return 0; /* the rest of one whose beginning was read for other parameters */
    if (piece->total > coming->capacity) {
        unsigned char *bytes = realloc(coming->bytes, piece->total);
        if (bytes == NULL)
            return gwi_fail(GW_ENOMEM, "a message of %zu bytes", piece->total);
        coming->bytes = bytes;
        coming->capacity = piece->total;
    }
    memcpy(coming->bytes + piece->offset, piece->bytes, piece->n_bytes);
    coming->n_bytes = piece->offset + piece->n_bytes;
    return coming->n_bytes == piece->total;
}

static int take_piece(void *ctx, const gwi_piece *piece)
{
    struct delivery *d = ctx;
    gwi_node *node = d->node;
    int from = node->nodes_of == NULL ? piece->source : node->nodes_of[piece->source];
    int is_whole = !piece->abandoned && piece->n_bytes == piece->total;

    d->n++;
    if (is_whole && (uintptr_t)piece->bytes % 8 == 0) {
        return read_message(node, from, piece->bytes, piece->total);
    }
    gwi_link *link = link_with(node, from);
    if (link == NULL)
        return node->err;
    if (link->coming.bytes == NULL && !piece->abandoned && piece->offset == 0)
        link->coming = take_frame(node);
    set_busy(node, link, 1);
    int whole = piece->abandoned ? 0 : put_together(&link->coming, piece);
    if (whole > 0) {
        whole = read_message(node, from, link->coming.bytes, piece->total);
    } else if (whole == 0 && !piece->abandoned) {
        rest_link(node, link); /* if nothing came of it */
        return 0;
    }
    give_back_frame(node, &link->coming);
    rest_link(node, link);
    return whole;
}

static int send_listed(gwi_node *node, gwi_fabric *fabric)
{
    gwi_link *link = node->first_to_send;
    int sent = 0;

    node->first_to_send = node->last_to_send = NULL;
    while (link != NULL) {
        gwi_link *next = link->next;
        int all = node->err == 0 ? send_all(node, fabric, link, &sent) : 0;
        link->listed = 0;
        if (all == 1)
            rest_link(node, link);
        else
            list(node, link);
        link = next;
    }
    return sent;
}

int gwi_post_step(gwi_node *node, gwi_fabric *fabric)
{
    struct delivery d = {node, 0};
    int err;

    hear_ourselves(node);
    err = fabric->ops->poll(fabric, node->lane, -1, take_piece, &d);
    node->heard = d.n;
    if (err < 0)
        return gwi_fail_node(node, err);
    hear_ourselves(node);
    return send_listed(node, fabric) || d.n > 0;
}
