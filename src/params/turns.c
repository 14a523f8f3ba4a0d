/* turns.c - turns of an agent, put together and traced. */
#include "params/turns.h"
#include "base/trace.h"

#include <stdlib.h>
#include <string.h>

#define SPANS_PER_PAUSE 20 /* about as many */

static const gwi_trace_kind work = {"agent",
                                    {"rounds", "round_keys", "told", "refreshed", "moved_in",
                                     "moved_out", "copied", "dropped", "served", "messages",
                                     "bytes", "busy_ns"}};
enum {
    ROUNDS,
    ROUND_KEYS,
    TOLD,
    REFRESHED,
    MOVED_IN,
    MOVED_OUT,
    COPIED,
    DROPPED,
    SERVED,
    MESSAGES,
    BYTES,
    BUSY_NS
};
_Static_assert(BUSY_NS + 1 == GWI_TRACE_ARGS, "all that there is room for");

struct gwi_turns {
    gwi_track *track;           /* owned */
    int64_t began_ns, ended_ns; /* of those not traced yet; 0: there are none */
    uint64_t busy_ns;
    uint64_t now[GWI_TRACE_ARGS], before[GWI_TRACE_ARGS];
};

gwi_turns *gwi_turns_open(uint64_t opening)
{
    gwi_turns *turns = gwi_tracing() ? calloc(1, sizeof *turns) : NULL;

    if (turns != NULL)
        turns->track = gwi_track_open("agent of parameters %llu", (unsigned long long)opening);
    return turns;
}

static void read_stats(uint64_t *args, const gwi_node_stats *s)
{
    args[ROUNDS] = s->rounds;
    args[ROUND_KEYS] = s->round_keys;
    args[TOLD] = s->tells;
    args[REFRESHED] = s->refreshes;
    args[MOVED_IN] = s->moves;
    args[MOVED_OUT] = s->notes[GWI_NOTE_TRANSFER];
    args[COPIED] = s->copied;
    args[DROPPED] = s->dropped;
    args[SERVED] = s->requests;
    args[MESSAGES] = s->messages;
    args[BYTES] = s->bytes;
}

/* By what people look for. */
static void name(char *text, size_t room, const uint64_t *args)
{
    const char *const parts[] = {args[ROUND_KEYS] > 0 ? "round" : NULL,
                                 args[MOVED_IN] + args[MOVED_OUT] > 0 ? "moves" : NULL,
                                 args[COPIED] + args[DROPPED] > 0 ? "replicas" : NULL};
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < 3; i++)
        if (parts[i] != NULL)
            n += (size_t)snprintf(text + n, room - n, "%s%s", n > 0 ? " + " : "", parts[i]);
    if (n == 0)
        snprintf(text, room, "%s", args[SERVED] > 0 ? "serves" : "messages");
}

static void write_down(gwi_turns *turns)
{
    uint64_t args[GWI_TRACE_ARGS];
    char text[GWI_TRACE_TEXT];

    for (int i = 0; i < GWI_TRACE_ARGS; i++)
        args[i] = turns->now[i] - turns->before[i];
    args[BUSY_NS] = turns->busy_ns;
    name(text, sizeof text, args);
    gwi_track_span(turns->track, &work, text, turns->began_ns, turns->ended_ns, args);
    memcpy(turns->before, turns->now, sizeof turns->before);
    turns->began_ns = 0;
    turns->busy_ns = 0;
}

/* Whether statistics have begun at 0 again. */
static int begins_anew(const gwi_turns *turns, const gwi_node_stats *s)
{
    return s->rounds < turns->now[ROUNDS] || s->messages < turns->now[MESSAGES] ||
           s->moves < turns->now[MOVED_IN];
}

void gwi_turns_add(gwi_turns *turns, const gwi_node_stats *stats, int64_t began_ns, int busy)
{
    int64_t grain = gwi_trace_pause_ns() / SPANS_PER_PAUSE;

    if (turns->began_ns > 0 && began_ns - turns->ended_ns > grain / 4)
        write_down(turns);
    if (gwi_unlikely(begins_anew(turns, stats))) {
        if (turns->began_ns > 0)
            write_down(turns);
        memset(turns->before, 0, sizeof turns->before);
        memset(turns->now, 0, sizeof turns->now);
    }
    if (!busy)
        return;
    if (turns->began_ns == 0)
        turns->began_ns = began_ns;
    turns->ended_ns = gwi_now_ns();
    turns->busy_ns += (uint64_t)(turns->ended_ns - began_ns);
    read_stats(turns->now, stats);
    if (turns->ended_ns - turns->began_ns > grain)
        write_down(turns);
}

/* Orders that workers hand over themselves are counted between turns. */
static void add_rest(gwi_turns *turns, const gwi_node_stats *stats)
{
    uint64_t before[GWI_TRACE_ARGS];
    int64_t now = gwi_now_ns();

    gwi_turns_add(turns, stats, now, 0); /* which may find that statistics have begun anew */
    memcpy(before, turns->now, sizeof before);
    read_stats(turns->now, stats);
    before[ROUNDS] = turns->now[ROUNDS]; /* nothing is done in most of them */
    if (turns->began_ns == 0 && memcmp(before, turns->now, sizeof before) != 0)
        turns->began_ns = turns->ended_ns = now;
}

void gwi_turns_close(gwi_turns *turns, const gwi_node_stats *stats)
{
    if (turns == NULL)
        return;
    add_rest(turns, stats);
    if (turns->began_ns > 0)
        write_down(turns);
    gwi_track_close(turns->track);
    free(turns);
}
