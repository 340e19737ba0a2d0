/* Launches of the kernels of bf16.cu. */
#include "device/cuda/bf16.h"

#include "base/status.h"
#include "device/cuda/launch.h"

enum { ROUND_THREADS = 256, ROUND_BLOCKS = 16 /* of a multiprocessor */, BF16_COMPUTE = 80 };

static int launch_round(const mo_op_round *o, int sms, mo_cuda_launch *out)
{
    const int64_t blocks = mo_cuda_tiles_of(o->count, 8 * ROUND_THREADS), most = (int64_t)sms * ROUND_BLOCKS;
    if (o->count == 0) {
        return 0;
    }
    *out = (mo_cuda_launch){.kernel = "mo_round",
                            .prelaunch = true,
                            .patient = true,
                            .grid = {(uint32_t)(blocks < most ? blocks : most), 1, 1},
                            .block = {ROUND_THREADS, 1, 1}};
    return 1;
}

static int launch_to_bf16(const mo_op_to_bf16 *o, mo_cuda_launch *out, mo_error *err)
{
    const mo_dmatrix *m = &o->matrix;
    const mo_format *f = m->type >= 0 ? mo_format_of((uint32_t)m->type) : NULL;
    if (o->count == 0) {
        return 0;
    }
    if (!f || f->kind == MO_KIND_INTEGER || m->cols % f->block_values != 0 || o->count > MO_CUDA_GRID_LIMIT) {
        mo_fail(err, MO_EUNSUPPORTED,
                "%d matrices of type %d with rows of %d values do not support bf16 on a GPU", (int)o->count,
                (int)m->type, (int)m->cols);
        return -1;
    }
    *out = (mo_cuda_launch){
        .kernel = "mo_to_bf16",
        .prelaunch = true,
        .patient = true,
        .grid = {(uint32_t)mo_cuda_tiles_of((int64_t)m->rows * m->cols, MO_TO_BF16_WARPS * MO_TO_BF16_VALUES),
                 (uint32_t)o->count, 1},
        .block = {32 * MO_TO_BF16_WARPS, 1, 1},
        .shared = MO_TO_BF16_SHARED};
    return 1;
}

static int launch_product(const mo_op_bf16 *o, int compute, mo_cuda_launch *out, mo_error *err)
{
    const int64_t tokens = mo_cuda_tiles_of(o->rows, MO_BF16_TOKENS) + (o->groups ? o->count : 0);
    if (o->count == 0 || o->rows == 0) {
        return 0;
    }
    if (compute < BF16_COMPUTE || tokens > MO_CUDA_GRID_LIMIT) {
        mo_fail(err, MO_EUNSUPPORTED,
                "bf16 products of %d rows need a GPU of compute "
                "capability 8.0 and batches of at most 65536 tokens",
                (int)o->rows);
        return -1;
    }
    *out = (mo_cuda_launch){
        .kernel = "mo_bf16_product",
        .prelaunch = true,
        .patient = true,
        .grid = {(uint32_t)mo_cuda_tiles_of(o->matrix.rows, MO_BF16_ROWS), (uint32_t)tokens, 1},
        .block = {MO_BF16_THREADS, 1, 1},
        .shared = MO_BF16_SHARED};
    return 1;
}

int mo_cuda_launch_bf16(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    switch (op->kind) {
    case MO_OP_ROUND: return launch_round(&op->round, sms, out);
    case MO_OP_TO_BF16: return launch_to_bf16(&op->to_bf16, out, err);
    default: return launch_product(&op->bf16, compute, out, err);
    }
}
