/* fuzz_output.c - whatever a rank prints, in whatever pieces, its lines come out whole.
 *
 * The input is a list of steps: print something, let the launcher read, pass on
 * or write for a while, stop.  What then was written must be what a second, much
 * simpler cutter makes of the whole text at once.  A line has 1 KB here instead
 * of 64, a sink 4, so that limits are met often.                             */
#include "fuzz.h"

#include "launch/output.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_TEXT = 32 * GWI_LINE_BYTES, MAX_OUT = 8 * MAX_TEXT };

static const char prefix[] = "[3] ";

struct text {
    size_t n;
    char *bytes; /* MAX_OUT */
};

struct run {
    gwi_sink sink;
    gwi_stream stream;
    int pipe_in;         /* where the rank prints; -1: it has ended */
    struct text printed; /* all that went into the pipe */
};

static struct run r;

/* What is to come out. */
struct expected {
    struct text out;
    size_t n_lines;           /* without those that a carriage return ends */
    size_t last_len, last_at; /* the last of them, in the printed text */
};

static void append(struct text *t, const char *bytes, size_t n)
{
    REQUIRE(t->n + n <= MAX_OUT);
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
}

static void expect_line(struct expected *e, size_t at, size_t len, const char *end)
{
    append(&e->out, prefix, strlen(prefix));
    append(&e->out, r.printed.bytes + at, len);
    append(&e->out, end, strlen(end));
    if (strcmp(end, "\r") == 0)
        return;
    e->n_lines++;
    e->last_at = at;
    e->last_len = len;
}

/* The same as output.h says, with the whole text at hand. */
static void cut_lines(struct expected *e)
{
    const char *t = r.printed.bytes;
    size_t n = r.printed.n, at = 0;

    while (at < n) {
        size_t most = n - at < GWI_LINE_BYTES ? n - at : GWI_LINE_BYTES;
        const char *newline = memchr(t + at, '\n', most);
        const char *end = memchr(t + at, '\r',
                                 newline != NULL ? (size_t)(newline - t - (ptrdiff_t)at) : most);
        size_t len = end != NULL       ? (size_t)(end - t) - at
                     : newline != NULL ? (size_t)(newline - t) - at
                                       : most;
        if (len == most) { /* too long, or the end */
            expect_line(e, at, len, "\n");
            at += len;
        } else if (t[at + len] == '\n' || len + 1 == most) {
            expect_line(e, at, len, "\n");
            at += len + 1;
        } else if (t[at + len + 1] == '\n') {
            expect_line(e, at, len, "\r\n");
            at += len + 2;
        } else {
            if (len > 0)
                expect_line(e, at, len, "\r");
            at += len + 1;
        }
    }
}

/* Print as much as the pipe takes. */
static void print(const char *bytes, size_t n)
{
    if (r.pipe_in < 0 || r.printed.n + n > MAX_TEXT)
        return;
    ssize_t written = write(r.pipe_in, bytes, n);
    if (written > 0)
        append(&r.printed, bytes, (size_t)written);
}

static void print_often(char byte, size_t n)
{
    static char bytes[2 * GWI_LINE_BYTES];

    n %= sizeof bytes;
    memset(bytes, byte, n);
    print(bytes, n);
}

static void end_rank(void)
{
    if (r.pipe_in >= 0)
        close(r.pipe_in);
    r.pipe_in = -1;
}

static void turn(unsigned what)
{
    if ((what & 1) != 0 && gwi_stream_readable(&r.stream))
        gwi_stream_read(&r.stream);
    if ((what & 2) != 0)
        gwi_stream_pass(&r.stream);
    if ((what & 4) != 0)
        gwi_sink_write(&r.sink);
    REQUIRE(r.stream.looked <= r.stream.end && r.stream.end <= sizeof r.stream.text);
    REQUIRE(r.sink.start <= r.sink.end && r.sink.end <= sizeof r.sink.text);
}

static void step(struct input *in)
{
    unsigned what = (unsigned)next_number(in, 1);
    size_t n;

    if (what < 64) {
        char *bytes = (char *)next_bytes(in, what, &n);
        print(bytes, n);
        free(bytes);
    } else if (what < 128) {
        char byte = (char)next_number(in, 1);
        print_often(byte, (size_t)next_number(in, 2));
    } else if (what < 250) {
        turn(what);
    } else if (what < 253) { /* nobody waits for what comes later */
        gwi_stream_cut(&r.stream);
        end_rank();
    } else {
        end_rank();
    }
}

/* Drain as the launcher does; it must come to an end. */
static void finish(void)
{
    end_rank();
    for (int turns = 0; !gwi_stream_done(&r.stream) || gwi_sink_pending(&r.sink); turns++) {
        REQUIRE(turns < 100000);
        turn(7);
    }
}

static void compare(int fd, const struct expected *e)
{
    static char written[MAX_OUT];
    const gwi_words *words = &r.stream.words;

    REQUIRE(lseek(fd, 0, SEEK_END) == (off_t)e->out.n);
    REQUIRE(pread(fd, written, e->out.n, 0) == (ssize_t)e->out.n);
    REQUIRE(memcmp(written, e->out.bytes, e->out.n) == 0);
    REQUIRE(words->n_lines == e->n_lines);
    if (e->n_lines == 0)
        return;
    size_t slot = (e->n_lines - 1) % GWI_WORDS_LINES;
    REQUIRE(words->len[slot] == (e->last_len < GWI_WORDS_BYTES ? e->last_len : GWI_WORDS_BYTES));
    REQUIRE(memcmp(words->text[slot], r.printed.bytes + e->last_at, words->len[slot]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static char printed[MAX_OUT], expected[MAX_OUT];
    static int out = -1;
    struct input in = {bytes, n_bytes};
    struct expected e = {.out.bytes = expected};
    int ends[2];

    if (out < 0)
        out = memfd_create("out", MFD_CLOEXEC);
    REQUIRE(ftruncate(out, 0) == 0 && lseek(out, 0, SEEK_SET) == 0);
    REQUIRE(pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
    r.pipe_in = ends[1];
    r.printed = (struct text){.bytes = printed};
    gwi_sink_init(&r.sink, out);
    gwi_stream_init(&r.stream, ends[0], &r.sink, 3, 5);
    while (in.left > 0)
        step(&in);
    finish();
    cut_lines(&e);
    compare(out, &e);
    return 0;
}

static void plant_text(const char *text)
{
    plant(text, strlen(text));
}

static void plant_seeds(void)
{
    plant_text("\014hello\nworld\n\207");
    plant_text("\005ab\r\nc\201\202\204\012progress\r1\377");
    plant_text("\002a\r\203\001\n\203\002\r\r\203");
    plant("\100x\377\3\203\100y\020\0\203\001\n\377", 13); /* a line over the limit */
    plant("\100x\377\3\001\r\203\001\n\203", 10);          /* one with its end at the limit */
    plant("\100x\0\4\001\n\203\100\n\377\7\203\203",
          13); /* and empty ones, more than a sink holds */
    plant_text("\003a\nb\372");
}
