/* thread.c - threads, processor count, forks and interrupts. */
#include "base/thread.h"
#include "base/error.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* threads */

int gwi_thread_start(const char *name, void *(*run)(void *), void *arg, gwi_thread *ret_thread)
{
    sigset_t all, old;
    pthread_t id;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    errno = pthread_create(&id, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (errno != 0)
        return gwi_fail_errno("starting thread '%s'", name);
    pthread_setname_np(id, name);
    ret_thread->id = id;
    return 0;
}

void gwi_thread_join(gwi_thread thread)
{
    pthread_join(thread.id, NULL);
}

#define SHORT_SLICE_NS 100000 /* the shortest that can be asked for */

static _Thread_local int serves;

static void set_slice(uint64_t ns)
{
    /* The kernel's struct sched_attr, in its first form; libc has it only of late. */
    struct {
        uint32_t size, sched_policy;
        uint64_t sched_flags;
        int32_t sched_nice;
        uint32_t sched_priority;
        uint64_t sched_runtime, sched_deadline, sched_period;
    } attr = {.size = sizeof attr};

    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) == 0 &&
        attr.sched_policy == SCHED_OTHER) {
        attr.sched_runtime = ns;
        syscall(SYS_sched_setattr, 0, &attr, 0);
    }
}

void gwi_thread_be_quick(int quick)
{
    if (!serves)
        set_slice(quick ? SHORT_SLICE_NS : 0);
}

void gwi_thread_serve(void)
{
    set_slice(SHORT_SLICE_NS);
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    serves = 1;
}

/* The thread goes to one of these processors, and may leave it again as before. */
static void go_to(const cpu_set_t *cpus, const cpu_set_t *all)
{
    if (CPU_COUNT(cpus) > 0 && sched_setaffinity(0, sizeof *cpus, cpus) == 0)
        sched_setaffinity(0, sizeof *all, all);
}

int gwi_cpu_now(void)
{
    return sched_getcpu();
}

void gwi_thread_go_to_cpu(int cpu)
{
    cpu_set_t all, one;

    if (sched_getaffinity(0, sizeof all, &all) != 0 || !CPU_ISSET(cpu, &all))
        return;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    go_to(&one, &all);
}

void gwi_thread_leave_cpu(void)
{
    cpu_set_t all, others;

    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    others = all;
    CPU_CLR(sched_getcpu(), &others);
    go_to(&others, &all);
}

int gwi_cpu_count(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* forks */

#define N_HOOKS 16

static struct fork_hook {
    void (*child)(void *);
    void *arg;
} hooks[N_HOOKS]; /* under hook_lock */
static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t generation; /* written in a new child, while it has one thread */

static void before_fork(void)
{
    pthread_mutex_lock(&hook_lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&hook_lock);
}

static void after_fork_child(void)
{
    generation++;
    for (int i = 0; i < N_HOOKS; i++)
        if (hooks[i].child != NULL)
            hooks[i].child(hooks[i].arg);
    pthread_mutex_unlock(&hook_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

uint32_t gwi_fork_generation(void)
{
    return generation;
}

int gwi_fork_hook_add(void (*child)(void *), void *arg)
{
    int err = GW_ENOMEM;

    pthread_mutex_lock(&hook_lock);
    for (int i = 0; i < N_HOOKS && err < 0; i++)
        if (hooks[i].child == NULL) {
            hooks[i] = (struct fork_hook){child, arg};
            err = 0;
        }
    pthread_mutex_unlock(&hook_lock);
    return err < 0 ? gwi_fail(err, "more than %d open worlds in one process", N_HOOKS) : 0;
}

void gwi_fork_hook_remove(void (*child)(void *), void *arg)
{
    pthread_mutex_lock(&hook_lock);
    for (int i = 0; i < N_HOOKS; i++)
        if (hooks[i].child == child && hooks[i].arg == arg)
            hooks[i] = (struct fork_hook){NULL, NULL};
    pthread_mutex_unlock(&hook_lock);
}

/* interrupts */

static int (*_Atomic interrupt_check)(void);

void gw_set_interrupt_check(int (*check)(void))
{
    atomic_store(&interrupt_check, check);
}

int gwi_interrupted(void)
{
    int (*check)(void) = atomic_load(&interrupt_check);

    return check != NULL && check() != 0;
}

static void (*_Atomic wait_hooks[2])(void);

void gw_set_wait_hooks(void (*before)(void), void (*after)(void))
{
    atomic_store(&wait_hooks[0], before);
    atomic_store(&wait_hooks[1], after);
}

static void call_hook(int which)
{
    void (*hook)(void) = atomic_load(&wait_hooks[which]);

    if (hook != NULL)
        hook();
}

void gwi_before_wait(void)
{
    call_hook(0);
}

void gwi_after_wait(void)
{
    call_hook(1);
}

/* where the program is */

static gwi_where_function *_Atomic where_hook;

void gw_set_where(gwi_where_function *where)
{
    atomic_store(&where_hook, where);
}

gwi_where_function *gwi_where_hook(void)
{
    return atomic_load(&where_hook);
}
