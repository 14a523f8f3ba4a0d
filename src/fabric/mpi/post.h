/* post.h - messages between nodes, by MPI.
 *
 * Messages travel in frames (wire.h), each an MPI message with the lane as its
 * tag (and the epoch, see below).  A frame is a copy: the sender's bytes never lie with MPI, so a
 * message can be abandoned at any moment.  Every so often a frame is sent such that MPI tells when
 * its receiver has found it, and only a few of these may be under way: a receiver that does not
 * look is not flooded, its senders run out of room.
 *
 * A message counts as sent when MPI has no more work with its frames, because MPI
 * works only while it is called: the caller may now sleep.
 *
 * Threads as in fabric.h.                                                     */
#ifndef GWI_FABRIC_MPI_POST_H
#define GWI_FABRIC_MPI_POST_H

#include "fabric/fabric.h"
#include "fabric/mpi/shim.h"

enum { GWI_LANE_NOTES = GWI_N_LANES, GWI_POST_LANES }; /* one more than the fabric's */

typedef struct gwi_post gwi_post;

/* What is left of a world that used the communicator before has other tags: those
 * of another epoch. */
int gwi_post_open(const struct gwi_mpi_shim *shim, gwi_mpi_comm comm, int epoch, int size,
                  gwi_post **ret_post);

/* Give MPI until `deadline_ns` to finish what was sent, then free everything but
 * the frames that MPI still holds. */
void gwi_post_close(gwi_post *post, int64_t deadline_ns);

/* As in fabric.h. */
int gwi_post_send(gwi_post *post, gwi_outgoing *out);
void gwi_post_abandon(gwi_post *post, gwi_outgoing *out);
int gwi_post_poll(gwi_post *post, int lane, int source, gwi_deliver *deliver, void *ctx);

/* How many frames were ever sent to `peer` on a lane; by the sending thread, or
 * when nobody sends any more. */
uint64_t gwi_post_sent(const gwi_post *post, int lane, int peer);

/* Whether all of the first `n_frames` from `source` have arrived here; true also
 * for a lane that nobody ever polled, for then nobody waits for them.  Any thread. */
int gwi_post_arrived(const gwi_post *post, int lane, int source, uint64_t n_frames);

#endif
