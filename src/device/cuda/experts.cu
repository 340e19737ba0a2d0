/* MO_OP_EXPERTS_IN and MO_OP_EXPERTS_DOWN: the rows of a worklist, each times its own expert's matrices. Grid: thread
 * blocks of one item, items; those beyond the list's count have nothing to do. */
#include "device/cuda/activation.cuh"
#include "device/cuda/rows.cuh"

/* The block's item, for thread 0. Its address does not wait for the count: there is space for op.most. */
static __device__ __forceinline__ bool mo_experts_item(const mo_op_experts &op, mo_rows_head *head)
{
    const mo_dwork *work = mo_at<const mo_dwork>(op.work);
    if (threadIdx.x == 0) {
        head->item = ((const mo_dwork_item *)(work + 1))[blockIdx.y];
    }
    return (int)blockIdx.y < work->count;
}

/* Scale and bias of an expert's matrix. */
struct mo_experts_finish {
    const float *scale, *bias;
};
static __device__ __forceinline__ mo_experts_finish mo_experts_finish_of(const mo_dmatrix &matrix, int expert)
{
    mo_experts_finish f;
    f.scale = matrix.scale ? mo_at<const float>(matrix.scale) + expert : NULL;
    f.bias = matrix.bias ? mo_at<const float>(matrix.bias) + (int64_t)expert * matrix.rows : NULL;
    return f;
}

/* A tile: 32 rows of gate and the same rows of up. Matrices of one type go through the pipeline as one. */
static __device__ __forceinline__ void mo_experts_tile(const mo_op_experts &op, uint8_t *memory)
{
    mo_rows_head *head = (mo_rows_head *)memory;
    const mo_dwork_item &item = head->item;
    if (!mo_experts_item(op, head)) {
        return;
    }
    mo_pipeline pipeline = mo_rows_begin(head);
    const int row0 = blockIdx.x * MO_ROWS_TILE, rows = min((int)MO_ROWS_TILE, op.gate.rows - row0);
    const bool alike = op.gate.type == op.up.type;
    for (int pass = 0; pass < (alike ? 1 : 2); pass++) {
        const int type = pass ? op.up.type : op.gate.type;
        if (threadIdx.x == 0) {
            const mo_rows_shape shape = mo_rows_cut(type, op.in.cols, 1);
            const int64_t bytes = (int64_t)op.gate.rows * shape.row_bytes,
                          from = (int64_t)row0 * shape.row_bytes;
            const uint8_t *gate = mo_at<const uint8_t>(item.base), *up = gate + op.up_at;
            mo_rows_source source;
            source.data[0] = (pass ? up : gate) + from;
            source.limit[0] = (pass ? up : gate) + bytes;
            source.data[1] = up + from;
            source.limit[1] = up + bytes;
            source.split = alike ? MO_ROWS_TILE : 0;
            source.rows = rows;
            head->cut[0] = shape;
            head->source = source;
            head->acts = mo_rows_acts_of(op.in, item.token, 1);
        }
        __syncthreads();
        mo_rows_run<1>(pipeline, head, type, 0,
                       [&](int row, int, float value) { head->result[pass * MO_ROWS_TILE + row] = value; });
        __syncthreads();
    }
    if (threadIdx.x >= 32) {
        return;
    }
    const int lane = threadIdx.x, row = row0 + lane;
    float hidden = 0.0f;
    if (lane < rows) {
        const mo_experts_finish gate = mo_experts_finish_of(op.gate, item.expert);
        const mo_experts_finish up = mo_experts_finish_of(op.up, item.expert);
        hidden = mo_activation_of(op.activation, op.limit,
                                  mo_rows_finish(head->result[lane], gate.scale, gate.bias, row),
                                  mo_rows_finish(head->result[MO_ROWS_TILE + lane], up.scale, up.bias, row));
        mo_at<float>(op.hidden.x)[(int64_t)item.row * op.hidden.cols + row] = hidden;
    }
    __syncwarp();
    if (op.hidden.cols % 32 == 0) {
        mo_quantize_block(op.hidden, item.row, blockIdx.x, hidden);
    }
}

static __device__ __forceinline__ void mo_experts_rows(const mo_op_experts &op, uint8_t *memory)
{
    mo_rows_head *head = (mo_rows_head *)memory;
    const mo_dwork_item &item = head->item;
    if (!mo_experts_item(op, head)) {
        return;
    }
    mo_pipeline pipeline = mo_rows_begin(head);
    if (threadIdx.x == 0) {
        head->cut[0] = mo_rows_cut(op.down.type, op.hidden.cols, 1);
    }
    __syncthreads();
    const mo_rows_shape &shape = head->cut[0];
    const int groups = (op.down.rows + shape.rows - 1) / shape.rows;
    const int row0 = (int)((int64_t)groups * blockIdx.x / gridDim.x) * shape.rows;
    const int end = min((int)((int64_t)groups * (blockIdx.x + 1) / gridDim.x) * shape.rows, op.down.rows);
    if (threadIdx.x == 0) {
        const uint8_t *data = mo_at<const uint8_t>(item.base) + op.down_at;
        mo_rows_source source;
        source.data[0] = source.data[1] = data + (int64_t)row0 * shape.row_bytes;
        source.limit[0] = source.limit[1] = data + (int64_t)op.down.rows * shape.row_bytes;
        source.split = 0;
        source.rows = end - row0;
        head->source = source;
        head->acts = mo_rows_acts_of(op.hidden, item.row, 1);
    }
    __syncthreads();
    mo_rows_run<1>(pipeline, head, op.down.type, 0, [&](int row, int, float value) {
        const mo_experts_finish finish = mo_experts_finish_of(op.down, item.expert);
        mo_at<float>(op.y)[(int64_t)item.row * op.down.rows + row0 + row] =
            mo_rows_finish(value, finish.scale, finish.bias, row0 + row);
    });
}

MO_BOUNDED(mo_experts_in, mo_op_experts, MO_ROWS_THREADS + mo_rows_folders(1), 3);
MO_KERNEL(mo_experts_in, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_grid_begin();
    mo_experts_tile(op, memory);
}

MO_BOUNDED(mo_experts_down, mo_op_experts, MO_ROWS_THREADS + mo_rows_folders(1), 3);
MO_KERNEL(mo_experts_down, mo_op_experts)
{
    MO_DYNAMIC_SHARED(memory);
    mo_grid_begin();
    mo_experts_rows(op, memory);
}
