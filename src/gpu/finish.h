/* The end of a step. */
#ifndef MO_GPU_FINISH_H
#define MO_GPU_FINISH_H

#include "gpu/objects.h"

/* After everything was launched: waits for it, brings logits, choices and times to those who asked, and fails where a
 * flag says that the step is worth nothing. */
mo_status mo_gpu_finish(mo_gpu *gpu, mo_forward *forward, bool small, mo_error *err);

#endif
