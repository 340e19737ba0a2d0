/* Float panel: see float_panel.h. Warp w sums the elements of lane w of the definition's order, then of w + 16, w + 8 and w + 24, and adds the
 * four sums as the definition's tree does; what is left of the tree goes over the eight warps. */
#ifndef MO_DEVICE_CUDA_FLOAT_PANEL_CUH
#define MO_DEVICE_CUDA_FLOAT_PANEL_CUH

#include "device/cuda/float_panel.h"
#include "device/cuda/tile.cuh"

template <int TYPE_, int EACH_> struct mo_float_panel {
    static constexpr int TYPE = TYPE_, EACH = EACH_;
    static constexpr int ROWS = MO_FLOAT_PANEL_DOWN * EACH, TOKENS = MO_FLOAT_PANEL_ACROSS * EACH;
    static constexpr int THREADS = 32 * MO_FLOAT_PANEL_WARPS;
    static constexpr int WORDS =
        TYPE == MO_F32 ? 8 : 4; /* of a row, of the eight lanes that are summed together */
    static constexpr int ROW_PITCH = ROWS + MO_FLOAT_PANEL_PAD, TOKEN_PITCH = TOKENS + MO_FLOAT_PANEL_PAD;
    static constexpr mo_float_panel_places AT = mo_float_panel_lay(TYPE, EACH);
};

/* Lanes `lanes` .. + 7 of pieces of the rows, words at a time: words of a row are neighbours, and so are the rows of a word in shared memory. */
template <int WORDS, int PITCH, int COUNT, int THREADS>
static __device__ __forceinline__ void mo_float_panel_copy(const uint8_t *from, int64_t apart,
                                                           const int32_t *source, int first, int last,
                                                           int steps, uint32_t *to)
{
    const int word = threadIdx.x % WORDS;
#pragma unroll
    for (int i = 0; i < COUNT; i += THREADS / WORDS) {
        const int r = i + (int)threadIdx.x / WORDS;
        if (r >= COUNT) {
            break;
        }
        const int row = source ? source[r] : min(first + r, last);
        const uint8_t *at = from + row * apart + 4 * word;
        uint32_t *place = to + word * PITCH + r;
#pragma unroll
        for (int s = 0; s < MO_FLOAT_PANEL_STEPS; s++) {
            if (s < steps) {
                mo_tile_copy4(place + s * (WORDS * PITCH), at + s * (16 * WORDS));
            }
        }
    }
}

/* Piece `number` of the four passes over the row. */
template <class P>
static __device__ __forceinline__ void mo_float_panel_fetch(const mo_tile_job &job, const uint8_t *x,
                                                            int number, int pieces, uint8_t *shared)
{
    if (number < 4 * pieces) {
        const int pass = number / pieces, begin = number % pieces * MO_FLOAT_PANEL_STEPS;
        const int lanes = 16 * (pass & 1) + 8 * (pass >> 1); /* 0, 16, 8, 24 */
        const int steps = min(MO_FLOAT_PANEL_STEPS, job.cols / 32 - begin);
        const int turn = number % (MO_FLOAT_PANEL_AHEAD + 1);
        const int bytes = P::TYPE == MO_F32 ? 4 : 2;
        mo_float_panel_copy<P::WORDS, P::ROW_PITCH, P::ROWS, P::THREADS>(
            job.data + (32 * begin + lanes) * bytes, job.row_bytes, NULL, job.row, job.rows - 1, steps,
            (uint32_t *)(shared + P::AT.rows) + turn * (MO_FLOAT_PANEL_STEPS * P::WORDS * P::ROW_PITCH));
        mo_float_panel_copy<8, P::TOKEN_PITCH, P::TOKENS, P::THREADS>(
            x + (32 * begin + lanes) * 4, (int64_t)job.cols * 4, (const int32_t *)(shared + P::AT.source), 0,
            0, steps,
            (uint32_t *)(shared + P::AT.tokens) + turn * (MO_FLOAT_PANEL_STEPS * 8 * P::TOKEN_PITCH));
    }
    mo_async_commit();
}

/* EACH floats of a lane: quads of which the warp's threads have neighbouring ones. STRIDE: from one of a thread's quads to the next. */
template <int EACH, int STRIDE>
static __device__ __forceinline__ void mo_float_panel_quads(const uint32_t *from, uint32_t out[EACH])
{
#pragma unroll
    for (int i = 0; i < EACH; i += 4) {
        const mo_quad q = *(const mo_quad *)(from + i / 4 * STRIDE);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            out[i + j] = q.word[j];
        }
    }
}

template <int TYPE> static __device__ __forceinline__ float mo_float_panel_weight(uint32_t word, bool second)
{
    if constexpr (TYPE == MO_F32) {
        return mo_float_of(word);
    } else {
        const uint16_t h = (uint16_t)(second ? word >> 16 : word);
        return TYPE == MO_F16 ? mo_half(h) : mo_bf16_to_f32(h);
    }
}

/* One piece for the thread's outputs. */
template <class P>
static __device__ __forceinline__ void mo_float_panel_multiply(float (&acc)[P::EACH][P::EACH], int number,
                                                               int steps, int down, int across,
                                                               const uint8_t *shared)
{
    const int warp = threadIdx.x >> 5, turn = number % (MO_FLOAT_PANEL_AHEAD + 1);
    const uint32_t *rows = (const uint32_t *)(shared + P::AT.rows) +
                           (turn * MO_FLOAT_PANEL_STEPS * P::WORDS + warp * P::WORDS / 8) * P::ROW_PITCH +
                           4 * down;
    const uint32_t *tokens = (const uint32_t *)(shared + P::AT.tokens) +
                             (turn * MO_FLOAT_PANEL_STEPS * 8 + warp) * P::TOKEN_PITCH + 4 * across;
    MO_UNROLL(2)
    for (int s = 0; s < steps; s++) {
        uint32_t w[P::EACH], x[P::EACH];
        mo_float_panel_quads<P::EACH, 4 * MO_FLOAT_PANEL_DOWN>(rows + s * (P::WORDS * P::ROW_PITCH), w);
        mo_float_panel_quads<P::EACH, 4 * MO_FLOAT_PANEL_ACROSS>(tokens + s * (8 * P::TOKEN_PITCH), x);
#pragma unroll
        for (int r = 0; r < P::EACH; r++) {
            const float weight = mo_float_panel_weight<P::TYPE>(w[r], warp & 1);
#pragma unroll
            for (int t = 0; t < P::EACH; t++) {
                acc[r][t] = fmaf(weight, mo_float_of(x[t]), acc[r][t]);
            }
        }
    }
}

/* After each pass: sum is lane w and w + 16; later is w + 8, until w + 24 is there. */
template <int EACH>
static __device__ __forceinline__ void mo_float_panel_add(float (&acc)[EACH][EACH], float (&sum)[EACH][EACH],
                                                          float (&later)[EACH][EACH], int pass)
{
#pragma unroll
    for (int r = 0; r < EACH; r++) {
#pragma unroll
        for (int t = 0; t < EACH; t++) {
            const float v = acc[r][t];
            sum[r][t] = pass == 0   ? v
                        : pass == 1 ? sum[r][t] + v
                        : pass == 2 ? sum[r][t]
                                    : sum[r][t] + (later[r][t] + v);
            later[r][t] = v;
            acc[r][t] = 0.0f;
        }
    }
}

/* The rest of the tree, and what is done to a finished product. */
template <class P>
static __device__ __forceinline__ void mo_float_panel_store(const mo_tile_job &job, const float *sums)
{
    constexpr int ALL = P::ROWS * P::TOKENS;
    const float scale = job.scale ? *job.scale : 1.0f;
    for (int i = threadIdx.x; i < ALL; i += P::THREADS) {
        const int row = job.row + i % P::ROWS, token = i / P::ROWS;
        float v[MO_FLOAT_PANEL_WARPS];
#pragma unroll
        for (int w = 0; w < MO_FLOAT_PANEL_WARPS; w++) {
            v[w] = sums[w * ALL + i];
        }
        if (row < job.rows && token < job.count) {
            float value = ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
            value = job.scale ? value * scale : value;
            value = job.bias ? value + job.bias[row] : value;
            job.y[(int64_t)(job.first + token) * job.stride + row] = value;
        }
    }
}

/* All threads read the job. */
template <class P>
static __device__ __forceinline__ void mo_float_panel_run(const mo_tile_job &job, const mo_dacts &in,
                                                          uint8_t *shared)
{
    constexpr int EACH = P::EACH;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int down = (lane >> 3) * 2 + (lane & 1),
              across = lane >> 1 & 3; /* neighbours read the same rows or tokens */
    const int blocks = job.cols / 32, pieces = (blocks + MO_FLOAT_PANEL_STEPS - 1) / MO_FLOAT_PANEL_STEPS;
    const uint8_t *x = mo_at<const uint8_t>(in.x);
    int32_t *const source = (int32_t *)(shared + P::AT.source);
    for (int t = threadIdx.x; t < P::TOKENS;
         t += P::THREADS) { /* past the end: the last one again, never stored */
        const int i = job.first + min(t, job.count - 1);
        source[t] = job.pick ? job.pick[i] : i;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < MO_FLOAT_PANEL_AHEAD; i++) {
        mo_float_panel_fetch<P>(job, x, i, pieces, shared);
    }
    float acc[EACH][EACH] = {}, sum[EACH][EACH] = {}, later[EACH][EACH] = {};
    for (int pass = 0, number = 0; pass < 4; pass++) {
        for (int piece = 0; piece < pieces; piece++, number++) {
            mo_async_wait<MO_FLOAT_PANEL_AHEAD - 1>();
            __syncthreads();
            mo_float_panel_fetch<P>(job, x, number + MO_FLOAT_PANEL_AHEAD, pieces, shared);
            mo_float_panel_multiply<P>(acc, number,
                                       min(MO_FLOAT_PANEL_STEPS, blocks - piece * MO_FLOAT_PANEL_STEPS), down,
                                       across, shared);
        }
        mo_float_panel_add(acc, sum, later, pass);
    }
    __syncthreads(); /* all threads are done with the rows */
    float *const sums = (float *)(shared + P::AT.rows);
#pragma unroll
    for (int t = 0; t < EACH; t++) {
        const int token = t / 4 * (4 * MO_FLOAT_PANEL_ACROSS) + 4 * across + t % 4;
#pragma unroll
        for (int r = 0; r < EACH; r += 4) {
            *(float4 *)(sums + (warp * P::TOKENS + token) * P::ROWS + r * MO_FLOAT_PANEL_DOWN + 4 * down) =
                make_float4(sum[r][t], sum[r + 1][t], sum[r + 2][t], sum[r + 3][t]);
        }
    }
    __syncthreads();
    mo_float_panel_store<P>(job, sums);
}

/* Rows and tokens of the thread block, whatever the type. */
template <int EACH>
static __device__ __forceinline__ void mo_float_panel_block(const mo_tile_job &job, const mo_dacts &in,
                                                            uint8_t *shared)
{
    __syncthreads(); /* one thread wrote the job */
    if (job.count <= 0) {
        return;
    }
    switch (job.type) {
    case MO_F32: mo_float_panel_run<mo_float_panel<MO_F32, EACH>>(job, in, shared); break;
    case MO_F16: mo_float_panel_run<mo_float_panel<MO_F16, EACH>>(job, in, shared); break;
    default: mo_float_panel_run<mo_float_panel<MO_BF16, EACH>>(job, in, shared); break;
    }
}

#endif
