#include "base/status.h"
#include "device/cuda/launch.h"

enum { WARPS = 4, COLLECT_WARPS = 8 };

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

static int latent(const mo_op_latent *o, mo_cuda_launch *out)
{
    out[0] = (mo_cuda_launch){.kernel = "mo_latent",
                              .prelaunch = true,
                              .grid = {pieces((int64_t)o->tokens * (o->heads + 1), WARPS), 1, 1},
                              .block = {32 * WARPS, 1, 1},
                              .shared = (uint32_t)(WARPS * (o->v_len + o->n_rot) * (int)sizeof(float))};
    return 1;
}

static int collect(const mo_op_collect *o, mo_cuda_launch *out)
{
    out[0] =
        (mo_cuda_launch){.kernel = "mo_collect",
                         .prelaunch = true,
                         .tall = true,
                         .grid = {pieces(pieces(o->out.cols, 32), COLLECT_WARPS), (uint32_t)o->tokens, 1},
                         .block = {32 * COLLECT_WARPS, 1, 1}};
    return 1;
}

int mo_cuda_launch_latent(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    (void)compute;
    (void)sms;
    switch (op->kind) {
    case MO_OP_LATENT: return op->latent.tokens > 0 ? latent(&op->latent, out) : 0;
    case MO_OP_COLLECT: return op->collect.tokens > 0 ? collect(&op->collect, out) : 0;
    default: mo_fail(err, MO_EINVAL, "op %d has no latent attention kernel", (int)op->kind); return -1;
    }
}
