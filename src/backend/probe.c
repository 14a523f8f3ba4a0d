/* probe.c - lets a child process load and measure libraries, so that nothing happens to this one.
 */
#include "backend/blas.h"
#include "backend/child.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_LIMIT_NS (60 * GWI_SECOND)
#define MEASURE_LIMIT_NS (600 * GWI_SECOND)
#define PROGRAM "godwit-blas"

/* The environment of a child that is to use so many threads, for libraries that read it only when
 * they start.  The pointers are borrowed, but for the new texts, which are in `texts`. */
#define N_THREAD_NAMES 6
typedef struct surroundings {
    char texts[N_THREAD_NAMES][64];
    char **environment;
} surroundings;

static int surround(int n_threads, surroundings *ret)
{
    static const char *const names[N_THREAD_NAMES] = {
        "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",  "BLIS_NUM_THREADS",
        "MKL_NUM_THREADS",      "GOTO_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"};
    size_t n = 0, kept = 0;

    while (environ[n] != NULL)
        n++;
    ret->environment = calloc(n + N_THREAD_NAMES + 1, sizeof(char *));
    if (ret->environment == NULL)
        return gwi_fail(GW_ENOMEM, "the environment of a child");
    for (size_t i = 0; i < n; i++) {
        bool ours = strncmp(environ[i], "LD_AUDIT=", 9) == 0 ||
                    strncmp(environ[i], "LD_PRELOAD=", 11) == 0;
        for (int j = 0; j < N_THREAD_NAMES && n_threads > 0; j++) {
            size_t length = strlen(names[j]);
            ours = ours ||
                   (strncmp(environ[i], names[j], length) == 0 && environ[i][length] == '=');
        }
        if (!ours)
            ret->environment[kept++] = environ[i];
    }
    for (int j = 0; j < N_THREAD_NAMES && n_threads > 0; j++) {
        snprintf(ret->texts[j], sizeof ret->texts[j], "%s=%d", names[j], n_threads);
        ret->environment[kept++] = ret->texts[j];
    }
    return 0;
}

static int start(const char *program, int fd, char **environment, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    char *argv[] = {(char *)(uintptr_t)program, NULL};

    int err = posix_spawn_file_actions_init(&actions);
    if (err == 0) {
        err = posix_spawn_file_actions_adddup2(&actions, fd, GWI_CHILD_FD);
        if (err == 0)
            err = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY,
                                                   0);
        if (err == 0)
            err = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY,
                                                   0);
        if (err == 0)
            err = posix_spawn(ret_pid, program, &actions, NULL, argv, environment);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (err != 0) {
        errno = err;
        return gwi_fail_errno("cannot start '%s'", program);
    }
    return 0;
}

/* Read the answer; it may take as long as `limit_ns`. */
static int await(int fd, int64_t limit_ns, const char *path, gwi_child_answer *answer)
{
    int64_t end = gwi_deadline_ns(limit_ns);
    size_t got = 0;

    while (got < sizeof *answer) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        int ready = poll(&one, 1, 100);
        if (ready < 0 && errno != EINTR)
            return gwi_fail_errno("waiting for the child that loads '%s'", path);
        if (gwi_interrupted())
            return gwi_fail(GW_EINTR, "interrupted while '%s' was being asked", path);
        if (gwi_now_ns() > end)
            return gwi_fail(GW_ETIMEOUT, "the library '%s' did not answer within %lld s", path,
                            (long long)(limit_ns / GWI_SECOND));
        if (ready <= 0)
            continue;
        ssize_t n = recv(fd, (char *)answer + got, sizeof *answer - got, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return GW_ESYS; /* it died; the caller says how */
        if (n > 0)
            got += (size_t)n;
    }
    return 0;
}

static int conclude(pid_t pid, int err, const char *path, const gwi_child_answer *answer)
{
    int status = 0;

    if (err < 0 && err != GW_ESYS)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (err == GW_ESYS && WIFSIGNALED(status))
        return gwi_fail(GW_ESYS,
                        "the library '%s' killed the process that loaded it (signal %d, %s)", path,
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (err == GW_ESYS)
        return gwi_fail(GW_ESYS, "the process that loaded the library '%s' ended with code %d",
                        path, WEXITSTATUS(status));
    if (err < 0)
        return err;
    if (answer->magic != GWI_CHILD_MAGIC || answer->size_bytes != sizeof *answer)
        return gwi_fail(GW_EUNSUP, "%s is of another Godwit; install it again", PROGRAM);
    return answer->err < 0 ? gwi_fail(answer->err, "%s", answer->error) : 0;
}

static int ask_child(const gwi_child_order *order, int64_t limit_ns, gwi_child_answer *answer)
{
    char program[4096];
    int pair[2];
    pid_t pid;
    surroundings around;

    int err = gw_companion(PROGRAM, program, sizeof program);
    if (err < 0)
        return err;
    err = surround(order->what == GWI_CHILD_MEASURE ? order->bench.n_threads : 0, &around);
    if (err < 0)
        return err;
    /* Above 3, so that the child's end can be put there and nothing is lost. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        err = gwi_fail_errno("socketpair");
        goto free_environment;
    }
    if (pair[1] <= GWI_CHILD_FD) {
        int higher = fcntl(pair[1], F_DUPFD_CLOEXEC, GWI_CHILD_FD + 1);
        close(pair[1]);
        pair[1] = higher;
    }
    err = start(program, pair[1], around.environment, &pid);
    close(pair[1]);
    if (err < 0)
        goto close_pair;
    err = send(pair[0], order, sizeof *order, MSG_NOSIGNAL) == (ssize_t)sizeof *order ? 0 : GW_ESYS;
    if (err == 0)
        err = await(pair[0], limit_ns, order->path, answer);
    err = conclude(pid, err, order->path, answer);
close_pair:
    close(pair[0]);
free_environment:
    free(around.environment);
    return err;
}

static int begin(gwi_child_order *order, int what, const char *path)
{
    order->magic = GWI_CHILD_MAGIC;
    order->size_bytes = sizeof *order;
    order->what = what;
    if (path == NULL || path[0] == '\0')
        return gwi_fail(GW_EINVAL, "no library is given");
    if (strlen(path) >= sizeof order->path)
        return gwi_fail(GW_EINVAL, "the path of a library is longer than %zu characters: '%s'",
                        sizeof order->path - 1, path);
    snprintf(order->path, sizeof order->path, "%s", path);
    return 0;
}

int gw_blas_probe(const char *path, gw_blas_info *ret_info)
{
    gwi_child_order order = {0};
    gwi_child_answer answer = {0};

    if (ret_info == NULL || ret_info->size_bytes < sizeof *ret_info)
        return gwi_fail(GW_EINVAL, "size_bytes is not sizeof(gw_blas_info), %zu", sizeof *ret_info);
    int err = begin(&order, GWI_CHILD_PROBE, path);
    if (err == 0)
        err = ask_child(&order, PROBE_LIMIT_NS, &answer);
    if (err == 0)
        *ret_info = answer.info;
    return err;
}

int gw_blas_measure(const gw_blas_bench *bench, gw_blas_speed *ret_speed)
{
    gwi_child_order order = {0};
    gwi_child_answer answer = {0};

    if (bench == NULL || bench->size_bytes < sizeof *bench)
        return gwi_fail(GW_EINVAL, "size_bytes is not sizeof(gw_blas_bench), %zu", sizeof *bench);
    if (bench->n_repeats < 1 || bench->n_repeats > 10000 || !(bench->least_s >= 0) ||
        bench->least_s > 60 || bench->n_threads < 0 || bench->n_threads > 4096)
        return gwi_fail(
            GW_EINVAL,
            "n_repeats is %d (1 to 10000), least_s %g (0 to 60), n_threads %d (0 to 4096)",
            bench->n_repeats, bench->least_s, bench->n_threads);
    int err = begin(&order, GWI_CHILD_MEASURE, bench->path);
    if (err < 0)
        return err;
    order.bench = *bench;
    order.bench.path = NULL; /* an address is of no use over there */
    err = ask_child(&order, MEASURE_LIMIT_NS, &answer);
    if (err == 0)
        *ret_speed = answer.speed;
    return err;
}
