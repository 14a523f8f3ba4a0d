/* outbox.h - messages on their way out, which wait for room in order.
 *
 * A letter is one message: envelope and payload together if it is short, else the
 * envelope, and a payload lent by the caller.  What there is no room for waits in the
 * queue of its addressee until gwi_outbox_push().  Short ones are copies, so that their
 * requests are done at once, up to a limit.
 *
 * A letter that is taken back after some of it went out becomes a blank, which tells the
 * receiver; the place in the queue remains.
 *
 * Threads  One at a time.                                                        */
#ifndef GWI_COMM_OUTBOX_H
#define GWI_COMM_OUTBOX_H

#include "comm/envelope.h"
#include "comm/request.h"
#include "fabric/fabric.h"

typedef struct gwi_outbox {
    gwi_fabric *fabric; /* borrowed */
    int size;
    struct gwi_addressee *addressees; /* by rank in the world */
    int *busy;                        /* those with a queue */
    int n_busy;
    struct gwi_letter *spare; /* with room for a short payload, or NULL */
    size_t n_copied;          /* bytes in letters whose requests are done */
    uint64_t n_done;          /* requests completed so far */
} gwi_outbox;

int gwi_outbox_init(gwi_outbox *out, gwi_fabric *fabric);
void gwi_outbox_fini(gwi_outbox *out);

/* Begin to send what `r` says, from rank `source` of its communicator.  Sets r->status.
 * The request may be done at once. */
int gwi_outbox_put(gwi_outbox *out, gw_request *r, int source, uint32_t flags);

/* Send what there is room for.  Returns how many letters went out. */
int gwi_outbox_push_queued(gwi_outbox *out);

static inline int gwi_outbox_push(gwi_outbox *out)
{
    return out->n_busy > 0 ? gwi_outbox_push_queued(out) : 0;
}

/* Give a send up that is not done. */
void gwi_outbox_cancel(gwi_outbox *out, gw_request *r);

/* Nobody needs the numbers of this communicator any more. */
void gwi_outbox_close(gwi_outbox *out, uint64_t context);

/* At the end: only copies are still to be sent, and only to ranks that are here; their
 * requests end. */
void gwi_outbox_keep_copies(gwi_outbox *out);

#endif
