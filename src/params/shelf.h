/* shelf.h - the directory that holds a checkpoint, and how a new one takes the old one's place.
 *
 *     dir/checkpoint.json                      names what counts (manifest.h)
 *     dir/save-20261116-101500-3f2a9c71/       the parts of that save
 *     dir/.saving-20261116-102000-91be02d4/    of one that is being written, or was killed
 *     dir/.checkpoint.json-20261116-...        the same of the list
 *
 * A save writes its parts into a .saving directory, then
 *
 *     1  every file and directory is on disk (fsync)
 *     2  .saving-X is renamed to save-X
 *     3  the new checkpoint.json is renamed over the old one: from here on it is the checkpoint
 *     4  the old save directory is removed
 *
 * so that whenever it is killed, checkpoint.json names parts that are all there.  What is left
 * over, the next save removes.  Files of other names in the directory are left alone.
 *
 * Only one process of a job does this.  It has a lock on the directory meanwhile, which ends
 * with it, where the file system has locks.                                           */
#ifndef GWI_PARAMS_SHELF_H
#define GWI_PARAMS_SHELF_H

#include "params/manifest.h"

#include <limits.h>

typedef struct gwi_shelf {
    char dir[PATH_MAX];
    char save[GWI_SAVE_ID];
    char old[GWI_SAVE_ID]; /* the checkpoint that is there; "": none, or it cannot be read */
    int fd;                /* of the directory, with the lock; -1: not open */
} gwi_shelf;

/* A name that no other save has, from the time and a random number; and the time as text. */
int gwi_shelf_name(char ret_save[GWI_SAVE_ID], char *ret_created, size_t room);

/* Make the directory if there is none, take the lock, remove what killed saves left, and make
 * the .saving directory. */
int gwi_shelf_begin(gwi_shelf *shelf, const char *dir, const char *save);

/* Where a rank writes its part. */
void gwi_shelf_part_path(const char *dir, const char *save, int rank, char *ret_path, size_t room);

/* All parts are written and on disk: make it the checkpoint. */
int gwi_shelf_commit(gwi_shelf *shelf, const char *manifest, size_t n_bytes);

/* After a commit: remove what it replaced.  After a failure: what was written. */
void gwi_shelf_end(gwi_shelf *shelf, int committed);

/* What went wrong with a file, as GW_ESYS. */
int gwi_fail_file(const char *doing, const char *path);

#endif
