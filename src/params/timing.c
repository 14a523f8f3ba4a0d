/* timing.c - rates, and Poisson's distribution. */
#include "params/timing.h"

#include <math.h>

#define MEMORY_NS 2e6 /* how long a rate is remembered, at least ... */
#define MEMORY_TICKS 8 /* ... and for so many advances */
#define SURE 0.9999

void gwi_timing_look(gwi_timing *timing, int64_t clock, int64_t now_ns)
{
    if (timing->looked_ns == 0) {
        *timing = (gwi_timing){.clock = clock, .looked_ns = now_ns};
        return;
    }
    double span = (double)(now_ns - timing->looked_ns);
    if (span <= 0)
        return;
    double memory = timing->per_ns > 0 ? MEMORY_TICKS / timing->per_ns : MEMORY_NS;
    memory = memory < MEMORY_NS ? MEMORY_NS : memory;
    double weight = 1 - exp(-span / memory), rate = (double)(clock - timing->clock) / span;
    timing->per_ns += weight * (rate - timing->per_ns);
    timing->clock = clock;
    timing->looked_ns = now_ns;
}

int64_t gwi_poisson_quantile(double mean, double p)
{
    if (mean <= 0)
        return 0;
    if (mean > 200) /* close to normal; 3.719 is the normal quantile of 0.9999 */
        return (int64_t)ceil(mean + 3.719 * sqrt(mean));
    double term = exp(-mean), sum = term;
    int64_t k = 0;
    while (sum < p && k < 1000) {
        term *= mean / (double)++k;
        sum += term;
    }
    return k;
}

int64_t gwi_timing_ahead(const gwi_timing *timing, double span_ns)
{
    return 1 + gwi_poisson_quantile(timing->per_ns * span_ns, SURE);
}
