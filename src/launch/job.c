/* job.c - the loop that looks after the ranks of a job from start to end.
 *
 * One loop polls everything: the ranks' pipes, their deaths, the signals, the
 * launcher's own stdout and stderr.  It sleeps when there is nothing to do.  A
 * job that goes wrong ends in steps:
 *
 *   a rank fails --grace--> SIGTERM to all --term--> SIGKILL to all
 *
 * Ctrl-C is passed on; the second one is a SIGTERM, the third a SIGKILL.     */
#include "launch/job.h"

#include "base/clock.h"
#include "base/error.h"
#include "fabric/host/meet.h"
#include "launch/rank.h"
#include "launch/report.h"
#include "launch/signals.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define TELL_NS (100 * GWI_MS)

struct job {
    const gwi_launch_times *times;
    gwi_signals signals;
    gwi_crew crew;
    gwi_sink *sinks; /* two: the first for stdout, the second for stderr */
    gwi_sink *err;   /* the one for stderr; the first if both go to the same place */
    gwi_rank *ranks;
    struct pollfd *polled;
    int n_ranks, n_alive;
    int turn; /* how often the loop has turned; who goes first depends on it */

    int first;       /* the rank that failed first, or -1 */
    int first_end;   /* that ended first, well or not, or -1 */
    int stop;        /* the signal from outside that ends the job, or 0 */
    int64_t stop_ns; /* when it came last */
    bool deaf;       /* output was given up, because nobody takes it */
    int presses;     /* of Ctrl-C */
    int next_signal; /* what all ranks get at `next_ns` if they still run, or 0 */
    int64_t next_ns;
    int64_t tell_end_ns;  /* until then, whoever still waits for an ended rank is told */
    int64_t drain_end_ns; /* set when the last rank has ended */
};

static void signal_all(struct job *job, int sig)
{
    for (int i = 0; i < job->n_ranks; i++)
        gwi_rank_signal(&job->ranks[i], sig);
}

/* Send SIGTERM or SIGKILL on the launcher's own account, and plan what follows. */
static void end_all(struct job *job, int sig)
{
    for (int i = 0; i < job->n_ranks; i++)
        job->ranks[i].asked |= gwi_rank_alive(&job->ranks[i]);
    signal_all(job, sig);
    job->next_signal = sig == SIGTERM ? SIGKILL : 0;
    job->next_ns = gwi_deadline_ns(job->times->term_ns);
}

/* All ranks have ended, only output is to be passed on, and the user is tired
 * of waiting: for what helpers still print, or for a reader who does not read. */
static void stop_waiting(struct job *job)
{
    if (job->drain_end_ns != GWI_FOREVER) {
        job->drain_end_ns = gwi_now_ns();
        return;
    }
    job->deaf = true;
    gwi_sink_break(&job->sinks[0], EPIPE);
    gwi_sink_break(&job->sinks[1], EPIPE);
}

/* A signal that asks the job to end has come. */
static void stop(struct job *job, int sig)
{
    int64_t now = gwi_now_ns();

    if (sig == SIGINT && job->presses > 0 && now - job->stop_ns < job->times->press_ns)
        return;
    job->stop_ns = now;
    if (job->first < 0)
        job->stop = sig;
    if (sig == SIGINT)
        job->presses++;
    if (job->n_alive == 0)
        stop_waiting(job);
    else if (sig != SIGINT || job->presses == 1)
        signal_all(job, sig);
    else
        end_all(job, job->presses == 2 ? SIGTERM : SIGKILL);
}

/* Ctrl-Z: the ranks, then the launcher; all go on when the launcher does. */
static void pause_all(struct job *job)
{
    signal_all(job, SIGSTOP);
    raise(SIGSTOP);
    signal_all(job, SIGCONT);
}

static void handle_signals(struct job *job)
{
    for (int sig = gwi_signals_next(&job->signals); sig != 0;
         sig = gwi_signals_next(&job->signals)) {
        if (sig == SIGTSTP)
            pause_all(job);
        else if (sig == SIGUSR1 || sig == SIGUSR2)
            signal_all(job, sig);
        else
            stop(job, sig);
    }
}

/* A rank that fails soon after the job was told to stop, or by that very
 * signal, does what it was told.  Any other failure is news. */
static bool does_as_told(const struct job *job, const gwi_rank *rank)
{
    return job->stop != 0 &&
           (rank->asked || rank->signal == job->stop || rank->code == 128 + job->stop ||
            gwi_now_ns() - job->stop_ns < job->times->grace_ns);
}

static void handle_end(struct job *job, int number)
{
    const gwi_rank *rank = &job->ranks[number];

    job->n_alive--;
    if (job->first_end < 0)
        job->first_end = number;
    job->tell_end_ns = gwi_deadline_ns(job->times->grace_ns);
    if (job->n_alive == 0)
        job->drain_end_ns = gwi_deadline_ns(job->times->drain_ns);
    if (!gwi_rank_failed(rank) || job->first >= 0)
        return;
    job->first = number;
    if (!does_as_told(job, rank))
        job->stop = 0;
    if (job->next_signal == 0) {
        job->next_signal = SIGTERM;
        job->next_ns = gwi_deadline_ns(job->times->grace_ns);
    }
}

/* Ranks may be waiting for one that has ended before it joined.  They may begin
 * to wait only now, so they are told for a while. */
static void tell_ends(const struct job *job)
{
    char name[200];

    snprintf(name, sizeof name, GWI_RUN_NAME, gwi_crew_job(&job->crew));
    /* The first is why the others end. */
    if (job->first_end >= 0)
        gwi_meet_tell_end(name, job->first_end, job->ranks[job->first_end].pid);
}

/* Act on times that have passed. */
static void handle_times(struct job *job)
{
    int64_t now = gwi_now_ns();

    if (job->n_alive > 0 && now < job->tell_end_ns)
        tell_ends(job);
    if (job->n_alive > 0 && job->next_signal != 0 && now >= job->next_ns)
        end_all(job, job->next_signal);
    if (job->n_alive == 0 && now >= job->drain_end_ns) {
        job->drain_end_ns = GWI_FOREVER;
        for (int i = 0; i < job->n_ranks; i++) {
            gwi_stream_cut(&job->ranks[i].out);
            gwi_stream_cut(&job->ranks[i].err);
        }
    }
}

/* Milliseconds until the next of those times, for poll(). */
static int time_left_ms(const struct job *job)
{
    int64_t at = GWI_FOREVER;

    if (job->n_alive == 0)
        at = job->drain_end_ns;
    else if (job->next_signal != 0)
        at = job->next_ns;
    int64_t now = gwi_now_ns();
    if (job->n_alive > 0 && now < job->tell_end_ns && at > now + TELL_NS)
        at = now + TELL_NS;
    if (at == GWI_FOREVER)
        return -1;
    int64_t left = at - now;
    return left <= 0 ? 0 : (int)(left / GWI_MS > 60000 ? 60000 : left / GWI_MS + 1);
}

/* `polled` holds the signals, the two sinks, then three for each rank. */
enum { AT_SIGNALS, AT_SINKS, AT_RANKS = AT_SINKS + 2 };
enum { OF_END, OF_OUT, OF_ERR, N_OF };

static struct pollfd when(bool wanted, int fd, short events)
{
    return (struct pollfd){.fd = wanted ? fd : -1, .events = events};
}

static int wait_for_something(struct job *job)
{
    struct pollfd *p = job->polled;

    p[AT_SIGNALS] = when(true, job->signals.fd, POLLIN);
    for (int i = 0; i < 2; i++)
        p[AT_SINKS + i] = when(gwi_sink_pending(&job->sinks[i]), job->sinks[i].fd, POLLOUT);
    for (int i = 0; i < job->n_ranks; i++) {
        const gwi_rank *rank = &job->ranks[i];
        struct pollfd *q = p + AT_RANKS + N_OF * i;
        q[OF_END] = when(gwi_rank_alive(rank), rank->pidfd, POLLIN);
        q[OF_OUT] = when(gwi_stream_readable(&rank->out), rank->out.fd, POLLIN);
        q[OF_ERR] = when(gwi_stream_readable(&rank->err), rank->err.fd, POLLIN);
    }
    if (poll(p, (nfds_t)(AT_RANKS + N_OF * job->n_ranks), time_left_ms(job)) < 0) {
        if (errno != EINTR)
            return gwi_fail_errno("wait for the ranks");
        for (int i = 0; i < AT_RANKS + N_OF * job->n_ranks; i++)
            p[i].revents = 0;
    }
    return 0;
}

/* A sink has refused what was written to it.  The job ends as if SIGPIPE had
 * ended the launcher, but in good order. */
static void handle_break(struct job *job)
{
    job->deaf = true;
    if (job->first < 0) {
        job->stop = SIGPIPE;
        job->stop_ns = gwi_now_ns();
    }
    end_all(job, SIGTERM);
}

static void write_output(struct job *job)
{
    for (int i = 0; i < 2; i++) {
        gwi_sink *sink = &job->sinks[i];
        if (job->polled[AT_SINKS + i].revents == 0)
            continue;
        gwi_sink_write(sink);
        if (sink->broken != 0 && !job->deaf)
            handle_break(job);
    }
}

static void read_output(struct job *job)
{
    for (int i = 0; i < job->n_ranks; i++) {
        const struct pollfd *q = job->polled + AT_RANKS + N_OF * i;
        if (q[OF_OUT].revents != 0)
            gwi_stream_read(&job->ranks[i].out);
        if (q[OF_ERR].revents != 0)
            gwi_stream_read(&job->ranks[i].err);
    }
    /* Another rank goes first each time, or a full sink would serve rank 0 only.
     * What does not fit stays; then the sink is not empty, and will be polled. */
    for (int i = 0; i < job->n_ranks; i++) {
        gwi_rank *rank = &job->ranks[(i + job->turn) % job->n_ranks];
        gwi_stream_pass(&rank->out);
        gwi_stream_pass(&rank->err);
    }
    job->turn = (job->turn + 1) % job->n_ranks;
}

static bool has_ended(const struct job *job, int number)
{
    return job->polled[AT_RANKS + N_OF * number + OF_END].revents != 0;
}

/* Who comes late, on a busy machine, finds several.  In which order they ended cannot be seen;
 * but ranks exit because another was killed, and seldom the other way round. */
static void handle_ends(struct job *job)
{
    for (int i = 0; i < job->n_ranks; i++)
        if (has_ended(job, i))
            gwi_rank_note_end(&job->ranks[i]);
    for (int i = 0; i < job->n_ranks; i++)
        if (has_ended(job, i) && job->ranks[i].signal != 0)
            handle_end(job, i);
    for (int i = 0; i < job->n_ranks; i++)
        if (has_ended(job, i) && job->ranks[i].signal == 0)
            handle_end(job, i);
}

/* Wait for something to happen and deal with it. */
static int step(struct job *job)
{
    int err = wait_for_something(job);
    if (err < 0)
        return err;
    write_output(job);
    handle_ends(job);
    if (job->polled[AT_SIGNALS].revents != 0)
        handle_signals(job);
    read_output(job);
    handle_times(job);
    return 0;
}

static bool output_pending(const struct job *job)
{
    return gwi_sink_pending(&job->sinks[0]) || gwi_sink_pending(&job->sinks[1]);
}

static bool over(const struct job *job)
{
    for (int i = 0; i < job->n_ranks; i++)
        if (gwi_rank_alive(&job->ranks[i]) || !gwi_stream_done(&job->ranks[i].out) ||
            !gwi_stream_done(&job->ranks[i].err))
            return false;
    return !output_pending(job);
}

/* The job was ended from outside, and not by a failure of its own. */
static bool was_stopped(const struct job *job)
{
    return job->stop != 0 && (job->first >= 0 || job->deaf);
}

static int exit_code(const struct job *job)
{
    if (was_stopped(job))
        return 128 + job->stop;
    if (job->first < 0)
        return 0;
    const gwi_rank *rank = &job->ranks[job->first];
    return rank->signal != 0 ? 128 + rank->signal : rank->code;
}

static int report(struct job *job)
{
    char *text = NULL;
    size_t len = 0;

    FILE *to = open_memstream(&text, &len);
    if (to == NULL)
        return gwi_fail(GW_ENOMEM, "the report on the job");
    if (was_stopped(job) && job->stop != SIGPIPE) /* whose victims are silent */
        gwi_report_stop(to, job->ranks, job->n_ranks, job->stop);
    else if (!was_stopped(job) && job->first >= 0)
        gwi_report_failure(to, job->ranks, job->n_ranks, job->first);
    fclose(to);
    gwi_sink_say(job->err, text, len);
    free(text);
    return 0;
}

static int start_all(struct job *job)
{
    int err = 0;

    for (int i = 0; i < job->n_ranks && err == 0; i++) {
        err = gwi_rank_start(&job->ranks[i], &job->crew, i, &job->sinks[0], job->err);
        job->n_alive += err == 0;
    }
    return err;
}

/* A reader who has left is no error of ours; a full disk is one to tell. */
static int check_sinks(const struct job *job)
{
    for (int i = 0; i < 2; i++) {
        errno = job->sinks[i].broken;
        if (errno != 0 && errno != EPIPE)
            return gwi_fail_errno("the job was ended because its output could not be written");
    }
    return 0;
}

static int run(struct job *job)
{
    int err = start_all(job);

    while (err == 0 && !over(job))
        err = step(job);
    if (err == 0)
        err = report(job);
    while (err == 0 && output_pending(job))
        err = step(job);
    return err < 0 ? err : check_sinks(job);
}

/* If both go to the same place, lines of one could land inside lines of the
 * other, so they share a sink. */
static bool same_place(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int job_init(struct job *job, const gw_launch_options *opt, const gwi_launch_times *times)
{
    size_t n = (size_t)opt->n_ranks;
    int err = GW_ENOMEM;

    *job = (struct job){.times = times, .n_ranks = opt->n_ranks, .first = -1, .first_end = -1};
    job->sinks = calloc(2, sizeof job->sinks[0]);
    job->ranks = calloc(n, sizeof job->ranks[0]);
    job->polled = calloc(AT_RANKS + N_OF * n, sizeof job->polled[0]);
    if (job->sinks == NULL || job->ranks == NULL || job->polled == NULL) {
        gwi_fail(GW_ENOMEM, "a job of %d ranks", opt->n_ranks);
        goto free_memory;
    }
    gwi_sink_init(&job->sinks[0], STDOUT_FILENO);
    gwi_sink_init(&job->sinks[1], STDERR_FILENO);
    job->err = &job->sinks[same_place(STDOUT_FILENO, STDERR_FILENO) ? 0 : 1];

    err = gwi_signals_catch(&job->signals);
    if (err < 0)
        goto free_memory;
    err = gwi_crew_init(&job->crew, opt, &job->signals);
    if (err < 0)
        goto release_signals;
    return 0;

release_signals:
    gwi_signals_release(&job->signals);
free_memory:
    free(job->polled);
    free(job->ranks);
    free(job->sinks);
    return err;
}

static void job_fini(struct job *job, bool failed)
{
    /* Helpers of a job that failed have no one left to help.  Those of a job
     * that ended well were left behind on purpose. */
    for (int i = 0; i < job->n_ranks; i++) {
        if (failed)
            gwi_rank_signal(&job->ranks[i], SIGKILL);
        gwi_rank_fini(&job->ranks[i]);
    }
    gwi_crew_fini(&job->crew);
    gwi_signals_release(&job->signals);
    free(job->polled);
    free(job->ranks);
    free(job->sinks);
}

int gwi_job_run(const gw_launch_options *opt, const gwi_launch_times *times, int *ret_exit_code)
{
    struct job job;

    int err = job_init(&job, opt, times);
    if (err < 0)
        return err;
    err = run(&job);
    int code = exit_code(&job);
    job_fini(&job, err < 0 || code != 0);
    if (err == 0)
        *ret_exit_code = code;
    return err;
}
