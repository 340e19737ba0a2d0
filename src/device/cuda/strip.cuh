/* Strip: the product of one thread block for 2 to some dozen tokens. Reading the matrix and taking its codes apart is most of
 * the work, so each weight is taken apart once, in the registers of the lane that hands it to the tensor cores, and nothing
 * is written back to shared memory but scales. Folds and the trick of the integer sums are those of tile.cuh.
 *
 * A step: wait for its copies, start those of a step ahead, then every warp by itself: scales of its 16 rows, and blocks of 32
 * one after the other. Where all warps share a strip, each multiplies a part of the step's blocks, and when all sums are there
 * every thread folds those of one row and two tokens. */
#ifndef MO_DEVICE_CUDA_STRIP_CUH
#define MO_DEVICE_CUDA_STRIP_CUH

#include "device/cuda/strip_copy.cuh"
#include "device/cuda/strip_decode.cuh"

/* ---- Scales and codes ---- */

/* The scales of 16 rows in a step, from block `first` on with a stride. A lane has a row. */
template <class S>
static __device__ __forceinline__ void mo_strip_scales(const mo_strip_rows &m, int step, int blocks,
                                                       int strip, int first, int every, const uint8_t *raw,
                                                       float *scales)
{
    constexpr int VALUES = mo_format_values(S::TYPE);
    const int r = threadIdx.x & 15, row = 16 * strip + r;
    const uint8_t *at = raw + row * S::SPAN.pitch + ((mo_strip_from(m, row) + step * S::SPAN.bytes) & 15);
#pragma unroll 2
    for (int b = first; b < blocks; b += every) {
        mo_tile_block block; /* its codes are left unused */
        mo_tile_decode_type<S::TYPE>(at + 32 * b / VALUES * mo_format_bytes(S::TYPE), b % (VALUES / 32),
                                     &block);
#pragma unroll
        for (int s = 0; s < mo_fold_row_scales(S::FOLD); s++) {
            scales[s * S::ROW_PLANE + b * 16 + 2 * (r & 7) + (r >> 3)] = block.scale[s];
        }
    }
}

/* Codes of tokens g and g + 8 for block b, both halves: out[2 * piece + half]. Not volatile, so that loads of several blocks are
 * under way at once: mo_strip_hide() keeps them behind the barrier. */
template <class S, int N>
static __device__ __forceinline__ void mo_strip_tokens(const uint8_t *acts, int b, uint32_t out[2 * N])
{
    const int lane = threadIdx.x & 31;
#ifdef MO_CUDA_EMULATED
    for (int i = 0; i < 2 * N; i++) {
        const int token = (i >> 1) * 8 + (lane >> 2);
        out[i] = *(const uint32_t *)(acts + mo_strip_token_at<S>(token, 2 * b + (i & 1)) + 4 * (lane & 3));
    }
#else
    const int token = (N == 1 ? 0 : lane >> 4) * 8 + (lane & 7),
              half = lane >> 3 & 1; /* that this lane names */
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(acts + mo_strip_token_at<S>(token, 2 * b + half));
    if constexpr (N == 1) {
        asm("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(out[0]), "=r"(out[1]) : "r"(at));
    } else {
        asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
            : "r"(at));
    }
#endif
}

/* A row as a lane sees it in a step: where its bytes begin, and how the words of four consecutive blocks are cut out of them;
 * every fourth block begins at a whole word again. */
typedef struct mo_strip_row {
    const uint8_t *start, *words;
    int at[4];
    uint32_t choose[4];
} mo_strip_row;

/* What does not change from step to step, or all of it where it does. */
template <class S> static __device__ __forceinline__ void mo_strip_cut(mo_strip_row *row, int before)
{
    typedef mo_strip_words<S::TYPE> words;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const int at = (before & 3) + words::HEAD + (mo_format_values(S::TYPE) == 32 ? u * words::BYTES : 0);
        row->at[u] = at & ~3;
        row->choose[u] = 0x3210 + 0x1111 * (at & 3);
    }
}

/* A file's block of 256 values is all that a warp has of a step: it is the start. */
template <class S>
static __device__ __forceinline__ void mo_strip_enter(mo_strip_row rows[2], const mo_strip_rows &m, int strip,
                                                      int step, const uint8_t *raw)
{
    constexpr bool LONG = mo_format_values(S::TYPE) == 256;
    const int lane = threadIdx.x & 31;
    const int skip = LONG && S::K > 256 ? (threadIdx.x >> 6) * mo_format_bytes(S::TYPE) : 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = 16 * strip + (lane >> 2) + 8 * i;
        const int before = ((mo_strip_from(m, row) + step * S::SPAN.bytes) & 15) + skip;
        rows[i].start = raw + row * S::SPAN.pitch + before;
        rows[i].words = raw + row * S::SPAN.pitch + (before & ~3) + 4 * (lane & 3);
        if (S::SPAN.bytes % 4 != 0 || step == 0) {
            mo_strip_cut<S>(&rows[i], before);
        }
    }
}

/* Block b + u of the two rows, b a multiple of four: as tensor cores take it. */
template <class S>
static __device__ __forceinline__ void mo_strip_weights(const mo_strip_row rows[2], int b, int u,
                                                        uint32_t a[4])
{
    constexpr int VALUES = mo_format_values(S::TYPE), BYTES = mo_format_bytes(S::TYPE);
    const int start = VALUES == 256 ? 0 : 32 * (b + u) / VALUES * BYTES, j = (b + u) % (VALUES / 32);
    const int at = VALUES == 32 ? b * BYTES : start; /* what the cut does not have */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const mo_strip_block block = {rows[i].words + at + rows[i].at[u], rows[i].choose[u]};
        mo_strip_codes<S::TYPE>(block, rows[i].start + start, j, threadIdx.x & 3, &a[i], &a[2 + i]);
    }
}

/* ---- A strip for each warp ---- */

/* Four blocks from b on, or those of them before `blocks`, for N pieces of 8 tokens. */
template <class S, int N, bool ALL>
static __device__ __forceinline__ void
mo_strip_four(float (*acc)[4], int b, int blocks, const mo_strip_row rows[2], const uint8_t *acts,
              const float *row_scale, const float *token_scale, const int32_t magic[4])
{
    const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        if (!ALL && b + u >= blocks) {
            break;
        }
        uint32_t a[4], x[2 * N];
        mo_strip_weights<S>(rows, b, u, a);
        mo_strip_tokens<S, N>(acts, b + u, x);
        const mo_tile_rows_scale<S::FOLD> rs =
            mo_tile_row_scales<S::FOLD, S::ROW_PLANE>(row_scale + 16 * (b + u) + 2 * g);
        const float2 minus = make_float2(-MO_TILE_MAGIC_REAL * rs.a.x, -MO_TILE_MAGIC_REAL * rs.a.y);
        const float2 minus_b = make_float2(-MO_TILE_MAGIC_REAL * rs.b.x, -MO_TILE_MAGIC_REAL * rs.b.y);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const mo_tile_tokens_scale<S::FOLD> ts = mo_tile_token_scales<S::FOLD, S::TOKEN_PLANE>(
                token_scale + MO_STRIP_TOKENS * (b + u) + 8 * n + 2 * t);
            mo_tile_piece<S::FOLD>(acc[n], a, x + 2 * n, rs, minus, minus_b, ts, magic);
        }
    }
}

/* The blocks of a step. */
template <class S, int N>
static __device__ __forceinline__ void
mo_strip_multiply(float (*acc)[4], int blocks, const mo_strip_row rows[2], const uint8_t *acts,
                  const float *row_scale, const float *token_scale, const int32_t magic[4])
{
    int b = 0;
#pragma unroll 1
    for (; b + 4 <= blocks; b += 4) {
        mo_strip_four<S, N, true>(acc, b, blocks, rows, acts, row_scale, token_scale, magic);
    }
    if (b < blocks) {
        mo_strip_four<S, N, false>(acc, b, blocks, rows, acts, row_scale, token_scale, magic);
    }
}

/* ---- One strip for all warps ---- */

/* Where a thread's sums are: those of a warp of folders follow each other. plane: of halves; corner: 2 * piece of tokens +
 * (rows g or g + 8). */
template <class S>
static __device__ __forceinline__ float2 *mo_strip_sum_at(uint8_t *shared, int plane, int b, int corner)
{
    return (float2 *)(shared + S::AT.sums) + ((plane * S::BLOCKS + b) * 4 + corner) * 32 + (threadIdx.x & 31);
}

/* The warp's part of the step's blocks, as far as there are any. */
template <class S, int N>
static __device__ __forceinline__ void mo_strip_part(int blocks, const mo_strip_row rows[2],
                                                     const uint8_t *acts, const int32_t magic[4],
                                                     uint8_t *shared)
{
    constexpr int EACH = S::BLOCKS / MO_STRIP_WARPS;
    const int b = EACH * (threadIdx.x >> 5);
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        if (b + u >= blocks) {
            break;
        }
        uint32_t a[4], x[2 * N];
        mo_strip_weights<S>(rows, b, u, a);
        mo_strip_tokens<S, N>(acts, b + u, x);
#pragma unroll
        for (int n = 0; n < N; n++) {
            int32_t low[4], high[4];
            mo_tile_sums<S::FOLD>(low, high, a, x + 2 * n, magic);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                *mo_strip_sum_at<S>(shared, 0, b + u, 2 * n + i) =
                    make_float2(mo_tile_real(low[2 * i]), mo_tile_real(low[2 * i + 1]));
                if constexpr (mo_tile_halves<S::FOLD>) {
                    *mo_strip_sum_at<S>(shared, 1, b + u, 2 * n + i) =
                        make_float2(mo_tile_real(high[2 * i]), mo_tile_real(high[2 * i + 1]));
                }
            }
        }
    }
}

/* A warp folds one corner of the strip, lane by lane as the sums were made. */
template <class S>
static __device__ __forceinline__ void mo_strip_fold(float acc[2], int blocks, const float *row_scale,
                                                     const float *token_scale, uint8_t *shared)
{
    const int lane = threadIdx.x & 31, corner = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    constexpr bool HALVES = mo_tile_halves<S::FOLD>;
#pragma unroll 4
    for (int b = 0; b < blocks; b++) {
        const float2 low = *mo_strip_sum_at<S>(shared, 0, b, corner);
        const float2 high = HALVES ? *mo_strip_sum_at<S>(shared, 1, b, corner) : make_float2(0.0f, 0.0f);
        const float *rs = row_scale + 16 * b + 2 * g + (corner & 1);
        float scale[4] = {};
#pragma unroll
        for (int s = 0; s < mo_fold_row_scales(S::FOLD); s++) {
            scale[s] = rs[s * S::ROW_PLANE];
        }
        const mo_tile_tokens_scale<S::FOLD> ts = mo_tile_token_scales<S::FOLD, S::TOKEN_PLANE>(
            token_scale + MO_STRIP_TOKENS * b + 8 * (corner >> 1) + 2 * t);
        const float minus = -MO_TILE_MAGIC_REAL * scale[0], minus_b = -MO_TILE_MAGIC_REAL * scale[1];
        acc[0] = mo_tile_fold<S::FOLD>(acc[0], low.x, high.x, ts.d.x, ts.s.x, ts.h.x, scale[0], scale[1],
                                       scale[2], scale[3], minus, minus_b);
        acc[1] = mo_tile_fold<S::FOLD>(acc[1], low.y, high.y, ts.d.y, ts.s.y, ts.h.y, scale[0], scale[1],
                                       scale[2], scale[3], minus, minus_b);
    }
}

/* ---- All of it ---- */

/* Two outputs: a row of the block, and two tokens from job.first + token on. */
static __device__ __forceinline__ void mo_strip_store(const mo_tile_job &job, int row, int token, float first,
                                                      float second)
{
    row += job.row;
    if (row >= job.rows) {
        return;
    }
    const float value[2] = {first, second};
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (token + k < job.count) {
            float y = value[k];
            y = job.scale ? y * *job.scale : y;
            y = job.bias ? y + job.bias[row] : y;
            job.y[(int64_t)(job.first + token + k) * job.stride + row] = y;
        }
    }
}

/* Tokens job.first + turn .., at most MO_STRIP_TOKENS. */
template <class S>
static __device__ __forceinline__ void mo_strip_turn(const mo_tile_job &job, const mo_dacts &in, int turn,
                                                     uint8_t *shared)
{
    constexpr bool OWN = S::STRIPS > 1; /* a strip for each warp */
    constexpr int SLOTS = S::AT.slots;
    const mo_strip_rows m = mo_strip_rows_of(job);
    const mo_strip_place place = mo_strip_place_of(shared);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, strip = OWN ? warp : 0;
    const mo_strip_token own = mo_strip_token_of<S>(job, in, turn);
    float *const scales = (float *)(shared + S::AT.row_scale) + strip * S::ROW_SCALES;
    const int32_t magic[4] = {job.magic[0], job.magic[1], job.magic[2], job.magic[3]}; /* as in tile.cuh */
    const bool two = job.count - turn > 8;
    float acc[2][4] = {};
    mo_strip_row rows[2];
#pragma unroll
    for (int step = 0; step < SLOTS - 1; step++) {
        mo_strip_fetch<S>(m, own, step, step, place);
    }
    int next = 0;
#pragma unroll 1
    for (int step = 0; step * S::BLOCKS < m.blocks; step++) {
        int slot = next;
        mo_async_wait<SLOTS - 2>();
        __syncthreads(); /* the step has arrived, and the previous one is no longer read */
        mo_strip_fetch<S>(m, own, step + SLOTS - 1, slot == 0 ? SLOTS - 1 : slot - 1, place);
        mo_strip_hide(&slot);
        const int blocks = mo_strip_blocks<S>(m, step);
        const uint8_t *raw = shared + S::AT.raw + slot * S::RAW, *acts = shared + S::AT.acts + slot * S::ACTS;
        const float *tokens = (const float *)(shared + S::AT.token_scale) + slot * S::TOKEN_SCALES;
        mo_strip_enter<S>(rows, m, strip, step, raw);
        if constexpr (OWN) {
            mo_strip_scales<S>(m, step, blocks, strip, lane >> 4, 2, raw, scales);
            __syncwarp();
            if (two) {
                mo_strip_multiply<S, 2>(acc, blocks, rows, acts, scales, tokens, magic);
            } else {
                mo_strip_multiply<S, 1>(acc, blocks, rows, acts, scales, tokens, magic);
            }
        } else {
            if (two) {
                mo_strip_part<S, 2>(blocks, rows, acts, magic, shared);
            } else {
                mo_strip_part<S, 1>(blocks, rows, acts, magic, shared);
            }
            mo_strip_scales<S>(m, step, blocks, 0, threadIdx.x >> 4, MO_STRIP_THREADS / 16, raw, scales);
            __syncthreads();
            if (two || warp < 2) {
                mo_strip_fold<S>(acc[0], blocks, scales, tokens, shared);
            }
        }
        next = slot + 1 == SLOTS ? 0 : slot + 1;
    }
    if constexpr (OWN) {
#pragma unroll
        for (int n = 0; n < 2; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                mo_strip_store(job, 16 * strip + (lane >> 2) + 8 * i, turn + 8 * n + 2 * (lane & 3),
                               acc[n][2 * i], acc[n][2 * i + 1]);
            }
        }
    } else {
        mo_strip_store(job, (lane >> 2) + 8 * (warp & 1), turn + 8 * (warp >> 1) + 2 * (lane & 3), acc[0][0],
                       acc[0][1]);
    }
    __syncthreads(); /* before the next turn's copies */
}

/* More tokens than MO_STRIP_TOKENS take another turn over the rows, which are in the cache by then. */
template <class S>
static __device__ __forceinline__ void mo_strip_run(const mo_tile_job &job, const mo_dacts &in,
                                                    uint8_t *shared)
{
    for (int turn = 0; turn < job.count; turn += MO_STRIP_TOKENS) {
        mo_strip_turn<S>(job, in, turn, shared);
    }
}

/* The job is in shared memory, where one thread wrote it. */
template <int ROWS>
static __device__ __forceinline__ void mo_strip_all(const mo_tile_job &job, const mo_dacts &in,
                                                    uint8_t *shared)
{
    __syncthreads();
    switch (job.type) {
#define MO_STRIP_CASE(NAME, ...)                                                                             \
    case MO_##NAME: mo_strip_run<mo_strip<MO_##NAME, ROWS>>(job, in, shared); break;
        MO_QUANTIZED_FORMATS(MO_STRIP_CASE)
#undef MO_STRIP_CASE
    default: __builtin_unreachable();
    }
}

#endif
