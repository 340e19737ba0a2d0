#include "device/cuda/launch.h"

#include "base/status.h"

enum { GRID_MOST = 65535 }; /* of its second and third dimension */

static int choose(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    switch (op->kind) {
    case MO_OP_PRODUCT: return mo_cuda_launch_product(op, compute, sms, out, err);
    case MO_OP_GROUPED: return mo_cuda_launch_grouped(op, compute, sms, out, err);
    case MO_OP_ROUND:
    case MO_OP_TO_BF16:
    case MO_OP_BF16: return mo_cuda_launch_bf16(op, compute, sms, out, err);
    case MO_OP_EXPERTS_IN:
    case MO_OP_EXPERTS_DOWN: return mo_cuda_launch_experts(op, compute, sms, out, err);
    case MO_OP_STREAM:
    case MO_OP_ACTIVATE:
    case MO_OP_LOGITS:
    case MO_OP_PUBLISH:
    case MO_OP_AWAIT: return mo_cuda_launch_stream(op, compute, sms, out, err);
    case MO_OP_CHOOSE: return mo_cuda_launch_choose(op, compute, sms, out, err);
    case MO_OP_ARRANGE: return mo_cuda_launch_arrange(op, compute, sms, out, err);
    case MO_OP_HEADS:
    case MO_OP_ATTEND: return mo_cuda_launch_attention(op, compute, sms, out, err);
    case MO_OP_CONVOLVE:
    case MO_OP_RECUR: return mo_cuda_launch_delta(op, compute, sms, out, err);
    case MO_OP_SHORT_CONV: return mo_cuda_launch_short_conv(op, compute, sms, out, err);
    case MO_OP_SSM_CONVOLVE:
    case MO_OP_SSM_PARTS:
    case MO_OP_SSM_SCAN: return mo_cuda_launch_mamba(op, compute, sms, out, err);
    case MO_OP_RESTORE: return mo_cuda_launch_restore(op, compute, sms, out, err);
    case MO_OP_INDEX:
    case MO_OP_KEEP:
    case MO_OP_GATHER: return mo_cuda_launch_index(op, compute, sms, out, err);
    case MO_OP_LATENT:
    case MO_OP_COLLECT: return mo_cuda_launch_latent(op, compute, sms, out, err);
    case MO_OP_LOWER:
    case MO_OP_ADAPT: return mo_cuda_launch_adapt(op, compute, sms, out, err);
    case MO_OP_KINDS: break;
    }
    mo_fail(err, MO_EINVAL, "op of unknown kind %d", (int)op->kind);
    return -1;
}

/* Kernels do not ask whether their row is one: the two halves are equal. A step's most tokens, 65536, can be halved. */
static bool fold(mo_cuda_launch *l)
{
    if (l->tall && l->grid[1] > GRID_MOST && l->grid[1] % 2 == 0) {
        l->grid[1] /= 2;
        l->grid[2] = 2;
    }
    return !l->tall || l->grid[1] <= GRID_MOST;
}

int mo_cuda_launch_op(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const int count = choose(op, compute, sms, out, err);
    for (int i = 0; i < count; i++) {
        if (!fold(&out[i])) {
            mo_fail(err, MO_EINVAL, "op %d has more rows than a grid allows; a step has at most 65536",
                    (int)op->kind);
            return -1;
        }
    }
    return count;
}
