/* track.h - what the tracer does with the tracks of trace.h. */
#ifndef GWI_BASE_TRACK_H
#define GWI_BASE_TRACK_H

#include "base/trace.h"

/* Tracks that were opened for an earlier tracer are of no use from now on. */
void gwi_tracks_begin(int process_number);

/* Write what all tracks have, and forget those that were closed. */
void gwi_tracks_write(gwi_trace_out *out, int64_t now_ns);

/* Forget all; those that are open are freed when they are closed. */
void gwi_tracks_end(void);

/* The number of the track for what the tracer and its samplers write. */
int gwi_tracks_figures(void);

#endif
