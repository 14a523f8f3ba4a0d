/* signals.h - the signals that a launch takes over for its time.
 *
 * Those that ask something of the job are caught and queue up in a pipe, which
 * the launch polls like everything else; SIGPIPE is ignored and SIGCHLD has its
 * default, so that ended children can be waited for.  A signal that was ignored
 * before (nohup, a shell's background job) stays ignored.  Everything is put
 * back afterwards.  One at a time in a process.                              */
#ifndef GWI_LAUNCH_SIGNALS_H
#define GWI_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stddef.h>

#define GWI_N_SIGNALS 9

typedef struct gwi_signals {
    int fd; /* readable when a signal has come */
    sigset_t old_mask;
    struct sigaction old[GWI_N_SIGNALS];
} gwi_signals;

int gwi_signals_catch(gwi_signals *signals);
void gwi_signals_release(gwi_signals *signals);

/* The next signal that has come, or 0. */
int gwi_signals_next(gwi_signals *signals);

/* For the child between fork and exec, called with all signals blocked: every
 * signal gets its default again, but for the ignored ones above, and none is
 * blocked.  Async-signal-safe. */
void gwi_signals_reset_child(const gwi_signals *signals);

/* "SIGKILL", or "" for a signal without a well-known name. */
const char *gwi_signal_name(int sig);

#endif
