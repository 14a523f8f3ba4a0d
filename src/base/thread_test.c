/* thread_test.c - our threads leave signals alone, and forks are noticed. */
#include "base/thread.h"
#include "base/error.h"
#include "base/test.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *blocked_signals(void *arg)
{
    sigset_t *set = arg;

    pthread_sigmask(SIG_SETMASK, NULL, set);
    return NULL;
}

static void a_thread_of_ours_takes_no_signals(void **state)
{
    (void)state;
    sigset_t inside, before, after;
    gwi_thread thread;

    sigemptyset(&inside);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(gwi_thread_start("test", blocked_signals, &inside, &thread), 0);
    gwi_thread_join(thread);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_true(sigismember(&inside, SIGINT) && sigismember(&inside, SIGTERM));
    assert_int_equal(sigismember(&before, SIGINT), sigismember(&after, SIGINT));
}

static void the_processor_count_follows_the_affinity(void **state)
{
    (void)state;
    cpu_set_t old, one;

    assert_true(gwi_cpu_count() >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &old)) {
            CPU_SET(i, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(gwi_cpu_count(), 1);
    sched_setaffinity(0, sizeof old, &old);
}

static void a_thread_goes_to_another_processor_and_is_not_kept_there(void **state)
{
    (void)state;
    cpu_set_t before, after;
    int here = gwi_cpu_now();

    assert_true(here >= 0);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    if (CPU_COUNT(&before) < 2)
        skip();
    for (int i = 0; i < 20; i++) {
        here = gwi_cpu_now();
        gwi_thread_leave_cpu();
        if (gwi_cpu_now() != here)
            break;
    } /* the system may move it back at any time, but not always */
    assert_int_not_equal(gwi_cpu_now(), here);
    for (int i = 0; i < 20 && gwi_cpu_now() != here; i++)
        gwi_thread_go_to_cpu(here);
    assert_int_equal(gwi_cpu_now(), here);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static void a_thread_that_may_use_one_processor_stays_there(void **state)
{
    (void)state;
    cpu_set_t old, one, after;
    int here = gwi_cpu_now();

    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    gwi_thread_leave_cpu();
    gwi_thread_go_to_cpu(here + 1);
    gwi_thread_go_to_cpu(CPU_SETSIZE);
    assert_int_equal(gwi_cpu_now(), here);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&one, &after));
    sched_setaffinity(0, sizeof old, &old);
}

static void mark(void *arg)
{
    *(int *)arg += 1;
}

static int in_child(int (*question)(void *), void *arg)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(question(arg));
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

static int value_of(void *arg)
{
    return *(int *)arg + 10 * (int)gwi_fork_generation();
}

static void a_child_knows_that_it_was_forked_and_runs_the_hooks(void **state)
{
    (void)state;
    int marks = 0;

    assert_int_equal(gwi_fork_hook_add(mark, &marks), 0);
    assert_int_equal(in_child(value_of, &marks), 11);
    assert_int_equal(value_of(&marks), 0);
    gwi_fork_hook_remove(mark, &marks);
    assert_int_equal(in_child(value_of, &marks), 10);
}

static void too_many_hooks_are_refused(void **state)
{
    (void)state;
    int marks[17] = {0};

    for (int i = 0; i < 16; i++)
        assert_int_equal(gwi_fork_hook_add(mark, &marks[i]), 0);
    assert_int_equal(gwi_fork_hook_add(mark, &marks[16]), GW_ENOMEM);
    for (int i = 0; i < 16; i++)
        gwi_fork_hook_remove(mark, &marks[i]);
}

/* The slice that the calling thread has asked for, in ns. */
static uint64_t slice_asked_for(void)
{
    struct {
        uint32_t size, sched_policy;
        uint64_t sched_flags;
        int32_t sched_nice;
        uint32_t sched_priority;
        uint64_t sched_runtime, sched_deadline, sched_period;
    } attr = {.size = sizeof attr};

    assert_int_equal(syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0), 0);
    return attr.sched_runtime;
}

struct slices {
    uint64_t before, quick, after, serving, not_quick;
};

static void *take_slices(void *arg)
{
    struct slices *found = arg;

    found->before = slice_asked_for();
    gwi_thread_be_quick(1);
    found->quick = slice_asked_for();
    gwi_thread_be_quick(0);
    found->after = slice_asked_for();
    gwi_thread_serve();
    found->serving = slice_asked_for();
    gwi_thread_be_quick(0);
    found->not_quick = slice_asked_for();
    return NULL;
}

static void a_thread_that_serves_has_a_short_slice_for_good(void **state)
{
    (void)state;
    struct slices found;
    gwi_thread thread;

    assert_int_equal(gwi_thread_start("test", take_slices, &found, &thread), 0);
    gwi_thread_join(thread);
    if (found.quick == found.before)
        skip(); /* a kernel that knows no slices */
    assert_true(found.quick < found.before && found.after == found.before);
    assert_true(found.serving == found.quick && found.not_quick == found.quick);
}

static int yes(void)
{
    return 1;
}

static void a_wait_asks_the_given_function_whether_to_go_on(void **state)
{
    (void)state;
    assert_false(gwi_interrupted());
    gw_set_interrupt_check(yes);
    assert_true(gwi_interrupted());
    gw_set_interrupt_check(NULL);
    assert_false(gwi_interrupted());
}

GWI_TESTS(cmocka_unit_test(a_thread_of_ours_takes_no_signals),
          cmocka_unit_test(the_processor_count_follows_the_affinity),
          cmocka_unit_test(a_thread_goes_to_another_processor_and_is_not_kept_there),
          cmocka_unit_test(a_thread_that_may_use_one_processor_stays_there),
          cmocka_unit_test(a_thread_that_serves_has_a_short_slice_for_good),
          cmocka_unit_test(a_child_knows_that_it_was_forked_and_runs_the_hooks),
          cmocka_unit_test(too_many_hooks_are_refused),
          cmocka_unit_test(a_wait_asks_the_given_function_whether_to_go_on))
