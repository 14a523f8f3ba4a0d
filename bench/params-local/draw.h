/* draw.h - which keys a worker asks for.
 *
 * Drawn beforehand, so many that they do not all stay in a cache, and handed out batch by
 * batch.  `zipf`: key of rank r with weight 1/r; which key has which rank is random, so
 * that popular ones are not neighbours.                                               */
#ifndef BENCH_DRAW_H
#define BENCH_DRAW_H

#include <stddef.h>
#include <stdint.h>

#define DRAW_N ((size_t)4 << 20)

typedef struct draw {
    int32_t *keys; /* DRAW_N of them; owned */
    size_t at;
} draw;

void draw_init(draw *d, int64_t n_keys, int zipf, uint64_t seed);
void draw_fini(draw *d);
void draw_next(draw *d, int64_t *ret_keys, size_t n); /* `n` divides DRAW_N */

#endif
