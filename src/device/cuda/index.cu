/* Indexers of sparse attention: their queries and keys, the scores of all positions, the best of these, and a cache that has these alone. */
#include "device/cuda/cache.cuh"
#include "device/cuda/index.h"
#include "device/cuda/tall.cuh"

/* A token's block of position u, and its dstate. */
static __device__ __forceinline__ mo_dstate state_of(const mo_dplace &place, int layer)
{
    return mo_at<const mo_dstate>(place.layers)[layer];
}

static __device__ __forceinline__ mo_kv_shape shape_of(int kv, int k_len, int v_len, int tail)
{
    return mo_cache_shape(kv, 1, k_len, v_len, tail);
}

/* ---- Queries and keys ------------------------------------------------------------------------- */

/* The first n values of a row in place, by one warp. */
static __device__ __forceinline__ void rotate(float *x, int n, bool neox, const float *c, const float *s)
{
    for (int p = threadIdx.x & 31; p < n / 2; p += 32) {
        const int i = neox ? p : 2 * p, j = neox ? p + n / 2 : 2 * p + 1;
        const float a = x[i], b = x[j];
        x[i] = fmaf(a, c[p], -(b * s[p]));
        x[j] = fmaf(a, s[p], b * c[p]);
    }
    __syncwarp();
}

/* LayerNorm with a bias, rotation, cache. */
static __device__ __forceinline__ void prepare_key(const mo_op_index &op, int64_t t, const float *c,
                                                   const float *s)
{
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    const int n = op.length, u = (int)(place.position % MO_KV_BLOCK);
    uint8_t *block = mo_cache_block(state_of(place, op.layer), place.position);
    float *key = mo_at<float>(op.k) + t * n;
    const float *w = mo_at<const float>(op.norm), *bias = mo_at<const float>(op.bias);
    const float mean = mo_value_sum(key, n) / (float)n;
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        key[i] = key[i] - mean;
    }
    __syncwarp();
    const float r = mo_norm_factor(mo_square_sum(key, n), n, 1e-6f);
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        key[i] = (key[i] * r) * w[i] + bias[i];
    }
    __syncwarp();
    rotate(key, op.n_rot, op.neox, c, s);
    uint8_t *out = block + mo_kv_index_at(shape_of(op.kv, op.k_len, op.v_len, op.tail)) + u * (4 * n);
    if (!mo_cache_write(key, n, out) && op.bad) {
        *mo_at<volatile uint32_t>(op.bad) = 1;
    }
}

/* Warps of a token: its queries, then its key. */
MO_KERNEL(mo_index, mo_op_index)
{
    const unsigned warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, vectors = (unsigned)op.heads + 1;
    const unsigned token = warp / vectors;
    const int which = (int)(warp - token * vectors);
    mo_grid_begin();
    if ((int)token >= op.tokens) {
        return;
    }
    const float *c = mo_at<const float>(op.rope) + token * op.rope_stride,
                *s = c + op.rope_rows * op.rope_stride;
    if (which == op.heads) {
        prepare_key(op, token, c, s);
        return;
    }
    const int64_t row = (int64_t)token * op.heads + which;
    rotate(mo_at<float>(op.q) + row * op.length, op.n_rot, op.neox, c, s);
    if ((threadIdx.x & 31) == 0) {
        float *share = mo_at<float>(op.share) + row;
        *share = *share * op.scale;
    }
}

/* ---- Scores ----------------------------------------------------------------------------------- */

/* A thread has a position: all 32 lanes of the definition's dot product, and their tree. */
static __device__ __forceinline__ float dot(const float *q, const float *key, int n)
{
    float lane[32];
    MO_UNROLL()
    for (int i = 0; i < 32; i++) {
        lane[i] = 0.0f;
    }
    int at = 0;
    for (; at + 32 <= n; at += 32) {
        MO_UNROLL()
        for (int i = 0; i < 32; i++) {
            lane[i] = fmaf(q[at + i], key[at + i], lane[i]);
        }
    }
    MO_UNROLL()
    for (int i = 0; i < 32; i++) {
        if (at + i < n) {
            lane[i] = fmaf(q[at + i], key[at + i], lane[i]);
        }
    }
    MO_UNROLL()
    for (int s = 16; s >= 1; s /= 2) {
        MO_UNROLL()
        for (int i = 0; i < 16; i++) {
            lane[i] = i < s ? lane[i] + lane[i + s] : lane[i];
        }
    }
    return lane[0];
}

/* Blocks (some positions, token). The keys come to shared memory in order; a thread then reads its own. */
MO_KERNEL(mo_keep_scores, mo_op_keep)
{
    MO_DYNAMIC_SHARED(space);
    const int64_t t = mo_grid_row(), first = (int64_t)blockIdx.x * MO_INDEX_POSITIONS;
    const int n = op.length;
    mo_grid_begin();
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    if (place.position < op.top || first > place.position) {
        return;
    }
    const int64_t left = place.position + 1 - first;
    const int count = left < MO_INDEX_POSITIONS ? (int)left : MO_INDEX_POSITIONS;
    const uint8_t *block = mo_cache_block(state_of(place, op.layer), first);
    const float *keys =
        (const float *)(block + mo_kv_index_at(shape_of(op.kv, op.k_len, op.v_len, op.tail))) +
        first % MO_KV_BLOCK * n;
    const float *key = keys + threadIdx.x * n;
    if (mo_index_staged(n)) {
        float *staged = (float *)space;
        for (int i = threadIdx.x; i < count * n; i += MO_INDEX_POSITIONS) {
            staged[i / n * (n + 1) + i % n] = keys[i];
        }
        __syncthreads();
        key = staged + threadIdx.x * (n + 1);
    }
    if ((int)threadIdx.x >= count) {
        return;
    }
    const float *q = mo_at<const float>(op.q) + t * op.heads * n,
                *share = mo_at<const float>(op.share) + t * op.heads;
    float score = 0.0f;
    for (int h = 0; h < op.heads; h++) {
        const float product = dot(q + (int64_t)h * n, key, n);
        score = fmaf(share[h], product > 0.0f ? product : 0.0f, score);
    }
    mo_at<float>(op.scores)[t * op.stride + first + threadIdx.x] = score;
}

/* ---- The best --------------------------------------------------------------------------------- */

/* As rank_of() in numeric/index.c. */
static __device__ __forceinline__ uint32_t rank_of(float score)
{
    const float x = score + 0.0f;
    const uint32_t bits = __float_as_uint(x);
    return x != x ? 0u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The rank that the last of the best has, byte by byte, and how many are above it. One block of threads. */
static __device__ __forceinline__ uint32_t floor_of(const float *scores, int64_t n, int32_t most,
                                                    int32_t *counts, uint32_t *found, int32_t *above)
{
    uint32_t prefix = 0, known = 0;
    int32_t left = most;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += MO_INDEX_CHOOSERS) {
            counts[i] = 0;
        }
        __syncthreads();
        for (int64_t i = threadIdx.x; i < n; i += MO_INDEX_CHOOSERS) {
            const uint32_t rank = rank_of(scores[i]);
            if ((rank & known) == prefix) {
                atomicAdd(&counts[rank >> shift & 255], 1);
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            uint32_t digit = 255;
            for (; digit > 0 && counts[digit] < left; digit--) {
                left -= counts[digit];
            }
            *found = prefix | digit << shift;
            *above = left;
        }
        __syncthreads();
        prefix = *found;
        left = *above;
        known |= 255u << shift;
        __syncthreads();
    }
    return prefix;
}

/* A block of threads for a token. */
MO_KERNEL(mo_keep_best, mo_op_keep)
{
    __shared__ int32_t counts[256], above_of[MO_INDEX_CHOOSERS / 32], equal_of[MO_INDEX_CHOOSERS / 32];
    __shared__ uint32_t found;
    __shared__ int32_t left;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const int64_t t = blockIdx.x;
    mo_grid_begin();
    const int64_t position = mo_at<const mo_dplace>(op.places)[t].position, n = position + 1;
    if (position < op.top) {
        return;
    }
    const float *scores = mo_at<const float>(op.scores) + t * op.stride;
    int32_t *kept = mo_at<int32_t>(op.kept) + t * op.top;
    const uint32_t floor = floor_of(scores, n, op.top, counts, &found, &left);
    const int32_t wanted = left; /* of those that are equal to it, the first */
    int32_t above = 0, equal = 0;
    for (int64_t first = 0; first < n; first += MO_INDEX_CHOOSERS) {
        const int64_t u = first + threadIdx.x;
        const uint32_t rank = u < n ? rank_of(scores[u]) : 0;
        const bool higher = u < n && rank > floor, same = u < n && rank == floor;
        const uint32_t high = __ballot_sync(MO_FULL, higher), even = __ballot_sync(MO_FULL, same);
        if (lane == 0) {
            above_of[warp] = __popc(high);
            equal_of[warp] = __popc(even);
        }
        __syncthreads();
        int32_t above_here = above, equal_here = equal;
        for (int w = 0; w < MO_INDEX_CHOOSERS / 32; w++) {
            above_here += w < warp ? above_of[w] : 0;
            equal_here += w < warp ? equal_of[w] : 0;
            above += above_of[w];
            equal += equal_of[w];
        }
        above_here += __popc(high & ((1u << lane) - 1));
        equal_here += __popc(even & ((1u << lane) - 1));
        if (higher || (same && equal_here < wanted)) {
            kept[above_here + (equal_here < wanted ? equal_here : wanted)] = (int32_t)u;
        }
        __syncthreads();
    }
}

/* ---- A cache of these ------------------------------------------------------------------------- */

/* Of codes: units of both planes, and the two scales. By one warp. */
static __device__ __forceinline__ void copy_codes(const mo_kv_shape &shape, const uint8_t *from, int u,
                                                  uint8_t *to, int place)
{
    const int units = mo_kv_planes(shape.type) * mo_kv_plane(shape.k_len, shape.tail) / MO_KV_UNIT,
              keys = mo_kv_keys_at(shape, 0), lane = threadIdx.x & 31;
    for (int i = lane; i < units; i += 32) {
        const int unit = keys + i * (MO_KV_UNIT * MO_KV_BLOCK);
        *(uint4 *)(to + unit + place * MO_KV_UNIT) = *(const uint4 *)(from + unit + u * MO_KV_UNIT);
    }
    if (lane < 2) {
        const int scales = lane ? mo_kv_value_scales_at(shape, 0) : mo_kv_key_scales_at(0);
        *(float *)(to + scales + 4 * place) = *(const float *)(from + scales + 4 * u);
    }
}

/* The token's place and, where some positions are kept, its table. By the first block of the token. */
static __device__ __forceinline__ void put_place(const mo_op_gather &op, int64_t t, const mo_dplace &place,
                                                 int count, int64_t bytes)
{
    const bool some = place.position >= op.top;
    const mo_daddr first = op.blocks + (mo_daddr)(t * count * bytes),
                   table = op.tables + (mo_daddr)(t * count) * sizeof(mo_daddr);
    for (int i = threadIdx.x; some && i < count; i += blockDim.x) {
        mo_at<mo_daddr>(table)[i] = first + (mo_daddr)(i * bytes);
    }
    if (threadIdx.x == 0) {
        mo_dstate state = state_of(place, op.layer);
        mo_dplace out = place;
        if (some) {
            state.blocks = table;
            state.length = count;
            state.first = first;
            state.stride = bytes;
            state.conv = 0;
            state.delta = 0;
            out.position = op.top - 1;
        }
        out.layers = op.states + (mo_daddr)t * sizeof(mo_dstate);
        mo_at<mo_dstate>(op.states)[t] = state;
        mo_at<mo_dplace>(op.out)[t] = out;
    }
}

/* Blocks (some positions that are kept, token), a warp for each. */
MO_KERNEL(mo_gather_kept, mo_op_gather)
{
    const int64_t t = mo_grid_row();
    const int i = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32),
              count = (op.top + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
    const mo_kv_shape shape = shape_of(op.kv, op.k_len, op.v_len, op.tail);
    const int64_t bytes = mo_kv_block_bytes(shape);
    mo_grid_begin();
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    if (blockIdx.x == 0) {
        put_place(op, t, place, count, bytes);
    }
    if (place.position < op.top || i >= op.top) {
        return;
    }
    const int64_t u = mo_at<const int32_t>(op.kept)[t * op.top + i];
    const uint8_t *from = mo_cache_block(state_of(place, op.layer), u);
    uint8_t *to = mo_at<uint8_t>(op.blocks) + (t * count + i / MO_KV_BLOCK) * bytes;
    const int at = (int)(u % MO_KV_BLOCK), in = i % MO_KV_BLOCK;
    if (mo_kv_coded(op.kv)) {
        copy_codes(shape, from, at, to, in);
        return;
    }
    const float *row = (const float *)(from + mo_kv_keys_at(shape, 0)) + at * op.k_len;
    float *out = (float *)(to + mo_kv_keys_at(shape, 0)) + in * op.k_len;
    for (int k = threadIdx.x & 31; k < op.k_len; k += 32) {
        out[k] = row[k];
    }
}
