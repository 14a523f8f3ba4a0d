/* wait_test.c - no ring is lost, spinning ends in sleep, and processes share bells. */
#include "base/wait.h"
#include "base/clock.h"
#include "base/platform.h"
#include "base/thread.h"
#include "base/test.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct table {
    gwi_bell ping, pong;
    _Atomic uint32_t served, answered;
    uint32_t rounds;
};

static void wait_for(_Atomic uint32_t *word, uint32_t value, gwi_bell *bell)
{
    gwi_waiter w;

    gwi_waiter_init(&w, bell, NULL);
    while (atomic_load_explicit(word, memory_order_acquire) < value)
        gwi_waiter_pause(&w);
    gwi_waiter_fini(&w);
}

static void *play(void *arg)
{
    struct table *t = arg;

    for (uint32_t i = 1; i <= t->rounds; i++) {
        wait_for(&t->served, i, &t->ping);
        atomic_store(&t->answered, i);
        gwi_bell_ring(&t->pong);
    }
    return NULL;
}

static void serve(struct table *t)
{
    for (uint32_t i = 1; i <= t->rounds; i++) {
        /* Now and then wait until the other side sleeps. */
        if (i % 50 == 0)
            usleep(300);
        atomic_store(&t->served, i);
        gwi_bell_ring(&t->ping);
        wait_for(&t->answered, i, &t->pong);
    }
}

static void no_ring_is_lost_between_threads(void **state)
{
    (void)state;
    struct table t = {.rounds = 3000};
    gwi_thread other;

    assert_int_equal(gwi_thread_start("other", play, &t, &other), 0);
    serve(&t);
    gwi_thread_join(other);
    assert_int_equal(t.answered, t.rounds);
    assert_int_equal(t.ping.sleepers, 0);
    assert_int_equal(t.pong.sleepers, 0);
}

static void no_ring_is_lost_between_processes(void **state)
{
    (void)state;
    struct table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);
    int status;

    assert_true(t != MAP_FAILED);
    t->rounds = 3000;
    pid_t pid = fork();
    if (pid == 0) {
        play(t);
        _exit(0);
    }
    serve(t);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    munmap(t, sizeof *t);
}

static int64_t cpu_ns(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * GWI_SECOND +
           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * GWI_US;
}

static void a_long_wait_sleeps_and_looks_around_every_tick(void **state)
{
    (void)state;
    gwi_bell bell = {0};
    gwi_waiter w;
    int64_t end = gwi_now_ns() + 350 * GWI_MS, cpu = cpu_ns(), longest = 0, last = gwi_now_ns();

    gwi_waiter_init(&w, &bell, NULL);
    while (gwi_now_ns() < end)
        if (gwi_waiter_pause(&w) > 0) {
            int64_t now = gwi_now_ns();
            longest = now - last > longest ? now - last : longest;
            last = now;
        }
    gwi_waiter_fini(&w);
    assert_true(longest >= 50 * GWI_MS);
    assert_true(cpu_ns() - cpu < 100 * GWI_MS);
    assert_int_equal(bell.sleepers, 0);
}

static void a_sleeper_is_not_counted_in_the_crowd(void **state)
{
    (void)state;
    gwi_bell bell = {0};
    gwi_crowd crowd = {0};
    gwi_waiter w;

    gwi_crowd_enter(&crowd);
    gwi_waiter_init(&w, &bell, &crowd);
    while (!w.armed)
        gwi_waiter_pause(&w);
    assert_int_equal(crowd.awake, 0);
    assert_int_equal(bell.sleepers, 1);
    gwi_waiter_fini(&w);
    assert_int_equal(crowd.awake, 1);
    assert_int_equal(bell.sleepers, 0);
    gwi_crowd_forget(&crowd);
    assert_int_equal(crowd.awake, 0);
}

static int64_t processor_ns(void)
{
    struct rusage usage;

    getrusage(RUSAGE_THREAD, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * GWI_SECOND +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * GWI_US;
}

/* Poll for 0.6 s: whether it looked often at first, and cost next to nothing later. */
static int polls_well(void)
{
    gwi_bell bell = {0};
    gwi_waiter w;
    int64_t began = gwi_now_ns(), now = began, used = processor_ns();
    int n_early = 0, n_late = 0;

    gwi_waiter_init(&w, &bell, NULL);
    w.polls = 1;
    while ((now = gwi_now_ns()) - began < 600 * GWI_MS) {
        gwi_waiter_pause(&w);
        n_early += w.armed && now - began < 10 * GWI_MS;
        n_late += now - began > 300 * GWI_MS;
    }
    used = processor_ns() - used;
    gwi_waiter_fini(&w);
    assert_int_equal(bell.sleepers, 0);
    assert_true(n_late < 200); /* however busy the machine is */
    return n_early > 10 && n_late > 10 && used < 30 * GWI_MS;
}

static void who_polls_looks_often_at_first_and_then_hardly_costs_anything(void **state)
{
    (void)state;
    int well = 0;

    for (int tries = 0; !well && tries < 10; tries++) /* others may have the processors */
        well = polls_well();
    assert_true(well);
}

static void who_is_in_no_hurry_sleeps_at_once_and_long(void **state)
{
    (void)state;
    gwi_bell bell = {0};
    gwi_waiter w;
    int n_before = 0, n_naps = 0;

    gwi_waiter_init(&w, &bell, NULL);
    w.polls = 1;
    w.least_ns = 5 * GWI_MS;
    for (; !w.armed; n_before++)
        gwi_waiter_pause(&w);
    assert_true(n_before <= 64); /* the clock is looked at no earlier */
    int64_t began = gwi_now_ns();
    for (; gwi_now_ns() - began < 60 * GWI_MS; n_naps++)
        gwi_waiter_pause(&w);
    assert_in_range(n_naps, 1, 12);
    gwi_waiter_fini(&w);
    assert_int_equal(bell.sleepers, 0);
}

static void who_polls_is_still_woken_by_the_bell(void **state)
{
    (void)state;
    struct table t = {.rounds = 200};
    gwi_thread other;
    gwi_waiter w;

    assert_int_equal(gwi_thread_start("other", play, &t, &other), 0);
    gwi_waiter_init(&w, &t.pong, NULL);
    w.polls = 1;
    for (uint32_t i = 1; i <= t.rounds; i++) {
        atomic_store(&t.served, i);
        gwi_bell_ring(&t.ping);
        while (atomic_load_explicit(&t.answered, memory_order_acquire) < i)
            gwi_waiter_pause(&w);
    }
    gwi_waiter_fini(&w);
    gwi_thread_join(other);
    assert_int_equal(t.pong.sleepers, 0);
}

static void while_somebody_attends_the_sleeper_is_not_announced(void **state)
{
    (void)state;
    gwi_bell bell = {0};
    gwi_attendance attendance;
    gwi_waiter w;

    gwi_attendance_init(&attendance);
    gwi_waiter_init(&w, &bell, NULL);
    w.attendance = &attendance;
    while (!w.armed)
        gwi_waiter_pause(&w);
    assert_int_equal(bell.sleepers, 1);
    gwi_attend(&attendance);
    gwi_attend(&attendance);
    assert_int_equal(bell.sleepers, 0);
    gwi_attend_end(&attendance);
    assert_int_equal(bell.sleepers, 0);
    gwi_attend_end(&attendance);
    assert_int_equal(bell.sleepers, 1);
    gwi_attend(&attendance);
    gwi_waiter_fini(&w); /* it goes on meanwhile */
    assert_int_equal(bell.sleepers, 0);
    gwi_waiter_pause(&w); /* and goes to sleep without spinning */
    assert_true(w.armed);
    assert_int_equal(bell.sleepers, 0);
    gwi_attend_end(&attendance);
    assert_int_equal(bell.sleepers, 1);
    gwi_waiter_fini(&w);
    assert_int_equal(bell.sleepers, 0);
    gwi_attendance_fini(&attendance);
}

static void who_shall_sleep_at_once_does(void **state)
{
    (void)state;
    gwi_bell bell = {0};
    gwi_waiter w;

    gwi_waiter_init(&w, &bell, NULL);
    w.at_once = 1;
    assert_int_equal(gwi_waiter_pause(&w), 1); /* announced: look once more */
    assert_true(w.armed);
    assert_int_equal(bell.sleepers, 1);
    gwi_waiter_fini(&w);
    assert_int_equal(bell.sleepers, 0);
}

struct sleeper {
    gwi_bell bell;
    int cpu, beside;
};

static void stay_on(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0);
}

static void *sleep_until_rung(void *arg)
{
    struct sleeper *s = arg;
    gwi_waiter w;

    stay_on(s->cpu);
    gwi_waiter_init(&w, &s->bell, NULL);
    w.at_once = 1;
    do
        gwi_waiter_pause(&w);
    while (w.armed || atomic_load(&s->bell.rung) == w.seen); /* it wakes up without a ring, too */
    s->beside = w.beside;
    gwi_waiter_fini(&w);
    return NULL;
}

/* What a sleeper on one processor hears of a ringer on another, or the same. */
static int is_beside(int sleeper_cpu, int ringer_cpu)
{
    struct sleeper s = {.cpu = sleeper_cpu, .beside = -1};
    gwi_thread thread;

    stay_on(ringer_cpu);
    assert_int_equal(gwi_thread_start("sleeper", sleep_until_rung, &s, &thread), 0);
    while (atomic_load(&s.bell.rung) == 0) {
        sched_yield();
        gwi_bell_ring(&s.bell); /* if it sleeps */
    }
    gwi_thread_join(thread);
    return s.beside;
}

static void who_is_woken_knows_whether_by_somebody_on_its_processor(void **state)
{
    (void)state;
    cpu_set_t all;
    int cpus[2], n = 0;

    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET(cpu, &all))
            cpus[n++] = cpu;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            assert_int_equal(is_beside(cpus[i], cpus[j]), i == j);
    sched_setaffinity(0, sizeof all, &all);
}

GWI_TESTS(cmocka_unit_test(who_shall_sleep_at_once_does),
          cmocka_unit_test(who_is_woken_knows_whether_by_somebody_on_its_processor),
          cmocka_unit_test(while_somebody_attends_the_sleeper_is_not_announced),
          cmocka_unit_test(who_polls_looks_often_at_first_and_then_hardly_costs_anything),
          cmocka_unit_test(who_is_in_no_hurry_sleeps_at_once_and_long),
          cmocka_unit_test(who_polls_is_still_woken_by_the_bell),
          cmocka_unit_test(no_ring_is_lost_between_threads),
          cmocka_unit_test(no_ring_is_lost_between_processes),
          cmocka_unit_test(a_long_wait_sleeps_and_looks_around_every_tick),
          cmocka_unit_test(a_sleeper_is_not_counted_in_the_crowd))
