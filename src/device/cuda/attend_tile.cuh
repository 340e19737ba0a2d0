/* Attend tile: attention of many queries that share a KV head, over all chunks that they see, by 256 threads. The
 * queries of some neighbouring tokens are the rows of a tile; keys and values pass through shared memory, 64
 * positions, so half a block of the cache, at a time, as floats (keys in Q8_0: as codes). It is a matrix product for
 * scores, the weights of 256 positions, and a matrix product for values; each output is a chain in the definition's
 * order, so a thread makes several of them to have something to do meanwhile and to use each number more than once. */
#ifndef MO_DEVICE_CUDA_ATTEND_TILE_CUH
#define MO_DEVICE_CUDA_ATTEND_TILE_CUH

#include "device/cuda/chunk.cuh"

/* What becomes of a row in a chunk. */
enum { ROW_ABSENT, ROW_FIRST, ROW_JOINS };

/* A tile's part of the op, and its arrays in shared memory. SEEN_NOT marks weights of positions that a row does not see:
 * adding 0 instead could turn a -0 into +0. */
template <int LENGTH, int ROWS> struct tile {
    static constexpr int KEYS = MO_TILE_KEYS;
    static constexpr int TR = 4,
                         TK = ROWS * KEYS / MO_TILE_THREADS / TR;      /* scores of a thread: rows x keys */
    static constexpr int VR = ROWS * LENGTH / MO_TILE_THREADS / 4;     /* values of a thread: rows x 4 */
    static constexpr int PIECES = LENGTH * KEYS / 8 / MO_TILE_THREADS; /* of a thread, see tile_piece() */
    static constexpr float UNSEEN = -1.0f;
    float *q;     /* [LENGTH][ROWS], or codes [LENGTH / 4][ROWS] */
    float *dq;    /* [LENGTH / 32][ROWS] scales of codes */
    float *cache; /* keys [LENGTH][KEYS], swizzled, or codes [LENGTH / 4][KEYS]; or values [KEYS][LENGTH] */
    float *dk;    /* [LENGTH / 32][KEYS] */
    float *s;     /* [ROWS][MO_TILE_SCORES] */
    float *M, *L, *a, *b;
    int *from, *to, *what;
    int64_t *position; /* of the tile's tokens */
    int *slice;
    int group, tokens; /* query heads per KV head; tokens of this tile */
    int64_t token;     /* the first */
    int kv_head;
};

/* A chunk of one run of tokens. */
typedef struct tile_chunk {
    mo_cache_span span; /* the chunk in the cache */
    int k_bytes, v_bytes;
    int from, to; /* positions that some row sees */
    bool whole;   /* every row of the run sees all 256 */
} tile_chunk;

/* ---- Queries ---------------------------------------------------------------------------------- */

template <int LENGTH, int ROWS>
static __device__ __forceinline__ const float *tile_query(const mo_op_attend &op, const tile<LENGTH, ROWS> &t,
                                                          int row)
{
    const int64_t token = t.token + row / t.group;
    const int head = t.kv_head * t.group + row % t.group;
    return mo_at<const float>(op.q) + (token * op.heads + head) * (int64_t)(LENGTH * (op.gated ? 2 : 1));
}

template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_load_queries(const mo_op_attend &op, const tile<LENGTH, ROWS> &t)
{
    for (int i = threadIdx.x; i < ROWS * LENGTH / 4; i += MO_TILE_THREADS) {
        const int row = i % ROWS, e = i / ROWS * 4;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row < t.tokens * t.group) {
            v = mo_load_quad<false>(tile_query(op, t, row), e, LENGTH);
        }
        t.q[e * ROWS + row] = v.x;
        t.q[(e + 1) * ROWS + row] = v.y;
        t.q[(e + 2) * ROWS + row] = v.z;
        t.q[(e + 3) * ROWS + row] = v.w;
    }
}

template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_load_query_codes(const mo_op_attend &op,
                                                             const tile<LENGTH, ROWS> &t)
{
    for (int i = threadIdx.x; i < ROWS * LENGTH / 32; i += MO_TILE_THREADS) {
        const int row = i % ROWS, block = i / ROWS;
        const bool here = row < t.tokens * t.group;
        const float *x = tile_query(op, t, here ? row : 0) + 32 * block;
        float amax = 0.0f;
        for (int j = 0; here && j < 32; j++) {
            amax = fmaxf(amax, fabsf(x[j]));
        }
        const mo_block_scale scale = mo_scale_of(amax);
        for (int w = 0; w < 8; w++) {
            uint32_t word = 0;
            for (int j = 0; here && j < 4; j++) {
                word |= (uint32_t)(mo_code_of(scale, x[4 * w + j]) & 255) << 8 * j;
            }
            ((uint32_t *)t.q)[(8 * block + w) * ROWS + row] = word;
        }
        t.dq[block * ROWS + row] = scale.zero ? 0.0f : scale.amax / 127.0f;
    }
}

/* ---- Keys and values -------------------------------------------------------------------------- */

/* Thread's piece i of the tile: eight elements of a position. Neighbouring lanes take four pieces of each
 * of eight positions, so that reads come in runs and, with the swizzle, writes of columns miss each other. */
template <int LENGTH> static __device__ __forceinline__ void tile_piece(int i, int *u, int *e)
{
    const int lane = threadIdx.x & 31;
    const int n = threadIdx.x / 32 + i * (MO_TILE_THREADS / 32); /* patches of 8 positions x 32 elements */
    *u = n % (MO_TILE_KEYS / 8) * 8 + lane / 4;
    *e = n / (MO_TILE_KEYS / 8) * 32 + lane % 4 * 8;
}

static __device__ __forceinline__ int tile_column(int e, int u)
{
    return e * MO_TILE_KEYS + (u ^ (e / 8 % 4 * 8));
}

/* Eight elements of position u of the tile, from e on. */
template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_put(const tile<LENGTH, ROWS> &t, bool values, int u, int e,
                                                const float *x)
{
    if (values) {
        *(float4 *)(t.cache + u * LENGTH + e) = make_float4(x[0], x[1], x[2], x[3]);
        *(float4 *)(t.cache + u * LENGTH + e + 4) = make_float4(x[4], x[5], x[6], x[7]);
        return;
    }
    MO_UNROLL()
    for (int j = 0; j < 8; j++) {
        t.cache[tile_column(e + j, u)] = x[j];
    }
}

template <int KV, int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_store(const tile<LENGTH, ROWS> &t, const tile_chunk &c,
                                                  bool values, int first)
{
    for (int i = 0; i < tile<LENGTH, ROWS>::PIECES; i++) {
        int u, e;
        tile_piece<LENGTH>(i, &u, &e);
        const bool seen = first + u >= c.from && first + u < c.to;
        const uint8_t *p = values ? mo_span_values(c.span, first, 0) + (int64_t)(first + u) * c.v_bytes
                                  : mo_span_keys(c.span, first) + (int64_t)(first + u) * c.k_bytes;
        float x[8];
        MO_UNROLL()
        for (int j = 0; j < 8; j++) {
            x[j] = seen ? mo_cache_value<KV>(p, e + j) : 0.0f;
        }
        tile_put(t, values, u, e, x);
    }
}

template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_store_codes(const tile<LENGTH, ROWS> &t, const tile_chunk &c,
                                                        int first)
{
    for (int i = threadIdx.x; i < MO_TILE_KEYS * LENGTH / 32; i += MO_TILE_THREADS) {
        const int u = i % MO_TILE_KEYS, block = i / MO_TILE_KEYS;
        int32_t words[8] = {0};
        float d = 0.0f;
        if (first + u >= c.from && first + u < c.to) {
            const uint8_t *p = mo_span_keys(c.span, first) + (int64_t)(first + u) * c.k_bytes + 34 * block;
            d = mo_half(mo_read_u16(p));
            mo_key_codes(p + 2, 32, words);
        }
        MO_UNROLL()
        for (int w = 0; w < 8; w++) {
            ((int32_t *)t.cache)[(8 * block + w) * MO_TILE_KEYS + u] = words[w];
        }
        t.dk[block * MO_TILE_KEYS + u] = d;
    }
}

/* ---- Scores ----------------------------------------------------------------------------------- */

/* A thread's rows and keys: a warp has 4 x 8 such patches. */
template <int LENGTH, int ROWS> static __device__ __forceinline__ void tile_patch(int *row, int *key)
{
    typedef tile<LENGTH, ROWS> T;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    constexpr int ACROSS = T::KEYS / T::TK / 8; /* warps side by side */
    *row = (warp / ACROSS * 4 + lane / 8) * T::TR;
    *key = (warp % ACROSS * 8 + lane % 8) * T::TK;
}

template <int COUNT> static __device__ __forceinline__ void tile_read(float *x, const float *from)
{
    if constexpr (COUNT == 4) {
        const float4 v = *(const float4 *)from;
        x[0] = v.x;
        x[1] = v.y;
        x[2] = v.z;
        x[3] = v.w;
    } else {
        const float2 v = *(const float2 *)from;
        x[0] = v.x;
        x[1] = v.y;
    }
}

/* The part of the definition's tree that ends in lane LANE + x with the additions over STEP and more: sums over lanes
 * are added as they come, so that few are alive at any time. */
template <int LENGTH, int ROWS, int LANE, int STEP>
static __device__ __forceinline__ void tile_subtree(float *sum, const float *q, const float *k, int key)
{
    typedef tile<LENGTH, ROWS> T;
    if constexpr (STEP == 32) {
        MO_UNROLL()
        for (int i = 0; i < T::TR * T::TK; i++) {
            sum[i] = 0.0f;
        }
        MO_UNROLL()
        for (int e = LANE; e < LENGTH; e += 32) {
            float x[T::TR], y[T::TK];
            tile_read<T::TR>(x, q + e * ROWS);
            tile_read<T::TK>(y, k + e * MO_TILE_KEYS + (key ^ (LANE / 8 % 4 * 8)));
            MO_UNROLL()
            for (int i = 0; i < T::TR; i++) {
                MO_UNROLL()
                for (int j = 0; j < T::TK; j++) {
                    sum[i * T::TK + j] = fmaf(x[i], y[j], sum[i * T::TK + j]);
                }
            }
        }
    } else {
        float other[T::TR * T::TK];
        tile_subtree<LENGTH, ROWS, LANE, 2 * STEP>(sum, q, k, key);
        tile_subtree<LENGTH, ROWS, LANE + STEP, 2 * STEP>(other, q, k, key);
        MO_UNROLL()
        for (int i = 0; i < T::TR * T::TK; i++) {
            sum[i] = sum[i] + other[i];
        }
    }
}

/* The last two steps of the tree are loops: the code stays small. Lanes x = 0 .. 3 and what the steps before add to
 * them; the swizzle does not depend on x. */
template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_dots(const tile<LENGTH, ROWS> &t, float *sum)
{
    typedef tile<LENGTH, ROWS> T;
    int row, key;
    tile_patch<LENGTH, ROWS>(&row, &key);
    MO_UNROLL(1)
    for (int last = 0; last < 2; last++) {
        float pair[T::TR * T::TK];
        MO_UNROLL(1)
        for (int x = last; x < 4; x += 2) {
            float part[T::TR * T::TK];
            tile_subtree<LENGTH, ROWS, 0, 4>(part, t.q + x * ROWS + row, t.cache + x * MO_TILE_KEYS, key);
            MO_UNROLL()
            for (int i = 0; i < T::TR * T::TK; i++) {
                pair[i] = x == last ? part[i] : pair[i] + part[i];
            }
        }
        MO_UNROLL()
        for (int i = 0; i < T::TR * T::TK; i++) {
            sum[i] = last == 0 ? pair[i] : sum[i] + pair[i];
        }
    }
}

/* The fold over blocks of codes. */
template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_folds(const tile<LENGTH, ROWS> &t, float *sum)
{
    typedef tile<LENGTH, ROWS> T;
    int row, key;
    tile_patch<LENGTH, ROWS>(&row, &key);
    MO_UNROLL()
    for (int i = 0; i < T::TR * T::TK; i++) {
        sum[i] = 0.0f;
    }
    MO_UNROLL(1)
    for (int block = 0; block < LENGTH / 32; block++) {
        int isum[T::TR * T::TK];
        MO_UNROLL()
        for (int i = 0; i < T::TR * T::TK; i++) {
            isum[i] = 0;
        }
        MO_UNROLL()
        for (int w = 8 * block; w < 8 * block + 8; w++) {
            float x[T::TR], y[T::TK];
            tile_read<T::TR>(x, t.q + w * ROWS + row);
            tile_read<T::TK>(y, t.cache + w * MO_TILE_KEYS + key);
            MO_UNROLL()
            for (int i = 0; i < T::TR * T::TK; i++) {
                isum[i] = __dp4a((int)mo_bits_of(x[i / T::TK]), (int)mo_bits_of(y[i % T::TK]), isum[i]);
            }
        }
        float dq[T::TR], dk[T::TK];
        tile_read<T::TR>(dq, t.dq + block * ROWS + row);
        tile_read<T::TK>(dk, t.dk + block * MO_TILE_KEYS + key);
        MO_UNROLL()
        for (int i = 0; i < T::TR * T::TK; i++) {
            sum[i] = fmaf(dq[i / T::TK], dk[i % T::TK] * (float)isum[i], sum[i]);
        }
    }
}

template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_scores(const mo_op_attend &op, const tile<LENGTH, ROWS> &t,
                                                   int first)
{
    typedef tile<LENGTH, ROWS> T;
    float sum[T::TR * T::TK];
    int row, key;
    if (op.kv == MO_KV_Q8_0) {
        tile_folds(t, sum);
    } else {
        tile_dots(t, sum);
    }
    tile_patch<LENGTH, ROWS>(&row, &key);
    MO_UNROLL()
    for (int i = 0; i < T::TR; i++) {
        MO_UNROLL()
        for (int j = 0; j < T::TK; j++) {
            t.s[(row + i) * MO_TILE_SCORES + first + key + j] = op.scale * sum[i * T::TK + j];
        }
    }
}

/* ---- Weights ---------------------------------------------------------------------------------- */

/* What each row sees of the chunk that begins at `begin`, for the run of tokens [first, last]. */
template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_look(const mo_op_attend &op, const tile<LENGTH, ROWS> &t,
                                                 int first, int last, int64_t begin)
{
    const int row = threadIdx.x, token = row / t.group;
    if (row >= ROWS) {
        return;
    }
    t.what[row] = ROW_ABSENT;
    t.from[row] = t.to[row] = 0;
    if (token < first || token > last) {
        return;
    }
    const int64_t position = t.position[token], seen = mo_first_seen(op.window, position);
    const int64_t from = max(seen, begin), to = min(position + 1, begin + MO_CHUNK_LENGTH);
    if (from < to) {
        t.what[row] = seen / MO_CHUNK_LENGTH * MO_CHUNK_LENGTH == begin ? ROW_FIRST : ROW_JOINS;
        t.from[row] = (int)(from - begin);
        t.to[row] = (int)(to - begin);
    }
}

template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_weights(const tile<LENGTH, ROWS> &t)
{
    for (int row = threadIdx.x / 32; row < ROWS; row += MO_TILE_THREADS / 32) {
        const int what = t.what[row];
        if (what == ROW_ABSENT) {
            continue;
        }
        float m, l;
        mo_row_weights(t.s + row * MO_TILE_SCORES, t.from[row], t.to[row], tile<LENGTH, ROWS>::UNSEEN, &m,
                       &l);
        if ((threadIdx.x & 31) == 0) {
            const mo_join join = mo_join_of(what == ROW_FIRST ? m : t.M[row], m);
            t.L[row] = what == ROW_FIRST ? l : mo_joined(join, t.L[row], l);
            t.M[row] = join.top;
            t.a[row] = join.a;
            t.b[row] = join.b;
        }
    }
}

/* ---- Values ----------------------------------------------------------------------------------- */

/* A thread's rows are row, row + STEP, ...; its values begin at j. */
template <int LENGTH, int ROWS> static __device__ __forceinline__ void tile_place(int *row, int *j)
{
    typedef tile<LENGTH, ROWS> T;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    constexpr int ACROSS = LENGTH / 4 / 8;
    *row = warp / ACROSS * 4 + lane / 8;
    *j = (warp % ACROSS * 8 + lane % 8) * 4;
    static_assert(ROWS / T::VR == 8 / ACROSS * 4, "all rows are somebody's");
}

template <bool MASKED> static __device__ __forceinline__ void tile_add(float *acc, float p, float4 v)
{
    const float x[4] = {v.x, v.y, v.z, v.w};
    MO_UNROLL()
    for (int j = 0; j < 4; j++) {
        const float sum = fmaf(p, x[j], acc[j]);
        acc[j] = MASKED && p < 0.0f ? acc[j] : sum;
    }
}

template <bool MASKED, int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_values(const tile<LENGTH, ROWS> &t, int first, float *acc)
{
    typedef tile<LENGTH, ROWS> T;
    constexpr int STEP = ROWS / T::VR;
    int row, j;
    tile_place<LENGTH, ROWS>(&row, &j);
    const float *p = t.s + row * MO_TILE_SCORES + first;
    const float *v = t.cache + j;
    MO_UNROLL(1)
    for (int u = 0; u < MO_TILE_KEYS; u += 4) {
        float w[T::VR][4];
        MO_UNROLL()
        for (int i = 0; i < T::VR; i++) {
            tile_read<4>(w[i], p + i * STEP * MO_TILE_SCORES + u);
        }
        MO_UNROLL()
        for (int n = 0; n < 4; n++) {
            const float4 value = *(const float4 *)(v + (u + n) * LENGTH);
            MO_UNROLL()
            for (int i = 0; i < T::VR; i++) {
                tile_add<MASKED>(acc + 4 * i, w[i][n], value);
            }
        }
    }
}

/* ---- A chunk ---------------------------------------------------------------------------------- */

/* All of one chunk: acc becomes the chunk's o of this thread's rows and values. Keys, then values, 64 positions at a
 * time. */
template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_run(const mo_op_attend &op, const tile<LENGTH, ROWS> &t,
                                                const tile_chunk &c, float *acc)
{
    typedef tile<LENGTH, ROWS> T;
    const int begin = c.from / T::KEYS, count = (c.to - 1) / T::KEYS - begin + 1;
    MO_UNROLL()
    for (int i = 0; i < T::VR * 4; i++) {
        acc[i] = 0.0f;
    }
    for (int stage = 0; stage < 2 * count; stage++) {
        const bool values = stage >= count;
        const int first = (begin + stage % count) * T::KEYS;
        __syncthreads();
        if (stage == count) {
            tile_weights(t);
        }
        if (op.kv == MO_KV_F32) {
            tile_store<MO_KV_F32>(t, c, values, first);
        } else if (values) {
            tile_store<MO_KV_Q8_0>(t, c, values, first);
        } else {
            tile_store_codes(t, c, first);
        }
        __syncthreads();
        if (!values) {
            tile_scores(op, t, first);
        } else if (c.whole) {
            tile_values<false>(t, first, acc);
        } else {
            tile_values<true>(t, first, acc);
        }
    }
}

/* ---- A tile ----------------------------------------------------------------------------------- */

/* Tokens [first, last] of the tile, which follow each other in one session; sum is what the thread's rows have. */
template <int LENGTH, int ROWS>
static __device__ __forceinline__ void tile_session(const mo_op_attend &op, const tile<LENGTH, ROWS> &t,
                                                    int first, int last, float *sum)
{
    typedef tile<LENGTH, ROWS> T;
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t.token + first];
    const mo_dstate state = mo_at<const mo_dstate>(place.layers)[op.layer];
    const int64_t p0 = t.position[first], p1 = t.position[last];
    tile_chunk c;
    c.k_bytes = mo_cache_bytes(op.kv, LENGTH);
    c.v_bytes = c.k_bytes;
    int row, j;
    tile_place<LENGTH, ROWS>(&row, &j);
    const int64_t start = mo_first_seen(op.window, p0) / MO_CHUNK_LENGTH * MO_CHUNK_LENGTH;
    for (int64_t begin = start; begin <= p1; begin += MO_CHUNK_LENGTH) {
        c.span = mo_cache_chunk(op, state, t.kv_head, begin, p1 + 1 - begin);
        c.from = (int)(max(mo_first_seen(op.window, p0), begin) - begin);
        c.to = (int)(min(p1 + 1, begin + MO_CHUNK_LENGTH) - begin);
        c.whole = mo_first_seen(op.window, p1) <= begin && p0 + 1 >= begin + MO_CHUNK_LENGTH;
        float acc[T::VR * 4];
        __syncthreads(); /* everybody is done with the chunk before */
        tile_look(op, t, first, last, begin);
        tile_run(op, t, c, acc);
        MO_UNROLL()
        for (int i = 0; i < T::VR; i++) {
            const int r = row + i * (ROWS / T::VR), what = t.what[r];
            const float a = t.a[r], b = t.b[r];
            MO_UNROLL()
            for (int n = 0; n < 4; n++) {
                float &have = sum[4 * i + n];
                have = what == ROW_FIRST   ? acc[4 * i + n]
                       : what == ROW_JOINS ? fmaf(b, acc[4 * i + n], a * have)
                                           : have;
            }
        }
    }
}

/* Blocks (tile, KV head). Tiles of late tokens see most and come first. */
template <int LENGTH, int ROWS>
static __device__ __forceinline__ void attend_tile(const mo_op_attend &op, uint8_t *space)
{
    typedef tile<LENGTH, ROWS> T;
    const mo_tile_scratch lay = mo_tile_lay(ROWS, LENGTH);
    T t;
    t.q = (float *)(space + lay.q);
    t.dq = (float *)(space + lay.q_scales);
    t.cache = (float *)(space + lay.cache);
    t.dk = (float *)(space + lay.cache_scales);
    t.s = (float *)(space + lay.scores);
    t.M = (float *)(space + lay.state);
    t.L = t.M + ROWS;
    t.a = t.L + ROWS;
    t.b = t.a + ROWS;
    t.from = (int *)(t.b + ROWS);
    t.to = t.from + ROWS;
    t.what = t.to + ROWS;
    t.slice = t.what + ROWS;
    t.position = (int64_t *)(t.slice + ROWS);
    t.group = op.heads / op.kv_heads;
    const int most = ROWS / t.group;
    t.token = (int64_t)(gridDim.x - 1 - blockIdx.x) * most;
    t.tokens = (int)min((int64_t)most, op.tokens - t.token);
    t.kv_head = blockIdx.y;
    if ((int)threadIdx.x < t.tokens) {
        const mo_dplace place = mo_at<const mo_dplace>(op.places)[t.token + threadIdx.x];
        t.position[threadIdx.x] = place.position;
        t.slice[threadIdx.x] = place.slice;
    }
    if (op.kv == MO_KV_Q8_0) {
        tile_load_query_codes(op, t);
    } else {
        tile_load_queries(op, t);
    }
    __syncthreads();
    float sum[T::VR * 4];
    MO_UNROLL()
    for (int i = 0; i < T::VR * 4; i++) {
        sum[i] = 0.0f;
    }
    for (int first = 0, last; first < t.tokens; first = last + 1) {
        last = first;
        while (last + 1 < t.tokens && t.slice[last + 1] == t.slice[first]) {
            last++;
        }
        tile_session(op, t, first, last, sum);
    }
    int row, j;
    tile_place<LENGTH, ROWS>(&row, &j);
    MO_UNROLL()
    for (int i = 0; i < T::VR; i++) {
        const int r = row + i * (ROWS / T::VR);
        if (r < t.tokens * t.group) {
            MO_UNROLL()
            for (int n = 0; n < 4; n++) {
                mo_finish_value(op, t.token + r / t.group, t.kv_head * t.group + r % t.group, j + n, t.M[r],
                                t.L[r], sum[4 * i + n]);
            }
        }
    }
}

#endif
