/* farewell.h - the last that an agent which has failed says: to the agents of its channel on all
 * other nodes, so that nobody waits for it there.
 *
 * It has all memory that it needs from the start, and wants nothing of the state machine, which is
 * of no use any more.  Who hears it fails as well, for the reason that it gives, and says nothing:
 * everybody hears it from the first.
 *
 * Threads  One at a time.                                                            */
#ifndef GWI_PARAMS_FAREWELL_H
#define GWI_PARAMS_FAREWELL_H

#include "fabric/fabric.h"
#include "params/note.h"

typedef struct gwi_farewell {
    gwi_frame frame; /* owned; the note is all that is in it */
    gwi_note note;
    void *sentence;    /* there */
    gwi_outgoing *out; /* owned; [nodes]; without bytes where nothing is left to be said */
    int nodes;
} gwi_farewell;

/* `ranks`: who is to hear it, by node.  If this fails there is nothing to give back but by fini. */
int gwi_farewell_init(gwi_farewell *farewell, uint64_t opening, int lane, const int *ranks,
                      int nodes);
void gwi_farewell_fini(gwi_farewell *farewell); /* zeros are fine */

/* What it says, from now on.  Of a death nothing is said to those who see it themselves. */
void gwi_farewell_write(gwi_farewell *farewell, gwi_fabric *fabric, int err, const char *sentence);

/* To all who have room for it now.  Returns how many have not. */
int gwi_farewell_send(gwi_farewell *farewell, gwi_fabric *fabric);

/* These will not hear it. */
void gwi_farewell_give_up(gwi_farewell *farewell, gwi_fabric *fabric);

#endif
