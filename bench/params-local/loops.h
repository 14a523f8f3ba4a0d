/* loops.h - the limit: what a plain loop over a private array takes.
 *
 * `ahead` is how many keys ahead a row is fetched from memory; 0: the processor finds out by
 * itself.  Of a long row only the first lines are fetched, the processor does the rest.    */
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

#include <stddef.h>
#include <stdint.h>

typedef struct loop_table {
    float *rows; /* row of key k at k * length */
    size_t length;
} loop_table;

void loop_gather(loop_table table, const int64_t *keys, size_t n, size_t ahead, float *out);
void loop_scatter_add(loop_table table, const int64_t *keys, size_t n, size_t ahead,
                      const float *updates);

#endif
