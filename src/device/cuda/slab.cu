/* Products of quantised matrices with one token: MO_OP_PRODUCT, MO_OP_EXPERTS_IN, MO_OP_EXPERTS_DOWN in slabs. */
#include "device/cuda/activation.cuh"
#include "device/cuda/row.cuh"
#include "device/cuda/slab_block.cuh"

/* ---- Several matrices, one token ---- */

MO_BOUNDED(mo_slab_product, mo_op_product, MO_SLAB_THREADS, 4);
MO_KERNEL(mo_slab_product, mo_op_product)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_product_block(op, memory);
}

/* ---- Experts ---- */

/* Grid: tiles of 32 rows, items. */
MO_BOUNDED(mo_slab_in, mo_op_experts, MO_SLAB_TILE_THREADS, 2);
MO_KERNEL(mo_slab_in, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    const mo_dwork *work = mo_at<const mo_dwork>(op.work);
    if ((int)blockIdx.y >= work->count) {
        return;
    }
    const mo_dwork_item item = ((const mo_dwork_item *)(work + 1))[blockIdx.y];
    const mo_slab_shape shape = mo_slab_cut(op.gate.type, op.in.cols, MO_SLAB_TILE / 2);
    const int row0 = blockIdx.x * MO_SLAB_TILE;
    float *result = (float *)(memory + 64 + shape.acts_bytes + 4 * shape.step_bytes + shape.terms_bytes);
    mo_slab_place place[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint8_t *data = mo_at<const uint8_t>(item.base) + (i < 2 ? 0 : op.up_at);
        place[i].data = data + (int64_t)(row0 + i % 2 * shape.rows) * shape.row_bytes;
        place[i].limit = data + (int64_t)op.gate.rows * shape.row_bytes;
        place[i].rows = shape.rows;
    }
    const mo_rows_acts acts = mo_rows_acts_of(op.in, item.token, 1);
#define MO_WAY(TYPE)                                                                                         \
    case TYPE: mo_slab_tile<TYPE>(memory, shape, acts, place, result); break;
    switch (op.gate.type) {
        MO_SLAB_TYPES(MO_WAY)
    default: break; /* not launched */
    }
#undef MO_WAY
    __syncthreads();
    if (threadIdx.x < 32) {
        const int lane = threadIdx.x, row = row0 + lane;
        const float hidden =
            mo_activation_of(op.activation, mo_slab_finish(op.gate, item.expert, row, result[lane]),
                             mo_slab_finish(op.up, item.expert, row, result[MO_SLAB_TILE + lane]));
        mo_at<float>(op.hidden.x)[(int64_t)item.row * op.hidden.cols + row] = hidden;
        __syncwarp();
        mo_quantise_block(op.hidden, item.row, blockIdx.x, hidden);
    }
}

MO_BOUNDED(mo_slab_down, mo_op_experts, MO_SLAB_THREADS, 4);
MO_KERNEL(mo_slab_down, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_down_block(op, memory);
}
