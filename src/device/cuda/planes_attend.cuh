/* Planes, the blocks of few tokens: one that has a chunk, and one that takes chunk after chunk. Both leave what they have found for a merge.
 * They come behind the kernel of the heads, or do its part themselves (fresh.h). */
#ifndef MO_DEVICE_CUDA_PLANES_ATTEND_CUH
#define MO_DEVICE_CUDA_PLANES_ATTEND_CUH

#include "device/cuda/planes_fresh.cuh"
#include "device/cuda/planes_stream.cuh"

/* What chunks leave for the merge: the sums of every chunk of a head, one after the other, head by head and token by
 * token, so that a head's are one piece of memory; behind all of them their m, then l, then r in the same order. */
typedef struct partials {
    float *sums;   /* of a chunk of a head; the next chunk's are v_len further */
    float *m;      /* of the same; the next chunk's follows */
    int64_t apart; /* floats from m to l, and from there to r */
} partials;

static __device__ __forceinline__ partials partials_of(const mo_op_attend &op, int64_t t, int head, int chunk)
{
    const int64_t at = (t * op.heads + head) * op.chunks + chunk;
    partials p;
    p.apart = (int64_t)op.tokens * op.heads * op.chunks;
    p.sums = mo_at<float>(op.partial) + at * op.v_len;
    p.m = mo_at<float>(op.partial) + p.apart * op.v_len + at;
    return p;
}

static __device__ __forceinline__ void leave_factors(const mo_planes_few &f, const partials &p, int row)
{
    p.m[0] = f.m[row];
    p.m[p.apart] = f.l[row];
    p.m[2 * p.apart] = f.r[row];
}

/* ---- A chunk: blocks (chunk, KV head and part of its queries, token) --------------------------- */

/* What the only chunk of a token's has found, or one of several. */
template <int V>
static __device__ __forceinline__ void chunk_leave(const mo_op_attend &op, const mo_planes_few &f, int64_t t)
{
    const int head = mo_planes_head(f, 0), padded = mo_kv_padded(op.v_len);
    if (op.chunks == 1) { /* nothing is left to merge */
        mo_planes_join(op, f);
        for (int row = threadIdx.x / 32; row < f.rows; row += MO_PLANES_THREADS / 32) {
            __syncwarp();
            mo_planes_finish<V>(op, t, head + row, f.M[row], f.L[row], f.O + row * padded);
        }
        return;
    }
    for (int i = threadIdx.x; i < f.rows * op.v_len; i += MO_PLANES_THREADS) {
        const int row = mo_quotient(i, op.v_len), j = i - row * op.v_len;
        partials_of(op, t, head + row, blockIdx.x).sums[j] = (float)f.sums[row * padded + j];
    }
    if ((int)threadIdx.x < f.rows) {
        leave_factors(f, partials_of(op, t, head + (int)threadIdx.x, blockIdx.x), threadIdx.x);
    }
}

/* The part of the heads in a block that has one chunk. */
template <int D>
static __device__ __forceinline__ void chunk_fresh(const mo_cuda_fresh &op, planes_fresh *r, const mo_view &v,
                                                   mo_planes_few *f, int64_t begin, uint8_t *late)
{
    const mo_fresh_scratch lay = mo_fresh_lay(D, op.heads.n_rot, op.most, true);
    float *scales = (float *)(late + lay.chunk_scales);
    const int u = threadIdx.x % MO_KV_BLOCK;
    planes_fresh_at(r, lay, op.most, f->weights, late);
    scales[threadIdx.x] = __ldcg((threadIdx.x < MO_KV_BLOCK ? f->span.key_scales : f->span.value_scales) + u);
    f->span.key_scales = scales;
    f->span.value_scales = scales + MO_KV_BLOCK;
    r->key_scales = scales + (int)(r->first - begin);
    r->value_scales = r->key_scales + MO_KV_BLOCK;
    planes_fresh_expect<D>(op.heads, *r, *f);
    mo_grid_begin();
    __syncthreads();
    planes_fresh_make<D>(op.heads, *r, v.state, *f);
}

/* fresh: the heads' part is the block's; NULL: it has been done. */
template <int K, int V, bool FRESH = false>
static __device__ __forceinline__ void planes_chunk(const mo_op_attend &op, const mo_cuda_fresh *fresh,
                                                    uint8_t *space)
{
    const int64_t t = blockIdx.z;
    const int group = mo_quotient(op.heads, op.kv_heads), parts = mo_quotient(gridDim.y, op.kv_heads);
    const int most = mo_quotient(group + parts - 1, parts);
    const int kv_head = mo_quotient(blockIdx.y, parts), first = (blockIdx.y - kv_head * parts) * most;
    const mo_view v = mo_view_of(op, t, MO_KV_BLOCK); /* a step's places stand from its beginning */
    if ((int)blockIdx.x >= v.chunks || first >= group) {
        mo_grid_begin();
        return;
    }
    mo_planes_few f = mo_planes_few_of(op, kv_head, t * group + first, min(most, group - first), most, space);
    mo_planes_loads<K, V> loads;
    const int64_t begin = (v.chunk + blockIdx.x) * MO_KV_BLOCK;
    f.span = mo_planes_block(op, v.state, kv_head, begin);
    /* What earlier steps left in the cache does not wait for this one's. */
    const bool old = FRESH || begin + MO_KV_BLOCK <= v.old;
    const int from = v.first > begin ? (int)(v.first - begin) : 0;
    const int to = (int)min((int64_t)MO_KV_BLOCK, v.end - begin);
    if (old) {
        mo_planes_ask<K, V>(f, from, to, &loads);
    }
    planes_fresh r;
    if constexpr (FRESH) {
        r = planes_fresh_of(v, t, kv_head, begin, begin + MO_KV_BLOCK);
        r.writes = r.writes && first == 0;
        chunk_fresh<K>(*fresh, &r, v, &f, begin, space + mo_planes_lay(K, V, 0, most).bytes);
    } else {
        mo_grid_begin();
        if (!old) {
            mo_planes_ask<K, V>(f, from, to, &loads);
        }
    }
    if ((int)threadIdx.x < f.rows) {
        f.from[threadIdx.x] = from;
        f.to[threadIdx.x] = to;
    }
    if (op.chunks == 1) {
        mo_planes_begin(op, f);
    }
    if constexpr (!FRESH) {
        mo_planes_queries<K>(op, f);
    }
    __syncthreads();
    if constexpr (FRESH) { /* keys and values that were made here take their places */
        planes_fresh_load<K>(r, begin, f.span.planes, &loads);
    }
    mo_planes_run<K, V, FRESH>(op, f, loads);
    chunk_leave<V>(op, f, t);
}

/* ---- Chunk after chunk: blocks (some chunks, KV head and part of its queries, token) ----------- */

/* The part of the heads in such a block. */
template <int D>
static __device__ __forceinline__ void stream_fresh(const mo_cuda_fresh &op, planes_fresh *r,
                                                    const mo_view &v, const mo_planes_few &f, uint8_t *late)
{
    planes_fresh_at(r, mo_fresh_lay(D, op.heads.n_rot, op.most, false), op.most, f.weights, late);
    planes_fresh_expect<D>(op.heads, *r, f);
    mo_grid_begin();
    __syncthreads();
    planes_fresh_make<D>(op.heads, *r, v.state, f);
}

/* All chunks of a block; queries are there. r: what the step adds to them, or NULL. */
template <int D, int SLOTS>
static __device__ __forceinline__ void stream_chunks(const mo_op_attend &op, const planes_stream<D, SLOTS> &s,
                                                     const planes_fresh *fresh, const mo_view &v, int64_t t,
                                                     int chunk, mo_planes_few f)
{
    const int warp = threadIdx.x / 32, planes = mo_kv_planes(op.kv); /* a warp has rows warp and warp + 8 */
    const mo_planes_query queries[2] = {mo_planes_query_of(f.s[warp], op.scale),
                                        mo_planes_query_of(f.s[warp + 8], op.scale)};
    for (int c = 0; c < s.count; c++) {
        const int64_t begin = s.begin + (int64_t)c * MO_KV_BLOCK;
        const partials out = partials_of(op, t, mo_planes_head(f, 0), chunk + c);
        uint8_t *keys = stream_wait<SLOTS - 2>(s, 2 * c);
        if (fresh) {
            planes_fresh_copy<D>(*fresh, begin, planes, false, keys);
        }
        stream_scores<D>(f, keys, (const float *)(keys + planes_stream<D, SLOTS>::CODES));
        if ((int)threadIdx.x < f.rows) {
            f.from[threadIdx.x] = v.first > begin ? (int)(v.first - begin) : 0;
            f.to[threadIdx.x] = (int)min((int64_t)MO_KV_BLOCK, v.end - begin);
        }
        __syncthreads(); /* scores are ready; all are done with the keys, and with the previous values */
        if (c > 0) {
            stream_bring(op, s, 2 * c - 1 + SLOTS);
        }
        stream_bring(op, s, 2 * c + SLOTS);
        uint8_t *values = stream_wait<SLOTS - 1>(s, 2 * c + 1);
        if (fresh) {
            planes_fresh_copy<D>(*fresh, begin, planes, true, values);
        }
        f.span.value_scales = (const float *)(values + planes_stream<D, SLOTS>::CODES);
        MO_UNROLL()
        for (int i = 0; i < 2; i++) {
            const int r = warp + 8 * i;
            if (r < f.rows) {
                mo_planes_weights<true>(f, queries[i], r);
            }
            if (r < f.rows && (threadIdx.x & 31) == 0) {
                leave_factors(f, partials_of(op, t, mo_planes_head(f, r), chunk + c), r);
            }
        }
        __syncthreads(); /* weights are there */
        stream_values<D>(f, values, out.sums, (int64_t)op.chunks * D);
    }
}

template <int D, bool FRESH = false>
static __device__ __forceinline__ void planes_chunks(const mo_op_attend &op, const mo_cuda_fresh *fresh,
                                                     uint8_t *space)
{
    constexpr int SLOTS = MO_PLANES_SLOTS(D);
    const int64_t t = blockIdx.z;
    const int group = mo_quotient(op.heads, op.kv_heads), parts = mo_quotient(gridDim.y, op.kv_heads);
    const int most = mo_quotient(group + parts - 1, parts);
    const mo_planes_stream_scratch lay = mo_planes_stream_lay(D, most);
    const int kv_head = mo_quotient(blockIdx.y, parts), row = (blockIdx.y - kv_head * parts) * most;
    const mo_view v = mo_view_of(op, t, MO_KV_BLOCK);
    const int per = mo_quotient(v.chunks + gridDim.x - 1, gridDim.x), chunk = blockIdx.x * per;
    planes_stream<D, SLOTS> s;
    s.state = v.state;
    s.begin = (v.chunk + chunk) * MO_KV_BLOCK;
    s.count = min(per, v.chunks - chunk);
    s.kv_head = kv_head;
    s.slots = space + lay.slots;
    s.gates = (uint64_t *)(space + lay.gates);
    if (s.count <= 0 || row >= group) {
        mo_grid_begin();
        return;
    }
    mo_planes_few f;
    f.kv_head = kv_head;
    f.group = group;
    f.rows = min(most, group - row);
    f.first = t * group + row;
    f.q = space + lay.q;
    f.weights = space + lay.weights;
    f.scores = (float *)(space + lay.scores);
    mo_planes_state_at(&f, (float *)(space + lay.state));
    for (int i = 0; i < SLOTS; i++) {
        planes_gate_at(s.gates + i);
        planes_clear_low(op, stream_slot(s, i), MO_KV_BLOCK * D);
    }
    __syncthreads();
    /* What earlier steps left in the cache does not wait for this one's. */
    const int old = (int)max((int64_t)0, min((v.old - s.begin) / MO_KV_BLOCK, (int64_t)s.count));
    const int early = FRESH ? SLOTS : min(2 * old, SLOTS);
    for (int i = 0; i < early; i++) {
        stream_bring(op, s, i);
    }
    planes_fresh r;
    if constexpr (FRESH) {
        r = planes_fresh_of(v, t, kv_head, s.begin, s.begin + (int64_t)s.count * MO_KV_BLOCK);
        r.writes = r.writes && row == 0;
        stream_fresh<D>(*fresh, &r, v, f, space + lay.bytes);
    } else {
        mo_grid_begin();
        for (int i = early; i < SLOTS; i++) {
            stream_bring(op, s, i);
        }
        mo_planes_queries<D>(op, f);
    }
    __syncthreads();
    stream_chunks<D, SLOTS>(op, s, FRESH ? &r : NULL, v, t, chunk, f);
}

#endif
