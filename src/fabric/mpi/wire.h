/* wire.h - the frames in which messages travel between nodes, and the notes that
 * ranks write to each other.
 *
 *      byte  size
 *      0     8     kind in the low 8 bits, bytes of the whole message above
 *      8     8     where in the message this part begins
 *      16    ...   the part
 *
 * A message is one DATA frame or several in order, none of them empty but that of
 * an empty message.  ABANDON takes the message under way back and is a head only.
 * What arrives is believed only as far as it makes sense.                     */
#ifndef GWI_FABRIC_MPI_WIRE_H
#define GWI_FABRIC_MPI_WIRE_H

#include "fabric/fabric.h"

#include <stddef.h>
#include <stdint.h>

#define GWI_WIRE_HEAD 16
#define GWI_WIRE_PART ((size_t)256 << 10) /* the longest part of a message in one frame */
#define GWI_WIRE_FRAME (GWI_WIRE_HEAD + GWI_WIRE_PART)

/* The message under way from one source: there is one while offset < total. */
typedef struct gwi_wire {
    size_t total, offset;
} gwi_wire;

/* How long the frame is that takes `out` further. */
size_t gwi_wire_next(const gwi_outgoing *out);

/* Write that frame, and note in `out` how far it came. */
void gwi_wire_write(gwi_outgoing *out, void *ret_frame);

/* Write a frame of GWI_WIRE_HEAD bytes that takes the message under way back. */
void gwi_wire_write_abandon(void *ret_frame);

/* Read a frame from `source`.  Returns 0 and a piece, whose bytes lie in the frame,
 * or GW_EBROKEN. */
int gwi_wire_read(const gwi_wire *wire, int source, const void *frame, size_t n_bytes,
                  gwi_piece *ret_piece);

/* The piece was taken. */
void gwi_wire_pass(gwi_wire *wire, const gwi_piece *piece);

/* A note: a host has arrived at a barrier, or a rank has left. */
typedef enum gwi_note_kind { GWI_NOTE_BARRIER = 1, GWI_NOTE_LEFT = 2 } gwi_note_kind;

typedef struct gwi_note {
    uint64_t kind;
    uint64_t barrier; /* the number of the one at which the host, or the rank, has arrived last */
    uint64_t frames[GWI_N_LANES]; /* LEFT: how many it ever sent to the reader on each lane */
} gwi_note;

_Static_assert(sizeof(gwi_note) == 16 + 8 * GWI_N_LANES, "notes travel between processes");

/* Read a whole message from `source` as a note, or GW_EBROKEN. */
int gwi_note_read(int source, const void *bytes, size_t n_bytes, gwi_note *ret_note);

#endif
