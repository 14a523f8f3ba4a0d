/* mail.c - moving messages, waiting for them, and the memory of requests. */
#include "comm/mail.h"
#include "base/platform.h"
#include "comm/wait.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS_AT_ONCE = 64 };

/* Requests are allocated many at a time and live as long as the mail. */
struct gwi_requests {
    struct gwi_requests *next;
    gw_request requests[REQUESTS_AT_ONCE];
};

static gw_request *new_request(gwi_mail *mail)
{
    if (gwi_unlikely(mail->spare == NULL)) {
        struct gwi_requests *more = calloc(1, sizeof *more);
        if (more == NULL)
            return NULL;
        more->next = mail->requests;
        mail->requests = more;
        for (int i = 0; i < REQUESTS_AT_ONCE; i++) {
            more->requests[i].next = mail->spare;
            mail->spare = &more->requests[i];
        }
    }
    gw_request *r = mail->spare;
    mail->spare = r->next;
    return r;
}

static void free_request(gwi_mail *mail, gw_request *r)
{
    free(r->sentence);
    r->sentence = NULL;
    r->next = mail->spare;
    mail->spare = r;
}

/* moving */

/* Wake those whose requests were completed by this thread. */
static void tell_locked(gwi_mail *mail)
{
    uint64_t n_done = mail->in.n_done + mail->out.n_done;

    if (n_done != mail->n_told && mail->n_waiting > 0)
        mail->world->fabric->ops->nudge(mail->world->fabric, mail->world->fabric->place.rank,
                                        GWI_LANE_MAIL);
    mail->n_told = n_done;
}

/* Send out what there is room for and take in what came, from one rank or from all (-1).
 * Returns how much it was. */
static int move_locked(gwi_mail *mail, int source)
{
    gwi_fabric *f = mail->world->fabric;
    int sent = gwi_outbox_push(&mail->out);
    int taken = f->ops->poll(f, GWI_LANE_MAIL, source, gwi_inbox_deliver, &mail->in);

    tell_locked(mail);
    return taken < 0 ? taken : sent + taken;
}

int gwi_mail_progress(gw_world *world)
{
    gwi_mail *mail = world->mail;

    if (pthread_mutex_trylock(&mail->lock) != 0)
        return 0;
    int moved = move_locked(mail, -1);
    pthread_mutex_unlock(&mail->lock);
    return moved;
}

/* requests */

static int start_locked(gwi_mail *mail, gw_request *r, int source, uint32_t flags)
{
    /* Those before it go first; so it may go out at once. */
    gwi_outbox_push(&mail->out);
    if (!r->sends) {
        gwi_inbox_post(&mail->in, r);
        return 0;
    }
    int err = gwi_outbox_put(&mail->out, r, source, flags);
    if (err == 0 && r->stage != GWI_DONE)
        /* Whoever cannot send takes in, so that nobody waits for ever.  An error comes
         * again, to somebody who waits. */
        move_locked(mail, -1);
    return err;
}

int gwi_mail_start(gwi_mail *mail, const gw_request *wish, int source, uint32_t flags,
                   uint64_t *ret_number, gw_request **ret_request)
{
    int err;

    pthread_mutex_lock(&mail->lock);
    gw_request *r = new_request(mail);
    if (r == NULL) {
        err = gwi_fail(GW_ENOMEM, "a request");
    } else {
        *r = *wish;
        err = start_locked(mail, r, source, flags);
        if (err < 0)
            free_request(mail, r);
    }
    if (err == 0) {
        if (ret_number != NULL)
            *ret_number = r->status.number;
        *ret_request = r;
    }
    tell_locked(mail);
    pthread_mutex_unlock(&mail->lock);
    return err;
}

static void cancel_locked(gwi_mail *mail, gw_request *r)
{
    if (r->stage != GWI_DONE && r->sends)
        gwi_outbox_cancel(&mail->out, r);
    else if (r->stage != GWI_DONE)
        gwi_inbox_cancel(&mail->in, r);
    free_request(mail, r);
}

void gwi_mail_cancel(gwi_mail *mail, gw_request *r)
{
    pthread_mutex_lock(&mail->lock);
    cancel_locked(mail, r);
    pthread_mutex_unlock(&mail->lock);
}

/* After a look or a wait that ended with `err`, which is not the request's own. */
static int end_locked(gwi_mail *mail, gw_request **request, int err, gw_status *ret_status)
{
    gw_request *r = *request;

    if (r->stage != GWI_DONE) {
        /* Without the peer, or in a world that is broken, it will never be done. */
        if (err == GW_EPEER || err == GW_EBROKEN) {
            cancel_locked(mail, r);
            *request = NULL;
        }
        return err;
    }
    *request = NULL;
    err = r->err;
    if (err < 0)
        gwi_fail(err, "%s", r->sentence != NULL ? r->sentence : "");
    else if (ret_status != NULL)
        *ret_status = r->status;
    free_request(mail, r);
    return err < 0 ? err : 1;
}

/* waiting */

/* Ranks that the request may hear from. */
static int sources_of(void *ctx, int *ret_ranks, int n_max)
{
    const gw_request *r = ctx;
    int n = 0;

    if (r->peer >= 0) {
        ret_ranks[0] = r->peer;
        return 1;
    }
    for (int i = 0; i < r->comm->size; i++)
        if (i != r->comm->rank && n++ < n_max)
            ret_ranks[n - 1] = r->comm->ranks[i];
    return n;
}

static int is_here(const gw_request *r, int rank)
{
    gwi_fabric *f = r->world->fabric;

    return f->ops->fate(f, rank) == GWI_HERE;
}

/* Whether nobody is here any more whom the request could hear from. */
static int is_lonely(const gw_request *r)
{
    if (r->peer >= 0)
        return !is_here(r, r->peer);
    for (int i = 0; i < r->comm->size; i++)
        if (i != r->comm->rank && is_here(r, r->comm->ranks[i]))
            return 0;
    return r->comm->size > 1;
}

/* That nobody is here, in words. */
static int say_lonely(const gw_request *r, const char *call)
{
    int rank = r->peer;

    if (rank < 0)
        rank = r->comm->ranks[r->comm->rank == 0 ? 1 : 0];
    return gwi_check_fate(r->world, rank, call);
}

/* "a receive with tag 7" */
static void describe(const gw_request *r, char *text, size_t room)
{
    const char *what = r->sends ? "a send" : "a receive";

    if (r->call != NULL)
        snprintf(text, room, "%s", r->call);
    else if (r->tag == GW_ANY_TAG)
        snprintf(text, room, "%s with any tag", what);
    else
        snprintf(text, room, "%s with tag %" PRId64, what, r->tag);
}

static int look_locked(gwi_mail *mail, gw_request *r)
{
    char text[96];
    /* First whether anybody is here: what a rank sent before it left still counts. */
    int lonely = is_lonely(r), moved;

    do
        moved = move_locked(mail, -1);
    while (lonely && moved > 0 && r->stage != GWI_DONE);
    if (!lonely || moved < 0 || r->stage == GWI_DONE)
        return moved < 0 ? moved : 0;
    describe(r, text, sizeof text);
    return say_lonely(r, text);
}

int gwi_mail_test(gwi_mail *mail, gw_request **request, gw_status *ret_status)
{
    int err = 0;

    pthread_mutex_lock(&mail->lock);
    if ((*request)->stage != GWI_DONE)
        err = look_locked(mail, *request);
    err = end_locked(mail, request, err, ret_status);
    pthread_mutex_unlock(&mail->lock);
    return err;
}

static int pause_locked(gwi_mail *mail, gwi_wait *w)
{
    mail->n_waiting++;
    int err = gwi_wait_pause_locked(w, &mail->lock);
    mail->n_waiting--;
    return err;
}

/* Returns 0 when the request is done. */
static int wait_locked(gwi_mail *mail, gw_request *r)
{
    /* Written when the wait gets long, since few need it. */
    char text[96];
    gwi_wait w = {
        .world = mail->world, .call = text, .lane = GWI_LANE_MAIL, .missing = sources_of, .ctx = r};
    int err = 0, lonely = 0;

    strcpy(text, "a message");
    while (r->stage != GWI_DONE && err >= 0) {
        err = move_locked(mail, r->sends ? -1 : r->peer);
        if (err != 0 || r->stage == GWI_DONE)
            continue;
        if (lonely) {
            err = say_lonely(r, text);
            break;
        }
        if ((err = pause_locked(mail, &w)) > 0) {
            describe(r, text, sizeof text);
            /* One more look after nobody is here: what they sent before still counts. */
            lonely = is_lonely(r);
            err = move_locked(mail, -1);
        }
    }
    gwi_wait_end(&w);
    return err < 0 ? err : 0;
}

int gwi_mail_wait(gwi_mail *mail, gw_request **request, gw_status *ret_status)
{
    int err = 0;

    pthread_mutex_lock(&mail->lock);
    gw_request *r = *request;
    if (r->stage != GWI_DONE)
        err = move_locked(mail, r->sends ? -1 : r->peer); /* often enough */
    if (r->stage != GWI_DONE && err >= 0)
        err = wait_locked(mail, r);
    /* A process that slept past its limit may find what it waited for all the same. */
    if (err == GW_ETIMEOUT && r->stage != GWI_DONE)
        move_locked(mail, -1);
    if (err != GW_EINTR)
        err = end_locked(mail, request, err, ret_status);
    pthread_mutex_unlock(&mail->lock);
    return err;
}

/* the library's own messages */

static int start_and_wait(gw_world *world, const gw_request *wish)
{
    gw_request *r;
    int err = gwi_mail_start(world->mail, wish, world->fabric->place.rank, 0, NULL, &r);

    if (err < 0)
        return err;
    err = gwi_mail_wait(world->mail, &r, NULL);
    if (r != NULL)
        gwi_mail_cancel(world->mail, r);
    return err < 0 ? err : 0;
}

int gwi_mail_post(gw_world *world, int world_rank, uint64_t context, int64_t tag, const void *bytes,
                  size_t n)
{
    gw_request wish = {.world = world,
                       .call = "a message of the library",
                       .sends = 1,
                       .peer = world_rank,
                       .context = context,
                       .tag = tag,
                       .n = n,
                       .dtype = GW_U8,
                       .data = bytes,
                       .n_bytes = n};
    int err = gwi_check_fate(world, world_rank, wish.call);

    return err < 0 ? err : start_and_wait(world, &wish);
}

int gwi_mail_take(gw_world *world, int world_rank, uint64_t context, int64_t tag, void *buffer,
                  size_t n, const char *call)
{
    gw_request wish = {.world = world,
                       .call = call,
                       .peer = world_rank,
                       .context = context,
                       .tag = tag,
                       .n = n,
                       .dtype = GW_U8,
                       .buffer = buffer,
                       .n_bytes = n};

    return start_and_wait(world, &wish);
}

void gwi_mail_close_context(gw_world *world, uint64_t context)
{
    gwi_mail *mail = world->mail;

    pthread_mutex_lock(&mail->lock);
    gwi_inbox_close(&mail->in, context);
    gwi_outbox_close(&mail->out, context);
    tell_locked(mail);
    pthread_mutex_unlock(&mail->lock);
}

/* coming and going */

int gwi_mail_new(gw_world *world, gwi_mail **ret_mail)
{
    int err;

    gwi_mail *mail = calloc(1, sizeof *mail);
    if (mail == NULL)
        return gwi_fail(GW_ENOMEM, "messages with tags");
    mail->world = world;
    err = gwi_inbox_init(&mail->in, world->fabric->place.size);
    if (err < 0)
        goto free_mail;
    err = gwi_outbox_init(&mail->out, world->fabric);
    if (err < 0)
        goto fini_inbox;
    pthread_mutex_init(&mail->lock, NULL);
    *ret_mail = mail;
    return 0;

fini_inbox:
    gwi_inbox_fini(&mail->in);
free_mail:
    free(mail);
    return err;
}

/* Who has not taken in what we have to send. */
static int addressees_of(void *ctx, int *ret_ranks, int n_max)
{
    const gwi_outbox *out = ctx;

    for (int i = 0; i < out->n_busy && i < n_max; i++)
        ret_ranks[i] = out->busy[i];
    return out->n_busy;
}

static void flush_locked(gwi_mail *mail)
{
    gwi_wait w = {.world = mail->world,
                  .call = "leaving",
                  .lane = GWI_LANE_MAIL,
                  .missing = addressees_of,
                  .ctx = &mail->out};
    int err = 0;

    gwi_outbox_keep_copies(&mail->out);
    while ((err = move_locked(mail, -1)) >= 0 && mail->out.n_busy > 0)
        if (err == 0 && (err = pause_locked(mail, &w)) < 0)
            break;
        else if (err > 0)
            gwi_outbox_keep_copies(&mail->out);
    gwi_wait_end(&w);
}

void gwi_mail_free(gwi_mail *mail)
{
    if (mail == NULL)
        return;
    pthread_mutex_lock(&mail->lock);
    if (mail->out.n_busy > 0)
        flush_locked(mail);
    pthread_mutex_unlock(&mail->lock);
    for (struct gwi_requests *b = mail->requests, *next; b != NULL; b = next) {
        next = b->next;
        for (int i = 0; i < REQUESTS_AT_ONCE; i++)
            free(b->requests[i].sentence);
        free(b);
    }
    gwi_outbox_fini(&mail->out);
    gwi_inbox_fini(&mail->in);
    pthread_mutex_destroy(&mail->lock);
    free(mail);
}
