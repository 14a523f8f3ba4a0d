/* answer.c - questions about keys, one or many in a note, answered by who owns them. */
#include "params/engine.h"

#include <assert.h>
#include <string.h>

/* A question while it is answered.  Keys can be seen to together, and one ANSWER says so: vectors
 * that are to be read; those to be added to, and of which nobody has a copy.  Who asked us at once
 * knows where the keys are, and need not be told key by key. */
struct question {
    const gwi_note *note;
    int together;    /* if the vectors are ours, */
    uint64_t unless; /* and their words have none of these flags */
    size_t n;
    int64_t keys[GWI_ASK_KEYS];    /* not set beyond n */
    uint8_t follows[GWI_ASK_KEYS]; /* whether it is the second about that key */
    int is_mixed;                  /* some were found that are not ours */
    const unsigned char *values;   /* of the keys that are left, to add or to assign */
    uint64_t number;               /* of the first key that is left */
};

GWI_INLINE int is_ours(const gwi_node *node, const struct question *q, size_t i)
{
    uint64_t word = gwi_word_look(&node->local.store.words[q->keys[i]]);

    return (word & (GWI_WORD_STATE | q->unless)) == GWI_OWNED;
}

/* How many from the i-th key on go into one ANSWER, and the bytes of their vectors.  The first is
 * ours; mostly all are, and to look at their words before the walk does would only take time. */
static size_t count_run(const gwi_node *node, const struct question *q, size_t i,
                        size_t *ret_n_bytes)
{
    size_t n = 0, n_bytes = 0;

    for (; i + n < q->n && n_bytes < GWI_RUN_BYTES; n++) {
        if (gwi_takes_the_long_way(node, q->note, q->keys[i + n], q->follows[i + n]) ||
            ((n == 0 || q->is_mixed) && !is_ours(node, q, i + n)))
            break;
        n_bytes += gwi_row_bytes(node, q->keys[i + n]);
    }
    *ret_n_bytes = n_bytes;
    return n;
}

static size_t rows_bytes(const gwi_node *node, const int64_t *keys, size_t n)
{
    size_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += gwi_row_bytes(node, keys[i]);
    return sum;
}

/* Vectors go straight to where they are sent from: room for all is taken before it is known how
 * many are ours. */
static size_t read_run(gwi_node *node, struct question *q, gwi_note *answer, const int64_t *keys,
                       size_t n, size_t n_bytes)
{
    void *room = gwi_send_room(node, q->note->node, answer, n_bytes);

    if (room == NULL)
        return 0;
    size_t done = gwi_local_read_owned(&node->local, keys, n - GWI_MUTANT(28), room) +
                  GWI_MUTANT(28);
    if (done < n && node->local.err == 0) {
        answer->n = (uint32_t)done - 1;
        gwi_send_cut(node, q->note->node, answer, room, rows_bytes(node, keys, done));
    }
    return done;
}

static size_t add_run(gwi_node *node, struct question *q, gwi_note *answer, const int64_t *keys,
                      size_t n)
{
    size_t done = gwi_local_add_to_owned(&node->local, keys, n - GWI_MUTANT(26), q->values,
                                         q->unless) +
                  GWI_MUTANT(26);

    if (done < n)
        answer->n = (uint32_t)done - 1;
    if (node->local.err == 0)
        gwi_send_room(node, q->note->node, answer, 0);
    return done;
}

/* From the i-th key on, up to the first that is not ours or is watched.  Returns how many; 0: not
 * even that, or the node has failed.  Whether a vector is ours, and watched, only we change. */
static size_t serve_together(gwi_node *node, struct question *q, size_t i)
{
    int reads = q->note->flags & GWI_NOTE_READS;
    size_t n_bytes, n = q->together ? count_run(node, q, i, &n_bytes) : 0;
    gwi_note answer = {.kind = GWI_NOTE_ANSWER,
                       .flags = (uint8_t)reads,
                       .key = q->keys[i],
                       .number = q->number,
                       .n = (uint32_t)n - 1 - (GWI_MUTANT(27) && n > 1)};

    if (n == 0) {
        q->is_mixed = 1;
        return 0;
    }
    size_t done = reads ? read_run(node, q, &answer, q->keys + i, n, n_bytes)
                        : add_run(node, q, &answer, q->keys + i, n);
    assert(done > 0 || node->err < 0 || node->local.err < 0);
    if (done < n) {
        n_bytes = rows_bytes(node, q->keys + i, done);
        q->is_mixed = 1;
    }
    q->values += reads ? 0 : n_bytes;
    q->number += n_bytes;
    node->stats.requests += done;
    return done;
}

/* A question of its own about one of the keys. */
static void route_one(gwi_node *node, struct question *q, size_t i)
{
    int64_t key = q->keys[i];
    size_t row = gwi_row_bytes(node, key),
           n_bytes = gwi_change_in(q->note) != GWI_NO_CHANGE ? row : 0;
    gwi_note one = *q->note;

    one.flags = (uint8_t)((one.flags & ~GWI_NOTE_FOLLOWS) | (q->follows[i] ? GWI_NOTE_FOLLOWS : 0));
    one.key = key;
    one.number = q->number;
    one.n = 0;
    one.n_bytes = (uint32_t)n_bytes;
    gwi_route(node, &one, q->values);
    q->values += n_bytes;
    q->number += row;
}

static void read_keys(struct question *q, const unsigned char *payload)
{
    q->keys[0] = q->note->key;
    q->follows[0] = (q->note->flags & GWI_NOTE_FOLLOWS) != 0;
    for (size_t i = 1; i < q->n; i++, payload += sizeof(int64_t)) {
        int64_t key;
        memcpy(&key, payload, sizeof key);
        q->keys[i] = key & ~GWI_KEY_FOLLOWS;
        q->follows[i] = key < 0;
    }
    q->values = payload;
}

void gwi_take_ask(gwi_node *node, const gwi_note *note, const unsigned char *payload)
{
    unsigned does = note->flags & (unsigned)~(GWI_NOTE_BY_HOME | GWI_NOTE_FOLLOWS);
    struct question q;
    size_t n;

    assert(note->kind == GWI_NOTE_ASK && note->n < GWI_ASK_KEYS);
    q.note = note;
    q.together = note->hops == 0 && (does == GWI_NOTE_READS || does == GWI_NOTE_ADDS);
    q.unless = does == GWI_NOTE_READS || GWI_MUTANT(29) ? 0 : GWI_WORD_WATCHED;
    q.n = 1 + (size_t)note->n;
    q.is_mixed = 0;
    q.number = note->number;
    read_keys(&q, payload);
    for (size_t i = 0; i < q.n && node->err == 0 && node->local.err == 0; i += n) {
        n = serve_together(node, &q, i);
        if (n == 0 && node->err == 0 && node->local.err == 0) {
            route_one(node, &q, i);
            n = 1;
        }
    }
}
