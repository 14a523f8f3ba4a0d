/* clerk.h - a worker of the process's own, for what the library does by itself.
 *
 * Saving and loading read and set keys by the ordinary operations.  Workers belong to the
 * caller and may be busy, so each process has one more, with a seat behind all workers' seats
 * (and with several nodes a tray).  No barrier counts it, and no statistics.
 *
 * Threads  One at a time: take() refuses a second one.
 * Dying    As of any worker: its hand tells which latches it had.                      */
#ifndef GWI_PARAMS_CLERK_H
#define GWI_PARAMS_CLERK_H

#include "params/params.h"

/* How many clerks a node has, and their seats. */
static inline int gwi_clerks(const gw_params *params)
{
    return params->world->fabric->place.local_size;
}

static inline int gwi_all_seats(const gw_params *params)
{
    return params->n_seats + gwi_clerks(params);
}

/* By the process that fills the memory: no barrier waits for clerks. */
void gwi_clerk_seat_all(gw_params *params);

/* GW_ESTATE if another thread has it; `call` ("save") is for the message. */
int gwi_clerk_take(gw_params *params, const char *call, gw_worker **ret_clerk);
void gwi_clerk_give_back(gw_params *params);

void gwi_clerk_free(gw_params *params);

#endif
