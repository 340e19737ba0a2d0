/* Tile: the matrix-matrix product of one thread block. Weights come in as the file's bytes (asynchronous copies of
 * aligned 16-byte chunks), are decoded once into int8 codes, multiplied by tensor cores, and every block of 32 is
 * folded at once into one float accumulator per output: the order of docs/numerics.md, whatever the tile.
 *
 * A step of MO_TILE_K values: wait for its copies, decode, start the copies of the next step, multiply. Two thread
 * blocks share a multiprocessor and fill each other's gaps.
 *
 * The integers are converted to floats by the tensor cores: their accumulator starts at the bits of M = 1.5 * 2^23, so
 * that an integer sum below 2^22 leaves the float M + isum. fma(M + isum, dw, -M * dw) is dw * isum rounded once,
 * because M * dw is exact: 3 * 2^22 times at most 17 bits, far from both ends of the range (dw from 2^-128, exact also
 * as a subnormal, to 2^72: MXFP4 above exponent 200 is refused). It differs from dw * (float)isum only in the sign of
 * a zero, for a negative or zero dw; then dw comes from f16 or UE4M3, no product underflows, the accumulator is never
 * -0, and adding either zero changes nothing. */
#ifndef MO_DEVICE_CUDA_TILE_CUH
#define MO_DEVICE_CUDA_TILE_CUH

#include "device/cuda/common.cuh"
#include "device/cuda/tile.h"
#include "device/cuda/tile_decode.cuh"

#define MO_TILE_MAGIC      0x4B400000
#define MO_TILE_MAGIC_REAL 0x1.8p23f

/* ROWS x TOKENS outputs by DOWN x ACROSS warps; a warp has 16-row pieces and 8-token pieces. AHEAD: steps whose copies
 * are under way. */
template <int ROWS_, int TOKENS_, int DOWN_, int ACROSS_, int AHEAD_> struct mo_shape {
    static constexpr int ROWS = ROWS_, TOKENS = TOKENS_, DOWN = DOWN_, ACROSS = ACROSS_, AHEAD = AHEAD_;
    static constexpr int THREADS = 32 * DOWN * ACROSS;
    static constexpr int M = ROWS / DOWN / 16, N = TOKENS / ACROSS / 8;
};
typedef mo_shape<128, 128, 2, 4, 1> mo_shape_wide;
typedef mo_shape<64, 64, 2, 2, 1> mo_shape_middle;

/* What one thread block computes: rows row .. of a matrix, tokens first .. first + count. It is in shared memory,
 * because registers are for accumulators. */
typedef struct mo_tile_job {
    int32_t magic[4]; /* MO_TILE_MAGIC: where integer sums start */
    const uint8_t *data;
    const float *scale, *bias; /* or NULL */
    const int32_t *pick;       /* or NULL */
    float *y;
    int64_t stride;
    int64_t row_bytes;
    mo_span span;
    int32_t type, rows, cols;
    int32_t row;
    int32_t first, count;
} mo_tile_job;
static_assert(sizeof(mo_tile_job) <= MO_TILE_JOB, "fits its place in shared memory");

/* What follows from the matrix. */
static __device__ __forceinline__ void mo_tile_matrix(mo_tile_job *job, const mo_dmatrix &matrix)
{
    job->type = matrix.type;
    job->rows = matrix.rows;
    job->cols = matrix.cols;
    job->span = mo_span_of(matrix.type);
    job->row_bytes = (int64_t)(matrix.cols / job->span.block_values) * job->span.block_bytes;
    for (int i = 0; i < 4; i++) {
        job->magic[i] = MO_TILE_MAGIC;
    }
}

/* ---- Machine ---- */

static __device__ __forceinline__ void mo_tile_copy4(void *shared, const void *global)
{
#ifdef MO_CUDA_EMULATED
    mo_emulated_copy_later(shared, global, 4);
#elif __CUDA_ARCH__ >= 800
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
#else
    *(uint32_t *)shared = *(const uint32_t *)global;
#endif
}

#ifndef MO_CUDA_EMULATED
/* Turing has the 8x8 piece only; the fragments are the same. */
static __device__ __forceinline__ void mo_tile_mma8(int32_t d[2], uint32_t a, uint32_t b, int32_t c0,
                                                    int32_t c1)
{
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
        : "=r"(d[0]), "=r"(d[1])
        : "r"(a), "r"(b), "r"(c0), "r"(c1));
}
#endif

/* d = c + a x b: 16 rows, 32 values, 8 tokens. a: words of rows g and g + 8 (first half), then the same of the second
 * half, where g = lane / 4; b: a word of each half of token g. Not volatile: the compiler may move it among the folds. */
static __device__ __forceinline__ void mo_tile_mma32(int32_t d[4], const uint32_t a[4], const uint32_t b[2],
                                                     const int32_t c[4])
{
#ifdef MO_CUDA_EMULATED
    memcpy(d, c, 4 * sizeof *d);
    mo_mma_s8(d, a, b);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]),
          "r"(c[3]));
#else
    mo_tile_mma8(d, a[0], b[0], c[0], c[1]);
    mo_tile_mma8(d + 2, a[1], b[0], c[2], c[3]);
    mo_tile_mma8(d, a[2], b[1], d[0], d[1]);
    mo_tile_mma8(d + 2, a[3], b[1], d[2], d[3]);
#endif
}

/* The same for 16 values: a[0], a[1] and b of one half. */
static __device__ __forceinline__ void mo_tile_mma16(int32_t d[4], const uint32_t a[2], uint32_t b,
                                                     const int32_t c[4])
{
#ifdef MO_CUDA_EMULATED
    const uint32_t wide_a[4] = {a[0], a[1], 0, 0};
    const uint32_t wide_b[2] = {b, 0};
    memcpy(d, c, 4 * sizeof *d);
    mo_mma_s8(d, wide_a, wide_b);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
#else
    mo_tile_mma8(d, a[0], b, c[0], c[1]);
    mo_tile_mma8(d + 2, a[1], b, c[2], c[3]);
#endif
}

/* ---- Shared memory ---- */

/* mo_tile_lay() for a kernel: everything but its end is known when it is compiled. */
template <int FOLD, class SHAPE> struct mo_tile_parts {
    static constexpr mo_tile_places AT = mo_tile_lay(SHAPE::ROWS, SHAPE::TOKENS, SHAPE::AHEAD, FOLD, 0);
    static constexpr int ACTS = SHAPE::TOKENS * MO_TILE_K; /* bytes of a step */
    static constexpr int ROW_SCALES = mo_fold_row_scales(FOLD);
    static constexpr int TOKEN_SCALES =
        mo_fold_token_scales(FOLD) * MO_TILE_BLOCKS * SHAPE::TOKENS; /* of a step */
};

/* Folds that need the two halves of a block apart. */
template <int FOLD>
static constexpr bool mo_tile_halves = FOLD == MO_FOLD_HALVES || FOLD == MO_FOLD_TWO_STEPS;

/* The matrix's codes are as the tensor cores take them: 16 rows and a block of 32 are 32 chunks of 16 bytes, one per
 * lane. The chunks of a row change places by block, so that threads that decode four blocks of a row meet different
 * banks. g: row % 8; t: lane % 4. */
static __device__ __forceinline__ int mo_tile_code_at(int piece, int b, int g, int t)
{
    return 512 * (piece * MO_TILE_BLOCKS + b) + 16 * (4 * g + (t ^ b));
}

/* The tokens' codes are in rows of MO_TILE_K bytes. Their 16-byte chunks change places by row, so that the lanes that
 * load a fragment together meet different banks: eight bytes of each of four rows at a time, or, for folds by halves,
 * four bytes of each of eight. */
template <int FOLD> static __device__ __forceinline__ int mo_tile_token_at(int token, int chunk)
{
    return token * MO_TILE_K + ((chunk ^ (mo_tile_halves<FOLD> ? token & 7 : (token & 3) << 1)) << 4);
}

/* ---- Copies ---- */

/* The bytes of span `number` of all rows. Rows past the end take the last one's: they are never stored. */
template <class SHAPE>
static __device__ __forceinline__ void mo_tile_fetch_rows(const mo_tile_job &job, int number, uint8_t *raw)
{
    const int64_t from = (int64_t)number * job.span.bytes;
    const int64_t left = job.row_bytes - from;
    const int bytes = (int)(left < job.span.bytes ? left : job.span.bytes);
    const uint8_t *const end = job.data + job.rows * job.row_bytes;
    for (int r = threadIdx.x >> 3; r < SHAPE::ROWS; r += SHAPE::THREADS / 8) {
        const int row = min(job.row + r, job.rows - 1);
        const int64_t offset = row * job.row_bytes + from;
        const int before = (int)offset & 15; /* data is aligned */
        const uint8_t *at = job.data + offset - before;
        for (int c = threadIdx.x & 7; 16 * c < before + bytes; c += 8) {
            uint8_t *to = raw + 16 * (r * job.span.chunks + c);
            if (at + 16 * c + 16 <= end) {
                mo_async_copy16(to, at + 16 * c);
            } else { /* not one byte more than there is */
                for (int i = 0; at + 16 * c + i < end; i++) {
                    to[i] = at[16 * c + i];
                }
            }
        }
    }
}

/* Codes and scales of the step's blocks for all tokens. */
template <int FOLD, class SHAPE>
static __device__ __forceinline__ void mo_tile_fetch_tokens(const mo_tile_job &job, const mo_dacts &in,
                                                            int step, const int32_t *source, uint8_t *acts,
                                                            float *scales)
{
    const int row_blocks = job.cols / 32;
    const int blocks = min(MO_TILE_BLOCKS, row_blocks - step * MO_TILE_BLOCKS);
    const int8_t *q = mo_at<const int8_t>(in.q) + step * MO_TILE_K;
    const int chunk = threadIdx.x & 7;
    for (int t = threadIdx.x >> 3; t < job.count; t += SHAPE::THREADS / 8) {
        if (chunk < 2 * blocks) {
            mo_async_copy16(acts + mo_tile_token_at<FOLD>(t, chunk),
                            q + (int64_t)source[t] * job.cols + 16 * chunk);
        }
    }
    const int b = threadIdx.x & 3;
    for (int t = threadIdx.x >> 2; t < job.count; t += SHAPE::THREADS / 4) {
        if (b < blocks) {
            const int64_t from = (int64_t)source[t] * row_blocks + step * MO_TILE_BLOCKS + b;
            float *to = scales + b * SHAPE::TOKENS + t;
            mo_tile_copy4(to, mo_at<const float>(in.d) + from);
            if constexpr (FOLD == MO_FOLD_MINIMUM) {
                mo_tile_copy4(to + MO_TILE_BLOCKS * SHAPE::TOKENS, mo_at<const float>(in.s) + from);
            } else if constexpr (FOLD == MO_FOLD_HALF_MINIMA) {
                mo_tile_copy4(to + MO_TILE_BLOCKS * SHAPE::TOKENS,
                              mo_at<const int16_t>(in.half_sum) + 2 * from);
            }
        }
    }
}

/* Where the bytes of a span, and the tokens of a step, wait for their turn. */
template <int FOLD, class SHAPE>
static __device__ __forceinline__ int mo_tile_raw_at(const mo_tile_job &job, int number)
{
    return mo_tile_parts<FOLD, SHAPE>::AT.raw + 16 * (number % SHAPE::AHEAD) * SHAPE::ROWS * job.span.chunks;
}
template <class SHAPE> static __device__ __forceinline__ int mo_tile_turn(int step)
{
    return step % (SHAPE::AHEAD + 1);
}

/* Starts all copies of a step, as one group; an empty one after the last step. */
template <int FOLD, class SHAPE>
static __device__ __forceinline__ void mo_tile_fetch(const mo_tile_job &job, const mo_dacts &in, int step,
                                                     int steps, uint8_t *shared)
{
    typedef mo_tile_parts<FOLD, SHAPE> parts;
    if (step < steps) {
        const int number = step * MO_TILE_K / job.span.values;
        if (number * job.span.values == step * MO_TILE_K) {
            mo_tile_fetch_rows<SHAPE>(job, number, shared + mo_tile_raw_at<FOLD, SHAPE>(job, number));
        }
        const int turn = mo_tile_turn<SHAPE>(step);
        mo_tile_fetch_tokens<FOLD, SHAPE>(job, in, step, (const int32_t *)(shared + parts::AT.source),
                                          shared + parts::AT.acts + turn * parts::ACTS,
                                          (float *)(shared + parts::AT.token_scale) +
                                              turn * parts::TOKEN_SCALES);
    }
    mo_async_commit();
}

/* ---- Decoding ---- */

/* Rows r and r + 8 of one block: the two that are side by side in a fragment, and so do their scales. at: of the file's
 * block in the span; part: of that. */
template <int FOLD, class SHAPE>
static __device__ __forceinline__ void mo_tile_decode_pair(const mo_tile_job &job, int number, int at,
                                                           int part, int r, int b, uint8_t *shared)
{
    typedef mo_tile_parts<FOLD, SHAPE> parts;
    const uint8_t *raw = shared + mo_tile_raw_at<FOLD, SHAPE>(job, number) + at;
    uint8_t *codes = shared + parts::AT.codes;
    float *scales = (float *)(shared + parts::AT.row_scale);
    mo_tile_block pair[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = min(job.row + r + 8 * i, job.rows - 1);
        const int before = (int)(row * job.row_bytes + (int64_t)number * job.span.bytes) & 15;
        mo_tile_decode<FOLD>(job.type, raw + 16 * (r + 8 * i) * job.span.chunks + before, part, &pair[i]);
    }
#pragma unroll
    for (int t = 0; t < 4;
         t++) { /* the words that lane t takes of a token: two neighbours, or one of each half */
        const int first = mo_tile_halves<FOLD> ? t : 2 * t;
        const int second = mo_tile_halves<FOLD> ? t + 4 : 2 * t + 1;
        *(uint4 *)(codes + mo_tile_code_at(r >> 4, b, r & 7, t)) =
            make_uint4(pair[0].code[first], pair[1].code[first], pair[0].code[second], pair[1].code[second]);
    }
#pragma unroll
    for (int s = 0; s < parts::ROW_SCALES; s++) {
        *(float2 *)(scales + (s * MO_TILE_BLOCKS + b) * SHAPE::ROWS + (r & ~15) + 2 * (r & 7)) =
            make_float2(pair[0].scale[s], pair[1].scale[s]);
    }
}

/* All blocks of the step. */
template <int FOLD, class SHAPE>
static __device__ __forceinline__ void mo_tile_decode_step(const mo_tile_job &job, int step, uint8_t *shared)
{
    const int blocks = min(MO_TILE_BLOCKS, job.cols / 32 - step * MO_TILE_BLOCKS);
    const int number = step * MO_TILE_K / job.span.values;
    const int b = threadIdx.x & 3;
    if (b >= blocks) {
        return;
    }
    const int value = step * MO_TILE_K - number * job.span.values + 32 * b; /* in the span */
    const int at = value / job.span.block_values * job.span.block_bytes;
    const int part = value % job.span.block_values / 32;
    for (int i = threadIdx.x >> 2; i < SHAPE::ROWS / 2; i += SHAPE::THREADS / 4) {
        mo_tile_decode_pair<FOLD, SHAPE>(job, number, at, part, (i >> 3) * 16 + (i & 7), b, shared);
    }
}

/* ---- Multiplying and folding ---- */

/* The scales that a lane needs: of rows g and g + 8, or of tokens 2t and 2t + 1 (t = lane % 4). */
template <int FOLD> struct mo_tile_rows_scale {
    float2 a, b, c, d;
};
template <int FOLD> struct mo_tile_tokens_scale {
    float2 d, s, h;
};

/* PLANE: floats from one kind of scale to the next. */
template <int FOLD, int PLANE>
static __device__ __forceinline__ mo_tile_rows_scale<FOLD> mo_tile_row_scales(const float *scales)
{
    mo_tile_rows_scale<FOLD> o = {};
    o.a = *(const float2 *)scales;
    if constexpr (FOLD != MO_FOLD_PLAIN) {
        o.b = *(const float2 *)(scales + PLANE);
    }
    if constexpr (FOLD == MO_FOLD_HALVES || FOLD == MO_FOLD_HALF_MINIMA) {
        o.c = *(const float2 *)(scales + 2 * PLANE);
    }
    if constexpr (FOLD == MO_FOLD_HALF_MINIMA) {
        o.d = *(const float2 *)(scales + 3 * PLANE);
    }
    return o;
}

template <int FOLD, int PLANE>
static __device__ __forceinline__ mo_tile_tokens_scale<FOLD> mo_tile_token_scales(const float *scales)
{
    mo_tile_tokens_scale<FOLD> o = {};
    o.d = *(const float2 *)scales;
    if constexpr (FOLD == MO_FOLD_MINIMUM) {
        o.s = *(const float2 *)(scales + PLANE);
    } else if constexpr (FOLD == MO_FOLD_HALF_MINIMA) {
        const float2 both = *(const float2 *)(scales + PLANE); /* bits of two int16 each */
        const uint32_t x = mo_bits_of(both.x), y = mo_bits_of(both.y);
        o.s = make_float2((float)(int16_t)x, (float)(int16_t)y);
        o.h = make_float2((float)(int16_t)(x >> 16), (float)(int16_t)(y >> 16));
    }
    return o;
}

static __device__ __forceinline__ float mo_tile_real(int32_t sum)
{
    return mo_float_of((uint32_t)sum);
}

/* One output, one block. low and high: M + the sums of the halves, or low alone: of the block. dw, more, third,
 * fourth: the row's scales; minus: -M * dw (of the first half's scale where there are two). */
template <int FOLD>
static __device__ __forceinline__ float mo_tile_fold(float acc, float low, float high, float dx, float s,
                                                     float h, float dw, float more, float third, float fourth,
                                                     float minus, float minus_more)
{
    if constexpr (FOLD == MO_FOLD_TWO_STEPS) {
        acc = fmaf(dx, fmaf(low, dw, minus), acc);
        return fmaf(dx, fmaf(high, more, minus_more), acc);
    } else if constexpr (FOLD == MO_FOLD_HALVES) { /* integers below 2^24: every step is exact until dw */
        const float isum = fmaf(third, high - MO_TILE_MAGIC_REAL, fmaf(more, low, minus_more));
        return fmaf(dx, dw * isum, acc);
    } else {
        acc = fmaf(dx, fmaf(low, dw, minus), acc);
        if constexpr (FOLD == MO_FOLD_MINIMUM) {
            acc = fmaf(s, more, acc);
        } else if constexpr (FOLD == MO_FOLD_HALF_MINIMA) { /* below 2^16: exact */
            acc = fmaf(dx, more * fmaf(third, s, fourth * h), acc);
        }
        return acc;
    }
}

/* M + the sums of one block of 32 for 16 rows and 8 tokens, or of its halves. */
template <int FOLD>
static __device__ __forceinline__ void mo_tile_sums(int32_t low[4], int32_t high[4], const uint32_t a[4],
                                                    const uint32_t b[2], const int32_t magic[4])
{
    if constexpr (mo_tile_halves<FOLD>) {
        mo_tile_mma16(low, a, b[0], magic);
        mo_tile_mma16(high, a + 2, b[1], magic);
    } else {
        mo_tile_mma32(low, a, b, magic);
        high[0] = high[1] = high[2] = high[3] = 0;
    }
}

/* One block of 32 for 16 rows and 8 tokens: outputs of rows g, g, g + 8, g + 8; tokens 2t, 2t + 1, 2t, 2t + 1. */
template <int FOLD>
static __device__ __forceinline__ void
mo_tile_piece(float acc[4], const uint32_t a[4], const uint32_t b[2], const mo_tile_rows_scale<FOLD> &rs,
              float2 minus, float2 minus_b, const mo_tile_tokens_scale<FOLD> &ts, const int32_t magic[4])
{
    int32_t low[4], high[4];
    mo_tile_sums<FOLD>(low, high, a, b, magic);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const bool odd = i & 1, below = i & 2;
        acc[i] = mo_tile_fold<FOLD>(
            acc[i], mo_tile_real(low[i]), mo_tile_real(high[i]), odd ? ts.d.y : ts.d.x, odd ? ts.s.y : ts.s.x,
            odd ? ts.h.y : ts.h.x, below ? rs.a.y : rs.a.x, below ? rs.b.y : rs.b.x, below ? rs.c.y : rs.c.x,
            below ? rs.d.y : rs.d.x, below ? minus.y : minus.x, below ? minus_b.y : minus_b.x);
    }
}

/* One block of 32 for the warp's outputs: all 16-row pieces, the first N of its 8-token pieces. codes, acts and the
 * scales point at the lane's own. */
template <int FOLD, class SHAPE, int N>
static __device__ __forceinline__ void mo_tile_multiply(float (*acc)[SHAPE::N][4], const uint8_t *codes,
                                                        const uint8_t *acts, const uint8_t *acts_second,
                                                        const float *row_scale, const float *token_scale,
                                                        const int32_t magic[4])
{
    constexpr bool HALVES = mo_tile_halves<FOLD>;
    uint32_t b[N][2];
    mo_tile_tokens_scale<FOLD> ts[N];
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int piece = n * SHAPE::ACROSS * 8;
        if constexpr (HALVES) {
            b[n][0] = *(const uint32_t *)(acts + piece * MO_TILE_K);
            b[n][1] = *(const uint32_t *)(acts_second + piece * MO_TILE_K);
        } else {
            const uint2 pair = *(const uint2 *)(acts + piece * MO_TILE_K);
            b[n][0] = pair.x;
            b[n][1] = pair.y;
        }
        ts[n] = mo_tile_token_scales<FOLD, MO_TILE_BLOCKS * SHAPE::TOKENS>(token_scale + piece);
    }
#pragma unroll
    for (int m = 0; m < SHAPE::M; m++) {
        const uint4 words = *(const uint4 *)(codes + 16 * m * MO_TILE_K);
        const uint32_t a[4] = {words.x, words.y, words.z, words.w};
        const mo_tile_rows_scale<FOLD> rs =
            mo_tile_row_scales<FOLD, MO_TILE_BLOCKS * SHAPE::ROWS>(row_scale + 16 * m);
        const float2 minus = make_float2(-MO_TILE_MAGIC_REAL * rs.a.x, -MO_TILE_MAGIC_REAL * rs.a.y);
        const float2 minus_b = make_float2(-MO_TILE_MAGIC_REAL * rs.b.x, -MO_TILE_MAGIC_REAL * rs.b.y);
#pragma unroll
        for (int n = 0; n < N; n++) {
            mo_tile_piece<FOLD>(acc[m][n], a, b[n], rs, minus, minus_b, ts[n], magic);
        }
    }
}

/* ---- All of it ---- */

template <class SHAPE>
static __device__ __forceinline__ void mo_tile_store(const mo_tile_job &job, float (*acc)[SHAPE::N][4],
                                                     int down, int across)
{
    const int lane = threadIdx.x & 31;
    const float scale = job.scale ? *job.scale : 1.0f;
#pragma unroll
    for (int m = 0; m < SHAPE::M; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = job.row + (down * SHAPE::M + m) * 16 + (lane >> 2) + 8 * (i >> 1);
            if (row < job.rows) {
                const float bias = job.bias ? job.bias[row] : 0.0f;
#pragma unroll
                for (int n = 0; n < SHAPE::N; n++) {
                    const int token = (n * SHAPE::ACROSS + across) * 8 + 2 * (lane & 3) + (i & 1);
                    if (token < job.count) {
                        float value = acc[m][n][i];
                        value = job.scale ? value * scale : value;
                        value = job.bias ? value + bias : value;
                        job.y[(int64_t)(job.first + token) * job.stride + row] = value;
                    }
                }
            }
        }
    }
}

/* The warp's part of a step. pieces: its 8-token pieces that hold tokens. */
template <int FOLD, class SHAPE>
static __device__ __forceinline__ void mo_tile_step(float (*acc)[SHAPE::N][4], int step, int blocks,
                                                    int pieces, const int32_t magic[4], const uint8_t *shared)
{
    typedef mo_tile_parts<FOLD, SHAPE> parts;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int down = warp % SHAPE::DOWN, across = warp / SHAPE::DOWN;
    const int g = lane >> 2, t = lane & 3;
    const int turn = mo_tile_turn<SHAPE>(step);
    const uint8_t *codes = shared + parts::AT.codes + down * SHAPE::M * 16 * MO_TILE_K;
    const uint8_t *acts = shared + parts::AT.acts + turn * parts::ACTS + across * 8 * MO_TILE_K;
    const float *rows = (const float *)(shared + parts::AT.row_scale) + down * SHAPE::M * 16 + 2 * g;
    const float *tokens =
        (const float *)(shared + parts::AT.token_scale) + turn * parts::TOKEN_SCALES + across * 8 + 2 * t;
#pragma unroll 1
    for (int b = 0; b < blocks; b++) {
        const uint8_t *c = codes + mo_tile_code_at(0, b, g, t);
        const uint8_t *first, *second = acts;
        if constexpr (mo_tile_halves<FOLD>) {
            first = acts + mo_tile_token_at<FOLD>(g, 2 * b) + 4 * t;
            second = acts + mo_tile_token_at<FOLD>(g, 2 * b + 1) + 4 * t;
        } else {
            first = acts + mo_tile_token_at<FOLD>(g, 2 * b + (t >> 1)) + 8 * (t & 1);
        }
        if (pieces > SHAPE::N / 2) {
            mo_tile_multiply<FOLD, SHAPE, SHAPE::N>(acc, c, first, second, rows + b * SHAPE::ROWS,
                                                    tokens + b * SHAPE::TOKENS, magic);
        } else if (pieces > 0) {
            mo_tile_multiply<FOLD, SHAPE, SHAPE::N / 2>(acc, c, first, second, rows + b * SHAPE::ROWS,
                                                        tokens + b * SHAPE::TOKENS, magic);
        }
    }
}

template <int FOLD, class SHAPE>
static __device__ __forceinline__ void mo_tile_run(const mo_tile_job &job, const mo_dacts &in,
                                                   uint8_t *shared)
{
    __syncthreads(); /* one thread wrote the job */
    if (job.count == 0) {
        return;
    }
    int32_t *const source = (int32_t *)(shared + mo_tile_parts<FOLD, SHAPE>::AT.source);
    for (int t = threadIdx.x; t < job.count; t += SHAPE::THREADS) {
        source[t] = job.pick ? job.pick[job.first + t] : job.first + t;
    }
    __syncthreads();
    const int steps = (job.cols + MO_TILE_K - 1) / MO_TILE_K;
#pragma unroll
    for (int step = 0; step < SHAPE::AHEAD; step++) {
        mo_tile_fetch<FOLD, SHAPE>(job, in, step, steps, shared);
    }
    /* 8-token pieces are dealt to the warps in turn, so that all have as many to do. */
    const int down = (threadIdx.x >> 5) % SHAPE::DOWN, across = (threadIdx.x >> 5) / SHAPE::DOWN;
    const int pieces = ((job.count + 7) / 8 - across + SHAPE::ACROSS - 1) / SHAPE::ACROSS;
    /* Read from memory, so that the compiler keeps them: constants it would load anew for every product. */
    const int32_t magic[4] = {job.magic[0], job.magic[1], job.magic[2], job.magic[3]};
    float acc[SHAPE::M][SHAPE::N][4] = {};
    for (int step = 0; step < steps; step++) {
        mo_async_wait<SHAPE::AHEAD - 1>();
        __syncthreads();
        mo_tile_decode_step<FOLD, SHAPE>(job, step, shared);
        __syncthreads();
        mo_tile_fetch<FOLD, SHAPE>(job, in, step + SHAPE::AHEAD, steps, shared);
        mo_tile_step<FOLD, SHAPE>(acc, step, min(MO_TILE_BLOCKS, job.cols / 32 - step * MO_TILE_BLOCKS),
                                  pieces, magic, shared);
    }
    mo_tile_store<SHAPE>(job, acc, down, across);
}

#endif
