/* meet.h - how the processes of a job on one machine find each other.
 *
 * The first to come binds an abstract Unix socket whose name is made from the
 * user and the job, and gathers: the others connect and say who they are.  When
 * all are there the gatherer makes the shared file, hands a descriptor of it to
 * each, and closes the socket.  An abstract name ends with the process that
 * bound it, so nothing remains whenever whoever is killed.  Both sides check
 * that the other belongs to the same user.
 *
 * If a process dies here: its connection closes.  The gatherer then fails with
 * that process's rank and tells the others; if the gatherer itself dies, every
 * other sees its connection end.                                             */
#ifndef GWI_FABRIC_HOST_MEET_H
#define GWI_FABRIC_HOST_MEET_H

#include "fabric/job.h"

#include <stdint.h>
#include <sys/types.h>

/* Who takes part, as the gatherer found out. */
typedef struct gwi_attendee {
    int rank;
    pid_t pid;
    uint64_t start; /* as gwi_process_start() */
} gwi_attendee;

/* Called in the gatherer once all are there; `all` is sorted by rank.  Makes the
 * descriptor that everybody is to get. */
typedef int gwi_meet_prepare(void *ctx, const gwi_attendee *all, int n, int *ret_fd);

/* Collective.  `layout` must be the same number in all: what each of them will
 * make of the descriptor.  On success the caller owns `*ret_fd`. */
int gwi_meet(const gwi_job *job, uint64_t layout, gwi_meet_prepare *prepare, void *ctx,
             int *ret_rank, int *ret_fd);

/* For launchers: tell whoever gathers the job of this name that a rank has ended,
 * so that nobody waits for it.  Returns 1 if somebody was told. */
int gwi_meet_tell_end(const char *job_name, int rank, pid_t pid);

#endif
