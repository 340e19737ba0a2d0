/* Cache: the KV cache of one layer and session, as kernels see it. */
#ifndef MO_DEVICE_CUDA_CACHE_CUH
#define MO_DEVICE_CUDA_CACHE_CUH

#include "device/cuda/attend_scratch.h"
#include "device/cuda/row.cuh"

/* Where the block of position u begins. The table stands from the beginning of a step. Every look into memory is half a
 * microsecond that one token's attention waits, so the table is asked only where it has to be. */
static __device__ __forceinline__ uint8_t *mo_cache_block(const mo_dstate &state, int64_t u)
{
    const int64_t entry = mo_kv_entry(u, state.length);
    return mo_at<uint8_t>(state.stride ? state.first + entry * state.stride
                                       : mo_at<const mo_daddr>(state.blocks)[entry]);
}

/* The keys and values of one KV head in a chunk, which has two blocks. Few registers: kernels hold it while they work. */
typedef struct mo_cache_span {
    const uint8_t *keys; /* the head's first in the first block */
    int values;          /* bytes from them to its values */
    int64_t
        jump; /* for positions of the second block: bytes to add to where they were if it followed the first */
} mo_cache_span;

/* For the chunk that begins at `begin` and has `count` positions. */
static __device__ __forceinline__ mo_cache_span mo_cache_chunk(const mo_op_attend &op, const mo_dstate &state,
                                                               int kv_head, int64_t begin, int64_t count)
{
    const mo_kv_shape shape = mo_cache_shape(op.kv, op.kv_heads, op.k_len, op.v_len, op.tail);
    const uint8_t *first = mo_cache_block(state, begin);
    mo_cache_span s;
    s.keys = first + mo_kv_keys_at(shape, kv_head);
    s.values = (int)(mo_kv_values_at(shape, kv_head) - mo_kv_keys_at(shape, kv_head));
    s.jump = count > MO_KV_BLOCK ? mo_cache_block(state, begin + MO_KV_BLOCK) - first -
                                       MO_KV_BLOCK * mo_cache_bytes(op.kv, op.k_len)
                                 : 0;
    return s;
}

/* From where the keys of the block of position u of the chunk are counted: position w of the same block has its own w * bytes
 * further, w as u counted from the beginning of the chunk. */
static __device__ __forceinline__ const uint8_t *mo_span_keys(const mo_cache_span &s, int u)
{
    return u < MO_KV_BLOCK ? s.keys : s.keys + s.jump;
}
/* The same for its values; longer: bytes that a key has more than a value. */
static __device__ __forceinline__ const uint8_t *mo_span_values(const mo_cache_span &s, int u, int longer)
{
    return (u < MO_KV_BLOCK ? s.keys : s.keys + s.jump + MO_KV_BLOCK * longer) + s.values;
}

/* A token's query head among all, in rows of k_len values (twice that with gates); and where its result goes: the row of mixed, and the
 * first column there. Of latent rows they are head by head. */
static __device__ __forceinline__ int64_t mo_query_row(const mo_op_attend &op, int64_t t, int head)
{
    return op.tail ? head * op.between + t : t * op.heads + head;
}
static __device__ __forceinline__ int64_t mo_mixed_row(const mo_op_attend &op, int64_t t, int head)
{
    return op.tail ? head * op.between + t : t;
}
static __device__ __forceinline__ int mo_mixed_column(const mo_op_attend &op, int head)
{
    return op.tail ? 0 : head * op.v_len;
}

/* What a token's queries are multiplied by; times 1 changes no bit. */
static __device__ __forceinline__ float mo_query_factor(mo_daddr q_factor, int64_t t)
{
    return q_factor ? mo_at<const float>(q_factor)[t] : 1.0f;
}

/* How many positions behind its own a token sees: those of its picture, in a layer with a window. */
static __device__ __forceinline__ int64_t mo_seen_ahead(int64_t window, const mo_dplace &place)
{
    return window ? place.ahead : 0;
}

/* The first position that a token sees. */
static __device__ __forceinline__ int64_t mo_first_seen(int64_t window, int64_t position)
{
    return window && position >= window ? position - window + 1 : 0;
}

/* ---- Writing, by one warp ---- */

/* False when a value is not finite. */
static __device__ __forceinline__ bool mo_cache_write(const float *x, int n, uint8_t *out)
{
    bool bad = false;
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        bad |= mo_not_finite(x[i]);
        ((float *)out)[i] = x[i];
    }
    return __ballot_sync(MO_FULL, bad) == 0;
}

#endif
