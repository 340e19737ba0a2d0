#include "gpu/split.h"

/* Copies and experts in flight are on other streams: only the main stream's waits for them count. */
static int part_of(const void *user, const mo_op *op)
{
    const mo_gpu_scratch *s = user;
    if (!op) {
        return MO_PART_COPIES;
    }
    switch (op->kind) {
    case MO_OP_PRODUCT: return op->product.y[0] == s->scores ? MO_PART_ROUTING : MO_PART_PRODUCTS;
    case MO_OP_GROUPED:
        return op->grouped.y == s->gate || op->grouped.y == s->up || op->grouped.y == s->down
                   ? MO_PART_EXPERTS
                   : MO_PART_PRODUCTS; /* the heads of latent attention */
    case MO_OP_TO_BF16: return op->to_bf16.groups ? MO_PART_EXPERTS : MO_PART_PRODUCTS;
    case MO_OP_BF16: return op->bf16.groups ? MO_PART_EXPERTS : MO_PART_PRODUCTS;
    case MO_OP_ROUND: return MO_PART_PRODUCTS;
    case MO_OP_ACTIVATE: return op->activate.up == s->side.up ? MO_PART_PRODUCTS : MO_PART_EXPERTS;
    case MO_OP_COLLECT:
        return op->collect.out.x == s->experts_latent.in || op->collect.out.x == s->experts_latent.sum
                   ? MO_PART_EXPERTS
                   : MO_PART_ATTENTION;
    case MO_OP_HEADS:
    case MO_OP_LATENT:
    case MO_OP_INDEX:
    case MO_OP_KEEP:
    case MO_OP_GATHER:
    case MO_OP_ATTEND:
    case MO_OP_CONVOLVE:
    case MO_OP_RECUR:
    case MO_OP_SHORT_CONV:
    case MO_OP_SSM_CONVOLVE:
    case MO_OP_SSM_PARTS:
    case MO_OP_SSM_SCAN: return MO_PART_ATTENTION;
    case MO_OP_CHOOSE:
    case MO_OP_ARRANGE: return MO_PART_ROUTING;
    case MO_OP_EXPERTS_IN:
    case MO_OP_EXPERTS_DOWN: return MO_PART_EXPERTS;
    case MO_OP_LOWER:
    case MO_OP_ADAPT: return op->adapt.groups ? MO_PART_EXPERTS : MO_PART_PRODUCTS;
    case MO_OP_PUBLISH:
    case MO_OP_AWAIT:
    case MO_OP_RESTORE: return MO_PART_COPIES;
    case MO_OP_STREAM:
    case MO_OP_LOGITS:
    case MO_OP_KINDS: break;
    }
    return MO_PART_OTHER;
}

mo_status mo_gpu_split_begin(mo_gpu *gpu, const mo_split *split, mo_error *err)
{
    mo_status status = MO_OK;
    if (split && !gpu->meter) {
        status = mo_meter_open(gpu->link.device, part_of, &gpu->scratch, &gpu->meter, err);
    }
    if (split && status == MO_OK) {
        mo_meter_attach(gpu->link.main, gpu->meter);
    }
    return status;
}

mo_status mo_gpu_split_end(mo_gpu *gpu, mo_split *split, mo_status status, mo_error *err)
{
    mo_error ignored = {0};
    if (!split || !gpu->meter) {
        return status;
    }
    mo_meter_attach(gpu->link.main, NULL);
    const mo_status read = mo_meter_read(gpu->meter, split->part_ns, status == MO_OK ? err : &ignored);
    return status == MO_OK ? read : status;
}
