#include "device/host/run.h"

#include "base/status.h"
#include "device/host/ops.h"

/* How long an op waits for the host, as op.h says. */
static const int64_t await_ns = 10 * INT64_C(1000000000);

static const char *const names[MO_OP_KINDS] = {
    [MO_OP_STREAM] = "stream",
    [MO_OP_PRODUCT] = "product",
    [MO_OP_GROUPED] = "grouped",
    [MO_OP_ACTIVATE] = "activate",
    [MO_OP_HEADS] = "heads",
    [MO_OP_ATTEND] = "attend",
    [MO_OP_CONVOLVE] = "convolve",
    [MO_OP_RECUR] = "recur",
    [MO_OP_CHOOSE] = "choose",
    [MO_OP_ARRANGE] = "arrange",
    [MO_OP_EXPERTS_IN] = "experts in",
    [MO_OP_EXPERTS_DOWN] = "experts down",
    [MO_OP_LOGITS] = "logits",
    [MO_OP_PUBLISH] = "publish",
    [MO_OP_AWAIT] = "await",
    [MO_OP_RESTORE] = "restore",
    [MO_OP_SHORT_CONV] = "short conv",
    [MO_OP_LATENT] = "latent",
    [MO_OP_INDEX] = "index",
    [MO_OP_KEEP] = "keep",
    [MO_OP_GATHER] = "gather",
    [MO_OP_COLLECT] = "collect",
    [MO_OP_SSM_CONVOLVE] = "ssm convolve",
    [MO_OP_SSM_PARTS] = "ssm parts",
    [MO_OP_SSM_SCAN] = "ssm scan",
    [MO_OP_LOWER] = "lower",
    [MO_OP_ADAPT] = "adapt",
    [MO_OP_ROUND] = "round",
    [MO_OP_TO_BF16] = "widen",
    [MO_OP_BF16] = "wide",
};

mo_status mo_op_run(const mo_op_host *host, const mo_op *op, mo_scratch *scratch, mo_error *err)
{
    mo_op_job job = {
        .host = host, .k = host->kernels, .scratch = scratch, .name = names[op->kind], .err = err};
    switch (op->kind) {
    case MO_OP_STREAM: return mo_op_host_stream(&job, &op->stream);
    case MO_OP_PRODUCT: return mo_op_host_product(&job, &op->product);
    case MO_OP_GROUPED: return mo_op_host_grouped(&job, &op->grouped);
    case MO_OP_ROUND: return mo_op_host_round(&job, &op->round);
    case MO_OP_TO_BF16: return mo_op_host_to_bf16(&job, &op->to_bf16);
    case MO_OP_BF16: return mo_op_host_bf16(&job, &op->bf16);
    case MO_OP_ACTIVATE: return mo_op_host_activate(&job, &op->activate);
    case MO_OP_HEADS: return mo_op_host_heads(&job, &op->heads);
    case MO_OP_LATENT: return mo_op_host_latent(&job, &op->latent);
    case MO_OP_INDEX: return mo_op_host_index(&job, &op->index);
    case MO_OP_KEEP: return mo_op_host_keep(&job, &op->keep);
    case MO_OP_GATHER: return mo_op_host_gather(&job, &op->gather);
    case MO_OP_COLLECT: return mo_op_host_collect(&job, &op->collect);
    case MO_OP_ATTEND: return mo_op_host_attend(&job, &op->attend);
    case MO_OP_CONVOLVE: return mo_op_host_convolve(&job, &op->convolve);
    case MO_OP_RECUR: return mo_op_host_recur(&job, &op->recur);
    case MO_OP_SHORT_CONV: return mo_op_host_short_conv(&job, &op->short_conv);
    case MO_OP_SSM_CONVOLVE: return mo_op_host_ssm_convolve(&job, &op->ssm_convolve);
    case MO_OP_SSM_PARTS: return mo_op_host_ssm_parts(&job, &op->ssm_parts);
    case MO_OP_SSM_SCAN: return mo_op_host_ssm_scan(&job, &op->ssm_scan);
    case MO_OP_CHOOSE: return mo_op_host_choose(&job, &op->choose);
    case MO_OP_ARRANGE: return mo_op_host_arrange(&job, &op->arrange);
    case MO_OP_EXPERTS_IN: return mo_op_host_experts_in(&job, &op->experts);
    case MO_OP_EXPERTS_DOWN: return mo_op_host_experts_down(&job, &op->experts);
    case MO_OP_LOGITS: return mo_op_host_logits(&job, &op->logits);
    case MO_OP_PUBLISH: return mo_op_host_publish(&job, &op->publish);
    case MO_OP_AWAIT: return mo_op_host_await(&job, &op->await, await_ns);
    case MO_OP_RESTORE: return mo_op_host_restore(&job, &op->restore);
    case MO_OP_LOWER: return mo_op_host_lower(&job, &op->adapt);
    case MO_OP_ADAPT: return mo_op_host_adapt(&job, &op->adapt);
    case MO_OP_KINDS: break;
    }
    return mo_fail(err, MO_EINVAL, "there is no device op of kind %d", (int)op->kind);
}
