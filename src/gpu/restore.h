/* Restore: ops that convert matrices from the layout in RAM (rows interleaved for the CPU) to the file's
 * layout, which the device reads. Private to gpu/. */
#ifndef MO_GPU_RESTORE_H
#define MO_GPU_RESTORE_H

#include "device/op.h"
#include "numeric/weights.h"

/* An op for `count` experts; up to three matrices of each are then added: */
mo_op mo_gpu_restore_op(mo_daddr from, mo_daddr to, int64_t count);
/* one begins at offset `at`, and `stride` bytes later in the next expert. */
void mo_gpu_restore_add(mo_op *op, const mo_weights *w, int64_t at, int64_t stride);

#endif
