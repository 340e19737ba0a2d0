/* Split: the time of a batch on the device by part, for a step that requests it (engine/split.h). */
#ifndef MO_GPU_SPLIT_H
#define MO_GPU_SPLIT_H

#include "engine/split.h"
#include "gpu/objects.h"

/* Starts measuring the main stream; split NULL: nothing. */
mo_status mo_gpu_split_begin(mo_gpu *gpu, const mo_split *split, mo_error *err);
/* After a step with this status: adds its times to the split. Returns that status, or its own failure. */
mo_status mo_gpu_split_end(mo_gpu *gpu, mo_split *split, mo_status status, mo_error *err);

#endif
