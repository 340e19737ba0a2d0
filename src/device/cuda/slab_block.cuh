/* Slab block: what one thread block of the kernels for one token does, alone or before a tail (tail.cu). */
#ifndef MO_CUDA_SLAB_BLOCK_CUH
#define MO_CUDA_SLAB_BLOCK_CUH

#include "device/cuda/slab.cuh"

/* One slab of several matrices. Grid: the slabs of all, one after the other. */
static __device__ __forceinline__ void mo_slab_product_block(const mo_op_product &op, uint8_t *memory)
{
    int slab = blockIdx.x, which = 0;
    mo_slab_shape shape = mo_slab_cut(op.matrix[0].type, op.in.cols, 0);
    for (;;) { /* the matrix that has this slab; slabs of all lie in one row */
        const int slabs = op.matrix[which].data ? (op.matrix[which].rows + shape.rows - 1) / shape.rows : 0;
        if (slab < slabs) {
            break;
        }
        slab -= slabs;
        if (++which == op.count) {
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

static __device__ __forceinline__ float mo_slab_finish(const mo_dmatrix &m, int expert, int row, float value)
{
    value = m.scale ? value * mo_at<const float>(m.scale)[expert] : value;
    return m.bias ? value + mo_at<const float>(m.bias)[(int64_t)expert * m.rows + row] : value;
}

/* One slab of an expert's down matrix. Grid: slabs, items. */
static __device__ __forceinline__ void mo_slab_down_block(const mo_op_experts &op, uint8_t *memory)
{
    const mo_dwork *work = mo_at<const mo_dwork>(op.work);
    if ((int)blockIdx.y >= work->count) {
        return;
    }
    const mo_dwork_item item = ((const mo_dwork_item *)(work + 1))[blockIdx.y];
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

#endif
