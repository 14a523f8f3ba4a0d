/* clock.c - the monotonic clock. */
#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * GWI_SECOND + t.tv_nsec;
}

int64_t gwi_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t gwi_coarse_ns(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE);
}

void gwi_nap_ns(int64_t span_ns)
{
    nanosleep(&(struct timespec){span_ns / GWI_SECOND, span_ns % GWI_SECOND}, NULL);
}

int64_t gwi_deadline_ns(int64_t span_ns)
{
    int64_t now = gwi_now_ns();

    return span_ns >= GWI_FOREVER - now ? GWI_FOREVER : now + span_ns;
}

int64_t gwi_seconds_to_ns(double seconds)
{
    if (!(seconds > 0))
        return 0;
    if (seconds < 1e-9)
        return 1;
    return seconds >= 9.2e9 ? GWI_FOREVER : (int64_t)(seconds * 1e9);
}
