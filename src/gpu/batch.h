/* The experts of a batch. */
#ifndef MO_GPU_BATCH_H
#define MO_GPU_BATCH_H

#include "gpu/objects.h"

/* Before anything of the step is sent: drops prefetched experts of an earlier batch, and prefetches experts
 * that this one will probably need. */
mo_status mo_gpu_batch_begin(mo_gpu *gpu, const mo_forward *forward, bool experts, mo_error *err);
/* True if the device can arrange and compute the experts of this layer alone: all are present, and no
 * observer needs them. */
bool mo_gpu_batch_stays(const mo_gpu *gpu, const mo_forward *forward, int layer, bool experts);
/* After the step: counts the layers that the device computed alone. */
mo_status mo_gpu_batch_tell(mo_gpu *gpu, mo_forward *forward, mo_error *err);
/* Computes the experts of a layer, expert by expert. */
mo_status mo_gpu_batch_feed_forward(mo_gpu *gpu, mo_forward *forward, mo_gpu_ops *p, int layer, bool experts,
                                    mo_error *err);

#endif
