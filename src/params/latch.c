/* latch.c - waits for latches, and who had them. */
#include "params/latch.h"
#include "base/error.h"
#include "base/thread.h"
#include "comm/wait.h"
#include "params/clerk.h"

#include <stdio.h>

struct latch_wait {
    gw_params *params;
    int64_t key;
};

/* Whose hands the key is in: those of workers, or of agents. */
static int holders(void *ctx, int *ret_ranks, int n_max)
{
    const struct latch_wait *lw = ctx;
    const gw_params *params = lw->params;
    int n = 0;

    for (int s = 0; s < params->n_seats; s++)
        if (gwi_hand_holds(&params->seats[s].hand, lw->key) && n++ < n_max)
            ret_ranks[n - 1] = params->ranks[s / params->workers_each];
    for (int p = 0; p < gwi_clerks(params); p++)
        if (gwi_hand_holds(&params->seats[params->n_seats + p].hand, lw->key) && n++ < n_max)
            ret_ranks[n - 1] = params->ranks[p];
    for (int c = 0; c < params->n_channels; c++)
        if (gwi_hand_holds(&params->agent_hands[c], lw->key) && n++ < n_max)
            ret_ranks[n - 1] = params->ranks[c];
    return n;
}

int gwi_latch_check_death(gw_params *params, int64_t key)
{
    struct latch_wait lw = {params, key};
    gwi_fabric *f = params->world->fabric;
    enum { MOST = 64 };
    int ranks[MOST], n = holders(&lw, ranks, MOST);

    for (int i = 0; i < n && i < MOST; i++)
        if (f->ops->fate(f, ranks[i]) == GWI_DEAD)
            return gwi_fail(GW_EPEER,
                            "%s; rank %d died holding the latch of key %lld, whose vector may be "
                            "half written",
                            gw_last_error(), ranks[i], (long long)key);
    return n > MOST ? GW_EPEER : 0; /* not all were looked at */
}

int gwi_latch_wait(void *ctx, int64_t key)
{
    gw_params *params = ctx;
    struct latch_wait lw = {params, key};
    char call[64];
    int err;

    /* A call that begins is told of a death once in a while, not twice in a row. */
    while ((err = gwi_world_begin(params->world, GWI_OP_LATCH, -1)) == GW_EPEER)
        if (gwi_latch_check_death(params, key) < 0)
            return GW_EPEER;
    if (err < 0)
        return err;
    snprintf(call, sizeof call, "give back the latch of key %lld", (long long)key);
    gwi_wait wait = {.world = params->world,
                     .call = call,
                     .lane = GWI_LANE_MAIL,
                     .bell = &params->hall->bell,
                     .polls = 1,
                     .missing = holders,
                     .ctx = &lw};
    gwi_before_wait();
    while (gwi_store_latched(&params->store, key) && err >= 0) {
        err = gwi_wait_pause(&wait);
        if (err == GW_EPEER)
            err = gwi_latch_check_death(params, key);
    }
    gwi_after_wait();
    gwi_wait_end(&wait);
    return gwi_world_end(params->world, err < 0 ? err : 0);
}
