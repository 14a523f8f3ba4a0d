/* inside.c - figures of parameters, for the board and for a trace.
 *
 * Where keys are is looked up in the words of the node, by the tracer of the node's first
 * process: a load a key, nobody is held up.  Of very many keys some are looked at, in runs,
 * since keys that follow each other are at home on different nodes.  It takes a fiftieth of
 * a processor at most.                                                                */
#include "params/inside.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/trace_out.h"
#include "params/agent.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 64                   /* ranges of keys that are told apart */
#define MOST_LOOKED INT64_C(4194304) /* keys of a look */
#define RUN 512                      /* keys in a row, if not all are looked at */
#define LOOK_SHARE 50                /* of the time, at most one part in so many */
#define MOST_CLOCKS 64               /* workers whose clocks are shown */
#define NODE_PROCESS 10000           /* in a trace: behind all ranks */

/* Keys by range. */
struct places {
    uint64_t owned[BUCKETS], replicas[BUCKETS];
};

struct gwi_inside {
    gw_params *params; /* borrowed */
    /* by the tracer */
    uint64_t last[GWI_N_FIGURES];
    int is_same;          /* as often as nothing has changed */
    struct places places; /* as last written */
    int has_places;
    int64_t next_look_ns;
};

uint64_t gwi_params_counted(gw_params *params, int what)
{
    uint64_t sum;

    pthread_mutex_lock(&params->lock);
    sum = params->counted[what];
    for (int i = 0; i < params->workers_each; i++)
        if (params->workers[i] != NULL)
            sum += gwi_worker_counted(params->workers[i], what);
    pthread_mutex_unlock(&params->lock);
    return sum;
}

/* figures */

static const gwi_seat *own_seats(const gw_params *params)
{
    return &params->seats[params->world->fabric->place.local_rank * params->workers_each];
}

static int is_open(const gwi_seat *seat)
{
    return atomic_load_explicit(&seat->barriers, memory_order_relaxed) != GWI_SEAT_GONE;
}

static void read_clocks(const gw_params *params, uint64_t *f)
{
    const gwi_seat *seats = own_seats(params);
    uint64_t least = UINT64_MAX, most = 0;

    for (int i = 0; i < params->workers_each; i++) {
        uint64_t clock = (uint64_t)atomic_load_explicit(&seats[i].clock, memory_order_relaxed);
        if (!is_open(&seats[i]))
            continue;
        f[GWI_FIGURE_workers]++;
        least = clock < least ? clock : least;
        most = clock > most ? clock : most;
    }
    f[GWI_FIGURE_clock_least] = f[GWI_FIGURE_workers] > 0 ? least : 0;
    f[GWI_FIGURE_clock_most] = most;
}

static uint64_t bytes_for(const gwi_node_stats *s, int first, int last)
{
    uint64_t sum = 0;

    for (int kind = first; kind <= last; kind++)
        sum += s->note_bytes[kind];
    return sum;
}

static void read_agent(gwi_agent *agent, uint64_t *f)
{
    gwi_agent_figures a;

    gwi_agent_count(agent, &a);
    f[GWI_FIGURE_keys] = a.node.owned;
    f[GWI_FIGURE_replicas] = a.node.replicas;
    f[GWI_FIGURE_moves] = a.node.moves;
    f[GWI_FIGURE_copied] = a.node.copied;
    f[GWI_FIGURE_dropped] = a.node.dropped;
    f[GWI_FIGURE_rounds] = a.node.rounds;
    f[GWI_FIGURE_messages] = a.node.messages;
    f[GWI_FIGURE_bytes] = a.node.bytes;
    f[GWI_FIGURE_bytes_access] = bytes_for(&a.node, GWI_NOTE_ASK, GWI_NOTE_ANSWER);
    f[GWI_FIGURE_bytes_replicas] = bytes_for(&a.node, GWI_NOTE_WANT, GWI_NOTE_DROPPED);
    f[GWI_FIGURE_bytes_moves] = bytes_for(&a.node, GWI_NOTE_LOCALIZE, GWI_NOTE_TRANSFER);
    f[GWI_FIGURE_bytes_meetings] = bytes_for(&a.node, GWI_NOTE_SYNC, GWI_NOTE_RELEASE);
    f[GWI_FIGURE_staleness_ns] = (uint64_t)a.staleness_ns;
    f[GWI_FIGURE_intent_ns] = (uint64_t)a.intent_ns;
    f[GWI_FIGURE_clock_ns] = (uint64_t)a.clock_ns;
}

/* A gwi_figures. */
static void read_figures(void *ctx, uint64_t *f)
{
    gw_params *params = ((struct gwi_inside *)ctx)->params;
    const gwi_place *place = &params->world->fabric->place;

    memset(f, 0, GWI_N_FIGURES * sizeof *f);
    f[GWI_FIGURE_opening] = params->opening;
    f[GWI_FIGURE_at_ns] = (uint64_t)gwi_now_ns();
    f[GWI_FIGURE_node] = (uint64_t)place->node;
    f[GWI_FIGURE_nodes] = (uint64_t)place->nodes;
    f[GWI_FIGURE_num_keys] = (uint64_t)params->geometry.n_keys;
    f[GWI_FIGURE_accesses] = gwi_params_counted(params, GWI_PULLED) +
                             gwi_params_counted(params, GWI_PUSHED) +
                             gwi_params_counted(params, GWI_SET);
    f[GWI_FIGURE_remote] = gwi_params_counted(params, GWI_REMOTE);
    f[GWI_FIGURE_calls] = gwi_params_counted(params, GWI_CALLS);
    f[GWI_FIGURE_shared_bytes] = params->segment.n_bytes;
    read_clocks(params, f);
    if (params->agent != NULL)
        read_agent(params->agent, f);
    else if (place->nodes == 1 && place->local_rank == 0)
        f[GWI_FIGURE_keys] = f[GWI_FIGURE_num_keys];
}

/* counters of a trace */

/* Since the last sample; statistics may have begun at 0 again. */
static uint64_t grown(const struct gwi_inside *in, const uint64_t *f, int what)
{
    return f[what] - (f[what] >= in->last[what] ? in->last[what] : 0);
}

static uint64_t rate(const struct gwi_inside *in, const uint64_t *f, int what)
{
    uint64_t span = f[GWI_FIGURE_at_ns] - in->last[GWI_FIGURE_at_ns];

    return span == 0 ? 0
                     : (uint64_t)((double)grown(in, f, what) * (double)GWI_SECOND / (double)span);
}

static void write_counters(const struct gwi_inside *in, gwi_trace_out *out, const uint64_t *f)
{
    uint64_t id = in->params->opening, accesses = grown(in, f, GWI_FIGURE_accesses);
    uint64_t remote = grown(in, f, GWI_FIGURE_remote);
    int64_t now = (int64_t)f[GWI_FIGURE_at_ns];
    int process = gwi_trace_process();
    uint64_t in_all = rate(in, f, GWI_FIGURE_accesses), away = rate(in, f, GWI_FIGURE_remote);

    gwi_trace_counter(out, process, "keys/s", id, now);
    gwi_trace_arg(out, "local", in_all > away ? in_all - away : 0);
    gwi_trace_arg(out, "remote", away);
    gwi_trace_args_end(out);
    if (accesses > 0) {
        gwi_trace_counter(out, process, "local share", id, now);
        gwi_trace_arg(out, "percent", accesses > remote ? 100 * (accesses - remote) / accesses : 0);
        gwi_trace_args_end(out);
    }
    gwi_trace_counter(out, process, "replicas", id, now);
    gwi_trace_arg(out, "here", f[GWI_FIGURE_replicas]);
    gwi_trace_args_end(out);
    gwi_trace_counter(out, process, "moves/s", id, now);
    gwi_trace_arg(out, "in", rate(in, f, GWI_FIGURE_moves));
    gwi_trace_args_end(out);
    gwi_trace_counter(out, process, "rounds/s", id, now);
    gwi_trace_arg(out, "rounds", rate(in, f, GWI_FIGURE_rounds));
    gwi_trace_args_end(out);
    gwi_trace_counter(out, process, "bytes/s", id, now);
    gwi_trace_arg(out, "access", rate(in, f, GWI_FIGURE_bytes_access));
    gwi_trace_arg(out, "replicas", rate(in, f, GWI_FIGURE_bytes_replicas));
    gwi_trace_arg(out, "moves", rate(in, f, GWI_FIGURE_bytes_moves));
    gwi_trace_arg(out, "meetings", rate(in, f, GWI_FIGURE_bytes_meetings));
    gwi_trace_args_end(out);
}

/* All figures as they are, for reports. */
static void write_figures(const struct gwi_inside *in, gwi_trace_out *out, const uint64_t *f)
{
    const gw_params *params = in->params;
    const gwi_seat *seats = own_seats(params);
    uint64_t clocks[MOST_CLOCKS];
    size_t n = 0;

#define NAME(name, help) #name,
    static const char *const names[] = {GWI_FIGURES(NAME)};
#undef NAME
    gwi_trace_instant(out, gwi_trace_process(), gwi_trace_figures(), "figures",
                      (int64_t)f[GWI_FIGURE_at_ns]);
    for (int i = 0; i < GWI_N_FIGURES; i++)
        if (i != GWI_FIGURE_at_ns)
            gwi_trace_arg(out, names[i], f[i]);
    for (int i = 0; i < params->workers_each && n < MOST_CLOCKS; i++)
        clocks[n++] = (uint64_t)atomic_load_explicit(&seats[i].clock, memory_order_relaxed);
    gwi_trace_arg_list(out, "clocks", clocks, n);
    gwi_trace_args_end(out);
}

/* where keys are */

static void look_at(const gwi_store *store, int64_t from, int64_t to, uint64_t *ret_owned,
                    uint64_t *ret_replicas)
{
    for (int64_t key = from; key < to; key++) {
        unsigned state = gwi_word_state(
            atomic_load_explicit(&store->words[key], memory_order_relaxed));
        *ret_owned += state == GWI_OWNED;
        *ret_replicas += state == GWI_REPLICA;
    }
}

/* Of keys [from, to); if they are very many, of runs at equal distances. */
static void look_at_range(const gwi_store *store, int64_t from, int64_t to, int64_t step,
                          uint64_t *ret_owned, uint64_t *ret_replicas)
{
    int64_t looked = 0;

    *ret_owned = *ret_replicas = 0;
    for (int64_t at = from; at < to; at += step) {
        int64_t run = step <= RUN ? step : RUN, end = to - at < run ? to : at + run;
        look_at(store, at, end, ret_owned, ret_replicas);
        looked += end - at;
    }
    if (looked < to - from) {
        double scale = (double)(to - from) / (double)looked;
        *ret_owned = (uint64_t)((double)*ret_owned * scale + 0.5);
        *ret_replicas = (uint64_t)((double)*ret_replicas * scale + 0.5);
    }
}

static int n_buckets(int64_t n_keys)
{
    return n_keys < BUCKETS ? (int)n_keys : BUCKETS;
}

static void find_places(const gw_params *params, struct places *ret_places)
{
    int64_t n_keys = params->geometry.n_keys, buckets = n_buckets(n_keys);
    int64_t step = n_keys <= MOST_LOOKED ? RUN : RUN * (n_keys / MOST_LOOKED + 1);

    memset(ret_places, 0, sizeof *ret_places);
    for (int64_t b = 0; b < buckets; b++)
        look_at_range(&params->store, n_keys / buckets * b + n_keys % buckets * b / buckets,
                      n_keys / buckets * (b + 1) + n_keys % buckets * (b + 1) / buckets, step,
                      &ret_places->owned[b], &ret_places->replicas[b]);
}

static void write_places(const struct gwi_inside *in, gwi_trace_out *out, int64_t now_ns)
{
    const gw_params *params = in->params;
    int node = params->world->fabric->place.node, process = NODE_PROCESS + node;
    size_t n = (size_t)n_buckets(params->geometry.n_keys);
    uint64_t owned = 0, replicas = 0;
    char name[32];

    for (size_t b = 0; b < n; b++) {
        owned += in->places.owned[b];
        replicas += in->places.replicas[b];
    }
    if (!in->has_places) {
        snprintf(name, sizeof name, "node %d", node);
        gwi_trace_name_process(out, process, node * NODE_PROCESS, name);
    }
    gwi_trace_counter(out, process, "keys here", params->opening, now_ns);
    gwi_trace_arg(out, "owned", owned);
    gwi_trace_arg(out, "replicas", replicas);
    gwi_trace_args_end(out);
    gwi_trace_instant(out, gwi_trace_process(), gwi_trace_figures(), "places", now_ns);
    gwi_trace_arg(out, "opening", params->opening);
    gwi_trace_arg(out, "node", (uint64_t)node);
    gwi_trace_arg(out, "num_keys", (uint64_t)params->geometry.n_keys);
    gwi_trace_arg_list(out, "owned", in->places.owned, n);
    gwi_trace_arg_list(out, "replicas", in->places.replicas, n);
    gwi_trace_args_end(out);
}

static void sample_places(struct gwi_inside *in, gwi_trace_out *out, int64_t now_ns)
{
    struct places places;

    if (now_ns < in->next_look_ns)
        return;
    int64_t began = gwi_now_ns();
    find_places(in->params, &places);
    int64_t took = gwi_now_ns() - began;
    in->next_look_ns = now_ns + LOOK_SHARE * took;
    if (in->has_places && memcmp(&places, &in->places, sizeof places) == 0)
        return;
    in->places = places;
    write_places(in, out, now_ns);
    in->has_places = 1;
}

/* A gwi_trace_sampler.  What does not change is written twice, so that lines go on. */
static void sample(void *ctx, gwi_trace_out *out, int64_t now_ns)
{
    struct gwi_inside *in = ctx;
    uint64_t f[GWI_N_FIGURES], last[GWI_N_FIGURES];

    read_figures(in, f);
    f[GWI_FIGURE_at_ns] = (uint64_t)now_ns;
    memcpy(last, in->last, sizeof last);
    last[GWI_FIGURE_at_ns] = f[GWI_FIGURE_at_ns];
    in->is_same = memcmp(f, last, sizeof last) == 0 ? in->is_same + 1 : 0;
    if (in->is_same < 2) {
        write_counters(in, out, f);
        write_figures(in, out, f);
    }
    memcpy(in->last, f, sizeof f);
    if (in->params->world->fabric->place.local_rank == 0)
        sample_places(in, out, now_ns);
}

/* opening and closing */

int gwi_inside_open(gw_params *params)
{
    int err = gwi_world_need_witness(params->world);

    if (err < 0)
        return err;
    struct gwi_inside *in = calloc(1, sizeof *in);
    if (in == NULL)
        return gwi_fail(GW_ENOMEM, "opening parameters");
    in->params = params;
    read_figures(in, in->last);
    if (gwi_tracing() && (err = gwi_trace_sampler_add(sample, in)) < 0) {
        free(in);
        return err;
    }
    gwi_witness_add(&params->world->witness, read_figures, in);
    params->inside = in;
    return 0;
}

void gwi_inside_close(gw_params *params)
{
    if (params->inside == NULL)
        return;
    gwi_witness_remove(&params->world->witness, read_figures, params->inside);
    gwi_trace_sampler_remove(sample, params->inside);
    free(params->inside);
    params->inside = NULL;
}
