/* stats.c - what parameters count, of this process and of all. */
#include "base/clock.h"
#include "base/error.h"
#include "params/agent.h"
#include "params/inside.h"

#include <godwit/comm.h>

#include <stdlib.h>

/* What was sent for this purpose. */
static uint64_t bytes_for(const gwi_node_stats *s, int first, int last)
{
    uint64_t sum = 0;

    for (int kind = first; kind <= last; kind++)
        sum += s->note_bytes[kind];
    return sum;
}

/* What counts for all processes: the sum; the most; or the sum over nodes, of each of which all
 * processes say the same. */
enum { SUM, MOST, ONCE_A_NODE };

/* All that there are: name, what it is, its value, and what counts for all processes. */
#define STATS(X)                                                                                  \
    X(keys_pulled, "keys that workers of this process read", w[GWI_PULLED], SUM)                  \
    X(keys_pushed, "keys that they added to", w[GWI_PUSHED], SUM)                                 \
    X(keys_set, "keys that they assigned", w[GWI_SET], SUM)                                       \
    X(keys_remote, "of all these, that were not on the node", w[GWI_REMOTE], SUM)                 \
    X(calls, "of pull, push and set", w[GWI_CALLS], SUM)                                          \
    X(read_retries, "reads that met a change and were done again", w[GWI_RETRIES], SUM)           \
    X(latch_waits, "changes that waited for another one of the same key", w[GWI_WAITS], SUM)      \
    X(shared_bytes, "memory that the processes of the node share", params->segment.n_bytes,       \
      ONCE_A_NODE)                                                                                \
    X(huge_page_bytes, "of these, put into huge pages by this process so far",                    \
      gwi_pages_done(&params->pages), SUM)                                                        \
    X(moves, "keys that came to this process's share to stay", s.moves, SUM)                      \
    X(replicas, "copies that are there now", s.replicas, SUM)                                     \
    X(grants, "copies given to other nodes", s.grants, SUM)                                       \
    X(tells, "changes of copies sent to owners", s.tells, SUM)                                    \
    X(refreshes, "news sent to copies", s.refreshes, SUM)                                         \
    X(requests, "requests served for other nodes", s.requests, SUM)                               \
    X(hops, "times that a request was passed on", s.hops, SUM)                                    \
    X(rounds, "rounds of telling each other what has changed", s.rounds, SUM)                     \
    X(rounds_per_s, "of these, a second", per_second(s.rounds, f.since_ns), MOST)                 \
    X(messages_sent, "to other nodes", s.messages, SUM)                                           \
    X(bytes_sent, "to other nodes", s.bytes, SUM)                                                 \
    X(bytes_for_access, "of these, for keys that were not here",                                  \
      bytes_for(&s, GWI_NOTE_ASK, GWI_NOTE_ANSWER), SUM)                                          \
    X(bytes_for_replicas, "of these, for copies", bytes_for(&s, GWI_NOTE_WANT, GWI_NOTE_DROPPED), \
      SUM)                                                                                        \
    X(bytes_for_moves, "of these, for keys that moved",                                           \
      bytes_for(&s, GWI_NOTE_LOCALIZE, GWI_NOTE_TRANSFER), SUM)                                   \
    X(bytes_for_meetings, "of these, for wait_sync and barriers",                                 \
      bytes_for(&s, GWI_NOTE_SYNC, GWI_NOTE_RELEASE), SUM)                                        \
    X(staleness_us, "how long other nodes wait for a change, about", f.staleness_ns / 1000, MOST) \
    X(intent_us, "from acting on an intent until the key is here, at most but for few",           \
      f.intent_ns / 1000, MOST)                                                                   \
    X(clock_us, "between clocks of the fastest worker, on average", f.clock_ns / 1000, MOST)

#define STAT_ID(name, help, value, kind) STAT_##name,
enum { STATS(STAT_ID) N_STATS };

static uint64_t per_second(uint64_t n, int64_t since_ns)
{
    int64_t span = gwi_now_ns() - since_ns;

    return span > 0 ? (uint64_t)((double)n * 1e9 / (double)span) : 0;
}

static void gather(gw_params *params, int64_t *ret_values)
{
    gwi_agent_figures f = {.since_ns = gwi_now_ns()};
    uint64_t w[GWI_N_COUNTED];

    if (params->agent != NULL)
        gwi_agent_count(params->agent, &f);
    for (int i = 0; i < GWI_N_COUNTED; i++)
        w[i] = gwi_params_counted(params, i);
    gwi_node_stats s = f.node;
#define STAT_VALUE(name, help, value, kind) ret_values[STAT_##name] = (int64_t)(value);
    STATS(STAT_VALUE)
}

static const struct {
    const char *name, *help;
} texts[] = {
#define STAT_TEXT(name, help, value, kind) {#name, help},
    STATS(STAT_TEXT)};

const char *gw_params_stat_name(int index)
{
    return index >= 0 && index < N_STATS ? texts[index].name : NULL;
}

int gw_params_stat_get(gw_params *params, int index, gw_params_stat *ret_stat)
{
    int64_t values[N_STATS];
    int err = gwi_params_check_process(params);

    if (err < 0)
        return err;
    if (index < 0 || index >= N_STATS)
        return gwi_fail(GW_ERANGE, "index is %d; there are %d statistics", index, N_STATS);
    gather(params, values);
    *ret_stat = (gw_params_stat){texts[index].name, texts[index].help, values[index]};
    return 0;
}

int gw_params_stats_own(gw_params *params, int64_t *ret_values, int n)
{
    int64_t values[N_STATS];
    int err = gwi_params_check_process(params);

    if (err < 0)
        return err;
    gather(params, values);
    for (int i = 0; i < N_STATS && i < n; i++)
        ret_values[i] = values[i];
    return N_STATS;
}

int gw_params_stats_total(gw_params *params, int64_t *ret_values, int n)
{
#define STAT_KIND(name, help, value, kind) kind,
    static const char kinds[] = {STATS(STAT_KIND)};
    int64_t values[N_STATS], sums[N_STATS], most[N_STATS];
    gw_comm *comm;
    int err = gwi_params_comm(params, &comm);

    if (err < 0)
        return err;
    gather(params, values);
    for (int i = 0; i < N_STATS; i++)
        if (kinds[i] == ONCE_A_NODE && params->world->fabric->place.local_rank > 0)
            values[i] = 0;
    err = gw_comm_allreduce(comm, values, sums, N_STATS, GW_I64, GW_SUM);
    if (err == 0)
        err = gw_comm_allreduce(comm, values, most, N_STATS, GW_I64, GW_MAX);
    for (int i = 0; err == 0 && i < N_STATS && i < n; i++)
        ret_values[i] = kinds[i] == MOST ? most[i] : sums[i];
    return err < 0 ? err : N_STATS;
}
