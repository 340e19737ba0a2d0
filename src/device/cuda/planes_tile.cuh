/* Planes, many queries: those of some neighbouring tokens that share a KV head are the rows of a tile, 16 of each of its warps. A chunk's
 * keys pass through shared memory while its values come, and its values while the next keys do. Scores, weights and sums stay in the
 * registers of the thread that has them: lane (g, q) has, of rows g and g + 8 of its warp, columns 2 q and 2 q + 1 of every eight. Weights of
 * 16 neighbouring positions, packed, then are a unit as the cache's values have it (numeric/kv.h: slots). */
#ifndef MO_DEVICE_CUDA_PLANES_TILE_CUH
#define MO_DEVICE_CUDA_PLANES_TILE_CUH

#include "device/cuda/planes_group.cuh"
#include "device/cuda/planes_rows.cuh"

template <int D> struct planes_tile {
    static constexpr bool GROUP = MO_PLANES_GROUP && D % 64 == 0; /* the warp group multiplies together */
    static constexpr int UNITS = D / 16, STEPS = UNITS / 2, REST = UNITS % 2; /* steps of two units */
    static constexpr int SCORES = MO_KV_BLOCK / 8;                            /* tiles of scores */
    static constexpr int OUTS = D / 8;                                        /* tiles of channels */
    uint8_t *keys, *values;
    uint8_t *q; /* [plane][unit][64 rows][16]; GROUP */
    float *key_scales, *value_scales, *cuts;
    planes_rows rows;
    planes_gate key_gate, value_gate;
};

/* A thread's two rows. */
struct planes_pair {
    int token[2];             /* of the tile; -1: no row */
    int64_t first[2];         /* position it sees first, */
    int64_t end[2];           /* and the one behind the last; 0: not in this run */
    mo_planes_query query[2]; /* g, e, least */
    float M[2], L[2];
};

/* Codes of a warp's rows, as operands of its own products. */
template <int D> struct planes_operand {
    static constexpr int STEPS = planes_tile<D>::STEPS + planes_tile<D>::REST;
    uint32_t hi[STEPS][4], lo[STEPS][4];
};

/* ---- Queries ---------------------------------------------------------------------------------- */

/* The codes of the tile's rows stay in shared memory for the group; or they pass through a part of it that is the warp's own, and
 * the thread takes its operands. */
template <int D>
static __device__ __forceinline__ void planes_take_queries(const mo_op_attend &op, const planes_tile<D> &t,
                                                           planes_pair *pair, planes_operand<D> *out)
{
    typedef planes_tile<D> T;
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    const int unit = T::GROUP ? 16 * MO_PLANES_TILE_ROWS : 16 * 16;
    uint8_t *codes = T::GROUP ? t.q + 16 * 16 * warp : t.values + warp * 32 * D;
    float v[T::OUTS][4];
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        pair->query[i] = mo_planes_query_of(
            planes_code_query<D>(op, t.rows, v, i, codes, unit, T::UNITS * unit), op.scale);
    }
    planes_show();
    if constexpr (!T::GROUP) {
        __syncwarp();
        MO_UNROLL()
        for (int s = 0; s < planes_operand<D>::STEPS; s++) {
            MO_UNROLL()
            for (int e = 0; e < 4; e++) { /* row g or g + 8, unit 2 s or 2 s + 1 */
                const bool there = 2 * s + e / 2 < T::UNITS;
                const uint8_t *p = codes + (2 * s + e / 2) * unit + 16 * (g + e % 2 * 8) + 4 * q;
                out->hi[s][e] = there ? *(const uint32_t *)p : 0;
                out->lo[s][e] = there ? *(const uint32_t *)(p + T::UNITS * unit) : 0;
            }
        }
    }
}

/* ---- Keys and values -------------------------------------------------------------------------- */

template <int D>
static __device__ __forceinline__ void planes_bring_keys(const planes_tile<D> &t, const mo_planes_span &span)
{
    planes_bring(t.key_gate, t.keys, span.keys, span.planes * MO_KV_BLOCK * D, t.key_scales, span.key_scales,
                 4 * MO_KV_BLOCK);
}

template <int D>
static __device__ __forceinline__ void planes_bring_values(const planes_tile<D> &t,
                                                           const mo_planes_span &span)
{
    planes_bring(t.value_gate, t.values, span.values, span.planes * MO_KV_BLOCK * D, t.value_scales,
                 span.value_scales, 4 * MO_KV_BLOCK);
}

/* ---- A chunk ---------------------------------------------------------------------------------- */

/* One tile of scores, from its sums. */
template <int D>
static __device__ __forceinline__ void planes_score(const planes_tile<D> &t, int n, const int32_t *hh,
                                                    const int32_t *xx, float *s)
{
    const float2 scale = *(const float2 *)(t.key_scales + 8 * n + 2 * (threadIdx.x & 3));
    s[0] = scale.x * mo_planes_sum(hh[0], xx[0]);
    s[1] = scale.y * mo_planes_sum(hh[1], xx[1]);
    s[2] = scale.x * mo_planes_sum(hh[2], xx[2]);
    s[3] = scale.y * mo_planes_sum(hh[3], xx[3]);
}

template <int D>
static __device__ __forceinline__ void planes_scores(const planes_tile<D> &t, const planes_operand<D> &query,
                                                     float (*s)[4])
{
    typedef planes_tile<D> T;
    enum { UNIT = 16 * MO_KV_BLOCK };
    const uint8_t *low = t.keys + T::UNITS * UNIT;
#if MO_PLANES_GROUP
    if constexpr (T::GROUP) {
        enum { Q_UNIT = 16 * MO_PLANES_TILE_ROWS };
        MO_UNROLL()
        for (int half = 0; half < 2; half++) {
            int32_t hh[32], xx[32];
            planes_products_begin();
            MO_UNROLL()
            for (int d = 0; d < T::STEPS; d++) {
                const uint64_t q_hi = planes_matrix(t.q + 2 * d * Q_UNIT, Q_UNIT);
                const uint64_t q_lo = planes_matrix(t.q + (T::UNITS + 2 * d) * Q_UNIT, Q_UNIT);
                const uint64_t k_hi = planes_matrix(t.keys + 2 * d * UNIT + half * (UNIT / 2), UNIT);
                const uint64_t k_lo = planes_matrix(low + 2 * d * UNIT + half * (UNIT / 2), UNIT);
                planes_multiply(hh, q_hi, k_hi, d > 0);
                planes_multiply(xx, q_hi, k_lo, d > 0);
                planes_multiply(xx, q_lo, k_hi, 1);
            }
            planes_products_sent();
            planes_products_end<32>(hh, xx);
            MO_UNROLL()
            for (int n = 0; n < T::SCORES / 2; n++) {
                planes_score<D>(t, half * (T::SCORES / 2) + n, hh + 4 * n, xx + 4 * n,
                                s[half * (T::SCORES / 2) + n]);
            }
        }
        return;
    }
#endif
    const int lane = threadIdx.x & 31;
    MO_UNROLL()
    for (int n = 0; n < T::SCORES; n++) {
        int32_t hh[4] = {0}, xx[4] = {0};
        MO_UNROLL()
        for (int d = 0; d < T::STEPS / 2; d++) {
            const int at = (4 * d + lane / 8) * UNIT + 16 * (8 * n + lane % 8);
            uint32_t hi[4], lo[4];
            mo_load_matrices(hi, t.keys + at);
            mo_load_matrices(lo, low + at);
            planes_step(hh, xx, query.hi[2 * d], query.lo[2 * d], hi, lo);
            planes_step(hh, xx, query.hi[2 * d + 1], query.lo[2 * d + 1], hi + 2, lo + 2);
        }
        if (T::UNITS % 4 > 0) { /* one or two units are left; what stands for the third is multiplied by 0 */
            const int unit = T::UNITS / 4 * 4 + (T::UNITS % 4 > 1 ? lane / 8 % 2 : 0);
            uint32_t both[4];
            mo_load_matrices(both, (lane < 16 ? t.keys : low) + unit * UNIT + 16 * (8 * n + lane % 8));
            planes_step(hh, xx, query.hi[T::UNITS / 4 * 2], query.lo[T::UNITS / 4 * 2], both, both + 2);
        }
        planes_score<D>(t, n, hh, xx, s[n]);
    }
}

/* Positions that a row does not see. */
template <int D>
static __device__ __forceinline__ void planes_mask(const planes_pair &pair, int64_t begin, float (*s)[4])
{
    const int q = threadIdx.x & 3;
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        const int from = (int)max((int64_t)0, min(pair.first[i] - begin, (int64_t)MO_KV_BLOCK));
        const int to = (int)max((int64_t)0, min(pair.end[i] - begin, (int64_t)MO_KV_BLOCK));
        MO_UNROLL()
        for (int n = 0; n < planes_tile<D>::SCORES; n++) {
            MO_UNROLL()
            for (int b = 0; b < 2; b++) {
                const int u = 8 * n + 2 * q + b;
                s[n][2 * i + b] = u >= from && u < to ? s[n][2 * i + b] : -INFINITY;
            }
        }
    }
}

/* Scores of row i become w; the row joins: gives what its sums are multiplied by and what they join. */
template <int D, bool MASKED>
static __device__ __forceinline__ void planes_weights(const planes_tile<D> &t, planes_pair *pair, int i,
                                                      float (*s)[4], float *most, float *a, float *b)
{
    typedef planes_tile<D> T;
    const int q = threadIdx.x & 3;
    const mo_planes_query query = pair->query[i];
    float top = -INFINITY, w_most = 0.0f;
    uint32_t share = 0;
    MO_UNROLL()
    for (int n = 0; n < T::SCORES; n++) {
        top = fmaxf(top, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
    }
    top = planes_row_max(top) + 0.0f;
    MO_UNROLL()
    for (int n = 0; n < T::SCORES; n++) {
        const float2 scale = *(const float2 *)(t.value_scales + 8 * n + 2 * q);
        MO_UNROLL()
        for (int k = 0; k < 2; k++) {
            float &x = s[n][2 * i + k];
            const bool seen = !MASKED || x != -INFINITY;
            const float p = seen ? mo_share(x - top, query.e, query.least) : 0.0f;
            share += mo_planes_count(p);
            x = seen ? p * (k ? scale.y : scale.x) : 0.0f;
            w_most = fmaxf(w_most, x);
        }
    }
    share += __shfl_xor_sync(MO_FULL, share, 1);
    share += __shfl_xor_sync(MO_FULL, share, 2);
    w_most = planes_row_max(w_most);
    *most = w_most;
    if (MASKED && top == -INFINITY) { /* -0 * 0 added to anything leaves it as it is */
        *a = 1.0f;
        *b = -0.0f;
        return;
    }
    const mo_join join = mo_join_of(pair->M[i], query.g * top);
    const float l = (float)(int32_t)(share - MO_KV_BLOCK * 0x4B000000u) * MO_SHARE_BACK;
    pair->L[i] = mo_joined(join, pair->L[i], l);
    pair->M[i] = join.top;
    *a = join.a;
    *b = join.b * mo_planes_back(w_most);
}

/* w of both rows as operands: steps of 32 positions. */
template <int D>
static __device__ __forceinline__ void planes_pack(const planes_tile<D> &t, const float (*s)[4],
                                                   const float *most, uint32_t (*hi)[4], uint32_t (*lo)[4])
{
    const float *cuts = t.cuts + 2 * (threadIdx.x & 3);
    const float inverse[2] = {mo_planes_inverse(most[0]), mo_planes_inverse(most[1])};
    MO_UNROLL()
    for (int d = 0; d < MO_KV_BLOCK / 32; d++) {
        MO_UNROLL()
        for (int e = 0; e < 4; e++) { /* row g or g + 8, unit 2 d or 2 d + 1 */
            const float *x = &s[4 * d + e / 2 * 2][e % 2 * 2], *y = &s[4 * d + e / 2 * 2 + 1][e % 2 * 2];
            const float *cut = cuts + e / 2 * 16, by = inverse[e % 2];
            mo_planes_pack(mo_bits_of(fmaf(x[0], by, cut[0])), mo_bits_of(fmaf(x[1], by, cut[1])),
                           mo_bits_of(fmaf(y[0], by, cut[8])), mo_bits_of(fmaf(y[1], by, cut[9])), &hi[d][e],
                           &lo[d][e]);
        }
    }
}

/* One tile of channels joins. */
static __device__ __forceinline__ void planes_add(const int32_t *hh, const int32_t *xx, const float *b,
                                                  float *O)
{
    O[0] = fmaf(b[0], mo_planes_sum(hh[0], xx[0]), O[0]);
    O[1] = fmaf(b[0], mo_planes_sum(hh[1], xx[1]), O[1]);
    O[2] = fmaf(b[1], mo_planes_sum(hh[2], xx[2]), O[2]);
    O[3] = fmaf(b[1], mo_planes_sum(hh[3], xx[3]), O[3]);
}

template <int D>
static __device__ __forceinline__ void planes_values(const planes_tile<D> &t, const uint32_t (*hi)[4],
                                                     const uint32_t (*lo)[4], const float *b, float (*O)[4])
{
    typedef planes_tile<D> T;
    enum { UNIT = 16 * D, STEPS = MO_KV_BLOCK / 32 };
    const uint8_t *low = t.values + 2 * STEPS * UNIT;
#if MO_PLANES_GROUP
    if constexpr (T::GROUP) {
        MO_UNROLL()
        for (int part = 0; part < D / 64; part++) {
            int32_t hh[32], xx[32];
            planes_products_begin();
            MO_UNROLL()
            for (int d = 0; d < STEPS; d++) {
                const uint64_t v_hi = planes_matrix(t.values + 2 * d * UNIT + part * 1024, UNIT);
                const uint64_t v_lo = planes_matrix(low + 2 * d * UNIT + part * 1024, UNIT);
                planes_multiply(hh, hi[d], v_hi, d > 0);
                planes_multiply(xx, hi[d], v_lo, d > 0);
                planes_multiply(xx, lo[d], v_hi, 1);
            }
            planes_products_sent();
            planes_products_end<32>(hh, xx);
            MO_UNROLL()
            for (int n = 0; n < 8; n++) {
                planes_add(hh + 4 * n, xx + 4 * n, b, O[8 * part + n]);
            }
        }
        return;
    }
#endif
    const int lane = threadIdx.x & 31;
    MO_UNROLL()
    for (int n = 0; n < T::OUTS; n++) {
        int32_t hh[4] = {0}, xx[4] = {0};
        MO_UNROLL()
        for (int d = 0; d < STEPS / 2; d++) {
            const int at = (4 * d + lane / 8) * UNIT + 16 * (8 * n + lane % 8);
            uint32_t v_hi[4], v_lo[4];
            mo_load_matrices(v_hi, t.values + at);
            mo_load_matrices(v_lo, low + at);
            planes_step(hh, xx, hi[2 * d], lo[2 * d], v_hi, v_lo);
            planes_step(hh, xx, hi[2 * d + 1], lo[2 * d + 1], v_hi + 2, v_lo + 2);
        }
        planes_add(hh, xx, b, O[n]);
    }
}

/* ---- A tile ----------------------------------------------------------------------------------- */

/* Tokens [first, last] of the tile, which follow each other in one session. */
template <int D>
static __device__ __forceinline__ void planes_session(const mo_op_attend &op, planes_tile<D> &t,
                                                      planes_pair *pair, const planes_operand<D> &query,
                                                      int first, int last, float (*O)[4])
{
    typedef planes_tile<D> T;
    const mo_dplace *places = mo_at<const mo_dplace>(op.places) + t.rows.token;
    const mo_dstate state = mo_at<const mo_dstate>(places[first].layers)[op.layer];
    const int64_t p0 = places[first].position;
    const int64_t p1 = p0 + last - first + mo_seen_ahead(op.window, places[last]); /* the last seen */
    int64_t lowest = p1 + 1, highest = -1, fewest = p1 + 1, latest = 0;            /* of the warp's rows */
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        const int token = pair->token[i];
        const bool here = token >= first && token <= last;
        const int64_t position = p0 + token - first;
        pair->end[i] = here ? position + 1 + mo_seen_ahead(op.window, places[token]) : 0;
        pair->first[i] = here ? mo_first_seen(op.window, position) : 0;
    }
    {
        const int row0 = threadIdx.x / 32 * 16, end = min(row0 + 16, t.rows.count) - 1;
        const int from = max(first, row0 / t.rows.group), to = min(last, end / t.rows.group);
        if (row0 <= end && from <= to) {
            fewest = p0 + from - first + mo_seen_ahead(op.window, places[from]);
            highest = p0 + to - first + mo_seen_ahead(op.window, places[to]);
            lowest = mo_first_seen(op.window, p0 + from - first);
            latest = mo_first_seen(op.window, p0 + to - first);
        }
    }
    const bool all = highest >= 0 && pair->token[0] >= 0 && pair->token[1] >= 0;
    const bool full = __all_sync(MO_FULL, all && pair->end[0] > 0 && pair->end[1] > 0);
    const int64_t start = mo_first_seen(op.window, p0) / MO_KV_BLOCK * MO_KV_BLOCK;
    planes_bring_keys<D>(t, mo_planes_block(op, state, t.rows.kv_head, start));
    for (int64_t begin = start; begin <= p1; begin += MO_KV_BLOCK) {
        /* By some row of the warp; a group works together. */
        const bool seen = T::GROUP || (highest >= begin && lowest < begin + MO_KV_BLOCK);
        float s[T::SCORES][4], most[2], a[2], b[2];
        planes_arrive<0>();
        __syncthreads(); /* all threads are done with the previous values */
        planes_bring_values<D>(t, mo_planes_block(op, state, t.rows.kv_head, begin));
        planes_pass(&t.key_gate);
        if (seen) {
            planes_scores<D>(t, query, s);
        }
        planes_arrive<0>();
        __syncthreads(); /* all threads are done with the keys */
        if (begin + MO_KV_BLOCK <= p1) {
            planes_bring_keys<D>(t, mo_planes_block(op, state, t.rows.kv_head, begin + MO_KV_BLOCK));
        }
        planes_pass(&t.value_gate);
        if (!seen) {
            continue;
        }
        if (full && latest <= begin && fewest >= begin + MO_KV_BLOCK - 1) {
            planes_weights<D, false>(t, pair, 0, s, &most[0], &a[0], &b[0]);
            planes_weights<D, false>(t, pair, 1, s, &most[1], &a[1], &b[1]);
        } else {
            planes_mask<D>(*pair, begin, s);
            planes_weights<D, true>(t, pair, 0, s, &most[0], &a[0], &b[0]);
            planes_weights<D, true>(t, pair, 1, s, &most[1], &a[1], &b[1]);
        }
        uint32_t hi[MO_KV_BLOCK / 32][4], lo[MO_KV_BLOCK / 32][4];
        planes_pack<D>(t, s, most, hi, lo);
        if (!__all_sync(MO_FULL, a[0] == 1.0f && a[1] == 1.0f)) {
            MO_UNROLL()
            for (int n = 0; n < T::OUTS; n++) {
                O[n][0] = a[0] * O[n][0];
                O[n][1] = a[0] * O[n][1];
                O[n][2] = a[1] * O[n][2];
                O[n][3] = a[1] * O[n][3];
            }
        }
        planes_values<D>(t, hi, lo, b, O);
    }
    __syncthreads(); /* before the next run brings its keys */
}

template <int D>
static __device__ __forceinline__ void planes_finish(const mo_op_attend &op, const planes_tile<D> &t,
                                                     const planes_pair &pair, int row, int i, float (*O)[4])
{
    typedef planes_tile<D> T;
    const int q = threadIdx.x & 3;
    const bool here = row < t.rows.count;
    const int64_t token = t.rows.token + row / t.rows.group;
    const int head = planes_row_head(t.rows, row);
    float L = pair.L[i];
    if (op.sinks) {
        const mo_join join = mo_join_of(pair.M[i], mo_at<const float>(op.sinks)[here ? head : 0]);
        L = mo_joined(join, L, 1.0f);
        MO_UNROLL()
        for (int n = 0; n < T::OUTS; n++) {
            O[n][2 * i] = mo_joined(join, O[n][2 * i], 0.0f);
            O[n][2 * i + 1] = mo_joined(join, O[n][2 * i + 1], 0.0f);
        }
    }
    MO_UNROLL()
    for (int n = 0; n < T::OUTS; n++) {
        O[n][2 * i] = O[n][2 * i] / L;
        O[n][2 * i + 1] = O[n][2 * i + 1] / L;
    }
    planes_butterflies<D>(O, i);
    planes_flip<D>(O, i);
    if (!here) {
        return;
    }
    const float *gate = planes_query(op, t.rows, row) + D;
    float *out = mo_at<float>(op.mixed.x) + token * op.mixed.cols + head * D;
    MO_UNROLL()
    for (int n = 0; n < T::OUTS; n++) {
        const int j = 8 * n + 2 * q;
        float2 v = make_float2(O[n][2 * i], O[n][2 * i + 1]);
        if (op.gated) {
            v.x = v.x * mo_sigmoid(gate[j]);
            v.y = v.y * mo_sigmoid(gate[j + 1]);
        }
        *(float2 *)(out + j) = v;
    }
}

/* A tile of queries from beginning to end. */
template <int D> static __device__ __forceinline__ void planes_attend(const mo_op_attend &op, uint8_t *space)
{
    typedef planes_tile<D> T;
    const mo_planes_tile_scratch lay = mo_planes_tile_lay(D, T::GROUP);
    T t;
    t.keys = space + lay.keys;
    t.values = space + lay.values;
    t.key_scales = (float *)(space + lay.scales);
    t.value_scales = t.key_scales + MO_KV_BLOCK;
    t.cuts = (float *)(space + lay.cuts);
    t.q = space + lay.q;
    t.key_gate = planes_gate_at((uint64_t *)(space + lay.gates));
    t.value_gate = planes_gate_at((uint64_t *)(space + lay.gates) + 1);
    t.rows = planes_rows_of(op);
    if (threadIdx.x < 32) {
        t.cuts[threadIdx.x] = mo_planes_cut(threadIdx.x);
    }
    const int row = threadIdx.x / 32 * 16 + (threadIdx.x & 31) / 4;
    planes_pair pair;
    planes_operand<D> query;
    planes_clear_low(op, t.keys, MO_KV_BLOCK * D);
    planes_clear_low(op, t.values, MO_KV_BLOCK * D);
    __syncthreads(); /* before bytes are sent through the gates */
    planes_take_queries<D>(op, t, &pair, &query);
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        pair.token[i] = row + 8 * i < t.rows.count ? (row + 8 * i) / t.rows.group : -1;
        pair.M[i] = -INFINITY;
        pair.L[i] = 0.0f;
    }
    float O[T::OUTS][4];
    MO_UNROLL()
    for (int n = 0; n < T::OUTS; n++) {
        O[n][0] = O[n][1] = O[n][2] = O[n][3] = 0.0f;
    }
    for (int first = 0, last; first < t.rows.tokens; first = last + 1) {
        last = planes_run_end(op, t.rows, first);
        planes_session<D>(op, t, &pair, query, first, last, O);
    }
    planes_finish<D>(op, t, pair, row, 0, O);
    planes_finish<D>(op, t, pair, row + 8, 1, O);
}

#endif
