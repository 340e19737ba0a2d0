/* Planes, many queries with long heads: as planes_tile.cuh, but a row's sums have no place in the registers of one warp. Several groups
 * of four warps share the 64 rows of a tile: each makes the scores of its part of a chunk's positions, then, with the weights of all,
 * the sums of 128 channels. Keys and values share a buffer if there is no space for both. */
#ifndef MO_DEVICE_CUDA_PLANES_WIDE_CUH
#define MO_DEVICE_CUDA_PLANES_WIDE_CUH

#include "device/cuda/planes_group.cuh"
#include "device/cuda/planes_rows.cuh"

template <int D> struct planes_wide {
    static constexpr bool GROUP = MO_PLANES_GROUP; /* four warps multiply together */
    static constexpr bool APART = D <= 256;        /* keys and values have a buffer each */
    static constexpr int GROUPS = D / MO_PLANES_WIDE_PART, THREADS = 128 * GROUPS;
    static constexpr int UNITS = D / 16, STEPS = D / 32;
    static constexpr int POSITIONS = MO_KV_BLOCK / GROUPS; /* of a group's scores */
    static constexpr int SCORES = POSITIONS / 8;           /* tiles of them */
    static constexpr int OUTS = MO_PLANES_WIDE_PART / 8;   /* tiles of channels */
    static constexpr int ROWS = MO_PLANES_TILE_ROWS, ROW_UNIT = 16 * ROWS;
    static constexpr int LOW_WEIGHTS =
        MO_KV_BLOCK / 16 * ROW_UNIT; /* bytes from the high plane to the low one */
    uint8_t *keys, *values;
    uint8_t *q, *weights; /* [plane][unit][64 rows][16] */
    float *key_scales, *value_scales;
    float *s, *M, *L;    /* [64] */
    float *tops, *mosts; /* [GROUPS][64] */
    float *cuts;         /* of 32 positions */
    uint32_t *counts;    /* [GROUPS][64] */
    planes_rows rows;
    planes_gate key_gate, value_gate;
};

/* ---- Queries: a warp for a row ---------------------------------------------------------------- */

template <int D>
static __device__ __forceinline__ void wide_code_queries(const mo_op_attend &op, const planes_wide<D> &t)
{
    typedef planes_wide<D> T;
    MO_UNROLL(2)
    for (int row = threadIdx.x / 32; row < T::ROWS; row += T::THREADS / 32) {
        const float *x = row < t.rows.count ? planes_query(op, t.rows, row) : NULL;
        const float s = mo_planes_code_query<D>(x, t.q + 16 * row, T::ROW_UNIT, T::UNITS * T::ROW_UNIT);
        if ((threadIdx.x & 31) == 0) {
            t.s[row] = s;
        }
    }
}

/* ---- A chunk ---------------------------------------------------------------------------------- */

/* Sums of the group's rows with COLUMNS rows of units at b, 32 of them at a time where the group multiplies: hh and xx have four numbers for
 * each eight columns. a: units of all 64 rows. The low planes are a_low and b_low bytes further. */
template <int STEPS, int COLUMNS>
static __device__ __forceinline__ void wide_products(int32_t *hh, int32_t *xx, const uint8_t *a, int a_low,
                                                     const uint8_t *b, int b_unit, int b_low)
{
    enum { A_UNIT = 16 * MO_PLANES_TILE_ROWS };
#if MO_PLANES_GROUP
    static_assert(COLUMNS == 32, "the group's products");
    planes_products_begin();
    MO_UNROLL()
    for (int d = 0; d < STEPS; d++) {
        const uint64_t a_hi = planes_matrix(a + 2 * d * A_UNIT, A_UNIT);
        const uint64_t a_lo = planes_matrix(a + a_low + 2 * d * A_UNIT, A_UNIT);
        const uint64_t b_hi = planes_matrix(b + 2 * d * b_unit, b_unit);
        const uint64_t b_lo = planes_matrix(b + b_low + 2 * d * b_unit, b_unit);
        planes_multiply_32(hh, a_hi, b_hi, d > 0);
        planes_multiply_32(xx, a_hi, b_lo, d > 0);
        planes_multiply_32(xx, a_lo, b_hi, 1);
    }
    planes_products_sent();
    planes_products_end<16>(hh, xx);
#else
    const int row = threadIdx.x / 32 % 4 * 16;
    MO_UNROLL()
    for (int i = 0; i < COLUMNS / 2; i++) {
        hh[i] = xx[i] = 0;
    }
    MO_UNROLL(2)
    for (int d = 0; d < STEPS; d++) {
        uint32_t hi[4], lo[4];
        planes_rows_operand(hi, a + 2 * d * A_UNIT, A_UNIT, row);
        planes_rows_operand(lo, a + a_low + 2 * d * A_UNIT, A_UNIT, row);
        MO_UNROLL()
        for (int n = 0; n < COLUMNS / 8; n++) {
            uint32_t both[4]; /* high plane: two units, then the low one */
            planes_columns_operand(both, b + 2 * d * b_unit, b_unit, b_low, 8 * n);
            planes_step(hh + 4 * n, xx + 4 * n, hi, lo, both, both + 2);
        }
    }
#endif
}

template <int D>
static __device__ __forceinline__ void wide_scores(const planes_wide<D> &t, int part, float (*s)[4])
{
    typedef planes_wide<D> T;
    enum { UNIT = 16 * MO_KV_BLOCK };
    MO_UNROLL()
    for (int piece = 0; piece < T::POSITIONS / 32; piece++) {
        const int first = part * T::POSITIONS + 32 * piece;
        int32_t hh[16], xx[16];
        wide_products<T::STEPS, 32>(hh, xx, t.q, T::UNITS * T::ROW_UNIT, t.keys + 16 * first, UNIT,
                                    T::UNITS * UNIT);
        MO_UNROLL()
        for (int n = 0; n < 4; n++) {
            const float2 scale = *(const float2 *)(t.key_scales + first + 8 * n + 2 * (threadIdx.x & 3));
            MO_UNROLL()
            for (int e = 0; e < 4; e++) {
                s[4 * piece + n][e] =
                    (e % 2 ? scale.y : scale.x) * mo_planes_sum(hh[4 * n + e], xx[4 * n + e]);
            }
        }
    }
}

/* What a row sees of the chunk, as positions of it. */
struct wide_view {
    int from, to;
};

/* How a chunk joins the thread's two rows: what their sums are multiplied by, what those of the chunk are, and M and L after it. M is -INFINITY
 * where a row sees nothing of the chunk. */
struct wide_joined {
    float a[2], b[2], M[2], L[2];
};

template <int D>
static __device__ __forceinline__ mo_planes_query wide_query(const mo_op_attend &op, const planes_wide<D> &t,
                                                             int row)
{
    return mo_planes_query_of(t.s[row], op.scale);
}

/* The thread's rows, row and row + 8: what is highest of them, of what their weights are made of, and how many they are. */
struct wide_rows {
    float top[2], most[2];
    uint32_t count[2];
};

/* Scores that a row does not see become -INFINITY; the highest of the group's are told to the others. */
template <bool MASKED, typename T>
static __device__ __forceinline__ void wide_tops(const T &t, int part, int row, const wide_view *views,
                                                 float (*s)[4], wide_rows &w)
{
    const int q = threadIdx.x & 3;
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        w.top[i] = -INFINITY;
        MO_UNROLL()
        for (int n = 0; n < T::SCORES; n++) {
            MO_UNROLL()
            for (int k = 0; k < 2; k++) {
                const int u = part * T::POSITIONS + 8 * n + 2 * q + k;
                float &x = s[n][2 * i + k];
                x = !MASKED || (u >= views[i].from && u < views[i].to) ? x : -INFINITY;
                w.top[i] = fmaxf(w.top[i], x);
            }
        }
        w.top[i] = planes_row_max(w.top[i]);
        if (q == 0) {
            t.tops[part * T::ROWS + row + 8 * i] = w.top[i];
        }
    }
}

/* Scores become shares times the values' scales; the largest of the group's and their count are told to the others. */
template <bool MASKED, typename T>
static __device__ __forceinline__ void wide_shares(const mo_op_attend &op, const T &t, int part, int row,
                                                   float (*s)[4], wide_rows &w)
{
    const int q = threadIdx.x & 3;
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        const mo_planes_query query = wide_query(op, t, row + 8 * i);
        w.top[i] = -INFINITY;
        MO_UNROLL()
        for (int p = 0; p < T::GROUPS; p++) {
            w.top[i] = fmaxf(w.top[i], t.tops[p * T::ROWS + row + 8 * i]);
        }
        w.top[i] = w.top[i] + 0.0f;
        w.most[i] = 0.0f;
        w.count[i] = 0;
        MO_UNROLL()
        for (int n = 0; n < T::SCORES; n++) {
            const float2 scale = *(const float2 *)(t.value_scales + part * T::POSITIONS + 8 * n + 2 * q);
            MO_UNROLL()
            for (int k = 0; k < 2; k++) {
                float &x = s[n][2 * i + k];
                const bool seen = !MASKED || x != -INFINITY;
                const float p = seen ? mo_share(x - w.top[i], query.e, query.least) : 0.0f;
                w.count[i] += mo_planes_count(p);
                x = seen ? p * (k ? scale.y : scale.x) : 0.0f;
                w.most[i] = fmaxf(w.most[i], x);
            }
        }
        w.most[i] = planes_row_max(w.most[i]);
        w.count[i] += __shfl_xor_sync(MO_FULL, w.count[i], 1);
        w.count[i] += __shfl_xor_sync(MO_FULL, w.count[i], 2);
        if (q == 0) {
            t.mosts[part * T::ROWS + row + 8 * i] = w.most[i];
            t.counts[part * T::ROWS + row + 8 * i] = w.count[i];
        }
    }
}

/* Writes the weights of row r, the thread's row i, as codes. */
template <typename T>
static __device__ __forceinline__ void wide_codes(const T &t, int part, int r, int i, const float (*s)[4],
                                                  float inverse)
{
    const int q = threadIdx.x & 3;
    MO_UNROLL()
    for (int n = 0; n < T::SCORES; n += 2) {
        const int u = part * T::POSITIONS + 8 * n;
        const float *x = &s[n][2 * i], *y = &s[n + 1][2 * i];
        const float *cut = t.cuts + n % 4 * 8 + 2 * q;
        uint32_t hi, lo;
        mo_planes_pack(mo_bits_of(fmaf(x[0], inverse, cut[0])), mo_bits_of(fmaf(x[1], inverse, cut[1])),
                       mo_bits_of(fmaf(y[0], inverse, cut[8])), mo_bits_of(fmaf(y[1], inverse, cut[9])), &hi,
                       &lo);
        uint8_t *out = t.weights + u / 16 * T::ROW_UNIT + 16 * r + 4 * q;
        *(uint32_t *)out = hi;
        *(uint32_t *)(out + T::LOW_WEIGHTS) = lo;
    }
}

/* Weights of the thread's rows from the group's scores; all groups tell each other what the others need. wide_keep() follows. MASKED:
 * some row may not see some position. */
template <bool MASKED, typename T>
static __device__ __forceinline__ wide_joined wide_weights(const mo_op_attend &op, const T &t, int part,
                                                           int row, const wide_view *views, float (*s)[4])
{
    wide_joined joined;
    wide_rows w;
    wide_tops<MASKED>(t, part, row, views, s, w);
    __syncthreads();
    wide_shares<MASKED>(op, t, part, row, s, w);
    __syncthreads();
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        const int r = row + 8 * i;
        uint32_t all = 0;
        MO_UNROLL()
        for (int p = 0; p < T::GROUPS; p++) {
            w.most[i] = fmaxf(w.most[i], t.mosts[p * T::ROWS + r]);
            all += t.counts[p * T::ROWS + r];
        }
        wide_codes(t, part, r, i, s, mo_planes_inverse(w.most[i]));
        joined.a[i] = 1.0f; /* a row that sees nothing: -0 * 0 added to anything leaves it as it is */
        joined.b[i] = -0.0f;
        joined.M[i] = w.top[i];
        if (w.top[i] != -INFINITY) {
            const mo_join join = mo_join_of(t.M[r], wide_query(op, t, r).g * w.top[i]);
            const float l = (float)(int32_t)(all - MO_KV_BLOCK * 0x4B000000u) * MO_SHARE_BACK;
            joined.a[i] = join.a;
            joined.b[i] = join.b * mo_planes_back(w.most[i]);
            joined.M[i] = join.top;
            joined.L[i] = mo_joined(join, t.L[r], l);
        }
    }
    return joined;
}

template <typename T>
static __device__ __forceinline__ void wide_keep(const T &t, int part, int row, const wide_joined &joined)
{
    planes_show();
    __syncthreads(); /* weights are ready; all threads have read M and L */
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        if (part == 0 && (threadIdx.x & 3) == 0 && joined.M[i] != -INFINITY) {
            t.M[row + 8 * i] = joined.M[i];
            t.L[row + 8 * i] = joined.L[i];
        }
    }
}

template <int D>
static __device__ __forceinline__ void wide_values(const planes_wide<D> &t, int part, const float *a,
                                                   const float *b, float (*O)[4])
{
    typedef planes_wide<D> T;
    enum { UNIT = 16 * D };
    MO_UNROLL()
    for (int piece = 0; piece < MO_PLANES_WIDE_PART / 32; piece++) {
        int32_t hh[16], xx[16];
        wide_products<MO_KV_BLOCK / 32, 32>(hh, xx, t.weights, T::LOW_WEIGHTS,
                                            t.values + 16 * (part * MO_PLANES_WIDE_PART + 32 * piece), UNIT,
                                            MO_KV_BLOCK / 16 * UNIT);
        MO_UNROLL()
        for (int n = 0; n < 4; n++) {
            MO_UNROLL()
            for (int e = 0; e < 4; e++) {
                float &o = O[4 * piece + n][e];
                o = fmaf(b[e / 2], mo_planes_sum(hh[4 * n + e], xx[4 * n + e]), a[e / 2] * o);
            }
        }
    }
}

/* ---- A tile ----------------------------------------------------------------------------------- */

template <int D>
static __device__ __forceinline__ void wide_bring(const planes_wide<D> &t, const mo_planes_span &span,
                                                  bool values)
{
    planes_bring(values ? t.value_gate : t.key_gate, values ? t.values : t.keys,
                 values ? span.values : span.keys, span.planes * MO_KV_BLOCK * D,
                 values ? t.value_scales : t.key_scales, values ? span.value_scales : span.key_scales,
                 4 * MO_KV_BLOCK);
}

/* Tokens [first, last] of the tile, which follow each other in one session. */
template <int D>
static __device__ __forceinline__ void wide_session(const mo_op_attend &op, planes_wide<D> &t, int first,
                                                    int last, float (*O)[4])
{
    typedef planes_wide<D> T;
    const mo_dplace *places = mo_at<const mo_dplace>(op.places) + t.rows.token;
    const mo_dstate state = mo_at<const mo_dstate>(places[first].layers)[op.layer];
    const int64_t p0 = places[first].position;
    const int64_t p1 = p0 + last - first + mo_seen_ahead(op.window, places[last]); /* the last seen */
    const int part = threadIdx.x / 128, row = threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4;
    const int64_t start = mo_first_seen(op.window, p0) / MO_KV_BLOCK * MO_KV_BLOCK;
    wide_bring<D>(t, mo_planes_block(op, state, t.rows.kv_head, start), false);
    for (int64_t begin = start; begin <= p1; begin += MO_KV_BLOCK) {
        const mo_planes_span span = mo_planes_block(op, state, t.rows.kv_head, begin);
        float s[T::SCORES][4];
        wide_view views[2];
        MO_UNROLL()
        for (int i = 0; i < 2; i++) {
            const int token = (row + 8 * i) / t.rows.group;
            const bool here = token >= first && token <= last && row + 8 * i < t.rows.count;
            const int64_t position = p0 + token - first;
            views[i].from = (int)max(mo_first_seen(op.window, position) - begin, (int64_t)0);
            const int64_t ahead = here ? mo_seen_ahead(op.window, places[token]) : 0;
            views[i].to = here ? (int)min(position + 1 + ahead - begin, (int64_t)MO_KV_BLOCK) : 0;
        }
        planes_arrive<0>();
        __syncthreads(); /* all threads are done with the previous values */
        if (T::APART) {
            wide_bring<D>(t, span, true);
        }
        planes_pass(&t.key_gate);
        wide_scores<D>(t, part, s);
        if (!T::APART) {
            __syncthreads();
            wide_bring<D>(t, span, true);
        }
        planes_arrive<0>();
        __syncthreads(); /* all threads are done with the keys */
        if (T::APART && begin + MO_KV_BLOCK <= p1) {
            wide_bring<D>(t, mo_planes_block(op, state, t.rows.kv_head, begin + MO_KV_BLOCK), false);
        }
        planes_pass(&t.value_gate);
        const wide_joined joined = wide_weights<true>(op, t, part, row, views, s);
        wide_keep(t, part, row, joined);
        wide_values<D>(t, part, joined.a, joined.b, O);
        if (!T::APART && begin + MO_KV_BLOCK <= p1) {
            __syncthreads();
            wide_bring<D>(t, mo_planes_block(op, state, t.rows.kv_head, begin + MO_KV_BLOCK), false);
        }
    }
    __syncthreads(); /* before the next run brings its keys */
}

/* A tile of queries from beginning to end. */
template <int D> static __device__ __forceinline__ void wide_attend(const mo_op_attend &op, uint8_t *space)
{
    typedef planes_wide<D> T;
    const mo_planes_wide_scratch lay = mo_planes_wide_lay(D);
    T t;
    t.keys = space + lay.keys;
    t.values = space + lay.values;
    t.q = space + lay.q;
    t.weights = space + lay.weights;
    t.key_scales = (float *)(space + lay.scales);
    t.value_scales = t.key_scales + MO_KV_BLOCK;
    t.s = (float *)(space + lay.state);
    t.M = t.s + T::ROWS;
    t.L = t.M + T::ROWS;
    t.tops = t.L + T::ROWS;
    t.mosts = t.tops + T::GROUPS * T::ROWS;
    t.counts = (uint32_t *)(t.mosts + T::GROUPS * T::ROWS);
    t.cuts = (float *)(t.counts + T::GROUPS * T::ROWS);
    t.key_gate = planes_gate_at((uint64_t *)(space + lay.gates));
    t.value_gate = planes_gate_at((uint64_t *)(space + lay.gates) + 1);
    t.rows = planes_rows_of(op);
    if ((int)threadIdx.x < T::ROWS) {
        t.M[threadIdx.x] = -INFINITY;
        t.L[threadIdx.x] = 0.0f;
    }
    if (threadIdx.x < 32) {
        t.cuts[threadIdx.x] = mo_planes_cut(threadIdx.x);
    }
    planes_clear_low(op, t.keys, MO_KV_BLOCK * D);
    planes_clear_low(op, t.values, MO_KV_BLOCK * D);
    wide_code_queries<D>(op, t);
    planes_show();
    __syncthreads(); /* and before bytes are sent through the gates */
    float O[T::OUTS][4];
    MO_UNROLL()
    for (int n = 0; n < T::OUTS; n++) {
        O[n][0] = O[n][1] = O[n][2] = O[n][3] = 0.0f;
    }
    for (int first = 0, last; first < t.rows.tokens; first = last + 1) {
        last = planes_run_end(op, t.rows, first);
        wide_session<D>(op, t, first, last, O);
    }
    /* The sums go through the buffer of keys and values; a warp finishes a row. */
    float *sums = (float *)(space + lay.keys);
    const int row = threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4;
    const int at = threadIdx.x / 128 * MO_PLANES_WIDE_PART + 2 * (threadIdx.x & 3);
    MO_UNROLL()
    for (int n = 0; n < T::OUTS; n++) {
        *(float2 *)(sums + row * D + at + 8 * n) = make_float2(O[n][0], O[n][1]);
        *(float2 *)(sums + (row + 8) * D + at + 8 * n) = make_float2(O[n][2], O[n][3]);
    }
    __syncthreads();
    for (int r = threadIdx.x / 32; r < t.rows.count; r += T::THREADS / 32) {
        mo_planes_finish<D>(op, t.rows.token + r / t.rows.group, planes_row_head(t.rows, r), t.M[r], t.L[r],
                            sums + r * D);
    }
}

#endif
