/* remote.h - what a worker does if there are several nodes: in place what is here, the rest by
 * the agents: that of its own process works in the caller's arrays, others get orders.
 *
 * Operations of a worker on one key keep their order: while one is with an agent, one that
 * follows waits for it.                                                                 */
#ifndef GWI_PARAMS_REMOTE_H
#define GWI_PARAMS_REMOTE_H

#include "params/params.h"

int gwi_remote_open(gw_worker *worker);

/* The worker's orders are done or given up. */
void gwi_remote_close(gw_worker *worker);

/* Arguments have been checked.  `ret_seq` is -1 if all is done. */
int gwi_remote_access(gw_worker *worker, gwi_order_kind kind, gw_keys keys, void *values,
                      size_t values_bytes, int asynchronous, size_t *ret_n_remote,
                      int64_t *ret_seq);
int gwi_remote_localize(gw_worker *worker, gw_keys keys, int64_t *ret_seq);
int gwi_remote_intent(gw_worker *worker, gw_keys keys, int64_t start, int64_t end);
int gwi_remote_sync(gw_worker *worker);
int gwi_remote_finish(gw_worker *worker);

/* Whether an operation is done, now. */
int gwi_remote_is_done(gw_worker *worker, int64_t seq);

/* Wait for one operation, or for all (-1). */
int gwi_remote_wait(gw_worker *worker, int64_t seq);

/* The wait for an operation failed, and its arrays are no longer lent. */
void gwi_remote_forget(gw_worker *worker, int64_t seq);

/* The last operation that was given a number. */
int64_t gwi_remote_last(const gw_worker *worker);

/* The worker's clock has advanced: wake agents that doze. */
void gwi_remote_clock_advanced(gw_worker *worker);

/* Wake the agent that counts arrivals at barriers. */
void gwi_remote_nudge(gw_worker *worker);

#endif
