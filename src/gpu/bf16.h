/* bf16: products of a batch in bfloat16, where the plan's rule allows it. mixer.c and feed_forward.c plan the
 * ops as usual; at launch a product becomes three ops: round the rows, decode the matrix into memory that the
 * next one reuses, and multiply. Private to gpu/. */
#ifndef MO_GPU_BF16_H
#define MO_GPU_BF16_H

#include "device/op.h"
#include "gpu/core.h"
#include "gpu/link.h"
#include "plan/precision.h"

/* Memory for these products. */
typedef struct mo_gpu_bf16 {
    mo_precision_rule rule;
    mo_daddr rounded;  /* uint16: rows of activations */
    mo_daddr matrices; /* uint16: one matrix, or the matrices of some experts */
    int64_t row_bytes; /* bytes of rounded */
    int64_t matrix_bytes;
} mo_gpu_bf16;

/* Computes both sizes for batches of this many tokens; 0: the rule allows none. */
void mo_gpu_bf16_size(mo_gpu_bf16 *bf16, const mo_gpu_core *core, int64_t batch);

/* Like mo_gpu_link_launch(). Grouped ops are converted if they have lossy_rows. `exact`: destination of
 * products that stay exact, such as the router's and the output's. */
mo_status mo_gpu_bf16_launch(const mo_gpu_bf16 *bf16, const mo_gpu_link *link, mo_dstream *stream,
                             const mo_op *ops, int count, mo_daddr exact, mo_error *err);

#endif
