/* inbox.h - what arrives for a process: which message goes to which receive.
 *
 * A message goes to the receive that matches it and was posted first, straight into its
 * buffer; without one it is kept until one is posted.  A receive gets, of the messages
 * that match, the one that came first.  Only the envelope decides, so all this may
 * happen while the payload is still coming, in any number of pieces.  If the sender takes
 * a message back, the receive that had it is posted again in its old turn.
 *
 * Rules, checked by gwi_inbox_valid():
 *   M1  No kept message matches a posted receive.
 *   M2  Queues of receives are in the order of their turns.
 *   M3  What is coming from a source goes to one receive that is FILLING, or to one
 *       kept message, or nowhere.
 *
 * Threads  One at a time.                                                        */
#ifndef GWI_COMM_INBOX_H
#define GWI_COMM_INBOX_H

#include "comm/envelope.h"
#include "comm/request.h"
#include "fabric/fabric.h"

/* Receives that wait for a message. */
typedef struct gwi_posted {
    gw_request *first, *last;
} gwi_posted;

typedef struct gwi_inbox {
    int size;                   /* of the world */
    struct gwi_source *sources; /* by rank in the world */
    gwi_posted any;             /* receives from any source */
    uint64_t turns;             /* given to receives and to kept messages so far */
    uint64_t n_kept;
    uint64_t n_done; /* requests completed so far */
} gwi_inbox;

int gwi_inbox_init(gwi_inbox *in, int size);
void gwi_inbox_fini(gwi_inbox *in);

/* Take a piece of a message; `ctx` is the inbox.  GW_EBROKEN: it makes no sense.
 * GW_ENOMEM: it cannot be kept.  In both cases nothing has changed. */
int gwi_inbox_deliver(void *ctx, const gwi_piece *piece);

/* Begin to receive.  The request may be done at once. */
void gwi_inbox_post(gwi_inbox *in, gw_request *r);

/* Give a receive up that is not done.  A message that is coming to it is lost. */
void gwi_inbox_cancel(gwi_inbox *in, gw_request *r);

/* A communicator is closed: its kept messages go, its receives fail. */
void gwi_inbox_close(gwi_inbox *in, uint64_t context);

bool gwi_inbox_valid(const gwi_inbox *in);

#endif
