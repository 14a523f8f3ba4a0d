/* job.h - which job this process belongs to, found out before it is joined.
 *
 * In this order: what the caller says; the variables of `godwit run`; those of
 * torchrun; those of an MPI launcher; else a world of one.                   */
#ifndef GWI_FABRIC_JOB_H
#define GWI_FABRIC_JOB_H

#include <godwit/world.h>

#include <stdint.h>

#define GWI_MAX_SIZE 4096 /* processes of a job */

typedef enum gwi_mpi_kind { GWI_NO_MPI, GWI_OPENMPI, GWI_MPICH } gwi_mpi_kind;

#define GWI_RUN_NAME "run:%.128s" /* of the job with this GODWIT_JOB */

typedef struct gwi_job {
    char name[200]; /* processes with the same name, of the same user, meet */
    int rank;       /* -1: by order of arrival */
    int size;
    int node_size;
    int launched; /* by our parent: give up joining when it is gone */
    int64_t timeout_ns;
    const char *fabric; /* "shm" or "mpi" */
    gwi_mpi_kind mpi;   /* whose plugin, for "mpi" */
    const int *ranks;   /* what a larger world calls our ranks, by rank; NULL: the same.  Borrowed
                           while joining */
    char reason[256];   /* why all this, in one line */
    /* NULL, or asked at every tick while joining; an error ends it.  Borrowed while joining. */
    int (*watch)(const void *ctx);
    const void *watch_ctx;
} gwi_job;

int gwi_job_find(const gw_world_options *opt, gwi_job *ret_job);

#endif
