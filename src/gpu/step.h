/* A step on a device: a small one runs prepared programs, with the host's help where a layer's experts are not all on the
 * device; a batch goes layer by layer. */
#ifndef MO_GPU_STEP_H
#define MO_GPU_STEP_H

#include "gpu/objects.h"

/* As mo_accelerator has them. */
mo_status mo_gpu_step(void *gpu, mo_forward *forward, mo_error *err);
mo_status mo_gpu_apply_drafts(void *gpu, mo_forward *forward, mo_error *err);
bool mo_gpu_lose(void *gpu, const mo_error *why);

#endif
