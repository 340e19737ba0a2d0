/* KV: the layout of the KV cache. It has blocks of 128 positions, found through a table of addresses; the
 * layout of a block is defined only here, for all users: the CPU's kernels, the states of sessions,
 * and the kernels of a GPU, which is why this header is plain C that CUDA understands.
 *
 * A block holds the keys of its positions, one KV head after the other, then their values likewise:
 *   keys[heads][128][bytes of a key], values[heads][128][bytes of a value]
 * A head's keys of one block therefore follow each other, and so do its values, at multiples of 128 bytes.
 *
 * Formats with codes (numeric/codes.h): I16 has codes of 16 bits in two planes of bytes, Q8_0 the plane of high bytes alone; both have
 * one f32 scale per vector. A block begins with the scales,
 *   key_scales[heads][128], value_scales[heads][128],
 * then come the keys of every head and the values of every head, the plane of high bytes before that of low ones. Bytes that
 * one sum runs over are in units of 16, as matrix units want them: a key's unit has 16 of its channels, a value's has one
 * channel of 16 positions, lengths are padded to whole units:
 *   keys[k_len / 16][128][16], values[128 / 16][v_len][16]
 * Inside a value's unit positions are in the order of mo_kv_slot(). What is in the padding, and in the codes and scales of positions
 * that were not written, is undefined.
 *
 * Latent rows: a key has a tail of values, and those before it are the value as well, which is therefore not kept again. Such a block
 * holds keys[heads][128] alone. Codes: value and tail are vectors with codes and scales of their own (a tail may be far larger than the
 * values); the units of the value come first, then the tail's, both as those of keys, and the scales are where those of a value and of a
 * key would be.
 *
 * Shared rows: keys are the values too, which are therefore not kept again; the scales, of codes, are in both places.
 *
 * Layers with an indexer of their own: a block ends with its keys, index[128][values], which are floats in every format. */
#ifndef MO_NUMERIC_KV_H
#define MO_NUMERIC_KV_H

#include <stdbool.h>

#include "moraine.h"
#include "numeric/half.h"

enum {
    MO_KV_BLOCK = 128, /* positions of a block */
    MO_KV_TYPES = MO_KV_Q8_0 + 1,
    MO_KV_UNIT = 16,      /* bytes that a sum of codes takes together */
    MO_KV_LONGEST = 1024, /* values of a vector of codes */
    MO_CHUNK =
        256, /* positions of one attention chunk (docs/numerics.md); chunks start at position 0 of the text */
};

/* Planes of bytes that a format (mo_kv_type) has its codes in; 0: it has floats. */
MO_ANYWHERE int mo_kv_planes(int type)
{
    return type == MO_KV_I16 ? 2 : type == MO_KV_Q8_0 ? 1 : 0;
}
MO_ANYWHERE bool mo_kv_coded(int type)
{
    return type != MO_KV_F32;
}

/* Positions of an attention chunk of a format, and floats of what one leaves for a query head: m, l, o; of codes
 * m, l, r and the sums. */
MO_ANYWHERE int mo_kv_chunk(int type)
{
    return mo_kv_coded(type) ? MO_KV_BLOCK : MO_CHUNK;
}
MO_ANYWHERE int mo_kv_partial(int type, int v_len)
{
    return v_len + (mo_kv_coded(type) ? 3 : 2);
}

/* Bytes of one head's vector of n values in a format; of codes as it is saved: the planes, then the scale. */
MO_ANYWHERE int mo_kv_bytes(int type, int n)
{
    return mo_kv_coded(type) ? mo_kv_planes(type) * n + 4 : 4 * n;
}

/* A length in whole units. */
MO_ANYWHERE int mo_kv_padded(int n)
{
    return (n + MO_KV_UNIT - 1) / MO_KV_UNIT * MO_KV_UNIT;
}

/* Bytes that a head's vectors of n values take in a block, without scales. */
MO_ANYWHERE int mo_kv_area(int type, int n)
{
    return MO_KV_BLOCK * (mo_kv_coded(type) ? mo_kv_planes(type) * mo_kv_padded(n) : mo_kv_bytes(type, n));
}

/* What the blocks of a layer hold. */
typedef struct mo_kv_shape {
    int type; /* mo_kv_type */
    int heads;
    int k_len, v_len; /* values of a key, of a value */
    int index;        /* values of an indexer's key beside them (numeric/index.h); 0: none */
    int tail; /* latent rows: values of a key behind those that are its value too, k_len - v_len; 0: keys and values are apart, */
    bool shared; /* or the same: k_len is v_len */
} mo_kv_shape;

/* Bytes of one plane of a key's codes: a latent row's value and its tail are whole units each. */
MO_ANYWHERE int mo_kv_plane(int k_len, int tail)
{
    return mo_kv_padded(k_len - tail) + mo_kv_padded(tail);
}

/* Bytes that a head's keys, and its values, take in a block, without scales. */
MO_ANYWHERE int mo_kv_key_area(mo_kv_shape s)
{
    return mo_kv_coded(s.type) ? MO_KV_BLOCK * mo_kv_planes(s.type) * mo_kv_plane(s.k_len, s.tail)
                               : mo_kv_area(s.type, s.k_len);
}
MO_ANYWHERE int mo_kv_value_area(mo_kv_shape s)
{
    return s.tail || s.shared ? 0 : mo_kv_area(s.type, s.v_len);
}

/* Where the scales of a head's keys and values are in a block of codes; the next position's is 4 bytes further. */
MO_ANYWHERE int mo_kv_key_scales_at(int head)
{
    return head * MO_KV_BLOCK * 4;
}
MO_ANYWHERE int mo_kv_value_scales_at(mo_kv_shape s, int head)
{
    return (s.heads + head) * MO_KV_BLOCK * 4;
}

/* Bytes of the scales at the beginning of a block. */
MO_ANYWHERE int mo_kv_scale_bytes(mo_kv_shape s)
{
    return mo_kv_coded(s.type) ? 2 * s.heads * MO_KV_BLOCK * 4 : 0;
}

/* Where the keys of the indexer begin in a block, and the bytes of one. */
MO_ANYWHERE int64_t mo_kv_index_at(mo_kv_shape s)
{
    return mo_kv_scale_bytes(s) + (int64_t)s.heads * (mo_kv_key_area(s) + mo_kv_value_area(s));
}
MO_ANYWHERE int mo_kv_index_bytes(mo_kv_shape s)
{
    return 4 * s.index;
}

MO_ANYWHERE int64_t mo_kv_block_bytes(mo_kv_shape s)
{
    return mo_kv_index_at(s) + (int64_t)MO_KV_BLOCK * mo_kv_index_bytes(s);
}

/* Where a head's keys and values are in a block; but for codes the next position's is mo_kv_bytes() further. Plain ints, as are
 * the bytes of a vector: a block has some hundred kilobytes, and every instruction more delays a GPU's attention. */
MO_ANYWHERE int mo_kv_keys_at(mo_kv_shape s, int head)
{
    return mo_kv_scale_bytes(s) + head * mo_kv_key_area(s);
}
MO_ANYWHERE int mo_kv_values_at(mo_kv_shape s, int head)
{
    return s.tail || s.shared
               ? mo_kv_keys_at(s, head)
               : mo_kv_scale_bytes(s) + s.heads * mo_kv_key_area(s) + head * mo_kv_value_area(s);
}

/* In a head's keys (values) of codes: the high byte of channel i of position u of the block; the low one, of I16, is
 * MO_KV_BLOCK * mo_kv_padded(length) further. */
MO_ANYWHERE int mo_kv_slot(int u)
{
    return (u >> 1 & 3) * 4 + (u >> 3 & 1) * 2 + (u & 1);
}
MO_ANYWHERE int mo_kv_key_code(int u, int i)
{
    return (i / MO_KV_UNIT * MO_KV_BLOCK + u) * MO_KV_UNIT + i % MO_KV_UNIT;
}
MO_ANYWHERE int mo_kv_value_code(int u, int i, int v_len)
{
    return (u / MO_KV_UNIT * mo_kv_padded(v_len) + i) * MO_KV_UNIT + mo_kv_slot(u);
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
    int64_t k_len, v_len; /* values of a key, of a value */
    int64_t tail;         /* of a latent row; 0: it is none */
    bool shared;
    int64_t k_bytes, v_bytes; /* of a vector: from one position to the next inside a block, but for codes */
    int64_t k_at, v_at;       /* the head's keys and values in a block, */
    int64_t ks_at, vs_at;     /* and their scales (codes) */
    uint8_t *const *blocks;   /* the layer's table */
    int64_t length;           /* of the table */
} mo_kv_head;

static inline mo_kv_head mo_kv_head_of(mo_kv_shape s, int head, uint8_t *const *blocks, int64_t length)
{
    return (mo_kv_head){.type = (mo_kv_type)s.type,
                        .k_len = s.k_len,
                        .v_len = s.v_len,
                        .tail = s.tail,
                        .shared = s.shared,
                        .k_bytes = mo_kv_bytes(s.type, s.tail && mo_kv_coded(s.type) ? s.tail : s.k_len),
                        .v_bytes = mo_kv_bytes(s.type, s.tail && !mo_kv_coded(s.type) ? s.k_len : s.v_len),
                        .k_at = mo_kv_keys_at(s, head),
                        .v_at = mo_kv_values_at(s, head),
                        .ks_at = mo_kv_key_scales_at(head),
                        .vs_at = mo_kv_value_scales_at(s, head),
                        .blocks = blocks,
                        .length = length};
}

static inline uint8_t *mo_kv_block(const mo_kv_head *kv, int64_t u)
{
    return kv->blocks[mo_kv_entry(u, kv->length)];
}

/* The key, or value, of position u, but for codes; those of the positions after it follow as far as the block goes. */
static inline uint8_t *mo_kv_key(const mo_kv_head *kv, int64_t u)
{
    return mo_kv_block(kv, u) + kv->k_at + u % MO_KV_BLOCK * kv->k_bytes;
}
static inline uint8_t *mo_kv_value(const mo_kv_head *kv, int64_t u)
{
    return mo_kv_block(kv, u) + kv->v_at + u % MO_KV_BLOCK * kv->v_bytes;
}

/* Positions from u on that are in u's block. */
static inline int64_t mo_kv_run(int64_t u)
{
    return MO_KV_BLOCK - u % MO_KV_BLOCK;
}

/* A vector of codes between its places in the cache and mo_kv_bytes() bytes in a row: hi[n], of I16 lo[n], the scale. value: of
 * position u's value, otherwise of its key; of a latent row's value, otherwise of its tail. */
void mo_kv_codes_in(const mo_kv_head *kv, int64_t u, bool value, const uint8_t *row);
void mo_kv_codes_out(const mo_kv_head *kv, int64_t u, bool value, uint8_t *row);
#endif

#endif
