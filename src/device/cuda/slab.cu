/* Products of quantised matrices with one token: MO_OP_PRODUCT, MO_OP_EXPERTS_IN, MO_OP_EXPERTS_DOWN in slabs. */
#include "device/cuda/activation.cuh"
#include "device/cuda/row.cuh"
#include "device/cuda/slab.cuh"

/* ---- Several matrices, one token ---- */

MO_BOUNDED(mo_slab_product, mo_op_product, MO_SLAB_THREADS, 4);
MO_KERNEL(mo_slab_product, mo_op_product)
{
    MO_DYNAMIC_SHARED(memory);
    int slab = blockIdx.x, which = 0;
    mo_slab_shape shape = mo_slab_cut(op.matrix[0].type, op.in.cols, 0);
    for (;;) { /* the matrix that has this slab; slabs of all lie in one row */
        const int slabs = op.matrix[which].data ? (op.matrix[which].rows + shape.rows - 1) / shape.rows : 0;
        if (slab < slabs) {
            break;
        }
        slab -= slabs;
        if (++which == op.count) {
            mo_grid_begin();
            return;
        }
        shape = mo_slab_cut(op.matrix[which].type, op.in.cols, 0);
    }
    const mo_dmatrix &m = op.matrix[which];
    const int row0 = slab * shape.rows;
    const uint8_t *data = mo_at<const uint8_t>(m.data);
    mo_slab_place place;
    place.data = data + (int64_t)row0 * shape.row_bytes;
    place.limit = data + (int64_t)m.rows * shape.row_bytes;
    place.rows = min(shape.rows, m.rows - row0);
    const mo_rows_acts acts = mo_rows_acts_of(op.in, 0, 1);
    float *y = mo_at<float>(op.y[which]) + row0;
    const float *scale = mo_at<const float>(m.scale),
                *bias = m.bias ? mo_at<const float>(m.bias) + row0 : NULL;
    const auto sink = [&](int row, float value) { y[row] = mo_rows_finish(value, scale, bias, row); };
#define MO_WAY(TYPE)                                                                                         \
    case TYPE: mo_slab_one<TYPE>(memory, shape, acts, place, sink); break;
    switch (m.type) {
        MO_SLAB_TYPES(MO_WAY)
    default: break; /* not launched */
    }
#undef MO_WAY
}

/* ---- Experts ---- */

static __device__ __forceinline__ float mo_slab_finish(const mo_dmatrix &m, int expert, int row, float value)
{
    value = m.scale ? value * mo_at<const float>(m.scale)[expert] : value;
    return m.bias ? value + mo_at<const float>(m.bias)[(int64_t)expert * m.rows + row] : value;
}

/* Grid: tiles of 32 rows, items. */
MO_BOUNDED(mo_slab_in, mo_op_experts, MO_SLAB_TILE_THREADS, 2);
MO_KERNEL(mo_slab_in, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_grid_begin();
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

/* The block's item of a worklist that may have been made a moment ago: past this multiprocessor's own cache, which nobody
 * has told that the list is new. One thread looks, since all blocks look at the same place; there is room for op.most
 * items, so that an item need not wait for the count. False: the list has no such item. */
static __device__ __forceinline__ bool mo_item_now(mo_daddr list, int index, mo_dwork_item *item)
{
    __shared__ mo_dwork_item found;
    __shared__ int32_t count;
    if (threadIdx.x == 0) {
        const mo_dwork *work = mo_at<const mo_dwork>(list);
        const volatile mo_dwork_item *from = (const volatile mo_dwork_item *)(work + 1) + index;
        found.base = from->base;
        found.expert = from->expert;
        found.row = from->row;
        count = *(const volatile int32_t *)&work->count;
    }
    __syncthreads();
    *item = found;
    return index < count;
}

/* Grid: slabs, items. */
MO_BOUNDED(mo_slab_down, mo_op_experts, MO_SLAB_THREADS, 4);
MO_KERNEL(mo_slab_down, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    if (!op.list_stands) {
        mo_grid_wait();
    }
    mo_dwork_item item;
    if (!mo_item_now(op.work, blockIdx.y, &item)) {
        mo_grid_begin();
        return;
    }
    const mo_slab_shape shape = mo_slab_cut(op.down.type, op.hidden.cols, 0);
    const int row0 = blockIdx.x * shape.rows;
    const uint8_t *data = mo_at<const uint8_t>(item.base) + op.down_at;
    mo_slab_place place;
    place.data = data + (int64_t)row0 * shape.row_bytes;
    place.limit = data + (int64_t)op.down.rows * shape.row_bytes;
    place.rows = min(shape.rows, op.down.rows - row0);
    const mo_rows_acts acts = mo_rows_acts_of(op.hidden, item.row, 1);
    float *y = mo_at<float>(op.y) + (int64_t)item.row * op.down.rows + row0;
    const auto sink = [&](int row, float value) {
        y[row] = mo_slab_finish(op.down, item.expert, row0 + row, value);
    };
#define MO_WAY(TYPE)                                                                                         \
    case TYPE: mo_slab_one<TYPE>(memory, shape, acts, place, sink); break;
    switch (op.down.type) {
        MO_SLAB_TYPES(MO_WAY)
    default: break; /* not launched */
    }
#undef MO_WAY
}
