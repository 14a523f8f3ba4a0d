/* machine.c - how the machine is just now, so that figures of different hours can be told apart. */
#include "common.h"

#include <stdlib.h>
#include <string.h>

#define GAP_NS 5000.0 /* longer than to read the clock when the caches are cold */
#define LOOK_NS 500e6
#define N_COPIES 9
#define COPY_BYTES ((size_t)64 << 20)
#define CHASE_BYTES ((size_t)16 << 20) /* more than the second cache has, less than the last */
#define N_STEPS 200000
#define N_SUMS 200
#define N_TURNS 100000
#define N_MATCHES 50
#define N_THROWS 2000

/* Both at once: the share of the time that a loop which only reads the clock did not get. */
static void measure_gaps(bench *b)
{
    series lost = {0}, gaps = {0};
    double begin, last, sum = 0, n = 0;

    meet(b);
    for (begin = last = now_ns(); last - begin < LOOK_NS;) {
        double now = now_ns();
        if (now - last > GAP_NS) {
            sum += now - last;
            n++;
        }
        last = now;
    }
    note(&lost, sum / (last - begin));
    note(&gaps, n / (last - begin) * 1e9);
    say(b, &lost, "lost");
    say(b, &gaps, "gaps");
}

/* Sums in registers, which nothing but another user of the same core slows down. */
static void measure_sums(bench *b)
{
    series found = {0};

    for (int i = 0; i < N_SUMS && b->rank == 0; i++) {
        uint64_t sums[4] = {0};
        double begin = now_ns();
        for (uint64_t turn = 0; turn < N_TURNS; turn++)
            for (int s = 0; s < 4; s++) {
                sums[s] += turn;
                __asm__("" : "+r"(sums[s])); /* the compiler knows better than to loop */
            }
        note(&found, (now_ns() - begin) / N_TURNS);
    }
    say(b, &found, "sums");
}

static void measure_copy(bench *b)
{
    unsigned char *from = get(COPY_BYTES), *to = get(COPY_BYTES);
    series found = {0};

    memset(from, 1, COPY_BYTES);
    memset(to, 2, COPY_BYTES);
    for (int i = 0; i < N_COPIES && b->rank == 0; i++) {
        double begin = now_ns();
        memcpy(to, from, COPY_BYTES);
        note(&found, (double)COPY_BYTES / (now_ns() - begin)); /* GB/s */
    }
    say(b, &found, "copy");
    free(from);
    free(to);
}

/* One round through all lines of a piece of memory, in a random order: each step needs the one
 * before. */
static void measure_chase(bench *b)
{
    const size_t stride = 64 / sizeof(uint32_t), n = CHASE_BYTES / 64;
    uint32_t *next = get(CHASE_BYTES), at = 0;
    series found = {0};

    for (size_t i = 0; i < n; i++)
        next[i * stride] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) { /* a single cycle */
        size_t other = (size_t)below(b, (int64_t)i);
        uint32_t kept = next[i * stride];
        next[i * stride] = next[other * stride];
        next[other * stride] = kept;
    }
    for (int i = 0; i < N_COPIES && b->rank == 0; i++) {
        double begin = now_ns();
        for (int step = 0; step < N_STEPS; step++)
            at = next[at * stride];
        note(&found, (now_ns() - begin) / N_STEPS + (at == UINT32_MAX));
    }
    say(b, &found, "chase");
    free(next);
}

/* Both pass a line to and fro: whether their cores are near to each other or far. */
static void measure_ball(bench *b)
{
    _Atomic uint32_t *ball = &b->common->ball;
    series found = {0};

    meet(b);
    for (int i = 0; i < N_MATCHES; i++) {
        double begin = now_ns();
        for (int n = 0; n < N_THROWS; n++) {
            while (atomic_load(ball) % 2 != (uint32_t)b->rank)
                ;
            atomic_fetch_add(ball, 1);
        }
        note(&found, (now_ns() - begin) / (2 * N_THROWS));
    }
    say(b, &found, "ball");
}

void measure_machine(bench *b)
{
    measure_gaps(b);
    measure_sums(b);
    measure_copy(b);
    measure_chase(b);
    measure_ball(b);
}
