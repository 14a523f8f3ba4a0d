/* workload.c - workers, keys and paces. */
#include "workload.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "fabric/sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DELAY_MIN_NS 2000 /* of a network; one message in 64 takes up to a hundred times longer */
#define DELAY_MAX_NS 20000
#define FAST 0.1 /* of a burst */
#define BURST 20
#define SAMPLE_NS 50000 /* of what there is */

const char *workload_name(enum workload workload)
{
#define NAME(id, name, help) name,
    static const char *const names[] = {WORKLOADS(NAME)};

    return names[workload];
}

const char *pace_name(enum pace pace)
{
    static const char *const names[] = {PACES(NAME)};
#undef NAME

    return names[pace];
}

const char *workload_help(enum workload workload)
{
#define HELP(id, name, help) help,
    static const char *const helps[] = {WORKLOADS(HELP)};

    return helps[workload];
}

const char *pace_help(enum pace pace)
{
    static const char *const helps[] = {PACES(HELP)};
#undef HELP

    return helps[pace];
}

const char *technique_name(gwi_technique technique)
{
#define NAME(id, name) name,
    static const char *const names[] = {GWI_TECHNIQUES(NAME)};
#undef NAME

    return names[technique];
}

enum stage { PULLING, COMPUTING, PUSHING, FINISHED };

struct worker {
    enum stage stage;
    gwi_random random;
    int64_t clock;
    int64_t op;       /* that it waits for; -1: none */
    int64_t until_ns; /* of computing */
    int64_t *keys;    /* of the batches [clock, clock + lead], in a ring */
};

struct run;

struct rank {
    struct run *run;
    int id;
    gwi_node *node;
    struct worker *workers;
    float *values, *updates; /* of a batch, what it reads and what it adds */
    int64_t last_turn_ns, sampled_ns;
    gwi_node_stats before; /* the warm-up was over */
    int is_warm;
    double key_ns; /* replicas times time */
};

struct run {
    const struct study *study;
    gwi_geometry geometry;
    struct rank *ranks;
    double *zipf; /* sums of probabilities */
    gwi_sim *sim;
    int finished; /* workers */
    int warm;     /* workers whose warm-up is over */
    int64_t warm_ns;
};

/* keys */

/* Keys that are used together should not have homes that are equal modulo the number of nodes;
 * and this never gives a key twice. */
static int64_t scatter(const struct run *run, int64_t i)
{
    return (int64_t)((uint64_t)i * UINT64_C(2654435761) % (uint64_t)run->study->n_keys);
}

static int64_t draw_zipf(const struct run *run, struct worker *w)
{
    double at = gwi_random_double(&w->random);
    int64_t low = 0, high = run->study->n_keys - 1;

    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (run->zipf[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int64_t draw_key(const struct rank *r, struct worker *w, int64_t clock)
{
    const struct study *s = r->run->study;
    int64_t any = (int64_t)gwi_random_below(&w->random, (uint64_t)s->hot_keys);

    switch (s->workload) {
    case ZIPF:
        return scatter(r->run, draw_zipf(r->run, w));
    case OWN:
        return scatter(r->run, r->id * s->hot_keys + any);
    case WANDERING:
        return scatter(r->run, (any + clock / 2) % s->n_keys);
    default:
        return scatter(r->run, any);
    }
}

static int64_t *batch_of(const struct run *run, struct worker *w, int64_t clock)
{
    return w->keys + clock % (run->study->lead + 1) * run->study->batch;
}

static int announce(struct rank *r, int i, int64_t clock)
{
    struct worker *w = &r->workers[i];
    int64_t *keys = batch_of(r->run, w, clock);

    for (int k = 0; k < r->run->study->batch; k++)
        keys[k] = draw_key(r, w, clock);
    return gwi_node_intent(r->node, i, keys, (size_t)r->run->study->batch, clock, clock + 1);
}

/* paces */

static int64_t compute_ns(const struct study *s, struct worker *w)
{
    double mean = (double)s->clock_ns, chance = gwi_random_double(&w->random);

    switch (s->pace) {
    case POISSON:
        return (int64_t)(-mean * log(1 - chance));
    case BURSTY:
        mean *= w->clock % (2 * BURST) < BURST ? FAST : 2 - FAST;
        return (int64_t)(mean * (0.95 + 0.1 * chance));
    case DRIFTING:
        return (int64_t)(mean * exp(log(2) * sin((double)w->clock / 40)) * (0.95 + 0.1 * chance));
    default:
        return (int64_t)(mean * (0.95 + 0.1 * chance));
    }
}

/* workers */

static int access_batch(struct rank *r, int i, gwi_access access)
{
    struct worker *w = &r->workers[i];
    const struct study *s = r->run->study;
    size_t at = (size_t)i * (size_t)s->batch * (size_t)s->length;

    return gwi_node_access(r->node, i, access, batch_of(r->run, w, w->clock), (size_t)s->batch,
                           (access == GWI_PULL ? r->values : r->updates) + at, &w->op);
}

static void note_warm(struct rank *r, int64_t now_ns)
{
    const struct study *s = r->run->study;

    if (++r->run->warm == s->nodes * s->workers)
        r->run->warm_ns = now_ns;
    if (!r->is_warm) {
        r->is_warm = 1;
        r->before = *gwi_node_count(r->node);
        r->key_ns = 0;
    }
}

static int next_batch(struct rank *r, int i, int64_t now_ns)
{
    const struct study *s = r->run->study;
    struct worker *w = &r->workers[i];
    int err = 0;

    if (++w->clock == s->warm_up)
        note_warm(r, now_ns);
    gwi_node_advance_clock(r->node, i);
    if (w->clock == s->warm_up + s->clocks) {
        w->stage = FINISHED;
        r->run->finished++;
        return 0;
    }
    err = announce(r, i, w->clock + s->lead);
    if (err == 0)
        err = access_batch(r, i, GWI_PULL);
    w->stage = PULLING;
    return err;
}

static int work(struct rank *r, int i, int64_t now_ns)
{
    struct worker *w = &r->workers[i];

    for (;;) {
        int err = 0;
        if (w->stage == FINISHED || !gwi_node_is_done(r->node, i, w->op) ||
            (w->stage == COMPUTING && now_ns < w->until_ns))
            return 0;
        switch (w->stage) {
        case PULLING:
            w->until_ns = now_ns + compute_ns(r->run->study, w);
            w->stage = COMPUTING;
            break;
        case COMPUTING:
            err = access_batch(r, i, GWI_PUSH);
            w->stage = PUSHING;
            break;
        default:
            err = next_batch(r, i, now_ns);
        }
        if (err < 0)
            return err;
    }
}

/* The simulation gives a rank that does nothing turns farther and farther apart: so far that it
 * would miss the next thing that is due, it asks for one soon. */
static void ask_for_turn(struct rank *r, gwi_fabric *fabric, int64_t now_ns)
{
    int64_t next = gwi_node_next_ns(r->node);

    for (int i = 0; i < r->run->study->workers; i++) {
        const struct worker *w = &r->workers[i];
        if (w->stage == COMPUTING && w->until_ns < next)
            next = w->until_ns;
    }
    if (now_ns + 2 * (now_ns - r->last_turn_ns) + 1000 > next)
        fabric->ops->nudge(fabric, r->id, GWI_LANE_PARAMS);
}

static int take_turn(struct rank *r, gwi_fabric *fabric, int64_t now_ns)
{
    if (now_ns >= r->sampled_ns + SAMPLE_NS) {
        r->key_ns += (double)gwi_node_count(r->node)->replicas * (double)(now_ns - r->sampled_ns);
        r->sampled_ns = now_ns;
    }
    int err = gwi_node_step(r->node, fabric, now_ns);
    for (int i = 0; i < r->run->study->workers && err >= 0; i++)
        err = work(r, i, now_ns);
    ask_for_turn(r, fabric, now_ns);
    r->last_turn_ns = now_ns;
    return err;
}

/* jobs */

static int make_zipf(struct run *run)
{
    double sum = 0;
    int64_t n = run->study->n_keys;

    run->zipf = malloc((size_t)n * sizeof *run->zipf);
    if (run->zipf == NULL)
        return gwi_fail(GW_ENOMEM, "%lld keys", (long long)n);
    for (int64_t i = 0; i < n; i++)
        run->zipf[i] = sum += 1 / (double)(i + 1);
    for (int64_t i = 0; i < n; i++)
        run->zipf[i] /= sum;
    return 0;
}

static int make_rank(struct run *run, int id)
{
    const struct study *s = run->study;
    struct rank *r = &run->ranks[id];
    gwi_node_options options = {.geometry = &run->geometry,
                                .node = id,
                                .nodes = s->nodes,
                                .workers = s->workers,
                                .technique = s->technique,
                                .ahead = s->ahead,
                                .ahead_ctx = r};
    int err = gwi_node_new(&options, &r->node);

    *r = (struct rank){.run = run, .id = id, .node = r->node};
    r->workers = calloc((size_t)s->workers, sizeof *r->workers);
    size_t n_values = (size_t)(s->workers * s->batch * s->length);
    r->values = calloc(n_values, sizeof *r->values);
    r->updates = calloc(n_values, sizeof *r->updates);
    if (err == 0 && (r->workers == NULL || r->values == NULL || r->updates == NULL))
        err = gwi_fail(GW_ENOMEM, "rank %d", id);
    for (size_t i = 0; i < n_values && err == 0; i++)
        r->updates[i] = 1;
    for (int i = 0; i < s->workers && err == 0; i++) {
        struct worker *w = &r->workers[i];
        gwi_random_init(&w->random, s->seed, (uint64_t)(id * s->workers + i));
        w->stage = COMPUTING; /* all begin at their own time */
        w->until_ns = (int64_t)gwi_random_below(&w->random, (uint64_t)s->clock_ns);
        w->op = -1;
        w->keys = calloc((size_t)((s->lead + 1) * s->batch), sizeof *w->keys);
        if (w->keys == NULL)
            return gwi_fail(GW_ENOMEM, "rank %d", id);
        for (int c = 0; c <= s->lead && err == 0; c++)
            err = announce(r, i, c);
    }
    return err;
}

static void free_run(struct run *run)
{
    for (int n = 0; n < run->study->nodes && run->ranks != NULL; n++) {
        struct rank *r = &run->ranks[n];
        for (int i = 0; i < run->study->workers && r->workers != NULL; i++)
            free(r->workers[i].keys);
        free(r->workers);
        free(r->values);
        free(r->updates);
        gwi_node_free(r->node);
    }
    free(run->ranks);
    free(run->zipf);
    gwi_geometry_fini(&run->geometry);
    gwi_sim_free(run->sim);
}

static double resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long all, resident = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%ld %ld", &all, &resident) != 2)
        resident = 0;
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void gather(struct run *run, struct findings *f)
{
    int n_nodes = run->study->nodes;
    uint64_t most = 0;

    f->seconds = (double)(gwi_sim_now_ns(run->sim) - run->warm_ns) / 1e9;
    f->resident_bytes = resident_bytes();
    for (int n = 0; n < n_nodes; n++) {
        const gwi_node_stats *now = gwi_node_count(run->ranks[n].node);
        const gwi_node_stats *then = &run->ranks[n].before;
        gwi_node_memory memory = gwi_node_measure(run->ranks[n].node);
#define SUM(name, help) f->stats.name += now->name - then->name;
        GWI_NODE_STATS(SUM)
#undef SUM
        for (int k = 0; k < GWI_N_NOTES; k++) {
            f->stats.notes[k] += now->notes[k] - then->notes[k];
            f->stats.note_bytes[k] += now->note_bytes[k] - then->note_bytes[k];
        }
        uint64_t sent = now->bytes - then->bytes;
        most = sent > most ? sent : most;
        f->stats.replicas += now->replicas;
        f->stats.items += now->items;
        f->key_clocks += run->ranks[n].key_ns / (double)run->study->clock_ns;
#define SUM(name, help) f->memory.name += memory.name;
        GWI_NODE_MEMORY(SUM)
#undef SUM
    }
#define MEAN(name, help) f->memory.name /= (size_t)n_nodes;
    GWI_NODE_MEMORY(MEAN)
#undef MEAN
    f->busiest = (double)most * n_nodes / (double)f->stats.bytes;
}

int rank_of(const void *ahead_ctx)
{
    return ((const struct rank *)ahead_ctx)->id;
}

int run_study(const struct study *study, struct findings *f)
{
    struct run run = {.study = study};
    gwi_sim_options options = {.seed = study->seed,
                               .size = study->nodes,
                               .node_size = 1,
                               .delay_min_ns = DELAY_MIN_NS,
                               .delay_max_ns = DELAY_MAX_NS,
                               .room_bytes = 1 << 20};
    int64_t begun = gwi_now_ns();
    int err, rank = 0;

    *f = (struct findings){0};
    err = gwi_geometry_init(&run.geometry, study->n_keys, &study->length, 1, GW_F32);
    if (err == 0)
        err = make_zipf(&run);
    if (err == 0)
        err = gwi_sim_new(&options, &run.sim);
    run.ranks = calloc((size_t)study->nodes, sizeof *run.ranks);
    if (err == 0 && run.ranks == NULL)
        err = gwi_fail(GW_ENOMEM, "%d nodes", study->nodes);
    for (int n = 0; n < study->nodes && err == 0; n++)
        err = make_rank(&run, n);
    while (err >= 0 && run.finished < study->nodes * study->workers && gwi_sim_step(run.sim, &rank))
        if (rank >= 0)
            err = take_turn(&run.ranks[rank], gwi_sim_fabric(run.sim, rank),
                            gwi_sim_now_ns(run.sim));
    if (err >= 0)
        gather(&run, f);
    free_run(&run);
    f->wall_seconds = (double)(gwi_now_ns() - begun) / 1e9;
    return err < 0 ? err : 0;
}
