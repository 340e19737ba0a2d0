/* The experts of a batch. */
#ifndef MO_GPU_BATCH_H
#define MO_GPU_BATCH_H

#include "gpu/objects.h"

/* Before anything of the step is sent: forgets what an earlier batch sent ahead and did not need; experts that this one
 * will probably need set out. */
mo_status mo_gpu_batch_begin(mo_gpu *gpu, const mo_forward *forward, bool experts, mo_error *err);
/* Can the device arrange and compute the experts of this layer by itself? All are present, and no observer needs them. */
bool mo_gpu_batch_stays(const mo_gpu *gpu, const mo_forward *forward, int layer, bool experts);
/* After the step: counts what it did so. */
mo_status mo_gpu_batch_tell(mo_gpu *gpu, mo_forward *forward, mo_error *err);
/* The experts of a layer, expert by expert. */
mo_status mo_gpu_batch_feed_forward(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer, bool experts,
                                    mo_error *err);

#endif
