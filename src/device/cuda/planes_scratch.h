/* Planes scratch: how the kernels of attention by integer sums (kv i16 and q8_0) divide their work and the shared memory of a block, counted
 * alike by the kernels and by those who launch them. */
#ifndef MO_DEVICE_CUDA_PLANES_SCRATCH_H
#define MO_DEVICE_CUDA_PLANES_SCRATCH_H

#include "device/op.h"
#include "numeric/kv.h"

enum {
    MO_PLANES_THREADS = 256,
    MO_PLANES_ROWS = 16, /* queries of a block of few: the rows of one mma */
    MO_PLANES_UNIT =
        16 * 16 + 32, /* bytes from one unit of 16 rows to the next: units begin in other banks */
    MO_PLANES_SCORES = MO_KV_BLOCK + 4,
    MO_PLANES_STATE = 9, /* words per row: g, m, l, r, M, L, from, to, and of a latent row's tail g */
    MO_PLANES_TILE_THREADS = 128,
    MO_PLANES_TILE_ROWS = 64,
    MO_PLANES_WIDE_PART = 128, /* channels of four warps of a tile with long heads */
    MO_PLANES_MERGED = 32,     /* most chunks whose sums come together, */
    MO_PLANES_MERGES = 6,      /* and for how many such pieces there is space */
    MO_PLANES_MERGE_HELP = 64, /* threads in addition to those of the values */
};

/* Where the arrays of a block of few queries begin, in bytes. A warp turns a query in a row of floats where weights, scores and
 * sums will be: there are `turners` such rows. */
typedef struct mo_planes_scratch {
    int q, weights, scores, sums, O, state;
    int turners;
    int bytes;
} mo_planes_scratch;

MO_ANYWHERE mo_planes_scratch mo_planes_lay(int k_len, int v_len, int tail, int rows)
{
    const int units = mo_kv_plane(k_len, tail) / 16, longest = k_len > v_len ? k_len : v_len;
    mo_planes_scratch r;
    r.q = 0;
    r.weights = 2 * units * MO_PLANES_UNIT;
    r.scores = r.weights + 2 * (MO_KV_BLOCK / 16) * MO_PLANES_UNIT;
    r.sums = r.scores + MO_PLANES_ROWS * MO_PLANES_SCORES * 4;
    r.O = r.sums + rows * mo_kv_padded(v_len) * 4;
    r.state = r.O + rows * mo_kv_padded(v_len) * 4;
    r.bytes = r.state + MO_PLANES_ROWS * MO_PLANES_STATE * 4;
    r.turners = (r.O - r.weights) / (4 * longest);
    r.turners = r.turners < MO_PLANES_THREADS / 32 ? r.turners : MO_PLANES_THREADS / 32;
    return r;
}

/* Queries of a block of few, by the lengths of heads and the shared memory there is. */
MO_ANYWHERE int mo_planes_rows(int k_len, int v_len, int tail, int wanted, int shared_limit)
{
    int rows = wanted < MO_PLANES_ROWS ? wanted : MO_PLANES_ROWS;
    while (rows > 1 && mo_planes_lay(k_len, v_len, tail, rows).bytes > shared_limit) {
        rows--;
    }
    return rows;
}

/* The same of a tile of many queries with heads of `length` values. Queries have a place of their own where the whole warp group
 * multiplies them from there; otherwise they pass through that of the values. */
typedef struct mo_planes_tile_scratch {
    int keys, values, scales, cuts, q, gates;
    int bytes;
} mo_planes_tile_scratch;

MO_ANYWHERE mo_planes_tile_scratch mo_planes_tile_lay(int length, bool queries)
{
    mo_planes_tile_scratch r;
    r.keys = 0;
    r.values = r.keys + 2 * MO_KV_BLOCK * length;
    r.scales = r.values + 2 * MO_KV_BLOCK * length;
    r.cuts = r.scales + 2 * MO_KV_BLOCK * 4;
    r.gates = r.cuts + 32 * 4;
    r.q = r.gates + 128;
    r.bytes = r.q + (queries ? 2 * MO_PLANES_TILE_ROWS * length : 0);
    return r;
}

/* The same for a tile with long heads. Sums of its rows go through the buffer of keys and values at the end. */
typedef struct mo_planes_wide_scratch {
    int keys, values, q, weights, scales, state, gates;
    int bytes;
} mo_planes_wide_scratch;

MO_ANYWHERE mo_planes_wide_scratch mo_planes_wide_lay(int length)
{
    const int groups = length / MO_PLANES_WIDE_PART, buffer = 2 * MO_KV_BLOCK * length;
    mo_planes_wide_scratch r;
    r.keys = 0;
    r.values = length <= 256 ? buffer : 0;
    r.q = r.values + buffer;
    r.weights = r.q + 2 * MO_PLANES_TILE_ROWS * length;
    r.scales = r.weights + 2 * MO_PLANES_TILE_ROWS * MO_KV_BLOCK;
    r.state = r.scales + 2 * MO_KV_BLOCK * 4;
    r.gates = r.state + (3 + 3 * groups) * MO_PLANES_TILE_ROWS * 4 + 32 * 4;
    r.bytes = r.gates + 16;
    return r;
}

/* For a block that takes chunk after chunk for few queries: slots, then as mo_planes_lay() has it up to its scores. */
typedef struct mo_planes_stream_scratch {
    int slots, q, weights, scores, state, gates;
    int bytes;
} mo_planes_stream_scratch;

/* Bytes of keys or values of a chunk with their scales. */
MO_ANYWHERE int mo_planes_slot(int length)
{
    return 2 * MO_KV_BLOCK * length + 4 * MO_KV_BLOCK;
}

/* How many are there or on their way: two blocks of heads of up to 128 values share a multiprocessor, which reads faster than one
 * with six slots: one waits for the others of its threads while the other does not. */
#define MO_PLANES_SLOTS(length) ((length) == 64 ? 4 : 3)

MO_ANYWHERE mo_planes_stream_scratch mo_planes_stream_lay(int length, int rows)
{
    mo_planes_stream_scratch r;
    r.slots = 0;
    r.q = MO_PLANES_SLOTS(length) * mo_planes_slot(length);
    r.weights = r.q + 2 * (length / 16) * MO_PLANES_UNIT;
    r.scores = r.weights + 2 * (MO_KV_BLOCK / 16) * MO_PLANES_UNIT;
    r.state = r.scores + rows * MO_PLANES_SCORES * 4;
    r.gates = r.state + MO_PLANES_ROWS * MO_PLANES_STATE * 4;
    r.bytes = r.gates + 8 * 8;
    return r;
}

/* The number of such blocks per multiprocessor: heads of 128 values with more than 8 queries take more space than half of one. */
MO_ANYWHERE int mo_planes_stream_blocks(int bytes)
{
    const int shared = 228 * 1024, reserved = 1024;
    return 2 * (bytes + reserved) <= shared ? 2 : 1;
}

/* For a block that merges many chunks of a head. */
typedef struct mo_planes_merge_scratch {
    int steps, joins, gates, all;
    int bytes;
} mo_planes_merge_scratch;

/* Chunks of a piece: a power of two, of at most 16 KiB. */
MO_ANYWHERE int mo_planes_merge_piece(int v_len)
{
    int piece = MO_PLANES_MERGED;
    while (piece > 1 && piece * v_len > 4096) {
        piece /= 2;
    }
    return piece;
}

MO_ANYWHERE mo_planes_merge_scratch mo_planes_merge_lay(int v_len)
{
    mo_planes_merge_scratch r;
    r.steps = 0;
    r.joins = MO_PLANES_MERGES * mo_planes_merge_piece(v_len) * v_len * 4;
    r.gates = r.joins + 2 * (4 * MO_PLANES_MERGED + 4) * 4; /* of this piece and the next */
    r.all = r.gates + 8 * MO_PLANES_MERGES;
    r.bytes = r.all + 4 * 4;
    return r;
}

#endif
