/* tracing.h - the trace of a job: one file for the ranks of a machine.
 *
 * GODWIT_TRACE names it.  The first rank of the machine begins the file, all append to it,
 * and the last one to leave ends it.  On the machine of rank 0 it is that file; ranks of
 * another machine, which may see the same directory, write to `FILE.rank-N`, N being the
 * first of them.
 *
 * If a process dies here: its part ends where it was, and the rest is as it would be.  If
 * that was the last one, the closing bracket is missing, which readers of traces expect. */
#ifndef GWI_COMM_TRACING_H
#define GWI_COMM_TRACING_H

#include <godwit/world.h>

/* Before the others are met: 0, or an error if a trace is wanted and cannot be written. */
int gwi_tracing_check(void);

/* Begin, if it is wanted; and end, which is fine also if it was not. */
int gwi_tracing_begin(gw_world *world);
void gwi_tracing_end(gw_world *world);

#endif
