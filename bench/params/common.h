/* common.h - what the measurements of parameters on two nodes have in common.
 *
 * Two processes with a worker each run the same measurement.  Beside the job they share a piece
 * of memory from before they were forked, in which they meet and collect what they noted.
 *
 * Owning   get() gives memory that the caller frees, or that lives as long as the process.
 * Failing  Whatever goes wrong ends the process, with a sentence on stderr.            */
#ifndef BENCH_PARAMS_COMMON_H
#define BENCH_PARAMS_COMMON_H

#include <godwit/params.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LENGTH 64
#define N_KEYS 1000000
#define N_WORKERS 2
#define MOST_KEYS 10000 /* of a call that moves values */
#define MOST_SAMPLES ((size_t)1 << 16)
#define MOST_STATISTICS 64
#define FOREVER ((int64_t)1 << 40) /* clocks */

/* Figures that belong together.  What does not fit any more is left out. */
typedef struct series {
    double *values; /* MOST_SAMPLES of them, or NULL as long as there are none; owned */
    size_t n;
} series;

/* Of both processes. */
typedef struct common {
    pthread_barrier_t meeting;
    /* by each rank, read by the others after a meeting */
    double samples[N_WORKERS][MOST_SAMPLES];
    size_t n_samples[N_WORKERS];
    /* a push that the other worker waits for: by rank 0 */
    _Atomic int64_t pushed_ns;
    _Atomic int64_t n_pushed; /* after pushed_ns */
    _Atomic uint32_t called;  /* a futex: how often rank 1 was woken */
    /* by rank 1 */
    _Atomic int64_t n_seen;
    _Atomic uint32_t answered;
    /* by whose turn it is: rank 0 if it is even */
    _Alignas(64) _Atomic uint32_t ball;
} common;

typedef struct bench {
    int rank, quick;
    int n_nodes; /* 2, or 1 that has both workers */
    gw_world *world;
    gw_params *params;
    gw_worker *worker;
    common *common;
    uint64_t random; /* state */
    float *values;   /* of MOST_KEYS keys, for pulls */
    float *units;    /* as many, for pushes: of row i entry i % LENGTH is 1, the others 0 */
} bench;

enum kind { PULL, PUSH, SET };

/* The measurements.  Both processes call the same. */
void measure_machine(bench *b);
void measure_local(bench *b);
void measure_remote(bench *b);
void measure_localize(bench *b);
void measure_intent(bench *b);
void measure_hot(bench *b);
void measure_idle(bench *b);
void measure_zipf(bench *b);

void check(int err); /* of a call of Godwit's */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void *get(size_t n_bytes); /* zeros */
double now_ns(void);       /* the same in both processes */
void sleep_ms(double ms);
int64_t below(bench *b, int64_t limit); /* a random number */

common *map_common(void); /* before the processes are forked */
/* Wait for both; when one fails the other is ended, since it would wait for it.  Returns whether
 * one failed. */
int wait_for(const pid_t *children);

void open_params(bench *b, const char *job); /* join, open, and the process's worker */

/* Wait for the other process, asleep and outside the library: its worker serves nobody meanwhile,
 * as one that computes. */
void meet(bench *b);

void note(series *s, double value);

/* Collective: rank 0 prints median, 10 % and 90 % of what both noted as a line of JSON, and what
 * was noted is forgotten. */
void say(bench *b, series *s, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Collective: what both have together. */
double sum_of_both(bench *b, double value);

/* Pull, push or set keys, and return when it is done. */
void call(bench *b, enum kind kind, const int64_t *keys, size_t n);

/* What Godwit counted in this process: all, of all that of this name, and the two together.  They
 * fail if there is none. */
void read_statistics(bench *b, int64_t *ret_values); /* [MOST_STATISTICS] */
double statistic_of(const int64_t *values, const char *name);
double statistic(bench *b, const char *name);

/* How many of them are local. */
size_t count_local(bench *b, const int64_t *keys, size_t n);

/* Collective: announce keys on both nodes, from now on for ever, and return when each has them all.
 * Each begins with those that are at home there, so that owners stay. */
void replicate(bench *b, const int64_t *keys, size_t n);

/* Collective: how many of the pushes that both workers made since the keys were set to ones are
 * missing in the sum of these keys, as this node sees it.  `n_pushed`: of these keys, by this
 * worker. The sum is exact: an update adds 1 to one entry, and which one is chance, so that none of
 * them comes to where a float has no room for another 1. */
double count_lost(bench *b, const int64_t *keys, size_t n, double n_pushed);

/* Keys per second of a loop, noted for each tenth of a second. */
typedef struct pace {
    series *rates;
    double begin, skipped; /* ns */
    double n_keys;
} pace;

void pace_begin(pace *p, series *rates);
void pace_count(pace *p, size_t n_keys);  /* these are done */
void pace_skip(pace *p, double since_ns); /* what was done since then is no part of the loop */

#endif
