/* comm.h - MPI-style messages and collectives between the processes of a job.
 *
 * Owning   gw_comm_world() lends the world's communicator, which ends with the
 *          world; the other functions that make one give it to the caller, and
 *          gw_comm_close() takes it back.  Arrays are borrowed for the call, those
 *          of isend and irecv until the request is done.
 * Failing  Results below zero are a gw_err.  A bad argument is refused before
 *          anybody is told.  Ranks that call a collective with different arguments
 *          all get GW_EDISAGREE with a table of who called what, before any data
 *          moves, and the communicator goes on.  After a wait that failed (GW_EPEER,
 *          GW_ETIMEOUT, GW_EINTR) nobody knows who is where: the collectives of
 *          that communicator then fail with GW_ESTATE, and outputs are undefined.
 * Threads  Any thread may call anything.  Collectives of one communicator wait for
 *          each other; let only one thread call them, for all ranks must call them
 *          in the same order.
 * Forking  Communicators are dead in a forked child, as the world is.           */
#ifndef GODWIT_COMM_H
#define GODWIT_COMM_H

#include <godwit/base.h>
#include <godwit/dtype.h>
#include <godwit/world.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_comm gw_comm;

/* How values are combined: id, name.  MINLOC and MAXLOC combine pairs (value,
 * index), which lie along a last axis of length 2. */
#define GW_OPS(X)       \
    X(MAX, "MAX")       \
    X(MIN, "MIN")       \
    X(SUM, "SUM")       \
    X(PROD, "PROD")     \
    X(LAND, "LAND")     \
    X(BAND, "BAND")     \
    X(LOR, "LOR")       \
    X(BOR, "BOR")       \
    X(LXOR, "LXOR")     \
    X(BXOR, "BXOR")     \
    X(MINLOC, "MINLOC") \
    X(MAXLOC, "MAXLOC")

#define GW_OP_ID(id, name) GW_##id,
typedef enum gw_op { GW_OPS(GW_OP_ID) GW_N_OPS } gw_op;
#undef GW_OP_ID

/* An array, dense, row by row. */
typedef struct gw_array {
    void *data; /* collectives only read their input */
    gw_dtype dtype;
    int n_dims; /* 0: one entry */
    const int64_t *shape;
} gw_array;

#define GW_MAX_DIMS 64 /* as PyTorch has it */

/* communicators */

GW_API int gw_comm_world(gw_world *world, gw_comm **ret_comm);

/* Collective for the ranks of `comm`: those with the same color get a communicator
 * of their own, ordered by key, then by rank.  A color below 0 gets NULL. */
GW_API int gw_comm_split(gw_comm *comm, int color, int key, gw_comm **ret_comm);

/* Collective for the ranks listed, which are ranks of the world; the caller is one
 * of them, and all give the same list. */
GW_API int gw_comm_of_ranks(gw_world *world, const int *ranks, int n_ranks, gw_comm **ret_comm);

/* Not collective; before the world is closed.  NULL and the world's communicator are left
 * alone. */
GW_API void gw_comm_close(gw_comm *comm);

GW_API int gw_comm_rank(const gw_comm *comm);
GW_API int gw_comm_size(const gw_comm *comm);

/* The rank in the world of a rank of the communicator, or GW_ERANGE. */
GW_API int gw_comm_world_rank(const gw_comm *comm, int rank);

/* collectives */

/* What a collective can be: id, name, what its arguments mean.
 *
 * Axes: with `axis` the arrays of the ranks may differ in length along that axis
 * only, and are put together along it (gathered) or cut along it (scattered).
 *
 *   ALLREDUCE       every rank gets the entries of all combined by `op`
 *   REDUCE          `root` gets them; the others' outputs are zeroed
 *   BCAST           every rank gets the input of `root`
 *   GATHER          `root` gets all inputs along `axis`; the others get nothing:
 *                   an output of length 0 along `axis`
 *   ALLGATHER       every rank does
 *   SCATTER         the input of `root` is cut along `axis`, in the order of ranks;
 *                   each gets `count` of it.  Inputs of others may be anything
 *   ALLTOALL        each input is cut along `axis2`, rank r gets `count` (its own) of
 *                   each, and puts them together along `axis`
 *   REDUCE_SCATTER  ALLREDUCE, then SCATTER along `axis` with `count`
 *   SCAN            rank r gets the entries of the ranks 0 to r combined
 *   BARRIER         nobody gets anything before all have come                  */
#define GW_COLLECTIVES(X)               \
    X(ALLREDUCE, "Allreduce")           \
    X(REDUCE, "Reduce")                 \
    X(BCAST, "Bcast")                   \
    X(GATHER, "Gather")                 \
    X(ALLGATHER, "Allgather")           \
    X(SCATTER, "Scatter")               \
    X(ALLTOALL, "Alltoall")             \
    X(REDUCE_SCATTER, "Reduce_scatter") \
    X(SCAN, "Scan")                     \
    X(BARRIER, "Barrier")

#define GW_COLLECTIVE_ID(id, name) GW_##id,
typedef enum gw_collective { GW_COLLECTIVES(GW_COLLECTIVE_ID) GW_N_COLLECTIVES } gw_collective;
#undef GW_COLLECTIVE_ID

/* One call.  What a collective does not use is 0. */
typedef struct gw_call {
    size_t size_bytes; /* sizeof(gw_call) */
    gw_collective kind;
    gw_op op;
    gw_array input;
    int root;
    int axis, axis2; /* from 0 to n_dims - 1 */
    int64_t count;
    uint32_t flags; /* the caller's own; the bits of all ranks are joined by "or" */
} gw_call;

/* What the ranks agreed on.  Valid until the run or the abandoning. */
typedef struct gw_agreed {
    size_t size_bytes;     /* set to sizeof(gw_agreed) by the caller */
    gw_array output;       /* of this rank, without data */
    size_t n_bytes;        /* of the output */
    const int64_t *parts;  /* by rank: length along `axis` (GATHER, ALLGATHER, ALLTOALL) or
                            * count (SCATTER, ALLTOALL's along axis2 are in parts2,
                            * REDUCE_SCATTER), else NULL */
    const int64_t *parts2; /* ALLTOALL: every rank's count */
    uint32_t flags;
} gw_agreed;

/* A collective in two steps, for callers who learn only from the others how much
 * they get: agree tells, then the output is given to run.  Between the two the
 * communicator is the caller's; who cannot go on calls abandon, which leaves the
 * others waiting if much data is to move. */
GW_API int gw_comm_agree(gw_comm *comm, const gw_call *call, gw_agreed *ret_agreed);
GW_API int gw_comm_run(gw_comm *comm, void *output);
GW_API void gw_comm_abandon(gw_comm *comm);

/* A collective in one step, into memory of which the caller knows the size.  Where
 * output has the input's shape they may be the same memory. */
GW_API int gw_comm_call(gw_comm *comm, const gw_call *call, void *output, size_t output_bytes);

/* The usual ones by name. */
GW_API int gw_comm_barrier(gw_comm *comm);
GW_API int gw_comm_allreduce(gw_comm *comm, const void *input, void *output, size_t n,
                             gw_dtype dtype, gw_op op);
GW_API int gw_comm_reduce(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                          gw_op op, int root);
GW_API int gw_comm_bcast(gw_comm *comm, void *data, size_t n, gw_dtype dtype, int root);
GW_API int gw_comm_scan(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                        gw_op op);
/* `n` entries of each rank; `output` holds n * size (root's only, in gather). */
GW_API int gw_comm_gather(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                          int root);
GW_API int gw_comm_allgather(gw_comm *comm, const void *input, void *output, size_t n,
                             gw_dtype dtype);
/* `n` entries for each rank; `input` holds n * size (root's only, in scatter). */
GW_API int gw_comm_scatter(gw_comm *comm, const void *input, void *output, size_t n, gw_dtype dtype,
                           int root);
GW_API int gw_comm_alltoall(gw_comm *comm, const void *input, void *output, size_t n,
                            gw_dtype dtype);
GW_API int gw_comm_reduce_scatter(gw_comm *comm, const void *input, void *output, size_t n,
                                  gw_dtype dtype, gw_op op);

/* Whether values of a type can be combined so; GW_EUNSUP with a sentence if not. */
GW_API int gw_op_check(gw_op op, gw_dtype dtype);

/* messages with tags */

#define GW_ANY_SOURCE (-1)
#define GW_ANY_TAG (-1)

typedef struct gw_request gw_request;

/* What came. */
typedef struct gw_status {
    int source;
    uint32_t flags; /* the sender's own */
    int64_t tag;
    size_t n;        /* entries */
    uint64_t number; /* of the message among all from that source to us by this communicator */
} gw_status;

/* Start sending `n` entries to a rank of the communicator.  Programs use tags from 0
 * to 2^31 - 1; those from 2^31 to 2^62 are for libraries, and GW_ANY_TAG does not match
 * them.  The caller's flags travel along.  `ret_number`: of the message among all from
 * us to that rank by this communicator; NULL is fine. */
GW_API int gw_comm_isend(gw_comm *comm, const void *data, size_t n, gw_dtype dtype, int dest,
                         int64_t tag, uint32_t flags, uint64_t *ret_number,
                         gw_request **ret_request);

/* Start receiving exactly `n` entries of that type.  A message that matches but has another
 * type or number of entries fails the request with GW_EDISAGREE and is gone.  Messages of
 * one source that match are received in the order in which they were sent. */
GW_API int gw_comm_irecv(gw_comm *comm, void *data, size_t n, gw_dtype dtype, int source,
                         int64_t tag, gw_request **ret_request);

/* Whether a request is done; 1, 0 or its error.  When it is done or failed it is freed, and
 * `*request` is NULL.  `ret_status` may be NULL. */
GW_API int gw_request_test(gw_request **request, gw_status *ret_status);

/* The same, with waiting.  A wait that fails (GW_ETIMEOUT, GW_EINTR) leaves the request. */
GW_API int gw_request_wait(gw_request **request, gw_status *ret_status);

/* Give up a request that is not done.  A message under way to it is lost.  NULL is fine. */
GW_API void gw_request_cancel(gw_request **request);

#ifdef __cplusplus
}
#endif
#endif
