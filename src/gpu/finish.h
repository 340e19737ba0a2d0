/* The end of a step. */
#ifndef MO_GPU_FINISH_H
#define MO_GPU_FINISH_H

#include "gpu/objects.h"

/* After all launches: waits for the step, returns logits, choices and times to their requesters, and fails if
 * a flag marks the step as invalid. */
mo_status mo_gpu_finish(mo_gpu *gpu, mo_forward *forward, bool small, mo_error *err);

#endif
