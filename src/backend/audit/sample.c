/* sample.c - every thread has a timer of its own processor time; when it goes off, its call stack
 * is written down.
 *
 * The kernel sends the signal to the thread whose time it is (SIGEV_THREAD_ID), so threads count as
 * what they compute, and none is woken that sleeps.  Timers go off with the kernel's own tick, 250
 * times a second on most systems, whatever is asked for. */
#include "backend/audit/audit.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static uint64_t period_ns; /* 0: not started */

static void write_down(const uint64_t *frame, int n)
{
    uint64_t bytes = sizeof(sample) + (uint64_t)n * sizeof frame[0];
    uint64_t at = atomic_fetch_add_explicit(&audit->sample_bytes, bytes, memory_order_relaxed);

    if (at + bytes > SAMPLES_BYTES) {
        atomic_fetch_add_explicit(&audit->lost_samples, 1, memory_order_relaxed);
        return;
    }
    sample *s = (sample *)((char *)audit + SAMPLES_AT + at);
    s->tid = (uint32_t)audit_tid();
    audit_copy(s->frame, frame, (size_t)n * sizeof frame[0]);
    atomic_store_explicit(&s->n_frames, (uint32_t)n, memory_order_release);
    atomic_fetch_add_explicit(&audit->n_samples, 1, memory_order_relaxed);
}

/* Processor time of this thread. */
static uint64_t my_time_ns(void)
{
    struct timespec t = {0, 0};

    audit_call(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, (long)&t, 0, 0, 0, 0);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void on_tick(int number, siginfo_t *info, void *context)
{
    uint64_t frame[MAX_FRAMES], begun = my_time_ns();

    (void)number;
    if (info->si_code != SI_TIMER ||
        audit->pid != (uint32_t)audit_call(SYS_getpid, 0, 0, 0, 0, 0, 0))
        return;
    int n = audit_unwind(context, frame, MAX_FRAMES);
    /* Ticks that were due while the signal waited are time of this stack, too. */
    for (int i = 0; i <= info->si_overrun && i < 10; i++)
        write_down(frame, n);
    atomic_fetch_add_explicit(&audit->sampling_ns, my_time_ns() - begun, memory_order_relaxed);
}

static bool still_ours(void)
{
    struct sigaction now;

    return sigaction(SIGPROF, NULL, &now) == 0 && now.sa_sigaction == on_tick;
}

bool audit_is_sampling(void)
{
    return period_ns > 0;
}

int audit_timer_new(int tid)
{
    struct sigevent event;
    int timer = -1;
    long period = (long)period_ns;
    struct itimerspec times = {{0, period}, {0, period}};

    if (!still_ours()) {
        atomic_store_explicit(&audit->sampler_gone, 1, memory_order_relaxed);
        return -1;
    }
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event.sigev_notify_thread_id = tid;
    if (audit_call(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, (long)&event, (long)&timer, 0, 0, 0) <
        0)
        return -1;
    if (audit_call(SYS_timer_settime, timer, 0, (long)&times, 0, 0, 0) < 0) {
        audit_timer_free(timer);
        return -1;
    }
    return timer;
}

void audit_timer_free(int timer)
{
    audit_call(SYS_timer_delete, timer, 0, 0, 0, 0, 0);
}

void audit_sampling_start(uint32_t hz)
{
    struct sigaction action;

    period_ns = UINT64_C(1000000000) / (hz > 0 ? hz : 1);
    if (period_ns >= UINT64_C(1000000000))
        period_ns = 999999999;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_tick;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGPROF, &action, NULL);
}

/* ---- what counting costs ----------------------------------------------------------------------
 */

static __attribute__((noinline)) void nothing(void)
{
    __asm__ volatile("");
}

static double time_calls(void (*volatile *function)(void), int n)
{
    uint64_t begun = audit_now_ns();

    for (int i = 0; i < n; i++)
        (*function)();
    return (double)(audit_now_ns() - begun) / n;
}

void audit_calibrate(void)
{
    enum { CALLS = 10000 };
    void (*volatile plain)(void) = nothing;
    void (*volatile counted)(void) = NULL;
    double with = 1e9, without = 1e9;

    uintptr_t stub = audit_trial_stub((uintptr_t)nothing);
    if (stub == 0)
        return;
    memcpy((void *)(uintptr_t)&counted, &stub, sizeof stub);
    for (int i = 0; i < 12; i++) { /* the best of each: others may have the processor meanwhile */
        double a = time_calls(&plain, CALLS), b = time_calls(&counted, CALLS);
        without = a < without ? a : without;
        with = b < with ? b : with;
    }
    audit->call_ns = with > without ? with - without : 0;
    audit_trial_end();
}
