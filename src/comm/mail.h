/* mail.h - messages with tags between the ranks of communicators.
 *
 *   envelope.h  what goes before each message
 *   outbox.h    messages that wait for room
 *   inbox.h     which message goes to which receive
 *   request.h   what the caller holds; request.c has the public calls
 *
 * This file holds them together: one mail per world, under one lock, which is held while
 * bytes move and never while waiting.  Nothing moves by itself; every call here moves
 * what it can, so that all may send before any receives.
 *
 * The library sends messages of its own in context 0, which no communicator has.
 *
 * Threads  Any thread may call anything.  A call may complete another thread's request,
 *          which is then woken.
 * Forking  Nothing here may be called in a forked child; gwi_world_begin() sees to it. */
#ifndef GWI_COMM_MAIL_H
#define GWI_COMM_MAIL_H

#include "comm/inbox.h"
#include "comm/outbox.h"
#include "comm/request.h"
#include "comm/world.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct gwi_mail {
    gw_world *world; /* borrowed */
    pthread_mutex_t lock;
    /* under `lock` */
    gwi_inbox in;
    gwi_outbox out;
    uint64_t n_told; /* requests of both that were completed when the waiting were last told */
    int n_waiting;   /* threads that pause */
    gw_request *spare;
    struct gwi_requests *requests; /* memory of all of them */
};

typedef struct gwi_mail gwi_mail;

/* The fabric of the world is open. */
int gwi_mail_new(gw_world *world, gwi_mail **ret_mail);

/* Requests end with it.  What was sent as far as the callers know goes out first, if the
 * others take it in before the world's time limit.  NULL is fine. */
void gwi_mail_free(gwi_mail *mail);

/* Send out and take in what can be, unless another thread is at it.  Returns how much
 * moved, or an error. */
int gwi_mail_progress(gw_world *world);

/* Send to a rank of the world; returns when the bytes may be used again.  Receive exactly
 * `n` bytes.  `call` says in messages what they are in.  For use inside a call that has
 * begun. */
int gwi_mail_post(gw_world *world, int world_rank, uint64_t context, int64_t tag, const void *bytes,
                  size_t n);
int gwi_mail_take(gw_world *world, int world_rank, uint64_t context, int64_t tag, void *buffer,
                  size_t n, const char *call);

/* A communicator is closed.  Its kept messages go, its receives fail, those who count its
 * messages forget. */
void gwi_mail_close_context(gw_world *world, uint64_t context);

/* for request.c */

/* Begin what `wish` says.  `source` and `flags` are of sends. */
int gwi_mail_start(gwi_mail *mail, const gw_request *wish, int source, uint32_t flags,
                   uint64_t *ret_number, gw_request **ret_request);

/* Whether a request is done (1 or 0), or an error: its own, or that of the look or wait.  When
 * it is done, or never will be, it is freed and *request is NULL. */
int gwi_mail_test(gwi_mail *mail, gw_request **request, gw_status *ret_status);
int gwi_mail_wait(gwi_mail *mail, gw_request **request, gw_status *ret_status);

/* Give a request back, done or not. */
void gwi_mail_cancel(gwi_mail *mail, gw_request *r);

#endif
