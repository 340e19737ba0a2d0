/* Products of quantized matrices with one token: MO_OP_PRODUCT, MO_OP_EXPERTS_IN, MO_OP_EXPERTS_DOWN in slabs. */
#include "device/cuda/activation.cuh"
#include "device/cuda/lowered.cuh"
#include "device/cuda/row.cuh"
#include "device/cuda/slab.cuh"

/* ---- Which formats ---- */

/* Kernels are there twice: for the formats that most files have, and for all. A kernel that can decode everything finds its way by a table in
 * memory, which is cold whenever a layer comes to it. */
template <bool ALL> MO_CONSTANT bool has(int type)
{
    return ALL || mo_slab_common(type);
}

/* ---- Several matrices, one token ---- */

template <int TYPE>
static __device__ __forceinline__ void mo_slab_product_of(const mo_op_product &op, uint8_t *memory, int which,
                                                          int slab)
{
    const mo_dmatrix &m = op.matrix[which];
    mo_slab_head *head = (mo_slab_head *)memory;
    const mo_slab_shape shape = mo_slab_cut(TYPE, op.in.cols, 1, mo_slab_most_here());
    mo_pipeline pipeline = mo_slab_begin(memory, shape);
    const int row0 = slab << shape.rows_log2;
    const mo_slab_place place = mo_slab_place_of(shape, mo_at<const uint8_t>(m.data), row0, m.rows);
    mo_slab_load_finish(head, 0, m, 0, row0, place.rows);
    if (threadIdx.x == 32) {
        head->y[0] = mo_at<float>(op.y[which]) + row0;
    }
    const mo_rows_acts acts = mo_rows_acts_of(op.in, 0, 1);
    mo_slab_one<TYPE, 1>(memory, shape, pipeline, &acts, place, [&](int, int row, float value) {
        head->y[0][row] = mo_slab_finish(head, 0, m, row, value);
    });
}

template <bool ALL>
static __device__ __forceinline__ void mo_slab_products(const mo_op_product &op, uint8_t *memory, int slab)
{
    int which = 0;
    mo_slab_shape shape = mo_slab_cut(op.matrix[0].type, op.in.cols, 1, mo_slab_most_here());
    for (;;) { /* the matrix that has this slab; slabs of all are in one row */
        const int slabs = op.matrix[which].data ? mo_slab_count(&shape, op.matrix[which].rows) : 0;
        if (slab < slabs) {
            break;
        }
        slab -= slabs;
        if (++which == op.count) {
            mo_grid_begin();
            return;
        }
        shape = mo_slab_cut(op.matrix[which].type, op.in.cols, 1, mo_slab_most_here());
    }
    switch (op.matrix[which].type) {
#define MO_CASE(NAME, ...)                                                                                   \
    case MO_##NAME:                                                                                          \
        if constexpr (has<ALL>(MO_##NAME)) {                                                                 \
            mo_slab_product_of<MO_##NAME>(op, memory, which, slab);                                          \
        }                                                                                                    \
        break;
        MO_QUANTIZED_FORMATS(MO_CASE)
#undef MO_CASE
    default: break; /* not launched */
    }
}

/* Grid: slabs. */
MO_BOUNDED(mo_slab_product, mo_op_product, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
MO_KERNEL(mo_slab_product, mo_op_product)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_products<false>(op, memory, blockIdx.x);
}

MO_BOUNDED(mo_slab_product_all, mo_op_product, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
MO_KERNEL(mo_slab_product_all, mo_op_product)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_products<true>(op, memory, blockIdx.x);
}

/* ---- The same, and what adapters make of the input ---- */

/* Grid: blocks of those, slabs. */
template <bool ALL>
static __device__ __forceinline__ void mo_slab_lowered_products(const mo_cuda_lowered &op, uint8_t *memory)
{
    if ((int)blockIdx.x < op.blocks) {
        mo_lowered(op, memory);
        return;
    }
    mo_slab_products<ALL>(op.product, memory, (int)blockIdx.x - op.blocks);
}

MO_BOUNDED(mo_slab_lowered, mo_cuda_lowered, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
MO_MEETING(mo_slab_lowered);
MO_KERNEL(mo_slab_lowered, mo_cuda_lowered)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_lowered_products<false>(op, memory);
}

MO_BOUNDED(mo_slab_lowered_all, mo_cuda_lowered, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
MO_MEETING(mo_slab_lowered_all);
MO_KERNEL(mo_slab_lowered_all, mo_cuda_lowered)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_lowered_products<true>(op, memory);
}

/* ---- Experts ---- */

/* The block's item. Its address does not wait for the count: there is space for op.most. */
static __device__ __forceinline__ bool mo_slab_item(const mo_op_experts &op, mo_dwork_item *item)
{
    const mo_dwork *work = mo_at<const mo_dwork>(op.work);
    *item = ((const mo_dwork_item *)(work + 1))[blockIdx.y];
    return (int)blockIdx.y < work->count;
}

/* Leaves the products of 32 rows of gate and up in the head. False: there is no such item. What does not depend on the
 * list is done before it is waited for. */
template <int TYPE>
static __device__ __forceinline__ bool mo_slab_in_of(const mo_op_experts &op, uint8_t *memory)
{
    mo_slab_head *head = (mo_slab_head *)memory;
    mo_dwork_item item;
    const mo_slab_shape shape = mo_slab_tile_cut(TYPE, op.in.cols, (int64_t)gridDim.x * gridDim.y, 1);
    mo_pipeline pipeline = mo_slab_begin(memory, shape);
    mo_grid_begin();
    if (!mo_slab_item(op, &item)) {
        return false;
    }
    const int row0 = blockIdx.x * MO_SLAB_TILE;
    const uint8_t *gate = mo_at<const uint8_t>(item.base);
    mo_slab_source source;
    source.gate = gate + (int64_t)row0 * shape.row_bytes;
    source.up = source.gate + op.up_at;
    source.gate_limit = gate + (int64_t)op.gate.rows * shape.row_bytes;
    source.up_limit = source.gate_limit + op.up_at;
    if (threadIdx.x == 32) {
        head->row[0] = item.row;
    }
    mo_slab_load_finish(head, 0, op.gate, item.expert, row0, MO_SLAB_TILE);
    mo_slab_load_finish(head, 1, op.up, item.expert, row0, MO_SLAB_TILE);
    const mo_rows_acts acts = mo_rows_acts_of(op.in, item.token, 1);
    mo_slab_tile<TYPE, 1>(memory, shape, pipeline, &acts, source);
    return true;
}

template <bool ALL>
static __device__ __forceinline__ void mo_slab_experts_in(const mo_op_experts &op, uint8_t *memory)
{
    bool mine = false;
    switch (op.gate.type) {
#define MO_CASE(NAME, ...)                                                                                   \
    case MO_##NAME:                                                                                          \
        if constexpr (has<ALL>(MO_##NAME)) {                                                                 \
            mine = mo_slab_in_of<MO_##NAME>(op, memory);                                                     \
        }                                                                                                    \
        break;
        MO_QUANTIZED_FORMATS(MO_CASE)
#undef MO_CASE
    default: break; /* not launched */
    }
    if (!mine) {
        return;
    }
    __syncthreads();
    if (threadIdx.x < MO_SLAB_TILE) {
        mo_slab_activate(op, (const mo_slab_head *)memory, 0);
    }
}

/* Grid: tiles of 32 rows, items. */
MO_BOUNDED(mo_slab_in, mo_op_experts, MO_SLAB_TILE_BOUND, MO_SLAB_TILE_BOUND_BLOCKS);
MO_KERNEL(mo_slab_in, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_experts_in<false>(op, memory);
}

MO_BOUNDED(mo_slab_in_all, mo_op_experts, MO_SLAB_TILE_BOUND, MO_SLAB_TILE_BOUND_BLOCKS);
MO_KERNEL(mo_slab_in_all, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_experts_in<true>(op, memory);
}

/* The block's item of a worklist that may have been made a moment ago: bypassing this multiprocessor's own cache, which may
 * be stale. One thread reads, since all blocks read the same address; there is space for op.most
 * items, so that an item need not wait for the count. False: the list has no such item. */
static __device__ __forceinline__ bool mo_item_now(mo_slab_head *head, mo_daddr list, int index,
                                                   mo_dwork_item *item)
{
    if (threadIdx.x == 0) {
        const mo_dwork *work = mo_at<const mo_dwork>(list);
        const volatile mo_dwork_item *from = (const volatile mo_dwork_item *)(work + 1) + index;
        head->base = from->base;
        head->expert = from->expert;
        head->item_row[0] = from->row;
        head->count = *(const volatile int32_t *)&work->count;
    }
    __syncthreads();
    item->base = head->base;
    item->expert = head->expert;
    item->row = head->item_row[0];
    return index < head->count;
}

template <int TYPE>
static __device__ __forceinline__ void mo_slab_down_of(const mo_op_experts &op, uint8_t *memory)
{
    mo_slab_head *head = (mo_slab_head *)memory;
    mo_dwork_item item;
    const mo_slab_shape shape = mo_slab_cut(TYPE, op.hidden.cols, 1, mo_slab_most_here());
    mo_pipeline pipeline = mo_slab_begin(memory, shape);
    if (!op.list_stands) {
        mo_grid_wait();
    }
    if (!mo_item_now(head, op.work, blockIdx.y, &item)) {
        mo_grid_begin();
        return;
    }
    const int row0 = blockIdx.x << shape.rows_log2;
    const mo_slab_place place =
        mo_slab_place_of(shape, mo_at<const uint8_t>(item.base) + op.down_at, row0, op.down.rows);
    mo_slab_load_finish(head, 0, op.down, item.expert, row0, place.rows);
    if (threadIdx.x == 32) {
        head->y[0] = mo_at<float>(op.y) + (int64_t)item.row * op.down.rows + row0;
    }
    const mo_rows_acts acts = mo_rows_acts_of(op.hidden, item.row, 1);
    mo_slab_one<TYPE, 1>(memory, shape, pipeline, &acts, place, [&](int, int row, float value) {
        head->y[0][row] = mo_slab_finish(head, 0, op.down, row, value);
    });
}

template <bool ALL>
static __device__ __forceinline__ void mo_slab_experts_down(const mo_op_experts &op, uint8_t *memory)
{
    switch (op.down.type) {
#define MO_CASE(NAME, ...)                                                                                   \
    case MO_##NAME:                                                                                          \
        if constexpr (has<ALL>(MO_##NAME)) {                                                                 \
            mo_slab_down_of<MO_##NAME>(op, memory);                                                          \
        }                                                                                                    \
        break;
        MO_QUANTIZED_FORMATS(MO_CASE)
#undef MO_CASE
    default: break; /* not launched */
    }
}

/* Grid: slabs, items. */
MO_BOUNDED(mo_slab_down, mo_op_experts, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
MO_KERNEL(mo_slab_down, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_experts_down<false>(op, memory);
}

MO_BOUNDED(mo_slab_down_all, mo_op_experts, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
MO_KERNEL(mo_slab_down_all, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_slab_experts_down<true>(op, memory);
}
