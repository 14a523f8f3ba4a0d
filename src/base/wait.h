/* wait.h - waiting for another thread or process: look, spin a little, sleep.
 *
 * A bell is something to sleep on that others ring.  It may lie in shared
 * memory.  Whoever changes what a sleeper waits for does
 *
 *     publish with a sequentially consistent store or exchange
 *     gwi_bell_ring(bell)
 *
 * and whoever waits does
 *
 *     gwi_waiter_init(&w, bell, crowd);
 *     while (!the_thing_is_there())
 *         if (gwi_waiter_pause(&w) > 0)
 *             look around: time limits, deaths, signals
 *     gwi_waiter_fini(&w);
 *
 * No ring is lost: before it sleeps the waiter announces itself and lets the
 * caller look once more.  While nobody sleeps a ring is one load.
 *
 * How long to spin.  A sleeper needs 5 to 50 us to come back, so short waits
 * should spin; but a spinner may hold the very processor that the other side
 * needs.  The crowd counts the job's processes that are not asleep: while they
 * fit on the processors we spin and yield now and then, when they do not we
 * yield at every look.  When strangers keep the machine busy a yield may last a
 * whole time slice of theirs, whereas a sleeper is let in at once when it is
 * woken: then we do not yield, and sleep after a shorter spin.
 *
 * Some things ring no bell, such as messages by MPI.  Who waits for them too sets
 * `polls`: it then sleeps a sixteenth of the time that it has waited already, at
 * least 20 us and at most 20 ms, and looks again without spinning.  So a wait lasts
 * little longer than it must, and a long one costs next to nothing.  Where there is no hurry
 * about them, since all that is urgent does ring, `least_ns` is a longer least sleep: then it
 * does not spin either, and leaves the processor to those who compute.
 *
 * A thread that sleeps until there is work may have others in its process who do that work
 * when they have nothing better to do.  While one of them attends, ringers need not wake
 * the sleeper: gwi_attend() takes its announcement back, gwi_attend_end() renews it, and
 * who calls that must look for work once more.
 *
 * Systems like to wake a thread where it ran last, also if that is the processor of who wakes it,
 * and another is idle.  `rung` says where the last ringer was; `beside` tells a waiter that it
 * was there as well.  Then the ringer cannot go on until the waiter sleeps again, or leaves.
 *
 * If a process dies here: a bell keeps a sleeper too many, so that ringing it
 * costs a system call more; a crowd's counts may be off by one, which costs some
 * spinning or some sleep.  Nothing waits for the dead.                           */
#ifndef GWI_BASE_WAIT_H
#define GWI_BASE_WAIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

typedef struct gwi_bell {
    _Atomic uint32_t rung; /* changed by ringers, for which sleepers wait: in the low 12 bits the
                            * processor of the last one, a count above */
    _Atomic uint32_t sleepers; /* counted by sleepers */
} gwi_bell;

_Static_assert(sizeof(gwi_bell) == 8, "a bell is shared between processes");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "bells need lock-free atomics");

typedef struct gwi_crowd {
    _Atomic int32_t members; /* processes of the job on this machine that have not left or died */
    _Atomic int32_t awake;   /* how many of them are not asleep in a wait */
} gwi_crowd;

/* Who attends to the work of a sleeper.  Private to a process. */
typedef struct gwi_attendance {
    pthread_mutex_t lock;
    /* under `lock` */
    gwi_bell *bell; /* of the sleeper who is announced, or would be if nobody attended; or NULL */
    int n;          /* who attend */
} gwi_attendance;

typedef struct gwi_waiter {
    gwi_bell *bell;    /* borrowed */
    gwi_crowd *crowd;  /* borrowed; NULL: only this process counts */
    int64_t spin_from; /* 0: the clock has not been looked at yet */
    uint32_t spins;
    uint32_t seen;      /* value of bell->rung when armed */
    int armed;          /* announced as a sleeper, will sleep at the next pause */
    int polls;          /* set by the caller: not everything that it waits for rings the bell */
    int64_t began;      /* polls: when it slept first; 0: not yet */
    int64_t longest_ns; /* polls, set by the caller: a sleep; 0: 20 ms */
    int64_t least_ns;   /* polls, set by the caller: a sleep, and there is no spin; 0: 20 us */
    gwi_attendance *attendance; /* set by the caller, borrowed; NULL: nobody else does its work */
    int at_once;                /* set by the caller: sleep without spinning */
    int beside; /* the last sleep was ended by somebody on the processor on which it ended */
} gwi_waiter;

void gwi_bell_ring_sleepers(gwi_bell *bell);

static inline void gwi_bell_ring(gwi_bell *bell)
{
    /* Sequentially consistent, so that it stays behind the caller's store; pairs
     * with the announcement in gwi_waiter_pause(). */
    if (atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) != 0)
        gwi_bell_ring_sleepers(bell);
}

/* Sleep until `rung` is no longer `seen`; without spinning and unannounced, for a
 * thread that has nothing else to do and is woken by gwi_bell_ring_sleepers()
 * itself.  May return early. */
void gwi_bell_sleep(gwi_bell *bell, uint32_t seen);

static inline void gwi_waiter_init(gwi_waiter *w, gwi_bell *bell, gwi_crowd *crowd)
{
    *w = (gwi_waiter){.bell = bell, .crowd = crowd};
}

/* Let some time pass: at most a few us while spinning, at most 100 ms asleep.
 * Returns 0: look again; 1: look again, and look around as well, which may cost
 * some time now.  It returns 1 at least every 100 ms. */
int gwi_waiter_pause(gwi_waiter *w);

/* Must be called after the last pause: takes the announcement back. */
void gwi_waiter_fini(gwi_waiter *w);

/* Whether no more threads of the machine want to run than this process has processors, as it was so
 * long ago at most.  To count them takes about 10 us. */
int gwi_has_room_to_run(int64_t ago_ns);

void gwi_attendance_init(gwi_attendance *attendance);
void gwi_attendance_fini(gwi_attendance *attendance);
void gwi_attend(gwi_attendance *attendance);
void gwi_attend_end(gwi_attendance *attendance);

/* Count a process that joins, that leaves, or that was found dead. */
void gwi_crowd_enter(gwi_crowd *crowd);
void gwi_crowd_forget(gwi_crowd *crowd);

#endif
