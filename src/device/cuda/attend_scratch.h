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
    s.index = 0; /* behind what attention reads */
    s.shared = false;
    return s;
}

/* a / b of whole numbers below 2^22, b > 0. One token's attention is short and its code comes from far away, because weights
 * have displaced it: an exact division is some twenty instructions, this one half of that. The quotient of floats is off by
 * less than one. */
MO_ANYWHERE int mo_quotient(int a, int b)
{
#if defined(__CUDA_ARCH__) && !defined(MO_CUDA_EMULATED)
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
    int values, p, o, m, l;
    int O, M, L; /* what chunks before have left */
    int bytes;
} mo_chunk_scratch;

MO_ANYWHERE mo_chunk_scratch mo_chunk_lay(const mo_op_attend *o, int piece)
{
    const int queries = mo_chunk_queries_most(o);
    mo_chunk_scratch r;
    r.values = 0;
    r.p = (piece * mo_chunk_value_bytes(o) + 15) / 16 * 16;
    r.o = r.p + queries * MO_CHUNK_LENGTH * 4;
    r.m = r.o + queries * o->v_len * 4;
    r.l = r.m + queries * 4;
    r.O = r.l + queries * 4;
    r.M = r.O + queries * o->v_len * 4;
    r.L = r.M + queries * 4;
    r.bytes = r.L + queries * 4;
    return r;
}

#endif
