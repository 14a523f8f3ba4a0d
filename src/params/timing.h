/* timing.h - how many clocks ahead of its start an intent must be acted on.
 *
 * Acting takes some time: until the node looks at the intents again, and until a key that is
 * asked for is here.  Acting earlier than that costs as well, because a replica that is not used
 * yet must be kept up to date.  So an intent whose start is k clocks away is acted on when k
 * advances of the clock might take no longer than acting does.
 *
 * What k advances might take is learned: it is the shortest time that they took lately, less
 * the time since the last advance.  That assumes nothing about how advances come.  The time of
 * acting is learned too, as one that is rarely exceeded.                              */
#ifndef GWI_PARAMS_TIMING_H
#define GWI_PARAMS_TIMING_H

#include <stdint.h>

#define GWI_TIMING_SEEN 32 /* a power of two */

/* A worker's clock, as it was seen to advance. */
typedef struct gwi_timing {
    struct gwi_clock_seen {
        int64_t clock, at_ns;
    } seen[GWI_TIMING_SEEN]; /* the last ones, in a ring */
    uint64_t n;              /* in all */
} gwi_timing;

/* The clock is now so. */
void gwi_timing_look(gwi_timing *timing, int64_t clock, int64_t now_ns);

/* How many clocks to look ahead if acting takes `span_ns`; at least 1. */
int64_t gwi_timing_ahead(const gwi_timing *timing, int64_t now_ns, double span_ns);

/* The mean time between advances; 0: not known. */
double gwi_timing_period_ns(const gwi_timing *timing);

/* Learn from one that took so long about how long something takes at most, these days: few take
 * longer, and hardly any much longer. */
void gwi_timing_learn(double *most_ns, double took_ns);

#endif
