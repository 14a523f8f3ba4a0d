/* moves.c - keys that move to the node where they are wanted: asked for in bulk, and announced. */
#include "common.h"
#include "draw.h"

#include <stdlib.h>

#define N_THERE (N_KEYS / N_WORKERS) /* keys at home on one node */
#define PER_CALL 10000
#define ARRIVAL_NS 10e9
#define PAUSE_MS 5.0

/* The keys at home on node 1, in a random order that is the same in both processes. */
static int64_t *shuffle_keys(void)
{
    int64_t *keys = get(N_THERE * sizeof *keys);
    uint64_t random = 5;

    for (int64_t i = 0; i < N_THERE; i++) {
        int64_t other = (int64_t)(draw_random(&random) % (uint64_t)(i + 1));
        keys[i] = keys[other];
        keys[other] = N_WORKERS * i + 1;
    }
    return keys;
}

/* Bring all keys here, and pull each call's keys when they are. */
static void localize_all(bench *b, const int64_t *keys, series *moves, series *pulls)
{
    for (size_t at = 0; at < N_THERE; at += PER_CALL) {
        double begin = now_ns();
        check(gw_worker_localize(b->worker, (gw_keys){keys + at, PER_CALL}, NULL));
        double moved = now_ns();
        call(b, PULL, keys + at, PER_CALL);
        double pulled = now_ns();
        note(moves, moved - begin);
        note(pulls, pulled - moved);
    }
}

/* Worker 0 brings the keys of node 1 to node 0, then worker 1 brings them home. */
void measure_localize(bench *b)
{
    int64_t *keys = shuffle_keys();
    int n_turns = b->quick ? 2 : 6;
    series moves = {0}, pulls = {0}, none = {0};

    for (int turn = 0; turn < n_turns; turn++) {
        if (turn % N_WORKERS == b->rank)
            localize_all(b, keys, &moves, &pulls);
        meet(b);
    }
    say(b, b->rank == 0 ? &moves : &none, "localize away");
    say(b, b->rank == 1 ? &moves : &none, "localize home");
    say(b, &pulls, "local pull %d", PER_CALL);
    free(keys);
}

/* from an intent to a key that is local */

/* Returns ns. */
static double time_intent(bench *b, const int64_t *keys, size_t n)
{
    int64_t clock = gw_worker_clock(b->worker);
    double begin = now_ns();

    check(gw_worker_intent(b->worker, (gw_keys){keys, n}, clock, clock + 1));
    while (count_local(b, keys, n) < n)
        if (now_ns() - begin > ARRIVAL_NS)
            fail("of %zu announced keys only %zu are local after 10 s", n, count_local(b, keys, n));
    double took = now_ns() - begin;
    check(gw_worker_advance_clock(b->worker)); /* releases them */
    return took;
}

/* Different keys each time, since they stay when nobody else wants them. */
static void measure_intents(bench *b, const int64_t **keys, size_t n, double pause_ms)
{
    int n_calls = n == 1 ? 300 : b->quick ? 40 : 150;
    series found = {0};

    if (b->quick && n == 1)
        n_calls = 100;
    for (int i = 0; i < n_calls && b->rank == 0; i++) {
        if (pause_ms > 0)
            sleep_ms(pause_ms);
        note(&found, time_intent(b, *keys, n));
        *keys += n;
    }
    say(b, &found, "intent %zu%s", n, pause_ms > 0 ? " asleep" : "");
}

/* Worker 0 announces keys of node 1; worker 1 sleeps. */
void measure_intent(bench *b)
{
    int64_t *keys = shuffle_keys();
    const int64_t *next = keys;

    for (size_t n = 1; n <= 1024; n *= 1024) {
        measure_intents(b, &next, n, 0);
        measure_intents(b, &next, n, PAUSE_MS);
    }
    free(keys);
}
