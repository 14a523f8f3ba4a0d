/* history.c - what real workers see of a few hot keys is sequentially consistent.
 *
 *     history -n 2 -t 2 [--seconds 60] [--seed 1] [--f32]      2 processes of 2 threads
 *     history -n 4 -t 1 --node-size 2 [--moves]                2 nodes; keys are localized
 *                                                              (crew.h)
 *
 * In rounds: all workers pull, push and set keys drawn by lot, several at once and some of
 * them twice, and write down what they saw; then one of them looks for an order that
 * explains it, key by key (checker.h).  Vectors hold several copies of the value, so that
 * one that is read in part shows.  Ends with 1 and a sentence if there is none.        */
#include "base/error.h"
#include "checker.h"
#include "crew.h"
#include "fabric/processes_test.h"

#include <sched.h>

#define KEYS 3
#define BATCH 4
#define CALLS 1500 /* of a worker in a round; f32 counts up to 2^24 */
#define COPIES 9   /* of the value in a vector */

static struct {
    int f32, moves;
} args;

static struct crew crew;

/* One key of a call. */
struct record {
    int kind; /* '+', '=', '?' */
    int key;
    int64_t id;                          /* of a set */
    double entries[2 * MAX_WORKERS + 1]; /* of a pull */
};

struct log {
    int n;
    struct record records[CALLS * BATCH];
};

static struct book {
    int64_t rounds, operations, pulls; /* that were checked; written by the worker that checks */
    struct log logs[MAX_WORKERS];      /* each by its worker, between two barriers */
} * book;

static size_t n_entries; /* of the value */

struct context {
    struct hand *hand;
    int64_t pushes[KEYS], sets; /* so far in this round */
    double row[BATCH * COPIES * (2 * MAX_WORKERS + 1)];
    float row32[BATCH * COPIES * (2 * MAX_WORKERS + 1)];
};

/* calls, in the type of the parameters */

static size_t row_length(void)
{
    return COPIES * n_entries;
}

static void call(struct context *c, int kind, gw_keys keys)
{
    size_t n = keys.n * row_length();
    void *values = args.f32 ? (void *)c->row32 : (void *)c->row;

    for (size_t i = 0; i < n && args.f32 && kind != '?'; i++)
        c->row32[i] = (float)c->row[i];
    REQUIRE((kind == '?'   ? gw_worker_pull(c->hand->worker, keys, values, n, NULL)
             : kind == '+' ? gw_worker_push(c->hand->worker, keys, values, n, NULL)
                           : gw_worker_set(c->hand->worker, keys, values, n, NULL)) == 0);
    for (size_t i = 0; i < n && args.f32 && kind == '?'; i++)
        c->row[i] = c->row32[i];
}

static void repeat(double *row)
{
    for (int copy = 1; copy < COPIES; copy++)
        memcpy(row + (size_t)copy * n_entries, row, n_entries * sizeof *row);
}

static int copies_are_equal(const double *row)
{
    for (int copy = 1; copy < COPIES; copy++)
        if (memcmp(row + (size_t)copy * n_entries, row, n_entries * sizeof *row) != 0)
            return 0;
    return 1;
}

/* Between other nodes' calls on the same key. */
static void fetch_a_key(struct context *c)
{
    int64_t key = (int64_t)gwi_random_below(&c->hand->random, KEYS);

    REQUIRE(gw_worker_localize(c->hand->worker, (gw_keys){&key, 1}, NULL) == 0);
}

static void run_call(struct context *c)
{
    uint64_t what = gwi_random_below(&c->hand->random, 16);
    int kind = what == 0 ? '=' : what < 8 ? '+' : '?';
    struct log *log = &book->logs[c->hand->number];
    struct record *record = &log->records[log->n];
    int64_t keys[BATCH];
    size_t n = 1 + gwi_random_below(&c->hand->random, BATCH);

    for (size_t i = 0; i < n; i++) {
        double *row = c->row + i * row_length();
        keys[i] = (int64_t)gwi_random_below(&c->hand->random, KEYS);
        record[i] = (struct record){.kind = kind, .key = (int)keys[i]};
        if (kind == '+') {
            history_push_vector(crew.n_workers, c->hand->number, ++c->pushes[keys[i]], row);
        } else if (kind == '=') {
            record[i].id = ++c->sets * crew.n_workers + c->hand->number; /* unlike all others */
            history_set_vector(crew.n_workers, record[i].id, row);
        }
        if (kind != '?')
            repeat(row);
    }
    call(c, kind, (gw_keys){keys, n});
    for (size_t i = 0; i < n && kind == '?'; i++) {
        if (!copies_are_equal(c->row + i * row_length())) {
            fprintf(stderr, "worker %d read key %d in part (seed %d)\n", c->hand->number,
                    record[i].key, crew.seed);
            _exit(1);
        }
        memcpy(record[i].entries, c->row + i * row_length(), n_entries * sizeof(double));
    }
    log->n += (int)n;
    if (gwi_random_below(&c->hand->random, 64) == 0)
        sched_yield();
}

/* checking */

static void add(struct history *h, int worker, const struct record *r)
{
    if (r->kind == '+')
        history_add_push(h, worker);
    else if (r->kind == '=')
        history_add_set(h, worker, r->id);
    else
        history_add_pull(h, worker, r->entries);
}

static void check_key(int key)
{
    struct history *h = history_new(crew.n_workers);
    char reason[1024];

    for (int w = 0; w < crew.n_workers; w++)
        for (int i = 0; i < book->logs[w].n; i++)
            if (book->logs[w].records[i].key == key) {
                add(h, w, &book->logs[w].records[i]);
                book->operations++;
                book->pulls += book->logs[w].records[i].kind == '?';
            }
    if (!history_check(h, reason, sizeof reason)) {
        fprintf(stderr, "key %d, round %lld, seed %d: %s\n", key, (long long)book->rounds,
                crew.seed, reason);
        _exit(1);
    }
    history_free(h);
}

static void meet(struct context *c)
{
    REQUIRE(gw_worker_barrier(c->hand->worker) == 0);
}

/* All keys as if set by number 0. */
static void clear_keys(struct context *c)
{
    for (int64_t key = 0; key < KEYS; key++) {
        memset(c->row, 0, row_length() * sizeof *c->row);
        call(c, '=', (gw_keys){&key, 1});
    }
}

static void work(struct hand *hand)
{
    struct context *c = calloc(1, sizeof *c);
    int64_t limit = gwi_deadline_ns(crew.seconds * GWI_SECOND);

    REQUIRE(c != NULL);
    c->hand = hand;
    for (int64_t round = 0;; round++) {
        if (c->hand->number == 0) {
            clear_keys(c);
            book->rounds = gwi_now_ns() < limit ? round + 1 : -round; /* below 1: no more */
        }
        meet(c);
        if (book->rounds <= 0)
            break;
        memset(c->pushes, 0, sizeof c->pushes);
        c->sets = 0;
        book->logs[c->hand->number].n = 0;
        for (int i = 0; i < CALLS; i++) {
            if (args.moves && gwi_random_below(&c->hand->random, 8) == 0)
                fetch_a_key(c);
            run_call(c);
        }
        meet(c);
        if (c->hand->number == 0)
            for (int key = 0; key < KEYS; key++)
                check_key(key);
        meet(c);
    }
    free(c);
}

static void prepare(gw_params_options *opt)
{
    static int64_t length;

    book = crew.book;
    n_entries = history_entries(crew.n_workers);
    length = (int64_t)row_length();
    opt->num_keys = KEYS;
    opt->lengths = &length;
    opt->n_lengths = 1;
    opt->dtype = args.f32 ? GW_F32 : GW_F64;
}

static int report(void)
{
    printf("%s: %lld operations, %lld of them pulls, in %lld rounds on %d keys\n",
           args.f32 ? "f32" : "f64", (long long)book->operations, (long long)book->pulls,
           -(long long)book->rounds, KEYS);
    return book->operations > 0;
}

int main(int argc, char **argv)
{
    static const struct choice choices[] = {
        {"f32", 0, &args.f32},
        {"moves", 0, &args.moves},
        {NULL, 0, NULL},
    };

    crew.choices = choices;
    crew.book_bytes = sizeof *book;
    crew.prepare = prepare;
    crew.work = work;
    crew.report = report;
    return crew_main(&crew, argc, argv);
}
