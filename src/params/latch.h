/* latch.h - a latch that does not come free: its holder was interrupted by the kernel, or it died.
 */
#ifndef GWI_PARAMS_LATCH_H
#define GWI_PARAMS_LATCH_H

#include "params/params.h"

/* Wait until the latch of a key looks free; a gwi_stuck, with the gw_params.  For workers. */
int gwi_latch_wait(void *params, int64_t key);

/* The recorded sentence is about a death: add whether the key's latch was held by who died.
 * Returns GW_EPEER. */
int gwi_latch_explain_death(gw_params *params, int64_t key);

#endif
