/* KV staging: copies a KV cache in RAM (gpu/kv_in_ram.h) to VRAM while a batch attends to it. Otherwise every
 * tile of queries would read all of it over the link. It is copied once, into the memory of the layer's
 * feed-forward part, which is unused then. A second table per slice has the locations. Blocks without space
 * there stay in RAM and are read over the link. Slices of few queries, and small steps, are not staged
 * (plan/kv_in_ram.h). Private to gpu/. */
#ifndef MO_GPU_KV_STAGING_H
#define MO_GPU_KV_STAGING_H

#include "gpu/objects.h"
#include "gpu/ops.h"

/* A slice with staged blocks. */
typedef struct mo_gpu_staged_slice {
    int slice;
    int64_t blocks; /* visible to its last token */
} mo_gpu_staged_slice;

typedef struct mo_gpu_kv_staging {
    mo_gpu_staged_slice staged[GPU_KV_STAGED];
    int count;
    int64_t tokens; /* tokens of the batch */
} mo_gpu_kv_staging;

/* Sends the staged slices of a batch and their locations to the device. Call it after the batch's block and
 * the sessions' tables were sent. */
mo_status mo_gpu_kv_staging_begin(mo_gpu *gpu, const mo_forward *forward, mo_gpu_kv_staging *out,
                                  mo_error *err);

/* mo_dplace[tokens] for the layer's attention with staged slices; 0: none. */
mo_daddr mo_gpu_kv_staging_positions(const mo_gpu_kv_staging *kv_staging, const mo_gpu *gpu, int layer);

/* Launches the ops of such a layer; staged data arrive before the layer attends to them. */
mo_status mo_gpu_kv_staging_launch(const mo_gpu_kv_staging *kv_staging, mo_gpu *gpu,
                                   const mo_forward *forward, const mo_gpu_ops *ops, int layer,
                                   mo_error *err);

#endif
