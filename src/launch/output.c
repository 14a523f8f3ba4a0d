/* output.c - streams cut into lines, and sinks that hold whole lines. */
#include "launch/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ERASE_LINE "\033[K"

static bool given(const char *variable)
{
    const char *value = getenv(variable);

    return value != NULL && *value != '\0';
}

void gwi_sink_init(gwi_sink *sink, int fd)
{
    const char *term = getenv("TERM");

    sink->fd = fd;
    sink->terminal = isatty(fd) && !(term != NULL && strcmp(term, "dumb") == 0);
    sink->colour = sink->terminal && !given("NO_COLOR");
    sink->over = false;
    sink->broken = 0;
    sink->start = sink->end = 0;
}

bool gwi_sink_pending(const gwi_sink *sink)
{
    return sink->start < sink->end;
}

void gwi_sink_break(gwi_sink *sink, int reason)
{
    sink->broken = reason;
    sink->start = sink->end = 0;
}

static bool writable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    return poll(&p, 1, 0) > 0;
}

void gwi_sink_write(gwi_sink *sink)
{
    /* The descriptor may be shared with other programs, so it is not ours to
     * make non-blocking.  A pipe that is writable takes PIPE_BUF bytes without
     * blocking, hence the small pieces. */
    while (gwi_sink_pending(sink) && writable(sink->fd)) {
        size_t len = sink->end - sink->start;
        ssize_t n = write(sink->fd, sink->text + sink->start, len < PIPE_BUF ? len : PIPE_BUF);
        if (n >= 0)
            sink->start += (size_t)n;
        else if (errno == EINTR || errno == EAGAIN)
            return;
        else
            gwi_sink_break(sink, errno);
    }
}

/* Make room for `len` bytes at the end.  False: there is not so much. */
static bool reserve(gwi_sink *sink, size_t len)
{
    if (sink->end + len <= sizeof sink->text)
        return true;
    if (sink->end - sink->start + len > sizeof sink->text)
        return false;
    memmove(sink->text, sink->text + sink->start, sink->end - sink->start);
    sink->end -= sink->start;
    sink->start = 0;
    return true;
}

static void append(gwi_sink *sink, const char *text, size_t len)
{
    memcpy(sink->text + sink->end, text, len);
    sink->end += len;
}

/* Put one line, of text and its end ("\n", "\r", "\r\n").  False: no room now. */
static bool put(gwi_sink *sink, const char *prefix, const char *text, size_t len, const char *end)
{
    size_t prefix_len = strlen(prefix), end_len = strlen(end);

    if (sink->broken)
        return true;
    if (!reserve(sink, strlen(ERASE_LINE) + prefix_len + len + end_len))
        return false;
    if (sink->over && sink->terminal)
        append(sink, ERASE_LINE, strlen(ERASE_LINE));
    append(sink, prefix, prefix_len);
    append(sink, text, len);
    append(sink, end, end_len);
    sink->over = end[end_len - 1] == '\r';
    return true;
}

void gwi_sink_say(gwi_sink *sink, const char *text, size_t len)
{
    while (len > 0) {
        const char *newline = memchr(text, '\n', len);
        size_t line = newline != NULL ? (size_t)(newline - text) : len;
        if (!put(sink, "", text, line, "\n"))
            return;
        line += newline != NULL;
        text += line;
        len -= line;
    }
}

static void remember(gwi_words *words, const char *text, size_t len)
{
    size_t slot = words->n_lines++ % GWI_WORDS_LINES;

    words->len[slot] = len < GWI_WORDS_BYTES ? len : GWI_WORDS_BYTES;
    memcpy(words->text[slot], text, words->len[slot]);
}

void gwi_stream_init(gwi_stream *stream, int fd, gwi_sink *sink, int rank, int n_ranks)
{
    static const char colours[][3] = {"36", "32", "33", "35", "34", "31"};
    const char *colour = colours[(size_t)rank % (sizeof colours / sizeof colours[0])];
    int width = snprintf(NULL, 0, "%d", n_ranks - 1);

    stream->fd = fd;
    stream->sink = sink;
    stream->left = SIZE_MAX;
    stream->end = stream->looked = 0;
    stream->words.n_lines = 0;
    if (sink->colour)
        snprintf(stream->prefix, sizeof stream->prefix, "\033[%sm[%*d]\033[0m ", colour, width,
                 rank);
    else
        snprintf(stream->prefix, sizeof stream->prefix, "[%*d] ", width, rank);
}

void gwi_stream_fini(gwi_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

bool gwi_stream_readable(const gwi_stream *stream)
{
    return stream->fd >= 0 && stream->end < sizeof stream->text;
}

bool gwi_stream_done(const gwi_stream *stream)
{
    return stream->fd < 0 && stream->end == 0;
}

void gwi_stream_read(gwi_stream *stream)
{
    size_t room = sizeof stream->text - stream->end;
    ssize_t n = read(stream->fd, stream->text + stream->end,
                     room < stream->left ? room : stream->left);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        stream->end += (size_t)n;
        stream->left -= stream->left == SIZE_MAX ? 0 : (size_t)n;
    }
    if (n <= 0 || stream->left == 0)
        gwi_stream_fini(stream);
}

void gwi_stream_cut(gwi_stream *stream)
{
    int waiting = 0;

    if (stream->fd < 0)
        return;
    ioctl(stream->fd, FIONREAD, &waiting);
    stream->left = waiting > 0 ? (size_t)waiting : 0;
    if (stream->left == 0)
        gwi_stream_fini(stream);
}

struct line {
    size_t len;      /* of the text */
    size_t next;     /* where the line after it begins */
    const char *end; /* what to put behind the text */
    bool bar;        /* ends in a carriage return: to be covered by the next one */
};

/* Find the line that begins at `start`.  False: its end has not come yet. */
static bool find_line(gwi_stream *stream, size_t start, struct line *ret_line)
{
    const char *text = stream->text;
    size_t end = stream->end;
    bool more = stream->fd >= 0 && end - start < sizeof stream->text; /* can come */
    size_t i = stream->looked > start ? stream->looked : start;

    while (i < end && text[i] != '\n' && text[i] != '\r')
        i++;
    stream->looked = i;
    *ret_line = (struct line){.len = i - start, .next = i + 1, .end = "\n"};
    if (i == end) {
        ret_line->next = end;
        return !more && i > start;
    }
    if (text[i] == '\n')
        return true;
    if (i + 1 == end) /* a newline may follow; if nothing can, the line shall stay visible */
        return !more;
    if (text[i + 1] == '\n') {
        ret_line->next = i + 2;
        ret_line->end = "\r\n";
    } else {
        ret_line->end = "\r";
        ret_line->bar = true;
    }
    return true;
}

void gwi_stream_pass(gwi_stream *stream)
{
    size_t start = 0;
    struct line line;

    while (find_line(stream, start, &line)) {
        const char *text = stream->text + start;
        /* Progress bars often begin with the carriage return; no line is before it. */
        bool nothing = line.bar && line.len == 0;
        if (!nothing && !put(stream->sink, stream->prefix, text, line.len, line.end))
            break;
        if (!line.bar)
            remember(&stream->words, text, line.len);
        start = line.next;
    }
    if (start == 0)
        return;
    memmove(stream->text, stream->text + start, stream->end - start);
    stream->end -= start;
    stream->looked -= stream->looked < start ? stream->looked : start;
}
