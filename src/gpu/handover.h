/* Handover: the residual stream's way from one device of a row to the next: straight from memory to memory where the driver allows
 * it, else through the next one's pinned memory. The engine's workspace has it before the first device, behind the last one
 * where other ranks continue, and next to a lost one. */
#ifndef MO_GPU_HANDOVER_H
#define MO_GPU_HANDOVER_H

#include "gpu/objects.h"

/* Does the device find the stream in the workspace, as the one with the first layers does? */
static inline bool mo_gpu_handover_from_host(const mo_gpu *gpu)
{
    return !gpu->before || gpu->before->lost;
}

/* At the end of a device's layers: enqueues what brings the stream to where it is wanted, on the main stream; */
mo_status mo_gpu_handover_give(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
/* and what is left to do when that is done. */
void mo_gpu_handover_given(const mo_gpu *gpu, const mo_forward *forward);

/* Enqueues the step's block, which lies in pinned memory, and the stream behind it: `bytes` of the block at most. The device before has
 * given, and touches nothing of it until this copy is done. A direct copy that is refused is made through RAM, and so are those that follow;
 * one line of the log says so. */
mo_status mo_gpu_handover_take(mo_gpu *gpu, const mo_gpu_block *block, int64_t tokens, size_t bytes,
                               mo_error *err);

/* Of the last layers: what MTP heads take in of the stream, for those slices that they follow; later, when the stream has been waited for, it is
 * in the workspace. */
mo_status mo_gpu_handover_show(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
void mo_gpu_handover_shown(const mo_gpu *gpu, const mo_forward *forward);

#endif
