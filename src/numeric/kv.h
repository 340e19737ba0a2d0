/* KV: the cache of keys and values, as memory. It comes in blocks of 128 positions behind a table of addresses; what
 * is where inside a block is known here alone, and everybody else asks: the CPU's kernels, the states of sessions,
 * and the kernels of a GPU, which is why this header is plain C that CUDA understands.
 *
 * A block holds the keys of its positions, one KV head after the other, then their values likewise:
 *   keys[heads][128][bytes of a key], values[heads][128][bytes of a value]
 * A head's keys of one block therefore follow each other, and so do its values, at multiples of 128 bytes. Q8_0: a
 * vector is a row of blocks of 32 values, the last may be shorter: an f16 scale, then the codes. */
#ifndef MO_NUMERIC_KV_H
#define MO_NUMERIC_KV_H

#include "moraine.h"
#include "numeric/half.h"

enum {
    MO_KV_BLOCK = 128, /* positions of a block */
    MO_KV_TYPES = MO_KV_Q8_0 + 1,
    MO_CHUNK =
        256, /* positions of one attention chunk (docs/numerics.md); chunks start at position 0 of the text */
};

/* Bytes of one head's vector of n values in a format (mo_kv_type). */
MO_ANYWHERE int mo_kv_bytes(int type, int n)
{
    return type == MO_KV_F32 ? 4 * n : type == MO_KV_F16 ? 2 * n : n + 2 * ((n + 31) / 32);
}

/* What the blocks of a layer hold. */
typedef struct mo_kv_shape {
    int type; /* mo_kv_type */
    int heads;
    int k_len, v_len; /* values of a key, of a value */
} mo_kv_shape;

MO_ANYWHERE int64_t mo_kv_block_bytes(mo_kv_shape s)
{
    return (int64_t)MO_KV_BLOCK * s.heads * (mo_kv_bytes(s.type, s.k_len) + mo_kv_bytes(s.type, s.v_len));
}

/* Where a head's first key and first value are in a block; the next position's is mo_kv_bytes() further. Plain ints, as are
 * the bytes of a vector: a block has some hundred kilobytes, and every instruction more delays a GPU's attention. */
MO_ANYWHERE int mo_kv_keys_at(mo_kv_shape s, int head)
{
    return MO_KV_BLOCK * head * mo_kv_bytes(s.type, s.k_len);
}
MO_ANYWHERE int mo_kv_values_at(mo_kv_shape s, int head)
{
    return MO_KV_BLOCK * (s.heads * mo_kv_bytes(s.type, s.k_len) + head * mo_kv_bytes(s.type, s.v_len));
}

/* Entries of the table of a layer for `context` positions in steps of at most `batch` tokens. A window keeps what
 * the oldest query of a step may see, in whole chunks: so a chunk's two blocks are neighbours in the table. */
MO_ANYWHERE int64_t mo_kv_table_length(int64_t context, int64_t window, int64_t batch)
{
    const int64_t kept = (window + batch + MO_CHUNK - 1) / MO_CHUNK * MO_CHUNK;
    return ((window && kept < context ? kept : context) + MO_KV_BLOCK - 1) / MO_KV_BLOCK;
}

/* The entry of position u in a table of `length`: where there are more positions than it has space for, it is
 * circular. */
MO_ANYWHERE int64_t mo_kv_entry(int64_t u, int64_t length)
{
    uint32_t block = (uint32_t)((uint64_t)u / MO_KV_BLOCK);
    if (block >= (uint32_t)length) {
        block %= (uint32_t)length;
    }
    return block;
}

#ifndef __cplusplus
/* One KV head over positions 0.. of a sequence, for the CPU's kernels. */
typedef struct mo_kv_head {
    mo_kv_type type;
    int64_t k_len, v_len;     /* values of a key, of a value */
    int64_t k_bytes, v_bytes; /* from one position to the next inside a block */
    int64_t k_at, v_at;       /* the head's first key and value in a block */
    uint8_t *const *blocks;   /* the layer's table */
    int64_t length;           /* of the table */
} mo_kv_head;

static inline mo_kv_head mo_kv_head_of(mo_kv_shape s, int head, uint8_t *const *blocks, int64_t length)
{
    return (mo_kv_head){.type = (mo_kv_type)s.type,
                        .k_len = s.k_len,
                        .v_len = s.v_len,
                        .k_bytes = mo_kv_bytes(s.type, s.k_len),
                        .v_bytes = mo_kv_bytes(s.type, s.v_len),
                        .k_at = mo_kv_keys_at(s, head),
                        .v_at = mo_kv_values_at(s, head),
                        .blocks = blocks,
                        .length = length};
}

/* The key, or value, of position u; those of the positions after it follow as far as the block goes. */
static inline uint8_t *mo_kv_key(const mo_kv_head *kv, int64_t u)
{
    return kv->blocks[mo_kv_entry(u, kv->length)] + kv->k_at + u % MO_KV_BLOCK * kv->k_bytes;
}
static inline uint8_t *mo_kv_value(const mo_kv_head *kv, int64_t u)
{
    return kv->blocks[mo_kv_entry(u, kv->length)] + kv->v_at + u % MO_KV_BLOCK * kv->v_bytes;
}

/* Positions from u on that are in u's block. */
static inline int64_t mo_kv_run(int64_t u)
{
    return MO_KV_BLOCK - u % MO_KV_BLOCK;
}
#endif

#endif
