/* A step on a device. A small step runs prepared programs, with the host's help if a layer's experts are not
 * all on the device. A batch runs layer by layer. */
#ifndef MO_GPU_STEP_H
#define MO_GPU_STEP_H

#include "gpu/objects.h"

/* As in mo_accelerator. */
mo_status mo_gpu_step(void *gpu, mo_forward *forward, mo_error *err);
mo_status mo_gpu_apply_drafts(void *gpu, mo_forward *forward, mo_error *err);
bool mo_gpu_lose(void *gpu, const mo_error *why);

#endif
