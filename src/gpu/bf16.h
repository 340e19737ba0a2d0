/* Wide: products of a batch in bfloat16, where the plan's rule allows it. What mixer.c and feed_forward.c plan stays as it is; here a product becomes
 * three ops when it is launched: rows are rounded, matrices decoded into memory that the next one overwrites, and both multiplied. Private
 * to the gpu's files. */
#ifndef MO_GPU_BF16_H
#define MO_GPU_BF16_H

#include "device/op.h"
#include "gpu/core.h"
#include "gpu/link.h"
#include "plan/precision.h"

/* The memory for that. */
typedef struct mo_gpu_bf16 {
    mo_precision_rule rule;
    mo_daddr rounded;  /* uint16: rows of activations */
    mo_daddr matrices; /* uint16: one matrix, or of some experts */
    int64_t row_bytes; /* of rounded */
    int64_t matrix_bytes;
} mo_gpu_bf16;

/* Both sizes for batches of this many tokens; 0: the rule allows none. */
void mo_gpu_bf16_size(mo_gpu_bf16 *bf16, const mo_gpu_core *core, int64_t batch);

/* As mo_gpu_link_launch(). Of groups those that have lossy_rows. `exact`: where products go that stay what they are, such as the router's and the
 * output's. */
mo_status mo_gpu_bf16_launch(const mo_gpu_bf16 *bf16, const mo_gpu_link *link, mo_dstream *stream,
                             const mo_op *ops, int count, mo_daddr exact, mo_error *err);

#endif
