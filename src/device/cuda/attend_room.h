/* Attend room: how the attention kernels divide their work and the shared memory of a block, counted alike by the
 * kernels and by those who launch them. */
#ifndef MO_CUDA_ATTEND_ROOM_H
#define MO_CUDA_ATTEND_ROOM_H

#include "device/op.h"
#include "moraine.h"
#include "numeric/half.h" /* MO_ANYWHERE */

enum {
    MO_CHUNK_LENGTH = 256, /* as MO_CHUNK in numeric/kernels.h */
    MO_CHUNK_THREADS = 256,
    MO_CHUNK_QUERIES = 8,           /* most queries of a block: one warp makes the weights of each */
    MO_CHUNK_OUTPUTS = 2048,        /* most values of their results, unless one query alone has more */
    MO_CHUNK_SMALL = 32 * 1024,     /* bytes of values that a block holds on every GPU */
    MO_CHUNK_LARGE = 128 * 1024,    /* and where there is much shared memory */
    MO_TILE_PAD = 4,                /* floats after a row of scores, so that rows begin in other banks */
};

/* As mo_kv_bytes() in numeric/kernels.h. */
MO_ANYWHERE int mo_cache_bytes(int kv, int n)
{
    return kv == MO_KV_F32 ? 4 * n : kv == MO_KV_F16 ? 2 * n : n + 2 * ((n + 31) / 32);
}

/* Queries of one KV head that a block takes at most. */
MO_ANYWHERE int mo_chunk_queries_most(const mo_op_attend *o)
{
    const int group = o->heads / o->kv_heads;
    const int room = MO_CHUNK_OUTPUTS / o->v_len < 1 ? 1 : MO_CHUNK_OUTPUTS / o->v_len;
    const int most = room < MO_CHUNK_QUERIES ? room : MO_CHUNK_QUERIES;
    return group < most ? group : most;
}

/* Positions whose values are held at once. */
MO_ANYWHERE int mo_chunk_piece(const mo_op_attend *o, int bytes)
{
    int piece = MO_CHUNK_LENGTH;
    while (piece > 1 && piece * mo_cache_bytes(o->kv, o->v_len) > bytes) {
        piece /= 2;
    }
    return piece;
}

/* Where the arrays of a block begin, in bytes. */
typedef struct mo_chunk_room {
    int values, q_codes, q_scales, p, o, m, l;
    int O, M, L; /* what chunks before have left */
    int bytes;
} mo_chunk_room;

MO_ANYWHERE mo_chunk_room mo_chunk_lay(const mo_op_attend *o, int piece)
{
    const int queries = mo_chunk_queries_most(o);
    const int codes = o->kv == MO_KV_Q8_0 ? queries * ((o->k_len + 31) / 32) : 0;
    mo_chunk_room r;
    r.values = 0;
    r.p = (piece * mo_cache_bytes(o->kv, o->v_len) + 15) / 16 * 16;
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

#endif
