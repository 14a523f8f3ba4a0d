/* draw.h - which keys a worker asks for.
 *
 * Drawn beforehand, so many that they do not all stay in a cache, and handed out batch by
 * batch, from the first again after the last.  `zipf`: key of rank r with weight 1/r; which
 * key has which rank is random, so that popular ones are not neighbours.  Workers with the
 * same `ranks_seed` have the same popular ones.                                       */
#ifndef BENCH_DRAW_H
#define BENCH_DRAW_H

#include <stddef.h>
#include <stdint.h>

#define DRAW_N ((size_t)4 << 20) /* 16 MB of them */

typedef struct draw {
    int32_t *keys; /* owned */
    size_t n, at;
} draw;

typedef struct draw_options {
    int64_t n_keys;
    size_t n; /* to be drawn */
    int zipf; /* else all keys alike */
    uint64_t seed, ranks_seed;
} draw_options;

void draw_init(draw *d, draw_options opt);
void draw_fini(draw *d);
void draw_next(draw *d, int64_t *ret_keys, size_t n); /* `n` divides the number drawn */

/* The next of a sequence of random numbers. */
uint64_t draw_random(uint64_t *state);

#endif
