/* wait.c - bells on futexes, and when to spin, yield or sleep. */
#include "base/wait.h"
#include "base/clock.h"
#include "base/platform.h"
#include "base/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_NS (50 * GWI_US)        /* about what a wake-up of an idle virtual processor costs */
#define BUSY_SPIN_NS (20 * GWI_US)   /* more than a wake-up takes, so that a pair can leave the regime of sleeping */
#define LOOKS_PER_CLOCK 64           /* 1 to 3 us on our machines; the clock takes 0.03 us */
#define CLOCKS_PER_YIELD 4           /* a yield takes 0.3 us */
#define SLOW_YIELD_NS (200 * GWI_US) /* a stranger ran meanwhile: our own processes wait shorter */
#define BUSY_NS (50 * GWI_MS)        /* for so long we believe that strangers are there */
#define TICK_NS (100 * GWI_MS)

/* Until when this process believes that the machine is busy with strangers. */
static _Atomic int64_t busy_until;

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

void gwi_bell_ring_sleepers(gwi_bell *bell)
{
    atomic_fetch_add_explicit(&bell->rung, 1, memory_order_seq_cst);
    syscall(SYS_futex, &bell->rung, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void crowd_add(gwi_crowd *crowd, int n)
{
    if (crowd != NULL)
        atomic_fetch_add_explicit(&crowd->awake, n, memory_order_relaxed);
}

void gwi_crowd_enter(gwi_crowd *crowd)
{
    crowd_add(crowd, 1);
}

void gwi_crowd_forget(gwi_crowd *crowd)
{
    crowd_add(crowd, -1);
}

static int crowded(const gwi_crowd *crowd)
{
    return crowd != NULL
           && atomic_load_explicit(&crowd->awake, memory_order_relaxed) > cpus();
}

static void arm(gwi_waiter *w)
{
    w->seen = atomic_load_explicit(&w->bell->rung, memory_order_relaxed);
    atomic_fetch_add_explicit(&w->bell->sleepers, 1, memory_order_seq_cst);
#if !GWI_TSAN /* which knows no fences; the line above is one on the machines it runs on */
    atomic_thread_fence(memory_order_seq_cst);
#endif
    crowd_add(w->crowd, -1);
    w->armed = 1;
}

static void disarm(gwi_waiter *w)
{
    atomic_fetch_sub_explicit(&w->bell->sleepers, 1, memory_order_relaxed);
    crowd_add(w->crowd, 1);
    w->armed = 0;
}

void gwi_waiter_fini(gwi_waiter *w)
{
    if (w->armed)
        disarm(w);
}

static void yield(int64_t now)
{
    sched_yield();
    int64_t after = gwi_now_ns();
    if (after - now > SLOW_YIELD_NS)
        atomic_store_explicit(&busy_until, after + BUSY_NS, memory_order_relaxed);
}

int gwi_waiter_pause(gwi_waiter *w)
{
    if (w->armed) {
        futex_wait(&w->bell->rung, w->seen, TICK_NS);
        disarm(w);
        w->spin_until = 0;
        return 1;
    }

    int full = crowded(w->crowd);
    if (!full && ++w->spins % LOOKS_PER_CLOCK != 0) {
        gwi_cpu_relax();
        return 0;
    }

    int64_t now = gwi_now_ns();
    int busy = now < atomic_load_explicit(&busy_until, memory_order_relaxed);
    if (w->spin_until == 0)
        w->spin_until = now + (busy ? BUSY_SPIN_NS : SPIN_NS);
    if (now >= w->spin_until)
        arm(w);
    else if (!busy && (full || w->spins % (LOOKS_PER_CLOCK * CLOCKS_PER_YIELD) == 0))
        yield(now);
    return 1;
}
