#include "base/status.h"
#include "device/cuda/index.h"
#include "device/cuda/launch.h"

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

static int prepare(const mo_op_index *o, mo_cuda_launch *out)
{
    out[0] = (mo_cuda_launch){.kernel = "mo_index",
                              .prelaunch = true,
                              .grid = {pieces((int64_t)o->tokens * (o->heads + 1), MO_INDEX_WARPS), 1, 1},
                              .block = {32 * MO_INDEX_WARPS, 1, 1}};
    return 1;
}

/* Scores of some positions by each block, then the choice of a token by one. */
static int keep(const mo_op_keep *o, mo_cuda_launch *out)
{
    out[0] = (mo_cuda_launch){.kernel = "mo_keep_scores",
                              .prelaunch = true,
                              .tall = true,
                              .grid = {pieces(o->most, MO_INDEX_POSITIONS), (uint32_t)o->tokens, 1},
                              .block = {MO_INDEX_POSITIONS, 1, 1},
                              .shared = (uint32_t)mo_index_staged(o->length)};
    out[1] = (mo_cuda_launch){.kernel = "mo_keep_best",
                              .prelaunch = true,
                              .grid = {(uint32_t)o->tokens, 1, 1},
                              .block = {MO_INDEX_CHOOSERS, 1, 1}};
    return 2;
}

static int gather(const mo_op_gather *o, mo_cuda_launch *out)
{
    out[0] = (mo_cuda_launch){.kernel = "mo_gather_kept",
                              .prelaunch = true,
                              .tall = true,
                              .grid = {pieces(o->top, MO_INDEX_WARPS), (uint32_t)o->tokens, 1},
                              .block = {32 * MO_INDEX_WARPS, 1, 1}};
    return 1;
}

int mo_cuda_launch_index(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    (void)compute;
    (void)sms;
    switch (op->kind) {
    case MO_OP_INDEX: return op->index.tokens > 0 ? prepare(&op->index, out) : 0;
    case MO_OP_KEEP: return op->keep.tokens > 0 ? keep(&op->keep, out) : 0;
    case MO_OP_GATHER: return op->gather.tokens > 0 ? gather(&op->gather, out) : 0;
    default: mo_fail(err, MO_EINVAL, "op %d has no kernel of indexers", (int)op->kind); return -1;
    }
}
