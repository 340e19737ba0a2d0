/* Slab: the product of a few consecutive rows of quantized matrices with one token, by one thread block. See slab.h. */
#ifndef MO_DEVICE_CUDA_SLAB_CUH
#define MO_DEVICE_CUDA_SLAB_CUH

#include "device/cuda/activation.cuh"
#include "device/cuda/once.cuh"
#include "device/cuda/rows.cuh"
#include "device/cuda/slab.h"

/* Where a tile's slabs are: those of gate, then those of up. */
struct mo_slab_source {
    const uint8_t *gate, *up;             /* first row */
    const uint8_t *gate_limit, *up_limit; /* end of the matrix */
};

/* The head of shared memory: what is needed seldom, so that registers are free for the decoding. Behind it: the
 * activations' scales, and those times the sums of their codes, one float per block each; the slabs' bytes; terms. */
struct mo_slab_head {
    uint64_t arrived[MO_SLAB_SLOTS];
    mo_rows_acts acts[MO_SLAB_TOKENS];
    mo_table_words table;
    mo_slab_source source;       /* of a tile */
    float *y[MO_SLAB_TOKENS];    /* of one slab: its first row's */
    int32_t row[MO_SLAB_TOKENS]; /* of the hidden activations */
    int32_t count;               /* of a worklist, and one of its items; 0: the block has none */
    int32_t expert;
    mo_daddr base;
    int32_t item_row[MO_SLAB_TOKENS], item_token[MO_SLAB_TOKENS]; /* the second row -1: there is none */
    float scale[2];
    float bias[2 * MO_SLAB_TILE]; /* of the block's rows: brought prelaunch, because memory is far away */
    float result[MO_SLAB_TOKENS * 2 * MO_SLAB_TILE];
};
static_assert(sizeof(mo_slab_head) <= MO_SLAB_HEAD && MO_SLAB_HEAD % 16 == 0,
              "the rest begins behind the head");

/* mo_slab_most() of this code. */
static __device__ __forceinline__ int mo_slab_most_here(void)
{
#if defined(MO_CUDA_EMULATED)
    return mo_slab_most(mo_emulated_code());
#elif __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
    return MO_SLAB_WIDE_BYTES;
#else
    return MO_SLAB_BYTES;
#endif
}

/* ---- Finishing ---- */

/* Scale and bias of an expert's rows, the first of which is row0, to the head of shared memory: by the second warp, so
 * that the first has nothing to wait for. which: 0, or 1 for up. Other matrices are the only expert. */
static __device__ __forceinline__ void mo_slab_load_finish(mo_slab_head *head, int which, const mo_dmatrix &m,
                                                           int expert, int row0, int rows)
{
    const int row = (int)threadIdx.x - 32;
    if (m.bias && row >= 0 && row < rows) {
        head->bias[MO_SLAB_TILE * which + row] =
            mo_at<const float>(m.bias)[(int64_t)expert * m.rows + row0 + row];
    }
    if (m.scale && row == 0) {
        head->scale[which] = mo_at<const float>(m.scale)[expert];
    }
}

/* After a barrier. row: of the block's. */
static __device__ __forceinline__ float mo_slab_finish(const mo_slab_head *head, int which,
                                                       const mo_dmatrix &m, int row, float value)
{
    return mo_rows_finish(value, m.scale ? head->scale + which : NULL,
                          m.bias ? head->bias + MO_SLAB_TILE * which : NULL, row);
}

/* ---- Activations ---- */

/* What a thread decodes: rows place, place + places, ... of a slab; of each its unit, and where a row has more units than
 * the block threads, those blockDim.x further on. */
struct mo_slab_share {
    int32_t unit, place, places;
};

static __device__ __forceinline__ mo_slab_share mo_slab_share_of(const mo_slab_shape &shape)
{
    mo_slab_share share;
    const uint32_t units = shape.units, threads = blockDim.x;
    const bool wide = units > threads; /* every thread has several units */
    share.places = wide ? 1 : threads / units;
    share.place = wide ? 0 : threadIdx.x / units;
    share.unit = threadIdx.x - share.place * units;
    if (share.place >= share.places) {
        share.unit = units; /* nothing */
    }
    return share;
}

/* The codes that one unit of a row meets, as mo_decode() leaves the row's. */
template <int TYPE, int TOKENS> struct mo_slab_codes {
    uint32_t q[TOKENS][mo_rows_unit(TYPE)][8], sums[TOKENS][mo_rows_unit(TYPE)];
    mo_table_words table;
};

/* from: TOKENS of them. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void mo_slab_load_codes(const mo_rows_acts *from, int unit,
                                                          mo_slab_codes<TYPE, TOKENS> *codes)
{
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
#pragma unroll
        for (int p = 0; p < mo_rows_unit(TYPE); p++) {
            const int block = mo_block_of<TYPE>(unit, p);
            mo_rows_codes(from[t], 0, block, codes->q[t][p]);
            codes->sums[t][p] = mo_needs_sums<TYPE> ? from[t].sums[block] : 0;
            if constexpr (mo_has_table<TYPE>) {
                mo_arrange<TYPE>(codes->q[t][p]);
            }
        }
    }
}

/* Thread 0, for the others. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void mo_slab_share_out(mo_slab_head *head, const mo_rows_acts *acts)
{
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        head->acts[t] = acts[t];
    }
    head->table = mo_table_words_of<TYPE>();
}

/* After a barrier. The format's table comes from memory, because the compiler does not keep constants in registers: it
 * would load them anew at each of sixteen uses for a block. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void mo_slab_load_table(const mo_slab_head *head,
                                                          mo_slab_codes<TYPE, TOKENS> *codes)
{
    typedef mo_table<TYPE> table;
    if constexpr (mo_has_table<TYPE>) {
        codes->table = head->table;
        if constexpr (table::rest0 == table::low0 && table::rest1 == table::low1) {
            codes->table.rest0 = codes->table.low0;
            codes->table.rest1 = codes->table.low1;
        }
    }
}

/* What the fold needs, token after token: d, then s of each. All threads; a barrier follows. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void mo_slab_load_scales(const mo_rows_acts *from, uint8_t *to,
                                                           const mo_slab_shape &shape)
{
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        float *d = (float *)(to + 2 * t * shape.scale_bytes),
              *s = (float *)(to + (2 * t + 1) * shape.scale_bytes);
        for (int b = threadIdx.x; b < shape.blocks; b += blockDim.x) {
            d[b] = from[t].d[b];
            if constexpr (mo_needs_s<TYPE>) {
                s[b] = from[t].s[b];
            }
        }
    }
}

/* ---- Bytes ---- */

/* All threads; since 9.0 thread 0 may then bring slabs, the others wait for them after a barrier. */
static __device__ __forceinline__ mo_pipeline mo_slab_begin(uint8_t *memory, const mo_slab_shape &shape)
{
    mo_pipeline pipeline;
    pipeline.arrived = ((mo_slab_head *)memory)->arrived;
    pipeline.steps = memory + MO_SLAB_HEAD + 2 * shape.tokens * shape.scale_bytes;
    pipeline.step_bytes = shape.step_bytes;
    pipeline.ahead = shape.slots;
    mo_pipeline_begin(&pipeline, shape.slots);
    return pipeline;
}

/* Sends a slab on its way. limit: the end of its matrix. */
static __device__ __forceinline__ void mo_slab_bring(const mo_pipeline &pipeline, int slot,
                                                     const uint8_t *from, int bytes, const uint8_t *limit)
{
#ifdef MO_PIPELINE_BULK
    if (threadIdx.x != 0) {
        return;
    }
#endif
    mo_pipeline_run run;
    run.from = from;
    run.bytes = (uint32_t)bytes;
    mo_once_bring(pipeline, slot, run, limit);
}

/* Waits for the oldest slab, which is in `slot`: then visible to all. `behind` have been sent after it. */
static __device__ __forceinline__ void mo_slab_wait(mo_pipeline *pipeline, int slot, int behind)
{
#ifdef MO_PIPELINE_BULK
    (void)behind;
    mo_pipeline_wait(pipeline, slot);
#else
    (void)pipeline;
    (void)slot;
    switch (behind) {
    case 0: mo_async_wait<0>(); break;
    case 1: mo_async_wait<1>(); break;
    case 2: mo_async_wait<2>(); break;
    case 3: mo_async_wait<3>(); break;
    case 4: mo_async_wait<4>(); break;
    case 5: mo_async_wait<5>(); break;
    case 6: mo_async_wait<6>(); break;
    default: mo_async_wait<MO_SLAB_SLOTS - 1>(); break;
    }
    __syncthreads();
#endif
}

/* ---- Terms ---- */

/* The terms of one unit of a row. to: the row's. */
template <int TYPE>
static __device__ __forceinline__ void mo_slab_put(float *to, int unit,
                                                   const float (*terms)[mo_rows_terms(TYPE)])
{
    constexpr int PARTS = mo_rows_unit(TYPE), TERMS = mo_rows_terms(TYPE);
    if constexpr (PARTS == 2 && TERMS == 2) {
        ((float4 *)to)[unit] = make_float4(terms[0][0], terms[0][1], terms[1][0], terms[1][1]);
    } else if constexpr (TERMS == 2) {
        ((float2 *)to)[unit] = make_float2(terms[0][0], terms[0][1]);
    } else {
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            to[mo_block_of<TYPE>(unit, p)] = terms[p][0];
        }
    }
}

/* A thread's rows of a slab, one unit of each. bytes: the slab's first row; terms: of that; the next token's are `apart` floats further. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void
mo_slab_decode_unit(const mo_slab_shape &shape, const mo_slab_share &share, int unit,
                    const mo_slab_codes<TYPE, TOKENS> &codes, const uint8_t *bytes, float *terms, int apart,
                    int rows)
{
    constexpr int PARTS = mo_rows_unit(TYPE), TERMS = mo_rows_terms(TYPE), UNITS = mo_units(TYPE);
    constexpr bool RAW = mo_has_table<TYPE>;
    const int bytes_on = share.places * shape.row_bytes, terms_on = share.places * shape.pitch;
    const uint8_t *block = bytes + share.place * shape.row_bytes + unit / UNITS * mo_format_bytes(TYPE);
    float *to = terms + share.place * shape.pitch;
    MO_UNROLL(1)
    for (int row = share.place; row < rows; row += share.places) {
        float term[TOKENS][PARTS][TERMS];
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            mo_terms32 w;
            mo_decode<TYPE, RAW>(block, unit % UNITS, p, &w);
#pragma unroll
            for (int t = 0; t < TOKENS; t++) {
                mo_terms_of<TYPE, RAW>(w, codes.q[t][p], codes.sums[t][p], term[t][p], codes.table);
            }
        }
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            mo_slab_put<TYPE>(to + t * apart, unit, term[t]);
        }
        block += bytes_on;
        to += terms_on;
    }
}

/* A thread's share of a slab. codes: of its first unit; where rows are so long that it has several, anything. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void
mo_slab_decode(const mo_slab_shape &shape, const mo_slab_share &share, const mo_rows_acts *from,
               mo_slab_codes<TYPE, TOKENS> *codes, const uint8_t *bytes, float *terms, int rows)
{
    const bool several = shape.units > (int)blockDim.x;
    MO_UNROLL(1)
    for (int unit = share.unit; unit < shape.units; unit += blockDim.x) {
        if (several) {
            mo_slab_load_codes<TYPE, TOKENS>(from, unit, codes);
        }
        mo_slab_decode_unit<TYPE, TOKENS>(shape, share, unit, *codes, bytes, terms, shape.terms_bytes / 4,
                                          rows);
    }
}

static __device__ __forceinline__ void mo_slab_spread(float4 quad, float *out)
{
    out[0] = quad.x;
    out[1] = quad.y;
    out[2] = quad.z;
    out[3] = quad.w;
}

/* One thread: a row. The next few terms are read, four at a time, while the chain goes through these. */
template <int TYPE>
static __device__ __forceinline__ float mo_slab_fold(const float *terms, const float *d, const float *s,
                                                     int blocks)
{
    constexpr int TERMS = mo_rows_terms(TYPE), AT_ONCE = 8 / TERMS, QUADS = AT_ONCE / 4;
    float4 next[2], dx[QUADS], sx[QUADS];
    const int whole = blocks / AT_ONCE;
    float acc = 0.0f;
    const auto read = [&](int group) {
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            dx[i] = ((const float4 *)d)[QUADS * group + i];
            sx[i] = ((const float4 *)(mo_needs_s<TYPE> ? s : d))[QUADS * group + i];
        }
        next[0] = ((const float4 *)terms)[2 * group];
        next[1] = ((const float4 *)terms)[2 * group + 1];
    };
    if (whole > 0) {
        read(0);
    }
    MO_UNROLL(2)
    for (int group = 0; group < whole; group++) {
        float now[8], dn[AT_ONCE], sn[AT_ONCE];
        mo_slab_spread(next[0], now);
        mo_slab_spread(next[1], now + 4);
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            mo_slab_spread(dx[i], dn + 4 * i);
            mo_slab_spread(sx[i], sn + 4 * i);
        }
        if (group + 1 < whole) {
            read(group + 1);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            acc = mo_fold_step<TYPE>(acc, now + TERMS * i, dn[i], sn[i]);
        }
    }
    for (int b = whole * AT_ONCE; b < blocks; b++) {
        acc = mo_fold_step<TYPE>(acc, terms + TERMS * b, d[b], mo_needs_s<TYPE> ? s[b] : 0.0f);
    }
    return acc;
}

/* ---- One slab ---- */

/* Where it is in memory. */
struct mo_slab_place {
    const uint8_t *data;  /* its first row */
    const uint8_t *limit; /* end of the matrix */
    int32_t rows;         /* that it has: the last slab of a matrix may have fewer */
};

static __device__ __forceinline__ mo_slab_place mo_slab_place_of(const mo_slab_shape &shape,
                                                                 const uint8_t *matrix, int row0, int rows)
{
    mo_slab_place place;
    place.data = matrix + (int64_t)row0 * shape.row_bytes;
    place.limit = matrix + (int64_t)rows * shape.row_bytes;
    place.rows = min(1 << shape.rows_log2, rows - row0);
    return place;
}

/* A fold of token t's row, whose terms are the row's of the first token. */
template <int TYPE>
static __device__ __forceinline__ float mo_slab_folded(const uint8_t *memory, const mo_slab_shape &shape,
                                                       const float *terms, int t)
{
    const uint8_t *scales = memory + MO_SLAB_HEAD + 2 * t * shape.scale_bytes;
    return mo_slab_fold<TYPE>(terms + t * (shape.terms_bytes / 4), (const float *)scales,
                              (const float *)(scales + shape.scale_bytes), shape.blocks);
}

/* sink(token, row, value) gets every row, from one thread each. memory: shape.shared bytes, pipeline: mo_slab_begin()'s. Weights
 * are asked for before activations are read. */
template <int TYPE, int TOKENS, typename SINK>
static __device__ __forceinline__ void mo_slab_one(uint8_t *memory, const mo_slab_shape &shape,
                                                   mo_pipeline &pipeline, const mo_rows_acts *from,
                                                   const mo_slab_place &place, const SINK &sink)
{
    mo_slab_head *head = (mo_slab_head *)memory;
    float *terms = (float *)(pipeline.steps + shape.step_bytes);
    const int rows = place.rows;
    mo_slab_bring(pipeline, 0, place.data, rows * shape.row_bytes, place.limit);
    if (threadIdx.x == 0) {
        mo_slab_share_out<TYPE, TOKENS>(head, from);
    }
    mo_grid_begin(); /* what the kernels before have written is read from here on */
    const mo_slab_share share = mo_slab_share_of(shape);
    mo_slab_codes<TYPE, TOKENS> codes;
    if (share.unit < shape.units) {
        mo_slab_load_codes<TYPE, TOKENS>(from, share.unit, &codes);
    }
    mo_slab_load_scales<TYPE, TOKENS>(from, memory + MO_SLAB_HEAD, shape);
    __syncthreads();
    mo_slab_load_table<TYPE, TOKENS>(head, &codes);
    mo_slab_wait(&pipeline, 0, 0);
    mo_slab_decode<TYPE, TOKENS>(shape, share, head->acts, &codes,
                                 pipeline.steps + ((uintptr_t)place.data & 15), terms, rows);
    __syncthreads();
    const int t = TOKENS == 1 ? 0 : (int)threadIdx.x >> shape.rows_log2;
    const int row = (int)threadIdx.x - (t << shape.rows_log2);
    if (t < TOKENS && row < rows) {
        sink(t, row, mo_slab_folded<TYPE>(memory, shape, terms + row * shape.pitch, t));
    }
}

/* ---- A tile ---- */

/* Sends slab number `slab` of a tile on its way. */
static __device__ __forceinline__ void mo_slab_bring_next(const mo_pipeline &pipeline,
                                                          const mo_slab_source &source,
                                                          const mo_slab_shape &shape, int slab, int slot)
{
    const int half = MO_SLAB_TILE >> shape.rows_log2, bytes = shape.row_bytes << shape.rows_log2;
    const bool up = slab >= half;
    mo_slab_bring(pipeline, slot, (up ? source.up : source.gate) + (up ? slab - half : slab) * bytes, bytes,
                  up ? source.up_limit : source.gate_limit);
}

/* 32 rows of gate and the same of up. head->result: gate's, then up's of each token, visible to all after a barrier. All threads come
 * here. memory: shape.shared bytes, pipeline: mo_slab_begin()'s. Weights are asked for before activations are read. */
template <int TYPE, int TOKENS>
static __device__ __forceinline__ void mo_slab_tile(uint8_t *memory, const mo_slab_shape &shape,
                                                    mo_pipeline &pipeline, const mo_rows_acts *from,
                                                    const mo_slab_source &source)
{
    mo_slab_head *head = (mo_slab_head *)memory;
    float *const terms = (float *)(pipeline.steps + shape.slots * shape.step_bytes);
    const int slots = shape.slots, slabs = 2 * MO_SLAB_TILE >> shape.rows_log2;
    const int ahead = min(slots - 1, (int)MO_SLAB_AHEAD);
    for (int i = 0; i < ahead; i++) {
        mo_slab_bring_next(pipeline, source, shape, i, i);
    }
    if (threadIdx.x == 0) {
        head->source = source;
        mo_slab_share_out<TYPE, TOKENS>(head, from);
    }
    const mo_slab_share share = mo_slab_share_of(shape);
    mo_slab_codes<TYPE, TOKENS> codes;
    if (share.unit < shape.units) {
        mo_slab_load_codes<TYPE, TOKENS>(from, share.unit, &codes);
    }
    mo_slab_load_scales<TYPE, TOKENS>(from, memory + MO_SLAB_HEAD, shape);
    uint32_t off = (uint32_t)(uintptr_t)source.gate;
    const uint32_t up_off = (uint32_t)(uintptr_t)source.up;
    __syncthreads();
    mo_slab_load_table<TYPE, TOKENS>(head, &codes);
    MO_UNROLL(1)
    for (int i = 0, slot = 0, next = ahead; i < slabs; i++) {
        if (i + ahead >= slots && i + ahead < slabs) {
            __syncthreads(); /* the slab before has been read: its slot is free */
        }
        mo_slab_wait(&pipeline, slot, ahead - 1);
        if (i + ahead < slabs) {
            mo_slab_bring_next(pipeline, head->source, shape, i + ahead, next);
            next = next + 1 == slots ? 0 : next + 1;
        } else {
            mo_pipeline_skip();
        }
        off = 2 * i == slabs ? up_off : off;
        mo_slab_decode<TYPE, TOKENS>(shape, share, head->acts, &codes,
                                     pipeline.steps + slot * shape.step_bytes + (off & 15),
                                     terms + (i << shape.rows_log2) * shape.pitch, 1 << shape.rows_log2);
        off += shape.row_bytes << shape.rows_log2;
        slot = slot + 1 == slots ? 0 : slot + 1;
    }
    __syncthreads();
    const int t = TOKENS == 1 ? 0 : (int)threadIdx.x / (2 * MO_SLAB_TILE);
    const int row = (int)threadIdx.x - t * 2 * MO_SLAB_TILE;
    if (t < TOKENS && row < 2 * MO_SLAB_TILE) {
        head->result[threadIdx.x] = mo_slab_folded<TYPE>(memory, shape, terms + row * shape.pitch, t);
    }
}

/* The hidden values of a token of a tile, by a warp. */
static __device__ __forceinline__ void mo_slab_activate(const mo_op_experts &op, const mo_slab_head *head,
                                                        int t)
{
    const int lane = threadIdx.x & 31, row = head->row[t];
    const float *result = head->result + t * 2 * MO_SLAB_TILE;
    const float gate = mo_slab_finish(head, 0, op.gate, lane, result[lane]);
    const float up = mo_slab_finish(head, 1, op.up, lane, result[MO_SLAB_TILE + lane]);
    const float hidden = mo_activation_of(op.activation, op.limit, gate, up);
    mo_at<float>(op.hidden.x)[(int64_t)row * op.hidden.cols + blockIdx.x * MO_SLAB_TILE + lane] = hidden;
    __syncwarp();
    mo_quantize_block(op.hidden, row, blockIdx.x, hidden);
}

#endif
