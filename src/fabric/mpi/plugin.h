/* plugin.h - the MPI of this process: which one it is, loading its plugin,
 * starting MPI or joining one that runs, and ending it.
 *
 * There is at most one MPI in a process, so what is known of it is kept here for
 * the whole process.  MPI can be started once only: it ends with the process, not
 * with a world.                                                               */
#ifndef GWI_FABRIC_MPI_PLUGIN_H
#define GWI_FABRIC_MPI_PLUGIN_H

#include "fabric/job.h"
#include "fabric/mpi/shim.h"

#include <stddef.h>

/* "Open MPI" or "MPICH". */
const char *gwi_mpi_name(gwi_mpi_kind kind);

/* The MPI library that somebody has already loaded into this process. */
typedef struct gwi_mpi_loaded {
    gwi_mpi_kind kind; /* GWI_NO_MPI: none */
    int running;       /* it was started and not ended */
    char path[256];
} gwi_mpi_loaded;

gwi_mpi_loaded gwi_mpi_find_loaded(void);

/* Whether there is a plugin for this MPI: 0, or GW_EUNSUP with what to do. */
int gwi_plugin_find(gwi_mpi_kind kind);

/* Load it.  The library stays loaded. */
int gwi_plugin_load(gwi_mpi_kind kind, const struct gwi_mpi_shim **ret_shim);

/* Start MPI, unless it runs already.  What we start we end, when the process
 * ends. */
int gwi_plugin_start(const struct gwi_mpi_shim *shim);

/* Our own communicator, made when it is asked for first.  `*ret_epoch` counts the
 * calls; all ranks must call it equally often.  Collective.  GW_ETIMEOUT has no
 * sentence yet. */
int gwi_plugin_comm(const struct gwi_mpi_shim *shim, int64_t deadline_ns, gwi_mpi_comm *ret_comm,
                    int *ret_epoch);

/* A rank died: ending MPI in order would wait for it. */
void gwi_plugin_note_death(void);

/* Say of a failed call of MPI what it was for. */
int gwi_mpi_failed(const struct gwi_mpi_shim *shim, int code, const char *doing);

/* Wait until a request is done.  GW_ETIMEOUT has no sentence yet. */
int gwi_mpi_wait(const struct gwi_mpi_shim *shim, gwi_mpi_request *request, int64_t deadline_ns,
                 const char *doing);

#endif
