/* clerk.c - making the worker that the library itself uses. */
#include "params/clerk.h"
#include "base/error.h"
#include "params/latch.h"
#include "params/remote.h"

#include <stdlib.h>

void gwi_clerk_seat_all(gw_params *params)
{
    for (int s = params->n_seats; s < gwi_all_seats(params); s++)
        atomic_store_explicit(&params->seats[s].barriers, GWI_SEAT_GONE, memory_order_seq_cst);
}

static int make(gw_params *params)
{
    const gwi_place *place = &params->world->fabric->place;
    gw_worker *clerk = calloc(1, sizeof *clerk);
    int err = 0;

    if (clerk == NULL)
        return gwi_fail(GW_ENOMEM, "a worker of the library's own");
    *clerk = (gw_worker){.params = params, .number = -1};
    clerk->seat = &params->seats[params->n_seats + place->local_rank];
    clerk->walker = (gwi_walker){
        .hand = &clerk->seat->hand, .stuck = gwi_latch_wait, .ctx = params};
    if (place->nodes > 1)
        err = gwi_remote_open(clerk);
    if (err < 0) {
        free(clerk);
        return err;
    }
    params->clerk = clerk;
    return 0;
}

int gwi_clerk_take(gw_params *params, const char *call, gw_worker **ret_clerk)
{
    int err = 0;

    pthread_mutex_lock(&params->lock);
    if (params->clerk_is_busy)
        err = gwi_fail(GW_ESTATE,
                       "%s: another thread of this process saves or loads these "
                       "parameters now",
                       call);
    else if (params->clerk == NULL)
        err = make(params);
    if (err == 0) {
        params->clerk_is_busy = 1;
        *ret_clerk = params->clerk;
    }
    pthread_mutex_unlock(&params->lock);
    return err;
}

void gwi_clerk_give_back(gw_params *params)
{
    pthread_mutex_lock(&params->lock);
    params->clerk_is_busy = 0;
    pthread_mutex_unlock(&params->lock);
}

void gwi_clerk_free(gw_params *params)
{
    if (params->clerk == NULL)
        return;
    gwi_remote_close(params->clerk);
    free(params->clerk);
    params->clerk = NULL;
}
