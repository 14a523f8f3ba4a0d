/* request.h - a message that is being sent or received, as its caller holds it.
 *
 * Whoever completes a request does so under the lock of its mail; whoever waits for it
 * looks at it under that lock.                                                   */
#ifndef GWI_COMM_REQUEST_H
#define GWI_COMM_REQUEST_H

#include "base/error.h"
#include "comm/group.h"

#include <godwit/comm.h>

#include <stdint.h>

struct gwi_letter;

typedef enum gwi_stage {
    GWI_SENDING, /* its letter waits for room */
    GWI_POSTED,  /* no message for it yet */
    GWI_FILLING, /* its message is coming in */
    GWI_DONE     /* or failed */
} gwi_stage;

struct gw_request {
    /* set when made, then constant */
    gw_world *world;
    const gw_comm *comm; /* borrowed; NULL: the library's own, ranks are those of the world */
    const char *call;    /* whose it is then, for messages */
    int sends;
    int peer; /* rank in the world; -1: any of the communicator */
    uint64_t context;
    int64_t tag; /* or GW_ANY_TAG */
    size_t n;    /* entries */
    gw_dtype dtype;
    const void *data; /* lent: what is sent */
    void *buffer;     /* lent: where it is received */
    size_t n_bytes;
    /* under the lock of the mail */
    gwi_stage stage;
    int err;
    char *sentence; /* about `err`, or NULL */
    gw_status status;
    struct gwi_letter *letter; /* SENDING */
    uint64_t turn;             /* POSTED, FILLING: lower ones were posted earlier */
    gw_request *next, *prev;   /* POSTED: in its queue; free: next */
};

/* It failed, with the sentence recorded last: that is kept for whoever waits, who may
 * be another thread. */
void gwi_request_fail(gw_request *r, int err);

#endif
