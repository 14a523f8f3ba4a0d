/* sample.h - the samples of a worker: prepared, pulled in portions, finished.
 *
 * A worker has a table of the samples that have keys left.  Which keys a sample has:
 *
 *   naive   drawn when they are pulled, by a stream that is the sample's own; without replacement
 *           drawn all at once, when it is prepared
 *   preloc  drawn when it is prepared
 *   pool    taken from the worker's pool (pool.h) when it is prepared
 *   local   drawn when they are pulled, of those that are here; without replacement the sample
 *           remembers what it has had
 *
 * So a sample takes 8 bytes a key from when it is prepared to when it is used up or finished,
 * where its keys are drawn at once; 25 to 50 bytes a key that was pulled with local without
 * replacement; and else little, whatever its size.
 *
 * Threads  Its worker's.                                                              */
#ifndef GWI_PARAMS_SAMPLE_H
#define GWI_PARAMS_SAMPLE_H

#include "params/sampling.h"

/* Forget all samples of a worker that ends. */
void gwi_sampler_free(gw_worker *worker);

#endif
