/* The limits of ops that every implementation relies on. A program is built before it runs: what is wrong shows there. */
#include "device/op_check.h"

#include <assert.h>

static void check_restore(const mo_op_restore *o)
{
    assert(o->count >= 0 && o->count <= MO_OP_EXPERT_DATA && o->parts >= 0 && o->parts <= 3);
    for (int i = 0; i < o->parts; i++) {
        const int group = o->group[i];
        assert(o->rows[i] > 0 && o->cols[i] > 0);
        assert(o->at[i] % MO_OP_ALIGN == 0 &&
               o->stride[i] % MO_OP_ALIGN == 0); /* addresses: checked by the device */
        assert(group == 0 || (group >= 8 && group <= MO_OP_ROWS && (group & (group - 1)) == 0));
        (void)group;
    }
}

static void check_matrices(const mo_op *op)
{
    switch (op->kind) {
    case MO_OP_PRODUCT:
        assert(op->product.tokens >= 0 && op->product.count > 0 && op->product.count <= MO_OP_MATRICES);
        for (int i = 0; i < op->product.count; i++) {
            assert(op->product.matrix[i].rows > 0 && op->product.matrix[i].cols == op->product.in.cols);
            assert(op->product.stride[i] >= op->product.matrix[i].rows);
        }
        break;
    case MO_OP_GROUPED:
        assert(op->grouped.count >= 0 && op->grouped.rows >= 0 && op->grouped.most <= op->grouped.rows);
        assert(op->grouped.matrix.cols == op->grouped.in.cols);
        break;
    case MO_OP_ROUND: assert(op->round.count >= 0); break;
    case MO_OP_TO_BF16:
        assert(op->to_bf16.count >= 0 && op->to_bf16.matrix.rows > 0 && op->to_bf16.matrix.cols > 0);
        assert(op->to_bf16.groups || op->to_bf16.count <= 1);
        break;
    case MO_OP_BF16:
        assert(op->bf16.count >= 0 && op->bf16.rows >= 0 && op->bf16.most <= op->bf16.rows);
        assert(op->bf16.matrix.rows > 0 && op->bf16.matrix.cols % MO_OP_BF16_COLS == 0);
        assert(op->bf16.groups || op->bf16.count <= 1);
        break;
    default: assert(!"one of these"); break;
    }
}

/* What mixes positions: attention and the recurrent layers. */
static void check_mixer(const mo_op *op)
{
    switch (op->kind) {
    case MO_OP_HEADS:
        assert(op->heads.tokens >= 0 && op->heads.kv_heads > 0 && op->heads.layer >= 0);
        assert(op->heads.heads % op->heads.kv_heads == 0 && op->heads.k_len > 0 && op->heads.v_len > 0);
        assert(!op->heads.v_from_k || op->heads.v_len <= op->heads.k_len);
        break;
    case MO_OP_ATTEND:
        assert(op->attend.tokens >= 0 && op->attend.kv_heads > 0 && op->attend.layer >= 0);
        assert(op->attend.heads % op->attend.kv_heads == 0 && op->attend.k_len > 0 && op->attend.v_len > 0);
        assert(op->attend.mixed.cols == (op->attend.tail ? 1 : op->attend.heads) * op->attend.v_len);
        assert(!op->attend.tail || (op->attend.k_len == op->attend.v_len + op->attend.tail &&
                                    op->attend.kv_heads == 1 && !op->attend.gated && !op->attend.window));
        assert(!op->attend.gated || op->attend.v_len <= op->attend.k_len);
        break;
    case MO_OP_LATENT:
        assert(op->latent.tokens >= 0 && op->latent.heads > 0 && op->latent.layer >= 0);
        assert(op->latent.plain.cols > 0 && op->latent.v_len > 0 && op->latent.n_rot > 0);
        break;
    case MO_OP_INDEX:
        assert(op->index.tokens >= 0 && op->index.heads > 0 && op->index.layer >= 0);
        assert(op->index.n_rot > 0 && op->index.n_rot <= op->index.length);
        break;
    case MO_OP_KEEP:
        assert(op->keep.tokens >= 0 && op->keep.heads > 0 && op->keep.layer >= 0);
        assert(op->keep.top > 0 && op->keep.length > 0 && op->keep.stride >= op->keep.most);
        break;
    case MO_OP_GATHER:
        assert(op->gather.tokens >= 0 && op->gather.top > 0 && op->gather.layer >= 0);
        assert(op->gather.tail > 0 && op->gather.k_len == op->gather.v_len + op->gather.tail);
        break;
    case MO_OP_COLLECT:
        assert(op->collect.tokens >= 0 && op->collect.heads > 0);
        assert(op->collect.out.cols == op->collect.heads * op->collect.n);
        break;
    case MO_OP_CONVOLVE:
        assert(op->convolve.tokens >= 0 && op->convolve.slice_count >= 0 && op->convolve.k_heads > 0);
        assert(op->convolve.v_heads % op->convolve.k_heads == 0 && op->convolve.head > 0);
        break;
    case MO_OP_RECUR:
        assert(op->recur.tokens >= 0 && op->recur.slice_count >= 0 && op->recur.k_heads > 0);
        assert(op->recur.v_heads % op->recur.k_heads == 0 && op->recur.head > 0);
        assert(op->recur.mixed.cols == op->recur.v_heads * op->recur.head);
        break;
    case MO_OP_SHORT_CONV:
        assert(op->short_conv.tokens >= 0 && op->short_conv.slice_count >= 0 && op->short_conv.channels > 0);
        assert(op->short_conv.mixed.cols == op->short_conv.channels);
        break;
    case MO_OP_SSM_CONVOLVE:
        assert(op->ssm_convolve.tokens >= 0 && op->ssm_convolve.slice_count >= 0);
        assert(op->ssm_convolve.channels > 0 && op->ssm_convolve.after.cols == op->ssm_convolve.channels);
        break;
    case MO_OP_SSM_PARTS:
        assert(op->ssm_parts.tokens >= 0 && op->ssm_parts.rank > 0 && op->ssm_parts.states > 0);
        assert(op->ssm_parts.dt.cols == op->ssm_parts.rank);
        break;
    case MO_OP_SSM_SCAN:
        assert(op->ssm_scan.tokens >= 0 && op->ssm_scan.slice_count >= 0 && op->ssm_scan.states > 0);
        assert(op->ssm_scan.groups > 0 && op->ssm_scan.mixed.cols == op->ssm_scan.inner);
        assert(op->ssm_scan.heads == 0 || (op->ssm_scan.heads % op->ssm_scan.groups == 0 &&
                                           op->ssm_scan.inner % op->ssm_scan.heads == 0));
        break;
    default: assert(!"one of these"); break;
    }
}

void mo_op_check(const mo_op *op)
{
    switch (op->kind) {
    case MO_OP_STREAM:
        assert(op->stream.tokens >= 0 && op->stream.n > 0 && op->stream.used >= 0);
        assert(!op->stream.features || op->stream.places);
        for (int i = 0; i < MO_OP_NORMS; i++) {
            assert(!op->stream.norm[i].out.x || op->stream.norm[i].out.cols == op->stream.n);
        }
        break;
    case MO_OP_PRODUCT:
    case MO_OP_GROUPED:
    case MO_OP_ROUND:
    case MO_OP_TO_BF16:
    case MO_OP_BF16: check_matrices(op); break;
    case MO_OP_ACTIVATE: assert(op->activate.rows >= 0 && op->activate.n == op->activate.hidden.cols); break;
    case MO_OP_HEADS:
    case MO_OP_ATTEND:
    case MO_OP_LATENT:
    case MO_OP_INDEX:
    case MO_OP_KEEP:
    case MO_OP_GATHER:
    case MO_OP_COLLECT:
    case MO_OP_CONVOLVE:
    case MO_OP_RECUR:
    case MO_OP_SHORT_CONV:
    case MO_OP_SSM_CONVOLVE:
    case MO_OP_SSM_PARTS:
    case MO_OP_SSM_SCAN: check_mixer(op); break;
    case MO_OP_CHOOSE:
        assert(op->choose.tokens >= 0 && op->choose.experts > 0 && op->choose.experts <= MO_OP_EXPERTS);
        assert(op->choose.used > 0 && op->choose.used <= MO_OP_USED && op->choose.used <= op->choose.experts);
        assert(op->choose.groups <= MO_OP_GROUPS);
        assert(op->choose.groups <= 1 ||
               (op->choose.experts % op->choose.groups == 0 && op->choose.groups_used > 0 &&
                op->choose.groups_used <= op->choose.groups));
        break;
    case MO_OP_ARRANGE:
        assert(op->arrange.tokens >= 0 && op->arrange.experts > 0 && op->arrange.experts <= MO_OP_EXPERTS);
        assert(op->arrange.used > 0 && op->arrange.used <= MO_OP_USED &&
               op->arrange.experts <= op->arrange.limit);
        break;
    case MO_OP_EXPERTS_IN:
    case MO_OP_EXPERTS_DOWN: assert(op->experts.work && op->experts.most >= 0); break;
    case MO_OP_LOGITS:
        assert(op->logits.count >= 0);
        assert(!op->logits.best || (op->logits.cols > 0 && op->logits.count % op->logits.cols == 0));
        break;
    case MO_OP_PUBLISH:
        assert(op->publish.ranges >= 0 && op->publish.ranges <= MO_OP_RANGES);
        for (int i = 0; i < op->publish.ranges; i++) {
            assert(op->publish.bytes[i] >= 0 && op->publish.bytes[i] % 4 == 0);
        }
        break;
    case MO_OP_AWAIT: assert(op->await.n > 0 && op->await.most >= 0); break;
    case MO_OP_RESTORE: check_restore(&op->restore); break;
    case MO_OP_LOWER:
    case MO_OP_ADAPT:
        assert(op->adapt.rows >= 0 && op->adapt.cols > 0 && op->adapt.n > 0 && op->adapt.group_count >= 0);
        assert(op->adapt.stride >= op->adapt.n);
        break;
    case MO_OP_KINDS: assert(!"an op"); break;
    }
}
