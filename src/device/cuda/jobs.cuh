/* Jobs: which rows of which matrix, and which tokens, a thread block of the matrix-matrix kernels has. */
#ifndef MO_DEVICE_CUDA_JOBS_CUH
#define MO_DEVICE_CUDA_JOBS_CUH

#include "device/cuda/tile.cuh"

/* The tokens of one thread block among `count`: as few blocks as their limit allows, equally long in eights. */
static __device__ __forceinline__ bool mo_tokens_of(int number, int count, int limit, int *first, int *tokens)
{
    const int tiles = (count + limit - 1) / limit;
    const int each = tiles > 0 ? ((count + tiles - 1) / tiles + 7) / 8 * 8 : 0;
    *first = number * each;
    *tokens = min(each, count - *first);
    return number<tiles && * tokens> 0;
}

/* Types that go through the kernels of a fold. */
template <int FOLD> struct mo_of_fold {
    __device__ __forceinline__ bool operator()(int32_t type) const
    {
        return mo_tile_fold_of(type) == FOLD;
    }
};

/* Types that are quantized. */
struct mo_quantized {
    __device__ __forceinline__ bool operator()(int32_t type) const
    {
        return mo_tile_fold_of(type) != MO_FOLD_NONE;
    }
};

/* Grid: row tiles, token tiles of the largest group, groups. */
static __device__ __forceinline__ bool mo_grouped_job(const mo_op_grouped &op, int rows, int tokens,
                                                      mo_tile_job *job)
{
    const mo_dgroup group = mo_at<const mo_dgroup>(op.groups)[blockIdx.z];
    int first, count;
    if (!mo_tokens_of(blockIdx.y, group.count, tokens, &first, &count)) {
        return false;
    }
    mo_tile_matrix(job, op.matrix);
    job->data = mo_at<const uint8_t>(group.data);
    job->scale = op.matrix.scale ? mo_at<const float>(op.matrix.scale) + group.expert : NULL;
    job->bias =
        op.matrix.bias ? mo_at<const float>(op.matrix.bias) + (int64_t)group.expert * op.matrix.rows : NULL;
    job->pick = mo_at<const int32_t>(op.pick);
    job->y = mo_at<float>(op.y);
    job->stride = op.stride;
    job->row = blockIdx.x * rows;
    job->first = group.first + first;
    job->count = count;
    return true;
}

/* Grid: row tiles of all matrices whose type is wanted, token tiles. */
template <class WANTED>
static __device__ __forceinline__ bool mo_product_job(const mo_op_product &op, const WANTED &wanted, int rows,
                                                      int tokens, mo_tile_job *job)
{
    int tile = blockIdx.x;
    for (int i = 0; i < op.count; i++) {
        const mo_dmatrix &matrix = op.matrix[i];
        if (!matrix.data || !wanted(matrix.type)) {
            continue;
        }
        const int tiles = (matrix.rows + rows - 1) / rows;
        if (tile < tiles) {
            mo_tile_matrix(job, matrix);
            job->data = mo_at<const uint8_t>(matrix.data);
            job->scale = mo_at<const float>(matrix.scale);
            job->bias = mo_at<const float>(matrix.bias);
            job->pick = NULL;
            job->y = mo_at<float>(op.y[i]);
            job->stride = op.stride[i];
            job->row = tile * rows;
            return mo_tokens_of(blockIdx.y, op.tokens, tokens, &job->first, &job->count);
        }
        tile -= tiles;
    }
    return false;
}

#endif
