/* mpi.c - pairs.h over MPI.
 *
 * MPI_Init, so without the price of threads, and MPI's own error handler, which
 * ends the job with a message.                                               */
#include "pairs.h"

#include <mpi.h>

#include <stdio.h>

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

void peer_send(int peer, const void *bytes, size_t n_bytes)
{
    MPI_Send(bytes, (int)n_bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
}

void peer_recv(int peer, void *buffer, size_t n_bytes)
{
    MPI_Status status;
    int n_received;

    MPI_Recv(buffer, (int)n_bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &n_received);
    if ((size_t)n_received != n_bytes) {
        fprintf(stderr, "rank %d sent %d bytes, not %zu\n", peer, n_received, n_bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}
