/* Whether heads and the attention behind them go together as one kernel, and how large it is. */
#include <string.h>

#include "device/cuda/attend_scratch.h"
#include "device/cuda/fresh.h"
#include "device/cuda/launch.h"

/* The kernel that has the heads' part too; NULL: there is none. */
static const char *joined_with_heads(const char *attends)
{
    static const char *const names[][2] = {
        {"mo_planes_chunk_64", "mo_heads_chunk_64"},     {"mo_planes_chunk_128", "mo_heads_chunk_128"},
        {"mo_planes_chunk_256", "mo_heads_chunk_256"},   {"mo_planes_stream_64", "mo_heads_stream_64"},
        {"mo_planes_stream_128", "mo_heads_stream_128"}, {"mo_planes_stream_256", "mo_heads_stream_256"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i][0], attends) == 0) {
            return names[i][1];
        }
    }
    return NULL;
}

/* One and the same step of few tokens, over a cache of codes that stands from its beginning. */
static bool belong_together(const mo_op *first, const mo_op *second)
{
    const mo_op_heads *h = &first->heads;
    const mo_op_attend *a = &second->attend;
    if (first->kind != MO_OP_HEADS || second->kind != MO_OP_ATTEND) {
        return false;
    }
    return h->tokens > 0 && h->tokens <= MO_OP_SMALL && h->tokens == a->tokens && h->q == a->q &&
           h->places == a->places && h->layer == a->layer && h->heads == a->heads &&
           h->kv_heads == a->kv_heads && h->k_len == a->k_len && h->v_len == a->v_len && h->kv == a->kv &&
           mo_kv_coded(a->kv) && !h->gated == !a->gated && !h->norm_all && !a->made && !a->tail;
}

/* Where there is space on the device, each warp has one vector at most: a query, or what is new. */
static uint32_t parts_of(const mo_op_attend *a, uint32_t least, int sms)
{
    enum { WARPS = MO_PLANES_THREADS / 32, NEW = 2 };
    const uint32_t group = (uint32_t)(a->heads / a->kv_heads),
                   parts = (group + WARPS - NEW - 1) / (WARPS - NEW);
    const uint32_t blocks = parts * (uint32_t)(a->kv_heads * a->chunks * a->tokens);
    return parts > least && blocks <= (uint32_t)sms ? parts : least;
}

/* Makes what attends alone do the heads' part. */
static bool add_heads(const mo_cuda_fresh *op, int compute, int sms, mo_cuda_launch *l)
{
    const mo_op_attend *a = &op->attend;
    const char *kernel = joined_with_heads(l->kernel);
    if (!kernel) {
        return false;
    }
    const bool of_chunk = strncmp(kernel, "mo_heads_chunk", 14) == 0;
    const uint32_t kv_heads = (uint32_t)a->kv_heads, group = (uint32_t)a->heads / kv_heads;
    const uint32_t parts = of_chunk ? parts_of(a, l->grid[1] / kv_heads, sms) : l->grid[1] / kv_heads;
    const int most = (int)((group + parts - 1) / parts);
    const mo_fresh_scratch lay = mo_fresh_lay(a->k_len, op->heads.n_rot, op->most, of_chunk);
    if (of_chunk) {
        const mo_planes_scratch all = mo_planes_lay(a->k_len, a->v_len, 0, most);
        l->shared = (uint32_t)(all.bytes + lay.bytes);
        l->grid[1] = parts * kv_heads;
        l->kernel = kernel;
        return lay.early <= all.sums - all.weights && (int)l->shared <= mo_attend_shared(compute);
    }
    const mo_planes_stream_scratch all = mo_planes_stream_lay(a->k_len, most);
    l->shared = (uint32_t)(all.bytes + lay.bytes);
    l->kernel = kernel;
    return lay.early <= all.state - all.weights && l->shared <= 227 * 1024 &&
           mo_planes_stream_blocks((int)l->shared) == mo_planes_stream_blocks(all.bytes);
}

int mo_cuda_launch_fresh(const mo_op *first, const mo_op *second, int compute, int sms, mo_cuda_fresh *op,
                         mo_cuda_launch out[2])
{
    mo_cuda_launch launches[MO_CUDA_KERNELS_PER_OP];
    mo_error err; /* told by whoever launches the op alone */
    if (!belong_together(first, second)) {
        return 0;
    }
    const int count = mo_cuda_launch_op(second, compute, sms, launches, &err);
    *op = (mo_cuda_fresh){.heads = first->heads, .attend = second->attend};
    op->most = op->attend.apart ? 1 : op->attend.tokens;
    op->heads.n_rot = op->heads.rope ? op->heads.n_rot : 0;
    if (count < 1 || count > 2 || !launches[0].prelaunch || !add_heads(op, compute, sms, &launches[0])) {
        return 0;
    }
    memcpy(out, launches, (size_t)count * sizeof *out);
    return count;
}
