/* MO_OP_PRODUCT for few tokens: several matrices times the same rows, in one launch. The steps of all matrices are dealt
 * out in order to the thread blocks, so that each reads as many bytes as the others. */
#include "device/cuda/rows.cuh"

/* Steps of a matrix, whole rows together. */
static __device__ __forceinline__ int mo_product_groups(const mo_dmatrix &matrix, const mo_rows_shape &shape)
{
    return matrix.data ? (matrix.rows + shape.rows - 1) / shape.rows : 0;
}

template <int TOKENS>
static __device__ __forceinline__ void mo_product_few(const mo_op_product &op, uint8_t *memory)
{
    mo_rows_head *head = (mo_rows_head *)memory;
    mo_pipeline pipeline = mo_rows_begin(head);
    if ((int)threadIdx.x < op.count) {
        head->cut[threadIdx.x] = mo_rows_cut(op.matrix[threadIdx.x].type, op.in.cols, TOKENS);
    }
    __syncthreads();
    int64_t total = 0;
    for (int i = 0; i < op.count; i++) {
        total += mo_product_groups(op.matrix[i], head->cut[i]);
    }
    const int begin = (int)(total * blockIdx.x / gridDim.x),
              end = (int)(total * (blockIdx.x + 1) / gridDim.x);
    int before = 0; /* groups of the matrices before */
    for (int i = 0; i < op.count; i++) {
        const mo_dmatrix &matrix = op.matrix[i];
        const mo_rows_shape &shape = head->cut[i];
        const int groups = mo_product_groups(matrix, shape);
        const int first = max(begin - before, 0), last = min(end - before, groups);
        before += groups;
        if (first >= last) {
            continue;
        }
        const int row0 = first * shape.rows;
        if (threadIdx.x == 0) {
            const uint8_t *data = mo_at<const uint8_t>(matrix.data);
            mo_rows_source source;
            source.data[0] = source.data[1] = data + (int64_t)row0 * shape.row_bytes;
            source.limit[0] = source.limit[1] = data + (int64_t)matrix.rows * shape.row_bytes;
            source.split = 0;
            source.rows = min(last * shape.rows, matrix.rows) - row0;
            head->source = source;
            head->acts = mo_rows_acts_of(op.in, 0, op.tokens);
        }
        __syncthreads();
        mo_rows_run<TOKENS>(pipeline, head, matrix.type, i, [&](int row, int token, float value) {
            mo_at<float>(op.y[i])[token * op.stride[i] + row0 + row] = mo_rows_finish(
                value, mo_at<const float>(matrix.scale), mo_at<const float>(matrix.bias), row0 + row);
        });
        __syncthreads();
    }
}

#define MO_PRODUCT(TOKENS, blocks)                                                                           \
    MO_BOUNDED(mo_product_##TOKENS, mo_op_product, MO_ROWS_THREADS + mo_rows_folders(TOKENS), blocks);       \
    MO_KERNEL(mo_product_##TOKENS, mo_op_product)                                                            \
    {                                                                                                        \
        MO_DYNAMIC_SHARED(memory);                                                                           \
        mo_grid_begin();                                                                                     \
        mo_product_few<TOKENS>(op, memory);                                                                  \
    }

MO_PRODUCT(1, 3)
MO_PRODUCT(4, 2)
MO_PRODUCT(8, 2)
