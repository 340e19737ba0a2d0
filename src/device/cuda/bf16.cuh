/* Wide: the product in bfloat16 of one thread block (wide.h). Rows of the matrix and of the tokens come to shared memory by asynchronous copies,
 * 16-byte chunks changing places by row so that reading eight of them meets no bank twice.
 *
 * A step: wait for its copies, a barrier (all threads are done with the previous step), start the copies into its buffer, multiply. */
#ifndef MO_DEVICE_CUDA_BF16_CUH
#define MO_DEVICE_CUDA_BF16_CUH

#include "device/cuda/bf16_group.cuh"
#include "device/cuda/row.cuh"

enum {
    MO_BF16_CHUNKS = MO_BF16_K / 8,                  /* of 16 bytes in a row of a step */
    MO_BF16_PASS = MO_BF16_THREADS / MO_BF16_CHUNKS, /* rows that all threads copy at once */
    MO_BF16_PASSES = MO_BF16_ROWS / MO_BF16_PASS,
};
static_assert(MO_BF16_ROWS == MO_BF16_TOKENS && MO_BF16_ROWS == 16 * (MO_BF16_THREADS / 32),
              "both sides are copied alike, and a warp has 16 rows");

typedef struct mo_bf16_job {
    const uint8_t *bf16, *in;
    const float *scale, *bias; /* or NULL */
    float *y;
    int64_t stride;
    int32_t rows, cols;   /* of the matrix */
    int32_t row;          /* the first of this block */
    int32_t first, count; /* tokens; 0: nothing to do */
} mo_bf16_job;

enum { MO_BF16_SOURCE = 256 }; /* where in shared memory the rows of the tokens are named: int32[tokens] */
static_assert(sizeof(mo_bf16_job) <= MO_BF16_SOURCE && MO_BF16_SOURCE + 4 * MO_BF16_TOKENS <= MO_BF16_HEAD,
              "fit their places");

/* ---- Jobs ---- */

/* The group that has token tile *tile of all, and which of its own that is; -1: there are fewer. The first warp searches together. */
static __device__ __forceinline__ int mo_bf16_group_of(const mo_op_bf16 &op, int *tile)
{
    const mo_dgroup *groups = mo_at<const mo_dgroup>(op.groups);
    for (int from = 0; from < op.count; from += 32) {
        const int own = from + (int)threadIdx.x;
        const int tiles = own < op.count ? (groups[own].count + MO_BF16_TOKENS - 1) / MO_BF16_TOKENS : 0;
        int until = tiles;
        for (int s = 1; s < 32; s *= 2) {
            const int other = __shfl_sync(MO_FULL, until, max((int)threadIdx.x - s, 0));
            until += (int)threadIdx.x >= s ? other : 0;
        }
        const uint32_t with = __ballot_sync(MO_FULL, *tile < until && *tile >= until - tiles);
        if (with) {
            const int lane = __ffs((int)with) - 1;
            *tile -= __shfl_sync(MO_FULL, until - tiles, lane);
            return from + lane;
        }
        *tile -= __shfl_sync(MO_FULL, until, 31);
    }
    return -1;
}

/* Bands of row tiles, all token tiles of one before the next. */
static __device__ __forceinline__ void mo_bf16_place(int *row_tile, int *token_tile)
{
    const int64_t number = (int64_t)blockIdx.y * gridDim.x + blockIdx.x;
    const int64_t each = (int64_t)MO_BF16_BAND * gridDim.y;
    const int band = (int)(number / each), within = (int)(number % each);
    const int width = min((int)MO_BF16_BAND, (int)gridDim.x - band * MO_BF16_BAND);
    *row_tile = band * MO_BF16_BAND + within % width;
    *token_tile = within / width;
}

static __device__ __forceinline__ void mo_bf16_job_of(const mo_op_bf16 &op, mo_bf16_job *job)
{
    int row_tile, tile;
    if (threadIdx.x >= 32) {
        return;
    }
    mo_bf16_place(&row_tile, &tile);
    const int number = op.groups ? mo_bf16_group_of(op, &tile) : 0;
    if (threadIdx.x != 0) {
        return;
    }
    job->count = 0;
    if (number < 0) {
        return;
    }
    const int rows = op.matrix.rows, cols = op.matrix.cols;
    int expert = 0, first = 0, count = op.rows;
    if (op.groups) {
        const mo_dgroup group = mo_at<const mo_dgroup>(op.groups)[number];
        expert = group.expert;
        first = group.first;
        count = group.count;
    }
    job->bf16 = mo_at<const uint8_t>(op.bf16) + (int64_t)number * rows * cols * 2;
    job->in = mo_at<const uint8_t>(op.in);
    job->scale = op.matrix.scale ? mo_at<const float>(op.matrix.scale) + expert : NULL;
    job->bias = op.matrix.bias ? mo_at<const float>(op.matrix.bias) + (int64_t)expert * rows : NULL;
    job->y = mo_at<float>(op.y);
    job->stride = op.stride;
    job->rows = rows;
    job->cols = cols;
    job->row = row_tile * MO_BF16_ROWS;
    job->first = first + tile * MO_BF16_TOKENS;
    job->count = min((int)MO_BF16_TOKENS, count - tile * MO_BF16_TOKENS);
}

/* ---- Copies ---- */

/* Chunk threadIdx.x % MO_BF16_CHUNKS of the step, of every MO_WIDE_PASSth row. from[i]: that chunk of the first step, NULL: there is no such
 * row. */
static __device__ __forceinline__ void mo_bf16_fetch_side(const uint8_t *const *from, int step, uint8_t *to)
{
    const int chunk = threadIdx.x % MO_BF16_CHUNKS, r = threadIdx.x / MO_BF16_CHUNKS;
    uint8_t *at = to + r * (MO_BF16_K * 2) + ((chunk ^ (r & 7)) << 4);
#pragma unroll
    for (int i = 0; i < MO_BF16_PASSES; i++) {
        if (from[i]) {
            mo_async_copy16(at + i * (MO_BF16_PASS * MO_BF16_K * 2), from[i] + step * (MO_BF16_K * 2));
        }
    }
}

typedef struct mo_bf16_from {
    const uint8_t *row[MO_BF16_PASSES], *token[MO_BF16_PASSES];
} mo_bf16_from;

static __device__ __forceinline__ mo_bf16_from mo_bf16_from_of(const mo_bf16_job &job, const int32_t *source)
{
    const int chunk = threadIdx.x % MO_BF16_CHUNKS, r = threadIdx.x / MO_BF16_CHUNKS;
    mo_bf16_from from;
#pragma unroll
    for (int i = 0; i < MO_BF16_PASSES; i++) {
        const int at = r + i * MO_BF16_PASS;
        from.row[i] =
            job.row + at < job.rows ? job.bf16 + (int64_t)(job.row + at) * job.cols * 2 + 16 * chunk : NULL;
        from.token[i] = at < job.count ? job.in + (int64_t)source[at] * job.cols * 2 + 16 * chunk : NULL;
    }
    return from;
}

static __device__ __forceinline__ uint8_t *mo_bf16_stage(uint8_t *shared, int step)
{
    return shared + MO_BF16_HEAD + step % (MO_BF16_AHEAD + 1) * (2 * MO_BF16_SIDE);
}

/* Starts all copies of a step, as one group; an empty one after the last step. Of a last step that is half as long chunks behind the row's end
 * stay unchanged: they are not multiplied. */
static __device__ __forceinline__ void mo_bf16_fetch(const mo_bf16_from &from, int cols, int step,
                                                     uint8_t *shared)
{
    if (step * MO_BF16_K + 8 * (int)(threadIdx.x % MO_BF16_CHUNKS) < cols) {
        uint8_t *stage = mo_bf16_stage(shared, step);
        mo_bf16_fetch_side(from.row, step, stage);
        mo_bf16_fetch_side(from.token, step, stage + MO_BF16_SIDE);
    }
    mo_async_commit();
}

/* ---- Multiplying ---- */

/* The warp's 16 rows and N pieces of 16 tokens, `parts` times 16 values. */
template <int N>
static __device__ __forceinline__ void mo_bf16_multiply(float (*acc)[4], const uint8_t *stage, int parts)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#if MO_WARP_GROUPS
    (void)lane;
    mo_bf16_multiply_group<N>(acc, stage + warp / 4 * (64 * MO_BF16_K * 2), stage + MO_BF16_SIDE, parts);
#else
    /* The lane names row lane % 8 of matrix lane / 8: of the rows the lower eight, then the upper ones, then their second halves; of
     * tokens both halves of eight, then of the next eight. */
    const int eight = lane & 7, which = lane >> 3;
    const uint8_t *rows = stage + (warp * 16 + (which & 1) * 8 + eight) * (MO_BF16_K * 2);
    const uint8_t *tokens = stage + MO_BF16_SIDE + ((which >> 1) * 8 + eight) * (MO_BF16_K * 2);
    for (int k = 0; k < parts; k++) {
        uint32_t a[4];
        mo_load_matrices(a, rows + (((2 * k + (which >> 1)) ^ eight) << 4));
        const uint8_t *named = tokens + (((2 * k + (which & 1)) ^ eight) << 4);
#pragma unroll
        for (int n = 0; n < N; n++) {
            uint32_t pair[4];
            mo_load_matrices(pair, named + n * (16 * MO_BF16_K * 2));
            mo_mma_bf16(acc[2 * n], a, pair);
            mo_mma_bf16(acc[2 * n + 1], a, pair + 2);
        }
    }
#endif
}

template <int N>
static __device__ __forceinline__ void mo_bf16_steps(const mo_bf16_job &job, const mo_bf16_from &from,
                                                     uint8_t *shared)
{
    const int cols = job.cols, steps = (cols + MO_BF16_K - 1) / MO_BF16_K;
    float acc[2 * N][4] = {};
    for (int step = 0; step < steps; step++) {
        mo_async_wait<MO_BF16_AHEAD - 1>();
        mo_group_show();
        __syncthreads();
        mo_bf16_fetch(from, cols, step + MO_BF16_AHEAD, shared);
        mo_bf16_multiply<N>(acc, mo_bf16_stage(shared, step), min(MO_BF16_K, cols - step * MO_BF16_K) / 16);
    }
    mo_sums_store<N>(job, acc);
}

static __device__ __forceinline__ void mo_bf16_run(const mo_op_bf16 &op, uint8_t *shared)
{
    mo_bf16_job *job = (mo_bf16_job *)shared;
    int32_t *source = (int32_t *)(shared + MO_BF16_SOURCE);
    mo_bf16_job_of(op, job);
    __syncthreads();
    if (job->count <= 0) {
        return;
    }
    const int32_t *pick = mo_at<const int32_t>(op.pick);
    for (int t = threadIdx.x; t < job->count; t += MO_BF16_THREADS) {
        source[t] = pick ? pick[job->first + t] : job->first + t;
    }
    __syncthreads();
    const mo_bf16_from from = mo_bf16_from_of(*job, source);
#pragma unroll
    for (int step = 0; step < MO_BF16_AHEAD; step++) {
        mo_bf16_fetch(from, job->cols, step, shared);
    }
    if (job->count <= MO_BF16_TOKENS / 2) {
        mo_bf16_steps<MO_BF16_TOKENS / 32>(*job, from, shared);
    } else {
        mo_bf16_steps<MO_BF16_TOKENS / 16>(*job, from, shared);
    }
}

#endif
