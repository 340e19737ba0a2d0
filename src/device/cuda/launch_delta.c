#include "base/status.h"
#include "device/cuda/launch.h"
#include "numeric/kinds.h"

enum { WARPS = 4, THREADS = 256, CHAIN_BLOCKS = 4, CHAIN_THREADS = 160 /* as in delta_chain.cuh */ };

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

static int convolve(const mo_op_convolve *o, mo_cuda_launch *out)
{
    const int64_t heads = 2 * (int64_t)o->k_heads + o->v_heads;
    const uint32_t threads = o->head > THREADS ? THREADS : pieces(o->head, 32) * 32;
    int count = 0;
    if (o->state != MO_STATE_ONLY) {
        out[count++] = (mo_cuda_launch){.kernel = "mo_convolve",
                                        .prelaunch = true,
                                        .grid = {(uint32_t)(o->tokens * heads), 1, 1},
                                        .block = {threads, 1, 1},
                                        .shared = (uint32_t)o->head * (uint32_t)sizeof(float)};
    }
    /* One token each: their inputs are kept on the way. */
    if (o->state == MO_STATE_STAYS || (o->tokens == o->slice_count && o->state == MO_STATE_MOVES)) {
        return count;
    }
    out[count++] = (mo_cuda_launch){.kernel = "mo_convolve_keep",
                                    .prelaunch = true,
                                    .grid = {pieces(heads * o->head, THREADS), (uint32_t)o->slice_count, 1},
                                    .block = {THREADS, 1, 1}};
    return count;
}

/* Prompts, so few that their columns do not fill the GPU: the latency of a chain decides. */
static bool chained(const mo_op_recur *o, int sms)
{
    const bool rows = o->decay == MO_DECAY_HEADS || o->gates % 16 == 0; /* which are copied by 16 bytes */
    return o->head == 128 && o->tokens > o->slice_count && rows &&
           (int64_t)o->v_heads * CHAIN_BLOCKS * o->slice_count <= 2 * (int64_t)sms;
}

static int recur(const mo_op_recur *o, int sms, mo_cuda_launch *out)
{
    const bool known = o->head == 128, rows = o->decay != MO_DECAY_HEADS;
    int count = 0;
    if (chained(o, sms)) {
        out[count++] =
            (mo_cuda_launch){.kernel = rows ? "mo_recur_rows_chain" : "mo_recur_chain",
                             .prelaunch = true,
                             .grid = {(uint32_t)o->v_heads * CHAIN_BLOCKS, (uint32_t)o->slice_count, 1},
                             .block = {CHAIN_THREADS, 1, 1}};
    } else {
        out[count++] = (mo_cuda_launch){.kernel = !known ? "mo_recur_any"
                                                  : rows ? "mo_recur_rows_128"
                                                         : "mo_recur_128",
                                        .prelaunch = true,
                                        .grid = {(uint32_t)o->v_heads, (uint32_t)o->slice_count, 1},
                                        .block = {128, 1, 1}};
    }
    if ((known && o->tokens == o->slice_count) || o->state == MO_STATE_ONLY) {
        return count; /* one token each: finished at once */
    }
    out[count++] = (mo_cuda_launch){.kernel = "mo_recur_finish",
                                    .prelaunch = true,
                                    .grid = {pieces((int64_t)o->tokens * o->v_heads, WARPS), 1, 1},
                                    .block = {32 * WARPS, 1, 1}};
    if (o->head % 32 != 0 && o->mixed.cols % 32 == 0) {
        out[count++] = (mo_cuda_launch){.kernel = "mo_recur_quantize",
                                        .prelaunch = true,
                                        .grid = {(uint32_t)o->tokens, 1, 1},
                                        .block = {THREADS, 1, 1}};
    }
    return count;
}

int mo_cuda_launch_delta(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    (void)compute;
    switch (op->kind) {
    case MO_OP_CONVOLVE: return op->convolve.tokens > 0 ? convolve(&op->convolve, out) : 0;
    case MO_OP_RECUR: return op->recur.tokens > 0 ? recur(&op->recur, sms, out) : 0;
    default: mo_fail(err, MO_EINVAL, "op %d has no delta rule kernel", (int)op->kind); return -1;
    }
}
