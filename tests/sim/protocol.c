/* protocol.c - breaks the parameter protocol, or fails to: random jobs under the simulation.
 *
 *     protocol [--seed 1] [--seeds 1000] [--trace] [--mutant 0] [--stall]
 *
 * A seed makes a job: 2 to 8 nodes with 1 to 3 workers each, a technique, keys of several
 * lengths, and for each worker a program: pulls, pushes, sets, waited for or not, localize,
 * intents, clocks, wait_sync, barriers; some finish early.  Everybody's programs go in phases;
 * at the end of each all meet, and every copy of every key is compared with what was ever
 * done to it.
 *
 * What a key holds tells its story.  Short keys are only added to, and must hold the sum.  Long
 * ones are as tests/params/checker.h has it: two entries for each worker, how many of its
 * additions since the last set are in, and the sum of their numbers; and the number of that
 * set.  So a value tells exactly which ones.
 *
 * The promises are those of the design, by number:
 *   P1  nothing lost, nothing twice            P4  (bad calls: not here)
 *   P2  one owner, or on the way to one        P5  everything ends
 *   P3  own writes seen, in order; all copies equal when everybody has met; without replicas,
 *       the history of each long key is sequentially consistent
 *
 * In some jobs, with --stall in all, a node does nothing for up to two seconds; then the others
 * may wait, and nothing else.  In the others no operation takes longer than half a second.
 *
 * A seed that fails prints the command that replays it with a trace.                  */
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "fabric/sim/sim.h"
#include "params/checker.h"
#include "params/node.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef GWI_MUTANTS
extern int gwi_mutant;
#endif

enum { MAX_NODES = 8, MAX_WORKERS = 3, MAX_ALL = MAX_NODES * MAX_WORKERS, MAX_KEYS = 32 };
enum { MAX_PENDING = 12, MAX_BATCH = 4, MAX_LENGTH = 1 + 2 * MAX_ALL };
enum { PHASES = 3 };

#define LIMIT_NS (500 * GWI_MS) /* of an operation, if no node stalls */

/* What a worker has ever done to a key. */
struct deeds {
    uint32_t pushes;     /* started */
    uint32_t last_set;   /* its id; 0: none */
    uint32_t before_set; /* pushes before that */
};

/* What was done to a long key, in the order of the calls. */
struct event {
    int worker;
    gwi_access access;
    int64_t id;     /* of a set */
    double *vector; /* that a pull got; NULL: not yet */
};

/* One operation that is under way, or was just done. */
struct op {
    int used;
    int64_t seq, begun_ns;
    gwi_access access;
    int is_localize;
    size_t n;
    int64_t keys[MAX_BATCH];
    double values[MAX_BATCH * MAX_LENGTH];
    struct deeds then[MAX_BATCH]; /* when it was started, of this worker */
    size_t event[MAX_BATCH];      /* in the key's list */
};

enum wait { NONE, OP, ALL, SYNC, BARRIER };

struct worker {
    int id; /* among all */
    int phase, steps_left, finish_after;
    int meeting; /* stage of the meeting at the end of a phase */
    enum wait wait;
    int waits_for; /* op */
    struct op ops[MAX_PENDING];
    int64_t wanted_from[MAX_KEYS], wanted_to[MAX_KEYS]; /* the intent announced last */
    int wanted[MAX_KEYS]; /* when wait_sync was called: due, and to be here when it is over */
    int done;
};

struct job;

struct rank {
    struct job *job;
    int id;
    gwi_node *node;
    gwi_random random;
    struct worker workers[MAX_WORKERS];
};

struct job {
    uint64_t seed;
    int nodes, workers, n_keys, n_all;
    gwi_technique technique;
    gwi_geometry geometry;
    int64_t lengths[MAX_KEYS];
    struct rank ranks[MAX_NODES];
    struct deeds deeds[MAX_KEYS][MAX_ALL];
    struct event *events[MAX_KEYS];
    size_t n_events[MAX_KEYS];
    double sums[MAX_KEYS];      /* of the short ones */
    uint32_t n_sets[MAX_KEYS];  /* ids given out */
    int setter[MAX_KEYS][4096]; /* by id */
    int verified[PHASES + 1];
    int finished;
    int checks;
    /* a node that does nothing for a while; -1: none */
    int stalled;
    int64_t stall_from_ns, stall_to_ns;
    int64_t now_ns;
    char failure[512];
};

static struct {
    uint64_t seed;
    long seeds;
    int trace, mutant, stall;
} args = {.seed = 1, .seeds = 1000};

#define FAIL(job, ...)                                                   \
    do {                                                                 \
        if ((job)->failure[0] == '\0')                                   \
            snprintf((job)->failure, sizeof(job)->failure, __VA_ARGS__); \
        return -1;                                                       \
    } while (0)

static uint64_t below(struct rank *r, uint64_t n)
{
    return gwi_random_below(&r->random, n);
}

static int is_long(const struct job *job, int64_t key)
{
    return job->lengths[key] > 4;
}

/* what values must say */

/* A value of a long key, read by a worker that had done `mine` before; worker -1: everybody has
 * met, and `deeds` are all. */
static int check_story(struct job *job, int64_t key, const double *value, int worker,
                       const struct deeds *mine)
{
    double last_set = value[2 * job->n_all];
    uint32_t set = (uint32_t)last_set;

    if (last_set < 0 || last_set != set || set > job->n_sets[key])
        FAIL(job, "P1: key %lld holds %g where the id of a set should be", (long long)key,
             last_set);
    int setter = set == 0 ? -1 : job->setter[key][set];
    for (int w = 0; w < job->n_all; w++) {
        const struct deeds *d = w == worker ? mine : &job->deeds[key][w];
        double count = value[2 * w], sum = value[2 * w + 1];
        double last = count == 0 ? 0 : (sum + count * (count - 1) / 2) / count;
        if (count < 0 || count != floor(count) || last != floor(last) || last > d->pushes ||
            count > last || (count == 0 && sum != 0))
            FAIL(job, "P1: key %lld holds %g pushes of worker %d with the sum %g; it has made %u",
                 (long long)key, count, w, sum, d->pushes);
        int must_be_last = w == worker || worker < 0;
        if (must_be_last && count > 0 && last != d->pushes)
            FAIL(job, "P3: key %lld holds pushes of worker %d up to %g; it has made %u",
                 (long long)key, w, last, d->pushes);
        if (must_be_last && set == 0 && (d->last_set != 0 || count != d->pushes))
            FAIL(job, "P%d: key %lld holds %g pushes of worker %d, which has made %u, last set %u",
                 worker < 0 ? 1 : 3, (long long)key, count, w, d->pushes, d->last_set);
        if (must_be_last && w == setter &&
            (set != d->last_set || count != d->pushes - d->before_set))
            FAIL(job,
                 "P3: key %lld was set by worker %d (%u, its last is %u) and holds %g pushes of "
                 "it; it "
                 "has made %u, %u of them before",
                 (long long)key, w, set, d->last_set, count, d->pushes, d->before_set);
    }
    return 0;
}

static size_t note_event(struct job *job, int64_t key, int worker, gwi_access access)
{
    size_t n = job->n_events[key]++;

    if ((n & (n - 1)) == 0)
        job->events[key] = realloc(job->events[key], (n == 0 ? 1 : 2 * n) * sizeof(struct event));
    job->events[key][n] = (struct event){worker, access, job->n_sets[key], NULL};
    return n;
}

/* Without replicas there is one order that explains what everybody saw. */
static int check_history(struct job *job, int64_t key)
{
    struct history *h = history_new(job->n_all);
    char reason[256];

    for (size_t i = 0; i < job->n_events[key]; i++) {
        const struct event *e = &job->events[key][i];
        if (e->access == GWI_PUSH)
            history_add_push(h, e->worker);
        else if (e->access == GWI_ASSIGN_VALUES)
            history_add_set(h, e->worker, e->id);
        else
            history_add_pull(h, e->worker, e->vector);
    }
    bool consistent = history_check(h, reason, sizeof reason);
    history_free(h);
    if (!consistent)
        FAIL(job, "P3: no order explains the history of key %lld: %s", (long long)key, reason);
    return 0;
}

static int check_histories(struct job *job)
{
    if (job->technique != GWI_TECHNIQUE_STATIC && job->technique != GWI_TECHNIQUE_RELOCATION)
        return 0;
    for (int64_t key = 0; key < job->n_keys; key++)
        if (is_long(job, key) && check_history(job, key) < 0)
            return -1;
    return 0;
}

static int check_pulled(struct rank *r, struct worker *w, const struct op *op)
{
    const double *at = op->values;

    for (size_t i = 0; i < op->n; at += r->job->lengths[op->keys[i++]]) {
        if (is_long(r->job, op->keys[i]) &&
            check_story(r->job, op->keys[i], at, w->id, &op->then[i]) < 0)
            return -1;
        if (is_long(r->job, op->keys[i])) {
            size_t n_bytes = (size_t)r->job->lengths[op->keys[i]] * sizeof *at;
            double *kept = malloc(n_bytes);
            memcpy(kept, at, n_bytes);
            r->job->events[op->keys[i]][op->event[i]].vector = kept;
        }
        for (int64_t e = 1; !is_long(r->job, op->keys[i]) && e < r->job->lengths[op->keys[i]]; e++)
            if (at[e] != at[0])
                FAIL(r->job, "P1: key %lld is torn: %g and %g", (long long)op->keys[i], at[0],
                     at[e]);
    }
    return 0;
}

/* Where the key is and what it holds, for people. */
static void print_copies(struct job *job, int64_t key)
{
    static const char *const names[] = {"", "", "owner", "", "replica"};
    double value[MAX_LENGTH];

    for (int n = 0; n < job->nodes; n++) {
        gwi_local *local = gwi_node_local(job->ranks[n].node);
        unsigned state = gwi_local_state(local, key);
        if (state == GWI_ABSENT)
            continue;
        gwi_local_read(local, key, value);
        fprintf(stderr, "key %lld on node %d, %s:", (long long)key, n, names[state]);
        for (int64_t e = 0; e < job->lengths[key]; e++)
            fprintf(stderr, " %g", value[e]);
        fprintf(stderr, "\n");
    }
}

/* All copies of all keys, when nobody changes anything. */
static int check_copies(struct job *job)
{
    double value[MAX_LENGTH], first[MAX_LENGTH];

    for (int64_t key = 0; key < job->n_keys; key++) {
        size_t n_bytes = (size_t)job->lengths[key] * sizeof(double);
        int copies = 0, owners = 0;
        for (int n = 0; n < job->nodes; n++) {
            gwi_local *local = gwi_node_local(job->ranks[n].node);
            if (gwi_local_state(local, key) == GWI_ABSENT)
                continue;
            owners += gwi_local_state(local, key) == GWI_OWNED;
            gwi_local_read(local, key, value);
            if (is_long(job, key) && check_story(job, key, value, -1, NULL) < 0)
                return -1;
            for (int64_t e = 0; !is_long(job, key) && e < job->lengths[key]; e++)
                if (value[e] != job->sums[key])
                    FAIL(job, "P1: key %lld holds %g on node %d (%s); the sum is %g",
                         (long long)key, value[e], n,
                         gwi_local_state(local, key) == GWI_OWNED ? "owner" : "replica",
                         job->sums[key]);
            if (copies++ > 0 && memcmp(value, first, n_bytes) != 0 && args.trace)
                print_copies(job, key);
            if (copies > 1 && memcmp(value, first, n_bytes) != 0)
                FAIL(job, "P3: key %lld has different values on its nodes, one of them %d",
                     (long long)key, n);
            memcpy(first, value, n_bytes);
        }
        if (owners > 1)
            FAIL(job, "P2: key %lld has %d owners", (long long)key, owners);
    }
    job->checks++;
    return 0;
}

static int check_owners(struct job *job, int at_end)
{
    for (int64_t key = 0; key < job->n_keys; key++) {
        int owners = 0, owner = -1;
        for (int n = 0; n < job->nodes; n++)
            if (gwi_local_state(gwi_node_local(job->ranks[n].node), key) == GWI_OWNED) {
                owners++;
                owner = n;
            }
        if (owners > 1 || (at_end && owners != 1))
            FAIL(job, "P2: key %lld has %d owners", (long long)key, owners);
        if (at_end && gwi_node_owner(job->ranks[key % job->nodes].node, key) != owner)
            FAIL(job, "P2: the home of key %lld takes node %d for its owner, not %d",
                 (long long)key, gwi_node_owner(job->ranks[key % job->nodes].node, key), owner);
    }
    return 0;
}

/* what workers do */

static struct op *free_op(struct worker *w)
{
    for (int i = 0; i < MAX_PENDING; i++)
        if (!w->ops[i].used)
            return &w->ops[i];
    return NULL;
}

static int64_t some_key(struct rank *r)
{
    /* Some keys are hotter than others. */
    return (int64_t)(below(r, 2) ? below(r, (uint64_t)r->job->n_keys) : below(r, 3));
}

static void fill_push(struct job *job, struct worker *w, int64_t key, double *values)
{
    struct deeds *d = &job->deeds[key][w->id];

    d->pushes++;
    if (is_long(job, key)) {
        history_push_vector(job->n_all, w->id, d->pushes, values);
        return;
    }
    double amount = (double)(1 + (d->pushes * 7 + (unsigned)w->id) % 16);
    for (int64_t e = 0; e < job->lengths[key]; e++)
        values[e] = amount;
    job->sums[key] += amount;
}

static void fill_set(struct job *job, struct worker *w, int64_t key, double *values)
{
    struct deeds *d = &job->deeds[key][w->id];

    d->last_set = ++job->n_sets[key];
    d->before_set = d->pushes;
    job->setter[key][d->last_set] = w->id;
    history_set_vector(job->n_all, d->last_set, values);
}

static void note_wait(struct worker *w, struct op *op, int wait_now)
{
    if (op->seq == -1 || !wait_now)
        return;
    w->wait = OP;
    w->waits_for = (int)(op - w->ops);
}

/* Some operation is over. */
static int end_op(struct rank *r, struct worker *w, struct op *op)
{
    op->used = 0;
    if (r->job->stalled < 0 && r->job->now_ns - op->begun_ns > LIMIT_NS)
        FAIL(r->job, "P5: an operation on %zu keys, the first is %lld, took %g s", op->n,
             (long long)op->keys[0], (double)(r->job->now_ns - op->begun_ns) / 1e9);
    return !op->is_localize && op->access == GWI_PULL ? check_pulled(r, w, op) : 0;
}

/* As workers do: an operation waits for those of its worker on the same key. */
static int is_under_way(const struct worker *w, const struct op *but, int64_t key)
{
    for (int i = 0; i < MAX_PENDING; i++)
        for (size_t k = 0; &w->ops[i] != but && w->ops[i].used && k < w->ops[i].n; k++)
            if (!w->ops[i].is_localize && w->ops[i].keys[k] == key)
                return 1;
    return 0;
}

static int start_access(struct rank *r, struct worker *w, int w_local, struct op *op)
{
    struct job *job = r->job;
    uint64_t kind = below(r, 20);
    double *at = op->values;

    op->access = kind < 9 ? GWI_PULL : kind < 18 ? GWI_PUSH : GWI_ASSIGN_VALUES;
    op->n = 0;
    for (size_t i = 1 + below(r, MAX_BATCH); i > 0; i--) {
        int64_t key = some_key(r);
        if (is_under_way(w, op, key) ||
            (op->access == GWI_ASSIGN_VALUES && (!is_long(job, key) || job->n_sets[key] >= 4000)))
            continue;
        if (op->access == GWI_PULL)
            op->then[op->n] = job->deeds[key][w->id];
        else if (op->access == GWI_PUSH)
            fill_push(job, w, key, at);
        else
            fill_set(job, w, key, at);
        op->event[op->n] = note_event(job, key, w->id, op->access);
        op->keys[op->n++] = key;
        at += job->lengths[key];
    }
    return gwi_node_access(r->node, w_local, op->access, op->keys, op->n, op->values, &op->seq);
}

static int start_op(struct rank *r, struct worker *w, int w_local, int localize)
{
    struct op *op = free_op(w);
    int err;

    if (op == NULL) {
        w->wait = ALL;
        return 0;
    }
    op->used = 1;
    op->begun_ns = r->job->now_ns;
    op->is_localize = localize;
    if (localize) {
        op->n = 1 + below(r, 2);
        for (size_t i = 0; i < op->n; i++)
            op->keys[i] = some_key(r);
        err = gwi_node_localize(r->node, w_local, op->keys, op->n, &op->seq);
    } else {
        err = start_access(r, w, w_local, op);
    }
    if (err < 0)
        return err;
    if (op->seq == -1)
        return end_op(r, w, op);
    note_wait(w, op, below(r, 2) == 0);
    return 0;
}

static int announce(struct rank *r, int w_local)
{
    int64_t keys[3], start = gwi_node_clock(r->node, w_local) + (int64_t)below(r, 6);
    size_t n = 1 + below(r, 3);

    struct worker *w = &r->workers[w_local];
    int64_t end = start + 1 + (int64_t)below(r, 6);

    for (size_t i = 0; i < n; i++) {
        keys[i] = some_key(r);
        w->wanted_from[keys[i]] = start;
        w->wanted_to[keys[i]] = end;
    }
    return gwi_node_intent(r->node, w_local, keys, n, start, end);
}

static int begin_sync(struct rank *r, struct worker *w, int w_local)
{
    int64_t clock = gwi_node_clock(r->node, w_local);

    for (int64_t key = 0; key < r->job->n_keys; key++)
        w->wanted[key] = w->wanted_from[key] <= clock && clock < w->wanted_to[key];
    w->wait = SYNC;
    return gwi_node_begin_sync(r->node, w_local);
}

/* Due intents have been acted on: with replicas that is, the key is here. */
static int check_synced(struct rank *r, struct worker *w)
{
    int replicates = r->job->technique == GWI_TECHNIQUE_ALL ||
                     r->job->technique == GWI_TECHNIQUE_REPLICATION;

    for (int64_t key = 0; replicates && key < r->job->n_keys; key++)
        if (w->wanted[key] && !gwi_node_is_local(r->node, key))
            FAIL(r->job,
                 "wait_sync of worker %d is over, but key %lld, which it wants, is not here", w->id,
                 (long long)key);
    return 0;
}

/* Look after what is under way.  Returns 1 if the worker may go on. */
static int look_after(struct rank *r, struct worker *w, int w_local)
{
    int pending = 0;

    for (int i = 0; i < MAX_PENDING; i++) {
        struct op *op = &w->ops[i];
        if (op->used && gwi_node_is_done(r->node, w_local, op->seq)) {
            if (end_op(r, w, op) < 0)
                return -1;
        }
        pending += op->used;
    }
    switch (w->wait) {
    case NONE:
        return 1;
    case OP:
        w->wait = w->ops[w->waits_for].used ? OP : NONE;
        break;
    case ALL:
        w->wait = pending > 0 ? ALL : NONE;
        break;
    case SYNC:
        if (gwi_node_is_synced(r->node, w_local)) {
            w->wait = NONE;
            if (check_synced(r, w) < 0)
                return -1;
        }
        break;
    case BARRIER:
        w->wait = gwi_node_is_released(r->node, w_local) ? NONE : BARRIER;
        break;
    }
    return w->wait == NONE;
}

/* The end of a phase: all done, in step, met, in step, met; look; met again. */
static int meet(struct rank *r, struct worker *w, int w_local)
{
    int err = 0;

    switch (w->meeting++) {
    case 0:
        w->wait = ALL;
        break;
    case 1:
    case 3:
        err = begin_sync(r, w, w_local);
        break;
    case 2:
    case 4:
    case 6:
        err = gwi_node_arrive(r->node, w_local);
        w->wait = BARRIER;
        break;
    case 5:
        if (!r->job->verified[w->phase]) {
            r->job->verified[w->phase] = 1;
            err = check_copies(r->job);
        }
        break;
    default:
        w->meeting = 0;
        w->phase++;
        w->steps_left = 10 + (int)below(r, 40);
        if (w->phase == PHASES || w->phase == w->finish_after) {
            w->done = 1;
            r->job->finished++;
            err = gwi_node_finish(r->node, w_local);
        }
    }
    return err;
}

static int work(struct rank *r, struct worker *w, int w_local)
{
    uint64_t what;
    int err = look_after(r, w, w_local);

    if (err <= 0 || w->done)
        return err < 0 ? err : 0;
    if (w->steps_left == 0)
        return meet(r, w, w_local);
    w->steps_left--;
    what = below(r, 32);
    if (what < 18)
        return start_op(r, w, w_local, 0);
    if (what < 20)
        return start_op(r, w, w_local, 1);
    if (what < 25)
        return announce(r, w_local);
    if (what < 30)
        return gwi_node_advance_clock(r->node, w_local), 0;
    if (what < 31) {
        w->wait = ALL;
        return 0;
    }
    return begin_sync(r, w, w_local);
}

static int everything_is_over(struct job *job)
{
    if (job->finished < job->n_all)
        return 0;
    uint64_t sent = 0, received = 0;
    for (int n = 0; n < job->nodes; n++) {
        if (!gwi_node_is_idle(job->ranks[n].node))
            return 0;
        sent += gwi_node_count(job->ranks[n].node)->messages;
        received += gwi_node_count(job->ranks[n].node)->received;
    }
    return sent == received;
}

static int step(void *state, gwi_fabric *fabric, int64_t now_ns)
{
    struct rank *r = state;
    int err;

    r->job->now_ns = now_ns;
    if (r->id == r->job->stalled && now_ns >= r->job->stall_from_ns && now_ns < r->job->stall_to_ns)
        return 0;
    err = gwi_node_step(r->node, fabric, now_ns);
    if (err < 0)
        return err;
    for (int w = 0; w < r->job->workers; w++)
        if (below(r, 3) > 0 && work(r, &r->workers[w], w) < 0)
            return gwi_fail(GW_ESTATE, "%s", r->job->failure);
    if (below(r, 16) == 0 && check_owners(r->job, 0) < 0)
        return gwi_fail(GW_ESTATE, "%s", r->job->failure);
    return everything_is_over(r->job);
}

/* Who waits for what, for people. */
static void print_waits(struct job *job)
{
    static const char *const names[] = {"nothing", "an operation", "all operations", "wait_sync",
                                        "a barrier"};

    for (int n = 0; n < job->nodes; n++)
        for (int i = 0; i < job->workers; i++) {
            const struct worker *w = &job->ranks[n].workers[i];
            fprintf(stderr, "node %d worker %d: phase %d, %d steps left, waits for %s%s\n", n,
                    w->id, w->phase, w->steps_left, names[w->wait], w->done ? ", finished" : "");
            for (int o = 0; o < MAX_PENDING; o++)
                for (size_t k = 0; w->ops[o].used && k < w->ops[o].n; k++)
                    fprintf(stderr, "    %s key %lld\n",
                            w->ops[o].is_localize ? "localize" : "access",
                            (long long)w->ops[o].keys[k]);
        }
}

/* jobs */

static int make_job(struct job *job, uint64_t seed)
{
    gwi_random random;

    gwi_random_init(&random, seed, 1);
    *job = (struct job){.seed = seed, .stalled = -1};
    job->nodes = 2 + (int)gwi_random_below(&random, MAX_NODES - 1);
    job->workers = 1 + (int)gwi_random_below(&random, MAX_WORKERS);
    job->n_all = job->nodes * job->workers;
    job->technique = gwi_random_below(&random, 2) ? GWI_TECHNIQUE_ALL
                                                  : (gwi_technique)gwi_random_below(&random, 4);
    job->n_keys = 3 + (int)gwi_random_below(&random, MAX_KEYS - 3);
    for (int k = 0; k < job->n_keys; k++)
        job->lengths[k] = gwi_random_below(&random, 3) ? 1 + 2 * job->n_all
                                                       : 1 + (int64_t)gwi_random_below(&random, 3);
    int err = gwi_geometry_init(&job->geometry, job->n_keys, job->lengths, (size_t)job->n_keys,
                                GW_F64);
    int rare = gwi_random_below(&random, 4) == 0;
    if (args.stall || gwi_random_below(&random, 8) == 0) {
        job->stalled = (int)gwi_random_below(&random, (uint64_t)job->nodes);
        job->stall_from_ns = (int64_t)gwi_random_below(&random, 20 * GWI_MS);
        job->stall_to_ns = job->stall_from_ns + (int64_t)gwi_random_below(&random, 2 * GWI_SECOND);
    }
    for (int n = 0; n < job->nodes && err == 0; n++) {
        struct rank *r = &job->ranks[n];
        gwi_node_options options = {
            .geometry = &job->geometry,
            .node = n,
            .nodes = job->nodes,
            .workers = job->workers,
            .technique = job->technique,
            .round_ns = 1000 + (int64_t)gwi_random_below(&random, rare ? 30000000 : 300000),
            .cache_keys = 1 + (int)gwi_random_below(&random, 40),
            .trace = args.trace ? stderr : NULL};
        *r = (struct rank){.job = job, .id = n};
        gwi_random_init(&r->random, seed, 100 + (uint64_t)n);
        for (int w = 0; w < job->workers; w++)
            r->workers[w] = (struct worker){
                .id = n * job->workers + w,
                .steps_left = 10 + (int)below(r, 40),
                .finish_after = below(r, 4) ? -1 : 1 + (int)below(r, PHASES)};
        err = gwi_node_new(&options, &r->node);
    }
    return err;
}

static void free_job(struct job *job)
{
    for (int n = 0; n < job->nodes; n++)
        gwi_node_free(job->ranks[n].node);
    for (int k = 0; k < job->n_keys; k++) {
        for (size_t i = 0; i < job->n_events[k]; i++)
            free(job->events[k][i].vector);
        free(job->events[k]);
    }
    gwi_geometry_fini(&job->geometry);
}

/* Returns 0, or -1 with the sentence. */
static int run_seed(struct job *job, uint64_t seed, FILE *trace, char *ret_sentence, size_t room)
{
    void *states[MAX_NODES];
    gwi_sim *sim = NULL;
    int err = make_job(job, seed);

    gwi_sim_options options = {.seed = seed, .size = job->nodes, .node_size = 1, .trace = trace};
    if (err == 0)
        err = gwi_sim_new(&options, &sim);
    for (int n = 0; n < job->nodes; n++)
        states[n] = &job->ranks[n];
    if (err == 0)
        err = gwi_sim_run(sim, step, states, 3000000);
    if (err == GW_ETIMEOUT && args.trace)
        print_waits(job);
    if (err == GW_ETIMEOUT)
        snprintf(ret_sentence, room, "P5: %s", gw_last_error());
    else if (err < 0)
        snprintf(ret_sentence, room, "%s", gw_last_error());
    if (err == 0 &&
        (check_owners(job, 1) < 0 || check_copies(job) < 0 || check_histories(job) < 0)) {
        err = -1;
        snprintf(ret_sentence, room, "at the end: %s", job->failure);
    }
    for (int n = 0; n < job->nodes && err == 0; n++)
        if (!gwi_node_valid(job->ranks[n].node)) {
            err = -1;
            snprintf(ret_sentence, room, "node %d is not valid", n);
        }
    gwi_sim_free(sim);
    free_job(job);
    return err;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"seed", 1, NULL, 's'},  {"seeds", 1, NULL, 'n'},
                                            {"trace", 0, NULL, 't'}, {"mutant", 1, NULL, 'm'},
                                            {"stall", 0, NULL, 'S'}, {0}};
    static struct job job;
    char sentence[1024];

    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
        switch (c) {
        case 's':
            args.seed = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            args.seeds = atol(optarg);
            break;
        case 't':
            args.trace = 1;
            break;
        case 'm':
            args.mutant = atoi(optarg);
            break;
        case 'S':
            args.stall = 1;
            break;
        default:
            return 2;
        }
#ifdef GWI_MUTANTS
    gwi_mutant = args.mutant;
#endif
    for (long i = 0; i < args.seeds; i++) {
        uint64_t seed = args.seed + (uint64_t)i;
        if (run_seed(&job, seed, args.trace ? stderr : NULL, sentence, sizeof sentence) < 0) {
            printf("seed %llu: %s\n  replay: %s --seed %llu --seeds 1 --mutant %d --trace\n",
                   (unsigned long long)seed, sentence, argv[0], (unsigned long long)seed,
                   args.mutant);
            return 1;
        }
    }
    printf("%ld seeds, all promises kept\n", args.seeds);
    return 0;
}
