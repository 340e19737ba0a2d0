/* Restore: ops that bring matrices from the layout they have in RAM (rows interleaved for the CPU) to the file's, which the
 * device reads. Private to the gpu's files. */
#ifndef MO_GPU_RESTORE_H
#define MO_GPU_RESTORE_H

#include "device/op.h"
#include "numeric/weights.h"

/* Of `count` experts; up to three matrices of each are then added: */
mo_op mo_gpu_restore_op(mo_daddr from, mo_daddr to, int64_t count);
/* one is `at` bytes behind the beginning, in the next expert `stride` bytes behind that. */
void mo_gpu_restore_add(mo_op *op, const mo_weights *w, int64_t at, int64_t stride);

#endif
