/* trace.h - what happened when, written while a job runs, for Perfetto and `godwit report`.
 *
 * A process that traces has tracks: one for each agent, each worker and each thread that
 * waits for others.  Whoever acts for a track puts what it did into the track's ring, and a
 * thread of our own, the tracer, takes it out again every now and then, asks samplers for
 * counters, and appends all of it to the file as text, in whole lines:
 *
 *     agent  --span-->  ring --\
 *     worker --span-->  ring ----> tracer --> one write(), O_APPEND --> the job's file
 *     samplers ----------------/
 *
 * The tracer's pauses grow with the run, from 50 ms to a thousandth of the time that it has
 * lasted, and a ring holds a fixed number of spans for each pause: the file grows with the
 * logarithm of the time.  What does not fit is left out, the shortest first, but counted:
 * of waits the tracer also keeps sums by what they were for, in which each one is.
 *
 * Off, it costs one load and one branch that is never taken.
 *
 * Owning   gwi_track_open() gives to the caller, gwi_track_close() takes back.
 * Threads  A track is written by one thread at a time.  All else: any thread.
 * Forking  A forked child does not trace; its calls do nothing.
 *
 * If a process dies here: what its tracer has not written yet is lost, at most a pause's
 * worth; all that it wrote before are whole lines, so the file stays readable.        */
#ifndef GWI_BASE_TRACE_H
#define GWI_BASE_TRACE_H

#include "base/clock.h"
#include "base/platform.h"

#include <godwit/base.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gwi_track gwi_track;
typedef struct gwi_trace_out gwi_trace_out;

extern _Atomic int gwi_trace_is_on;

static inline int gwi_tracing(void)
{
    return gwi_unlikely(atomic_load_explicit(&gwi_trace_is_on, memory_order_relaxed));
}

/* When something began that may become a span; 0: nobody wants to know. */
static inline int64_t gwi_trace_began(void)
{
    return gwi_tracing() ? gwi_now_ns() : 0;
}

/* the tracer */

typedef struct gwi_trace_options {
    int fd;                     /* of the file, with O_APPEND; becomes the tracer's */
    int process;                /* its number in the trace */
    int sort;                   /* where it stands among the processes */
    const char *name;           /* borrowed for the call, as `about` */
    const char *about;          /* JSON members for the first line; NULL: others write it */
    _Atomic uint32_t *is_begun; /* set when the first line is written; until then others wait */
    int64_t pause_ns;           /* the shortest; 0: 50 ms */
    /* Asked after the rest is written: whether nobody else will write, so that the file can be
     * closed properly.  NULL: it can. */
    int (*is_last)(void *ctx);
    void *ctx;
} gwi_trace_options;

/* One at a time.  The descriptor is closed also if it fails. */
int gwi_trace_start(const gwi_trace_options *options);

/* Write the rest and end.  Tracks that are still open are of no use from then on.  Returns the
 * error that ended the writing before, if one did. */
int gwi_trace_stop(void);

/* The pause between two samples as it is now: who writes spans of its own accord need not
 * do so much more often than that. */
int64_t gwi_trace_pause_ns(void);

/* The number of this process in the trace, and of the track for what samplers write. */
int gwi_trace_process(void);
int gwi_trace_figures(void);

/* tracks */

#define GWI_TRACE_ARGS 12
#define GWI_TRACE_TEXT 40

/* What the numbers of a span mean; constant. */
typedef struct gwi_trace_kind {
    const char *category;
    const char *args[GWI_TRACE_ARGS]; /* up to the first NULL */
} gwi_trace_kind;

extern const gwi_trace_kind gwi_trace_wait;

/* NULL if nobody traces, or there is no memory; that is fine for all of the following. */
gwi_track *gwi_track_open(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gwi_track_close(gwi_track *track);

/* The calling thread's own, made when it is first asked for. */
gwi_track *gwi_track_of_thread(void);

/* Spans of a track follow each other.  `text` is copied; `args` as the kind says. */
void gwi_track_span(gwi_track *track, const gwi_trace_kind *kind, const char *text,
                    int64_t began_ns, int64_t ended_ns, const uint64_t *args);

/* A wait that began at `began_ns` is over; 0: it was not traced. */
void gwi_track_waited(gwi_track *track, const char *what_for, int64_t began_ns);

/* samplers: called by the tracer after each pause, also the last, and by who removes them.  They
 * write with what trace_out.h has, and may wait for locks of their own; who removes one may not
 * hold these. */
typedef void gwi_trace_sampler(void *ctx, gwi_trace_out *out, int64_t now_ns);
int gwi_trace_sampler_add(gwi_trace_sampler *sampler, void *ctx);
void gwi_trace_sampler_remove(gwi_trace_sampler *sampler, void *ctx);

#endif
