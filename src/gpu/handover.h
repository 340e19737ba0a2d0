/* Handover: passes the residual stream from one device of a row to the next: directly between device memories
 * if the driver allows it, otherwise through the next device's pinned memory. The engine's workspace has the
 * stream before the first device, after the last one if other ranks continue, and next to a lost one. */
#ifndef MO_GPU_HANDOVER_H
#define MO_GPU_HANDOVER_H

#include "gpu/objects.h"

/* True if the device reads the stream from the workspace, as the one with the first layers does. */
static inline bool mo_gpu_handover_from_host(const mo_gpu *gpu)
{
    return !gpu->before || gpu->before->lost;
}

/* At the end of a device's layers: enqueues the copies of the stream to its destination on the main
 * stream. */
mo_status mo_gpu_handover_give(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
/* Finishes these copies when they are done. */
void mo_gpu_handover_given(const mo_gpu *gpu, const mo_forward *forward);

/* Enqueues the copy of the step's block from pinned memory, at most `bytes`, and then of the stream. The
 * previous device has finished its layers and does not touch the stream until this copy is done. If a direct
 * copy is refused, this and all later copies go through RAM, with one line in the log. */
mo_status mo_gpu_handover_take(mo_gpu *gpu, const mo_gpu_block *block, int64_t tokens, size_t bytes,
                               mo_error *err);

/* For the last layers: copies the part of the stream that MTP heads read, for the slices they follow. After
 * the stream has been waited for, shown() puts it into the workspace. */
mo_status mo_gpu_handover_show(mo_gpu *gpu, const mo_forward *forward, mo_error *err);
void mo_gpu_handover_shown(const mo_gpu *gpu, const mo_forward *forward);

#endif
