/* Chunk: attention of a few queries that share a KV head over one chunk of 256 positions, by 256 threads: scores,
 * weights with their sum, then the weighted values, each in the definition's order.
 *
 * The cache has floats. Scores: a warp takes 32 keys at a time. Lane i multiplies elements i, i + 32, ... of each key, as the
 * definition's lane i does, and the keys' sums over 32 lanes are made together: at each step of the tree half of the keys
 * go to one half of the lanes, so that in the end a lane holds the score of one key. */
#ifndef MO_DEVICE_CUDA_CHUNK_CUH
#define MO_DEVICE_CUDA_CHUNK_CUH

#include "device/cuda/cache.cuh"

/* What a block of threads works on. Arrays are in shared memory. */
typedef struct mo_chunk {
    int k_len, v_len, k_bytes, v_bytes;
    int queries;    /* at most MO_CHUNK_QUERIES */
    int piece;      /* positions whose values are held at once */
    float scale;    /* of scores */
    const float *q; /* the queries, in global memory, q_stride floats apart */
    int q_stride;
    float *p;           /* [queries][256]: scores, then weights, of the chunk's positions */
    float *m, *l;       /* [queries] */
    float *o;           /* [queries][v_len] */
    uint8_t *values;    /* bytes of some positions' values */
    mo_cache_span span; /* the chunk in the cache */
    int from, to;       /* positions of the chunk that are seen */
} mo_chunk;

/* ---- Scores ----------------------------------------------------------------------------------- */

/* The tree over 32 lanes, of KEYS sums at once: lane i ends with the sum of key i * KEYS / 32. */
template <int KEYS, int STEP> static __device__ __forceinline__ void mo_tree_step(float *v)
{
    const bool upper = (threadIdx.x & STEP) != 0;
    if constexpr (KEYS > 1) {
        MO_UNROLL()
        for (int i = 0; i < KEYS / 2; i++) {
            const float give = upper ? v[i] : v[i + KEYS / 2];
            const float keep = upper ? v[i + KEYS / 2] : v[i];
            v[i] = keep + __shfl_xor_sync(MO_FULL, give, STEP);
        }
    } else {
        v[0] = v[0] + __shfl_xor_sync(MO_FULL, v[0], STEP);
    }
    if constexpr (STEP > 1) {
        mo_tree_step<(KEYS > 1 ? KEYS / 2 : 1), STEP / 2>(v);
    }
}

static __device__ __forceinline__ void mo_chunk_scores(const mo_chunk &c)
{
    const int lane = threadIdx.x & 31;
    const int u = threadIdx.x / 32 * 32;
    if (u >= c.to || u + 32 <= c.from) {
        return;
    }
    const uint8_t *keys = mo_span_keys(c.span, u);
    for (int q = 0; q < c.queries; q++) {
        float sum[32];
        MO_UNROLL()
        for (int i = 0; i < 32; i++) {
            sum[i] = 0.0f;
        }
        for (int j = lane; j < c.k_len; j += 32) {
            const float x = c.q[q * c.q_stride + j];
            MO_UNROLL()
            for (int i = 0; i < 32; i++) {
                if (u + i >= c.from && u + i < c.to) {
                    sum[i] = fmaf(x, ((const float *)(keys + (int64_t)(u + i) * c.k_bytes))[j], sum[i]);
                }
            }
        }
        mo_tree_step<32, 16>(sum);
        c.p[q * MO_CHUNK_LENGTH + u + lane] = c.scale * sum[0];
    }
}

/* ---- Weights ---------------------------------------------------------------------------------- */

/* A row of scores becomes weights: positions that are not seen get 0. One warp; gives m and l to every lane. */
static __device__ __forceinline__ void mo_row_weights(float *row, int from, int to, float *m, float *l)
{
    const int lane = threadIdx.x & 31;
    float s[MO_CHUNK_LENGTH / 32];
    float top = -INFINITY;
    MO_UNROLL()
    for (int k = 0; k < MO_CHUNK_LENGTH / 32; k++) {
        const int u = lane + 32 * k;
        s[k] = u >= from && u < to ? row[u] : -INFINITY;
        top = fmaxf(top, s[k]);
    }
    top = mo_warp_max(top) + 0.0f;
    float sum = 0.0f;
    MO_UNROLL()
    for (int k = 0; k < MO_CHUNK_LENGTH / 32; k++) {
        const int u = lane + 32 * k;
        const bool seen = u >= from && u < to;
        const float w = seen ? mo_exp(s[k] - top) : 0.0f;
        row[u] = w;
        sum += w; /* weights are not negative: a 0 more changes no bit */
    }
    *m = top;
    *l = mo_lane_sum(sum);
}

static __device__ __forceinline__ void mo_chunk_weights(const mo_chunk &c)
{
    const int q = threadIdx.x / 32;
    if (q < c.queries) {
        float m, l;
        mo_row_weights(c.p + q * MO_CHUNK_LENGTH, c.from, c.to, &m, &l);
        if ((threadIdx.x & 31) == 0) {
            c.m[q] = m;
            c.l[q] = l;
        }
    }
}

/* ---- Values ----------------------------------------------------------------------------------- */

/* Asks for the values of positions [first, first + count) but for the first `there`; those before the first that is seen
 * are 0. Blocks begin and end at multiples of 128 bytes, so what is read in pieces of 4 or 16 is never in two. */
static __device__ __forceinline__ void mo_chunk_fetch(const mo_chunk &c, int first, int count, int there)
{
    const int at = first * c.v_bytes,
              edge = MO_KV_BLOCK * c.v_bytes - at; /* from here on in the second block */
    const uint8_t *low = mo_span_values(c.span, 0, 0) + at;
    const uint8_t *high = mo_span_values(c.span, MO_KV_BLOCK, c.k_bytes - c.v_bytes) + at;
    const int bytes = count * c.v_bytes, skipped = max(there, c.from - first) * c.v_bytes;
    const uint64_t start = (uint64_t)(low + skipped) | (uint64_t)(c.values + skipped);
    int done = skipped;
    if ((start & 15) == 0) {
        done += (bytes - skipped) / 16 * 16;
        for (int i = skipped + threadIdx.x * 16; i < done; i += MO_CHUNK_THREADS * 16) {
            mo_async_copy16(c.values + i, (i < edge ? low : high) + i);
        }
    } else if ((start & 3) == 0) {
        done += (bytes - skipped) / 4 * 4;
        for (int i = skipped + threadIdx.x * 4; i < done; i += MO_CHUNK_THREADS * 4) {
            *(uint32_t *)(c.values + i) = mo_read_word((i < edge ? low : high) + i);
        }
    }
    for (int i = done + threadIdx.x; i < bytes; i += MO_CHUNK_THREADS) {
        c.values[i] = mo_read_byte((i < edge ? low : high) + i);
    }
    for (int i = there * c.v_bytes + threadIdx.x; i < min(skipped, bytes); i += MO_CHUNK_THREADS) {
        c.values[i] = 0;
    }
    mo_async_commit();
}

/* Positions [first, first + count) into the sums of PER queries and one j: the thread's value serves all of them.
 * 256 is a multiple of v_len. */
template <int PER>
static __device__ __forceinline__ void mo_chunk_add(const mo_chunk &c, int first, int count, bool fresh)
{
    const int j = threadIdx.x % c.v_len, q0 = threadIdx.x / c.v_len, step = MO_CHUNK_THREADS / c.v_len;
    const uint8_t *value = c.values;
    float acc[PER];
    int at[PER];
    if (q0 >= c.queries) {
        return;
    }
    MO_UNROLL()
    for (int i = 0; i < PER; i++) {
        at[i] = min(q0 + i * step, c.queries - 1); /* a query too many is computed twice and stored once */
        acc[i] = fresh ? 0.0f : c.o[at[i] * c.v_len + j];
    }
    int u = 0;
    MO_UNROLL(2)
    for (; u + 4 <= count; u += 4) { /* weights come in fours: first is a multiple of 4 */
        float w[PER][4];
        MO_UNROLL()
        for (int i = 0; i < PER; i++) {
            const float4 four = *(const float4 *)(c.p + at[i] * MO_CHUNK_LENGTH + first + u);
            w[i][0] = four.x;
            w[i][1] = four.y;
            w[i][2] = four.z;
            w[i][3] = four.w;
        }
        MO_UNROLL()
        for (int n = 0; n < 4; n++, value += c.v_bytes) {
            const float v = ((const float *)value)[j];
            MO_UNROLL()
            for (int i = 0; i < PER; i++) {
                acc[i] = fmaf(w[i][n], v, acc[i]);
            }
        }
    }
    for (; u < count; u++, value += c.v_bytes) {
        const float v = ((const float *)value)[j];
        MO_UNROLL()
        for (int i = 0; i < PER; i++) {
            acc[i] = fmaf(c.p[at[i] * MO_CHUNK_LENGTH + first + u], v, acc[i]);
        }
    }
    MO_UNROLL()
    for (int i = 0; i < PER; i++) {
        if (q0 + i * step < c.queries) {
            c.o[at[i] * c.v_len + j] = acc[i];
        }
    }
}

/* The same for values of any length. */
static __device__ __forceinline__ void mo_chunk_add_any(const mo_chunk &c, int first, int count, bool fresh)
{
    for (int i = threadIdx.x; i < c.queries * c.v_len; i += MO_CHUNK_THREADS) {
        const float *p = c.p + i / c.v_len * MO_CHUNK_LENGTH + first;
        float acc = fresh ? 0.0f : c.o[i];
        for (int u = 0; u < count; u++) {
            acc = fmaf(p[u], ((const float *)(c.values + u * c.v_bytes))[i % c.v_len], acc);
        }
        c.o[i] = acc;
    }
}

static __device__ __forceinline__ void mo_chunk_add_of(const mo_chunk &c, int first, int count, bool fresh)
{
    const int per = c.v_len <= 256 ? (c.queries * c.v_len + MO_CHUNK_THREADS - 1) / MO_CHUNK_THREADS : 0;
    if (c.v_len > 256 || MO_CHUNK_THREADS % c.v_len != 0) {
        mo_chunk_add_any(c, first, count, fresh);
    } else if (per <= 1) {
        mo_chunk_add<1>(c, first, count, fresh);
    } else if (per <= 2) {
        mo_chunk_add<2>(c, first, count, fresh);
    } else if (per <= 4) {
        mo_chunk_add<4>(c, first, count, fresh);
    } else {
        mo_chunk_add<8>(c, first, count, fresh);
    }
}

/* The first position whose value is added. Those between it and the first that is seen have weight and value 0, which
 * leaves a sum that is still +0 as it is. */
static __device__ __forceinline__ int mo_chunk_start(const mo_chunk &c)
{
    return c.from / 4 * 4;
}

/* c.o of all seen positions, c.piece of them at a time; the first ones have been asked for with mo_chunk_fetch(). All
 * threads; the weights are complete. */
static __device__ __forceinline__ void mo_chunk_values(const mo_chunk &c)
{
    const int start = mo_chunk_start(c);
    for (int first = start; first < c.to; first += c.piece) {
        const int count = min(c.piece, c.to - first);
        if (first > start) {
            __syncthreads();
            mo_chunk_fetch(c, first, count, 0);
        }
        mo_async_wait<0>();
        __syncthreads();
        mo_chunk_add_of(c, first, count, first == start);
    }
}

/* The values of the first c.piece positions before `end`, and a prefetch of their keys.
 * Gives how many were asked for. */
static __device__ __forceinline__ int mo_chunk_expect(const mo_chunk &c, int end)
{
    const int start = mo_chunk_start(c), count = max(0, min(c.piece, min(end, c.to) - start));
    mo_chunk_fetch(c, start, count, 0);
    const int edge = MO_KV_BLOCK * c.k_bytes, stop = (start + count) * c.k_bytes;
    for (int i = start * c.k_bytes + 128 * threadIdx.x; i < stop; i += 128 * MO_CHUNK_THREADS) {
        mo_prefetch(mo_span_keys(c.span, i < edge ? 0 : MO_KV_BLOCK) + i);
    }
    return count;
}

/* Everything of one chunk, of which the values of the first `expected` positions have been asked for; every thread has
 * passed a barrier since the chunk before. */
static __device__ __forceinline__ void mo_chunk_run(const mo_chunk &c, int expected)
{
    const int start = mo_chunk_start(c);
    mo_chunk_fetch(c, start, min(c.piece, c.to - start), expected);
    mo_chunk_scores(c);
    __syncthreads();
    mo_chunk_weights(c);
    mo_chunk_values(c); /* begins with a barrier */
    __syncthreads();
}

/* ---- Merging ---------------------------------------------------------------------------------- */

/* How a chunk joins what there is, as attend_merge(): L = fma(b, l, a * L), and so O. */
typedef struct mo_join {
    float top, a, b;
} mo_join;

static __device__ __forceinline__ mo_join mo_join_of(float M, float m)
{
    mo_join j;
    j.top = M > m ? M : m;
    j.a = mo_exp(M - j.top);
    j.b = mo_exp(m - j.top);
    return j;
}

static __device__ __forceinline__ float mo_joined(mo_join j, float have, float more)
{
    return fmaf(j.b, more, j.a * have);
}

/* A finished head: sink, division, gate, into the mixed row. Value j of the head. */
static __device__ __forceinline__ float mo_finish_value(const mo_op_attend &op, int64_t t, int head, int j,
                                                        float M, float L, float O)
{
    if (op.sinks) {
        const mo_join join = mo_join_of(M, mo_at<const float>(op.sinks)[head]);
        L = mo_joined(join, L, 1.0f);
        O = mo_joined(join, O, 0.0f);
    }
    O = O / L;
    if (op.gated) {
        const float *gate = mo_at<const float>(op.q) +
                            (t * op.heads + head) * (int64_t)(op.k_len * (op.gated ? 2 : 1)) + op.k_len;
        O = O * mo_sigmoid(gate[j]);
    }
    mo_at<float>(op.mixed.x)[mo_mixed_row(op, t, head) * op.mixed.cols + mo_mixed_column(op, head) + j] = O;
    return O;
}

#endif
