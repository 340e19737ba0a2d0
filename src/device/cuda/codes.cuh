/* Codes: rows of 16-bit codes in two planes of bytes (numerics: attention by integer sums), turned, coded, and multiplied by
 * the tensor cores; and the KV cache that holds them. A cache of Q8_0 has no low planes: where they would be in shared
 * memory or registers there are zeros, so that the same kernels serve it, with half the bytes on their way.
 *
 * Keys, values, queries and weights all come as units: 16 bytes along the sum for one row, row after row. Lane (g, q) = (lane / 4,
 * lane % 4) of a warp takes unit q of row g: 16 numbers of its own, which serve two mma steps of 32. That is another order of the
 * sum than the unit's, the same on both sides, and integers do not mind. */
#ifndef MO_DEVICE_CUDA_CODES_CUH
#define MO_DEVICE_CUDA_CODES_CUH

#include "device/cuda/chunk.cuh"
#include "device/cuda/planes_scratch.h"
#include "numeric/codes.h"

/* ---- Products --------------------------------------------------------------------------------- */

/* hh += hi hi, xx += hi lo + lo hi of 16 rows (a: hi and lo of row g and of row g + 8) and 8 rows (b), four units deep. */
static __device__ __forceinline__ void mo_planes_product(int32_t *hh, int32_t *xx, const uint4 *a_hi,
                                                         const uint4 *a_lo, const uint4 &b_hi,
                                                         const uint4 &b_lo)
{
    const uint32_t h0[4] = {a_hi[0].x, a_hi[1].x, a_hi[0].y, a_hi[1].y};
    const uint32_t h1[4] = {a_hi[0].z, a_hi[1].z, a_hi[0].w, a_hi[1].w};
    const uint32_t l0[4] = {a_lo[0].x, a_lo[1].x, a_lo[0].y, a_lo[1].y};
    const uint32_t l1[4] = {a_lo[0].z, a_lo[1].z, a_lo[0].w, a_lo[1].w};
    const uint32_t bh0[2] = {b_hi.x, b_hi.y}, bh1[2] = {b_hi.z, b_hi.w};
    const uint32_t bl0[2] = {b_lo.x, b_lo.y}, bl1[2] = {b_lo.z, b_lo.w};
    mo_mma_s8(hh, h0, bh0);
    mo_mma_s8(xx, h0, bl0);
    mo_mma_s8(xx, l0, bh0);
    mo_mma_s8(hh, h1, bh1);
    mo_mma_s8(xx, h1, bl1);
    mo_mma_s8(xx, l1, bh1);
}

/* The exact sum, rounded once, as mo_code_sum(): for keys of up to 512 values and for weights. */
static __device__ __forceinline__ float mo_planes_sum(int32_t hh, int32_t xx)
{
    return (float)(256 * hh + xx);
}

/* ---- Turning and codes, by one warp ----------------------------------------------------------- */

/* Butterflies over all blocks of a row of n values in shared memory, times the factor. Lane i has values i, i + 32, ... and
 * touches no others; all lanes of the warp come. Four values go side by side, so that one's way to another lane is hidden
 * by the others'. */
static __device__ __forceinline__ void mo_turn_strips(float *row, int n)
{
    const int lane = threadIdx.x & 31, block = mo_turn_block(n);
    const float root = mo_turn_root(block);
    for (int at = lane; at - lane < n; at += 128) {
        float v[4];
        MO_UNROLL()
        for (int i = 0; i < 4; i++) {
            v[i] = at + 32 * i < n ? row[at + 32 * i] : 0.0f;
        }
        for (int h = 1; h < 32 && h < block; h *= 2) {
            MO_UNROLL()
            for (int i = 0; i < 4; i++) {
                const float other = __shfl_xor_sync(MO_FULL, v[i], h);
                v[i] = lane & h ? other - v[i] : v[i] + other;
            }
        }
        MO_UNROLL()
        for (int i = 0; i < 4; i++) {
            if (at + 32 * i < n) {
                row[at + 32 * i] = block <= 32 ? v[i] * root : v[i];
            }
        }
    }
    for (int h = 32; h < block; h *= 2) {
        const bool last = 2 * h == block;
        MO_UNROLL(4)
        for (int at = 0; at < n / 2; at += 32) { /* pairs */
            const int i = 2 * (at & -h) + (at & (h - 1)) + lane;
            const float a = row[i], c = row[i + h];
            row[i] = last ? (a + c) * root : a + c;
            row[i + h] = last ? (a - c) * root : a - c;
        }
    }
}

static __device__ __forceinline__ float mo_turn_flipped(float x, int i)
{
    return mo_float_of(mo_bits_of(x) ^ mo_turn_sign((uint32_t)i));
}

static __device__ __forceinline__ void mo_turn(float *row, int n)
{
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        row[i] = mo_turn_flipped(row[i], i);
    }
    mo_turn_strips(row, n);
}

static __device__ __forceinline__ void mo_turn_back(float *row, int n)
{
    mo_turn_strips(row, n);
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        row[i] = mo_turn_flipped(row[i], i);
    }
}

/* How a turned row becomes codes. */
typedef struct mo_planes_scale {
    float inverse, s;
    bool finite;
} mo_planes_scale;

static __device__ __forceinline__ mo_planes_scale mo_planes_scale_by(float amax, bool finite, int planes)
{
    const bool zero = amax < MO_CODE_TINY || !finite;
    mo_planes_scale r;
    r.finite = finite;
    r.inverse = zero ? 0.0f : mo_code_inverse(amax, planes);
    r.s = zero ? 0.0f : mo_code_scale(amax, planes);
    return r;
}

static __device__ __forceinline__ mo_planes_scale mo_planes_scale_of(const float *row, int n, int planes)
{
    float amax = 0.0f;
    bool bad = false;
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        bad |= mo_not_finite(row[i]);
        amax = fmaxf(amax, fabsf(row[i]));
    }
    return mo_planes_scale_by(mo_warp_max(amax), __ballot_sync(MO_FULL, bad) == 0, planes);
}

static __device__ __forceinline__ int mo_planes_code(mo_planes_scale s, float x)
{
    return s.inverse == 0.0f ? 0 : (int)rintf(x * s.inverse);
}

/* The same of a row of 32 * N values, N a power of two, whose values i, i + 32, ... lane i holds. */
template <int N> static __device__ __forceinline__ void mo_turn_held(float *v)
{
    const int lane = threadIdx.x & 31;
    MO_UNROLL()
    for (int h = 1; h < 32; h *= 2) {
        MO_UNROLL()
        for (int i = 0; i < N; i++) {
            const float other = __shfl_xor_sync(MO_FULL, v[i], h);
            v[i] = lane & h ? other - v[i] : v[i] + other;
        }
    }
    MO_UNROLL()
    for (int h = 1; h < N; h *= 2) {
        MO_UNROLL()
        for (int i = 0; i < N; i++) {
            if ((i & h) == 0) {
                const float a = v[i], c = v[i + h];
                v[i] = a + c;
                v[i + h] = a - c;
            }
        }
    }
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        v[i] = v[i] * mo_turn_root(32 * N);
    }
}

/* Turns a row that the lanes hold and says how it becomes codes. */
template <int N> static __device__ __forceinline__ mo_planes_scale mo_planes_turn_held(float *v, int planes)
{
    const int lane = threadIdx.x & 31;
    float amax = 0.0f;
    bool bad = false;
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        v[i] = mo_turn_flipped(v[i], 32 * i + lane);
    }
    mo_turn_held<N>(v);
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        bad |= mo_not_finite(v[i]);
        amax = fmaxf(amax, fabsf(v[i]));
    }
    return mo_planes_scale_by(mo_warp_max(amax), __ballot_sync(MO_FULL, bad) == 0, planes);
}

/* Turns a query of D values, 32 times a power of two, and leaves its codes: into units `unit` bytes apart, the low plane `low` bytes
 * further, `out` is its place in the first. Gives their scale. */
template <int D>
static __device__ __forceinline__ float mo_planes_code_held(float *v, uint8_t *out, int unit, int low)
{
    const int lane = threadIdx.x & 31;
    const mo_planes_scale s = mo_planes_turn_held<D / 32>(v, 2);
    out += lane / 16 * unit + lane % 16;
    MO_UNROLL()
    for (int i = 0; i < D / 32; i++) {
        const int c = mo_planes_code(s, v[i]);
        out[2 * i * unit] = (uint8_t)mo_code_high(c);
        out[2 * i * unit + low] = (uint8_t)mo_code_low(c);
    }
    return s.finite ? s.s : NAN;
}

/* The same of a query in memory; x NULL: zeros. */
template <int D>
static __device__ __forceinline__ float mo_planes_code_query(const float *x, uint8_t *out, int unit, int low)
{
    float v[D / 32];
    MO_UNROLL()
    for (int i = 0; i < D / 32; i++) {
        v[i] = x ? x[32 * i + (threadIdx.x & 31)] : 0.0f;
    }
    return mo_planes_code_held<D>(v, out, unit, low);
}

/* ---- The cache -------------------------------------------------------------------------------- */

/* The keys and values of one KV head in a block, which is a chunk. */
typedef struct mo_planes_span {
    const uint8_t *keys, *values; /* their high planes */
    int planes;
    const float *key_scales, *value_scales;
} mo_planes_span;

static __device__ __forceinline__ mo_planes_span mo_planes_block(const mo_op_attend &op,
                                                                 const mo_dstate &state, int kv_head,
                                                                 int64_t position)
{
    const mo_kv_shape shape = mo_cache_shape(op.kv, op.kv_heads, op.k_len, op.v_len, op.tail);
    const uint8_t *block = mo_cache_block(state, position);
    mo_planes_span s;
    s.planes = mo_kv_planes(op.kv);
    s.keys = block + mo_kv_keys_at(shape, kv_head);
    s.values = block + mo_kv_values_at(shape, kv_head);
    s.key_scales = (const float *)(block + mo_kv_key_scales_at(kv_head));
    s.value_scales = (const float *)(block + mo_kv_value_scales_at(shape, kv_head));
    return s;
}

/* Codes of value i of a row into the cache: those of a key, or of a value, of position u of a block; out is the head's. */
static __device__ __forceinline__ void mo_planes_put(uint8_t *out, bool value, int n, int u, int i, int c,
                                                     int planes)
{
    const int at = value ? mo_kv_value_code(u, i, n) : mo_kv_key_code(u, i);
    out[at] = (uint8_t)(planes == 2 ? mo_code_high(c) : c);
    if (planes == 2) {
        out[at + MO_KV_BLOCK * mo_kv_padded(n)] = (uint8_t)mo_code_low(c);
    }
}

template <int N>
static __device__ __forceinline__ mo_planes_scale mo_planes_write_held(const float *row, uint8_t *out,
                                                                       bool value, int u, int planes)
{
    const int lane = threadIdx.x & 31;
    float v[N];
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        v[i] = row[32 * i + lane];
    }
    const mo_planes_scale s = mo_planes_turn_held<N>(v, planes);
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        mo_planes_put(out, value, 32 * N, u, 32 * i + lane, mo_planes_code(s, v[i]), planes);
    }
    return s;
}

/* A row in shared memory as a key, or a value, of position u of a block: turned, perhaps in its place, and coded. False when it is
 * not finite. */
static __device__ __forceinline__ bool mo_planes_write(mo_kv_shape shape, float *row, bool value, int head,
                                                       uint8_t *block, int u)
{
    const int n = value ? shape.v_len : shape.k_len, lane = threadIdx.x & 31,
              planes = mo_kv_planes(shape.type);
    uint8_t *out = block + (value ? mo_kv_values_at(shape, head) : mo_kv_keys_at(shape, head));
    mo_planes_scale s;
    if (n == 128) {
        s = mo_planes_write_held<4>(row, out, value, u, planes);
    } else if (n == 64) {
        s = mo_planes_write_held<2>(row, out, value, u, planes);
    } else {
        mo_turn(row, n);
        s = mo_planes_scale_of(row, n, planes);
        for (int i = lane; i < n; i += 32) {
            mo_planes_put(out, value, n, u, i, mo_planes_code(s, row[i]), planes);
        }
    }
    if (lane == 0) {
        ((float *)(block + (value ? mo_kv_value_scales_at(shape, head) : mo_kv_key_scales_at(head))))[u] =
            s.s;
    }
    return s.finite;
}

/* Past this multiprocessor's own cache: neighbours may be written by the kernel before. */
static __device__ __forceinline__ uint4 mo_planes_read(const uint8_t *p)
{
    return __ldcg((const uint4 *)p);
}

/* ---- Weights ---------------------------------------------------------------------------------- */

/* What a query's scores are multiplied by. */
typedef struct mo_planes_query {
    float g, e, least;
} mo_planes_query;

static __device__ __forceinline__ mo_planes_query mo_planes_query_by(float g)
{
    mo_planes_query q;
    q.g = g;
    q.e = q.g * MO_SHARE_LOG2E;
    q.least = mo_share_least(q.e);
    return q;
}

static __device__ __forceinline__ mo_planes_query mo_planes_query_of(float s, float scale)
{
    return mo_planes_query_by((s * scale) * MO_CODE_BASE);
}

/* rint(p * 2^22) + 0x4B000000 */
static __device__ __forceinline__ uint32_t mo_planes_count(float p)
{
    return mo_bits_of(fmaf(p, MO_SHARE_UNIT, MO_WEIGHT_ROUND));
}

/* 2^23 + 2^15 + offset: added to a weight times its inverse, leaves lo + 128 in byte 1 and hi in byte 2. */
static __device__ __forceinline__ float mo_planes_cut(int u)
{
    return (MO_WEIGHT_ROUND + 32768.0f) + (float)mo_weight_offset(u);
}

/* Bytes of four weights, in order. */
static __device__ __forceinline__ void mo_planes_pack(uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                                                      uint32_t *hi, uint32_t *lo)
{
    const uint32_t ab = __byte_perm(a, b, 0x6521), cd = __byte_perm(c, d, 0x6521);
    *hi = __byte_perm(ab, cd, 0x7531);
    *lo = __byte_perm(ab, cd, 0x6420) ^ 0x80808080u;
}

static __device__ __forceinline__ float mo_planes_inverse(float most)
{
    return most < MO_CODE_TINY ? 0.0f : MO_WEIGHT_MOST / most;
}

/* What a sum of weights times codes is multiplied by. */
static __device__ __forceinline__ float mo_planes_back(float most)
{
    return (most * MO_WEIGHT_BACK) * MO_CODE_BASE;
}

/* ---- Ending ----------------------------------------------------------------------------------- */

/* Values of a finished head, from `at` on one in each lane: the gate, into the mixed row. Returns what is there. */
static __device__ __forceinline__ float mo_planes_leave(const mo_op_attend &op, int64_t t, int head, int at,
                                                        float v)
{
    const int j = at + (threadIdx.x & 31);
    if (j < op.v_len) {
        if (op.gated) {
            const float *gate =
                mo_at<const float>(op.q) + (t * op.heads + head) * (int64_t)(2 * op.k_len) + op.k_len;
            v = v * mo_sigmoid(gate[j]);
        }
        mo_at<float>(op.mixed.x)[mo_mixed_row(op, t, head) * op.mixed.cols + mo_mixed_column(op, head) + j] =
            v;
    }
    return v;
}

/* A finished head whose sums O are in shared memory, by one warp: sink, division, turned back, gate. V: its length, 0: any. */
template <int V>
static __device__ __forceinline__ void mo_planes_finish(const mo_op_attend &op, int64_t t, int head, float M,
                                                        float L, float *O)
{
    const int lane = threadIdx.x & 31;
    mo_join join = {M, 1.0f, 0.0f};
    if (op.sinks) {
        join = mo_join_of(M, mo_at<const float>(op.sinks)[head]);
        L = mo_joined(join, L, 1.0f);
    }
    if constexpr (V > 0) {
        float v[V / 32];
        MO_UNROLL()
        for (int i = 0; i < V / 32; i++) {
            const float o = O[32 * i + lane];
            v[i] = (op.sinks ? mo_joined(join, o, 0.0f) : o) / L;
        }
        mo_turn_held<V / 32>(v);
        MO_UNROLL()
        for (int i = 0; i < V / 32; i++) {
            v[i] = mo_planes_leave(op, t, head, 32 * i, mo_turn_flipped(v[i], 32 * i + lane));
        }
        constexpr int AT_ONCE = V / 32 < 4 ? V / 32 : 4;
        MO_UNROLL()
        for (int i = 0; i < V / 32; i += AT_ONCE) {
            mo_quantize_blocks<AT_ONCE>(op.mixed, mo_mixed_row(op, t, head),
                                        mo_mixed_column(op, head) / 32 + i, v + i);
        }
    } else {
        for (int j = lane; j < op.v_len; j += 32) {
            O[j] = (op.sinks ? mo_joined(join, O[j], 0.0f) : O[j]) / L;
        }
        mo_turn_back(O, op.v_len);
        for (int at = 0; at < op.v_len; at += 32) {
            const float v = mo_planes_leave(op, t, head, at, at + lane < op.v_len ? O[at + lane] : 0.0f);
            if (op.v_len % 32 == 0) { /* with its codes where heads end where blocks do */
                mo_quantize_block(op.mixed, mo_mixed_row(op, t, head), (mo_mixed_column(op, head) + at) / 32,
                                  v);
            }
        }
    }
}

#endif
