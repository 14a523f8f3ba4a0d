/* wait.c - bells on futexes, and when to spin, yield or sleep. */
#include "base/wait.h"
#include "base/clock.h"
#include "base/platform.h"
#include "base/thread.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS (50 * GWI_US)       /* about what a wake-up of an idle virtual processor costs */
#define SPIN_MAX_NS GWI_MS          /* where such a wake-up costs more, up to this */
#define FULL_SPIN_NS (200 * GWI_US) /* a round of yields; each lets one of us work */
#define BUSY_SPIN_NS (20 * GWI_US)  /* longer than a wake-up, so that a pair can stop sleeping */
#define ALONE_SPIN_NS (3 * GWI_US)  /* whom we woke has not come by then: it needs our processor */
#define LOOKS_PER_CLOCK 64          /* 1 to 3 us on our machines; the clock takes 0.03 us */
#define CLOCKS_PER_YIELD 4          /* a yield takes 0.3 us */
#define YIELDS_PER_CLOCK 8 /* when we are more than the processors, each look ends in a yield */
#define TICK_NS (100 * GWI_MS)
#define NAP_SHARE 16 /* of a wait in which nothing rings: so much longer it may get */
#define NAP_MIN_NS (20 * GWI_US)
#define NAP_MAX_NS (20 * GWI_MS) /* 50 looks a second, up to 60 us each */
#define COUNT_NS (10 * GWI_MS)   /* counting takes about 10 us */
#define RINGER_CPU 0xfffu        /* in `rung`: on which processor the last ringer was */

/* Whether strangers keep the machine busy, as this process saw it last. */
static _Atomic int strangers_busy;
static _Atomic int64_t counted_at;

static int cpus(void)
{
    static _Atomic int known;
    int n = atomic_load_explicit(&known, memory_order_relaxed);

    if (n == 0) {
        n = gwi_cpu_count();
        atomic_store_explicit(&known, n, memory_order_relaxed);
    }
    return n;
}

/* FUTEX_WAIT without FUTEX_PRIVATE_FLAG: bells are shared by processes. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns)
{
    struct timespec t = {ns / GWI_SECOND, ns % GWI_SECOND};

    syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

/* The count above the processor of who rings. */
static uint32_t next_ring(uint32_t rung)
{
    return (rung & ~RINGER_CPU) + RINGER_CPU + 1 + ((uint32_t)sched_getcpu() & RINGER_CPU);
}

void gwi_bell_ring_sleepers(gwi_bell *bell)
{
    uint32_t seen = atomic_load_explicit(&bell->rung, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&bell->rung, &seen, next_ring(seen),
                                                  memory_order_seq_cst, memory_order_relaxed))
        ;
    syscall(SYS_futex, &bell->rung, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void gwi_bell_sleep(gwi_bell *bell, uint32_t seen)
{
    syscall(SYS_futex, &bell->rung, FUTEX_WAIT, seen, NULL, NULL, 0);
}

void gwi_crowd_enter(gwi_crowd *crowd)
{
    atomic_fetch_add_explicit(&crowd->members, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&crowd->awake, 1, memory_order_relaxed);
}

void gwi_crowd_forget(gwi_crowd *crowd)
{
    atomic_fetch_sub_explicit(&crowd->members, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&crowd->awake, 1, memory_order_relaxed);
}

static void count_awake(gwi_crowd *crowd, int change)
{
    if (crowd != NULL)
        atomic_fetch_add_explicit(&crowd->awake, change, memory_order_relaxed);
}

/* How many of the job are awake, this process among them. */
static int awake(const gwi_crowd *crowd)
{
    return crowd != NULL ? atomic_load_explicit(&crowd->awake, memory_order_relaxed) : 1;
}

static int members(const gwi_crowd *crowd)
{
    return crowd != NULL ? atomic_load_explicit(&crowd->members, memory_order_relaxed) : 1;
}

/* attending */

void gwi_attendance_init(gwi_attendance *attendance)
{
    *attendance = (gwi_attendance){.n = 0};
    pthread_mutex_init(&attendance->lock, NULL);
}

void gwi_attendance_fini(gwi_attendance *attendance)
{
    pthread_mutex_destroy(&attendance->lock);
}

static void announce(gwi_bell *bell, uint32_t n)
{
    atomic_fetch_add_explicit(&bell->sleepers, n, memory_order_seq_cst);
#if !GWI_TSAN /* which knows no fences; the line above is one on the machines it runs on */
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

void gwi_attend(gwi_attendance *attendance)
{
    pthread_mutex_lock(&attendance->lock);
    if (attendance->n++ == 0 && attendance->bell != NULL)
        announce(attendance->bell, UINT32_MAX);
    pthread_mutex_unlock(&attendance->lock);
}

void gwi_attend_end(gwi_attendance *attendance)
{
    pthread_mutex_lock(&attendance->lock);
    if (--attendance->n == 0 && attendance->bell != NULL)
        announce(attendance->bell, 1);
    pthread_mutex_unlock(&attendance->lock);
}

static int is_attended(gwi_attendance *attendance)
{
    if (attendance == NULL)
        return 0;
    pthread_mutex_lock(&attendance->lock);
    int n = attendance->n;
    pthread_mutex_unlock(&attendance->lock);
    return n > 0;
}

/* Say of a sleeper that it is one, or (NULL) that it is none any more. */
static void enter(gwi_attendance *attendance, gwi_bell *bell)
{
    pthread_mutex_lock(&attendance->lock);
    if (attendance->n == 0 && bell != NULL)
        announce(bell, 1);
    else if (attendance->n == 0)
        announce(attendance->bell, UINT32_MAX);
    attendance->bell = bell;
    pthread_mutex_unlock(&attendance->lock);
}

static void arm(gwi_waiter *w)
{
    w->seen = atomic_load_explicit(&w->bell->rung, memory_order_relaxed);
    if (w->attendance != NULL)
        enter(w->attendance, w->bell);
    else
        announce(w->bell, 1);
    count_awake(w->crowd, -1);
    w->armed = 1;
}

static void disarm(gwi_waiter *w)
{
    if (w->attendance != NULL)
        enter(w->attendance, NULL);
    else
        atomic_fetch_sub_explicit(&w->bell->sleepers, 1, memory_order_relaxed);
    count_awake(w->crowd, 1);
    w->armed = 0;
}

void gwi_waiter_fini(gwi_waiter *w)
{
    if (w->armed)
        disarm(w);
}

/* How many threads of the machine run or want to, by /proc/loadavg, such as
 * "0.20 0.18 0.12 3/80 11206"; 0 if it cannot be told. */
static int runnable_count(void)
{
    char text[128];
    int n = 0;
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return sscanf(text, "%*f %*f %*f %d/", &n) == 1 ? n : 0;
}

int gwi_has_room_to_run(int64_t ago_ns)
{
    static _Atomic int64_t looked_at;
    static _Atomic int room;
    int64_t now = gwi_now_ns(), last = atomic_load_explicit(&looked_at, memory_order_relaxed);

    if (now - last >= ago_ns &&
        atomic_compare_exchange_strong_explicit(&looked_at, &last, now, memory_order_relaxed,
                                                memory_order_relaxed)) {
        atomic_store_explicit(&room, runnable_count() <= cpus(), memory_order_relaxed);
    }
    return atomic_load_explicit(&room, memory_order_relaxed);
}

/* While all have a processor, strangers do no harm.  When more want to run than
 * we are, some must be strangers; that some are when fewer do cannot be known,
 * for whoever was just woken is not counted as awake yet. */
static int busy_with_strangers(const gwi_crowd *crowd, int64_t now)
{
    int64_t last = atomic_load_explicit(&counted_at, memory_order_relaxed);

    if (now - last >= COUNT_NS &&
        atomic_compare_exchange_strong_explicit(&counted_at, &last, now, memory_order_relaxed,
                                                memory_order_relaxed)) {
        int all = runnable_count();
        atomic_store_explicit(&strangers_busy, all > members(crowd) && all > cpus(),
                              memory_order_relaxed);
    }
    return atomic_load_explicit(&strangers_busy, memory_order_relaxed);
}

/* How long a spin lasts while all have a processor.  If waking takes longer than
 * that, as on a virtual machine whose host is short of processors, two who answer
 * each other would both sleep in every wait, for ever: each is woken only after the
 * other has given up.  So whoever slept just a little too early spins longer the
 * next time, and falls back after a long sleep. */
static _Atomic int64_t spin_ns = SPIN_NS;

static void learn_from_sleep(int64_t slept_ns)
{
    int64_t enough = 2 * (SPIN_NS + slept_ns);

    atomic_store_explicit(&spin_ns, enough <= SPIN_MAX_NS ? enough : SPIN_NS, memory_order_relaxed);
}

/* How long to spin before going to sleep. */
static int64_t spin_span(const gwi_crowd *crowd, int busy, int full)
{
    if (!busy)
        return full ? FULL_SPIN_NS : atomic_load_explicit(&spin_ns, memory_order_relaxed);
    if (full)
        return 0;
    return awake(crowd) > 1 ? BUSY_SPIN_NS : ALONE_SPIN_NS;
}

/* How long to sleep at most. */
static int64_t sleep_span(gwi_waiter *w)
{
    if (!w->polls)
        return TICK_NS;
    int64_t now = gwi_now_ns();
    if (w->began == 0)
        w->began = now;
    int64_t nap = (now - w->began) / NAP_SHARE;
    int64_t longest = w->longest_ns > 0 ? w->longest_ns : NAP_MAX_NS;
    int64_t least = w->least_ns > 0 ? w->least_ns : NAP_MIN_NS;
    if (is_attended(w->attendance))
        return longest;
    return nap < least ? least : nap > longest ? longest : nap;
}

int gwi_waiter_pause(gwi_waiter *w)
{
    if (w->armed) {
        int busy = atomic_load_explicit(&strangers_busy, memory_order_relaxed);
        if (busy)
            gwi_thread_be_quick(1);
        int64_t asleep_at = gwi_now_ns();
        futex_wait(&w->bell->rung, w->seen, sleep_span(w));
        if (!w->polls && !w->at_once)
            learn_from_sleep(gwi_now_ns() - asleep_at);
        if (busy)
            gwi_thread_be_quick(0);
        if (w->polls && atomic_load_explicit(&w->bell->rung, memory_order_relaxed) == w->seen)
            return 1; /* still announced: look, and sleep again */
        disarm(w);
        w->spin_from = 0;
        uint32_t rung = atomic_load_explicit(&w->bell->rung, memory_order_relaxed);
        w->beside = rung != w->seen &&
                    (rung & RINGER_CPU) == ((uint32_t)sched_getcpu() & RINGER_CPU);
        return 1;
    }

    if (w->at_once || is_attended(w->attendance)) {
        arm(w);
        return 1;
    }
    int full = awake(w->crowd) > cpus();
    if (full && ++w->spins % YIELDS_PER_CLOCK != 0 &&
        !atomic_load_explicit(&strangers_busy, memory_order_relaxed)) {
        sched_yield();
        return 0;
    }
    if (!full && ++w->spins % LOOKS_PER_CLOCK != 0) {
        gwi_cpu_relax();
        return 0;
    }

    int64_t now = gwi_now_ns();
    int busy = busy_with_strangers(w->crowd, now);
    if (w->spin_from == 0)
        w->spin_from = now;
    if (w->least_ns > 0 || now - w->spin_from >= spin_span(w->crowd, busy, full))
        arm(w);
    else if (!busy && (full || w->spins % (LOOKS_PER_CLOCK * CLOCKS_PER_YIELD) == 0))
        sched_yield();
    return 1;
}
