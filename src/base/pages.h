/* pages.h - puts shared memory into huge pages, at once or in the background.
 *
 * Random access to much memory is slow with pages of 4 KiB, because the processor keeps
 * looking up where they are.  Shared memory gets huge pages by default on few systems, but
 * Linux from 6.1 puts pages together on request.  For memory that nobody has used yet this is the
 * fastest way to get it: a tenth of a second for a gigabyte.  What is in small pages already has to
 * be copied, which takes seconds, so a thread does it, a little less important than others.
 * Memory of which only part will ever be used is watched: what has been used is put together, and
 * what has not takes no memory.
 *
 * Where the system does not want to, nothing happens.
 *
 * Owning   The memory is the caller's, and stays mapped until stop.
 * Forking  The thread does not exist in a forked child; stop does nothing there.      */
#ifndef GWI_BASE_PAGES_H
#define GWI_BASE_PAGES_H

#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define GWI_HUGE_PAGE ((size_t)2 << 20)

typedef struct gwi_pages {
    /* set by start, then constant */
    unsigned char *base;
    size_t n_bytes; /* 0: there is no thread */
    int only_used;
    gwi_thread thread;
    uint32_t generation; /* of forks */
    /* set by stop, under `lock`, for a thread that waits at `bell` */
    pthread_mutex_t lock;
    pthread_cond_t bell;
    _Atomic int stop;
    /* written by the thread */
    _Atomic size_t done;
} gwi_pages;

/* `pages` is zero.  `only_used`: leave out, for now, where hardly anything was ever written. */
void gwi_pages_start(gwi_pages *pages, void *memory, size_t n_bytes, int only_used);
void gwi_pages_stop(gwi_pages *pages); /* joins; zeros and a second time are fine */

/* Put the pages of one huge page together, of which the first has memory.  Returns 0, or -errno. */
int gwi_pages_join(void *at);

/* Memory that will be used soon: spare whoever does the faults of its pages, if that can be. */
void gwi_pages_map(void *at, size_t n_bytes);

/* How many bytes are in huge pages by now. */
size_t gwi_pages_done(const gwi_pages *pages);

#endif
