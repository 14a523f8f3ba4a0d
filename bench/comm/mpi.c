/* mpi.c - collectives.h over MPI.
 *
 * MPI_Init, so without the price of threads, and MPI's own error handler, which
 * ends the job with a message.                                               */
#include "collectives.h"

#include <mpi.h>

void peer_join(int *argc, char ***argv, int *ret_rank, int *ret_size)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, ret_rank);
    MPI_Comm_size(MPI_COMM_WORLD, ret_size);
}

void peer_leave(void)
{
    MPI_Finalize();
}

void peer_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

void peer_allreduce(const double *in, double *out, size_t n)
{
    MPI_Allreduce(in, out, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

void peer_bcast(double *data, size_t n)
{
    MPI_Bcast(data, (int)n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

void peer_allgather(const double *in, double *out, size_t n)
{
    MPI_Allgather(in, (int)n, MPI_DOUBLE, out, (int)n, MPI_DOUBLE, MPI_COMM_WORLD);
}

void peer_alltoall(const double *in, double *out, size_t n)
{
    MPI_Alltoall(in, (int)n, MPI_DOUBLE, out, (int)n, MPI_DOUBLE, MPI_COMM_WORLD);
}

void peer_reduce_scatter(const double *in, double *out, size_t n)
{
    MPI_Reduce_scatter_block(in, out, (int)n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
