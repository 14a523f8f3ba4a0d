/* checkpoint.h - what saving and loading have in common.
 *
 * Who writes which key.  A checkpoint holds each key exactly once, though keys may move
 * between nodes while it is written:
 *
 *   1  All nodes: wait_sync, barrier, wait_sync.  What was pushed before the save is with the
 *      owners, and copies hold at least that.
 *   2  The keys are shared out over the processes of each node in ranges of about equally many
 *      bytes.  Each process claims those of its range that are on its node; that of the home
 *      claims them all, as a second choice.  One reduction by the least decides for every key:
 *      who claimed it first, else the home.  (With one node the ranges are all there is.)
 *   3  Each process reads the keys that were decided to be its own by an ordinary pull.  Nearly
 *      always they are there; one that has moved meanwhile comes by a message.
 *
 * A pull never shows part of a change, so each key is saved as it was at one moment: a push
 * from elsewhere is in it wholly or not at all.                                       */
#ifndef GWI_PARAMS_CHECKPOINT_H
#define GWI_PARAMS_CHECKPOINT_H

#include "params/manifest.h"
#include "params/params.h"

#include <godwit/comm.h>

#define GWI_CHECKPOINT_BATCH                                             \
    ((size_t)512 << 10) /* bytes read or written at a time: fits a cache \
                         */

struct gw_checkpoint {
    gwi_manifest manifest;
    char *text; /* of the manifest; owned */
    char *dir;  /* owned */
};

/* An allocation for the longest vector, or for a batch if that is more, and how many bytes. */
void *gwi_checkpoint_buffer(const gwi_geometry *g, size_t *ret_bytes);

/* All ranks come here with what became of their part.  If one failed all fail: who did with its
 * own sentence, the others with that of the lowest rank that did. */
int gwi_checkpoint_agree(gw_comm *comm, int err);

/* The arguments of all ranks are equal, and none was `refused` its own.  `call` is "save". */
int gwi_checkpoint_agree_on(gw_comm *comm, const char *call, const char *dir, const char *meta,
                            int refused);

/* 0, or GW_EINVAL about the name of a directory. */
int gwi_checkpoint_check_dir(const char *dir);

/* With several nodes: owners know what was pushed, copies know what owners know. */
int gwi_checkpoint_sync(gw_worker *clerk, gw_comm *comm);

/* Called again and again by long loops: GW_EINTR if Ctrl-C was pressed. */
int gwi_checkpoint_look(int64_t *next_look_ns, const char *call);

/* Read exactly so many bytes, or say what is wrong with the file. */
int gwi_checkpoint_pread(int fd, const char *path, void *to, size_t n_bytes, uint64_t at);

#endif
