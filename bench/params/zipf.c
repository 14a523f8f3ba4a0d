/* zipf.c - what training does: batches of Zipf(1.0) keys pulled and pushed, announced or not.
 *
 * A batch is pulled, computed with for a millisecond or not at all, and pushed, and the worker's
 * clock advances.  If batches are announced, it is 50 of them ahead.  Each batch has a clock.  The
 * two workers draw differently, but the same keys are popular with both.  Draws are used once
 * as long as they last: a key that comes again would be where it was left.           */
#include "common.h"
#include "draw.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 512
#define AHEAD 50
#define RANKS_SEED 1234567
#define N_DRAWN ((size_t)16 << 20)
#define QUICK_DRAWN ((size_t)4 << 20)
#define LOOK_EVERY 8 /* batches, whether its keys are local */
#define COMPUTE_NS 1e6

struct loop {
    int announced;
    double compute_ns, seconds;
};

struct zipf {
    draw draws;
    int64_t keys[AHEAD + 1][BATCH]; /* of the batches that are known, by number around */
    double n_pushed;
    series rates, locals;
};

static void compute(double ns)
{
    for (double end = now_ns() + ns; ns > 0 && now_ns() < end;)
        ;
}

/* Draw the batch with this number, and announce it for the clock `ahead` of now. */
static void prepare(bench *b, struct zipf *z, struct loop l, int64_t number, int64_t ahead)
{
    int64_t *keys = z->keys[number % (AHEAD + 1)];
    int64_t clock = gw_worker_clock(b->worker) + ahead;

    draw_next(&z->draws, keys, BATCH);
    if (l.announced)
        check(gw_worker_intent(b->worker, (gw_keys){keys, BATCH}, clock, clock + 1));
}

static void run_batch(bench *b, struct zipf *z, struct loop l, int64_t number, pace *p)
{
    const int64_t *keys = z->keys[number % (AHEAD + 1)];

    prepare(b, z, l, number + AHEAD, AHEAD);
    if (number % LOOK_EVERY == 0) {
        double begin = now_ns();
        note(&z->locals, (double)count_local(b, keys, BATCH) / BATCH);
        pace_skip(p, begin);
    }
    call(b, PULL, keys, BATCH);
    compute(l.compute_ns);
    call(b, PUSH, keys, BATCH);
    check(gw_worker_advance_clock(b->worker));
    z->n_pushed += BATCH;
    pace_count(p, BATCH);
}

/* The share of local accesses is a mean: half the batches having all says little. */
static double mean_of(series *s)
{
    double sum = 0;

    for (size_t i = 0; i < s->n; i++)
        sum += s->values[i];
    return sum / (double)s->n;
}

static void say_loop(bench *b, struct zipf *z, struct loop l)
{
    const char *how = l.announced ? " announced" : "",
               *pause = l.compute_ns > 0 ? " computing" : "";
    series mean = {0};

    note(&mean, mean_of(&z->locals));
    z->locals.n = 0;
    say(b, &z->rates, "zipf%s%s", how, pause);
    say(b, &mean, "zipf local%s%s", how, pause);
}

/* The first third is not counted: keys find their places. */
static void run_loop(bench *b, struct zipf *z, struct loop l)
{
    int64_t number = 0;
    pace p;

    for (int64_t i = 0; i < AHEAD; i++)
        prepare(b, z, l, i, i);
    meet(b);
    double begin = now_ns(), end = begin + l.seconds * 1e9;
    for (pace_begin(&p, &z->rates); now_ns() < begin + (end - begin) / 3; number++)
        run_batch(b, z, l, number, &p);
    z->rates.n = z->locals.n = 0;
    for (pace_begin(&p, &z->rates); now_ns() < end; number++)
        run_batch(b, z, l, number, &p);
    for (int i = 0; i < AHEAD; i++) /* what was announced and will not be used is released */
        check(gw_worker_advance_clock(b->worker));
    meet(b);
    say_loop(b, z, l);
}

static void say_lost(bench *b, struct zipf *z)
{
    int64_t *keys = get(N_KEYS * sizeof *keys);
    series lost = {0};

    for (int64_t key = 0; key < N_KEYS; key++)
        keys[key] = key;
    note(&lost, count_lost(b, keys, N_KEYS, z->n_pushed));
    say(b, &lost, "zipf lost");
    free(keys);
}

void measure_zipf(bench *b)
{
    double bare_s = b->quick ? 1.2 : 4, computing_s = b->quick ? 1.5 : 4.5;
    struct loop loops[] = {
        {0, 0, bare_s}, {0, COMPUTE_NS, computing_s}, {1, 0, bare_s}, {1, COMPUTE_NS, computing_s}};
    struct zipf *z = get(sizeof *z);

    draw_init(&z->draws, (draw_options){N_KEYS, b->quick ? QUICK_DRAWN : N_DRAWN, 1,
                                        (uint64_t)b->rank + 1, RANKS_SEED});
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
        run_loop(b, z, loops[i]);
    say_lost(b, z);
    draw_fini(&z->draws);
    free(z);
}
