/* rank.c - starting a process with the environment of its rank, and its end. */
#include "launch/rank.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { OWN_RANK, OWN_SIZE, OWN_JOB, OWN_NODE_SIZE, OWN_UNBUFFERED, N_OWN };

#define RANK_BYTES 32

static bool is_variable(const char *entry, const char *name)
{
    size_t len = strlen(name);

    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

/* Variables of a job around this one must not leak into it.  A node size that
 * the user has set is kept; one that the outer job has set is not. */
static bool is_replaced(const char *entry, bool drop_node_size)
{
    return is_variable(entry, "GODWIT_RANK") || is_variable(entry, "GODWIT_SIZE") ||
           is_variable(entry, "GODWIT_JOB") ||
           (drop_node_size && is_variable(entry, "GODWIT_NODE_SIZE"));
}

/* An id that no other job has: 128 random bits in hexadecimal. */
static char *random_job(void)
{
    unsigned char bits[16];
    char hex[2 * sizeof bits + 1];
    char *entry;

    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return NULL;
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(hex + 2 * i, 3, "%02x", bits[i]);
    return asprintf(&entry, "GODWIT_JOB=%s", hex) < 0 ? NULL : entry;
}

static char *numbered(const char *name, int value)
{
    char *entry;

    return asprintf(&entry, "%s=%d", name, value) < 0 ? NULL : entry;
}

static int make_own(gwi_crew *crew)
{
    char **own = crew->own;
    const gw_launch_options *opt = crew->opt;

    bool sized = opt->node_size > 0;
    bool unbuffered = getenv("PYTHONUNBUFFERED") == NULL; /* or prints come out minutes late */

    own[OWN_RANK] = calloc(1, RANK_BYTES);
    own[OWN_SIZE] = numbered("GODWIT_SIZE", opt->n_ranks);
    own[OWN_JOB] = random_job();
    own[OWN_NODE_SIZE] = sized ? numbered("GODWIT_NODE_SIZE", opt->node_size) : NULL;
    own[OWN_UNBUFFERED] = unbuffered ? numbered("PYTHONUNBUFFERED", 1) : NULL;
    if (own[OWN_RANK] == NULL || own[OWN_SIZE] == NULL || own[OWN_JOB] == NULL ||
        (sized && own[OWN_NODE_SIZE] == NULL) || (unbuffered && own[OWN_UNBUFFERED] == NULL))
        return gwi_fail(GW_ENOMEM, "the environment of the ranks");
    return 0;
}

const char *gwi_crew_job(const gwi_crew *crew)
{
    return crew->own[OWN_JOB] + strlen("GODWIT_JOB=");
}

static int make_env(gwi_crew *crew)
{
    bool drop_node_size = crew->opt->node_size > 0 || getenv("GODWIT_RANK") != NULL;
    size_t n = 0;

    while (environ != NULL && environ[n] != NULL)
        n++;
    crew->env = calloc(n + N_OWN + 1, sizeof crew->env[0]);
    if (crew->env == NULL)
        return gwi_fail(GW_ENOMEM, "the environment of the ranks");

    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_replaced(environ[i], drop_node_size))
            crew->env[used++] = environ[i];
    for (int i = 0; i < N_OWN; i++)
        if (crew->own[i] != NULL)
            crew->env[used++] = crew->own[i];
    return 0;
}

int gwi_crew_init(gwi_crew *crew, const gw_launch_options *opt, const gwi_signals *signals)
{
    int err;

    *crew = (gwi_crew){.opt = opt, .signals = signals};
    crew->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (crew->null_fd < 0)
        return gwi_fail_errno("open '/dev/null'");
    err = make_own(crew);
    if (err == 0)
        err = make_env(crew);
    if (err < 0)
        gwi_crew_fini(crew);
    return err;
}

void gwi_crew_fini(gwi_crew *crew)
{
    close(crew->null_fd);
    free(crew->env);
    for (int i = 0; i < N_OWN; i++)
        free(crew->own[i]);
}

/* Reading and writing end of the pipes of one start.  -1: closed. */
typedef struct pipes {
    int out[2], err[2];
    int trouble[2]; /* carries errno if the program cannot be run, else just ends */
} pipes;

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_pipes(pipes *p)
{
    for (int end = 0; end < 2; end++) {
        close_end(&p->out[end]);
        close_end(&p->err[end]);
        close_end(&p->trouble[end]);
    }
}

static int open_pipes(pipes *p)
{
    *p = (pipes){{-1, -1}, {-1, -1}, {-1, -1}};
    /* Only our ends may be non-blocking: programs do not expect it of theirs. */
    if (pipe2(p->out, O_CLOEXEC) == 0 && pipe2(p->err, O_CLOEXEC) == 0 &&
        pipe2(p->trouble, O_CLOEXEC) == 0 && fcntl(p->out[0], F_SETFL, O_NONBLOCK) == 0 &&
        fcntl(p->err[0], F_SETFL, O_NONBLOCK) == 0)
        return 0;
    gwi_fail_errno("open pipes");
    close_pipes(p);
    return GW_ESYS;
}

/* The child, from fork to exec: async-signal-safe functions only. */
_Noreturn static void become_program(const gwi_crew *crew, const pipes *p, int stdin_fd,
                                     pid_t parent)
{
    int why;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* the launcher died before the line above */
        _exit(1);
    dup2(stdin_fd, 0);
    dup2(p->out[1], 1);
    dup2(p->err[1], 2);
    gwi_signals_reset_child(crew->signals);

    char *const *argv = (char *const *)(uintptr_t)crew->opt->argv; /* exec changes nothing there */
    execvpe(argv[0], argv, crew->env);
    why = errno;
    ssize_t written = write(p->trouble[1], &why, sizeof why);
    (void)written;
    _exit(127);
}

/* Fork with all signals blocked, or one that comes between fork and exec would
 * run our handler in the child and count as one sent to the launcher. */
static pid_t fork_program(const gwi_crew *crew, const pipes *p, int stdin_fd)
{
    sigset_t all, old;
    pid_t parent = getpid();

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pid_t pid = fork();
    if (pid == 0)
        become_program(crew, p, stdin_fd, parent);
    int saved = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = saved;
    return pid;
}

/* The sentence about a program that exec has refused. */
static int fail_to_run(const char *program, int why)
{
    bool path = strchr(program, '/') != NULL;

    if (why == ENOENT && !path)
        return gwi_fail(
            GW_EINVAL,
            "there is no program '%s' in PATH; check its name, or give its path, such as './%s'",
            program, program);
    if (why == ENOENT && access(program, F_OK) == 0)
        return gwi_fail(
            GW_EINVAL, "'%s' cannot be run: the interpreter named in its first line does not exist",
            program);
    if (why == ENOENT || why == ENOTDIR)
        return gwi_fail(GW_EINVAL, "there is no program '%s'; check its path", program);
    if (why == EACCES)
        return gwi_fail(
            GW_EINVAL,
            "'%s' is no program that can be run; if it should be, 'chmod +x' makes it one",
            program);
    errno = why;
    return gwi_fail_errno("run '%s'", program);
}

/* Wait until the program runs: exec has closed the child's end.  Returns errno
 * of the exec that failed, else 0. */
static int read_trouble(int fd)
{
    int why = 0;
    ssize_t n;

    do
        n = read(fd, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof why ? why : 0;
}

static void reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

int gwi_rank_start(gwi_rank *rank, const gwi_crew *crew, int number, gwi_sink *out, gwi_sink *err)
{
    pipes p;
    int n_ranks = crew->opt->n_ranks;
    bool reads_stdin = number == 0 && !isatty(0);

    snprintf(crew->own[OWN_RANK], RANK_BYTES, "GODWIT_RANK=%d", number);
    if (open_pipes(&p) < 0)
        return gwi_fail(
            GW_ESYS, "cannot start rank %d of %d: %s; 'ulimit -n' shows how many files may be open",
            number, n_ranks, gw_last_error());

    pid_t pid = fork_program(crew, &p, reads_stdin ? 0 : crew->null_fd);
    if (pid < 0) {
        gwi_fail_errno("cannot start rank %d of %d", number, n_ranks);
        close_pipes(&p);
        return GW_ESYS;
    }
    close_end(&p.trouble[1]);
    int why = read_trouble(p.trouble[0]);
    int pidfd = why == 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1; /* closed by exec */
    if (pidfd < 0) {
        int failed = why != 0 ? fail_to_run(crew->opt->argv[0], why)
                              : gwi_fail_errno("watch rank %d", number);
        kill(pid, SIGKILL);
        reap(pid);
        close_pipes(&p);
        return failed;
    }

    rank->pid = pid;
    rank->pidfd = pidfd;
    gwi_stream_init(&rank->out, p.out[0], out, number, n_ranks);
    gwi_stream_init(&rank->err, p.err[0], err, number, n_ranks);
    p.out[0] = p.err[0] = -1;
    close_pipes(&p);
    return 0;
}

bool gwi_rank_alive(const gwi_rank *rank)
{
    return rank->pid != 0 && rank->pidfd >= 0;
}

bool gwi_rank_failed(const gwi_rank *rank)
{
    return rank->code != 0 || rank->signal != 0;
}

void gwi_rank_note_end(gwi_rank *rank)
{
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)rank->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        rank->code = 255; /* somebody else in this process took its status away */
    else if (info.si_code == CLD_EXITED)
        rank->code = info.si_status;
    else
        rank->signal = info.si_status;
    close_end(&rank->pidfd);
}

void gwi_rank_signal(const gwi_rank *rank, int sig)
{
    if (rank->pid != 0)
        kill(-rank->pid, sig);
}

void gwi_rank_fini(gwi_rank *rank)
{
    if (rank->pid == 0)
        return;
    if (gwi_rank_alive(rank))
        gwi_rank_signal(rank, SIGKILL);
    reap(rank->pid);
    close_end(&rank->pidfd);
    gwi_stream_fini(&rank->out);
    gwi_stream_fini(&rank->err);
    rank->pid = 0;
}
