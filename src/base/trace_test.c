/* trace_test.c - what is traced comes into the file, whole and in order. */
#include "base/trace.h"
#include "base/test.h"
#include "base/thread.h"
#include "base/trace_out.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

static char path[64];

static int new_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/gw-trace-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static int open_file(void)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    assert_true(fd >= 0);
    return fd;
}

static void start(int64_t pause_ns)
{
    gwi_trace_options options = {.fd = open_file(),
                                 .process = 3,
                                 .sort = 7,
                                 .name = "rank 3 \"of\" 4",
                                 .about = "\"job\":\"x\"",
                                 .pause_ns = pause_ns};

    assert_int_equal(gwi_trace_start(&options), 0);
}

static char *contents(void)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 8 << 20);

    assert_non_null(file);
    assert_non_null(text);
    text[fread(text, 1, (8 << 20) - 1, file)] = '\0';
    fclose(file);
    return text;
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;

    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

/* Every line but the first and the last is `{...}` and, but for the last of these, a comma. */
static void assert_whole(const char *text)
{
    const char *line = text;

    assert_int_equal(strncmp(text, "[\n{", 3), 0);
    assert_string_equal(text + strlen(text) - 4, "}\n]\n");
    for (line = strchr(line, '\n') + 1; *line == '{'; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line, '\n');
        int depth = 0, quoted = 0;
        assert_true(end[-1] == ',' || end[1] == ']');
        for (const char *c = line; c < end; c++) {
            if (quoted && *c == '\\')
                c++;
            else if (*c == '"')
                quoted = !quoted;
            else if (!quoted)
                depth += (*c == '{') - (*c == '}');
        }
        assert_int_equal(depth, 0);
        assert_false(quoted);
    }
    assert_string_equal(line, "]\n");
}

static const gwi_trace_kind kind = {"agent", {"moved", "bytes", NULL}};

static void spans_and_waits_come_into_the_file(void **state)
{
    (void)state;
    start(GWI_MS);
    gwi_track *track = gwi_track_open("worker %d", 5);
    int64_t began = gwi_trace_began();
    assert_true(began > 0);

    gwi_track_span(track, &kind, "a \"b\"\\\n", began, began + 1500, (uint64_t[]){12, 0});
    gwi_track_waited(track, "the end of a pull", began - 5 * GWI_SECOND);
    gwi_track_waited(track, "never", 0); /* was not traced when it began */
    gwi_track_close(track);
    assert_int_equal(gwi_trace_stop(), 0);

    char *text = contents();
    assert_whole(text);
    assert_non_null(strstr(text, "\"name\":\"godwit\",\"args\":{\"job\":\"x\"}"));
    assert_non_null(strstr(text, "{\"name\":\"rank 3 \\\"of\\\" 4\"}"));
    assert_non_null(strstr(text, "{\"name\":\"worker 5\"}"));
    assert_non_null(strstr(text,
                           "\"dur\":1.500,\"cat\":\"agent\",\"name\":\"a \\\"b\\\"\\\\\\u000a\","
                           "\"args\":{\"moved\":12}}"));
    assert_non_null(strstr(text, "\"cat\":\"wait\",\"name\":\"the end of a pull\""));
    assert_non_null(strstr(text, "\"for\":\"the end of a pull\",\"count\":1,\"ns\":5"));
    assert_null(strstr(text, "never"));
    free(text);
}

static void nothing_happens_while_nobody_traces(void **state)
{
    (void)state;
    assert_false(gwi_tracing());
    assert_int_equal(gwi_trace_began(), 0);
    assert_null(gwi_track_open("a"));
    assert_null(gwi_track_of_thread());
    gwi_track_waited(NULL, "b", 5);
    gwi_track_span(NULL, &kind, "c", 1, 2, (uint64_t[]){1, 2});
    gwi_track_close(NULL);
    assert_int_equal(gwi_trace_stop(), 0);
}

/* Each short wait is counted, though most are not shown. */
static void short_waits_are_summed_up(void **state)
{
    (void)state;
    start(GWI_MS);
    gwi_track *track = gwi_track_open("worker");

    for (int i = 0; i < 10000; i++)
        gwi_track_waited(track, i % 2 ? "a pull" : "a push", gwi_trace_began());
    gwi_track_close(track);
    gwi_trace_stop();
    char *text = contents();
    uint64_t pulls = 0, pushes = 0;
    for (const char *at = text; (at = strstr(at, "\"for\":\"a pu")) != NULL; at++) {
        uint64_t n = strtoull(strstr(at, "\"count\":") + 8, NULL, 10);
        *(at[11] == 'l' ? &pulls : &pushes) += n;
    }
    assert_whole(text);
    assert_int_equal(pulls, 5000);
    assert_int_equal(pushes, 5000);
    assert_true(count(text, "\"ph\":\"X\"") < 1000);
    free(text);
}

/* A full ring drops spans, and says how many. */
static void what_does_not_fit_is_counted(void **state)
{
    (void)state;
    start(10 * GWI_SECOND);
    gwi_track *track = gwi_track_open("agent");

    for (int i = 0; i < 1000; i++)
        gwi_track_span(track, &kind, "s", 1000 * i, 1000 * i + 10, (uint64_t[]){1, 1});
    gwi_trace_stop();
    gwi_track_close(track); /* later than its tracer */
    char *text = contents();
    size_t shown = count(text, "\"ph\":\"X\"");
    const char *lost = strstr(text, "\"spans\":");
    assert_whole(text);
    assert_non_null(lost);
    assert_int_equal(shown + strtoull(lost + 8, NULL, 10), 1000);
    free(text);
}

struct sampled {
    int calls;
};

static void sampler(void *ctx, gwi_trace_out *out, int64_t now_ns)
{
    struct sampled *s = ctx;

    s->calls++;
    gwi_trace_counter(out, 3, "keys here", 1, now_ns);
    gwi_trace_arg(out, "owned", 17);
    gwi_trace_arg(out, "replicas", 4);
    gwi_trace_args_end(out);
}

static void samplers_are_asked_also_at_the_end(void **state)
{
    (void)state;
    struct sampled s = {0};

    start(10 * GWI_SECOND);
    assert_int_equal(gwi_trace_sampler_add(sampler, &s), 0);
    gwi_trace_stop();
    gwi_trace_sampler_remove(sampler, &s);
    char *text = contents();
    assert_whole(text);
    assert_int_equal(s.calls, 1);
    assert_non_null(strstr(text, "\"name\":\"keys here\",\"id\":1,\"args\":{\"owned\":17,"
                                 "\"replicas\":4}}"));
    free(text);
}

static void *acts(void *arg)
{
    (void)arg;
    gwi_track *track = gwi_track_open("busy");

    for (int i = 0; i < 20000; i++) {
        gwi_track_waited(gwi_track_of_thread(), "own", gwi_trace_began());
        gwi_track_waited(track, "a", gwi_trace_began());
        if (i % 100 == 0)
            gwi_track_span(track, &kind, "s", gwi_now_ns(), gwi_now_ns(), (uint64_t[]){1, 2});
    }
    gwi_track_close(track);
    return NULL;
}

static void many_threads_trace_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];

    start(GWI_MS / 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, acts, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    gwi_track_waited(gwi_track_of_thread(), "at the end", gwi_trace_began());
    gwi_trace_stop();
    char *text = contents();
    uint64_t own = 0;
    for (const char *at = text; (at = strstr(at, "\"for\":\"own\"")) != NULL; at++)
        own += strtoull(strstr(at, "\"count\":") + 8, NULL, 10);
    assert_whole(text);
    assert_int_equal(own, 4 * 20000);
    assert_non_null(strstr(text, "main thread"));
    free(text);
}

/* Two processes, one file: who is not first waits until it is begun, and the last one ends it. */
static void processes_share_a_file(void **state)
{
    (void)state;
    _Atomic uint32_t begun = 0;
    gwi_trace_options second = {
        .fd = open_file(), .process = 1, .name = "second", .is_begun = &begun, .pause_ns = GWI_MS};

    assert_int_equal(gwi_trace_start(&second), 0);
    gwi_nap_ns(20 * GWI_MS);
    char *text = contents();
    assert_string_equal(text, "");
    free(text);
    atomic_store(&begun, 1);
    gwi_nap_ns(20 * GWI_MS);
    text = contents();
    assert_int_equal(strncmp(text, ",\n{", 3), 0);
    free(text);
    assert_int_equal(gwi_trace_stop(), 0);
}

static void a_trace_that_nobody_begins_says_so(void **state)
{
    (void)state;
    _Atomic uint32_t begun = 0;
    gwi_trace_options second = {.fd = open_file(), .process = 1, .name = "x", .is_begun = &begun};

    assert_int_equal(gwi_trace_start(&second), 0);
    assert_true(gwi_trace_stop() < 0);
    assert_non_null(strstr(gw_trace_problem(), "the trace of process 1 is not whole"));
}

static void a_full_disk_is_said_and_leaves_what_was_written(void **state)
{
    (void)state;
    struct rlimit old, small = {4096, 4096};

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    start(10 * GWI_SECOND);
    gwi_track *track = gwi_track_open("agent");
    for (int i = 0; i < 200; i++)
        gwi_track_span(track, &kind, "s", 1000 * i, 1000 * i + 10, (uint64_t[]){1, 1});
    gwi_track_close(track);
    setrlimit(RLIMIT_FSIZE, &small);
    int err = gwi_trace_stop();
    setrlimit(RLIMIT_FSIZE, &old);
    assert_true(err < 0);
    assert_non_null(strstr(gw_trace_problem(), "cannot be written"));
    assert_false(gwi_tracing());
    char *text = contents();
    assert_int_equal(strlen(text), 4096);
    free(text);
}

static void a_second_tracer_is_refused(void **state)
{
    (void)state;
    gwi_trace_options options = {.fd = open_file(), .name = "x", .about = ""};

    start(GWI_MS);
    assert_int_equal(gwi_trace_start(&options), GW_EUNSUP);
    assert_int_equal(gwi_trace_stop(), 0);
}

static void a_forked_child_does_not_trace(void **state)
{
    (void)state;
    int status;

    start(GWI_MS);
    pid_t child = fork();
    if (child == 0) {
        gwi_trace_options options = {.fd = open_file(), .name = "x", .about = ""};
        int bad = gwi_tracing() || gwi_track_of_thread() != NULL ||
                  gwi_trace_start(&options) != 0 || gwi_tracing() || gwi_trace_stop() != 0;
        _exit(bad);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(gwi_tracing());
    assert_int_equal(gwi_trace_stop(), 0);
    char *text = contents();
    assert_whole(text);
    free(text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, new_file, remove_file)

GWI_TESTS(TEST(spans_and_waits_come_into_the_file), TEST(nothing_happens_while_nobody_traces),
          TEST(short_waits_are_summed_up), TEST(what_does_not_fit_is_counted),
          TEST(samplers_are_asked_also_at_the_end), TEST(many_threads_trace_at_once),
          TEST(processes_share_a_file), TEST(a_trace_that_nobody_begins_says_so),
          TEST(a_full_disk_is_said_and_leaves_what_was_written), TEST(a_second_tracer_is_refused),
          TEST(a_forked_child_does_not_trace))
