/* Fresh: heads and the attention behind them as one kernel, for a step of few tokens over a cache of codes. Every block makes the codes of its own
 * queries, and of the keys and values that the step adds to its chunks, in its shared memory, so that no block waits for another; the block
 * that has a token's own position writes its key and value into the cache. Queries, keys and values stay as the products left them. Plain C:
 * included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_FRESH_H
#define MO_DEVICE_CUDA_FRESH_H

#include "device/cuda/planes_scratch.h"

/* What the kernels take. */
typedef struct mo_cuda_fresh {
    mo_op_heads heads;
    mo_op_attend attend;
    int32_t most; /* positions that the step adds to what a token sees */
    int32_t unused;
} mo_cuda_fresh;

/* Arrays of a block. The first are needed until keys, values and queries are made, and are where weights and scores will be; the others
 * are behind what attention has. */
typedef struct mo_fresh_scratch {
    int q_norm, k_norm, turns,
        rows;         /* turns: cosines and sines of the token; rows: a warp's values that rotate */
    int early;        /* bytes of those */
    int chunk_scales; /* of a chunk's keys, then of its values */
    int codes, scales;
    int bytes; /* of all but the early ones */
} mo_fresh_scratch;

/* of_chunk: scales of a chunk are among them. */
MO_ANYWHERE mo_fresh_scratch mo_fresh_lay(int length, int n_rot, int most, bool of_chunk)
{
    mo_fresh_scratch r;
    r.q_norm = 0;
    r.k_norm = r.q_norm + 4 * length;
    r.turns = r.k_norm + 4 * length;
    r.rows = r.turns + 4 * n_rot;
    r.early = r.rows + MO_PLANES_THREADS / 32 * 4 * n_rot;
    r.chunk_scales = 0;
    r.codes = of_chunk ? 2 * 4 * MO_KV_BLOCK : 0;
    r.scales = r.codes + most * 2 * 2 * length;
    r.bytes = (r.scales + most * 2 * 4 + 15) / 16 * 16;
    return r;
}

#endif
