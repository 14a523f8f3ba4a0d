/* exact.c - totals are exact, vectors whole, and own writes seen, whoever else is at work.
 *
 *     exact -n 2 -t 4 [--seconds 60] [--seed 1] [--zipf] [--f64]     2 processes of 4 threads
 *           [--node-size 1] [--technique 0]                          (crew.h)
 *
 * With --node-size the job is cut into nodes of so many processes; then workers also announce
 * intents, advance their clocks, bring keys to their nodes and start operations without waiting,
 * and in the end every node has to show the totals.
 *
 * Keys have lengths of their own and are of three kinds, by number modulo 3:
 *
 *     pushed   by all workers; each counts what it has pushed, and in the end the sum is there
 *     set      by all workers, each with values of its own; in the end one has the last word
 *     owned    written by one worker, both ways, which always knows what must be there
 *
 * All entries of a vector are equal, whatever is written, so one that is read in part shows.
 * Values are whole numbers that either type holds exactly.                              */
#include "base/clock.h"
#include "base/error.h"
#include "crew.h"
#include "params/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OF_A_KIND 200 /* keys */
#define N_KEYS (3 * OF_A_KIND)
#define BATCH 48
#define LONGEST 257
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
} * totals;

static int64_t lengths[N_KEYS];
static double share_below[OF_A_KIND]; /* Zipf: how often a key or one before it is drawn */

struct context {
    struct hand *hand;
    int64_t pushed[OF_A_KIND], assigned[OF_A_KIND], owned[OF_A_KIND]; /* what must be there */
    int64_t n_turns;
    int64_t keys[BATCH], values[BATCH];
    size_t n, n_entries;
    unsigned char row[BATCH * LONGEST * sizeof(double)];
    unsigned char ones[LONGEST * sizeof(double)]; /* what does not wait is lent for longer */
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

/* Some keys that this worker may push to, set, or (kind -1) pull. */
static void draw_batch(struct context *c, int kind)
{
    c->n = gwi_random_below(&c->hand->random, BATCH + 1);
    c->n_entries = 0;
    for (size_t i = 0; i < c->n; i++) {
        uint64_t which = gwi_random_below(&c->hand->random, 3);
        int of_kind = kind < 0 ? (int)which : which == 0 ? OWNED : kind;
        int index = of_kind == OWNED && (kind >= 0 || gwi_random_below(&c->hand->random, 2))
                        ? draw_owned(c)
                        : draw_index(&c->hand->random);
        c->keys[i] = 3 * index + of_kind;
        c->n_entries += (size_t)lengths[c->keys[i]];
    }
}

/* vectors of equal entries */

static void fill(struct context *c, size_t at, size_t n, int64_t value)
{
    for (size_t i = at; i < at + n; i++)
        if (args.f64)
            ((double *)(void *)c->row)[i] = (double)value;
        else
            ((float *)(void *)c->row)[i] = (float)value;
}

static double entry(const struct context *c, size_t at)
{
    return args.f64 ? ((const double *)(const void *)c->row)[at]
                    : (double)((const float *)(const void *)c->row)[at];
}

/* The value of a vector that must be whole. */
static int64_t value_at(struct context *c, size_t at, int64_t key)
{
    double value = entry(c, at);

    for (size_t i = 1; i < (size_t)lengths[key]; i++)
        EXPECT(entry(c, at + i) == value,
               "key %lld was read in part: entry 0 is %g, entry %zu is %g", (long long)key, value,
               i, entry(c, at + i));
    EXPECT(value == (double)(int64_t)value, "key %lld is %g", (long long)key, value);
    return (int64_t)value;
}

/* calls */

static gw_keys keys_of(const struct context *c)
{
    return (gw_keys){c->keys, c->n};
}

static void push(struct context *c)
{
    size_t at = 0;

    draw_batch(c, PUSHED);
    for (size_t i = 0; i < c->n; i++) {
        int64_t value = (int64_t)gwi_random_below(&c->hand->random, 7) - 3, key = c->keys[i];
        *(key % 3 == PUSHED ? &c->pushed[key / 3] : &c->owned[key / 3]) += value;
        fill(c, at, (size_t)lengths[key], value);
        at += (size_t)lengths[key];
    }
    EXPECT(gw_worker_push(c->hand->worker, keys_of(c), c->row, c->n_entries, NULL) == 0, "%s",
           "push");
}

/* Never the same value twice in a row, and never that of another worker. */
static int64_t next_value(struct context *c)
{
    c->n_turns = c->n_turns % SET_TURNS + 1;
    return c->n_turns * crew.n_workers + c->hand->number;
}

static void set(struct context *c)
{
    size_t at = 0;

    draw_batch(c, ASSIGNED);
    for (size_t i = 0; i < c->n; i++) {
        int64_t value = next_value(c), key = c->keys[i];
        *(key % 3 == ASSIGNED ? &c->assigned[key / 3] : &c->owned[key / 3]) = value;
        fill(c, at, (size_t)lengths[key], value);
        at += (size_t)lengths[key];
    }
    EXPECT(gw_worker_set(c->hand->worker, keys_of(c), c->row, c->n_entries, NULL) == 0, "%s",
           "set");
}

static void pull(struct context *c)
{
    size_t at = 0;

    draw_batch(c, -1);
    EXPECT(gw_worker_pull(c->hand->worker, keys_of(c), c->row, c->n_entries, NULL) == 0, "%s",
           "pull");
    for (size_t i = 0; i < c->n; i++) {
        int64_t key = c->keys[i], value = value_at(c, at, key);
        at += (size_t)lengths[key];
        if (key % 3 == OWNED && key / 3 % crew.n_workers == c->hand->number)
            EXPECT(value == c->owned[key / 3], "own key %lld is %lld, not %lld", (long long)key,
                   (long long)value, (long long)c->owned[key / 3]);
        if (key % 3 == ASSIGNED && value != 0)
            EXPECT(value >= crew.n_workers && value / crew.n_workers <= SET_TURNS,
                   "key %lld is %lld, which nobody set", (long long)key, (long long)value);
        if (key % 3 == ASSIGNED && c->assigned[key / 3] != 0)
            EXPECT(value != 0, "key %lld is as if never set", (long long)key);
    }
}

/* the end */

static void meet(struct context *c)
{
    EXPECT(gw_worker_barrier(c->hand->worker) == 0, "%s", "barrier");
}

static int64_t read_one(struct context *c, int64_t key)
{
    EXPECT(gw_worker_pull(c->hand->worker, (gw_keys){&key, 1}, c->row, (size_t)lengths[key],
                          NULL) == 0,
           "%s", "pull");
    return value_at(c, 0, key);
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

/* What moves keys, and what does not wait; with several nodes only. */
static void move(struct context *c)
{
    int64_t clock = gw_worker_clock(c->hand->worker),
            start = clock + (int64_t)gwi_random_below(&c->hand->random, 5);
    uint64_t what = gwi_random_below(&c->hand->random, 8);

    draw_batch(c, -1);
    if (what < 3)
        EXPECT(gw_worker_intent(c->hand->worker, keys_of(c), start,
                                start + 1 + (int64_t)gwi_random_below(&c->hand->random, 20)) == 0,
               "%s", "intent");
    else if (what < 6)
        EXPECT(gw_worker_advance_clock(c->hand->worker) == 0, "%s", "advance_clock");
    else if (what < 7)
        EXPECT(gw_worker_localize(c->hand->worker, (gw_keys){c->keys, c->n < 4 ? c->n : 4}, NULL) ==
                   0,
               "%s", "localize");
    else
        EXPECT(gw_worker_wait_sync(c->hand->worker) == 0, "%s", "wait_sync");
    c->n = 0;
}

/* Push and do not wait; what follows must see it all the same. */
static void push_on(struct context *c)
{
    gw_ticket ticket;
    int64_t key = 3 * (int64_t)gwi_random_below(&c->hand->random, OF_A_KIND) + PUSHED;

    c->pushed[key / 3]++;
    EXPECT(gw_worker_push(c->hand->worker, (gw_keys){&key, 1}, c->ones, (size_t)lengths[key],
                          &ticket) == 0,
           "%s", "push");
    if (gwi_random_below(&c->hand->random, 4) == 0)
        EXPECT(gw_worker_wait(c->hand->worker, ticket) == 0, "%s", "wait");
    c->n = 1;
}

static void work(struct hand *hand)
{
    struct context *c = calloc(1, sizeof *c);
    int64_t limit = gwi_deadline_ns(crew.seconds * GWI_SECOND), n_keys = 0;

    if (c == NULL)
        abort();
    c->hand = hand;
    fill(c, 0, LONGEST, 1);
    memcpy(c->ones, c->row, sizeof c->ones);
    meet(c);
    for (int i = 0; i % 64 != 0 || gwi_now_ns() < limit; i++) {
        uint64_t what = gwi_random_below(&c->hand->random, crew.node_size > 0 ? 11 : 8);
        if (what == 8)
            push_on(c);
        else if (what > 8)
            move(c);
        else if (what < 3)
            push(c);
        else if (what == 3)
            set(c);
        else
            pull(c);
        n_keys += (int64_t)c->n;
    }
    totals->n_keys += n_keys;
    EXPECT(gw_worker_wait_all(c->hand->worker) == 0, "%s", "wait_all");
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
    printf("%s keys, %s: %.2f million keys a second\n", args.zipf ? "Zipf" : "uniform",
           args.f64 ? "f64" : "f32", (double)totals->n_keys / 1e6 / crew.seconds);
    return totals->n_keys > 0;
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
