/* Matrix-matrix products: MO_OP_GROUPED, and MO_OP_PRODUCT with many tokens. One kernel for each fold and shape of tile,
 * for either op; launch_grouped.c chooses. */
#include "device/cuda/float_tile.cuh"
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

/* Grid: row tiles of all matrices with this fold, token tiles. */
static __device__ __forceinline__ bool mo_product_job(const mo_op_product &op, int fold, int rows, int tokens,
                                                      mo_tile_job *job)
{
    int tile = blockIdx.x;
    for (int i = 0; i < op.count; i++) {
        const mo_dmatrix &matrix = op.matrix[i];
        if (!matrix.data || mo_tile_fold_of(matrix.type) != fold) {
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

#define MO_TILE_KERNELS(name, FOLD, SHAPE, blocks)                                                           \
    MO_BOUNDED(mo_grouped_##name, mo_op_grouped, SHAPE::THREADS, blocks);                                    \
    MO_KERNEL(mo_grouped_##name, mo_op_grouped)                                                              \
    {                                                                                                        \
        MO_DYNAMIC_SHARED(shared);                                                                           \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        if (threadIdx.x == 0 && !mo_grouped_job(op, SHAPE::ROWS, SHAPE::TOKENS, job)) {                      \
            job->count = 0;                                                                                  \
        }                                                                                                    \
        mo_tile_run<FOLD, SHAPE>(*job, op.in, shared);                                                       \
    }                                                                                                        \
    MO_BOUNDED(mo_product_tile_##name, mo_op_product, SHAPE::THREADS, blocks);                               \
    MO_KERNEL(mo_product_tile_##name, mo_op_product)                                                         \
    {                                                                                                        \
        MO_DYNAMIC_SHARED(shared);                                                                           \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        if (threadIdx.x == 0 && !mo_product_job(op, FOLD, SHAPE::ROWS, SHAPE::TOKENS, job)) {                \
            job->count = 0;                                                                                  \
        }                                                                                                    \
        mo_tile_run<FOLD, SHAPE>(*job, op.in, shared);                                                       \
    }

#define MO_TILE_SHAPES_OF(name, FOLD)                                                                        \
    MO_TILE_KERNELS(name##_wide, FOLD, mo_shape_wide, 2)                                                     \
    MO_TILE_KERNELS(name##_middle, FOLD, mo_shape_middle, 3)                                                 \
    MO_TILE_KERNELS(name##_narrow, FOLD, mo_shape_narrow, 5)

MO_TILE_SHAPES_OF(plain, MO_FOLD_PLAIN)
MO_TILE_SHAPES_OF(minimum, MO_FOLD_MINIMUM)
MO_TILE_SHAPES_OF(half_minima, MO_FOLD_HALF_MINIMA)
MO_TILE_SHAPES_OF(half_scales, MO_FOLD_HALVES)
MO_TILE_SHAPES_OF(two_steps, MO_FOLD_TWO_STEPS)

MO_KERNEL(mo_grouped_float, mo_op_grouped)
{
    mo_tile_job job;
    if (mo_grouped_job(op, MO_FLOAT_TILE_ROWS, MO_FLOAT_TILE_TOKENS, &job)) {
        mo_float_block<MO_FLOAT_TILE_ROWS / MO_FLOAT_TILE_WARPS>(job, op.in);
    }
}

MO_KERNEL(mo_product_tile_float, mo_op_product)
{
    mo_tile_job job;
    if (mo_product_job(op, MO_FOLD_NONE, MO_FLOAT_TILE_ROWS, MO_FLOAT_TILE_TOKENS, &job)) {
        mo_float_block<MO_FLOAT_TILE_ROWS / MO_FLOAT_TILE_WARPS>(job, op.in);
    }
}

/* Routers, whose rows are few. */
MO_KERNEL(mo_product_tile_float_few, mo_op_product)
{
    mo_tile_job job;
    mo_grid_begin();
    if (mo_product_job(op, MO_FOLD_NONE, MO_FLOAT_TILE_WARPS, MO_FLOAT_TILE_TOKENS, &job)) {
        mo_float_block<1>(job, op.in);
    }
}
