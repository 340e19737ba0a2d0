/* Rows: the product of consecutive rows of one matrix with few tokens, by one thread block. Decoding threads turn each
 * step of the pipeline into terms of the fold; meanwhile folding threads, one per row and token, fold the terms of the step
 * before. One barrier per step. See rows.h for the cut. */
#ifndef MO_DEVICE_CUDA_ROWS_CUH
#define MO_DEVICE_CUDA_ROWS_CUH

#include "device/cuda/fold.cuh"
#include "device/cuda/pipeline.cuh"

/* The activations of one kernel's tokens. */
struct mo_rows_acts {
    const uint8_t *q;
    const float *d, *s, *x;
    const uint32_t *sums; /* two int16 each */
    int32_t cols, tokens;
};

/* Rows of one matrix, or of two of one shape, a tile of each: row r >= split is row r - split of the second. */
struct mo_rows_source {
    const uint8_t *data[2];  /* first row */
    const uint8_t *limit[2]; /* end of the matrix */
    int32_t split;           /* a multiple of a step's rows; 0: there is no second */
    int32_t rows;            /* of the first, and of the second */
};

/* A step in the pipeline. */
struct mo_rows_step {
    int32_t row, rows; /* rows: 0 when the matrix ends before */
    int32_t first_block, blocks;
    int32_t off;       /* of the first row in its 16 bytes */
    bool begins, ends; /* rows */
};

/* The head of shared memory; steps and terms follow as the cut says. What all threads need, but seldom, is here, so that
 * registers are free for the decoding. */
struct mo_rows_head {
    uint64_t arrived[MO_ROWS_AHEAD];
    mo_rows_shape cut[MO_OP_MATRICES];
    mo_rows_source source;
    mo_rows_acts acts;
    mo_rows_step step[2 * MO_ROWS_AHEAD]; /* by number: the one before, this one and those ahead */
    mo_dwork_item item;                   /* of a worklist */
    float result[2 * MO_ROWS_TILE];
};
static_assert(sizeof(mo_rows_head) <= MO_ROWS_HEAD, "steps begin behind the head");

static __device__ __forceinline__ mo_rows_acts mo_rows_acts_of(const mo_dacts &in, int64_t first, int tokens)
{
    mo_rows_acts a;
    const int64_t blocks = in.cols / 32;
    a.q = mo_at<const uint8_t>(in.q) + first * in.cols;
    a.d = mo_at<const float>(in.d) + first * blocks;
    a.s = mo_at<const float>(in.s) + first * blocks;
    a.x = mo_at<const float>(in.x) + first * in.cols;
    a.sums = mo_at<const uint32_t>(in.half_sum) + first * blocks;
    a.cols = in.cols;
    a.tokens = tokens;
    return a;
}

/* ---- One step ---- */

/* What step `number` is, and the bytes that it takes. */
static __device__ __forceinline__ mo_rows_step mo_rows_step_of(const mo_rows_shape &shape,
                                                               const mo_rows_source &source, int number,
                                                               mo_pipeline_runs *runs)
{
    mo_rows_step s;
    const int group = shape.cuts == 1 ? number : number / shape.cuts;
    const int cut = number - group * shape.cuts;
    s.row = group * shape.rows;
    const int second = source.split && s.row >= source.split;
    const int inside = s.row - (second ? source.split : 0);
    s.rows = max(0, min(shape.rows, source.rows - inside));
    s.begins = cut == 0;
    s.ends = cut == shape.cuts - 1;
    s.first_block = cut * shape.cut_blocks;
    s.blocks = min(shape.cut_blocks, shape.blocks - s.first_block);
    runs->from = source.data[second] + (int64_t)inside * shape.row_bytes + cut * shape.cut_bytes;
    runs->limit = source.limit[second];
    runs->count = shape.cuts == 1 ? 1 : s.rows;
    runs->bytes = shape.cuts == 1 ? s.rows * shape.row_bytes
                                  : min(shape.cut_bytes, shape.row_bytes - cut * shape.cut_bytes);
    runs->apart = shape.row_bytes;
    runs->stride = shape.stride;
    s.off = (int)((uintptr_t)runs->from & 15);
    return s;
}

/* Sends a step on its way, into `slot`. All threads; since 9.0 only the first folding warp has something to do. */
static __device__ __forceinline__ void mo_rows_bring(const mo_pipeline &pipeline, mo_rows_head *head,
                                                     const mo_rows_shape &shape, int number, int slot,
                                                     int folder)
{
#ifdef MO_PIPELINE_BULK
    if (folder < 0 || folder >= 32) {
        return;
    }
#endif
    mo_pipeline_runs runs;
    const mo_rows_step step = mo_rows_step_of(shape, head->source, number, &runs);
    if (folder == 0) {
        head->step[number % (2 * MO_ROWS_AHEAD)] = step;
    }
    mo_pipeline_bring_runs(pipeline, slot, runs);
}

/* Which units and rows of a step a decoding thread takes. */
struct mo_rows_share {
    int32_t unit, slot, slots; /* rows slot, slot + slots, ... */
};

template <int TYPE>
static __device__ __forceinline__ mo_rows_share mo_rows_share_of(const mo_rows_shape &shape, int threads)
{
    mo_rows_share share;
    const int wide = shape.cut_blocks / mo_rows_unit(TYPE); /* threads side by side on a row */
    share.slots = wide < threads ? threads / wide : 1;
    share.slot = wide < threads ? threadIdx.x / wide : 0;
    share.unit = threadIdx.x - share.slot * wide;
    if (share.slot >= share.slots) {
        share.unit = shape.cut_blocks; /* nothing */
    }
    return share;
}

/* The codes of a block of 32, from memory that the whole grid reads. */
static __device__ __forceinline__ void mo_rows_codes(const mo_rows_acts &acts, int token, int block,
                                                     uint32_t q[8])
{
    mo_words_at<16, 8>(acts.q + (int64_t)token * acts.cols + 32 * block, q);
}

/* A decoding thread of `threads`. bytes: the step in shared memory; terms: [token][row][pitch]. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void mo_rows_decode(const mo_rows_shape &shape, const mo_rows_step &step,
                                                      const mo_rows_acts &acts, const mo_rows_share &share,
                                                      const uint8_t *bytes, float *terms, int threads)
{
    constexpr int PARTS = mo_rows_unit(TYPE), TERMS = mo_rows_terms(TYPE), UNITS = mo_units(TYPE);
    constexpr bool RAW = mo_has_table<TYPE> && TOKENS == 1;
    const int units = step.blocks / PARTS, rows = step.rows;
    const int stride = shape.stride, skew = shape.skew, off = step.off, pitch = shape.pitch;
    MO_UNROLL(1)
    for (int unit = share.unit; unit < units; unit += threads) {
        uint32_t q[PARTS][8], sums[PARTS];
        if constexpr (TOKENS == 1) {
#pragma unroll
            for (int p = 0; p < PARTS; p++) {
                const int block = step.first_block + mo_block_of<TYPE>(unit, p);
                mo_rows_codes(acts, 0, block, q[p]);
                sums[p] = mo_needs_sums<TYPE> ? acts.sums[block] : 0;
                if constexpr (RAW) {
                    mo_arrange<TYPE>(q[p]);
                }
            }
        }
        const uint8_t *block_bytes = bytes + unit / UNITS * mo_format_bytes(TYPE);
        MO_UNROLL(1)
        for (int row = share.slot; row < rows; row += share.slots) {
            const uint8_t *file_block = block_bytes + row * stride + ((off + row * skew) & 15);
#pragma unroll
            for (int p = 0; p < PARTS; p++) {
                mo_terms32 w;
                mo_decode<TYPE, RAW>(file_block, unit % UNITS, p, &w);
                const int block = mo_block_of<TYPE>(unit, p);
                float *to = terms + row * pitch + TERMS * block;
                if constexpr (TOKENS == 1) {
                    mo_terms_of<TYPE, RAW>(w, q[p], sums[p], to);
                } else {
                    MO_UNROLL(1)
                    for (int t = 0; t < acts.tokens; t++) {
                        uint32_t codes[8];
                        mo_rows_codes(acts, t, step.first_block + block, codes);
                        const uint32_t both =
                            mo_needs_sums<TYPE> ? acts.sums[t * shape.blocks + step.first_block + block] : 0;
                        mo_terms_of<TYPE, RAW>(w, codes, both, to + t * shape.rows * pitch);
                    }
                }
            }
        }
    }
}

/* One thread: a row's terms of one step. The next few are read while the chain goes through these. */
template <int TYPE>
static __device__ __forceinline__ float mo_rows_fold(float acc, const float *terms, const float *d,
                                                     const float *s, int n)
{
    constexpr int TERMS = mo_rows_terms(TYPE), AT_ONCE = 8 / TERMS;
    int b = 0;
    if (n >= AT_ONCE) {
        float next[AT_ONCE][TERMS], dx[AT_ONCE], sx[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            dx[i] = d[i];
            sx[i] = mo_needs_s<TYPE> ? s[i] : 0.0f;
#pragma unroll
            for (int j = 0; j < TERMS; j++) {
                next[i][j] = terms[TERMS * i + j];
            }
        }
        for (; b + AT_ONCE <= n; b += AT_ONCE) {
            float now[AT_ONCE][TERMS], dn[AT_ONCE], sn[AT_ONCE];
            const bool more = b + 2 * AT_ONCE <= n;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                dn[i] = dx[i];
                sn[i] = sx[i];
#pragma unroll
                for (int j = 0; j < TERMS; j++) {
                    now[i][j] = next[i][j];
                }
            }
            if (more) {
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    dx[i] = d[b + AT_ONCE + i];
                    sx[i] = mo_needs_s<TYPE> ? s[b + AT_ONCE + i] : 0.0f;
#pragma unroll
                    for (int j = 0; j < TERMS; j++) {
                        next[i][j] = terms[TERMS * (b + AT_ONCE + i) + j];
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                acc = mo_fold_step<TYPE>(acc, now[i], dn[i], sn[i]);
            }
        }
    }
    for (; b < n; b++) {
        acc = mo_fold_step<TYPE>(acc, terms + TERMS * b, d[b], mo_needs_s<TYPE> ? s[b] : 0.0f);
    }
    return acc;
}

/* ---- All steps ---- */

/* sink(row, token, value) gets every finished row, from one thread each. All threads of the block come here, after a
 * __syncthreads() that follows what was written to the head. */
template <int TYPE, int TOKENS, typename SINK>
static __device__ __forceinline__ void mo_rows_quantized(mo_pipeline &pipeline, mo_rows_head *head, int which,
                                                         const SINK &sink)
{
    const mo_rows_shape &shape = head->cut[which];
    const mo_rows_acts &acts = head->acts;
    const int threads = blockDim.x - mo_rows_folders(TOKENS);
    const int folder = (int)threadIdx.x - threads; /* negative: decodes */
    const int ahead = shape.ahead, step_bytes = shape.step_bytes;
    const int groups =
        (head->source.split ? 2 * head->source.split : head->source.rows + shape.rows - 1) / shape.rows;
    const int steps = groups * shape.cuts;
    const int set = TOKENS * shape.rows * shape.pitch;
    float *const terms = (float *)(pipeline.steps + ahead * step_bytes);
    const mo_rows_share share = mo_rows_share_of<TYPE>(shape, threads);
    const int token = folder / shape.rows, row = folder - token * shape.rows;
    float acc = 0.0f;
    pipeline.step_bytes = step_bytes;
    pipeline.ahead = ahead;
    for (int i = 0; i < ahead - 1; i++) {
        if (i < steps) {
            mo_rows_bring(pipeline, head, shape, i, i, folder);
        } else {
            mo_pipeline_skip();
        }
    }
    int slot = 0;
    for (int i = 0; i <= steps; i++) {
        if (i < steps) {
            mo_pipeline_wait(&pipeline, slot);
        }
        __syncthreads(); /* step i is here, the terms of i - 1 too, and what was at i - 1 has been read */
        if (i + ahead - 1 < steps) {
            mo_rows_bring(pipeline, head, shape, i + ahead - 1, slot == 0 ? ahead - 1 : slot - 1, folder);
        } else {
            mo_pipeline_skip();
        }
        if (folder < 0) {
            if (i < steps) {
                const mo_rows_step &now = head->step[i % (2 * MO_ROWS_AHEAD)];
                mo_rows_decode<TYPE, TOKENS>(shape, now, acts, share, pipeline.steps + slot * step_bytes,
                                             terms + (i & 1) * set, threads);
            }
        } else if (i > 0 && token < acts.tokens) {
            const mo_rows_step &before = head->step[(i - 1) % (2 * MO_ROWS_AHEAD)];
            if (row < before.rows) {
                const int64_t at = (int64_t)token * shape.blocks + before.first_block;
                acc =
                    mo_rows_fold<TYPE>(before.begins ? 0.0f : acc,
                                       terms + ((i - 1) & 1) * set + (token * shape.rows + row) * shape.pitch,
                                       acts.d + at, acts.s + at, before.blocks);
                if (before.ends) {
                    sink(before.row + row, token, acc);
                }
            }
        }
        slot = slot + 1 == ahead ? 0 : slot + 1;
    }
}

/* ---- Float matrices ---- */

template <int TYPE> static __device__ __forceinline__ float mo_rows_weight(const uint8_t *row, int i)
{
    if constexpr (TYPE == MO_F32) {
        return ((const float *)row)[i];
    } else if constexpr (TYPE == MO_F16) {
        return mo_half_at(row + 2 * i);
    } else {
        return mo_bf16_to_f32(((const uint16_t *)row)[i]);
    }
}

/* The 32-lane order: a warp per row. Loads of several steps are under way at once. */
template <int TYPE, int TOKENS, typename SINK>
static __device__ __forceinline__ void mo_rows_floats(mo_rows_head *head, int which, const SINK &sink)
{
    const mo_rows_source &source = head->source;
    const mo_rows_acts acts = head->acts;
    const int row_bytes = head->cut[which].row_bytes;
    constexpr int AT_ONCE = TOKENS == 1 ? 16 : 4;
    const int lane = threadIdx.x & 31, warps = blockDim.x / 32;
    const int rows = source.split ? 2 * source.split : source.rows;
    for (int r = threadIdx.x / 32; r < rows; r += warps) {
        const int second = source.split && r >= source.split;
        const int inside = r - (second ? source.split : 0);
        if (inside >= source.rows) {
            continue;
        }
        const uint8_t *row = source.data[second] + (int64_t)inside * row_bytes;
        float acc[TOKENS];
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            acc[t] = 0.0f;
        }
        int i = lane;
        for (; i + 32 * (AT_ONCE - 1) < acts.cols; i += 32 * AT_ONCE) {
            float w[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                w[j] = mo_rows_weight<TYPE>(row, i + 32 * j);
            }
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                if (t < acts.tokens) {
                    const float *x = acts.x + (int64_t)t * acts.cols + i;
                    float v[AT_ONCE];
#pragma unroll
                    for (int j = 0; j < AT_ONCE; j++) {
                        v[j] = x[32 * j];
                    }
#pragma unroll
                    for (int j = 0; j < AT_ONCE; j++) {
                        acc[t] = fmaf(w[j], v[j], acc[t]);
                    }
                }
            }
        }
        for (; i < acts.cols; i += 32) {
            const float w = mo_rows_weight<TYPE>(row, i);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                if (t < acts.tokens) {
                    acc[t] = fmaf(w, acts.x[(int64_t)t * acts.cols + i], acc[t]);
                }
            }
        }
        __syncwarp();
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            const float sum = mo_lane_sum(acc[t]);
            if (lane == 0 && t < acts.tokens) {
                sink(r, t, sum);
            }
        }
    }
}

/* ---- Any matrix ---- */

/* All threads, once per kernel and before anything else; a __syncthreads() follows. */
static __device__ __forceinline__ mo_pipeline mo_rows_begin(mo_rows_head *head)
{
    mo_pipeline pipeline;
    pipeline.steps = (uint8_t *)head + MO_ROWS_HEAD;
    pipeline.arrived = head->arrived;
    pipeline.step_bytes = 0;
    pipeline.ahead = 0;
    mo_pipeline_begin(&pipeline, MO_ROWS_AHEAD);
    return pipeline;
}

/* Multiplies head->source, whose cut is head->cut[which], with head->acts: written by one thread, before a
 * __syncthreads(). Before it may write there again there has to be another. One kernel serves all formats, because the
 * matrices of one op may differ; a thread block takes one case. */
template <int TOKENS, typename SINK>
static __device__ __forceinline__ void mo_rows_run(mo_pipeline &pipeline, mo_rows_head *head, int type,
                                                   int which, const SINK &sink)
{
#define MO_ROWS_FLOATS(NAME, ...)                                                                            \
    case MO_##NAME:                                                                                          \
        mo_rows_floats<MO_##NAME, TOKENS>(head, which, sink);                                                \
        break;
#define MO_ROWS_QUANTIZED(NAME, ...)                                                                         \
    case MO_##NAME: mo_rows_quantized<MO_##NAME, TOKENS>(pipeline, head, which, sink); break;
    switch (type) {
        MO_FLOAT_FORMATS(MO_ROWS_FLOATS)
        MO_QUANTIZED_FORMATS(MO_ROWS_QUANTIZED)
    default: break; /* refused when the launch was made */
    }
#undef MO_ROWS_FLOATS
#undef MO_ROWS_QUANTIZED
}

/* What is done to a finished product. */
static __device__ __forceinline__ float mo_rows_finish(float value, const float *scale, const float *bias,
                                                       int row)
{
    value = scale ? value * *scale : value;
    return bias ? value + bias[row] : value;
}

#endif
