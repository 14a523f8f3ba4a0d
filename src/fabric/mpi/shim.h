/* shim.h - what a plugin gives the library: MPI without mpi.h.
 *
 * shim.c is compiled once for each MPI found at build time.  Each of these
 * plugins exports one symbol, gw_mpi_shim, and needs nothing from the library.
 * Handles are copied into words of 8 bytes, which holds them in every MPI.
 *
 * Functions return 0 or MPI's own error, for which `explain` has the text.  None
 * of them blocks but `start`, `finish` and `group`.                           */
#ifndef GWI_FABRIC_MPI_SHIM_H
#define GWI_FABRIC_MPI_SHIM_H

#include "fabric/fabric.h" /* for its types */

#include <stddef.h>
#include <stdint.h>

#define GWI_MPI_SHIM_LAYOUT 2 /* changes with this header */
#define GWI_MPI_ANY (-1)      /* any source, any tag */

typedef struct gwi_mpi_comm {
    uint64_t word;
} gwi_mpi_comm;
typedef struct gwi_mpi_request {
    uint64_t word;
} gwi_mpi_request;

/* A message that was found and must be received: taken out of the queue, so that
 * no other thread finds it. */
typedef struct gwi_mpi_found {
    uint64_t word;
    int source;
    int n_bytes;
} gwi_mpi_found;

enum gwi_mpi_state { GWI_MPI_NOT_STARTED, GWI_MPI_RUNNING, GWI_MPI_FINISHED };

struct gwi_mpi_shim {
    uint32_t layout; /* GWI_MPI_SHIM_LAYOUT */
    uint32_t size_bytes;

    void (*version)(char *text, int room);
    void (*explain)(int code, char *text, int room);

    enum gwi_mpi_state (*state)(void);
    int (*start)(void);
    int (*finish)(void);

    /* Have `call` called when MPI is about to end, whoever ends it; MPI still works
     * then. */
    int (*before_finish)(void (*call)(void));

    /* Whether any thread may call at any time (MPI_THREAD_MULTIPLE). */
    int (*all_threads)(int *ret_yes);
    int (*world)(int *ret_rank, int *ret_size);

    /* A communicator of our own, over all processes.  Collective; usable when the
     * request is done, and then errors are returned instead of fatal. */
    int (*open)(gwi_mpi_comm *comm, gwi_mpi_request *ret_request);
    int (*opened)(gwi_mpi_comm comm);

    /* Everybody's `n_bytes` to everybody, in the order of ranks.  Collective. */
    int (*gather)(gwi_mpi_comm comm, const void *mine, int n_bytes, void *all,
                  gwi_mpi_request *ret_request);

    /* Done when everybody has called it.  Collective. */
    int (*barrier)(gwi_mpi_comm comm, gwi_mpi_request *ret_request);

    /* `matched`: done only when the receiver has found it. */
    int (*send)(gwi_mpi_comm comm, const void *bytes, int n_bytes, int peer, int tag, int matched,
                gwi_mpi_request *ret_request);
    int (*find)(gwi_mpi_comm comm, int source, int tag, int *ret_yes, gwi_mpi_found *ret_found);
    int (*receive)(gwi_mpi_found *found, void *bytes, gwi_mpi_request *ret_request);

    /* A communicator for some ranks of `comm`, and any of its collectives.  All ranks call
     * these two, but for the freeing of the communicator. */
    int (*group)(gwi_mpi_comm comm, const int *ranks, int n, uint64_t context,
                 gwi_mpi_comm *ret_group);
    int (*collective)(gwi_mpi_comm group, const gwi_native_call *call,
                      gwi_mpi_request *ret_request);
    int (*ungroup)(gwi_mpi_comm *group);

    int (*test)(gwi_mpi_request *request, int *ret_done);

    /* Wait no longer for a request.  Its bytes stay lent to MPI for ever. */
    int (*forget)(gwi_mpi_request *request);
};

#endif
