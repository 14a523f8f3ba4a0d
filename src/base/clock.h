/* clock.h - time, in nanoseconds, of a clock that only goes forward. */
#ifndef GWI_BASE_CLOCK_H
#define GWI_BASE_CLOCK_H

#include <stdint.h>

#define GWI_US INT64_C(1000)
#define GWI_MS INT64_C(1000000)
#define GWI_SECOND INT64_C(1000000000)
#define GWI_FOREVER INT64_MAX

/* Nanoseconds since an unknown moment, the same for all processes of the
 * machine (CLOCK_MONOTONIC). */
int64_t gwi_now_ns(void);

/* The same clock, a few milliseconds late and several times cheaper. */
int64_t gwi_coarse_ns(void);

/* Sleep about so long; less if a signal comes. */
void gwi_nap_ns(int64_t span_ns);

/* now + span, but GWI_FOREVER instead of an overflow. */
int64_t gwi_deadline_ns(int64_t span_ns);

/* Seconds as nanoseconds; GWI_FOREVER for what does not fit, 0 below zero, and at
 * least 1 above it. */
int64_t gwi_seconds_to_ns(double seconds);

#endif
