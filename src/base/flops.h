/* flops.h - how fast this processor multiplies and adds, in registers alone. */
#ifndef GWI_BASE_FLOPS_H
#define GWI_BASE_FLOPS_H

#include <stdint.h>

/* Do about `turns` turns of the fastest multiply-add loop that this processor has and return how
 * many operations that were (a multiply-add counts as two).  Once in float32, once in float64. */
double gwi_flops_f32(int64_t turns);
double gwi_flops_f64(int64_t turns);

#endif
