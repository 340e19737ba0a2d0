/* Experts of a few tokens in slabs: MO_OP_EXPERTS_IN and MO_OP_EXPERTS_DOWN of steps in which tokens meet the same expert. A slab that two of
 * them meet is read and taken apart once. */
#include "device/cuda/pairs.h"
#include "device/cuda/slab.cuh"

/* What a block works on: item number `index` of the worklist, if an even number of those before it have the same expert, and the next
 * that has. By the first warp, for all threads after the barrier, bypassing this multiprocessor's own cache: the list may have been
 * made a moment ago, and may be stale there. There is space for `most` items, so that none waits for the count. */
static __device__ __forceinline__ bool pair_now(mo_slab_head *head, const mo_op_experts &op, int index)
{
    if (threadIdx.x < 32) {
        const int lane = threadIdx.x;
        const mo_dwork *work = mo_at<const mo_dwork>(op.work);
        const volatile mo_dwork_item *items = (const volatile mo_dwork_item *)(work + 1);
        const int count = *(const volatile int32_t *)&work->count;
        const mo_daddr base = items[index].base;
        int before = 0, partner = -1;
        for (int first = 0; first < op.most; first += 32) {
            const int k = first + lane;
            const bool same = k < op.most && items[k].base == base;
            const uint32_t found = __ballot_sync(MO_FULL, same && k < count);
            const int at = index - first;
            const uint32_t below = at <= 0 ? 0 : at >= 32 ? MO_FULL : (1u << at) - 1;
            const uint32_t above = found & ~below & ~(at >= 0 && at < 32 ? 1u << at : 0);
            before += __popc(found & below);
            partner = partner < 0 && above ? first + __popc((above & (0u - above)) - 1) : partner;
        }
        if (lane == 0) {
            const bool mine = index < count && before % 2 == 0;
            head->count = mine;
            head->base = base;
            head->expert = items[index].expert;
            head->item_row[0] = items[index].row;
            head->item_token[0] = items[index].token;
            head->item_row[1] = mine && partner >= 0 ? items[partner].row : -1;
            head->item_token[1] = mine && partner >= 0 ? items[partner].token : 0;
        }
    }
    __syncthreads();
    return head->count != 0;
}

/* ---- Gate and up ---- */

template <int TYPE, int TOKENS>
static __device__ __forceinline__ void tile_of(const mo_op_experts &op, uint8_t *memory,
                                               const mo_slab_shape &shape, mo_pipeline &pipeline,
                                               const mo_slab_source &source)
{
    const mo_slab_head *head = (const mo_slab_head *)memory;
    mo_rows_acts acts[TOKENS];
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        acts[t] = mo_rows_acts_of(op.in, head->item_token[t], 1);
    }
    mo_slab_tile<TYPE, TOKENS>(memory, shape, pipeline, acts, source);
}

template <int TYPE>
static __device__ __forceinline__ bool pair_in_of(const mo_op_experts &op, uint8_t *memory)
{
    mo_slab_head *head = (mo_slab_head *)memory;
    const mo_slab_shape shape =
        mo_slab_tile_cut(TYPE, op.in.cols, (int64_t)gridDim.x * gridDim.y, MO_SLAB_TOKENS);
    mo_pipeline pipeline = mo_slab_begin(memory, shape);
    mo_grid_begin();
    if (!pair_now(head, op, blockIdx.y)) {
        return false;
    }
    const int row0 = blockIdx.x * MO_SLAB_TILE;
    const uint8_t *gate = mo_at<const uint8_t>(head->base);
    mo_slab_source source;
    source.gate = gate + (int64_t)row0 * shape.row_bytes;
    source.up = source.gate + op.up_at;
    source.gate_limit = gate + (int64_t)op.gate.rows * shape.row_bytes;
    source.up_limit = source.gate_limit + op.up_at;
    if (threadIdx.x == 32) {
        head->row[0] = head->item_row[0];
        head->row[1] = head->item_row[1];
    }
    mo_slab_load_finish(head, 0, op.gate, head->expert, row0, MO_SLAB_TILE);
    mo_slab_load_finish(head, 1, op.up, head->expert, row0, MO_SLAB_TILE);
    if (head->item_row[1] >= 0) {
        tile_of<TYPE, MO_SLAB_TOKENS>(op, memory, shape, pipeline, source);
    } else {
        tile_of<TYPE, 1>(op, memory, shape, pipeline, source);
    }
    return true;
}

/* Grid: tiles of 32 rows, items. */
MO_BOUNDED(mo_pairs_in, mo_op_experts, MO_SLAB_TILE_THREADS, 3);
MO_KERNEL(mo_pairs_in, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    bool mine = false;
    switch (op.gate.type) {
#define MO_CASE(NAME)                                                                                        \
    case MO_##NAME: mine = pair_in_of<MO_##NAME>(op, memory); break;
        MO_PAIR_FORMATS(MO_CASE)
#undef MO_CASE
    default: break; /* not launched */
    }
    if (!mine) {
        return;
    }
    __syncthreads();
    const mo_slab_head *head = (const mo_slab_head *)memory;
    const int t = threadIdx.x / 32;
    if (t < MO_SLAB_TOKENS && head->row[t] >= 0) {
        mo_slab_activate(op, head, t);
    }
}

/* ---- Down ---- */

template <int TYPE, int TOKENS>
static __device__ __forceinline__ void down_of(const mo_op_experts &op, uint8_t *memory,
                                               const mo_slab_shape &shape, mo_pipeline &pipeline,
                                               const mo_slab_place &place)
{
    const mo_slab_head *head = (const mo_slab_head *)memory;
    mo_rows_acts acts[TOKENS];
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        acts[t] = mo_rows_acts_of(op.hidden, head->item_row[t], 1);
    }
    mo_slab_one<TYPE, TOKENS>(memory, shape, pipeline, acts, place, [&](int t, int row, float value) {
        head->y[t][row] = mo_slab_finish(head, 0, op.down, row, value);
    });
}

template <int TYPE>
static __device__ __forceinline__ void pair_down_of(const mo_op_experts &op, uint8_t *memory)
{
    mo_slab_head *head = (mo_slab_head *)memory;
    const mo_slab_shape shape = mo_slab_cut(TYPE, op.hidden.cols, MO_SLAB_TOKENS, mo_slab_most_here());
    mo_pipeline pipeline = mo_slab_begin(memory, shape);
    if (!op.list_stands) {
        mo_grid_wait();
    }
    if (!pair_now(head, op, blockIdx.y)) {
        mo_grid_begin();
        return;
    }
    const int row0 = blockIdx.x << shape.rows_log2;
    const mo_slab_place place =
        mo_slab_place_of(shape, mo_at<const uint8_t>(head->base) + op.down_at, row0, op.down.rows);
    mo_slab_load_finish(head, 0, op.down, head->expert, row0, place.rows);
    if (threadIdx.x >= 32 && threadIdx.x < 32 + MO_SLAB_TOKENS) {
        const int t = (int)threadIdx.x - 32;
        head->y[t] = mo_at<float>(op.y) + (int64_t)head->item_row[t] * op.down.rows + row0;
    }
    if (head->item_row[1] >= 0) {
        down_of<TYPE, MO_SLAB_TOKENS>(op, memory, shape, pipeline, place);
    } else {
        down_of<TYPE, 1>(op, memory, shape, pipeline, place);
    }
}

/* Grid: slabs, items. */
MO_BOUNDED(mo_pairs_down, mo_op_experts, MO_SLAB_BOUND, MO_SLAB_BOUND_BLOCKS);
MO_KERNEL(mo_pairs_down, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    switch (op.down.type) {
#define MO_CASE(NAME)                                                                                        \
    case MO_##NAME: pair_down_of<MO_##NAME>(op, memory); break;
        MO_PAIR_FORMATS(MO_CASE)
#undef MO_CASE
    default: break; /* not launched */
    }
}
