/* outbox.c - letters and their queues. */
#include "comm/outbox.h"
#include "base/hash.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_BYTES ((size_t)4096)      /* copying takes 0.1 us, a second message as long */
#define COPIED_BYTES ((size_t)16 << 20) /* beyond, senders wait for those who do not receive */

struct gwi_letter {
    struct gwi_letter *next;
    gw_request *owner;  /* is done when it is sent; NULL: nobody waits for it */
    gwi_outgoing out;   /* what is being sent now */
    const void *apart;  /* lent: the payload that follows, or NULL */
    size_t apart_bytes; /* of it */
    int begun;          /* what was sent before `out` is with the receiver */
    size_t n_copied;    /* as counted in the outbox */
    size_t room;
    unsigned char bytes[];
};

struct gwi_addressee {
    struct gwi_letter *first, *last; /* only the first may have begun */
    int busy;                        /* it is in that list */
    gwi_hash numbers;                /* by context: of the next message */
};

int gwi_outbox_init(gwi_outbox *out, gwi_fabric *fabric)
{
    int size = fabric->place.size;

    *out = (gwi_outbox){.fabric = fabric, .size = size};
    out->addressees = calloc((size_t)size, sizeof *out->addressees);
    out->busy = calloc((size_t)size, sizeof *out->busy);
    if (out->addressees != NULL && out->busy != NULL)
        return 0;
    gwi_outbox_fini(out);
    return gwi_fail(GW_ENOMEM, "an outbox for %d ranks", size);
}

void gwi_outbox_fini(gwi_outbox *out)
{
    for (int rank = 0; out->addressees != NULL && rank < out->size; rank++) {
        struct gwi_addressee *a = &out->addressees[rank];
        for (struct gwi_letter *l = a->first, *next; l != NULL; l = next) {
            next = l->next;
            free(l);
        }
        gwi_hash_fini(&a->numbers);
    }
    free(out->addressees);
    free(out->busy);
    free(out->spare);
    *out = (gwi_outbox){0};
}

/* letters */

/* One that will go out at once takes the spare, so that nothing is allocated. */
static struct gwi_letter *new_letter(gwi_outbox *out, size_t n_bytes, int waits)
{
    size_t room = sizeof(gwi_envelope) + (waits ? n_bytes : SHORT_BYTES);
    struct gwi_letter *l = waits ? NULL : out->spare;

    if (l != NULL)
        out->spare = NULL;
    else if ((l = malloc(sizeof *l + room)) != NULL)
        l->room = room;
    return l;
}

static void free_letter(gwi_outbox *out, struct gwi_letter *l)
{
    out->n_copied -= l->n_copied;
    if (out->spare == NULL && l->room == sizeof(gwi_envelope) + SHORT_BYTES)
        out->spare = l;
    else
        free(l);
}

static void set_outgoing(struct gwi_letter *l, int peer, const void *bytes, size_t n_bytes)
{
    l->out = (gwi_outgoing){
        .peer = peer, .lane = GWI_LANE_MAIL, .bytes = bytes, .n_bytes = n_bytes};
}

static void write_letter(struct gwi_letter *l, const gw_request *r, const gwi_envelope *e)
{
    size_t with = e->kind == GWI_WHOLE ? r->n_bytes : 0;

    memcpy(l->bytes, e, sizeof *e);
    if (with > 0)
        memcpy(l->bytes + sizeof *e, r->data, with);
    set_outgoing(l, r->peer, l->bytes, sizeof *e + with);
    l->next = NULL;
    l->owner = NULL;
    l->apart = e->kind == GWI_APART ? r->data : NULL;
    l->apart_bytes = r->n_bytes;
    l->begun = 0;
    l->n_copied = 0;
}

/* As the fabric's send(), for a whole letter. */
static int send_letter(gwi_outbox *out, struct gwi_letter *l)
{
    for (;;) {
        int done = out->fabric->ops->send(out->fabric, &l->out);
        if (done <= 0 || l->apart == NULL)
            return done;
        set_outgoing(l, l->out.peer, l->apart, l->apart_bytes);
        l->apart = NULL;
        l->begun = 1;
    }
}

/* Take back what has gone out of a letter.  Returns whether anything had: then it is a
 * blank now, which must follow. */
static int blank_letter(gwi_outbox *out, struct gwi_letter *l)
{
    int begun = l->begun || l->out.begun;

    if (l->out.begun)
        out->fabric->ops->abandon(out->fabric, &l->out);
    set_outgoing(l, l->out.peer, l->bytes, 0);
    l->apart = NULL;
    l->begun = 0;
    l->owner = NULL;
    return begun;
}

/* queues */

static void append(gwi_outbox *out, struct gwi_letter *l)
{
    struct gwi_addressee *a = &out->addressees[l->out.peer];

    *(a->last != NULL ? &a->last->next : &a->first) = l;
    a->last = l;
    if (!a->busy)
        out->busy[out->n_busy++] = l->out.peer;
    a->busy = 1;
}

static void unlink_letter(struct gwi_addressee *a, struct gwi_letter *gone)
{
    struct gwi_letter **link = &a->first, *before = NULL;

    for (; *link != gone; link = &(*link)->next)
        before = *link;
    *link = gone->next;
    if (a->last == gone)
        a->last = before;
}

/* The first letter of a queue is sent, or cannot be: 1 or an error. */
static void end_first(gwi_outbox *out, struct gwi_addressee *a, int done)
{
    struct gwi_letter *l = a->first;
    gw_request *r = l->owner;
    int blank = l->out.n_bytes == 0;

    if (r != NULL) {
        r->stage = GWI_DONE;
        if (done < 0)
            gwi_request_fail(r, done);
        out->n_done++;
    }
    if (done < 0 && blank_letter(out, l) && !blank)
        return;
    unlink_letter(a, l);
    free_letter(out, l);
}

/* Returns how many letters went out. */
static int push_to(gwi_outbox *out, struct gwi_addressee *a)
{
    int n = 0, done;

    while (a->first != NULL && (done = send_letter(out, a->first)) != 0) {
        end_first(out, a, done);
        n += done > 0;
    }
    return n;
}

int gwi_outbox_push_queued(gwi_outbox *out)
{
    int n = 0;

    for (int i = 0; i < out->n_busy;) {
        struct gwi_addressee *a = &out->addressees[out->busy[i]];
        n += push_to(out, a);
        a->busy = a->first != NULL;
        if (a->busy)
            i++;
        else
            out->busy[i] = out->busy[--out->n_busy];
    }
    return n;
}

/* putting in and taking back */

static uint64_t *find_number(struct gwi_addressee *a, uint64_t context)
{
    uint64_t *number = gwi_hash_find(&a->numbers, context);

    if (gwi_unlikely(number == NULL) && gwi_hash_put(&a->numbers, context, 0) == 0)
        number = gwi_hash_find(&a->numbers, context);
    return number;
}

/* A letter waits for room; a copy lets its request go if there are not too many. */
static void queue_letter(gwi_outbox *out, struct gwi_letter *l, gw_request *r)
{
    if (l->apart == NULL && !l->begun && out->n_copied + l->room <= COPIED_BYTES) {
        l->n_copied = l->room;
        out->n_copied += l->room;
        r->stage = GWI_DONE;
    } else {
        l->owner = r;
        r->letter = l;
        r->stage = GWI_SENDING;
    }
    append(out, l);
}

int gwi_outbox_put(gwi_outbox *out, gw_request *r, int source, uint32_t flags)
{
    struct gwi_addressee *a = &out->addressees[r->peer];
    int is_short = r->n_bytes <= SHORT_BYTES, waits = a->first != NULL, done = 0;
    uint64_t *number = find_number(a, r->context);

    struct gwi_letter *l = new_letter(out, is_short ? r->n_bytes : 0, waits);
    if (number == NULL || l == NULL) {
        free(l);
        return gwi_fail(GW_ENOMEM, "sending %zu bytes to rank %d", r->n_bytes, r->peer);
    }
    gwi_envelope e = {is_short ? GWI_WHOLE : GWI_APART,
                      (uint32_t)r->dtype,
                      r->context,
                      r->tag,
                      *number,
                      r->n,
                      flags,
                      source};
    write_letter(l, r, &e);
    if (!waits && (done = send_letter(out, l)) < 0) {
        if (blank_letter(out, l))
            append(out, l);
        else
            free_letter(out, l);
        return done;
    }
    ++*number;
    r->status = (gw_status){source, flags, r->tag, r->n, e.number};
    if (done == 0) {
        queue_letter(out, l, r);
        return 0;
    }
    free_letter(out, l);
    r->stage = GWI_DONE;
    return 0;
}

void gwi_outbox_cancel(gwi_outbox *out, gw_request *r)
{
    struct gwi_letter *l = r->letter;

    if (r->stage != GWI_SENDING)
        return;
    r->stage = GWI_DONE;
    if (blank_letter(out, l))
        return;
    unlink_letter(&out->addressees[r->peer], l);
    free_letter(out, l);
}

void gwi_outbox_close(gwi_outbox *out, uint64_t context)
{
    for (int rank = 0; rank < out->size; rank++)
        gwi_hash_remove(&out->addressees[rank].numbers, context, NULL);
}

void gwi_outbox_keep_copies(gwi_outbox *out)
{
    for (int i = 0; i < out->n_busy; i++) {
        struct gwi_addressee *a = &out->addressees[out->busy[i]];
        int here = out->fabric->ops->fate(out->fabric, out->busy[i]) == GWI_HERE;
        for (struct gwi_letter *l = a->first, *next; l != NULL; l = next) {
            next = l->next;
            if (l->owner != NULL)
                gwi_outbox_cancel(out, l->owner);
            else if (!here) {
                unlink_letter(a, l);
                free_letter(out, l);
            }
        }
    }
}
