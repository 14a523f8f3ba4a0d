/* world.h - the processes of a job: who they are, how they meet and talk.
 *
 * Owning   gw_world_join() gives a world to the caller, gw_world_close() takes
 *          it back.  Buffers are borrowed for the call only.
 * Failing  Results below zero are a gw_err.  A call that fails has changed
 *          nothing and has left its ret_ arguments as they were, but where a
 *          function says otherwise.
 * Threads  Any thread may call anything; messages from one thread to one peer
 *          stay in order.
 * Forking  A world is dead in a forked child: calls there fail with GW_ESTATE,
 *          but for gw_world_get_info(), which tells where the parent stands.
 *          Nothing the child does harms the parent's job.                   */
#ifndef GODWIT_WORLD_H
#define GODWIT_WORLD_H

#include <godwit/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_world gw_world;

/* How to find the others.  GW_WORLD_OPTIONS_INIT means: find out from the
 * environment (`godwit run`, then torchrun, then MPI, else a world of one). */
typedef struct gw_world_options {
    size_t size_bytes; /* sizeof(gw_world_options), so that it can grow */
    int rank;          /* -1: given by the launcher, or by order of arrival */
    int size;          /* 0: given by the launcher, else 1 */
    int node_size;     /* processes per virtual node; 0: as GODWIT_NODE_SIZE, else all */
    const char *job;   /* NULL: given by the launcher, else the parent process */
    double timeout_s;  /* 0: as GODWIT_TIMEOUT */
    int with_parent;   /* not 0: joining gives up when this process's parent ends */
    /* NULL, or a world of this process: joining gives up when anybody of it leaves or dies.
     * For a job whose processes met before; borrowed for the call. */
    const gw_world *within;
} gw_world_options;
/* clang-format off */
#define GW_WORLD_OPTIONS_INIT {sizeof(gw_world_options), -1, 0, 0, NULL, 0, 0, NULL}
/* clang-format on */

/* Where this process stands.  Set at joining, then constant. */
typedef struct gw_world_info {
    size_t size_bytes;          /* set to sizeof(gw_world_info) by the caller */
    int rank, size;             /* this process, of how many */
    int node, nodes;            /* its node, of how many */
    int local_rank, local_size; /* this process within its node, of how many */
    const char *fabric;         /* "shm", "mpi", "sim" */
    const char *reason;         /* why this fabric and these numbers, in one line */
} gw_world_info;

/* What gw_world_join() would do with these options, without doing it:
 * rank -1 means by order of arrival.  `ret_reason` gets a line of at most
 * `reason_bytes`.  This is what `godwit check` prints. */
GW_API int gw_world_plan(const gw_world_options *opt, gw_world_info *ret_info, char *ret_reason,
                         size_t reason_bytes);

/* Collective: returns when all processes of the job have joined. */
GW_API int gw_world_join(const gw_world_options *opt, gw_world **ret_world);

/* Leave.  Not collective: what was sent before can still be received by the
 * others.  The world is freed; NULL is fine. */
GW_API void gw_world_close(gw_world *world);

GW_API int gw_world_get_info(const gw_world *world, gw_world_info *ret_info);

/* Collective: returns when every process has called it.  If it fails, for
 * example by time-out, this process still counts as arrived: calling it again
 * continues the same wait. */
GW_API int gw_world_barrier(gw_world *world);

/* Send `n_bytes` to rank `peer` (itself too).  Returns when the buffer may be
 * used again, which says nothing about the receiver.  While it waits for room
 * it takes in what others send, so that all may send before any receives. */
GW_API int gw_world_send(gw_world *world, int peer, const void *bytes, size_t n_bytes);

/* Wait for the next message from `peer` and tell its length.  If the sender is
 * interrupted in the middle of that message, another one takes its place. */
GW_API int gw_world_peek(gw_world *world, int peer, size_t *ret_n_bytes);

/* Receive the next message from `peer`.  If it is longer than `capacity`, fails
 * with GW_EINVAL and the message stays where it is. */
GW_API int gw_world_recv(gw_world *world, int peer, void *buffer, size_t capacity,
                         size_t *ret_n_bytes);

#ifdef __cplusplus
}
#endif
#endif
