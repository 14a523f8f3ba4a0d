/* launch_test.c - a launch as its user sees it: programs in, output and exit code out.
 *
 * Each test runs the launch in a forked process, with pipes (or a terminal) for
 * stdin, stdout and stderr, and looks at what comes out.                     */
#include "base/clock.h"
#include "base/error.h"
#include "base/test.h"
#include "launch/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit code of the launcher if gwi_launch() failed; its sentence is on stderr. */
#define REFUSED 99

/* Everything in its own time: nothing is forced unless a test asks for it. */
static const gwi_launch_times patient = {
    .grace_ns = 60 * GWI_SECOND, .term_ns = 60 * GWI_SECOND, .drain_ns = GWI_SECOND / 2};
static const gwi_launch_times hasty = {
    .grace_ns = 50 * GWI_MS, .term_ns = 100 * GWI_MS, .drain_ns = 50 * GWI_MS};

typedef struct setup {
    int n_ranks;
    const char *script;            /* for /bin/sh -c */
    const gwi_launch_times *times; /* NULL: patient */
    const char *const *argv;       /* instead of a script */
    const char *input;             /* what stdin holds */
    int node_size;
    bool terminal; /* stdin, stdout and stderr are a terminal, and its Ctrl-C works */
    bool merge;    /* stdout and stderr are one pipe */
    void (*before)(void), (*after)(void); /* called in the launcher */
} setup;

typedef struct text {
    char *bytes; /* ends with '\0' */
    size_t len;
} text;

typedef struct launcher {
    pid_t pid;
    int in, out_fd, err_fd; /* the test's ends */
    text out, err;
    int code;   /* once it has ended */
    int signal; /* once it has ended */
} launcher;

/* A rank that knows exactly which signals it gets; a shell may miss some.  Run
 * as "$ACT" act [signal:code ...], it prints the name of each, and exits with
 * the code if one is given.  "family" in front: it has a child that does too.
 * If there are marks, it leaves one with its rank when it listens. */
static int exit_code_for(int sig, char **rules)
{
    for (; *rules != NULL; rules++)
        if (atoi(*rules) == sig)
            return atoi(strchr(*rules, ':') + 1);
    return -1;
}

_Noreturn static void act(char **rules)
{
    const char *who = "", *marks = getenv("MARKS");
    sigset_t all;
    int sig;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (*rules != NULL && strcmp(*rules, "family") == 0) {
        rules++;
        who = fork() == 0 ? "child " : "rank ";
    }
    if (marks != NULL) {
        char path[200];
        snprintf(path, sizeof path, "%s/%s", marks, getenv("GODWIT_RANK"));
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    dprintf(1, "%sready\n", who);
    while (sigwait(&all, &sig) == 0) {
        if (sig == SIGCHLD)
            continue;
        dprintf(1, "%sgot %d\n", who, sig);
        int code = exit_code_for(sig, rules);
        if (code < 0)
            continue;
        while (wait(NULL) > 0)
            ;
        _exit(code);
    }
    _exit(99);
}

/* Before main(), which knows no arguments. */
__attribute__((constructor)) static void act_if_asked(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "act") == 0)
        act(argv + 2);
}

static void run_launch(const setup *s)
{
    char self[1000] = "";
    const char *const shell[] = {"/bin/sh", "-c", s->script, NULL};
    gw_launch_options opt = {.size_bytes = sizeof opt,
                             .n_ranks = s->n_ranks,
                             .node_size = s->node_size,
                             .argv = s->argv != NULL ? s->argv : shell};
    int code = -1;

    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    setenv("ACT", self, 1);
    signal(SIGINT, SIG_DFL); /* the tests may be run in the background, where it is ignored */
    alarm(100);              /* a launch that hangs shall fail the test, and not hang it */
    if (s->before != NULL)
        s->before();
    int err = gwi_launch(&opt, s->times != NULL ? s->times : &patient, &code);
    if (err < 0) {
        dprintf(2, "%s: %s\n", gw_errname(err), gw_last_error());
        code = REFUSED;
    }
    if (s->after != NULL)
        s->after();
    exit(code);
}

static void use_terminal(const char *path)
{
    setsid();
    int fd = open(path, O_RDWR);
    assert_int_equal(ioctl(fd, TIOCSCTTY, 0), 0);
    for (int i = 0; i < 3; i++)
        dup2(fd, i);
    close(fd);
}

static launcher start(setup s)
{
    launcher l = {.in = -1, .err_fd = -1};
    int in[2], out[2] = {-1, -1}, err[2];
    char tty[100] = "";

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    if (s.terminal) {
        out[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        assert_true(out[0] >= 0 && grantpt(out[0]) == 0 && unlockpt(out[0]) == 0);
        assert_int_equal(ptsname_r(out[0], tty, sizeof tty), 0);
    } else {
        assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    }
    fflush(NULL);
    l.pid = fork();
    assert_true(l.pid >= 0);
    if (l.pid == 0) {
        /* Under nohup or in the background of a script these are ignored. */
        signal(SIGHUP, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        signal(SIGQUIT, SIG_DFL);
        close(in[1]);
        close(out[0]);
        close(err[0]);
        if (s.terminal) {
            use_terminal(tty);
        } else {
            dup2(in[0], 0);
            dup2(out[1], 1);
            dup2(s.merge ? out[1] : err[1], 2);
        }
        run_launch(&s);
    }
    close(in[0]);
    if (!s.terminal)
        close(out[1]);
    close(err[1]);
    if (s.input != NULL)
        assert_int_equal(write(in[1], s.input, strlen(s.input)), strlen(s.input));
    close(in[1]);
    l.out_fd = out[0];
    l.err_fd = err[0];
    return l;
}

/* Add what can be read; closes the descriptor at its end. */
static void take(int *fd, text *t)
{
    char piece[65536];
    ssize_t n = read(*fd, piece, sizeof piece);

    if (n <= 0) { /* a terminal that all have left gives EIO */
        close(*fd);
        *fd = -1;
        n = 0;
    }
    t->bytes = realloc(t->bytes, t->len + (size_t)n + 1);
    assert_non_null(t->bytes);
    memcpy(t->bytes + t->len, piece, (size_t)n);
    t->len += (size_t)n;
    t->bytes[t->len] = '\0';
}

static void take_some(launcher *l)
{
    struct pollfd p[2] = {{.fd = l->out_fd, .events = POLLIN}, {.fd = l->err_fd, .events = POLLIN}};

    assert_true(poll(p, 2, 100000) > 0);
    if (p[0].revents != 0)
        take(&l->out_fd, &l->out);
    if (p[1].revents != 0)
        take(&l->err_fd, &l->err);
}

static int count(const char *in, const char *what)
{
    int n = 0;

    for (const char *at = in; at != NULL && (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

/* Read stdout until `what` has come so many times. */
static void await(launcher *l, const char *what, int times)
{
    while (count(l->out.bytes, what) < times) {
        assert_true(l->out_fd >= 0);
        take_some(l);
    }
}

static void finish(launcher *l)
{
    int status;

    while (l->out_fd >= 0 || l->err_fd >= 0)
        take_some(l);
    assert_int_equal(waitpid(l->pid, &status, 0), l->pid);
    l->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    l->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void forget(launcher *l)
{
    free(l->out.bytes);
    free(l->err.bytes);
}

static launcher launch(setup s)
{
    launcher l = start(s);

    finish(&l);
    return l;
}

/* The state of a process as the kernel's letter; 'X' if there is none. */
static char state_of(pid_t pid)
{
    char path[64], line[512] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 'X';
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *name_end = strrchr(line, ')');
    return read && name_end != NULL ? name_end[2] : 'X';
}

/* Gone, or a zombie that its new parent has not looked at. */
static bool is_gone(pid_t pid)
{
    return strchr("XZ", state_of(pid)) != NULL;
}

static void assert_soon(pid_t pid, const char *states)
{
    int64_t end = gwi_deadline_ns(30 * GWI_SECOND);

    while (strchr(states, state_of(pid)) == NULL) {
        assert_true(gwi_now_ns() < end);
        poll(NULL, 0, 5);
    }
}

static void assert_soon_gone(pid_t pid)
{
    assert_soon(pid, "XZ");
}

/* The number behind `label` in `in`. */
static pid_t number_after(const char *in, const char *label)
{
    const char *at = strstr(in, label);

    assert_non_null(at);
    return atoi(at + strlen(label));
}

/* ---- ends ---- */

static void a_job_that_ends_well_prints_nothing_of_its_own(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 4, .script = "exit 0"});

    assert_int_equal(l.code, 0);
    assert_string_equal(l.out.bytes, "");
    assert_string_equal(l.err.bytes, "");
    forget(&l);
}

static void the_first_failure_gives_exit_code_and_last_words(void **state)
{
    (void)state;
    launcher l = launch((setup){
        .n_ranks = 3, .script = "test $GODWIT_RANK != 1 || { seq 12 >&2; echo talk; exit 7; }"});

    assert_int_equal(l.code, 7);
    assert_string_equal(l.out.bytes, "[1] talk\n");
    const char *report = strstr(l.err.bytes, "godwit run:");
    assert_string_equal(report, "godwit run: rank 1 of 3 failed: exit code 7\n"
                                "    its last words:\n"
                                "    | 3\n    | 4\n    | 5\n    | 6\n    | 7\n"
                                "    | 8\n    | 9\n    | 10\n    | 11\n    | 12\n");
    forget(&l);
}

static void last_words_are_those_of_stdout_if_stderr_was_silent(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 1, .script = "echo one; printf two; exit 2"});

    assert_int_equal(l.code, 2);
    assert_string_equal(l.err.bytes, "godwit run: rank 0 of 1 failed: exit code 2\n"
                                     "    its last words, on stdout:\n    | one\n    | two\n");
    forget(&l);
}

static void a_rank_killed_by_a_signal_is_told_by_its_name(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 1, .script = "kill -SEGV $$"});

    assert_int_equal(l.code, 128 + SIGSEGV);
    assert_string_equal(l.err.bytes,
                        "godwit run: rank 0 of 1 failed: killed by signal 11 (SIGSEGV)\n"
                        "    it has printed nothing\n");
    forget(&l);
}

/* A directory in which the ranks of one test can leave marks for each other. */
static char marks[] = "/tmp/gw-launch-test-XXXXXX";

static int make_marks(void **state)
{
    (void)state;
    strcpy(marks + strlen(marks) - 6, "XXXXXX");
    if (mkdtemp(marks) == NULL)
        return -1;
    return setenv("MARKS", marks, 1);
}

static int remove_marks(void **state)
{
    (void)state;
    char command[100];

    unsetenv("MARKS");
    snprintf(command, sizeof command, "rm -r '%s'", marks);
    return system(command);
}

/* Shell functions for scripts that meet there. */
#define MEET "mark() { : > $MARKS/$1; }; meet() { until test -e $MARKS/$1; do sleep 0.01; done; }; "

static void others_may_end_with_their_own_error(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 6,
                                .script = MEET "case $GODWIT_RANK in\n"
                                               "3) mark failed; exit 3;;\n"
                                               "5) exit 0;;\n"
                                               "esac\n"
                                               "meet failed\n"
                                               "sleep 0.3\n" /* well after it */
                                               "exit 1"});

    assert_int_equal(l.code, 3);
    assert_string_equal(l.err.bytes,
                        "godwit run: rank 3 of 6 failed: exit code 3\n"
                        "    it has printed nothing\n"
                        "godwit run: afterwards ranks 0-2 and 4 ended with exit code 1\n");
    forget(&l);
}

static void those_who_do_not_end_get_sigterm_then_sigkill(void **state)
{
    (void)state;
    gwi_launch_times times = hasty;
    times.term_ns = 2 * GWI_SECOND; /* a busy machine needs time to take a signal */
    launcher l = launch((setup){.n_ranks = 3,
                                .times = &times,
                                .script = MEET "case $GODWIT_RANK in\n"
                                               "0) meet 1; meet 2; exit 3;;\n"
                                               "1) exec \"$ACT\" act;;\n"
                                               "2) exec \"$ACT\" act 15:9;;\n"
                                               "esac"});

    assert_int_equal(l.code, 3);
    assert_int_equal(count(l.out.bytes, "[1] got 15\n"), 1);
    assert_int_equal(count(l.out.bytes, "[2] got 15\n"), 1);
    assert_non_null(strstr(l.err.bytes, "rank 0 of 3 failed: exit code 3\n"));
    assert_non_null(strstr(l.err.bytes, "afterwards ranks 1 and 2 were stopped by godwit run\n"));
    forget(&l);
}

static void helpers_of_a_failed_job_end_with_it(void **state)
{
    (void)state;
    launcher l = launch(
        (setup){.n_ranks = 1, .times = &hasty, .script = "sleep 1000 & echo helper=$!; exit 1"});

    assert_int_equal(l.code, 1);
    assert_soon_gone(number_after(l.out.bytes, "helper="));
    forget(&l);
}

static void helpers_of_a_job_that_ended_well_are_left_alone_and_not_waited_for(void **state)
{
    (void)state;
    launcher l = launch((setup){
        .n_ranks = 2, .times = &hasty, .script = "sleep 1000 & echo helper$GODWIT_RANK=$!"});
    pid_t helpers[2] = {number_after(l.out.bytes, "helper0="),
                        number_after(l.out.bytes, "helper1=")};

    assert_int_equal(l.code, 0);
    for (int i = 0; i < 2; i++) {
        assert_false(is_gone(helpers[i]));
        assert_int_equal(kill(helpers[i], SIGKILL), 0);
    }
    forget(&l);
}

static void a_helper_that_never_stops_printing_does_not_hold_the_launch(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 1, .times = &hasty, .script = "yes & echo helper=$!"});

    assert_int_equal(l.code, 0);
    assert_soon_gone(number_after(l.out.bytes, "helper=")); /* its pipe is closed */
    forget(&l);
}

/* ---- start ---- */

static void every_rank_has_its_environment(void **state)
{
    (void)state;
    const char *script = "echo $GODWIT_RANK of $GODWIT_SIZE, ${GODWIT_NODE_SIZE-none}, "
                         "$PYTHONUNBUFFERED, job=$GODWIT_JOB.";
    launcher l = launch((setup){.n_ranks = 3, .node_size = 2, .script = script});
    launcher again = launch((setup){.n_ranks = 1, .script = script});
    char job[33] = "", line[200];

    assert_int_equal(sscanf(strstr(l.out.bytes, "job="), "job=%32[0-9a-f].", job), 1);
    assert_int_equal(strlen(job), 32);
    for (int rank = 0; rank < 3; rank++) {
        snprintf(line, sizeof line, "[%d] %d of 3, 2, 1, job=%s.\n", rank, rank, job);
        assert_int_equal(count(l.out.bytes, line), 1);
    }
    assert_non_null(strstr(again.out.bytes, "[0] 0 of 1, none, 1, job="));
    assert_null(strstr(again.out.bytes, job));
    forget(&l);
    forget(&again);
}

static void be_rank_2_of_another_job(void)
{
    setenv("GODWIT_JOB", "outer", 1);
    setenv("GODWIT_RANK", "2", 1);
    setenv("GODWIT_SIZE", "5", 1);
    setenv("GODWIT_NODE_SIZE", "3", 1);
    setenv("PYTHONUNBUFFERED", "0", 1);
}

static void a_job_inside_a_job_is_its_own(void **state)
{
    (void)state;
    launcher l = launch(
        (setup){.n_ranks = 1,
                .before = be_rank_2_of_another_job,
                .script = "env | grep -e ^GODWIT -e ^PYTHONUNB | grep -v JOB= | sort;"
                          "test $GODWIT_JOB != outer"});

    assert_int_equal(l.code, 0);
    assert_string_equal(l.out.bytes,
                        "[0] GODWIT_RANK=0\n[0] GODWIT_SIZE=1\n[0] PYTHONUNBUFFERED=0\n");
    forget(&l);
}

static void ask_for_nodes_of_3(void)
{
    setenv("GODWIT_NODE_SIZE", "3", 1);
}

static void a_node_size_from_the_environment_stays(void **state)
{
    (void)state;
    launcher l = launch(
        (setup){.n_ranks = 1, .before = ask_for_nodes_of_3, .script = "env | grep NODE_SIZE"});

    assert_string_equal(l.out.bytes, "[0] GODWIT_NODE_SIZE=3\n");
    forget(&l);
}

static void assert_no_child_left(void)
{
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
        dprintf(2, "a child was left\n");
}

static void a_program_that_cannot_be_run_is_one_clear_error(void **state)
{
    (void)state;
    static const struct {
        const char *program, *sentence;
    } cases[] = {
        {"no-such-program",
         "EINVAL: there is no program 'no-such-program' in PATH; check its name, or "
         "give its path, such as './no-such-program'\n"},
        {"/no/such", "EINVAL: there is no program '/no/such'; check its path\n"},
        {"/etc/passwd", "EINVAL: '/etc/passwd' is no program that can be run; if it should be, "
                        "'chmod +x' makes it one\n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const argv[] = {cases[i].program, NULL};
        launcher l = launch((setup){.n_ranks = 4, .argv = argv, .after = assert_no_child_left});
        assert_int_equal(l.code, REFUSED);
        assert_string_equal(l.out.bytes, "");
        assert_string_equal(l.err.bytes, cases[i].sentence);
        forget(&l);
    }
}

static void a_script_without_its_interpreter_is_told_as_such(void **state)
{
    (void)state;
    char path[100];
    snprintf(path, sizeof path, "%s/script", marks);
    int fd = open(path, O_CREAT | O_WRONLY, 0755);
    dprintf(fd, "#!/no/such/interpreter\n");
    close(fd);
    const char *const argv[] = {path, NULL};

    launcher l = launch((setup){.n_ranks = 1, .argv = argv});
    assert_int_equal(l.code, REFUSED);
    assert_non_null(strstr(l.err.bytes, "the interpreter named in its first line does not exist"));
    forget(&l);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    static const char *const argv[] = {"true", NULL};
    static const char *const nothing[] = {NULL};
    int code = 42;

    const gw_launch_options bad[] = {
        {.size_bytes = 1, .n_ranks = 1, .argv = argv},
        {.size_bytes = sizeof bad[0], .n_ranks = 0, .argv = argv},
        {.size_bytes = sizeof bad[0], .n_ranks = 4097, .argv = argv},
        {.size_bytes = sizeof bad[0], .n_ranks = 1, .node_size = -1, .argv = argv},
        {.size_bytes = sizeof bad[0], .n_ranks = 1, .argv = nothing},
        {.size_bytes = sizeof bad[0], .n_ranks = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(gw_launch(&bad[i], &code), GW_EINVAL);
    assert_int_equal(gw_launch(NULL, &code), GW_EINVAL);
    assert_int_equal(code, 42);
}

static void only_rank_0_reads_stdin(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 2,
                                .input = "words\n",
                                .script = MEET "test $GODWIT_RANK = 1 || meet read\n"
                                               "echo got: $(cat)\n"
                                               "mark read"});

    assert_string_equal(l.out.bytes, "[1] got:\n[0] got: words\n");
    forget(&l);
}

static void close_standard(void)
{
    close(0);
    close(1);
}

static void closed_standard_descriptors_do_no_harm(void **state)
{
    (void)state;
    launcher l = launch(
        (setup){.n_ranks = 2, .before = close_standard, .script = "cat; echo fine >&2; echo lost"});

    assert_int_equal(l.code, 0);
    assert_int_equal(count(l.err.bytes, "fine\n"), 2);
    assert_int_equal(l.err.len, 2 * strlen("[0] fine\n"));
    forget(&l);
}

/* ---- output ---- */

static void ranks_are_aligned(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 11, .script = "echo x"});

    assert_int_equal(count(l.out.bytes, "[ 3] x\n"), 1);
    assert_int_equal(count(l.out.bytes, "[10] x\n"), 1);
    assert_int_equal(l.out.len, 11 * strlen("[10] x\n"));
    forget(&l);
}

static void lines_end_at_newlines_carriage_returns_and_the_end(void **state)
{
    (void)state;
    static const struct {
        const char *script, *output;
    } cases[] = {
        {"printf 'a\\n\\nb'", "[0] a\n[0] \n[0] b\n"},
        {"printf 'a\\r\\nb\\r\\n'", "[0] a\r\n[0] b\r\n"},
        {"printf '10%%\\r20%%\\rdone\\n'", "[0] 10%\r[0] 20%\r[0] done\n"},
        {"printf '\\r10%%\\r20%%\\n'", "[0] 10%\r[0] 20%\n"},
        {"printf 'all\\r'", "[0] all\n"},
        {"printf 'nul\\000byte\\n' | tr '\\000' '\\001'", "[0] nul\001byte\n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        launcher l = launch((setup){.n_ranks = 1, .script = cases[i].script});
        assert_string_equal(l.out.bytes, cases[i].output);
        forget(&l);
    }
}

static void progress_bars_are_no_last_words(void **state)
{
    (void)state;
    launcher l = launch(
        (setup){.n_ranks = 1, .script = "printf '10%%\\r20%%\\r30%%\\nsorry\\n' >&2; exit 1"});

    assert_non_null(strstr(l.err.bytes, "its last words:\n    | 30%\n    | sorry\n"));
    forget(&l);
}

static void a_very_long_line_comes_in_pieces_and_whole(void **state)
{
    (void)state;
    launcher l = launch(
        (setup){.n_ranks = 2, .script = "head -c 300000 /dev/zero | tr '\\0' x; echo"});
    size_t n_x = 0, run = 0;

    for (size_t i = 0; i < l.out.len; i++) {
        bool x = l.out.bytes[i] == 'x';
        run = x ? run + 1 : 0;
        n_x += x;
        assert_true(run <= 65536);
    }
    assert_int_equal(n_x, 600000);
    assert_int_equal(count(l.out.bytes, "[0] "), count(l.out.bytes, "[1] "));
    assert_int_equal(count(l.out.bytes, "\n"), count(l.out.bytes, "["));
    forget(&l);
}

#define N_LINES 60000
#define FILLER "counts all the way to the end of this line"

/* Every line of `t` is "[r] KIND NUMBER filler", each rank counting from 1.
 * Returns how many lines came in all. */
static int check_counting(const text *t, int n_ranks, int n_kinds)
{
    int last[2][8] = {{0}}, n = 0;
    char line[100];

    for (const char *at = t->bytes, *end; *at != '\0'; at = end + 1, n++) {
        int rank = -1, number = -1;
        char kind = 0, rest[100] = "";
        end = strchr(at, '\n');
        assert_true(end != NULL && end - at < (ptrdiff_t)sizeof line);
        snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
        assert_int_equal(sscanf(line, "[%d] %c %d %99[^\n]", &rank, &kind, &number, rest), 4);
        assert_true(rank >= 0 && rank < n_ranks && kind >= 'a' && kind < 'a' + n_kinds);
        assert_int_equal(number, ++last[kind - 'a'][rank]);
        assert_string_equal(rest, FILLER);
    }
    return n;
}

#define COUNTING(kind) "seq -f '" kind " %.0f " FILLER "' 60000"

static void megabytes_from_all_ranks_arrive_whole_and_in_order(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 4, .script = COUNTING("a") "; " COUNTING("a") " >&2"});

    assert_int_equal(l.code, 0);
    assert_int_equal(check_counting(&l.out, 4, 1), 4 * N_LINES);
    assert_int_equal(check_counting(&l.err, 4, 1), 4 * N_LINES);
    forget(&l);
}

static void lines_do_not_mix_where_stdout_and_stderr_are_one(void **state)
{
    (void)state;
    launcher l = launch((setup){
        .n_ranks = 2, .merge = true, .script = COUNTING("a") "& " COUNTING("b") " >&2; wait"});

    assert_int_equal(l.code, 0);
    assert_int_equal(check_counting(&l.out, 2, 2), 4 * N_LINES);
    forget(&l);
}

/* What the launcher tells the test: its processor time. */
static int64_t *cpu_ns;

static void note_cpu(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    *cpu_ns = (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * GWI_SECOND +
              (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * GWI_US - *cpu_ns;
}

static void a_reader_who_does_not_read_slows_the_job_down_and_costs_nothing(void **state)
{
    (void)state;
    cpu_ns = mmap(NULL, sizeof *cpu_ns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(cpu_ns != MAP_FAILED);
    launcher l = start((setup){.n_ranks = 1,
                               .before = note_cpu,
                               .after = note_cpu,
                               .script = COUNTING("a") "; echo over >&2"});
    struct pollfd err = {.fd = l.err_fd, .events = POLLIN};

    assert_int_equal(poll(&err, 1, 2000), 0); /* over 3 MB do not fit on the way: it must wait */
    finish(&l);
    assert_int_equal(check_counting(&l.out, 1, 1), N_LINES);
    assert_string_equal(l.err.bytes, "[0] over\n");
    assert_true(*cpu_ns < GWI_SECOND); /* of the 2 s and more that it was there */
    munmap(cpu_ns, sizeof *cpu_ns);
    forget(&l);
}

static void a_failed_job_is_ended_in_time_while_nobody_reads(void **state)
{
    (void)state;
    launcher l = start((setup){.n_ranks = 2,
                               .times = &hasty,
                               .script = "test $GODWIT_RANK = 1 || { echo pid=$$= >&2; exec yes; };"
                                         "exit 3"});
    while (l.err.bytes == NULL || strstr(l.err.bytes, "=\n") == NULL)
        take(&l.err_fd, &l.err);
    pid_t rank = number_after(l.err.bytes, "pid=");

    assert_soon_gone(rank);
    finish(&l);
    assert_int_equal(l.code, 3);
    assert_non_null(strstr(l.err.bytes, "afterwards rank 0 was stopped by godwit run\n"));
    forget(&l);
}

static void the_job_ends_when_its_reader_leaves(void **state)
{
    (void)state;
    launcher l = start((setup){.n_ranks = 2, .script = "echo pid$GODWIT_RANK=$$=; exec yes"});
    await(&l, "=\n", 2);
    pid_t ranks[2] = {number_after(l.out.bytes, "pid0="), number_after(l.out.bytes, "pid1=")};

    close(l.out_fd);
    l.out_fd = -1;
    finish(&l);
    assert_int_equal(l.code, 128 + SIGPIPE);
    assert_string_equal(l.err.bytes, "");
    assert_true(is_gone(ranks[0]) && is_gone(ranks[1]));
    forget(&l);
}

static void write_to_full_disk(void)
{
    int fd = open("/dev/full", O_WRONLY);

    dup2(fd, 1);
    close(fd);
}

static void output_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 2, .before = write_to_full_disk, .script = "exec yes"});

    assert_int_equal(l.code, REFUSED);
    assert_non_null(
        strstr(l.err.bytes, "its output could not be written: No space left on device"));
    forget(&l);
}

static void want_colour(void)
{
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
}

static void want_no_colour(void)
{
    setenv("NO_COLOR", "1", 1);
    setenv("TERM", "xterm", 1);
}

static void ranks_are_coloured_on_a_terminal_unless_no_color_is_set(void **state)
{
    (void)state;
    setup s = {.n_ranks = 2, .terminal = true, .script = "echo hello", .before = want_colour};

    launcher coloured = launch(s);
    assert_non_null(strstr(coloured.out.bytes, "\033[36m[0]\033[0m hello\r\n"));
    assert_non_null(strstr(coloured.out.bytes, "\033[32m[1]\033[0m hello\r\n"));
    s.before = want_no_colour;
    launcher plain = launch(s);
    assert_null(strchr(plain.out.bytes, '\033'));
    assert_non_null(strstr(plain.out.bytes, "[1] hello\r\n"));
    forget(&coloured);
    forget(&plain);
}

static void a_progress_bar_on_a_terminal_is_covered_by_the_next_line(void **state)
{
    (void)state;
    launcher l = launch((setup){.n_ranks = 1,
                                .terminal = true,
                                .script = "printf 'a long bar\\rend\\n'",
                                .before = want_no_colour});

    assert_string_equal(l.out.bytes, "[0] a long bar\r\033[K[0] end\r\n");
    forget(&l);
}

/* ---- signals ---- */

static void ctrl_c_ends_the_job_with_130_and_one_line(void **state)
{
    (void)state;
    launcher l = start((setup){.n_ranks = 3, .script = "echo ready; exec sleep 1000"});

    await(&l, "ready", 3);
    kill(l.pid, SIGINT);
    finish(&l);
    assert_int_equal(l.code, 130);
    assert_string_equal(l.err.bytes, "godwit run: stopped by SIGINT\n");
    forget(&l);
}

static void sigterm_is_passed_on_too(void **state)
{
    (void)state;
    launcher l = start((setup){.n_ranks = 2, .script = "echo ready; exec sleep 1000"});

    await(&l, "ready", 2);
    kill(l.pid, SIGTERM);
    finish(&l);
    assert_int_equal(l.code, 143);
    assert_string_equal(l.err.bytes, "godwit run: stopped by SIGTERM\n");
    forget(&l);
}

static void a_job_that_takes_ctrl_c_well_has_ended_well(void **state)
{
    (void)state;
    launcher l = start((setup){.n_ranks = 2, .script = "exec \"$ACT\" act 2:0"});

    await(&l, "ready", 2);
    kill(l.pid, SIGINT);
    finish(&l);
    assert_int_equal(l.code, 0);
    assert_int_equal(count(l.out.bytes, "got 2\n"), 2);
    assert_string_equal(l.err.bytes, "");
    forget(&l);
}

static void a_second_ctrl_c_is_sigterm_and_a_third_sigkill(void **state)
{
    (void)state;
    launcher l = start((setup){.n_ranks = 2, .script = "exec \"$ACT\" act"});

    await(&l, "ready", 2);
    kill(l.pid, SIGINT);
    await(&l, "got 2\n", 2);
    kill(l.pid, SIGINT);
    await(&l, "got 15\n", 2);
    kill(l.pid, SIGINT);
    finish(&l);
    assert_int_equal(l.code, 130);
    assert_int_equal(count(l.out.bytes, "got 2\n"), 2);
    assert_string_equal(l.err.bytes,
                        "godwit run: stopped by SIGINT; ranks 0 and 1 had to be killed\n");
    forget(&l);
}

static void one_ctrl_c_that_arrives_twice_counts_once(void **state)
{
    (void)state;
    gwi_launch_times times = patient;
    times.press_ns = 1000 * GWI_SECOND;
    launcher l = start((setup){.n_ranks = 1, .times = &times, .script = "exec \"$ACT\" act 1:1"});

    await(&l, "ready", 1);
    kill(l.pid, SIGINT);
    await(&l, "got 2\n", 1);
    kill(l.pid, SIGINT);
    for (int i = 1; i <= 2; i++) { /* what came before the first would show before the second */
        kill(l.pid, SIGUSR1);
        await(&l, "got 10\n", i);
    }
    kill(l.pid, SIGHUP);
    finish(&l);
    assert_string_equal(l.out.bytes, "[0] ready\n[0] got 2\n[0] got 10\n[0] got 10\n[0] got 1\n");
    forget(&l);
}

static void ignore_hangup(void)
{
    signal(SIGHUP, SIG_IGN);
}

static void a_signal_that_the_user_ignores_means_nothing(void **state)
{
    (void)state;
    launcher l = start(
        (setup){.n_ranks = 1, .before = ignore_hangup, .script = "exec \"$ACT\" act 10:3"});

    await(&l, "ready", 1);
    kill(l.pid, SIGHUP);
    kill(l.pid, SIGUSR1);
    finish(&l);
    assert_int_equal(l.code, 3);
    assert_string_equal(l.out.bytes, "[0] ready\n[0] got 10\n");
    assert_non_null(strstr(l.err.bytes, "rank 0 of 1 failed: exit code 3\n"));
    forget(&l);
}

static void ctrl_c_at_a_terminal_reaches_each_rank_and_its_children_once(void **state)
{
    (void)state;
    launcher l = start(
        (setup){.n_ranks = 2, .terminal = true, .script = "exec \"$ACT\" act family 10:5"});

    await(&l, "ready", 4);
    assert_int_equal(write(l.out_fd, "\003", 1), 1);
    await(&l, "got 2\r\n", 4);
    kill(l.pid, SIGUSR1);
    finish(&l);
    assert_int_equal(l.code, 130);
    assert_int_equal(count(l.out.bytes, "rank got 2\r\n"), 2);
    assert_int_equal(count(l.out.bytes, "child got 2\r\n"), 2);
    assert_int_equal(count(l.out.bytes, "godwit run: stopped by SIGINT\r\n"), 1);
    forget(&l);
}

static void a_failure_long_after_a_signal_is_told_as_a_failure(void **state)
{
    (void)state;
    launcher l = start((setup){.n_ranks = 1, .times = &hasty, .script = "exec \"$ACT\" act 10:4"});

    await(&l, "ready", 1);
    kill(l.pid, SIGHUP);
    await(&l, "got 1\n", 1);
    poll(NULL, 0, 2 * (int)(hasty.grace_ns / GWI_MS));
    kill(l.pid, SIGUSR1);
    finish(&l);
    assert_int_equal(l.code, 4);
    assert_non_null(strstr(l.err.bytes, "rank 0 of 1 failed: exit code 4\n"));
    forget(&l);
}

/* A launcher that comes late finds several that have ended. */
static void of_ranks_that_ended_together_the_killed_one_was_first(void **state)
{
    (void)state;
    int status;
    launcher l = start(
        (setup){.n_ranks = 2, .script = "echo pid$GODWIT_RANK=$$; exec \"$ACT\" act 10:3"});

    await(&l, "ready", 2);
    pid_t other = number_after(l.out.bytes, "pid0="), killed = number_after(l.out.bytes, "pid1=");
    kill(l.pid, SIGSTOP);
    assert_int_equal(waitpid(l.pid, &status, WUNTRACED), l.pid);
    kill(killed, SIGKILL);
    assert_soon(killed, "Z");
    kill(other, SIGUSR1);
    assert_soon(other, "Z");
    kill(l.pid, SIGCONT);
    finish(&l);
    assert_int_equal(l.code, 128 + SIGKILL);
    assert_non_null(strstr(l.err.bytes, "godwit run: rank 1 of 2 failed: killed by signal 9"));
    forget(&l);
}

static void ranks_stop_and_go_on_with_the_launcher(void **state)
{
    (void)state;
    int status;
    launcher l = start((setup){.n_ranks = 1, .script = "echo pid=$$; exec \"$ACT\" act 18:0"});

    await(&l, "ready", 1);
    kill(l.pid, SIGTSTP);
    assert_int_equal(waitpid(l.pid, &status, WUNTRACED), l.pid);
    assert_true(WIFSTOPPED(status));
    assert_soon(number_after(l.out.bytes, "pid="), "T");
    kill(l.pid, SIGCONT);
    finish(&l);
    assert_int_equal(l.code, 0);
    assert_non_null(strstr(l.out.bytes, "[0] ready\n[0] got 18\n"));
    forget(&l);
}

static void if_the_launcher_is_killed_so_are_the_ranks(void **state)
{
    (void)state;
    launcher l = start(
        (setup){.n_ranks = 2, .script = "echo pid$GODWIT_RANK=$$=; exec sleep 1000"});
    await(&l, "=\n", 2);
    pid_t ranks[2] = {number_after(l.out.bytes, "pid0="), number_after(l.out.bytes, "pid1=")};

    kill(l.pid, SIGKILL);
    finish(&l);
    assert_int_equal(l.signal, SIGKILL);
    assert_soon_gone(ranks[0]);
    assert_soon_gone(ranks[1]);
    forget(&l);
}

static void upset_signals(void)
{
    sigset_t set;

    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

static void ranks_begin_with_default_signals_but_what_the_user_ignores(void **state)
{
    (void)state;
    const char *const argv[] = {"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status", NULL};
    launcher l = launch((setup){.n_ranks = 1, .argv = argv, .before = upset_signals});

    unsigned long long blocks = 1, ignores = 0;

    assert_int_equal(l.code, 0);
    assert_int_equal(sscanf(l.out.bytes, "[0] SigBlk: %llx [0] SigIgn: %llx", &blocks, &ignores),
                     2);
    assert_true(blocks == 0);
    /* 32 and 33 are libc's own: a parent may hand them on and nobody can reset them. */
    assert_true((ignores & ~(3ULL << 31)) == 1ULL << (SIGUSR2 - 1));
    forget(&l);
}

/* ---- traces ---- */

static struct sigaction dispositions[NSIG];
static sigset_t blocked;
static int n_descriptors;

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

static void note_process(void)
{
    n_descriptors = count_descriptors();
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int sig = 1; sig < NSIG; sig++)
        sigaction(sig, NULL, &dispositions[sig]);
}

static void compare_process(void)
{
    sigset_t mask;

    if (count_descriptors() != n_descriptors)
        dprintf(2, "%d descriptors became %d\n", n_descriptors, count_descriptors());
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction action;
        if (sigaction(sig, NULL, &action) == 0 && action.sa_handler != dispositions[sig].sa_handler)
            dprintf(2, "signal %d has another disposition\n", sig);
        if (sigismember(&mask, sig) != sigismember(&blocked, sig))
            dprintf(2, "signal %d is blocked or not as before\n", sig);
    }
    assert_no_child_left();
}

static void the_process_is_afterwards_as_it_was(void **state)
{
    (void)state;
    static const char *const missing[] = {"no-such-program", NULL};
    launcher well = launch((setup){.n_ranks = 3,
                                   .script = "echo x >/dev/null",
                                   .before = note_process,
                                   .after = compare_process});
    launcher refused = launch(
        (setup){.n_ranks = 3, .argv = missing, .before = note_process, .after = compare_process});

    assert_string_equal(well.err.bytes, "");
    assert_int_equal(count(refused.err.bytes, "\n"), 1);
    forget(&well);
    forget(&refused);
}

/* Whoever runs the tests may have given descriptors to be inherited. */
static void hide_inherited(void)
{
    for (int fd = 3; fd < 100; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void ranks_inherit_no_descriptors(void **state)
{
    (void)state;
    launcher l = launch(
        (setup){.n_ranks = 3,
                .before = hide_inherited,
                .script = "for i in $(seq 3 99); do test ! -e /proc/$$/fd/$i || exit 1; done"
                          "; test -e /proc/$$/fd/2"});

    assert_int_equal(l.code, 0);
    forget(&l);
}

static void a_process_looks_after_one_job_at_a_time_but_many_in_a_row(void **state)
{
    (void)state;
    static const char *const argv[] = {"true", NULL};
    gw_launch_options opt = {.size_bytes = sizeof opt, .n_ranks = 2, .argv = argv};

    for (int i = 0; i < 3; i++) {
        int code = -1;
        assert_int_equal(gw_launch(&opt, &code), 0);
        assert_int_equal(code, 0);
    }
}

#define WITH_MARKS(test) cmocka_unit_test_setup_teardown(test, make_marks, remove_marks)

GWI_TESTS(cmocka_unit_test(a_job_that_ends_well_prints_nothing_of_its_own),
          cmocka_unit_test(the_first_failure_gives_exit_code_and_last_words),
          cmocka_unit_test(last_words_are_those_of_stdout_if_stderr_was_silent),
          cmocka_unit_test(a_rank_killed_by_a_signal_is_told_by_its_name),
          cmocka_unit_test(of_ranks_that_ended_together_the_killed_one_was_first),
          WITH_MARKS(others_may_end_with_their_own_error),
          WITH_MARKS(those_who_do_not_end_get_sigterm_then_sigkill),
          cmocka_unit_test(helpers_of_a_failed_job_end_with_it),
          cmocka_unit_test(helpers_of_a_job_that_ended_well_are_left_alone_and_not_waited_for),
          cmocka_unit_test(a_helper_that_never_stops_printing_does_not_hold_the_launch),
          cmocka_unit_test(every_rank_has_its_environment),
          cmocka_unit_test(a_job_inside_a_job_is_its_own),
          cmocka_unit_test(a_node_size_from_the_environment_stays),
          cmocka_unit_test(a_program_that_cannot_be_run_is_one_clear_error),
          WITH_MARKS(a_script_without_its_interpreter_is_told_as_such),
          cmocka_unit_test(bad_options_are_refused), WITH_MARKS(only_rank_0_reads_stdin),
          cmocka_unit_test(closed_standard_descriptors_do_no_harm),
          cmocka_unit_test(ranks_are_aligned),
          cmocka_unit_test(lines_end_at_newlines_carriage_returns_and_the_end),
          cmocka_unit_test(progress_bars_are_no_last_words),
          cmocka_unit_test(a_very_long_line_comes_in_pieces_and_whole),
          cmocka_unit_test(megabytes_from_all_ranks_arrive_whole_and_in_order),
          cmocka_unit_test(lines_do_not_mix_where_stdout_and_stderr_are_one),
          cmocka_unit_test(a_reader_who_does_not_read_slows_the_job_down_and_costs_nothing),
          cmocka_unit_test(a_failed_job_is_ended_in_time_while_nobody_reads),
          cmocka_unit_test(the_job_ends_when_its_reader_leaves),
          cmocka_unit_test(output_that_cannot_be_written_is_an_error),
          cmocka_unit_test(ranks_are_coloured_on_a_terminal_unless_no_color_is_set),
          cmocka_unit_test(a_progress_bar_on_a_terminal_is_covered_by_the_next_line),
          cmocka_unit_test(ctrl_c_ends_the_job_with_130_and_one_line),
          cmocka_unit_test(sigterm_is_passed_on_too),
          cmocka_unit_test(a_job_that_takes_ctrl_c_well_has_ended_well),
          cmocka_unit_test(a_second_ctrl_c_is_sigterm_and_a_third_sigkill),
          cmocka_unit_test(one_ctrl_c_that_arrives_twice_counts_once),
          cmocka_unit_test(a_signal_that_the_user_ignores_means_nothing),
          cmocka_unit_test(ctrl_c_at_a_terminal_reaches_each_rank_and_its_children_once),
          cmocka_unit_test(a_failure_long_after_a_signal_is_told_as_a_failure),
          cmocka_unit_test(ranks_stop_and_go_on_with_the_launcher),
          cmocka_unit_test(if_the_launcher_is_killed_so_are_the_ranks),
          cmocka_unit_test(ranks_begin_with_default_signals_but_what_the_user_ignores),
          cmocka_unit_test(the_process_is_afterwards_as_it_was),
          cmocka_unit_test(ranks_inherit_no_descriptors),
          cmocka_unit_test(a_process_looks_after_one_job_at_a_time_but_many_in_a_row))
