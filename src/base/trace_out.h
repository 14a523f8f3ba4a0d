/* trace_out.h - the text of a trace: a JSON array of events, as Chrome and Perfetto read it.
 *
 * Each event is a line and begins with the comma that parts it from the one before, so that
 * texts of several processes may follow each other in any order.  Numbers are written
 * without the locale's decimal comma.                                                 */
#ifndef GWI_BASE_TRACE_OUT_H
#define GWI_BASE_TRACE_OUT_H

#include <stddef.h>
#include <stdint.h>

/* A text that grows.  Without memory for more it stays as it was at the last whole event. */
typedef struct gwi_trace_out {
    char *text; /* owned */
    size_t n_bytes, capacity;
    size_t whole;  /* up to here there are only whole events */
    int no_memory; /* the event under way cannot be finished */
} gwi_trace_out;

void gwi_trace_out_fini(gwi_trace_out *out);

/* All whole events of another. */
void gwi_trace_add(gwi_trace_out *out, const gwi_trace_out *other);

/* Part of an event; `gwi_trace_text` quotes. */
void gwi_trace_printf(gwi_trace_out *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void gwi_trace_text(gwi_trace_out *out, const char *text);
void gwi_trace_us(gwi_trace_out *out, int64_t span_ns); /* as microseconds */

/* An event begins: a phase of the format, who, when.  Then come further members, each with its
 * comma, and its end. */
void gwi_trace_event(gwi_trace_out *out, const char *phase, int process, int thread, int64_t at_ns);
void gwi_trace_end(gwi_trace_out *out);

/* Whole events: names of processes and threads. */
void gwi_trace_name_process(gwi_trace_out *out, int process, int sort, const char *name);
void gwi_trace_name_thread(gwi_trace_out *out, int process, int thread, const char *name);

/* A counter track of a process, with an own one for each `id`: its event begins, and ends with
 * gwi_trace_args_end().  In between come values: "name": number. */
void gwi_trace_counter(gwi_trace_out *out, int process, const char *name, uint64_t id,
                       int64_t at_ns);

/* The same for a moment, with arguments. */
void gwi_trace_instant(gwi_trace_out *out, int process, int thread, const char *name,
                       int64_t at_ns);

/* One more argument. */
void gwi_trace_arg(gwi_trace_out *out, const char *name, uint64_t value);
void gwi_trace_arg_text(gwi_trace_out *out, const char *name, const char *value);
void gwi_trace_arg_list(gwi_trace_out *out, const char *name, const uint64_t *values, size_t n);
void gwi_trace_args_end(gwi_trace_out *out);

#endif
