/* pairs.h - message times of pairs of processes, whatever carries the messages.
 *
 * pairs.c measures.  A program adds the five functions below, once over Godwit
 * (godwit.c) and once over MPI (mpi.c), so that both sides run the same loop.
 * None of them returns if it fails: it says why and ends the process.        */
#ifndef BENCH_FABRIC_PAIRS_H
#define BENCH_FABRIC_PAIRS_H

#include <stddef.h>

void peer_join(int *argc, char ***argv, int *ret_rank, int *ret_size);
void peer_leave(void);
void peer_barrier(void);
void peer_send(int peer, const void *bytes, size_t n_bytes);
void peer_recv(int peer, void *buffer, size_t n_bytes); /* exactly so many */

#endif
