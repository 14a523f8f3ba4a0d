/* inbox.c - messages and receives find each other; inbox.h has the rules. */
#include "comm/inbox.h"
#include "base/copy.h"
#include "base/platform.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Debug builds check all rules after every change of an inbox so young; later on it would
 * make the work quadratic. */
#define CHECKED_TURNS 2000

#define STREAM_BYTES ((size_t)4 << 20) /* what would fill the cache is written past it */

/* A message that came before its receive. */
struct kept {
    struct kept *next;
    uint64_t turn; /* lower ones came earlier */
    gwi_envelope envelope;
    size_t n_bytes;
    unsigned char bytes[];
};

/* One rank of the world: what is coming from it, what is kept of it, who waits for it. */
struct gwi_source {
    /* an envelope of which not all is here */
    size_t n_head;
    unsigned char head[sizeof(gwi_envelope)];
    /* the message under way */
    int coming; /* its envelope is here, its payload not yet all */
    gwi_envelope envelope;
    size_t n_bytes, filled;
    gw_request *request; /* where it goes: there, */
    struct kept *kept;   /* or there; if both are NULL nobody wants it */
    struct kept *first, *last;
    gwi_posted posted;
};

int gwi_inbox_init(gwi_inbox *in, int size)
{
    *in = (gwi_inbox){.size = size};
    in->sources = calloc((size_t)size, sizeof *in->sources);
    return in->sources != NULL ? 0 : gwi_fail(GW_ENOMEM, "an inbox for %d ranks", size);
}

void gwi_inbox_fini(gwi_inbox *in)
{
    for (int rank = 0; in->sources != NULL && rank < in->size; rank++)
        for (struct kept *k = in->sources[rank].first, *next; k != NULL; k = next) {
            next = k->next;
            free(k);
        }
    free(in->sources);
    in->sources = NULL;
}

/* In debug builds, and only while it is quick. */
static inline void check_if_young(const gwi_inbox *in)
{
    (void)in;
    assert(in->turns > CHECKED_TURNS || gwi_inbox_valid(in));
}

/* queues of receives */

static gwi_posted *queue_of(gwi_inbox *in, const gw_request *r)
{
    return r->peer < 0 ? &in->any : &in->sources[r->peer].posted;
}

/* In its turn (M2), which is nearly always the last. */
static void enqueue(gwi_inbox *in, gw_request *r)
{
    gwi_posted *q = queue_of(in, r);
    gw_request *before = q->last;

    while (before != NULL && before->turn > r->turn)
        before = before->prev;
    r->prev = before;
    r->next = before != NULL ? before->next : q->first;
    *(before != NULL ? &before->next : &q->first) = r;
    *(r->next != NULL ? &r->next->prev : &q->last) = r;
    r->stage = GWI_POSTED;
}

static void dequeue(gwi_inbox *in, gw_request *r)
{
    gwi_posted *q = queue_of(in, r);

    *(r->prev != NULL ? &r->prev->next : &q->first) = r->next;
    *(r->next != NULL ? &r->next->prev : &q->last) = r->prev;
}

/* matching */

static bool matches(const gw_request *r, const gwi_envelope *e)
{
    return r->context == e->context &&
           (r->tag == e->tag || (r->tag == GW_ANY_TAG && e->tag < GWI_LIBRARY_TAG));
}

static gw_request *first_match(const gwi_posted *q, const gwi_envelope *e)
{
    gw_request *r = q->first;

    while (r != NULL && !matches(r, e))
        r = r->next;
    return r;
}

static gw_request *find_posted(const gwi_inbox *in, const struct gwi_source *s,
                               const gwi_envelope *e)
{
    gw_request *r = first_match(&s->posted, e);
    gw_request *any = first_match(&in->any, e);

    return r == NULL || (any != NULL && any->turn < r->turn) ? any : r;
}

static struct kept *find_kept_of(const gwi_inbox *in, int rank, const gw_request *r)
{
    struct kept *k = in->sources[rank].first;

    while (k != NULL && !matches(r, &k->envelope))
        k = k->next;
    return k;
}

/* The first that came of those that match, and whose it is. */
static struct kept *find_kept(const gwi_inbox *in, const gw_request *r, int *ret_rank)
{
    struct kept *found = NULL;

    if (in->n_kept == 0)
        return NULL;
    *ret_rank = r->peer;
    if (r->peer >= 0)
        return find_kept_of(in, r->peer, r);
    for (int rank = 0; rank < in->size; rank++) {
        struct kept *k = find_kept_of(in, rank, r);
        if (k != NULL && (found == NULL || k->turn < found->turn)) {
            found = k;
            *ret_rank = rank;
        }
    }
    return found;
}

/* kept messages */

static struct kept *keep(gwi_inbox *in, struct gwi_source *s, const gwi_envelope *e, size_t n_bytes)
{
    struct kept *k = malloc(sizeof *k + n_bytes);

    if (k == NULL)
        return NULL;
    *k = (struct kept){.turn = in->turns++, .envelope = *e, .n_bytes = n_bytes};
    *(s->last != NULL ? &s->last->next : &s->first) = k;
    s->last = k;
    in->n_kept++;
    return k;
}

static void drop(gwi_inbox *in, struct gwi_source *s, struct kept *gone)
{
    struct kept **link = &s->first, *before = NULL;

    for (; *link != gone; link = &(*link)->next)
        before = *link;
    *link = gone->next;
    if (s->last == gone)
        s->last = before;
    if (s->kept == gone)
        s->kept = NULL;
    in->n_kept--;
    free(gone);
}

/* a message and a receive have found each other */

/* "rank 5 (rank 1 of the communicator)" */
static const char *name_of(int rank, int source, char *text, size_t room)
{
    if (rank == source)
        snprintf(text, room, "rank %d", rank);
    else
        snprintf(text, room, "rank %d (rank %d of the communicator)", rank, source);
    return text;
}

static bool source_fits(const gw_request *r, const gwi_envelope *e, int rank)
{
    if (r->comm == NULL)
        return e->source == rank;
    return e->source < r->comm->size && r->comm->ranks[e->source] == rank;
}

/* 0, or why the receive cannot have a message that matches it. */
static int check_match(const gw_request *r, const gwi_envelope *e, int rank)
{
    char who[64], sent[64], wanted[64];

    if (gwi_likely(r->n == e->n && (uint32_t)r->dtype == e->dtype && source_fits(r, e, rank)))
        return 0;
    if (!source_fits(r, e, rank))
        return gwi_fail(GW_EBROKEN,
                        "rank %d sent a message that makes no sense: it says that it is rank %d of "
                        "the communicator",
                        rank, (int)e->source);
    return gwi_fail(GW_EDISAGREE,
                    "%s sent %s with tag %" PRId64
                    ", but %s were to be received; the message is gone",
                    name_of(rank, e->source, who, sizeof who),
                    gwi_entries_text(e->n, e->dtype, sent, sizeof sent), e->tag,
                    gwi_entries_text(r->n, (uint32_t)r->dtype, wanted, sizeof wanted));
}

/* The receive gets the message, or fails. */
static int give(gwi_inbox *in, gw_request *r, const gwi_envelope *e, int rank)
{
    int err = check_match(r, e, rank);

    if (err < 0) {
        gwi_request_fail(r, err);
        in->n_done++;
        return err;
    }
    r->status = (gw_status){e->source, e->flags, e->tag, (size_t)e->n, e->number};
    r->stage = GWI_FILLING;
    return 0;
}

static void complete(gwi_inbox *in, gw_request *r)
{
    r->stage = GWI_DONE;
    in->n_done++;
}

/* A kept message goes to a receive.  If it is still coming, the rest of it goes straight
 * into the receive's buffer. */
static void hand_over(gwi_inbox *in, int rank, struct kept *k, gw_request *r)
{
    struct gwi_source *s = &in->sources[rank];
    size_t here = s->kept == k ? s->filled : k->n_bytes;

    if (give(in, r, &k->envelope, rank) == 0) {
        if (here > 0)
            memcpy(r->buffer, k->bytes, here);
        if (s->kept == k)
            s->request = r;
        else
            complete(in, r);
    }
    drop(in, s, k);
}

/* Give the receive a message that is kept, or let it wait for one in its turn. */
static void offer(gwi_inbox *in, gw_request *r)
{
    int rank = -1;
    struct kept *k = find_kept(in, r, &rank);

    if (k != NULL)
        hand_over(in, rank, k, r);
    else
        enqueue(in, r);
}

void gwi_inbox_post(gwi_inbox *in, gw_request *r)
{
    r->turn = in->turns++;
    offer(in, r);
    check_if_young(in);
}

/* what arrives */

static void end_message(struct gwi_source *s)
{
    s->coming = 0;
    s->n_head = 0;
    s->request = NULL;
    s->kept = NULL;
}

/* The sender took back what is under way, if anything is. */
static void take_back(gwi_inbox *in, struct gwi_source *s)
{
    gw_request *r = s->request;

    if (s->kept != NULL)
        drop(in, s, s->kept);
    end_message(s);
    if (r != NULL)
        offer(in, r);
}

/* The envelope is here: find out where the payload goes. */
static int begin_message(gwi_inbox *in, int rank, const gwi_envelope *e, size_t n_bytes)
{
    struct gwi_source *s = &in->sources[rank];
    gw_request *r = find_posted(in, s, e);

    if (r != NULL) {
        dequeue(in, r);
        s->request = give(in, r, e, rank) == 0 ? r : NULL;
    } else {
        s->kept = keep(in, s, e, n_bytes);
        if (s->kept == NULL)
            return gwi_fail(GW_ENOMEM, "no memory to keep a message of %zu bytes from rank %d",
                            n_bytes, rank);
    }
    s->envelope = *e;
    s->n_bytes = n_bytes;
    s->filled = 0;
    s->coming = 1;
    return 0;
}

/* The envelope, as much of it as is here.  `ret_used`: how much of the piece it took. */
static int take_envelope(gwi_inbox *in, const gwi_piece *piece, size_t *ret_used)
{
    struct gwi_source *s = &in->sources[piece->source];
    size_t missing = sizeof s->head - s->n_head;
    size_t n = piece->n_bytes < missing ? piece->n_bytes : missing;
    const void *head = s->n_head == 0 ? piece->bytes : s->head;
    gwi_envelope e;
    size_t n_bytes;

    if (n > 0 && (s->n_head > 0 || n < missing))
        memcpy(s->head + s->n_head, piece->bytes, n);
    *ret_used = n;
    if (n < missing && piece->total >= sizeof e) {
        s->n_head += n;
        return 0;
    }
    /* Of what is refused below n_head does not know: it is offered again. */
    int err = gwi_envelope_read(head, s->n_head + n, piece->total, piece->source, in->size, &e,
                                &n_bytes);
    return err < 0 ? err : begin_message(in, piece->source, &e, n_bytes);
}

static void put(struct gwi_source *s, const unsigned char *bytes, size_t n)
{
    unsigned char *to = s->request != NULL ? s->request->buffer
                        : s->kept != NULL  ? s->kept->bytes
                                           : NULL;

    if (to == NULL || n == 0)
        return;
    if (s->n_bytes >= STREAM_BYTES)
        gwi_copy_stream(to + s->filled, bytes, n);
    else
        memcpy(to + s->filled, bytes, n);
}

static void take_payload(gwi_inbox *in, struct gwi_source *s, const unsigned char *bytes, size_t n)
{
    put(s, bytes, n);
    s->filled += n;
    if (s->filled < s->n_bytes)
        return;
    gw_request *r = s->request;
    end_message(s);
    if (r != NULL)
        complete(in, r);
}

/* Whether a piece can be part of the payload that is due. */
static bool payload_fits(const struct gwi_source *s, const gwi_piece *piece)
{
    size_t before = s->envelope.kind == GWI_WHOLE ? sizeof s->envelope : 0;

    return piece->total == before + s->n_bytes && piece->offset == before + s->filled &&
           piece->n_bytes <= s->n_bytes - s->filled;
}

int gwi_inbox_deliver(void *ctx, const gwi_piece *piece)
{
    gwi_inbox *in = ctx;
    struct gwi_source *s = &in->sources[piece->source];
    size_t used = 0;

    if (gwi_unlikely(piece->abandoned || piece->total == 0)) {
        take_back(in, s);
    } else if (s->coming) {
        if (gwi_unlikely(!payload_fits(s, piece)))
            return gwi_fail(GW_EBROKEN,
                            "rank %d sent %zu bytes where %zu were due; something overwrote its "
                            "memory, or it runs another version of Godwit",
                            piece->source, piece->total, s->n_bytes);
        take_payload(in, s, piece->bytes, piece->n_bytes);
    } else {
        int err = take_envelope(in, piece, &used);
        if (err < 0)
            return err;
        /* A payload that comes apart is complete only with its own message. */
        if (s->coming && s->envelope.kind == GWI_WHOLE)
            take_payload(in, s, (const unsigned char *)piece->bytes + used, piece->n_bytes - used);
    }
    check_if_young(in);
    return 0;
}

/* giving up */

void gwi_inbox_cancel(gwi_inbox *in, gw_request *r)
{
    if (r->stage == GWI_POSTED)
        dequeue(in, r);
    for (int rank = 0; r->stage == GWI_FILLING && rank < in->size; rank++)
        if (in->sources[rank].request == r)
            in->sources[rank].request = NULL;
    r->stage = GWI_DONE;
    check_if_young(in);
}

static void fail_posted(gwi_inbox *in, gwi_posted *q, uint64_t context)
{
    for (gw_request *r = q->first, *next; r != NULL; r = next) {
        next = r->next;
        if (r->context != context)
            continue;
        dequeue(in, r);
        gwi_request_fail(r, gwi_fail(GW_ESTATE, "the communicator of this receive was closed"));
        in->n_done++;
    }
}

static void close_source(gwi_inbox *in, struct gwi_source *s, uint64_t context)
{
    gw_request *r = s->request;

    fail_posted(in, &s->posted, context);
    if (r != NULL && r->context == context) {
        gwi_request_fail(r, gwi_fail(GW_ESTATE, "the communicator of this receive was closed"));
        in->n_done++;
        s->request = NULL;
    }
    for (struct kept *k = s->first, *next; k != NULL; k = next) {
        next = k->next;
        if (k->envelope.context == context)
            drop(in, s, k);
    }
}

void gwi_inbox_close(gwi_inbox *in, uint64_t context)
{
    fail_posted(in, &in->any, context);
    for (int rank = 0; rank < in->size; rank++)
        close_source(in, &in->sources[rank], context);
    check_if_young(in);
}

/* rules */

static bool queue_valid(const gwi_inbox *in, const gwi_posted *q)
{
    const gw_request *before = NULL;
    int rank;

    for (const gw_request *r = q->first; r != NULL; before = r, r = r->next)
        if (r->stage != GWI_POSTED || r->prev != before ||
            (before != NULL && before->turn >= r->turn) || find_kept(in, r, &rank) != NULL)
            return false;
    return q->last == before;
}

static bool source_valid(const gwi_inbox *in, const struct gwi_source *s, uint64_t *n_kept)
{
    const struct kept *last = NULL;
    bool found = s->kept == NULL;

    for (const struct kept *k = s->first; k != NULL; last = k, k = k->next, ++*n_kept)
        found |= k == s->kept;
    if (s->last != last || !found || s->n_head >= sizeof s->head || !queue_valid(in, &s->posted))
        return false;
    if (!s->coming)
        return s->request == NULL && s->kept == NULL;
    if (s->request != NULL && (s->request->stage != GWI_FILLING || s->kept != NULL))
        return false;
    return s->filled < s->n_bytes;
}

bool gwi_inbox_valid(const gwi_inbox *in)
{
    uint64_t n_kept = 0;

    for (int rank = 0; rank < in->size; rank++)
        if (!source_valid(in, &in->sources[rank], &n_kept))
            return false;
    return n_kept == in->n_kept && queue_valid(in, &in->any);
}
