/* Planes, few queries: up to 16 that share a KV head, over one chunk of 128 positions, by 256 threads. Keys and values go from memory
 * into the registers that multiply them; where the lengths are known to the compiler all of them are asked for at once. */
#ifndef MO_DEVICE_CUDA_PLANES_FEW_CUH
#define MO_DEVICE_CUDA_PLANES_FEW_CUH

#include "device/cuda/codes.cuh"

/* What a block works on. Query i of the block is number `first` + i of those of the KV head, token after token. Arrays are in shared
 * memory; state has MO_PLANES_ROWS of each. */
typedef struct mo_planes_few {
    int kv_head, group, rows;
    int64_t first;
    mo_planes_span span;
    int turners;
    uint8_t *q, *weights;         /* units of codes: high planes, then low ones */
    float *scores;                /* [16][MO_PLANES_SCORES] */
    int32_t *sums;                /* [rows][padded v_len] */
    float *O;                     /* the same shape: what chunks before have left */
    float *s, *m, *l, *r, *M, *L; /* s: of the query's codes */
    int *from, *to;               /* positions of the chunk that are seen; to 0: none */
    float *s_tail;                /* of the codes of a latent query's tail */
} mo_planes_few;

static __device__ __forceinline__ void mo_planes_state_at(mo_planes_few *f, float *state)
{
    f->s = state;
    f->m = f->s + MO_PLANES_ROWS;
    f->l = f->m + MO_PLANES_ROWS;
    f->r = f->l + MO_PLANES_ROWS;
    f->M = f->r + MO_PLANES_ROWS;
    f->L = f->M + MO_PLANES_ROWS;
    f->from = (int *)(f->L + MO_PLANES_ROWS);
    f->to = f->from + MO_PLANES_ROWS;
    f->s_tail = (float *)(f->to + MO_PLANES_ROWS);
}

static __device__ __forceinline__ mo_planes_few mo_planes_few_of(const mo_op_attend &op, int kv_head,
                                                                 int64_t first, int rows, int most,
                                                                 uint8_t *space)
{
    const mo_planes_scratch lay = mo_planes_lay(op.k_len, op.v_len, op.tail, most);
    mo_planes_few f;
    f.kv_head = kv_head;
    f.group = mo_quotient(op.heads, op.kv_heads);
    f.rows = rows;
    f.first = first;
    f.turners = lay.turners;
    f.q = space + lay.q;
    f.weights = space + lay.weights;
    f.scores = (float *)(space + lay.scores);
    f.sums = (int32_t *)(space + lay.sums);
    f.O = (float *)(space + lay.O);
    mo_planes_state_at(&f, (float *)(space + lay.state));
    return f;
}

static __device__ __forceinline__ int64_t mo_planes_token(const mo_planes_few &f, int row)
{
    return (f.first + row) / f.group;
}
static __device__ __forceinline__ int mo_planes_head(const mo_planes_few &f, int row)
{
    return f.kv_head * f.group + (int)((f.first + row) % f.group);
}

/* ---- Queries ---------------------------------------------------------------------------------- */

static __device__ __forceinline__ const float *mo_planes_query_at(const mo_op_attend &op,
                                                                  const mo_planes_few &f, int row)
{
    return mo_at<const float>(op.q) + mo_query_row(op, mo_planes_token(f, row), mo_planes_head(f, row)) *
                                          (op.k_len * (op.gated ? 2 : 1));
}

/* Codes of `n` values of a query that is row i of the block, by one warp: into units from `first` on. x NULL: zeros. Gives their scale. */
static __device__ __forceinline__ float mo_planes_code_part(const mo_planes_few &f, const float *x, int n,
                                                            float *row, int i, int first, int low)
{
    const int lane = threadIdx.x & 31;
    mo_planes_scale s = {0.0f, 0.0f, true};
    if (x) {
        for (int j = lane; j < n; j += 32) {
            row[j] = x[j];
        }
        mo_turn(row, n);
        s = mo_planes_scale_of(row, n, 2);
    }
    for (int j = lane; j < mo_kv_padded(n); j += 32) {
        const int c = x && j < n ? mo_planes_code(s, row[j]) : 0;
        uint8_t *out = f.q + (first + j / 16) * MO_PLANES_UNIT + 16 * i + j % 16;
        out[0] = (uint8_t)mo_code_high(c);
        out[low] = (uint8_t)mo_code_low(c);
    }
    __syncwarp();
    return s.finite ? s.s : NAN;
}

/* Of latent queries: value and tail. Scales that are too large are none, as in mo_latent_code(). */
static __device__ __forceinline__ void mo_planes_latent_queries(const mo_op_attend &op,
                                                                const mo_planes_few &f)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, units = mo_kv_padded(op.v_len) / 16;
    const int low = mo_kv_plane(op.k_len, op.tail) / 16 * MO_PLANES_UNIT;
    float *row = (float *)f.weights + warp * op.k_len;
    for (int i = warp; i < MO_PLANES_ROWS && warp < f.turners; i += f.turners) {
        const float *x = i < f.rows ? mo_planes_query_at(op, f, i) : NULL;
        const float s = mo_planes_code_part(f, x, op.v_len, row, i, 0, low);
        const float tail = mo_planes_code_part(f, x ? x + op.v_len : NULL, op.tail, row, i, units, low);
        const bool fits = s <= MO_LATENT_SCALE && tail <= MO_LATENT_SCALE;
        if (lane == 0) {
            f.s[i] = fits ? s : NAN;
            f.s_tail[i] = fits ? tail : NAN;
        }
    }
}

/* Codes of the queries; of rows that are none, 0. A barrier follows. */
template <int K>
static __device__ __forceinline__ void mo_planes_queries(const mo_op_attend &op, const mo_planes_few &f)
{
    if constexpr (K > 0) {
        MO_UNROLL()
        for (int i = 0; i < 2; i++) {
            const int row = threadIdx.x / 32 + i * (MO_PLANES_THREADS / 32);
            const float *x = row < f.rows ? mo_planes_query_at(op, f, row) : NULL;
            const float s =
                mo_planes_code_query<K>(x, f.q + 16 * row, MO_PLANES_UNIT, K / 16 * MO_PLANES_UNIT);
            if ((threadIdx.x & 31) == 0) {
                f.s[row] = s;
            }
        }
        return;
    }
    if (op.tail) {
        mo_planes_latent_queries(op, f);
        return;
    }
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const int low = mo_kv_padded(op.k_len) / 16 * MO_PLANES_UNIT;
    float *row = (float *)f.weights + warp * op.k_len;
    for (int i = warp; i < MO_PLANES_ROWS && warp < f.turners; i += f.turners) {
        const float *x = i < f.rows ? mo_planes_query_at(op, f, i) : NULL;
        const float s = mo_planes_code_part(f, x, op.k_len, row, i, 0, low);
        if (lane == 0) {
            f.s[i] = s;
        }
    }
}

/* ---- Keys and values on their way ------------------------------------------------------------- */

/* Lengths K and V of keys and values; 0: the op says. What a thread multiplies: keys of the 16 positions of its warp, and values
 * of every eighth tile of 8 channels. */
template <int K, int V> struct mo_planes_loads {
    static constexpr int DEEP = K ? (K + 63) / 64 : 1;    /* steps of four units of a key */
    static constexpr int TILES = V ? (V / 8 + 7) / 8 : 1; /* tiles of channels of a warp */
    uint4 keys[2][DEEP][2], values[TILES][2][2];          /* [tile][step][plane] */
};

static __device__ __forceinline__ uint4 mo_planes_nothing(void)
{
    return make_uint4(0, 0, 0, 0);
}

/* Unit 4 * step + q of the key of position u, as far as there are units. */
static __device__ __forceinline__ uint4 mo_planes_key(const uint8_t *plane, int units, int step, int u)
{
    const int unit = 4 * step + (threadIdx.x & 3);
    return unit < units ? mo_planes_read(plane + unit * (16 * MO_KV_BLOCK) + 16 * u) : mo_planes_nothing();
}

/* 64 positions of one channel, a unit for each q. */
static __device__ __forceinline__ uint4 mo_planes_value(const uint8_t *plane, int padded, int step, int j)
{
    const int unit = 4 * step + (threadIdx.x & 3);
    return mo_planes_read(plane + (unit * padded + j) * 16);
}

/* The same of latent rows, which are keys: position after position, in the order of slots. */
static __device__ __forceinline__ uint4 mo_planes_latent_value(const uint8_t *plane, int step, int j)
{
    const uint8_t *p = plane + mo_kv_key_code(16 * (4 * step + (threadIdx.x & 3)), j);
    uint32_t words[4] = {0};
    MO_UNROLL()
    for (int u = 0; u < 16; u++) {
        const int slot = mo_kv_slot(u);
        words[slot / 4] |= (uint32_t)mo_read_byte(p + 16 * u) << 8 * (slot % 4);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Of positions [from, to) of the chunk, in whole units; others are weighted with 0 or not looked at. */
template <int K, int V>
static __device__ __forceinline__ void mo_planes_ask(const mo_planes_few &f, int from, int to,
                                                     mo_planes_loads<K, V> *loads)
{
    if constexpr (K > 0) {
        constexpr int KP = (K + 15) / 16 * 16, VP = (V + 15) / 16 * 16;
        typedef mo_planes_loads<K, V> L;
        const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
        const bool mine = 16 * warp < to && 16 * warp + 16 > from;
        MO_UNROLL()
        for (int i = 0; i < 4 * L::DEEP; i++) {
            const int t = i / 2 % 2, d = i / 4, p = i % 2;
            loads->keys[t][d][p] =
                mine && p < f.span.planes
                    ? mo_planes_key(f.span.keys + p * (MO_KV_BLOCK * KP), KP / 16, d, 16 * warp + 8 * t + g)
                    : mo_planes_nothing();
        }
        MO_UNROLL()
        for (int i = 0; i < 4 * L::TILES; i++) {
            const int t = i / 4, d = i / 2 % 2, p = i % 2, j = 8 * (warp + 8 * t);
            const int u = 16 * (4 * d + q); /* of the lane's unit */
            loads->values[t][d][p] =
                j < VP && u < to && u + 16 > from && p < f.span.planes
                    ? mo_planes_value(f.span.values + p * (MO_KV_BLOCK * VP), VP, d, j + g)
                    : mo_planes_nothing();
        }
    }
}

/* ---- Scores, weights, values ------------------------------------------------------------------ */

/* Units of rows g and g + 8 of a plane of queries or weights. */
static __device__ __forceinline__ void mo_planes_rows_of(const uint8_t *plane, int units, int step,
                                                         uint4 *out)
{
    const int unit = 4 * step + (threadIdx.x & 3), g = (threadIdx.x & 31) / 4;
    if (unit >= units) {
        out[0] = out[1] = mo_planes_nothing();
        return;
    }
    const uint8_t *p = plane + unit * MO_PLANES_UNIT + 16 * g;
    out[0] = *(const uint4 *)p;
    out[1] = *(const uint4 *)(p + 8 * 16);
}

/* Sums of `units` units of queries and of the keys of the warp's 16 positions; key_low 0: there is no low plane. */
static __device__ __forceinline__ void mo_planes_add(int32_t hh[2][4], int32_t xx[2][4], const uint8_t *q,
                                                     int q_low, const uint8_t *keys, int key_low, int units)
{
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4;
    for (int d = 0; 4 * d < units; d++) {
        uint4 a_hi[2], a_lo[2];
        mo_planes_rows_of(q, units, d, a_hi);
        mo_planes_rows_of(q + q_low, units, d, a_lo);
        MO_UNROLL()
        for (int t = 0; t < 2; t++) {
            const int u = 16 * warp + 8 * t + g;
            mo_planes_product(hh[t], xx[t], a_hi, a_lo, mo_planes_key(keys, units, d, u),
                              key_low ? mo_planes_key(keys + key_low, units, d, u) : mo_planes_nothing());
        }
    }
}

/* Scores of latent rows. */
static __device__ __forceinline__ void mo_planes_latent_scores(const mo_op_attend &op, const mo_planes_few &f)
{
    const int units = mo_kv_padded(op.v_len) / 16, all = mo_kv_plane(op.k_len, op.tail) / 16;
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    int32_t hh[2][4] = {{0}}, xx[2][4] = {{0}}, tail_hh[2][4] = {{0}}, tail_xx[2][4] = {{0}};
    const int key_low = f.span.planes == 2 ? 16 * all * MO_KV_BLOCK : 0;
    mo_planes_add(hh, xx, f.q, all * MO_PLANES_UNIT, f.span.keys, key_low, units);
    mo_planes_add(tail_hh, tail_xx, f.q + units * MO_PLANES_UNIT, all * MO_PLANES_UNIT,
                  f.span.keys + 16 * units * MO_KV_BLOCK, key_low, all - units);
    MO_UNROLL()
    for (int t = 0; t < 2; t++) {
        const int u = 16 * warp + 8 * t + 2 * q;
        const float2 s = __ldcg((const float2 *)(f.span.value_scales + u));
        const float2 s_tail = __ldcg((const float2 *)(f.span.key_scales + u));
        MO_UNROLL()
        for (int i = 0; i < 2; i++) {
            const int row = g + 8 * i;
            const float value = (f.s[row] * op.scale) * MO_CODE_BASE,
                        tail = (f.s_tail[row] * op.scale) * MO_CODE_BASE;
            float *x = f.scores + row * MO_PLANES_SCORES + u;
            x[0] = mo_latent_score(value, s.x, 256 * hh[t][2 * i] + xx[t][2 * i], tail, s_tail.x,
                                   256 * tail_hh[t][2 * i] + tail_xx[t][2 * i]);
            x[1] = mo_latent_score(value, s.y, 256 * hh[t][2 * i + 1] + xx[t][2 * i + 1], tail, s_tail.y,
                                   256 * tail_hh[t][2 * i + 1] + tail_xx[t][2 * i + 1]);
        }
    }
}

/* x of the warp's 16 positions, for all queries. SHARED: the scales of keys are in shared memory. */
template <int K, int V, bool SHARED>
static __device__ __forceinline__ void mo_planes_scores(const mo_op_attend &op, const mo_planes_few &f,
                                                        const mo_planes_loads<K, V> &loads)
{
    const int padded = K ? (K + 15) / 16 * 16 : mo_kv_padded(op.k_len), units = padded / 16;
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    const int deep = (units + 3) / 4;
    int32_t hh[2][4] = {{0}}, xx[2][4] = {{0}};
    MO_UNROLL()
    for (int d = 0; d < deep; d++) {
        uint4 a_hi[2], a_lo[2];
        mo_planes_rows_of(f.q, units, d, a_hi);
        mo_planes_rows_of(f.q + units * MO_PLANES_UNIT, units, d, a_lo);
        MO_UNROLL()
        for (int t = 0; t < 2; t++) {
            const int u = 16 * warp + 8 * t + g;
            const uint4 hi = K ? loads.keys[t][K ? d : 0][0] : mo_planes_key(f.span.keys, units, d, u);
            const uint4 lo = K ? loads.keys[t][K ? d : 0][1]
                             : f.span.planes < 2
                                 ? mo_planes_nothing()
                                 : mo_planes_key(f.span.keys + MO_KV_BLOCK * padded, units, d, u);
            mo_planes_product(hh[t], xx[t], a_hi, a_lo, hi, lo);
        }
    }
    MO_UNROLL()
    for (int t = 0; t < 2; t++) {
        const int u = 16 * warp + 8 * t + 2 * q;
        const float2 *scales = (const float2 *)(f.span.key_scales + u);
        const float2 s = SHARED ? *scales : __ldcg(scales);
        MO_UNROLL()
        for (int i = 0; i < 2; i++) {
            float *x = f.scores + (g + 8 * i) * MO_PLANES_SCORES + u;
            const bool whole = K > 0 && K <= 512;
            x[0] = s.x * (whole ? mo_planes_sum(hh[t][2 * i], xx[t][2 * i])
                                : mo_code_sum(hh[t][2 * i], xx[t][2 * i]));
            x[1] = s.y * (whole ? mo_planes_sum(hh[t][2 * i + 1], xx[t][2 * i + 1])
                                : mo_code_sum(hh[t][2 * i + 1], xx[t][2 * i + 1]));
        }
    }
}

/* Weights of a query, by one warp: a lane has the four positions whose bytes are neighbours in a unit. Leaves m, l and r. SHARED: the
 * values' scales are in shared memory. */
template <bool SHARED>
static __device__ __forceinline__ void mo_planes_weights(const mo_planes_few &f, const mo_planes_query &query,
                                                         int row)
{
    const int lane = threadIdx.x & 31, unit = lane / 4, first = 16 * unit + 2 * (lane & 3);
    const int from = f.from[row], to = f.to[row];
    float x[4], w[4], top = -INFINITY, most = 0.0f;
    bool seen[4];
    uint32_t share = 0;
    MO_UNROLL()
    for (int i = 0; i < 4; i++) {
        const int u = first + i / 2 * 8 + i % 2;
        x[i] = f.scores[row * MO_PLANES_SCORES + u];
        seen[i] = u >= from && u < to;
        top = seen[i] ? fmaxf(top, x[i]) : top;
    }
    top = mo_warp_max(top) + 0.0f;
    MO_UNROLL()
    for (int i = 0; i < 4; i++) {
        const float *scale = f.span.value_scales + first + i / 2 * 8 + i % 2;
        const float p = seen[i] && x[i] != -INFINITY ? mo_share(x[i] - top, query.e, query.least) : 0.0f;
        share += mo_planes_count(p);
        w[i] = seen[i] ? p * (SHARED ? *scale : __ldcg(scale)) : 0.0f;
        most = fmaxf(most, w[i]);
    }
    most = mo_warp_max(most);
    for (int s = 16; s >= 1; s /= 2) {
        share += __shfl_xor_sync(MO_FULL, share, s);
    }
    const float inverse = mo_planes_inverse(most);
    uint32_t y[4], hi, lo;
    MO_UNROLL()
    for (int i = 0; i < 4; i++) {
        y[i] = mo_bits_of(fmaf(w[i], inverse, mo_planes_cut(first + i / 2 * 8 + i % 2)));
    }
    mo_planes_pack(y[0], y[1], y[2], y[3], &hi, &lo);
    uint8_t *out = f.weights + unit * MO_PLANES_UNIT + 16 * row + 4 * (lane & 3);
    *(uint32_t *)out = hi;
    *(uint32_t *)(out + MO_KV_BLOCK / 16 * MO_PLANES_UNIT) = lo;
    if (lane == 0) {
        f.m[row] = query.g * top;
        f.l[row] = (float)(int32_t)(share - MO_KV_BLOCK * 0x4B000000u) * MO_SHARE_BACK;
        f.r[row] = mo_planes_back(most);
    }
}

template <int K, int V>
static __device__ __forceinline__ void mo_planes_values(const mo_op_attend &op, const mo_planes_few &f,
                                                        const mo_planes_loads<K, V> &loads)
{
    enum { UNITS = MO_KV_BLOCK / 16 };
    const int padded = V ? (V + 15) / 16 * 16 : mo_kv_padded(op.v_len);
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    uint4 a_hi[2][2], a_lo[2][2];
    MO_UNROLL()
    for (int d = 0; d < 2; d++) {
        mo_planes_rows_of(f.weights, UNITS, d, a_hi[d]);
        mo_planes_rows_of(f.weights + UNITS * MO_PLANES_UNIT, UNITS, d, a_lo[d]);
    }
    const int tiles = (padded / 8 + 7) / 8;
    MO_UNROLL()
    for (int t = 0; t < tiles; t++) {
        const int tile = warp + 8 * t;
        if (8 * tile >= padded) {
            break;
        }
        int32_t hh[4] = {0}, xx[4] = {0};
        MO_UNROLL()
        for (int d = 0; d < 2; d++) {
            uint4 hi, lo = mo_planes_nothing();
            if (V) {
                hi = loads.values[V ? t : 0][d][0];
                lo = loads.values[V ? t : 0][d][1];
            } else if (op.tail) {
                hi = mo_planes_latent_value(f.span.keys, d, 8 * tile + g);
                if (f.span.planes == 2) {
                    lo = mo_planes_latent_value(f.span.keys + MO_KV_BLOCK * mo_kv_plane(op.k_len, op.tail), d,
                                                8 * tile + g);
                }
            } else {
                hi = mo_planes_value(f.span.values, padded, d, 8 * tile + g);
                if (f.span.planes == 2) {
                    lo = mo_planes_value(f.span.values + MO_KV_BLOCK * padded, padded, d, 8 * tile + g);
                }
            }
            mo_planes_product(hh, xx, a_hi[d], a_lo[d], hi, lo);
        }
        int32_t *out = f.sums + 8 * tile + 2 * q;
        if (g < f.rows) {
            *(int2 *)(out + g * padded) = make_int2(256 * hh[0] + xx[0], 256 * hh[1] + xx[1]);
        }
        if (g + 8 < f.rows) {
            *(int2 *)(out + (g + 8) * padded) = make_int2(256 * hh[2] + xx[2], 256 * hh[3] + xx[3]);
        }
    }
}

/* Everything of one chunk. Every thread has passed a barrier since mo_planes_queries() and the chunk before; one follows. SHARED: scales are
 * in shared memory. */
template <int K, int V, bool SHARED = false>
static __device__ __forceinline__ void mo_planes_run(const mo_op_attend &op, const mo_planes_few &f,
                                                     const mo_planes_loads<K, V> &loads)
{
    const bool latent = K == 0 && op.tail;
    if (latent) {
        mo_planes_latent_scores(op, f);
    } else {
        mo_planes_scores<K, V, SHARED>(op, f, loads);
    }
    __syncthreads();
    for (int row = threadIdx.x / 32; row < f.rows; row += MO_PLANES_THREADS / 32) {
        mo_planes_weights<SHARED>(
            f, latent ? mo_planes_query_by(1.0f) : mo_planes_query_of(f.s[row], op.scale), row);
    }
    __syncthreads();
    mo_planes_values<K, V>(op, f, loads);
    __syncthreads();
}

/* The chunk joins what those before have left. A barrier follows before the next. */
static __device__ __forceinline__ void mo_planes_join(const mo_op_attend &op, const mo_planes_few &f)
{
    const int padded = mo_kv_padded(op.v_len);
    for (int row = threadIdx.x / 32; row < f.rows; row += MO_PLANES_THREADS / 32) {
        if (f.to[row] == 0) {
            continue;
        }
        const mo_join join = mo_join_of(f.M[row], f.m[row]);
        const float b = join.b * f.r[row];
        for (int j = threadIdx.x & 31; j < op.v_len; j += 32) {
            float &O = f.O[row * padded + j];
            O = fmaf(b, (float)f.sums[row * padded + j], join.a * O);
        }
        __syncwarp();
        if ((threadIdx.x & 31) == 0) {
            f.L[row] = mo_joined(join, f.L[row], f.l[row]);
            f.M[row] = join.top;
        }
    }
}

static __device__ __forceinline__ void mo_planes_begin(const mo_op_attend &op, const mo_planes_few &f)
{
    const int padded = mo_kv_padded(op.v_len);
    for (int i = threadIdx.x; i < f.rows * padded; i += MO_PLANES_THREADS) {
        f.O[i] = 0.0f;
    }
    if ((int)threadIdx.x < f.rows) {
        f.M[threadIdx.x] = -INFINITY;
        f.L[threadIdx.x] = 0.0f;
    }
}

#endif
