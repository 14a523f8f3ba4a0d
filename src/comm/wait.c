/* wait.c - waits of calls, and the sentences about those that fail. */
#include "comm/wait.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/platform.h"
#include "comm/world.h"
#include "fabric/ranks.h"

#include <stdio.h>
#include <stdlib.h>

static const char *missing_text(const gwi_wait *w, char *text, size_t room)
{
    int missing[GWI_RANKS_SHOWN] = {w->peer};
    int n = w->missing != NULL ? w->missing(w->ctx, missing, GWI_RANKS_SHOWN) : 1;

    return n > 0 ? gwi_ranks_text(missing, n, text, room) : "somebody";
}

/* A first line with who is missing, and a table of what everybody is doing. */
static int time_out(const gwi_wait *w)
{
    gwi_fabric *f = w->world->fabric;
    char missing[256], *table = NULL;
    size_t n_bytes;

    FILE *to = open_memstream(&table, &n_bytes);
    if (to != NULL) {
        f->ops->print_ledger(f, to);
        fclose(to);
    }
    int err = gwi_fail(GW_ETIMEOUT, "%s did not come within %g s to %s, where rank %d waits\n%s",
                       missing_text(w, missing, sizeof missing),
                       (double)w->world->job.timeout_ns / 1e9, w->call, f->place.rank,
                       table != NULL ? table : "");
    free(table);
    return err;
}

/* Say of a failed wait what it was for. */
static int explain(const gwi_wait *w, int err)
{
    if (err == GW_EPEER)
        return gwi_fail(err, "%s; rank %d was in %s", gw_last_error(), w->world->fabric->place.rank,
                        w->call);
    return err == GW_ETIMEOUT ? time_out(w) : err;
}

int gwi_wait_pause(gwi_wait *w)
{
    if (!w->begun) {
        gwi_patience_begin(&w->patience, w->world->fabric, w->lane,
                           gwi_deadline_ns(w->world->job.timeout_ns));
        if (w->bell != NULL) {
            w->patience.waiter.bell = w->bell;
            w->patience.waiter.polls = w->polls;
        }
        w->begun = 1;
        if (w->began_ns == 0)
            w->began_ns = gwi_trace_began();
    }
    int err = gwi_patience_pause(&w->patience);
    return err < 0 ? explain(w, err) : err;
}

int gwi_wait_pause_locked(gwi_wait *w, pthread_mutex_t *lock)
{
    pthread_mutex_unlock(lock);
    int err = gwi_wait_pause(w);
    pthread_mutex_lock(lock);
    return err;
}

void gwi_wait_end(gwi_wait *w)
{
    if (w->begun) {
        gwi_patience_end(&w->patience);
        gwi_ledger_waited(w->world->fabric->entry);
    }
    if (gwi_unlikely(w->began_ns != 0))
        gwi_track_waited(w->track != NULL ? w->track : gwi_track_of_thread(), w->call, w->began_ns);
}

int gwi_check_fates(const gw_world *world, const int *ranks, int n, const char *call)
{
    gwi_fabric *f = world->fabric;
    int gone[GWI_RANKS_SHOWN], n_gone = 0;
    char text[256];

    for (int i = 0; i < n; i++)
        if (gwi_unlikely(f->ops->fate(f, ranks[i]) != GWI_HERE)) {
            if (n_gone < GWI_RANKS_SHOWN)
                gone[n_gone] = ranks[i];
            n_gone++;
        }
    if (gwi_likely(n_gone == 0))
        return 0;
    /* A rank leaves early because another one died: that one is to be named. */
    int err = f->ops->check(f);
    if (err < 0)
        return gwi_fail(err, "%s; rank %d was in %s", gw_last_error(), f->place.rank, call);
    return gwi_fail(GW_EPEER, "%s %s left the job; rank %d was in %s",
                    gwi_ranks_text(gone, n_gone, text, sizeof text), n_gone == 1 ? "has" : "have",
                    f->place.rank, call);
}

int gwi_check_fate(const gw_world *world, int rank, const char *call)
{
    return gwi_check_fates(world, &rank, 1, call);
}
