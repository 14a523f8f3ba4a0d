/* timing.c - the shortest of what was seen. */
#include "params/timing.h"

#include <stddef.h>

#define UNKNOWN 8      /* clocks to look ahead before anything was seen */
#define MOST (1 << 20) /* clocks */

static const struct gwi_clock_seen *seen(const gwi_timing *t, uint64_t i)
{
    return &t->seen[i % GWI_TIMING_SEEN];
}

static uint64_t oldest(const gwi_timing *t)
{
    return t->n > GWI_TIMING_SEEN ? t->n - GWI_TIMING_SEEN : 0;
}

void gwi_timing_look(gwi_timing *t, int64_t clock, int64_t now_ns)
{
    if (t->n > 0 && (clock <= seen(t, t->n - 1)->clock || now_ns <= seen(t, t->n - 1)->at_ns))
        return;
    t->seen[t->n++ % GWI_TIMING_SEEN] = (struct gwi_clock_seen){clock, now_ns};
}

double gwi_timing_period_ns(const gwi_timing *t)
{
    if (t->n < 2)
        return 0;
    const struct gwi_clock_seen *first = seen(t, oldest(t)), *last = seen(t, t->n - 1);
    return (double)(last->at_ns - first->at_ns) / (double)(last->clock - first->clock);
}

/* The shortest time in which the clock was seen to advance by `k`, or, if it has not come so far
 * yet, might have. */
static double shortest_ns(const gwi_timing *t, int64_t k)
{
    double shortest = gwi_timing_period_ns(t) * (double)k;

    for (uint64_t from = oldest(t), to = from; to < t->n; to++)
        for (; seen(t, to)->clock - seen(t, from)->clock >= k; from++) {
            double took = (double)(seen(t, to)->at_ns - seen(t, from)->at_ns);
            shortest = took < shortest ? took : shortest;
        }
    return shortest;
}

/* From the last advance on, and once the clock is late, from now on for all but the next. */
int64_t gwi_timing_ahead(const gwi_timing *t, int64_t now_ns, double span_ns)
{
    int64_t ahead = 0;
    double before = 0;

    if (t->n < 2)
        return 1 + UNKNOWN;
    double elapsed = (double)(now_ns - seen(t, t->n - 1)->at_ns);
    for (int64_t k = 1; k < MOST; k += 1 + k / 8) {
        double takes = shortest_ns(t, k), left = takes - elapsed;
        if ((left > before ? left : before) > span_ns)
            break;
        ahead = k;
        before = takes;
    }
    return 1 + ahead;
}

/* What exceeds it moves it half way there; all others let it shrink, 280 of them by half. */
void gwi_timing_learn(double *most_ns, double took_ns)
{
    if (*most_ns == 0)
        *most_ns = 2 * took_ns;
    else if (took_ns > *most_ns)
        *most_ns += (took_ns - *most_ns) / 2;
    else
        *most_ns *= 1 - 1.0 / 400;
}
