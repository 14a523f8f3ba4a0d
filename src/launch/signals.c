/* signals.c - signals caught into a pipe, and put back.
 *
 * A pipe and not a signalfd: that needs the signals blocked in every thread, and
 * the process may have threads that this code has never heard of.            */
#include "launch/signals.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static const struct {
    int sig;
    int caught; /* else SIGPIPE and SIGCHLD, which only get another disposition */
} table[GWI_N_SIGNALS] = {
    {SIGINT, 1},  {SIGTERM, 1}, {SIGHUP, 1},  {SIGQUIT, 1}, {SIGUSR1, 1},
    {SIGUSR2, 1}, {SIGTSTP, 1}, {SIGPIPE, 0}, {SIGCHLD, 0},
};

static atomic_int write_fd = -1;

static void queue(int sig)
{
    int saved = errno;
    unsigned char byte = (unsigned char)sig;

    /* A full pipe holds thousands that say the same; one more is not missed. */
    ssize_t written = write(atomic_load_explicit(&write_fd, memory_order_relaxed), &byte, 1);
    (void)written;
    errno = saved;
}

static int was_ignored(const gwi_signals *signals, int i)
{
    return table[i].caught && signals->old[i].sa_handler == SIG_IGN;
}

int gwi_signals_catch(gwi_signals *signals)
{
    int ends[2];
    int none = -1;

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return gwi_fail_errno("create a pipe for signals");
    if (!atomic_compare_exchange_strong(&write_fd, &none, ends[1])) {
        close(ends[0]);
        close(ends[1]);
        return gwi_fail(GW_ESTATE, "this process is launching a job already; a process can look "
                                   "after one at a time");
    }
    signals->fd = ends[0];

    sigset_t caught;
    sigemptyset(&caught);
    for (int i = 0; i < GWI_N_SIGNALS; i++) {
        struct sigaction action = {.sa_handler = table[i].caught ? queue : SIG_DFL};
        if (table[i].sig == SIGPIPE)
            action.sa_handler = SIG_IGN;
        sigfillset(&action.sa_mask); /* or a later signal could overtake this one */
        sigaction(table[i].sig, NULL, &signals->old[i]);
        if (was_ignored(signals, i))
            continue;
        sigaction(table[i].sig, &action, NULL);
        if (table[i].caught)
            sigaddset(&caught, table[i].sig);
    }
    pthread_sigmask(SIG_UNBLOCK, &caught, &signals->old_mask);
    return 0;
}

void gwi_signals_release(gwi_signals *signals)
{
    pthread_sigmask(SIG_SETMASK, &signals->old_mask, NULL);
    for (int i = 0; i < GWI_N_SIGNALS; i++)
        sigaction(table[i].sig, &signals->old[i], NULL);
    close(atomic_exchange(&write_fd, -1));
    close(signals->fd);
}

int gwi_signals_next(gwi_signals *signals)
{
    unsigned char byte;

    return read(signals->fd, &byte, 1) == 1 ? byte : 0;
}

void gwi_signals_reset_child(const gwi_signals *signals)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    sigemptyset(&action.sa_mask);
    for (int sig = 1; sig < NSIG; sig++)
        sigaction(sig, &action, NULL); /* refused for a few, which cannot be changed anyway */
    action.sa_handler = SIG_IGN;
    for (int i = 0; i < GWI_N_SIGNALS; i++)
        if (was_ignored(signals, i))
            sigaction(table[i].sig, &action, NULL);
    sigprocmask(SIG_SETMASK, &action.sa_mask, NULL);
}

const char *gwi_signal_name(int sig)
{
    switch (sig) {
#define CASE(name) \
    case name:     \
        return #name;
        CASE(SIGHUP)
        CASE(SIGINT)
        CASE(SIGQUIT)
        CASE(SIGILL)
        CASE(SIGTRAP)
        CASE(SIGABRT)
        CASE(SIGBUS)
        CASE(SIGFPE)
        CASE(SIGKILL)
        CASE(SIGUSR1)
        CASE(SIGSEGV)
        CASE(SIGUSR2)
        CASE(SIGPIPE)
        CASE(SIGALRM)
        CASE(SIGTERM)
        CASE(SIGXCPU)
        CASE(SIGXFSZ)
        CASE(SIGSYS)
#undef CASE
    default:
        return "";
    }
}
