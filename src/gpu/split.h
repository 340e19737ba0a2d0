/* Split: the time of a batch on the device, part by part, for a step that is asked for it (engine/split.h). */
#ifndef MO_GPU_SPLIT_H
#define MO_GPU_SPLIT_H

#include "engine/split.h"
#include "gpu/objects.h"

/* Measures what the main stream does from now on; split NULL: nothing. */
mo_status mo_gpu_split_begin(mo_gpu *gpu, const mo_split *split, mo_error *err);
/* The step has ended, with this status: what it took is added to the split. Returns that status, or a failure of its own. */
mo_status mo_gpu_split_end(mo_gpu *gpu, mo_split *split, mo_status status, mo_error *err);

#endif
