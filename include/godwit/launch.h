/* launch.h - start the processes of a job on this machine and look after them.
 *
 * Owning   Everything passed in is borrowed for the call.
 * Failing  Below zero is a gw_err; the call then leaves no process behind.
 * Threads  One launch at a time in a process: it handles the process's signals
 *          and children meanwhile, and puts the signals back afterwards.
 * Forking  Works in a forked child.                                          */
#ifndef GODWIT_LAUNCH_H
#define GODWIT_LAUNCH_H

#include <godwit/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_launch_options {
    size_t size_bytes;       /* sizeof(gw_launch_options), so that it can grow */
    int n_ranks;             /* how many processes, at least 1 */
    int node_size;           /* processes per virtual node; 0: not said */
    const char *const *argv; /* program and arguments, NULL at the end; found through PATH */
} gw_launch_options;

/* Start `n_ranks` processes, look after them, and wait for all.
 *
 * Environment   Each has GODWIT_JOB (an id of this job alone), GODWIT_RANK and
 *   GODWIT_SIZE, GODWIT_NODE_SIZE if `node_size` is given, PYTHONUNBUFFERED=1
 *   unless set, and the rest of the caller's.  A job around this one does not
 *   show.
 *
 * Output   Each line of a rank's stdout and stderr is passed on to the caller's
 *   with the rank in front, "[2] ", coloured on a terminal unless NO_COLOR is
 *   set.  Lines never mix.  A carriage return ends a line too and is passed on,
 *   so progress bars move; a line over 64 KB is cut into several.  If the
 *   reader of the output leaves, the job is ended with SIGTERM, and the exit
 *   code is 141, as SIGPIPE would make it.
 *
 * Input   Rank 0 has the caller's stdin unless that is a terminal; the others,
 *   and rank 0 at a terminal, read an empty one.  No rank has the terminal: each
 *   is in a session of its own.
 *
 * Signals   SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on
 *   to the ranks and their children, once for each, unless the caller ignores
 *   them (nohup).  A second SIGINT passes SIGTERM on, a third SIGKILL.  SIGTSTP
 *   stops all, and SIGCONT lets them go on.  If the caller is killed, so are the
 *   ranks.
 *
 * Failure   When a rank ends with another exit code than 0 or by a signal, the
 *   others get 5 s to end with their own error, then SIGTERM, 2 s later SIGKILL,
 *   as do children that they leave behind.  The last lines on stderr then say
 *   which rank failed first, how, its last words, and what became of the others.
 *   Children that outlive a job that ends well are left alone; their output is
 *   passed on for half a second more.
 *
 * `ret_exit_code`: 0 if all ended well; else the exit code of the first that
 * failed, 128 + the number of the signal if one killed it; 128 + the number of
 * the signal if one of those above has ended the job. */
GW_API int gw_launch(const gw_launch_options *opt, int *ret_exit_code);

#ifdef __cplusplus
}
#endif
#endif
