/* output.h - what the ranks print, passed on line by line.
 *
 * A stream is one pipe from one rank; it cuts what comes into lines and puts
 * each, with the rank in front, into a sink.  A sink is the launcher's stdout or
 * stderr; it holds whole lines, so lines never mix.  Neither waits: the launch
 * polls, and a stream whose sink is full stops reading, so that a slow reader
 * slows the ranks down instead of filling memory.
 *
 *   rank 0 stdout --pipe--> stream (64 KB) --+--> sink (256 KB) --> stdout
 *   rank 1 stdout --pipe--> stream ----------+
 *
 * What is a line: text up to a newline, or up to a carriage return, so that a
 * progress bar is seen while it moves (the carriage return is passed on, and the
 * next line overwrites this one).  An unfinished last line gets a newline.  A
 * line over 64 KB is cut into several.  All other bytes are passed on as they
 * are.                                                                       */
#ifndef GWI_LAUNCH_OUTPUT_H
#define GWI_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#ifndef GWI_LINE_BYTES /* tests/fuzz has shorter lines, so that its input reaches the limits */
#define GWI_LINE_BYTES 65536
#endif
#define GWI_SINK_BYTES (4 * GWI_LINE_BYTES)
#define GWI_WORDS_LINES 10
#define GWI_WORDS_BYTES 1000

typedef struct gwi_sink {
    int fd;
    bool terminal; /* knows escape sequences */
    bool colour;
    bool over;         /* the last line ended in a carriage return: the next one covers it */
    int broken;        /* errno of the write that failed; from then on all is discarded */
    size_t start, end; /* what waits to be written */
    char text[GWI_SINK_BYTES];
} gwi_sink;

/* The last lines of a stream, cut to GWI_WORDS_BYTES each; line i of all that
 * ever came is in slot i % GWI_WORDS_LINES. */
typedef struct gwi_words {
    size_t n_lines;
    size_t len[GWI_WORDS_LINES];
    char text[GWI_WORDS_LINES][GWI_WORDS_BYTES];
} gwi_words;

typedef struct gwi_stream {
    int fd; /* -1 once it has ended */
    gwi_sink *sink;
    char prefix[32];
    size_t left;        /* how much may still be read */
    size_t end, looked; /* bytes in `text`; how far no end of line was found */
    gwi_words words;
    char text[GWI_LINE_BYTES];
} gwi_stream;

void gwi_sink_init(gwi_sink *sink, int fd);

/* Something waits to be written. */
bool gwi_sink_pending(const gwi_sink *sink);

/* Write what the reader takes without waiting. */
void gwi_sink_write(gwi_sink *sink);

/* Put text of the launcher's own.  It is cut where the sink is full. */
void gwi_sink_say(gwi_sink *sink, const char *text, size_t len_bytes);

/* Forget what waits, and all that comes. */
void gwi_sink_break(gwi_sink *sink, int reason);

/* Takes over `fd`, the reading end of a pipe; it must not block. */
void gwi_stream_init(gwi_stream *stream, int fd, gwi_sink *sink, int rank, int n_ranks);
void gwi_stream_fini(gwi_stream *stream);

/* It has not ended, and there is room for more. */
bool gwi_stream_readable(const gwi_stream *stream);
void gwi_stream_read(gwi_stream *stream);

/* Put the lines that are here into the sink, as far as it has room. */
void gwi_stream_pass(gwi_stream *stream);

/* Let it end with what is in the pipe now, whoever else holds the other end. */
void gwi_stream_cut(gwi_stream *stream);

/* It has ended and all is in the sink. */
bool gwi_stream_done(const gwi_stream *stream);

#endif
