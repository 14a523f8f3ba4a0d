/* latch.h - a latch that does not come free: its holder was interrupted by the kernel, or it died.
 */
#ifndef GWI_PARAMS_LATCH_H
#define GWI_PARAMS_LATCH_H

#include "params/params.h"

/* Wait until the latch of a key looks free; a gwi_stuck, with the gw_params.  For workers. */
int gwi_latch_wait(void *params, int64_t key);

/* Somebody died, which is the recorded sentence.  GW_EPEER if it had the key's latch, with the
 * sentence extended by that, else 0: whoever has it lives and gives it back. */
int gwi_latch_check_death(gw_params *params, int64_t key);

#endif
