/* Planes, many queries over latent rows: all heads of a token see the same rows, so the 64 rows of a tile are queries of neighbouring heads and
 * tokens. A chunk's rows stay in shared memory for both their parts, keys and values. Two groups of four warps make the scores of half of
 * the positions each, then, with the weights of all, the sums of every other 64 channels.
 *
 * Values are wanted channel by channel, 16 positions in a unit, and the cache has them position by position. So they are the left side
 * of their product, which comes from registers: loads that turn pairs of bytes, and a permutation of the bytes of two words, leave what a
 * lane multiplies, positions in the order of the weights' slots. Sums are therefore by channel: lane (g, q) has, of its warp's
 * 16 channels, 2 g and 2 g + 1, and of every eight rows 2 q and 2 q + 1.
 *
 * Weights are where the chunk's tails have been. As sums of 128 channels are done, the next chunk's come into their place. */
#ifndef MO_DEVICE_CUDA_PLANES_LATENT_CUH
#define MO_DEVICE_CUDA_PLANES_LATENT_CUH

#include "device/cuda/planes_latent.h"
#include "device/cuda/planes_wide.cuh"

struct planes_latent {
    static constexpr int VALUE = MO_PLANES_LATENT_VALUE, TAIL = MO_PLANES_LATENT_TAIL;
    static constexpr int GROUPS = 2, THREADS = MO_PLANES_LATENT_THREADS;
    static constexpr int UNITS = (VALUE + TAIL) / 16, VALUE_UNITS = VALUE / 16;
    static constexpr int POSITIONS = MO_KV_BLOCK / GROUPS; /* of a group's scores */
    static constexpr int SCORES = POSITIONS / 8;           /* tiles of them */
    static constexpr int ROWS = MO_PLANES_TILE_ROWS, ROW_UNIT = 16 * ROWS, UNIT = 16 * MO_KV_BLOCK;
    static constexpr int PLANE = UNITS * UNIT, ROW_PLANE = UNITS * ROW_UNIT;
    static constexpr int LOW_WEIGHTS = PLANE;
    static constexpr int PIECE_UNITS = 4 * GROUPS, PIECES = VALUE_UNITS / PIECE_UNITS;
    uint8_t *keys;    /* [plane][unit][128 positions][16] */
    uint8_t *q;       /* [plane][unit][64 rows][16] */
    uint8_t *weights; /* as q, over positions, each plane where that of the tails is */
    float *tail_scales, *value_scales;
    float *g, *g_tail, *M, *L, *a, *b; /* [64] */
    float *tops, *mosts;               /* [GROUPS][64] */
    uint32_t *counts;                  /* [GROUPS][64] */
    float *cuts;                       /* of 32 positions */
    uint64_t *gates; /* of the pieces, of the tails, and of the scales; each passes once for a chunk */
    int64_t first;   /* the first row among all queries, token after token; */
    int count;       /* and how many rows are queries */
};

static_assert(planes_latent::VALUE_UNITS % planes_latent::PIECE_UNITS == 0, "whole pieces");
static_assert(planes_latent::PIECES + 2 == MO_PLANES_LATENT_GATES, "a gate for each copy");
static_assert(planes_latent::TAIL == planes_latent::ROWS, "weights have the space of tails");

/* Scores of latent rows come with their factors. */
static __device__ __forceinline__ mo_planes_query wide_query(const mo_op_attend &op, const planes_latent &t,
                                                             int row)
{
    (void)op, (void)t, (void)row;
    return mo_planes_query_by(1.0f);
}

/* ---- Queries: a warp for a row ---------------------------------------------------------------- */

static __device__ __forceinline__ int64_t latent_token(const mo_op_attend &op, const planes_latent &t,
                                                       int row)
{
    return (t.first + row) / op.heads;
}
static __device__ __forceinline__ int latent_head(const mo_op_attend &op, const planes_latent &t, int row)
{
    return (int)((t.first + row) % op.heads);
}

static __device__ __forceinline__ void latent_code_queries(const mo_op_attend &op, const planes_latent &t)
{
    typedef planes_latent T;
    for (int row = threadIdx.x / 32; row < T::ROWS; row += T::THREADS / 32) {
        const float *x = row < t.count ? mo_at<const float>(op.q) + mo_query_row(op, latent_token(op, t, row),
                                                                                 latent_head(op, t, row)) *
                                                                        (T::VALUE + T::TAIL)
                                       : NULL;
        uint8_t *out = t.q + 16 * row;
        const float s = mo_planes_code_query<T::VALUE>(x, out, T::ROW_UNIT, T::ROW_PLANE);
        const float tail = mo_planes_code_query<T::TAIL>(
            x ? x + T::VALUE : NULL, out + T::VALUE_UNITS * T::ROW_UNIT, T::ROW_UNIT, T::ROW_PLANE);
        const bool fits = s <= MO_LATENT_SCALE && tail <= MO_LATENT_SCALE;
        if ((threadIdx.x & 31) == 0) {
            t.g[row] = fits ? (s * op.scale) * MO_CODE_BASE : NAN;
            t.g_tail[row] = fits ? (tail * op.scale) * MO_CODE_BASE : NAN;
        }
    }
}

/* ---- Rows on their way ------------------------------------------------------------------------ */

/* Piece i of a chunk's rows, 128 channels of both planes; number PIECES is the tails. A plane alone comes in two halves. */
static __device__ __forceinline__ void latent_bring(const planes_latent &t, const mo_planes_span &span, int i)
{
    typedef planes_latent T;
    const int at = i * T::PIECE_UNITS * T::UNIT,
              bytes = (i < T::PIECES ? T::PIECE_UNITS : T::UNITS - T::VALUE_UNITS) * T::UNIT;
    const int one = span.planes == 2 ? bytes : bytes / 2, other = span.planes == 2 ? T::PLANE : bytes / 2;
    planes_bring(planes_gate{t.gates + i, 0}, t.keys + at, span.keys + at, one, t.keys + at + other,
                 span.keys + at + other, one);
}

static __device__ __forceinline__ void latent_bring_scales(const planes_latent &t, const mo_planes_span &span)
{
    planes_bring(planes_gate{t.gates + planes_latent::PIECES + 1, 0}, t.tail_scales, span.key_scales,
                 4 * MO_KV_BLOCK, t.value_scales, span.value_scales, 4 * MO_KV_BLOCK);
}

static __device__ __forceinline__ void latent_pass(const planes_latent &t, int i, uint32_t phase)
{
    planes_gate gate = {t.gates + i, phase};
    planes_pass(&gate);
}

/* ---- A chunk ---------------------------------------------------------------------------------- */

/* Sums of the group's 64 rows and its 64 positions over STEPS steps of two units from `unit` on. A group sends the products of the high
 * planes as their pieces arrive, and when they are there and 256 times as much, the others: one set of sums instead of two. */
#if MO_PLANES_GROUP
template <int STEPS>
static __device__ __forceinline__ void latent_send_high(const planes_latent &t, int unit, int first,
                                                        uint32_t phase, int32_t *sums)
{
    typedef planes_latent T;
    const uint8_t *q = t.q + unit * T::ROW_UNIT, *keys = t.keys + unit * T::UNIT + 16 * first;
    MO_UNROLL()
    for (int d = 0; d < STEPS; d++) {
        if (2 * d % T::PIECE_UNITS == 0) {
            latent_pass(t, unit / T::PIECE_UNITS + 2 * d / T::PIECE_UNITS, phase);
            planes_products_begin();
        }
        planes_multiply(sums, planes_matrix(q + 2 * d * T::ROW_UNIT, T::ROW_UNIT),
                        planes_matrix(keys + 2 * d * T::UNIT, T::UNIT), d > 0);
    }
}

template <int STEPS>
static __device__ __forceinline__ void latent_send_low(const planes_latent &t, int unit, int first,
                                                       int32_t *sums)
{
    typedef planes_latent T;
    const uint8_t *q = t.q + unit * T::ROW_UNIT, *keys = t.keys + unit * T::UNIT + 16 * first;
    MO_UNROLL()
    for (int i = 0; i < 32; i++) {
        sums[i] *= 256;
    }
    planes_products_begin();
    MO_UNROLL()
    for (int d = 0; d < STEPS; d++) {
        const uint8_t *q_at = q + 2 * d * T::ROW_UNIT, *key_at = keys + 2 * d * T::UNIT;
        planes_multiply(sums, planes_matrix(q_at, T::ROW_UNIT), planes_matrix(key_at + T::PLANE, T::UNIT), 1);
        planes_multiply(sums, planes_matrix(q_at + T::ROW_PLANE, T::ROW_UNIT), planes_matrix(key_at, T::UNIT),
                        1);
    }
}
#else
template <int STEPS>
static __device__ __forceinline__ void latent_sums(const planes_latent &t, int unit, int first, int32_t *sums)
{
    typedef planes_latent T;
    MO_UNROLL()
    for (int half = 0; half < 2; half++) {
        int32_t hh[16], xx[16];
        wide_products<STEPS, 32>(hh, xx, t.q + unit * T::ROW_UNIT, T::ROW_PLANE,
                                 t.keys + unit * T::UNIT + 16 * (first + 32 * half), T::UNIT, T::PLANE);
        MO_UNROLL()
        for (int i = 0; i < 16; i++) {
            sums[16 * half + i] = 256 * hh[i] + xx[i];
        }
    }
}
#endif

/* What was sent last is there. */
static __device__ __forceinline__ void latent_wait(int32_t *sums)
{
#if MO_PLANES_GROUP
    planes_products_end<32>(sums);
#else
    (void)sums;
#endif
}

/* mo_latent_score() in two steps: of the value, then with the tail. */
static __device__ __forceinline__ void latent_scores(const planes_latent &t, int part, int row,
                                                     uint32_t phase, float (*s)[4])
{
    typedef planes_latent T;
    enum { VALUE_STEPS = T::VALUE_UNITS / 2, TAIL_STEPS = (T::UNITS - T::VALUE_UNITS) / 2 };
    const int first = part * T::POSITIONS, at = first + 2 * (threadIdx.x & 3);
    int32_t values[32], tails[32];
#if MO_PLANES_GROUP
    latent_send_high<VALUE_STEPS>(t, 0, first, phase, values);
    planes_products_sent();
    planes_products_end<32>(values);
    latent_send_low<VALUE_STEPS>(t, 0, first, values);
    latent_send_high<TAIL_STEPS>(t, T::VALUE_UNITS, first, phase, tails);
    planes_products_sent();
    planes_products_end<32>(values, tails);
    latent_send_low<TAIL_STEPS>(t, T::VALUE_UNITS, first, tails);
    planes_products_sent();
#else
    for (int i = 0; i <= T::PIECES; i++) {
        latent_pass(t, i, phase);
    }
    latent_sums<VALUE_STEPS>(t, 0, first, values);
    latent_sums<TAIL_STEPS>(t, T::VALUE_UNITS, first, tails);
#endif
    latent_pass(t, T::PIECES + 1, phase);
    MO_UNROLL()
    for (int n = 0; n < T::SCORES; n++) {
        const float2 scale = *(const float2 *)(t.value_scales + at + 8 * n);
        MO_UNROLL()
        for (int e = 0; e < 4; e++) {
            s[n][e] = t.g[row + e / 2 * 8] * ((e % 2 ? scale.y : scale.x) * (float)values[4 * n + e]);
        }
    }
    latent_wait(tails);
    MO_UNROLL()
    for (int n = 0; n < T::SCORES; n++) {
        const float2 scale = *(const float2 *)(t.tail_scales + at + 8 * n);
        MO_UNROLL()
        for (int e = 0; e < 4; e++) {
            s[n][e] = fmaf(t.g_tail[row + e / 2 * 8], (e % 2 ? scale.y : scale.x) * (float)tails[4 * n + e],
                           s[n][e]);
        }
    }
}

/* The warp's unit of channels of a chunk, as operands: units of positions as those of weights, rows g and g + 8 are channels 2 g and 2 g + 1. */
struct latent_operand {
    static constexpr int STEPS = MO_KV_BLOCK / 32;
    uint32_t a[STEPS][4];
};

static __device__ __forceinline__ void latent_take(latent_operand *to, const uint8_t *unit)
{
    MO_UNROLL()
    for (int d = 0; d < latent_operand::STEPS; d++) {
        uint32_t r[4];
        planes_load_turned(r, unit + 16 * (32 * d + (threadIdx.x & 31)));
        to->a[d][0] = __byte_perm(r[0], r[1], 0x6420);
        to->a[d][1] = __byte_perm(r[0], r[1], 0x7531);
        to->a[d][2] = __byte_perm(r[2], r[3], 0x6420);
        to->a[d][3] = __byte_perm(r[2], r[3], 0x7531);
    }
}

/* Sums of the unit's channels and all rows: their high planes are on their way after the first, everything after the second, and there
 * after the third. A group has other things to do meanwhile; warps by themselves do it all in the second. */
static __device__ __forceinline__ void latent_high(const planes_latent &t, const latent_operand &hi,
                                                   int32_t *sums)
{
#if MO_PLANES_GROUP
    typedef planes_latent T;
    planes_products_begin();
    MO_UNROLL()
    for (int d = 0; d < latent_operand::STEPS; d++) {
        planes_multiply(sums, hi.a[d], planes_matrix(t.weights + 2 * d * T::ROW_UNIT, T::ROW_UNIT), d > 0);
    }
    planes_products_sent();
#else
    (void)t, (void)hi, (void)sums;
#endif
}

static __device__ __forceinline__ void latent_low(const planes_latent &t, const latent_operand &hi,
                                                  const latent_operand &lo, int32_t *sums)
{
    typedef planes_latent T;
#if MO_PLANES_GROUP
    planes_products_end<32>(sums);
    MO_UNROLL()
    for (int i = 0; i < 32; i++) {
        sums[i] *= 256;
    }
    planes_products_begin();
    MO_UNROLL()
    for (int d = 0; d < latent_operand::STEPS; d++) {
        const uint8_t *weights = t.weights + 2 * d * T::ROW_UNIT;
        planes_multiply(sums, hi.a[d], planes_matrix(weights + T::LOW_WEIGHTS, T::ROW_UNIT), 1);
        planes_multiply(sums, lo.a[d], planes_matrix(weights, T::ROW_UNIT), 1);
    }
    planes_products_sent();
#else
    MO_UNROLL()
    for (int n = 0; n < T::ROWS / 8; n++) {
        int32_t hh[4] = {0}, xx[4] = {0};
        MO_UNROLL()
        for (int d = 0; d < latent_operand::STEPS; d++) {
            uint32_t both[4];
            planes_columns_operand(both, t.weights + 2 * d * T::ROW_UNIT, T::ROW_UNIT, T::LOW_WEIGHTS, 8 * n);
            planes_step(hh, xx, hi.a[d], lo.a[d], both, both + 2);
        }
        MO_UNROLL()
        for (int e = 0; e < 4; e++) {
            sums[4 * n + e] = 256 * hh[e] + xx[e];
        }
    }
#endif
}

/* The chunk's sums join those before. */
static __device__ __forceinline__ void latent_join(const planes_latent &t, const int32_t *sums, float *O)
{
    MO_UNROLL()
    for (int n = 0; n < planes_latent::ROWS / 8; n++) {
        const int row = 8 * n + 2 * (threadIdx.x & 3);
        const float2 a = *(const float2 *)(t.a + row), b = *(const float2 *)(t.b + row);
        MO_UNROLL()
        for (int e = 0; e < 4; e++) {
            float &o = O[4 * n + e];
            o = fmaf(e % 2 ? b.y : b.x, (float)sums[4 * n + e], (e % 2 ? a.y : a.x) * o);
        }
    }
}

/* Values of a chunk; the rows of the next one, if there is one, come where they are done. Sums join while the next ones' low planes are
 * multiplied, which takes longest. */
static __device__ __forceinline__ void latent_values(const planes_latent &t, const mo_planes_span &next,
                                                     bool more, float (*O)[32])
{
    typedef planes_latent T;
    const uint8_t *rows = t.keys + threadIdx.x / 32 * T::UNIT;
    int32_t sums[2][32];
    MO_UNROLL()
    for (int i = 0; i < T::PIECES; i++) {
        const uint8_t *unit = rows + i * T::PIECE_UNITS * T::UNIT;
        latent_operand hi, lo;
        latent_take(&hi, unit);
        latent_high(t, hi, sums[i % 2]);
        latent_take(&lo, unit + T::PLANE);
        latent_low(t, hi, lo, sums[i % 2]);
        if (i > 0) {
            latent_join(t, sums[(i - 1) % 2], O[i - 1]);
        }
        latent_wait(sums[i % 2]);
        __syncthreads(); /* all threads are done with the piece; after the last also with the weights */
        if (more) {
            latent_bring(t, next, i);
        }
    }
    latent_join(t, sums[(T::PIECES - 1) % 2], O[T::PIECES - 1]);
}

/* ---- A tile ----------------------------------------------------------------------------------- */

/* The rows of tokens [from, to], which follow each other in one session. Gives the phase of the gates after it. */
static __device__ __forceinline__ uint32_t latent_session(const mo_op_attend &op, const planes_latent &t,
                                                          int64_t from, int64_t to, uint32_t phase,
                                                          float (*O)[32])
{
    typedef planes_latent T;
    const mo_dplace *places = mo_at<const mo_dplace>(op.places);
    const mo_dstate state = mo_at<const mo_dstate>(places[from].layers)[op.layer];
    const int64_t p0 = places[from].position;
    const int part = threadIdx.x / 128, row = threadIdx.x / 32 % 4 * 16 + (threadIdx.x & 31) / 4;
    const int64_t start = mo_first_seen(op.window, p0) / MO_KV_BLOCK * MO_KV_BLOCK;
    const int last = (int)(p0 + (to - from) - start); /* position, counted from start as all that follow */
    wide_view seen[2], whole = {0, 0};                /* what a row sees, and what all do */
    if (t.count == T::ROWS && from == latent_token(op, t, 0) && to == latent_token(op, t, T::ROWS - 1)) {
        whole.from = (int)(mo_first_seen(op.window, start + last) - start);
        whole.to = (int)(p0 + 1 - start);
    }
    MO_UNROLL()
    for (int i = 0; i < 2; i++) {
        const int64_t token = latent_token(op, t, row + 8 * i), position = p0 + (token - from);
        const bool here = row + 8 * i < t.count && token >= from && token <= to;
        seen[i].from = here ? (int)(mo_first_seen(op.window, position) - start) : 0;
        seen[i].to = here ? (int)(position + 1 - start) : 0;
    }
    const mo_planes_span first = mo_planes_block(op, state, 0, start);
    latent_bring_scales(t, first);
    for (int i = 0; i <= T::PIECES; i++) {
        latent_bring(t, first, i);
    }
    for (int begin = 0; begin <= last; begin += MO_KV_BLOCK) {
        const bool more = begin + MO_KV_BLOCK <= last;
        const wide_view views[2] = {{seen[0].from - begin, seen[0].to - begin},
                                    {seen[1].from - begin, seen[1].to - begin}};
        /* Long before it is needed: its address comes from memory. */
        const mo_planes_span next = mo_planes_block(op, state, 0, start + begin + (more ? MO_KV_BLOCK : 0));
        float s[T::SCORES][4];
        planes_arrive<0>();
        __syncthreads();
        latent_scores(t, part, row, phase, s);
        const wide_joined joined = begin >= whole.from && begin + MO_KV_BLOCK <= whole.to
                                       ? wide_weights<false>(op, t, part, row, views, s)
                                       : wide_weights<true>(op, t, part, row, views, s);
        if (part == 0 && (threadIdx.x & 3) == 0) {
            MO_UNROLL()
            for (int i = 0; i < 2; i++) {
                t.a[row + 8 * i] = joined.a[i];
                t.b[row + 8 * i] = joined.b[i];
            }
        }
        wide_keep(t, part, row, joined);
        if (more) {
            latent_bring_scales(t, next);
        }
        latent_values(t, next, more, O);
        if (more) {
            latent_bring(t, next, T::PIECES);
        }
        if (next.planes < 2) { /* low planes of tails are zeros, and weights have been there */
            uint4 *low = (uint4 *)(t.weights + T::LOW_WEIGHTS);
            for (int i = threadIdx.x; i < T::TAIL * MO_KV_BLOCK / 16; i += T::THREADS) {
                low[i] = make_uint4(0, 0, 0, 0);
            }
            planes_show();
        }
        phase ^= 1;
    }
    __syncthreads(); /* before the next run looks at the tails */
    return phase;
}

static __device__ __forceinline__ planes_latent planes_latent_of(const mo_op_attend &op, uint8_t *space)
{
    typedef planes_latent T;
    const mo_planes_latent_scratch lay = mo_planes_latent_lay();
    const int64_t all = (int64_t)op.tokens * op.heads;
    T t;
    t.keys = space + lay.keys;
    t.q = space + lay.q;
    t.weights = t.keys + T::VALUE_UNITS * T::UNIT;
    t.tail_scales = (float *)(space + lay.scales);
    t.value_scales = t.tail_scales + MO_KV_BLOCK;
    t.g = (float *)(space + lay.state);
    t.g_tail = t.g + T::ROWS;
    t.M = t.g_tail + T::ROWS;
    t.L = t.M + T::ROWS;
    t.a = t.L + T::ROWS;
    t.b = t.a + T::ROWS;
    t.tops = t.b + T::ROWS;
    t.mosts = t.tops + T::GROUPS * T::ROWS;
    t.counts = (uint32_t *)(t.mosts + T::GROUPS * T::ROWS);
    t.cuts = (float *)(t.counts + T::GROUPS * T::ROWS);
    t.gates = (uint64_t *)(space + lay.gates);
    t.first = (int64_t)(gridDim.x - 1 - blockIdx.x) * T::ROWS; /* late tokens see most and come first */
    t.count = (int)min((int64_t)T::ROWS, all - t.first);
    return t;
}

/* A tile of queries from beginning to end. */
static __device__ __forceinline__ void latent_attend(const mo_op_attend &op, uint8_t *space)
{
    typedef planes_latent T;
    const T t = planes_latent_of(op, space);
    const mo_dplace *places = mo_at<const mo_dplace>(op.places);
    if ((int)threadIdx.x < T::ROWS) {
        t.M[threadIdx.x] = -INFINITY;
        t.L[threadIdx.x] = 0.0f;
    }
    if (threadIdx.x < 32) {
        t.cuts[threadIdx.x] = mo_planes_cut(threadIdx.x);
    }
    for (int i = 0; i < MO_PLANES_LATENT_GATES; i++) {
        planes_gate_at(t.gates + i);
    }
    planes_clear_low(op, t.keys, T::PLANE);
    latent_code_queries(op, t);
    planes_show();
    __syncthreads(); /* and before bytes are sent through the gates */
    float O[T::PIECES][32];
    MO_UNROLL()
    for (int i = 0; i < T::PIECES; i++) {
        MO_UNROLL()
        for (int n = 0; n < 32; n++) {
            O[i][n] = 0.0f;
        }
    }
    const int64_t end = latent_token(op, t, t.count - 1);
    uint32_t phase = 0;
    for (int64_t from = latent_token(op, t, 0), to; from <= end; from = to + 1) {
        for (to = from; to < end && places[to + 1].slice == places[from].slice;) {
            to++;
        }
        phase = latent_session(op, t, from, to, phase, O);
    }
    /* The sums pass through the place of the rows, a warp ends one of them. */
    float *sums = (float *)t.keys;
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    MO_UNROLL()
    for (int i = 0; i < T::PIECES; i++) {
        MO_UNROLL()
        for (int n = 0; n < 8; n++) {
            float *out = sums + (8 * n + 2 * q) * T::VALUE + 16 * (i * T::PIECE_UNITS + warp) + 2 * g;
            *(float2 *)out = make_float2(O[i][4 * n], O[i][4 * n + 2]);
            *(float2 *)(out + T::VALUE) = make_float2(O[i][4 * n + 1], O[i][4 * n + 3]);
        }
    }
    __syncthreads();
    for (int r = warp; r < t.count; r += T::THREADS / 32) {
        mo_planes_finish<T::VALUE>(op, latent_token(op, t, r), latent_head(op, t, r), t.M[r], t.L[r],
                                   sums + r * T::VALUE);
    }
}

#endif
