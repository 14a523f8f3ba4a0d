/* rank.h - one process of a job: how it is started, what became of it.
 *
 * A rank leads a session and a process group of its own.  So a signal to the
 * group reaches its helpers too, the terminal's Ctrl-C reaches it only through
 * the launcher and therefore once, and an attempt to read the terminal fails
 * instead of stopping it for ever.  If the launcher dies, the kernel kills it.
 *
 * An ended rank stays a zombie until gwi_rank_fini(), which keeps the number of
 * its group from being given to strangers: signals can be sent at any time.  */
#ifndef GWI_LAUNCH_RANK_H
#define GWI_LAUNCH_RANK_H

#include "launch/output.h"
#include "launch/signals.h"

#include <godwit/launch.h>

#include <stdbool.h>
#include <sys/types.h>

typedef struct gwi_rank {
    pid_t pid;  /* 0: not started */
    int pidfd;  /* readable when it ends; -1 after that */
    bool asked; /* the launcher told it to end while it ran */
    int code;   /* once it has ended: its exit code, or 0 */
    int signal; /* once it has ended: the signal that killed it, or 0 */
    gwi_stream out, err;
} gwi_rank;

/* What all ranks start with. */
typedef struct gwi_crew {
    const gw_launch_options *opt; /* borrowed */
    const gwi_signals *signals;   /* borrowed */
    char **env;                   /* owned, ends with NULL */
    char *own[5];                 /* owned, the entries of `env` that are ours; rank first */
    int null_fd;                  /* /dev/null */
} gwi_crew;

int gwi_crew_init(gwi_crew *crew, const gw_launch_options *opt, const gwi_signals *signals);
void gwi_crew_fini(gwi_crew *crew);

/* The value of GODWIT_JOB that the ranks get. */
const char *gwi_crew_job(const gwi_crew *crew);

/* Start rank number `number`, whose memory is zero, with its output going to
 * the two sinks.  Returns once the program runs; fails if it cannot be run. */
int gwi_rank_start(gwi_rank *rank, const gwi_crew *crew, int number, gwi_sink *out, gwi_sink *err);

/* Started and not ended. */
bool gwi_rank_alive(const gwi_rank *rank);

/* It has ended, and not well. */
bool gwi_rank_failed(const gwi_rank *rank);

/* See how it ended, when pidfd has become readable. */
void gwi_rank_note_end(gwi_rank *rank);

/* Send a signal to it and its helpers, also to those that outlived it. */
void gwi_rank_signal(const gwi_rank *rank, int sig);

/* Kill it if it lives, and give all back. */
void gwi_rank_fini(gwi_rank *rank);

#endif
