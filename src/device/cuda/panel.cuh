/* Panel: the matrix-matrix product of one thread block, see panel.h. Codes, sums and folds are those of tile.cuh; what differs is how
 * weights come to the tensor cores. A warp has 16-row pieces of the matrix, whose codes its lanes take out of the file's bytes as they
 * multiply them, and 16-token pieces, which it reads as matrices.
 *
 * A step of MO_TILE_K values: wait for its copies, a barrier (all threads are done with the previous step), start the copies that go where
 * that one was, multiply. */
#ifndef MO_DEVICE_CUDA_PANEL_CUH
#define MO_DEVICE_CUDA_PANEL_CUH

#include "device/cuda/jobs.cuh"
#include "device/cuda/panel_copy.cuh"
#include "device/cuda/panel_decode.cuh"
#include "device/cuda/panel_group.cuh"

/* DOWN warps of 16 rows; all have the same N 16-token pieces. GROUP: four warps multiply together where they can; else each by itself.
 * TOGETHER: blocks of 32 that are decoded before they are multiplied. */
template <int TYPE_, int DOWN_, int N_, bool GROUP_ = true, int TOGETHER_ = 1> struct mo_panel {
    static constexpr int TYPE = TYPE_, FOLD = mo_tile_fold_of(TYPE), DOWN = DOWN_, N = N_;
    static constexpr bool GROUP = GROUP_ && MO_WARP_GROUPS;
    static constexpr int TOGETHER = TOGETHER_;
    static constexpr bool WHOLE = mo_format_values(TYPE) % MO_TILE_K == 0; /* every step */
    static constexpr bool ALIGNED = mo_format_bytes(TYPE) % 16 == 0;       /* every block */
    static constexpr int ROWS = 16 * DOWN, TOKENS = 16 * N, THREADS = 32 * DOWN;
    static constexpr mo_span SPAN = mo_span_of(TYPE);
    static constexpr int AHEAD = mo_panel_ahead(TYPE), SPANS = mo_panel_spans(TYPE);
    static constexpr int STRIDE = mo_panel_stride(TYPE);
    static constexpr mo_panel_places AT = mo_panel_lay(TYPE, ROWS, TOKENS);
    static constexpr int TOKEN_SCALES = mo_fold_token_scales(FOLD) * MO_TILE_BLOCKS * TOKENS; /* of a step */
    static constexpr int STEPS = SPAN.values / MO_TILE_K;                                     /* of a span */
};

/* ---- Multiplying ---- */

/* Block b of 32 for the warp's 16 rows and the first N of its 16-token pieces. a: the lane's codes; acts: all tokens' of the step; scales: the
 * lane's own of the first piece. */
template <class P, int N>
static __device__ __forceinline__ void
mo_panel_multiply(float (*acc)[4], const uint32_t a[4], const mo_tile_rows_scale<P::FOLD> &rs,
                  const uint8_t *acts, int b, const float *scales, const int32_t magic[4])
{
#if MO_WARP_GROUPS
    if constexpr (P::GROUP && mo_tile_halves<P::FOLD>) {
        mo_panel_multiply_halves<P, N>(acc, a, rs, acts + 32 * b, scales);
    } else if constexpr (P::GROUP) {
        mo_panel_multiply_group<P, N>(acc, a, rs, acts + 32 * b, scales);
    }
#endif
    if constexpr (P::GROUP) {
        return;
    }
    /* The lane names row lane % 8 of matrix lane / 8: both halves of the block for eight tokens, then for the next eight. */
    const int lane = threadIdx.x & 31;
    const uint8_t *named =
        acts + ((lane >> 4) * 8 + (lane & 7)) * MO_TILE_K + (((lane >> 3 & 1) ^ (lane & 7) ^ 2 * b) << 4);
    const float2 minus = make_float2(-MO_TILE_MAGIC_REAL * rs.a.x, -MO_TILE_MAGIC_REAL * rs.a.y);
    const float2 minus_b = make_float2(-MO_TILE_MAGIC_REAL * rs.b.x, -MO_TILE_MAGIC_REAL * rs.b.y);
#pragma unroll
    for (int n = 0; n < N; n++) {
        uint32_t pair[4]; /* of eights of tokens */
        mo_load_matrices(pair, named + n * (16 * MO_TILE_K));
        const float4 d = *(const float4 *)(scales + 16 * n);
        float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if constexpr (P::FOLD == MO_FOLD_MINIMUM) {
            s = *(const float4 *)(scales + MO_TILE_BLOCKS * P::TOKENS + 16 * n);
        }
        mo_tile_tokens_scale<P::FOLD> first = {}, second = {};
        first.d = make_float2(d.x, d.y);
        first.s = make_float2(s.x, s.y);
        second.d = make_float2(d.z, d.w);
        second.s = make_float2(s.z, s.w);
        mo_tile_piece<P::FOLD>(acc[2 * n], a, pair, rs, minus, minus_b, first, magic);
        mo_tile_piece<P::FOLD>(acc[2 * n + 1], a, pair + 2, rs, minus, minus_b, second, magic);
    }
}

/* A row's scales from the lane that has them: of the warp's row lane / 4 and the one eight further. */
template <int FOLD>
static __device__ __forceinline__ mo_tile_rows_scale<FOLD> mo_panel_give(const float (*mine)[4], int lane)
{
    mo_tile_rows_scale<FOLD> rs = {};
    rs.a = make_float2(__shfl_sync(MO_FULL, mine[0][0], lane), __shfl_sync(MO_FULL, mine[1][0], lane));
    if constexpr (mo_fold_row_scales(FOLD) > 1) {
        rs.b = make_float2(__shfl_sync(MO_FULL, mine[0][1], lane), __shfl_sync(MO_FULL, mine[1][1], lane));
    }
    if constexpr (mo_fold_row_scales(FOLD) > 2) {
        rs.c = make_float2(__shfl_sync(MO_FULL, mine[0][2], lane), __shfl_sync(MO_FULL, mine[1][2], lane));
    }
    return rs;
}

/* The rows that a lane has of every span: offset in its bytes, and place modulo 16 in the first. */
typedef struct mo_panel_lane {
    int32_t at[2], place[2];
} mo_panel_lane;

template <class P>
static __device__ __forceinline__ void mo_panel_lane_begin(mo_panel_lane *own, const mo_tile_job &job)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = min(warp * 16 + (lane >> 2) + 8 * i,
                          job.rows - 1 - job.row); /* past the end the last one's, never stored */
        own->at[i] = r * P::STRIDE;
        own->place[i] = (int32_t)((uint32_t)(job.row + r) * (uint32_t)job.row_bytes & 15);
    }
}

/* The warp's part of a step. A lane takes the scales of block t of its rows apart for the four lanes that have these rows. */
template <class P, int N>
static __device__ __forceinline__ void mo_panel_step(const mo_tile_job &job, const mo_panel_lane &own,
                                                     float (*acc)[4], int step, const int32_t magic[4],
                                                     const uint8_t *shared)
{
    constexpr int PER = P::SPAN.block_values / 32; /* blocks of 32 in the file's block */
    static_assert(P::TOGETHER == 1 || P::WHOLE, "nothing that is not there is multiplied");
    const int lane = threadIdx.x & 31, t = lane & 3;
    const int blocks = P::WHOLE ? MO_TILE_BLOCKS : min(MO_TILE_BLOCKS, job.cols / 32 - step * MO_TILE_BLOCKS);
    const int number = step / P::STEPS;
    const int begin = step % P::STEPS * MO_TILE_BLOCKS; /* block of the span */
    const uint8_t *raw = shared + P::AT.raw + number % P::SPANS * (P::ROWS * P::STRIDE);
    const uint8_t *row[2];
    float mine[2][4];
#pragma unroll
    for (int i = 0; i < 2; i++) { /* rows keep their place modulo 16 */
        row[i] = raw + own.at[i] + (P::ALIGNED ? 0 : (own.place[i] + number * P::SPAN.bytes) & 15);
        if (t < blocks) {
            mo_panel_scales<P::TYPE>(row[i] + (begin + t) / PER * P::SPAN.block_bytes, (begin + t) % PER,
                                     mine[i]);
        }
    }
    const int turn = step % (P::AHEAD + 1);
    const uint8_t *acts = shared + P::AT.acts + turn * (P::TOKENS * MO_TILE_K);
    const float *scales = (const float *)(shared + P::AT.token_scale) + turn * P::TOKEN_SCALES + 4 * t;
    MO_UNROLL(1)
    for (int from = 0; from < blocks; from += P::TOGETHER) {
        uint32_t a[P::TOGETHER][4];
#pragma unroll
        for (int i = 0; i < 2 * P::TOGETHER; i++) {
            const int b = from + i / 2;
            mo_panel_codes<P::TYPE>(row[i % 2] + (begin + b) / PER * P::SPAN.block_bytes, (begin + b) % PER,
                                    t, &a[i / 2][i % 2], &a[i / 2][2 + i % 2]);
        }
#pragma unroll
        for (int i = 0; i < P::TOGETHER; i++) {
            const int b = from + i;
            const mo_tile_rows_scale<P::FOLD> rs = mo_panel_give<P::FOLD>(mine, (lane & ~3) | b);
            mo_panel_multiply<P, N>(acc, a[i], rs, acts, b, scales + b * P::TOKENS, magic);
        }
    }
}

/* ---- All of it ---- */

template <class P, int N>
static __device__ __forceinline__ void mo_panel_steps(const mo_tile_job &job, const mo_dacts &in,
                                                      mo_panel_copies<P> *copies, float (*acc)[4],
                                                      uint8_t *shared)
{
    const int steps = (job.cols + MO_TILE_K - 1) / MO_TILE_K;
    /* Read from memory, so that the compiler keeps them: constants it would load anew for every product. */
    const int32_t magic[4] = {job.magic[0], job.magic[1], job.magic[2], job.magic[3]};
    mo_panel_lane own;
    mo_panel_lane_begin<P>(&own, job);
    for (int step = 0; step < steps; step++) {
        mo_async_wait<P::AHEAD - 1>();
        mo_group_show();
        __syncthreads();
        mo_panel_fetch<P>(copies, job, in, step + P::AHEAD, shared);
        mo_panel_step<P, N>(job, own, acc, step, magic, shared);
    }
}

/* With code for enough pieces for all tokens: N, or more. Groups have any number of rows, so FINE has code for nearly every
 * number; the tokens of a prompt fill most of their tiles. */
template <class P, bool FINE, int N>
static __device__ __forceinline__ void mo_panel_choose(const mo_tile_job &job, const mo_dacts &in,
                                                       mo_panel_copies<P> *copies, float (*acc)[4],
                                                       int pieces, uint8_t *shared)
{
    constexpr int MORE = N + (FINE ? (N < 6 ? 1 : 2) : P::N / 4);
    if constexpr (MORE > P::N) {
        mo_panel_steps<P, P::N>(job, in, copies, acc, shared);
    } else if (pieces <= N) {
        mo_panel_steps<P, N>(job, in, copies, acc, shared);
    } else {
        mo_panel_choose<P, FINE, MORE>(job, in, copies, acc, pieces, shared);
    }
}

/* All threads read the job. */
template <class P, bool FINE>
static __device__ __forceinline__ void mo_panel_run(const mo_tile_job &job, const mo_dacts &in,
                                                    uint8_t *shared)
{
    if (job.count == 0) {
        return;
    }
    mo_panel_copies<P> copies;
    mo_panel_copies_begin<P>(&copies, job);
#pragma unroll
    for (int step = 0; step < P::AHEAD; step++) {
        mo_panel_fetch<P>(&copies, job, in, step, shared);
    }
    float acc[2 * P::N][4] = {};
    mo_panel_choose<P, FINE, FINE ? 1 : P::N / 4>(job, in, &copies, acc, (job.count + 15) / 16, shared);
    mo_sums_store<P::N>(job, acc);
}

/* ---- Jobs ---- */

/* Grid: row tiles; token tiles of all groups, of which there are at most rows / tokens + groups. The first warp looks for the group. */
static __device__ __forceinline__ void mo_panel_grouped_job(const mo_op_grouped &op, int rows, int tokens,
                                                            mo_tile_job *job)
{
    if (threadIdx.x >= 32) {
        return;
    }
    const mo_dgroup *groups = mo_at<const mo_dgroup>(op.groups);
    int tile = blockIdx.y, found = -1;
    for (int from = 0; from < op.count && found < 0; from += 32) {
        const int own = from + (int)threadIdx.x;
        const int tiles = own < op.count ? (groups[own].count + tokens - 1) / tokens : 0;
        int until = tiles;
        for (int s = 1; s < 32; s *= 2) {
            const int other = __shfl_sync(MO_FULL, until, max((int)threadIdx.x - s, 0));
            until += (int)threadIdx.x >= s ? other : 0;
        }
        const uint32_t with = __ballot_sync(MO_FULL, tile < until && tile >= until - tiles);
        const int lane = with ? __ffs((int)with) - 1 : 31;
        const int before = __shfl_sync(MO_FULL, with ? until - tiles : until, lane);
        found = with ? from + lane : -1;
        tile -= before;
    }
    if (threadIdx.x != 0) {
        return;
    }
    job->count = 0;
    if (found >= 0) {
        const mo_dgroup group = groups[found];
        int first, count;
        mo_tokens_of(tile, group.count, tokens, &first, &count);
        mo_tile_matrix(job, op.matrix);
        job->data = mo_at<const uint8_t>(group.data);
        job->scale = op.matrix.scale ? mo_at<const float>(op.matrix.scale) + group.expert : NULL;
        job->bias = op.matrix.bias
                        ? mo_at<const float>(op.matrix.bias) + (int64_t)group.expert * op.matrix.rows
                        : NULL;
        job->pick = mo_at<const int32_t>(op.pick);
        job->y = mo_at<float>(op.y);
        job->stride = op.stride;
        job->row = blockIdx.x * rows;
        job->first = group.first + first;
        job->count = max(count, 0);
    }
}

#endif
