/* trace.c - the tracer: when it writes, what it asks, and its file. */
#include "base/trace.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/trace_out.h"
#include "base/track.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_SAMPLERS 1024
#define PAUSE_NS (50 * GWI_MS)
#define PAUSES_ALL_RUN 1000 /* of a run so far, at most: later pauses are longer */
#define PATIENCE_NS (2 * GWI_SECOND)
#define MOST_HELD_BYTES ((size_t)16 << 20) /* while the file is not begun */

/* The one of this process. */
static struct {
    /* set at start, then constant until it stops */
    int fd, process;
    char name[128], *about;
    int sort;
    _Atomic uint32_t *is_begun;
    int (*is_last)(void *ctx);
    void *ctx;
    int64_t began_ns, least_pause_ns;
    gwi_thread thread;
    /* by the tracer */
    gwi_trace_out out;
    int err;
    char problem[256];
    _Atomic int64_t pause_ns;
} tracer;

static pthread_mutex_t samplers_lock = PTHREAD_MUTEX_INITIALIZER; /* held while they are called */
static struct {
    gwi_trace_sampler *call;
    void *ctx;
} samplers[N_SAMPLERS];
static gwi_trace_out parting; /* under it: what samplers wrote that were then removed */

static pthread_mutex_t stop_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stop_bell; /* made at each start, for its clock */
static int stops;                /* under stop_lock */
static int is_started;           /* by who starts and stops, one at a time */
static uint32_t generation;      /* of forks, when it was started */

/* Returns when that was: what is on the track of figures is in order. */
static int64_t sample(gwi_trace_out *out)
{
    pthread_mutex_lock(&samplers_lock);
    int64_t now = gwi_now_ns();
    if (parting.whole > 0)
        gwi_trace_add(out, &parting);
    parting.n_bytes = parting.whole = 0;
    for (int i = 0; i < N_SAMPLERS; i++)
        if (samplers[i].call != NULL)
            samplers[i].call(samplers[i].ctx, out, now);
    pthread_mutex_unlock(&samplers_lock);
    return now;
}

/* the tracer: from text to the file */

static void give_up(const char *what)
{
    tracer.err = gwi_fail_errno("the trace of process %d is not whole: %s", tracer.process, what);
    snprintf(tracer.problem, sizeof tracer.problem, "%s", gw_last_error());
    atomic_store_explicit(&gwi_trace_is_on, 0, memory_order_relaxed);
}

/* In one call, so that it stays in one piece among the writing of others. */
static void write_bytes(const char *bytes, size_t n_bytes)
{
    ssize_t n;

    do
        n = write(tracer.fd, bytes, n_bytes);
    while (n < 0 && errno == EINTR);
    if (n >= 0 && (size_t)n < n_bytes)
        errno = ENOSPC;
    if (n != (ssize_t)n_bytes)
        give_up("its file cannot be written");
}

/* The first line stands for the job, and has no comma before it. */
static void begin_file(void)
{
    gwi_trace_out out = {0};

    gwi_trace_printf(&out,
                     "[\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"ts\":0,\"name\":\"godwit\","
                     "\"args\":{%s}}",
                     tracer.process, tracer.about);
    if (ftruncate(tracer.fd, 0) != 0)
        give_up("its file cannot be emptied");
    else
        write_bytes(out.text, out.n_bytes);
    gwi_trace_out_fini(&out);
    if (tracer.is_begun != NULL) /* pairs with may_write() */
        atomic_store_explicit(tracer.is_begun, 1, memory_order_release);
}

static int may_write(void)
{
    return tracer.about != NULL || tracer.is_begun == NULL ||
           atomic_load_explicit(tracer.is_begun, memory_order_acquire) != 0;
}

static void flush(void)
{
    gwi_trace_out *out = &tracer.out;

    if (out->whole == 0 || tracer.err < 0)
        return;
    if (!may_write()) {
        if (out->whole > MOST_HELD_BYTES) {
            errno = ETIMEDOUT;
            give_up("nobody has begun its file");
        }
        return;
    }
    write_bytes(out->text, out->whole);
    out->n_bytes = out->whole = 0;
}

static void take_turn(void)
{
    int64_t now = sample(&tracer.out);

    gwi_tracks_write(&tracer.out, now);
    flush();
}

/* Returns whether to stop. */
static int pause_for(int64_t span_ns)
{
    int64_t end = gwi_deadline_ns(span_ns);
    struct timespec until = {end / GWI_SECOND, end % GWI_SECOND};
    int err = 0;

    pthread_mutex_lock(&stop_lock);
    while (!stops && err == 0)
        err = pthread_cond_timedwait(&stop_bell, &stop_lock, &until);
    int result = stops;
    pthread_mutex_unlock(&stop_lock);
    return result;
}

static void *run(void *unused)
{
    int64_t pause = tracer.least_pause_ns;

    gwi_trace_name_process(&tracer.out, tracer.process, tracer.sort, tracer.name);
    gwi_trace_name_thread(&tracer.out, tracer.process, gwi_tracks_figures(), "figures");
    while (!pause_for(pause)) {
        int64_t share = (gwi_now_ns() - tracer.began_ns) / PAUSES_ALL_RUN;
        take_turn();
        pause = share > tracer.least_pause_ns ? share : tracer.least_pause_ns;
        atomic_store_explicit(&tracer.pause_ns, pause, memory_order_relaxed);
    }
    return unused;
}

int64_t gwi_trace_pause_ns(void)
{
    return atomic_load_explicit(&tracer.pause_ns, memory_order_relaxed);
}

int gwi_trace_process(void)
{
    return tracer.process;
}

int gwi_trace_figures(void)
{
    return gwi_tracks_figures();
}

/* samplers */

int gwi_trace_sampler_add(gwi_trace_sampler *sampler, void *ctx)
{
    int i = 0;

    pthread_mutex_lock(&samplers_lock);
    while (i < N_SAMPLERS && samplers[i].call != NULL)
        i++;
    if (i < N_SAMPLERS) {
        samplers[i].call = sampler;
        samplers[i].ctx = ctx;
    }
    pthread_mutex_unlock(&samplers_lock);
    return i < N_SAMPLERS ? 0 : gwi_fail(GW_ENOMEM, "more than %d samplers", N_SAMPLERS);
}

void gwi_trace_sampler_remove(gwi_trace_sampler *sampler, void *ctx)
{
    pthread_mutex_lock(&samplers_lock);
    for (int i = 0; i < N_SAMPLERS; i++)
        if (samplers[i].call == sampler && samplers[i].ctx == ctx) {
            if (gwi_tracing())
                sampler(ctx, &parting, gwi_now_ns());
            samplers[i].call = NULL;
        }
    pthread_mutex_unlock(&samplers_lock);
}

/* starting and stopping */

static void forked(void *unused)
{
    (void)unused;
    atomic_store_explicit(&gwi_trace_is_on, 0, memory_order_relaxed);
}

static void make_stop_bell(void)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&stop_bell, &attr);
    pthread_condattr_destroy(&attr);
}

int gwi_trace_start(const gwi_trace_options *options)
{
    int err = 0;

    if (is_started) {
        close(options->fd);
        return generation != gwi_fork_generation()
                   ? 0 /* the file is that of the parent's job */
                   : gwi_fail(GW_EUNSUP, "this process traces another job already");
    }
    tracer.about = options->about == NULL ? NULL : strdup(options->about);
    if (options->about != NULL && tracer.about == NULL)
        err = gwi_fail(GW_ENOMEM, "a trace");
    if (err == 0)
        err = gwi_fork_hook_add(forked, NULL);
    if (err < 0)
        goto close_fd;
    tracer.fd = options->fd;
    tracer.process = options->process;
    tracer.sort = options->sort;
    snprintf(tracer.name, sizeof tracer.name, "%s", options->name);
    tracer.is_begun = options->is_begun;
    tracer.is_last = options->is_last;
    tracer.ctx = options->ctx;
    tracer.began_ns = gwi_now_ns();
    tracer.least_pause_ns = options->pause_ns > 0 ? options->pause_ns : PAUSE_NS;
    atomic_store(&tracer.pause_ns, tracer.least_pause_ns);
    tracer.err = 0;
    tracer.problem[0] = '\0';
    gwi_tracks_begin(tracer.process);
    stops = 0;
    make_stop_bell();
    atomic_store(&gwi_trace_is_on, 1);
    if (tracer.about != NULL)
        begin_file();
    err = tracer.err < 0 ? tracer.err : gwi_thread_start("gw-tracer", run, NULL, &tracer.thread);
    if (err < 0)
        goto turn_off;
    is_started = 1;
    generation = gwi_fork_generation();
    return 0;

turn_off:
    atomic_store(&gwi_trace_is_on, 0);
    pthread_cond_destroy(&stop_bell);
    gwi_fork_hook_remove(forked, NULL);
close_fd:
    free(tracer.about);
    close(options->fd);
    return err;
}

int gwi_trace_stop(void)
{
    if (!is_started || generation != gwi_fork_generation())
        return 0;
    pthread_mutex_lock(&stop_lock);
    stops = 1;
    pthread_cond_signal(&stop_bell);
    pthread_mutex_unlock(&stop_lock);
    gwi_thread_join(tracer.thread);
    int64_t end = gwi_deadline_ns(PATIENCE_NS);
    while (!may_write() && gwi_now_ns() < end)
        gwi_nap_ns(GWI_MS);
    take_turn();
    if (tracer.err == 0 && tracer.out.whole > 0) {
        errno = ETIMEDOUT;
        give_up("nobody has begun its file");
    }
    atomic_store(&gwi_trace_is_on, 0);
    if ((tracer.is_last == NULL || tracer.is_last(tracer.ctx)) && tracer.err == 0)
        write_bytes("\n]\n", 3);
    gwi_tracks_end();
    pthread_cond_destroy(&stop_bell);
    gwi_fork_hook_remove(forked, NULL);
    gwi_trace_out_fini(&tracer.out);
    gwi_trace_out_fini(&parting);
    free(tracer.about);
    close(tracer.fd);
    is_started = 0;
    return tracer.err;
}

const char *gw_trace_problem(void)
{
    return tracer.problem;
}
