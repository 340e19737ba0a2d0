/* Planes, what a step adds: see fresh.h. Heads of 64, 128 and 256 values, which a warp has in its registers. */
#ifndef MO_DEVICE_CUDA_PLANES_FRESH_CUH
#define MO_DEVICE_CUDA_PLANES_FRESH_CUH

#include "device/cuda/fresh.h"
#include "device/cuda/planes_few.cuh"
#include "device/cuda/planes_group.cuh"
#include "device/cuda/view.cuh"

/* The positions that a step adds to a block's chunks, as far as its token sees them, and arrays in shared memory. */
typedef struct planes_fresh {
    int64_t t, own; /* the token, and its position */
    int64_t first;  /* position of the first that is added */
    int count, kv_head;
    bool writes;                      /* into the cache: what is at the token's own position */
    uint8_t *codes;                   /* [count][key, value][high, low][length] */
    float *key_scales, *value_scales; /* [count] */
    float *q_norm, *k_norm, *turns, *rows;
} planes_fresh;

/* For positions [begin, end); the arrays are not laid out. */
static __device__ __forceinline__ planes_fresh planes_fresh_of(const mo_view &v, int64_t t, int kv_head,
                                                               int64_t begin, int64_t end)
{
    planes_fresh r;
    r.t = t;
    r.own = v.position;
    r.first = max(begin, v.old);
    r.count = (int)max(min(end, v.end) - r.first, (int64_t)0);
    r.kv_head = kv_head;
    r.writes = begin <= v.position && v.position < end;
    return r;
}

/* early, late: the block's memory for both kinds of arrays. */
static __device__ __forceinline__ void planes_fresh_at(planes_fresh *r, const mo_fresh_scratch &lay, int most,
                                                       uint8_t *early, uint8_t *late)
{
    r->codes = late + lay.codes;
    r->key_scales = (float *)(late + lay.scales);
    r->value_scales = r->key_scales + most;
    r->q_norm = (float *)(early + lay.q_norm);
    r->k_norm = (float *)(early + lay.k_norm);
    r->turns = (float *)(early + lay.turns);
    r->rows = (float *)(early + lay.rows);
}

/* Codes of one of the vectors that were made: of a key or a value. */
template <int D>
static __device__ __forceinline__ uint8_t *fresh_codes(const planes_fresh &r, int i, bool value)
{
    return r.codes + (2 * i + value) * (2 * D);
}

/* Cosines of a token; sines are op.rope_rows rows further. */
static __device__ __forceinline__ const float *fresh_turns(const mo_op_heads &op, int64_t t)
{
    return mo_at<const float>(op.rope) + t * op.rope_stride;
}

/* ---- Before the step's products are there ------------------------------------------------------ */

/* Asks for what stands from the beginning of the step. A barrier follows before planes_fresh_make(). */
template <int D>
static __device__ __forceinline__ void planes_fresh_expect(const mo_op_heads &op, const planes_fresh &r,
                                                           const mo_planes_few &f)
{
    const float *q_norm = mo_at<const float>(op.q_norm), *k_norm = mo_at<const float>(op.k_norm);
    const int half = op.n_rot / 2, i = threadIdx.x;
    if (i < D) {
        r.q_norm[i] = op.q_norm ? q_norm[i] : 0.0f;
        r.k_norm[i] = op.k_norm ? k_norm[i] : 0.0f;
    }
    if (op.rope && i < half) {
        const float *c = fresh_turns(op, r.t);
        r.turns[i] = c[i];
        r.turns[half + i] = c[op.rope_rows * op.rope_stride + i];
    }
    for (int at = 16 * i; at < 2 * (D / 16) * MO_PLANES_UNIT; at += 16 * MO_PLANES_THREADS) {
        *(uint4 *)(f.q + at) = mo_planes_nothing(); /* of rows that are none */
    }
    if (i < MO_PLANES_ROWS) {
        f.s[i] = 0.0f;
    }
}

/* ---- Queries, keys and values, a warp each ----------------------------------------------------- */

/* Where a vector comes from, and what is done to it. */
typedef struct fresh_vector {
    const float *from, *weight; /* the norm's; NULL: ones */
    const float *c, *s;         /* NULL: it does not rotate */
    bool norm;
} fresh_vector;

template <int D> static __device__ __forceinline__ void fresh_norm(const fresh_vector &x, float eps, float *v)
{
    float squares = 0.0f;
    MO_UNROLL()
    for (int i = 0; i < D / 32; i++) {
        squares = fmaf(v[i], v[i], squares);
    }
    const float r = mo_norm_factor(mo_lane_sum(squares), D, eps);
    MO_UNROLL()
    for (int i = 0; i < D / 32; i++) {
        v[i] = v[i] * r;
        v[i] = x.weight ? v[i] * x.weight[32 * i + (threadIdx.x & 31)] : v[i];
    }
}

/* row: where the other value of a pair is looked up, since another lane may have it. */
template <int D>
static __device__ __forceinline__ void fresh_rotate(const mo_op_heads &op, const fresh_vector &x, float *row,
                                                    float *v)
{
    const int half = op.n_rot / 2, lane = threadIdx.x & 31;
    MO_UNROLL()
    for (int i = 0; i < D / 32; i++) {
        if (32 * i + lane < op.n_rot) {
            row[32 * i + lane] = v[i];
        }
    }
    __syncwarp();
    MO_UNROLL()
    for (int i = 0; i < D / 32; i++) {
        const int at = 32 * i + lane;
        if (at >= op.n_rot) {
            continue;
        }
        const bool first = op.neox ? at < half : at % 2 == 0;
        const int pair = !op.neox ? at / 2 : first ? at : at - half;
        const float other = row[!op.neox ? at ^ 1 : first ? at + half : at - half];
        const float c = x.c[pair], s = x.s[pair];
        v[i] = first ? fmaf(v[i], c, -(other * s)) : fmaf(other, s, v[i] * c);
    }
    __syncwarp();
}

/* The vector as it is attended with, in the model's order: lane i has values i, i + 32, ... */
template <int D>
static __device__ __forceinline__ void fresh_take(const mo_op_heads &op, const fresh_vector &x, float *row,
                                                  float *v)
{
    MO_UNROLL()
    for (int i = 0; i < D / 32; i++) {
        v[i] = x.from[32 * i + (threadIdx.x & 31)];
    }
    MO_UNROLL(1) /* once in memory: the code comes from there */
    for (int turn = 0; turn < 2; turn++) {
        if (turn == (op.norm_last ? 1 : 0)) {
            if (x.norm) {
                fresh_norm<D>(x, op.eps, v);
            }
        } else if (x.c) {
            fresh_rotate<D>(op, x, row, v);
        }
    }
}

template <int D>
static __device__ __forceinline__ void fresh_query(const mo_op_heads &op, const planes_fresh &r,
                                                   const mo_planes_few &f, int i)
{
    const int head = mo_planes_head(f, i);
    const fresh_vector x = {.from =
                                mo_at<const float>(op.q) + (r.t * op.heads + head) * (D * (op.gated ? 2 : 1)),
                            .weight = r.q_norm,
                            .c = op.rope ? r.turns : NULL,
                            .s = r.turns + op.n_rot / 2,
                            .norm = op.q_norm != 0};
    float v[D / 32];
    const float factor = mo_query_factor(op.q_factor, r.t);
    fresh_take<D>(op, x, r.rows + threadIdx.x / 32 * op.n_rot, v);
    MO_UNROLL()
    for (int k = 0; k < D / 32; k++) {
        v[k] = v[k] * factor;
    }
    const float s = mo_planes_code_held<D>(v, f.q + 16 * i, MO_PLANES_UNIT, D / 16 * MO_PLANES_UNIT);
    if ((threadIdx.x & 31) == 0) {
        f.s[i] = s;
    }
}

/* Into the cache: a vector that was made and coded. */
template <int D>
static __device__ __forceinline__ void fresh_write(const mo_op_heads &op, const mo_dstate &state,
                                                   int64_t position, int kv_head, bool value, const float *v,
                                                   mo_planes_scale s)
{
    const mo_kv_shape shape = mo_cache_shape(op.kv, op.kv_heads, D, D, 0);
    const int u = (int)(position % MO_KV_BLOCK), lane = threadIdx.x & 31;
    uint8_t *block = mo_cache_block(state, position);
    uint8_t *out = block + (value ? mo_kv_values_at(shape, kv_head) : mo_kv_keys_at(shape, kv_head));
    MO_UNROLL()
    for (int k = 0; k < D / 32; k++) {
        mo_planes_put(out, value, D, u, 32 * k + lane, mo_planes_code(s, v[k]), mo_kv_planes(op.kv));
    }
    if (lane == 0) {
        ((float *)(block +
                   (value ? mo_kv_value_scales_at(shape, kv_head) : mo_kv_key_scales_at(kv_head))))[u] = s.s;
    }
    if (!s.finite && op.bad) {
        *mo_at<volatile uint32_t>(op.bad) = 1;
    }
}

/* Key or value of position r.first + i. */
template <int D>
static __device__ __forceinline__ void fresh_entry(const mo_op_heads &op, const planes_fresh &r,
                                                   const mo_dstate &state, int i, bool value)
{
    const int64_t position = r.first + i, t = r.t - (r.own - position);
    const bool own = t == r.t;
    const float *c = own || !op.rope ? r.turns : fresh_turns(op, t);
    const fresh_vector x = {.from = mo_at<const float>(value && !op.v_from_k ? op.v : op.k) +
                                    (t * op.kv_heads + r.kv_head) * D,
                            .weight = value ? NULL : r.k_norm,
                            .c = value || !op.rope ? NULL : c,
                            .s = own || !op.rope ? r.turns + op.n_rot / 2 : c + op.rope_rows * op.rope_stride,
                            .norm = value ? op.v_norm != 0 : op.k_norm != 0};
    const int lane = threadIdx.x & 31, planes = mo_kv_planes(op.kv);
    float v[D / 32];
    fresh_take<D>(op, x, r.rows + threadIdx.x / 32 * op.n_rot, v);
    const mo_planes_scale s = mo_planes_turn_held<D / 32>(v, planes);
    uint8_t *out = fresh_codes<D>(r, i, value) + lane;
    MO_UNROLL()
    for (int k = 0; k < D / 32; k++) {
        const int code = mo_planes_code(s, v[k]);
        out[32 * k] = (uint8_t)(planes == 2 ? mo_code_high(code) : code);
        out[32 * k + D] = (uint8_t)mo_code_low(code); /* unread where there is one plane */
    }
    if (lane == 0) {
        (value ? r.value_scales : r.key_scales)[i] = s.s;
    }
    if (own && r.writes) {
        fresh_write<D>(op, state, position, r.kv_head, value, v, s);
    }
}

/* All of them. A barrier follows. */
template <int D>
static __device__ __forceinline__ void planes_fresh_make(const mo_op_heads &op, const planes_fresh &r,
                                                         const mo_dstate &state, const mo_planes_few &f)
{
    MO_UNROLL(1)
    for (int i = threadIdx.x / 32; i < 2 * r.count + f.rows; i += MO_PLANES_THREADS / 32) {
        if (i < 2 * r.count) {
            fresh_entry<D>(op, r, state, i / 2, i % 2);
        } else {
            fresh_query<D>(op, r, f, i - 2 * r.count);
        }
    }
}

/* ---- Keys and values where attention looks for them -------------------------------------------- */

/* Byte `slot` of a unit. */
static __device__ __forceinline__ void fresh_patch(uint4 *unit, int slot, uint32_t byte)
{
    const int shift = 8 * (slot % 4);
    const uint32_t keep = ~(255u << shift), put = byte << shift;
    unit->x = slot / 4 == 0 ? (unit->x & keep) | put : unit->x;
    unit->y = slot / 4 == 1 ? (unit->y & keep) | put : unit->y;
    unit->z = slot / 4 == 2 ? (unit->z & keep) | put : unit->z;
    unit->w = slot / 4 == 3 ? (unit->w & keep) | put : unit->w;
}

/* Into the registers of a block that has one chunk, which begins at `begin`. */
template <int D>
static __device__ __forceinline__ void planes_fresh_load(const planes_fresh &r, int64_t begin, int planes,
                                                         mo_planes_loads<D, D> *loads)
{
    typedef mo_planes_loads<D, D> L;
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    MO_UNROLL(1)
    for (int i = 0; i < r.count; i++) {
        const int u = (int)(r.first + i - begin), unit = u / 16;
        const uint8_t *key = fresh_codes<D>(r, i, false) + 16 * q;
        const uint8_t *value = fresh_codes<D>(r, i, true) + 8 * warp + g;
        MO_UNROLL()
        for (int n = 0; n < 4 * L::DEEP; n++) {
            const int t = n / 2 % 2, d = n / 4, p = n % 2;
            if (u == 16 * warp + 8 * t + g && p < planes) {
                loads->keys[t][d][p] = *(const uint4 *)(key + p * D + 64 * d);
            }
        }
        MO_UNROLL()
        for (int n = 0; n < 4 * L::TILES; n++) {
            const int t = n / 4, d = n / 2 % 2, p = n % 2;
            if (unit == 4 * d + q && p < planes) {
                fresh_patch(&loads->values[t][d][p], mo_kv_slot(u), value[p * D + 64 * t]);
            }
        }
    }
}

/* Into a slot, keys or values of the chunk that begins at `begin`. All threads; a barrier before, and one inside at the end. */
template <int D>
static __device__ __forceinline__ void planes_fresh_copy(const planes_fresh &r, int64_t begin, int planes,
                                                         bool value, uint8_t *slot)
{
    float *scales = (float *)(slot + 2 * MO_KV_BLOCK * D);
    if (begin + MO_KV_BLOCK <= r.first || r.count == 0) {
        return;
    }
    for (int i = 0; i < r.count; i++) {
        const int u = (int)(r.first + i - begin);
        for (int n = threadIdx.x; n < planes * D && u >= 0 && u < MO_KV_BLOCK; n += MO_PLANES_THREADS) {
            const int at = value ? mo_kv_value_code(u, n % D, D) : mo_kv_key_code(u, n % D);
            slot[n / D * (MO_KV_BLOCK * D) + at] = fresh_codes<D>(r, i, value)[n];
        }
        if (threadIdx.x == 0 && u >= 0 && u < MO_KV_BLOCK) {
            scales[u] = (value ? r.value_scales : r.key_scales)[i];
        }
    }
    planes_show();
    __syncthreads();
}

#endif
