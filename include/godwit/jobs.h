/* jobs.h - looking at the running jobs of this user from outside.
 *
 * Owning   Texts are borrowed for the call.
 * Failing  Below zero is a gw_err.
 * Threads  Any thread.
 * Forking  Works in a forked child.                                          */
#ifndef GODWIT_JOBS_H
#define GODWIT_JOBS_H

#include <godwit/base.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Call `show` for every job that has processes on this machine: `title` says which
 * it is, `table` what each of its ranks is doing, a line a rank.  Only jobs of this
 * user are found (root finds all in its PID namespace).  Returns how many. */
GW_API int gw_jobs_show(void (*show)(void *ctx, const char *title, const char *table), void *ctx);

/* A rank of a job on this machine, and the figures of one of its open parameters. */
typedef struct gw_job_rank {
    const char *job;
    uint64_t id; /* of the job, on this machine */
    int size;    /* ranks that the job has on this machine */
    int rank;    /* in the whole job */
    int pid;
    int fate;      /* 0: it is here; 1: it has left; 2: it died */
    int answers;   /* 1: its figures are of now; 0: of when it answered last, if ever */
    int left_out;  /* how many more parameters it has, of which there are no figures */
    int n_figures; /* 0: it has no parameters open */
    const char *const *names, *const *help;
    const uint64_t *figures;
} gw_job_rank;

/* Ask all ranks of all jobs for their figures, and call `see` for each rank and each of its open
 * parameters, once if it has none.  Returns how many jobs there are.  Waits up to 200 ms for
 * ranks that do not answer. */
GW_API int gw_jobs_look(void (*see)(void *ctx, const gw_job_rank *rank), void *ctx);

#ifdef __cplusplus
}
#endif
#endif
