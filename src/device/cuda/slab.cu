/* Products of quantised matrices with one token: MO_OP_PRODUCT, MO_OP_EXPERTS_IN, MO_OP_EXPERTS_DOWN in slabs. */
#include "device/cuda/activation.cuh"
#include "device/cuda/row.cuh"
#include "device/cuda/slab.cuh"

/* ---- Several matrices, one token ---- */

MO_BOUNDED(mo_slab_product, mo_op_product, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
MO_KERNEL(mo_slab_product, mo_op_product)
{
    MO_DYNAMIC_SHARED(memory);
    int slab = blockIdx.x, which = 0;
    mo_slab_shape shape = mo_slab_cut(op.matrix[0].type, op.in.cols);
    for (;;) { /* the matrix that has this slab; slabs of all lie in one row */
        const int slabs = op.matrix[which].data ? mo_slab_count(&shape, op.matrix[which].rows) : 0;
        if (slab < slabs) {
            break;
        }
        slab -= slabs;
        if (++which == op.count) {
            mo_grid_begin();
            return;
        }
        shape = mo_slab_cut(op.matrix[which].type, op.in.cols);
    }
    const mo_dmatrix &m = op.matrix[which];
    const int row0 = slab << shape.rows_log2;
    const mo_slab_place place = mo_slab_place_of(shape, mo_at<const uint8_t>(m.data), row0, m.rows);
    mo_slab_head *head = (mo_slab_head *)memory;
    mo_slab_take_finish(head, 0, m, 0, row0, place.rows);
    if (threadIdx.x == 32) {
        head->y = mo_at<float>(op.y[which]) + row0;
    }
    const mo_rows_acts acts = mo_rows_acts_of(op.in, 0, 1);
    const auto sink = [&](int row, float value) { head->y[row] = mo_slab_finish(head, 0, m, row, value); };
#define MO_WAY(TYPE)                                                                                         \
    case TYPE: mo_slab_one<TYPE>(memory, op.in.cols, acts, place, sink); break;
    switch (m.type) {
        MO_SLAB_TYPES(MO_WAY)
    default: break; /* not launched */
    }
#undef MO_WAY
}

/* ---- Experts ---- */

/* The block's item. Its address does not wait for the count: there is room for op.most. */
static __device__ __forceinline__ bool mo_slab_item(const mo_op_experts &op, mo_dwork_item *item)
{
    const mo_dwork *work = mo_at<const mo_dwork>(op.work);
    *item = ((const mo_dwork_item *)(work + 1))[blockIdx.y];
    return (int)blockIdx.y < work->count;
}

template <int TYPE>
static __device__ __forceinline__ mo_slab_source mo_slab_source_of(const mo_op_experts &op,
                                                                   const uint8_t *gate, int row0)
{
    const int64_t row_bytes = mo_slab_shape_of(TYPE, op.in.cols).row_bytes;
    mo_slab_source source;
    source.gate = gate + row0 * row_bytes;
    source.up = source.gate + op.up_at;
    source.gate_limit = gate + op.gate.rows * row_bytes;
    source.up_limit = source.gate_limit + op.up_at;
    return source;
}

/* Grid: tiles of 32 rows, items. */
MO_BOUNDED(mo_slab_in, mo_op_experts, MO_SLAB_TILE_BOUND, MO_SLAB_TILE_BOUND_BLOCKS);
MO_KERNEL(mo_slab_in, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_grid_begin();
    mo_dwork_item item;
    if (!mo_slab_item(op, &item)) {
        return;
    }
    mo_slab_head *head = (mo_slab_head *)memory;
    const int row0 = blockIdx.x * MO_SLAB_TILE;
    if (threadIdx.x == 32) {
        head->row = item.row;
    }
    mo_slab_take_finish(head, 0, op.gate, item.expert, row0, MO_SLAB_TILE);
    mo_slab_take_finish(head, 1, op.up, item.expert, row0, MO_SLAB_TILE);
    const uint8_t *gate = mo_at<const uint8_t>(item.base);
    const mo_rows_acts acts = mo_rows_acts_of(op.in, item.token, 1);
#define MO_WAY(TYPE)                                                                                         \
    case TYPE:                                                                                               \
        mo_slab_tile<TYPE>(memory, op.in.cols, mo_slab_source_of<TYPE>(op, gate, row0), acts, head->result); \
        break;
    switch (op.gate.type) {
        MO_SLAB_TYPES(MO_WAY)
    default: return; /* not launched */
    }
#undef MO_WAY
    __syncthreads();
    if (threadIdx.x < MO_SLAB_TILE) {
        const int lane = threadIdx.x, row = head->row;
        const float g = mo_slab_finish(head, 0, op.gate, lane, head->result[lane]);
        const float u = mo_slab_finish(head, 1, op.up, lane, head->result[MO_SLAB_TILE + lane]);
        const float hidden = mo_activation_of(op.activation, g, u);
        mo_at<float>(op.hidden.x)[(int64_t)row * op.hidden.cols + row0 + lane] = hidden;
        __syncwarp();
        mo_quantise_block(op.hidden, row, blockIdx.x, hidden);
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
MO_BOUNDED(mo_slab_down, mo_op_experts, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
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
    const mo_slab_shape shape = mo_slab_cut(op.down.type, op.hidden.cols);
    const int row0 = blockIdx.x << shape.rows_log2;
    const mo_slab_place place =
        mo_slab_place_of(shape, mo_at<const uint8_t>(item.base) + op.down_at, row0, op.down.rows);
    mo_slab_head *head = (mo_slab_head *)memory;
    mo_slab_take_finish(head, 0, op.down, item.expert, row0, place.rows);
    if (threadIdx.x == 32) {
        head->y = mo_at<float>(op.y) + (int64_t)item.row * op.down.rows + row0;
    }
    const mo_rows_acts acts = mo_rows_acts_of(op.hidden, item.row, 1);
    const auto sink = [&](int row, float value) {
        head->y[row] = mo_slab_finish(head, 0, op.down, row, value);
    };
#define MO_WAY(TYPE)                                                                                         \
    case TYPE: mo_slab_one<TYPE>(memory, op.hidden.cols, acts, place, sink); break;
    switch (op.down.type) {
        MO_SLAB_TYPES(MO_WAY)
    default: break; /* not launched */
    }
#undef MO_WAY
}
