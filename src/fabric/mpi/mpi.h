/* mpi.h - the fabric of several machines: shared memory inside a node, MPI
 * between nodes.                                                             */
#ifndef GWI_FABRIC_MPI_MPI_H
#define GWI_FABRIC_MPI_MPI_H

#include "fabric/fabric.h"
#include "fabric/job.h"

int gwi_mpi_open(const gwi_job *job, gwi_fabric **ret_fabric);

#endif
