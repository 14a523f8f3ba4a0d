/* exact.c - totals are exact, vectors whole, and own writes seen, whoever else is at work.
 *
 *     exact -n 2 -t 4 [--seconds 60] [--seed 1] [--zipf] [--f64]     2 processes of 4 threads
 *           [--node-size 1] [--technique 0]                          (crew.h)
 *
 * With --node-size the job is cut into nodes of so many processes; then workers also announce
 * intents, advance their clocks and bring keys to their nodes, and in the end every node has to
 * show the totals.
 *
 * Whether a call waits is up to chance.  Those that do not have buffers of their own, several at
 * a time; they are waited for in any order, one or all, or asked whether they are done.  Only
 * then is looked at what they have read, and their buffers are spoilt: who has not read or
 * written by then does it too late, and that shows.
 *
 * Keys have lengths of their own and are of three kinds, by number modulo 3:
 *
 *     pushed   by all workers; each counts what it has pushed, and in the end the sum is there
 *     set      by all workers, each with values of its own; in the end one has the last word
 *     owned    written by one worker, both ways, which always knows what must be there
 *
 * All entries of a vector are equal, whatever is written, so one that is read in part shows.
 * Values are whole numbers that either type holds exactly, and spoilt ones are not.     */
#include "base/clock.h"
#include "base/error.h"
#include "crew.h"
#include "params/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OF_A_KIND 200 /* keys */
#define N_KEYS (3 * OF_A_KIND)
#define BATCH 48
#define FEW 4 /* keys of every other call; many would mostly meet those of calls under way */
#define LONGEST 257
#define N_CALLS 8 /* of a worker that are under way at most */
#define SPOILT 0.5
#define SET_TURNS 500000 /* values that a worker sets before it begins again; 2^24 / 32 */

enum { PUSHED, ASSIGNED, OWNED };

static struct {
    int zipf, f64, technique;
} args;

static struct crew crew;

/* The book; written by the workers at the end. */
static struct totals {
    _Atomic int64_t pushed[OF_A_KIND];                /* in all */
    _Atomic int64_t assigned[MAX_WORKERS][OF_A_KIND]; /* by each worker last; 0: never */
    _Atomic int64_t n_keys;                           /* of all calls */
    _Atomic int64_t n_calls;
    _Atomic int64_t n_under_way; /* of the same worker, as calls were made */
} * totals;

static int64_t lengths[N_KEYS];
static double share_below[OF_A_KIND]; /* Zipf: how often a key or one before it is drawn */

/* A call, and what is lent to it until it is done. */
struct call {
    int is_under_way, reads;
    gw_ticket ticket;
    int64_t keys[BATCH];
    int64_t own[BATCH]; /* what this worker had written there when it was made; 0: nothing */
    size_t n, n_entries;
    unsigned char row[BATCH * LONGEST * sizeof(double)]; /* spoilt while it is nobody's */
};

struct context {
    struct hand *hand;
    int64_t pushed[OF_A_KIND], assigned[OF_A_KIND], owned[OF_A_KIND]; /* what must be there */
    int64_t n_turns, n_keys, n_calls, n_under_way;
    struct call calls[N_CALLS];
};

#define EXPECT(condition, text, ...)                                                            \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: worker %d: " text " (seed %d; last error: %s)\n", __FILE__, \
                    __LINE__, c->hand->number, __VA_ARGS__, crew.seed, gw_last_error());        \
            fflush(stderr);                                                                     \
            _exit(1);                                                                           \
        }                                                                                       \
    } while (0)

/* drawing */

static void prepare_keys(void)
{
    double sum = 0;

    /* Short ones, long ones, and those about a cache line. */
    for (int key = 0; key < N_KEYS; key++)
        lengths[key] = key % 7 == 0 ? LONGEST - key % 11 : 1 + key * 5 % 40;
    for (int i = 0; i < OF_A_KIND; i++)
        sum += 1.0 / (i + 1);
    for (int i = 0; i < OF_A_KIND; i++)
        share_below[i] = (i > 0 ? share_below[i - 1] : 0) + 1.0 / (i + 1) / sum;
}

static int draw_index(gwi_random *random)
{
    int low = 0, high = OF_A_KIND - 1;

    if (!args.zipf)
        return (int)gwi_random_below(random, OF_A_KIND);
    double at = gwi_random_double(random);
    while (low < high) {
        int middle = (low + high) / 2;
        if (share_below[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* One of its own keys, in the same distribution. */
static int draw_owned(struct context *c)
{
    int i = draw_index(&c->hand->random) / crew.n_workers * crew.n_workers + c->hand->number;

    return i < OF_A_KIND ? i : c->hand->number;
}

/* NULL: none is under way. */
static struct call *any_call(struct context *c)
{
    size_t first = gwi_random_below(&c->hand->random, N_CALLS);

    for (size_t i = 0; i < N_CALLS; i++)
        if (c->calls[(first + i) % N_CALLS].is_under_way)
            return &c->calls[(first + i) % N_CALLS];
    return NULL;
}

static int is_mine(const struct context *c, int64_t key)
{
    return key % 3 == OWNED && key / 3 % crew.n_workers == c->hand->number;
}

/* One that this worker may push to, set, or (kind -1) pull. */
static int64_t draw_key(struct context *c, int kind)
{
    gwi_random *random = &c->hand->random;
    uint64_t which = gwi_random_below(random, 3);
    int of_kind = kind < 0 ? (int)which : which == 0 ? OWNED : kind;
    int is_own = of_kind == OWNED && (kind >= 0 || gwi_random_below(random, 2));

    return 3 * (is_own ? draw_owned(c) : draw_index(random)) + of_kind;
}

/* The same, and of a call that is under way, if there is one: what is behind it has to wait. */
static int64_t draw_busy_key(struct context *c, int kind)
{
    const struct call *call = any_call(c);
    int64_t key = call == NULL || call->n == 0
                      ? -1
                      : call->keys[gwi_random_below(&c->hand->random, call->n)];

    return key >= 0 && (kind < 0 || key % 3 == kind || is_mine(c, key)) ? key : draw_key(c, kind);
}

static void draw_batch(struct context *c, struct call *call, int kind)
{
    gwi_random *random = &c->hand->random;
    int behind = gwi_random_below(random, 4) == 0;

    call->n = gwi_random_below(random, gwi_random_below(random, 2) ? FEW + 1 : BATCH + 1);
    call->n_entries = 0;
    for (size_t i = 0; i < call->n; i++) {
        call->keys[i] = behind ? draw_busy_key(c, kind) : draw_key(c, kind);
        call->n_entries += (size_t)lengths[call->keys[i]];
    }
}

/* vectors of equal entries */

static void fill(struct call *call, size_t at, size_t n, double value)
{
    for (size_t i = at; i < at + n; i++)
        if (args.f64)
            ((double *)(void *)call->row)[i] = value;
        else
            ((float *)(void *)call->row)[i] = (float)value;
}

static double entry(const struct call *call, size_t at)
{
    return args.f64 ? ((const double *)(const void *)call->row)[at]
                    : (double)((const float *)(const void *)call->row)[at];
}

/* The value of a vector that must be whole. */
static int64_t value_at(const struct context *c, const struct call *call, size_t at, int64_t key)
{
    double value = entry(call, at);

    for (size_t i = 1; i < (size_t)lengths[key]; i++)
        EXPECT(entry(call, at + i) == value,
               "key %lld was read in part: entry 0 is %g, entry %zu is %g", (long long)key, value,
               i, entry(call, at + i));
    EXPECT(value == (double)(int64_t)value, "key %lld is %g", (long long)key, value);
    return (int64_t)value;
}

/* the end of a call */

/* What this worker has written to it and nobody else, or set it to last. */
static int64_t own_value(const struct context *c, int64_t key)
{
    return is_mine(c, key) ? c->owned[key / 3] : key % 3 == ASSIGNED ? c->assigned[key / 3] : 0;
}

/* Exactly the own writes that were made before: later ones may be under way, too. */
static void check_value(const struct context *c, int64_t key, int64_t value, int64_t own)
{
    if (is_mine(c, key))
        EXPECT(value == own, "own key %lld is %lld, not %lld", (long long)key, (long long)value,
               (long long)own);
    if (key % 3 == ASSIGNED && value != 0)
        EXPECT(value >= crew.n_workers && value / crew.n_workers <= SET_TURNS,
               "key %lld is %lld, which nobody set", (long long)key, (long long)value);
    if (key % 3 == ASSIGNED && own != 0)
        EXPECT(value != 0, "key %lld is as if never set", (long long)key);
}

/* It is done: its buffer is ours again. */
static void take_back(struct context *c, struct call *call)
{
    size_t at = 0;

    for (size_t i = 0; call->reads && i < call->n; i++) {
        check_value(c, call->keys[i], value_at(c, call, at, call->keys[i]), call->own[i]);
        at += (size_t)lengths[call->keys[i]];
    }
    fill(call, 0, call->n_entries, SPOILT);
    call->is_under_way = 0;
}

static int is_done(const struct context *c, const struct call *call)
{
    return gw_worker_is_done(c->hand->worker, call->ticket) == 1;
}

static void wait_for(struct context *c, struct call *call)
{
    EXPECT(gw_worker_wait(c->hand->worker, call->ticket) == 0, "%s", "wait");
    for (int i = 0; i < N_CALLS; i++)
        if (c->calls[i].is_under_way && c->calls[i].ticket.seq < call->ticket.seq)
            EXPECT(is_done(c, &c->calls[i]), "call %lld is done, but %lld before it is not",
                   (long long)call->ticket.seq, (long long)c->calls[i].ticket.seq);
    take_back(c, call);
}

static void wait_for_all(struct context *c)
{
    struct call *call;

    EXPECT(gw_worker_wait_all(c->hand->worker) == 0, "%s", "wait_all");
    while ((call = any_call(c)) != NULL)
        take_back(c, call);
}

static void end_some(struct context *c)
{
    struct call *call = any_call(c);
    uint64_t how = gwi_random_below(&c->hand->random, 8);

    if (call == NULL)
        return;
    if (how == 0)
        wait_for_all(c);
    else if (how < 4)
        wait_for(c, call);
    else if (is_done(c, call))
        take_back(c, call);
}

/* calls */

static gw_keys keys_of(const struct call *call)
{
    return (gw_keys){call->keys, call->n};
}

/* One of those that are not under way. */
static struct call *free_call(struct context *c)
{
    struct call *call;

    for (int i = 0; i < N_CALLS; i++)
        if (!c->calls[i].is_under_way)
            return &c->calls[i];
    call = any_call(c);
    wait_for(c, call);
    return call;
}

static struct call *prepare_call(struct context *c, int kind)
{
    struct call *call = free_call(c);

    for (int i = 0; i < N_CALLS; i++)
        c->n_under_way += c->calls[i].is_under_way && !is_done(c, &c->calls[i]);
    c->n_calls++;
    call->reads = 0;
    call->ticket.seq = -1;
    draw_batch(c, call, kind);
    return call;
}

/* NULL: the call shall wait. */
static gw_ticket *draw_ticket(struct context *c, struct call *call)
{
    return gwi_random_below(&c->hand->random, 3) == 0 ? NULL : &call->ticket;
}

static void made(struct context *c, struct call *call)
{
    call->is_under_way = call->ticket.seq >= 0;
    EXPECT(!call->is_under_way || crew.n_nodes > 1, "%s", "a call on one node is not done");
    if (!call->is_under_way)
        take_back(c, call);
    c->n_keys += (int64_t)call->n;
}

static void push(struct context *c)
{
    struct call *call = prepare_call(c, PUSHED);
    size_t at = 0;

    for (size_t i = 0; i < call->n; i++) {
        int64_t value = (int64_t)gwi_random_below(&c->hand->random, 7) - 3, key = call->keys[i];
        *(key % 3 == PUSHED ? &c->pushed[key / 3] : &c->owned[key / 3]) += value;
        fill(call, at, (size_t)lengths[key], (double)value);
        at += (size_t)lengths[key];
    }
    EXPECT(gw_worker_push(c->hand->worker, keys_of(call), call->row, call->n_entries,
                          draw_ticket(c, call)) == 0,
           "%s", "push");
    made(c, call);
}

/* Never the same value twice in a row, and never that of another worker. */
static int64_t next_value(struct context *c)
{
    c->n_turns = c->n_turns % SET_TURNS + 1;
    return c->n_turns * crew.n_workers + c->hand->number;
}

static void set(struct context *c)
{
    struct call *call = prepare_call(c, ASSIGNED);
    size_t at = 0;

    for (size_t i = 0; i < call->n; i++) {
        int64_t value = next_value(c), key = call->keys[i];
        *(key % 3 == ASSIGNED ? &c->assigned[key / 3] : &c->owned[key / 3]) = value;
        fill(call, at, (size_t)lengths[key], (double)value);
        at += (size_t)lengths[key];
    }
    EXPECT(gw_worker_set(c->hand->worker, keys_of(call), call->row, call->n_entries,
                         draw_ticket(c, call)) == 0,
           "%s", "set");
    made(c, call);
}

static void pull(struct context *c)
{
    struct call *call = prepare_call(c, -1);

    call->reads = 1;
    for (size_t i = 0; i < call->n; i++)
        call->own[i] = own_value(c, call->keys[i]);
    EXPECT(gw_worker_pull(c->hand->worker, keys_of(call), call->row, call->n_entries,
                          draw_ticket(c, call)) == 0,
           "%s", "pull");
    made(c, call);
}

/* what moves keys; with several nodes only */

static void localize(struct context *c)
{
    struct call *call = prepare_call(c, -1);

    call->n = call->n < FEW ? call->n : FEW;
    EXPECT(gw_worker_localize(c->hand->worker, keys_of(call), draw_ticket(c, call)) == 0, "%s",
           "localize");
    made(c, call);
}

static void announce(struct context *c)
{
    struct call *call = prepare_call(c, -1);
    int64_t start = gw_worker_clock(c->hand->worker) +
                    (int64_t)gwi_random_below(&c->hand->random, 5);
    int64_t end = start + 1 + (int64_t)gwi_random_below(&c->hand->random, 20);

    EXPECT(gw_worker_intent(c->hand->worker, keys_of(call), start, end) == 0, "%s", "intent");
    made(c, call);
}

static void move(struct context *c)
{
    uint64_t what = gwi_random_below(&c->hand->random, 8);

    if (what < 3)
        announce(c);
    else if (what < 6)
        EXPECT(gw_worker_advance_clock(c->hand->worker) == 0, "%s", "advance_clock");
    else if (what < 7)
        localize(c);
    else
        EXPECT(gw_worker_wait_sync(c->hand->worker) == 0, "%s", "wait_sync");
}

/* the end */

static void meet(struct context *c)
{
    EXPECT(gw_worker_barrier(c->hand->worker) == 0, "%s", "barrier");
}

static int64_t read_one(struct context *c, int64_t key)
{
    struct call *call = &c->calls[0];

    EXPECT(gw_worker_pull(c->hand->worker, (gw_keys){&key, 1}, call->row, (size_t)lengths[key],
                          NULL) == 0,
           "%s", "pull");
    return value_at(c, call, 0, key);
}

static void check_assigned(struct context *c, int index)
{
    int64_t value = read_one(c, 3 * index + ASSIGNED);
    int found = 0, never = 1;

    for (int w = 0; w < crew.n_workers; w++) {
        found |= totals->assigned[w][index] == value;
        never &= totals->assigned[w][index] == 0;
    }
    EXPECT(found || (never && value == 0), "key %d is %lld, which nobody set last",
           3 * index + ASSIGNED, (long long)value);
}

static void check_end(struct context *c)
{
    for (int i = 0; i < OF_A_KIND; i++) {
        totals->pushed[i] += c->pushed[i];
        totals->assigned[c->hand->number][i] = c->assigned[i];
    }
    meet(c);
    for (int i = 0; i < OF_A_KIND; i++) {
        int64_t value = read_one(c, 3 * i + PUSHED);
        EXPECT(value == totals->pushed[i], "key %d is %lld, but %lld were pushed", 3 * i + PUSHED,
               (long long)value, (long long)totals->pushed[i]);
        check_assigned(c, i);
        if (i % crew.n_workers == c->hand->number)
            EXPECT(read_one(c, 3 * i + OWNED) == c->owned[i], "own key %d is not %lld",
                   3 * i + OWNED, (long long)c->owned[i]);
    }
    if (c->hand->number == 0 && crew.n_nodes == 1)
        EXPECT(gwi_store_valid(&c->hand->params->store), "%s", "the store breaks its rules");
    meet(c);
}

static void do_something(struct context *c)
{
    uint64_t what = gwi_random_below(&c->hand->random, crew.node_size > 0 ? 10 : 8);

    if (what > 7)
        move(c);
    else if (what < 3)
        push(c);
    else if (what == 3)
        set(c);
    else
        pull(c);
    if (gwi_random_below(&c->hand->random, 4) == 0)
        end_some(c);
}

static struct context *new_context(struct hand *hand)
{
    struct context *c = calloc(1, sizeof *c);

    if (c == NULL)
        abort();
    c->hand = hand;
    for (int i = 0; i < N_CALLS; i++)
        fill(&c->calls[i], 0, (size_t)BATCH * LONGEST, SPOILT);
    return c;
}

static void work(struct hand *hand)
{
    struct context *c = new_context(hand);
    int64_t limit = gwi_deadline_ns(crew.seconds * GWI_SECOND);

    meet(c);
    for (int i = 0; i % 64 != 0 || gwi_now_ns() < limit; i++)
        do_something(c);
    totals->n_keys += c->n_keys;
    totals->n_calls += c->n_calls;
    totals->n_under_way += c->n_under_way;
    wait_for_all(c);
    EXPECT(gw_worker_end_setup(c->hand->worker) == 0, "%s", "end_setup");
    check_end(c);
    free(c);
}

/* starting */

static void prepare(gw_params_options *opt)
{
    totals = crew.book;
    prepare_keys();
    opt->num_keys = N_KEYS;
    opt->lengths = lengths;
    opt->n_lengths = N_KEYS;
    opt->dtype = args.f64 ? GW_F64 : GW_F32;
    opt->technique = args.technique;
}

static int report(void)
{
    printf("%s keys, %s: %.2f million keys a second, %.1f calls under way behind each\n",
           args.zipf ? "Zipf" : "uniform", args.f64 ? "f64" : "f32",
           (double)totals->n_keys / 1e6 / crew.seconds,
           (double)totals->n_under_way / (double)totals->n_calls);
    return totals->n_keys > 0 && (crew.n_nodes == 1 || totals->n_under_way > 0);
}

int main(int argc, char **argv)
{
    static const struct choice choices[] = {
        {"zipf", 0, &args.zipf},
        {"f64", 0, &args.f64},
        {"technique", 3, &args.technique},
        {NULL, 0, NULL},
    };

    crew.choices = choices;
    crew.book_bytes = sizeof *totals;
    crew.prepare = prepare;
    crew.work = work;
    crew.report = report;
    return crew_main(&crew, argc, argv);
}
