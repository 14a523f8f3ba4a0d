/* jobs.h - looking at the running jobs of this user from outside.
 *
 * Owning   Texts are borrowed for the call.
 * Failing  Below zero is a gw_err.
 * Threads  Any thread.
 * Forking  Works in a forked child.                                          */
#ifndef GODWIT_JOBS_H
#define GODWIT_JOBS_H

#include <godwit/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Call `show` for every job that has processes on this machine: `title` says which
 * it is, `table` what each of its ranks is doing, a line a rank.  Only jobs of this
 * user are found (root finds all in its PID namespace).  Returns how many. */
GW_API int gw_jobs_show(void (*show)(void *ctx, const char *title, const char *table), void *ctx);

#ifdef __cplusplus
}
#endif
#endif
