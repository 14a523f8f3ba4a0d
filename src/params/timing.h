/* timing.h - how many clocks ahead of its start an intent must be acted on.
 *
 * A worker's clock advances at a rate that is learned.  Acting takes some time: until the
 * node looks at the intents again, and until a key that is asked for is here.  During that
 * time the clock advances by a number that is random; if advances come independently of
 * each other it has Poisson's distribution.  So an intent is acted on when its start is
 * less than that distribution's upper quantile away.                                  */
#ifndef GWI_PARAMS_TIMING_H
#define GWI_PARAMS_TIMING_H

#include <stdint.h>

typedef struct gwi_timing {
    double per_ns;      /* advances; smoothed */
    int64_t clock;      /* at the last look */
    int64_t looked_ns;  /* 0: never */
} gwi_timing;

/* The clock is now so. */
void gwi_timing_look(gwi_timing *timing, int64_t clock, int64_t now_ns);

/* How many clocks to look ahead if acting takes `span_ns`; at least 1. */
int64_t gwi_timing_ahead(const gwi_timing *timing, double span_ns);

/* The least k such that a variable with this mean is at most k with probability `p`. */
int64_t gwi_poisson_quantile(double mean, double p);

#endif
