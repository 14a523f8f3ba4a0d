/* shm.h - the fabric of one machine: rings in shared memory, no MPI needed. */
#ifndef GWI_FABRIC_SHM_SHM_H
#define GWI_FABRIC_SHM_SHM_H

#include "fabric/fabric.h"
#include "fabric/job.h"

int gwi_shm_open(const gwi_job *job, gwi_fabric **ret_fabric);

#endif
