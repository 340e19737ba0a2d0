/* Attend scratch: how the attention kernels divide their work and the shared memory of a block, counted alike by the
 * kernels and by those who launch them. */
#ifndef MO_DEVICE_CUDA_ATTEND_SCRATCH_H
#define MO_DEVICE_CUDA_ATTEND_SCRATCH_H

#include <stdbool.h>

#include "device/op.h"
#include "moraine.h"
#include "numeric/kv.h"

enum {
    MO_CHUNK_LENGTH = MO_CHUNK,
    MO_CHUNK_THREADS = 256,
    MO_CHUNK_QUERIES = 8,        /* most queries of a block: one warp makes the weights of each */
    MO_CHUNK_OUTPUTS = 2048,     /* most values of their results, unless one query alone has more */
    MO_CHUNK_SMALL = 32 * 1024,  /* bytes of values that a block holds on every GPU */
    MO_CHUNK_LARGE = 128 * 1024, /* and where there is much shared memory */
    MO_TILE_THREADS = 256,
    MO_TILE_KEYS = 64, /* positions whose keys or values are held at once */
    MO_TILE_SCORES =
        MO_CHUNK_LENGTH + 4, /* floats from one row of scores to the next: rows begin in other banks */
};

/* Shared memory that a block may have. */
MO_ANYWHERE int mo_attend_shared(int compute)
{
    if (compute < 80) {
        return 64 * 1024;
    }
    /* 86, 89 and 120: for desktop computers; 80, 87, 90 and 100 have more. */
    return compute == 86 || compute == 89 || compute >= 110 ? 99 * 1024 : 160 * 1024;
}

/* Bytes of one head's vector of n values. */
MO_ANYWHERE int mo_cache_bytes(int kv, int n)
{
    return (int)mo_kv_bytes(kv, n);
}

/* What a block of the op's cache holds. */
MO_ANYWHERE mo_kv_shape mo_cache_shape(int kv, int kv_heads, int k_len, int v_len, int tail)
{
    mo_kv_shape s;
    s.type = kv;
    s.heads = kv_heads;
    s.k_len = k_len;
    s.v_len = v_len;
    s.tail = tail;
    return s;
}

/* a / b of whole numbers below 2^22, b > 0. One token's attention is short and its code comes from far away, because weights
 * have displaced it: an exact division is some twenty instructions, this one half of that. The quotient of floats is off by
 * less than one. */
MO_ANYWHERE int mo_quotient(int a, int b)
{
#ifdef __CUDA_ARCH__
    int q = (int)__fdividef((float)a, (float)b);
    q -= q * b > a;
    return q + ((q + 1) * b <= a);
#else
    return a / b;
#endif
}

/* Queries of one KV head that a block takes at most. */
MO_ANYWHERE int mo_chunk_queries_most(const mo_op_attend *o)
{
    const int group = mo_quotient(o->heads, o->kv_heads), outputs = mo_quotient(MO_CHUNK_OUTPUTS, o->v_len);
    const int fit = outputs < 1 ? 1 : outputs;
    const int most = fit < MO_CHUNK_QUERIES ? fit : MO_CHUNK_QUERIES;
    return group < most ? group : most;
}

/* Bytes from one value to the next: those of latent rows are in their keys. */
MO_ANYWHERE int mo_chunk_value_bytes(const mo_op_attend *o)
{
    return mo_cache_bytes(o->kv, o->tail ? o->k_len : o->v_len);
}

/* Positions whose values are held at once. */
MO_ANYWHERE int mo_chunk_piece(const mo_op_attend *o, int bytes)
{
    int piece = MO_CHUNK_LENGTH;
    while (piece > 4 && piece * mo_chunk_value_bytes(o) > bytes) {
        piece /= 2;
    }
    return piece;
}

/* Where the arrays of a block begin, in bytes. */
typedef struct mo_chunk_scratch {
    int values, q_codes, q_scales, p, o, m, l;
    int O, M, L; /* what chunks before have left */
    int bytes;
} mo_chunk_scratch;

MO_ANYWHERE mo_chunk_scratch mo_chunk_lay(const mo_op_attend *o, int piece)
{
    const int queries = mo_chunk_queries_most(o);
    const int codes = o->kv == MO_KV_Q8_0 ? queries * ((o->k_len + 31) / 32) : 0;
    mo_chunk_scratch r;
    r.values = 0;
    r.p = (piece * mo_chunk_value_bytes(o) + 15) / 16 * 16;
    r.q_codes = r.p + queries * MO_CHUNK_LENGTH * 4;
    r.q_scales = r.q_codes + codes * 32;
    r.o = r.q_scales + codes * 4;
    r.m = r.o + queries * o->v_len * 4;
    r.l = r.m + queries * 4;
    r.O = r.l + queries * 4;
    r.M = r.O + queries * o->v_len * 4;
    r.L = r.M + queries * 4;
    r.bytes = r.L + queries * 4;
    return r;
}

/* The same of a tile of `rows` queries with keys and values of `length` values. */
typedef struct mo_tile_scratch {
    int q, q_scales, cache, cache_scales, scores, state;
    int bytes;
} mo_tile_scratch;

enum { MO_TILE_STATE = 7 }; /* words per row: M, L, a, b, from, to, what to do */

MO_ANYWHERE mo_tile_scratch mo_tile_lay(int rows, int length)
{
    mo_tile_scratch r;
    r.q = 0;
    r.q_scales =
        length / 4 * rows * 4; /* codes need a quarter of the bytes of floats: scales have a place behind */
    r.cache = length * rows * 4;
    r.cache_scales = r.cache + length / 4 * MO_TILE_KEYS * 4;
    r.scores = r.cache + length * MO_TILE_KEYS * 4;
    r.state = r.scores + rows * MO_TILE_SCORES * 4;
    r.bytes =
        r.state + rows * MO_TILE_STATE * 4 + rows * 12; /* positions and slices of at most as many tokens */
    return r;
}

/* Rows of a tile by the length of heads and the shared memory there is; 0: no tiles. */
MO_ANYWHERE int mo_tile_rows(const mo_op_attend *o, int shared_limit)
{
    const int group = o->heads / o->kv_heads;
    if (o->k_len != o->v_len || (o->k_len != 64 && o->k_len != 128 && o->k_len != 256)) {
        return 0;
    }
    for (int rows = o->k_len == 256 ? 32 : 64; rows >= 32; rows /= 2) {
        const bool known = rows == 64 || o->k_len > 64;
        if (known && group <= rows && mo_tile_lay(rows, o->k_len).bytes <= shared_limit) {
            return rows;
        }
    }
    return 0;
}

#endif
