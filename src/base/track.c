/* track.c - tracks: their rings, what is put in, and what becomes of it as text. */
#include "base/track.h"
#include "base/trace_out.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 1000           /* of a process: no two tracks of a trace have the same number */
#define N_SPANS 256u           /* of a track and a pause */
#define N_CAUSES 12            /* things to wait for that a track tells apart */
#define N_BUCKETS 28           /* of a wait's microseconds, by powers of 2: the last is minutes */
#define LEAST_NS (20 * GWI_US) /* shorter spans are counted, not shown */

_Atomic int gwi_trace_is_on;

const gwi_trace_kind gwi_trace_wait = {"wait", {NULL}};

struct span {
    int64_t at_ns, took_ns;
    const gwi_trace_kind *kind;
    uint64_t args[GWI_TRACE_ARGS];
    char text[GWI_TRACE_TEXT];
};

/* Waits for one thing.  Written by who acts for the track; the tracer reads. */
struct cause {
    char text[GWI_TRACE_TEXT]; /* before it is counted in `n_causes` */
    _Atomic uint64_t ns, buckets[N_BUCKETS];
};

/* What the tracer has written of a cause. */
struct written {
    uint64_t ns, buckets[N_BUCKETS];
};

struct gwi_track {
    /* set at open, then constant */
    int thread;    /* its number in the trace */
    uint64_t term; /* of the tracer for whom it was opened */
    int is_own;    /* a thread's own */
    char name[64];
    /* by who acts for it */
    _Alignas(GWI_LINE) _Atomic uint32_t head; /* spans put in, ever */
    _Atomic uint64_t lost;
    _Atomic int n_causes;
    _Atomic int closed;
    struct cause causes[N_CAUSES];
    struct span spans[N_SPANS];
    /* by the tracer; `tail` and `least_ns` are read by who acts for it */
    _Alignas(GWI_LINE) _Atomic uint32_t tail; /* spans taken out, ever */
    _Atomic int64_t least_ns;
    int is_named;
    uint64_t lost_written;
    struct written written[N_CAUSES];
    struct gwi_track *next; /* under tracks_lock */
};

static pthread_mutex_t tracks_lock = PTHREAD_MUTEX_INITIALIZER; /* held for moments only */
static gwi_track *tracks;                                       /* under it, as the number */
static int n_opened;
static _Atomic uint64_t current_term; /* counts gwi_tracks_begin() */
static int process;                   /* set there, then constant until the end */

int gwi_tracks_figures(void)
{
    return THREADS * process + 1;
}

void gwi_tracks_begin(int process_number)
{
    process = process_number;
    atomic_fetch_add(&current_term, 1);
}

/* tracks: who acts */

static gwi_track *new_track(const char *name, int is_own)
{
    gwi_track *track = aligned_alloc(GWI_LINE, sizeof *track);

    if (track == NULL)
        return NULL;
    memset(track, 0, sizeof *track);
    snprintf(track->name, sizeof track->name, "%s", name);
    track->is_own = is_own;
    atomic_store_explicit(&track->least_ns, LEAST_NS, memory_order_relaxed);
    pthread_mutex_lock(&tracks_lock);
    track->term = atomic_load_explicit(&current_term, memory_order_relaxed);
    track->thread = THREADS * process + 1 + ++n_opened;
    track->next = tracks;
    tracks = track;
    pthread_mutex_unlock(&tracks_lock);
    return track;
}

gwi_track *gwi_track_open(const char *format, ...)
{
    char name[64];
    va_list args;

    if (!gwi_tracing())
        return NULL;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return new_track(name, 0);
}

static int is_in_use(const gwi_track *track)
{
    return track != NULL &&
           track->term == atomic_load_explicit(&current_term, memory_order_acquire) &&
           gwi_tracing();
}

/* The tracer frees it when it has read all, or has freed all others and left this one to us. */
void gwi_track_close(gwi_track *track)
{
    if (track == NULL)
        return;
    pthread_mutex_lock(&tracks_lock);
    gwi_track **link = &tracks;
    while (*link != NULL && *link != track)
        link = &(*link)->next;
    if (*link == NULL)
        free(track); /* its tracer has stopped */
    else
        atomic_store_explicit(&track->closed, 1,
                              memory_order_release); /* pairs with gwi_tracks_write() */
    pthread_mutex_unlock(&tracks_lock);
}

void gwi_track_span(gwi_track *track, const gwi_trace_kind *kind, const char *text,
                    int64_t began_ns, int64_t ended_ns, const uint64_t *args)
{
    if (!is_in_use(track))
        return;
    uint32_t head = atomic_load_explicit(&track->head, memory_order_relaxed);
    if (head - atomic_load_explicit(&track->tail, memory_order_acquire) == N_SPANS) {
        atomic_fetch_add_explicit(&track->lost, 1, memory_order_relaxed);
        return;
    }
    struct span *span = &track->spans[head % N_SPANS];
    *span = (struct span){.at_ns = began_ns, .took_ns = ended_ns - began_ns, .kind = kind};
    for (int i = 0; i < GWI_TRACE_ARGS && kind->args[i] != NULL; i++)
        span->args[i] = args[i];
    snprintf(span->text, sizeof span->text, "%s", text);
    atomic_store_explicit(&track->head, head + 1, memory_order_release); /* pairs with drain() */
}

static struct cause *cause_of(gwi_track *track, const char *text)
{
    int n = atomic_load_explicit(&track->n_causes, memory_order_relaxed);

    for (int i = 0; i < n; i++)
        if (strncmp(track->causes[i].text, text, GWI_TRACE_TEXT - 1) == 0)
            return &track->causes[i];
    if (n == N_CAUSES) /* the last one stands for all others */
        return &track->causes[n - 1];
    snprintf(track->causes[n].text, GWI_TRACE_TEXT, "%s", n == N_CAUSES - 1 ? "others" : text);
    atomic_store_explicit(&track->n_causes, n + 1, memory_order_release); /* pairs with sum_up() */
    return &track->causes[n];
}

static void add_to(_Atomic uint64_t *sum, uint64_t n)
{
    uint64_t old = atomic_load_explicit(sum, memory_order_relaxed);

    atomic_store_explicit(sum, old + n, memory_order_relaxed);
}

static unsigned bucket_of(int64_t took_ns)
{
    uint64_t us = (uint64_t)took_ns / 1000;
    unsigned bucket = us == 0 ? 0 : 64 - (unsigned)__builtin_clzll(us);

    return bucket < N_BUCKETS ? bucket : N_BUCKETS - 1;
}

void gwi_track_waited(gwi_track *track, const char *what_for, int64_t began_ns)
{
    if (began_ns == 0 || !is_in_use(track))
        return;
    int64_t now = gwi_now_ns();
    struct cause *cause = cause_of(track, what_for);

    add_to(&cause->ns, (uint64_t)(now - began_ns));
    add_to(&cause->buckets[bucket_of(now - began_ns)], 1);
    if (now - began_ns >= atomic_load_explicit(&track->least_ns, memory_order_relaxed))
        gwi_track_span(track, &gwi_trace_wait, what_for, began_ns, now, NULL);
}

/* a thread's own */

static _Thread_local struct {
    gwi_track *track;
    uint64_t term;
} own;
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

/* Its tracer may have stopped, and freed it. */
static void close_own(void *track)
{
    if (own.term == atomic_load_explicit(&current_term, memory_order_acquire) && gwi_tracing())
        gwi_track_close(track);
}

static void make_own_key(void)
{
    pthread_key_create(&own_key, close_own);
}

gwi_track *gwi_track_of_thread(void)
{
    uint64_t term = atomic_load_explicit(&current_term, memory_order_acquire);

    if (!gwi_tracing())
        return NULL;
    if (own.track == NULL || own.term != term) {
        int id = (int)syscall(SYS_gettid);
        char name[32] = "main thread";
        if (id != (int)getpid())
            snprintf(name, sizeof name, "thread %d", id);
        pthread_once(&own_once, make_own_key);
        own.track = new_track(name, 1);
        own.term = term;
        pthread_setspecific(own_key, own.track);
    }
    return own.track;
}

/* from rings to text */

static void write_span(gwi_trace_out *out, const gwi_track *track, const struct span *span)
{
    gwi_trace_event(out, "X", process, track->thread, span->at_ns);
    gwi_trace_printf(out, ",\"dur\":");
    gwi_trace_us(out, span->took_ns);
    gwi_trace_printf(out, ",\"cat\":\"%s\",\"name\":", span->kind->category);
    gwi_trace_text(out, span->text);
    gwi_trace_printf(out, ",\"args\":{");
    for (int i = 0; i < GWI_TRACE_ARGS && span->kind->args[i] != NULL; i++)
        if (span->args[i] != 0)
            gwi_trace_arg(out, span->kind->args[i], span->args[i]);
    gwi_trace_args_end(out);
}

/* A ring that is nearly full shall get fewer spans, the longer ones, in the next pause. */
static void adapt(gwi_track *track, uint32_t n)
{
    int64_t least = atomic_load_explicit(&track->least_ns, memory_order_relaxed);

    if (n > N_SPANS / 2)
        least *= 2;
    else if (n < N_SPANS / 8 && least > LEAST_NS)
        least /= 2;
    atomic_store_explicit(&track->least_ns, least, memory_order_relaxed);
}

static void drain(gwi_trace_out *out, gwi_track *track)
{
    uint32_t tail = atomic_load_explicit(&track->tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&track->head, memory_order_acquire);

    if (!track->is_named)
        gwi_trace_name_thread(out, process, track->thread, track->name);
    track->is_named = 1;
    adapt(track, head - tail);
    for (; tail != head; tail++)
        write_span(out, track, &track->spans[tail % N_SPANS]);
    atomic_store_explicit(&track->tail, tail, memory_order_release); /* pairs with who puts in */
}

/* What has been waited for since the last time. */
static void write_cause(gwi_trace_out *out, gwi_track *track, int i, int64_t now_ns)
{
    const struct cause *cause = &track->causes[i];
    uint64_t ns = atomic_load_explicit(&cause->ns, memory_order_relaxed), count = 0;
    uint64_t buckets[N_BUCKETS];
    struct written *written = &track->written[i];
    size_t n = 0;

    for (size_t b = 0; b < N_BUCKETS; b++) {
        uint64_t sum = atomic_load_explicit(&cause->buckets[b], memory_order_relaxed);
        buckets[b] = sum - written->buckets[b];
        written->buckets[b] = sum;
        count += buckets[b];
        if (buckets[b] > 0)
            n = b + 1;
    }
    if (count == 0)
        return;
    gwi_trace_instant(out, process, gwi_tracks_figures(), "waits", now_ns);
    gwi_trace_arg_text(out, "of", track->name);
    gwi_trace_arg_text(out, "for", cause->text);
    gwi_trace_arg(out, "count", count);
    gwi_trace_arg(out, "ns", ns - written->ns);
    gwi_trace_arg_list(out, "log2_us", buckets, n);
    gwi_trace_args_end(out);
    written->ns = ns;
}

static void sum_up(gwi_trace_out *out, gwi_track *track, int64_t now_ns)
{
    int n_causes = atomic_load_explicit(&track->n_causes, memory_order_acquire);
    uint64_t lost = atomic_load_explicit(&track->lost, memory_order_relaxed);

    for (int i = 0; i < n_causes; i++)
        write_cause(out, track, i, now_ns);
    if (lost == track->lost_written)
        return;
    gwi_trace_instant(out, process, gwi_tracks_figures(), "left out", now_ns);
    gwi_trace_arg_text(out, "of", track->name);
    gwi_trace_arg(out, "spans", lost - track->lost_written);
    gwi_trace_args_end(out);
    track->lost_written = lost;
}

/* Only the tracer takes tracks out of the list, so it may walk without the lock. */
void gwi_tracks_write(gwi_trace_out *out, int64_t now_ns)
{
    pthread_mutex_lock(&tracks_lock);
    gwi_track *track = tracks;
    pthread_mutex_unlock(&tracks_lock);
    for (gwi_track *next; track != NULL; track = next) {
        next = track->next;
        int closed = atomic_load_explicit(&track->closed, memory_order_acquire);
        drain(out, track);
        sum_up(out, track, now_ns);
        if (!closed)
            continue;
        pthread_mutex_lock(&tracks_lock);
        gwi_track **link = &tracks;
        while (*link != track)
            link = &(*link)->next;
        *link = track->next;
        pthread_mutex_unlock(&tracks_lock);
        free(track);
    }
}

/* Those of threads are ours; others are freed by who closes them. */
void gwi_tracks_end(void)
{
    pthread_mutex_lock(&tracks_lock);
    while (tracks != NULL) {
        gwi_track *track = tracks;
        tracks = track->next;
        if (track->is_own || atomic_load(&track->closed))
            free(track);
    }
    n_opened = 0;
    pthread_mutex_unlock(&tracks_lock);
}
