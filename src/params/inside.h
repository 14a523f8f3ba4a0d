/* inside.h - what is shown of parameters while they are in use: figures on the rank's board
 * (board.h) for `godwit top`, and counters in a trace (trace.h).                      */
#ifndef GWI_PARAMS_INSIDE_H
#define GWI_PARAMS_INSIDE_H

#include "params/params.h"

/* After the agent was started, and before it is stopped.  Closing is fine also if it was never
 * opened. */
int gwi_inside_open(gw_params *params);
void gwi_inside_close(gw_params *params);

/* The sum over the workers of this process of what they count; see params.h. */
uint64_t gwi_params_counted(gw_params *params, int what);

#endif
