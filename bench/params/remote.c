/* remote.c - pulls and pushes of keys that the other node has, beside those of keys that are here.
 *
 * Worker 0 calls; worker 1 is asleep outside the library, so its node's agent serves.  Local and
 * remote calls take turns in short blocks.  The first quarter of a block is not timed: it wakes the
 * agent, and brings the caches to where this kind of call leaves them. */
#include "common.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define N_SIZES 3
#define ASLEEP_MS 5.0
#define N_BLOCKS 100
#define QUICK_BLOCKS 20
#define N_ASLEEP 150
#define QUICK_ASLEEP 40

enum where { HERE, THERE, N_WHERE };

static const char *const kind_names[] = {"pull", "push"};
static const char *const where_names[] = {"local", "remote"};

/* Returns ns.  Random keys that are at home on this node or the other one. */
static double time_call(bench *b, enum kind kind, enum where where, size_t n)
{
    static int64_t keys[MOST_KEYS];
    int node = where == HERE ? b->rank : 1 - b->rank;

    for (size_t i = 0; i < n; i++)
        keys[i] = N_WORKERS * below(b, N_KEYS / N_WORKERS) + node;
    double begin = now_ns();
    call(b, kind, keys, n);
    return now_ns() - begin;
}

static void time_block(bench *b, enum kind kind, enum where where, size_t n, series *s)
{
    int n_calls = n == 1 ? 400 : n < 100 ? 100 : 20;

    for (int i = 0; i < n_calls; i++) {
        double took = time_call(b, kind, where, n);
        if (i >= n_calls / 4)
            note(s, took);
    }
}

static void measure_awake(bench *b, enum kind kind, size_t n)
{
    series found[N_WHERE] = {0};
    int n_blocks = b->quick ? QUICK_BLOCKS : N_BLOCKS;

    for (int i = 0; i < n_blocks && b->rank == 0; i++)
        for (enum where where = HERE; where < N_WHERE; where++)
            time_block(b, kind, where, n, &found[where]);
    for (enum where where = HERE; where < N_WHERE; where++)
        say(b, &found[where], "%s %s %zu", where_names[where], kind_names[kind], n);
}

/* A call after so long a pause that everything has gone to sleep. */
static void measure_asleep(bench *b, enum kind kind)
{
    series found[N_WHERE] = {0};
    int n_calls = b->quick ? QUICK_ASLEEP : N_ASLEEP;

    for (int i = 0; i < n_calls && b->rank == 0; i++)
        for (enum where where = HERE; where < N_WHERE; where++) {
            sleep_ms(ASLEEP_MS);
            note(&found[where], time_call(b, kind, where, 1));
        }
    for (enum where where = HERE; where < N_WHERE; where++)
        say(b, &found[where], "%s %s 1 asleep", where_names[where], kind_names[kind]);
}

/* What a wake-up takes by itself: worker 1 sleeps on a word in memory that both share, is woken,
 * and answers there.  No library is between. */
static void measure_wake(bench *b)
{
    common *c = b->common;
    series found = {0};
    uint32_t n_calls = b->quick ? QUICK_ASLEEP : N_ASLEEP;

    for (uint32_t i = 1; i <= n_calls; i++) {
        if (b->rank == 1) {
            while (atomic_load(&c->called) < i)
                syscall(SYS_futex, &c->called, FUTEX_WAIT, i - 1, NULL, NULL, 0);
            atomic_store(&c->answered, i);
            continue;
        }
        sleep_ms(ASLEEP_MS);
        double begin = now_ns();
        atomic_store(&c->called, i);
        syscall(SYS_futex, &c->called, FUTEX_WAKE, 1, NULL, NULL, 0);
        while (atomic_load(&c->answered) < i)
            ;
        note(&found, now_ns() - begin);
    }
    say(b, &found, "bare wake-up");
}

void measure_remote(bench *b)
{
    static const size_t sizes[N_SIZES] = {1, 32, 1024};

    for (enum kind kind = PULL; kind <= PUSH; kind++) {
        for (int i = 0; i < N_SIZES; i++)
            measure_awake(b, kind, sizes[i]);
        measure_asleep(b, kind);
        if (kind == PULL)
            measure_wake(b);
    }
}
