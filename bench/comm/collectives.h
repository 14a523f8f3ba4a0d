/* collectives.h - times of collectives, whatever carries them out.
 *
 * collectives.c measures.  A program adds the functions below, once over Godwit
 * (godwit.c) and once over MPI (mpi.c), so that both sides run the same loop.
 * Entries are doubles, those that are combined are summed, the root is rank 0.
 * None of the functions returns if it fails: it says why and ends the process. */
#ifndef BENCH_COMM_COLLECTIVES_H
#define BENCH_COMM_COLLECTIVES_H

#include <stddef.h>

void peer_join(int *argc, char ***argv, int *ret_rank, int *ret_size);
void peer_leave(void);
void peer_barrier(void);
void peer_allreduce(const double *in, double *out, size_t n);
void peer_bcast(double *data, size_t n);
void peer_allgather(const double *in, double *out, size_t n);      /* n of each rank */
void peer_alltoall(const double *in, double *out, size_t n);       /* n for each rank */
void peer_reduce_scatter(const double *in, double *out, size_t n); /* n for each rank */

#endif
