/* shared.h - how much memory the processes of a job share.
 *
 * Threads  One watch at a time.                                              */
#ifndef BENCH_COMM_SHARED_H
#define BENCH_COMM_SHARED_H

#include <stddef.h>

/* What this process's part is of the shared mappings that it has touched: a page that
 * three processes have touched counts a third (Pss of /proc/self/smaps).  Summed over the
 * ranks it is what the job has touched, whatever it is made of. */
size_t shared_touched_bytes(void);

/* What is allocated to Godwit's shared file, the only one of a job; touched or not.  0 if
 * this process has no such file. */
size_t shared_allocated_bytes(void);

/* The most that was allocated in between.  Another thread looks every half millisecond. */
void shared_watch_begin(void);
size_t shared_watch_end(void);

#endif
