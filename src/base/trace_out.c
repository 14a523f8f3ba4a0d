/* trace_out.c - writing events as JSON. */
#include "base/trace_out.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gwi_trace_out_fini(gwi_trace_out *out)
{
    free(out->text);
    *out = (gwi_trace_out){0};
}

/* Room for so many bytes more, or NULL. */
static char *room_for(gwi_trace_out *out, size_t n_bytes)
{
    if (out->no_memory)
        return NULL;
    if (out->capacity - out->n_bytes < n_bytes) {
        size_t capacity = 2 * out->capacity + n_bytes + 4096;
        char *text = realloc(out->text, capacity);
        if (text == NULL) {
            out->no_memory = 1;
            return NULL;
        }
        out->text = text;
        out->capacity = capacity;
    }
    return out->text + out->n_bytes;
}

void gwi_trace_add(gwi_trace_out *out, const gwi_trace_out *other)
{
    char *at = room_for(out, other->whole);

    if (at == NULL)
        return;
    memcpy(at, other->text, other->whole);
    out->n_bytes += other->whole;
    out->whole = out->n_bytes;
}

void gwi_trace_printf(gwi_trace_out *out, const char *format, ...)
{
    va_list args;
    char *at = room_for(out, 256);

    if (at == NULL)
        return;
    va_start(args, format);
    int n = vsnprintf(at, 256, format, args);
    va_end(args);
    if (n >= 256 && (at = room_for(out, (size_t)n + 1)) != NULL) {
        va_start(args, format);
        vsnprintf(at, (size_t)n + 1, format, args);
        va_end(args);
    }
    if (n > 0 && at != NULL)
        out->n_bytes += (size_t)n;
}

/* Bytes above 127 are passed on: names are UTF-8, or the reader will say so. */
void gwi_trace_text(gwi_trace_out *out, const char *text)
{
    char *at = room_for(out, 6 * strlen(text) + 3);
    char *begin = at;

    if (at == NULL)
        return;
    *at++ = '"';
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            *at++ = '\\';
            *at++ = (char)c;
        } else if (c < 32 || c == 127) {
            at += sprintf(at, "\\u%04x", c);
        } else {
            *at++ = (char)c;
        }
    }
    *at++ = '"';
    out->n_bytes += (size_t)(at - begin);
}

void gwi_trace_us(gwi_trace_out *out, int64_t span_ns)
{
    gwi_trace_printf(out, "%lld.%03d", (long long)(span_ns / 1000), (int)(span_ns % 1000));
}

void gwi_trace_event(gwi_trace_out *out, const char *phase, int process, int thread, int64_t at_ns)
{
    out->no_memory = 0;
    gwi_trace_printf(out, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":", phase, process,
                     thread);
    gwi_trace_us(out, at_ns);
}

void gwi_trace_end(gwi_trace_out *out)
{
    gwi_trace_printf(out, "}");
    if (out->no_memory)
        out->n_bytes = out->whole;
    out->whole = out->n_bytes;
}

static void name(gwi_trace_out *out, int process, int thread, const char *what, const char *text)
{
    gwi_trace_event(out, "M", process, thread, 0);
    gwi_trace_printf(out, ",\"name\":\"%s_name\",\"args\":{\"name\":", what);
    gwi_trace_text(out, text);
    gwi_trace_printf(out, "}");
    gwi_trace_end(out);
}

static void sort_at(gwi_trace_out *out, int process, int thread, const char *what, int sort)
{
    gwi_trace_event(out, "M", process, thread, 0);
    gwi_trace_printf(out, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%d}", what, sort);
    gwi_trace_end(out);
}

void gwi_trace_name_process(gwi_trace_out *out, int process, int sort, const char *text)
{
    name(out, process, 0, "process", text);
    sort_at(out, process, 0, "process", sort);
}

void gwi_trace_name_thread(gwi_trace_out *out, int process, int thread, const char *text)
{
    name(out, process, thread, "thread", text);
    sort_at(out, process, thread, "thread", thread);
}

void gwi_trace_counter(gwi_trace_out *out, int process, const char *text, uint64_t id,
                       int64_t at_ns)
{
    gwi_trace_event(out, "C", process, 0, at_ns);
    gwi_trace_printf(out, ",\"name\":\"%s\",\"id\":%llu,\"args\":{", text, (unsigned long long)id);
}

void gwi_trace_instant(gwi_trace_out *out, int process, int thread, const char *text, int64_t at_ns)
{
    gwi_trace_event(out, "i", process, thread, at_ns);
    gwi_trace_printf(out, ",\"s\":\"p\",\"name\":\"%s\",\"args\":{", text);
}

static void arg_name(gwi_trace_out *out, const char *text)
{
    int first = out->n_bytes > 0 && out->text[out->n_bytes - 1] == '{';

    gwi_trace_printf(out, "%s\"%s\":", first ? "" : ",", text);
}

void gwi_trace_arg(gwi_trace_out *out, const char *text, uint64_t value)
{
    arg_name(out, text);
    gwi_trace_printf(out, "%llu", (unsigned long long)value);
}

void gwi_trace_arg_text(gwi_trace_out *out, const char *text, const char *value)
{
    arg_name(out, text);
    gwi_trace_text(out, value);
}

void gwi_trace_arg_list(gwi_trace_out *out, const char *text, const uint64_t *values, size_t n)
{
    arg_name(out, text);
    gwi_trace_printf(out, "[");
    for (size_t i = 0; i < n; i++)
        gwi_trace_printf(out, "%s%llu", i == 0 ? "" : ",", (unsigned long long)values[i]);
    gwi_trace_printf(out, "]");
}

void gwi_trace_args_end(gwi_trace_out *out)
{
    gwi_trace_printf(out, "}");
    gwi_trace_end(out);
}
