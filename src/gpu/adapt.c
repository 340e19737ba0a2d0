/* Ops of adapters: after a product, what they add to it. */
#include "gpu/ops.h"

/* What the step's adapter has for the matrix; absent: nothing. */
static mo_dlow low_of(const mo_gpu_ops *p, const mo_lora *lora, const mo_linear *linear, int64_t u_at)
{
    const mo_gpu_adapters *all = p->adapters;
    const mo_lora_pair *pair = mo_lora_find(lora, linear);
    const mo_gpu_adapter *at = all->list;
    while (at->lora != lora) {
        at++;
    }
    if (!pair) {
        return (mo_dlow){0};
    }
    const bool stacked = pair->expert == 0 && pair + 1 < lora->pairs + lora->count && pair[1].expert == 1;
    const mo_weights *w = &pair->a.w;
    return (mo_dlow){.a = at->memory + (mo_daddr)(w->data - lora->region),
                     .b = at->memory + (mo_daddr)((const uint8_t *)pair->b - lora->region),
                     .a_stride = stacked ? pair[1].a.w.data - w->data : 0,
                     .b_stride = stacked ? (int64_t)sizeof(float) * (pair[1].b - pair->b) : 0,
                     .a_bytes = w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols),
                     .u_at = (int32_t)u_at,
                     .rank = (int32_t)w->rows,
                     .type = (int32_t)w->type,
                     .alpha = lora->alpha,
                     .factor = linear->factor};
}

void mo_gpu_ops_adapt_rows(mo_gpu_ops *p, const mo_linear *linear, const mo_op_adapt *rows)
{
    const mo_adapting *a = p->adapting;
    mo_op_adapt op = *rows;
    int64_t u_at = 0;
    bool any = false;
    if (!a || !mo_linear_present(linear)) {
        return;
    }
    for (int i = 0; i < a->count; i++) {
        op.low[i] = low_of(p, a->lora[i], linear, u_at);
        u_at += op.low[i].rank;
        any |= op.low[i].a != 0;
    }
    if (!any) {
        return;
    }
    op.uses = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).uses);
    op.u = p->adapters->u;
    op.u_stride = p->adapters->u_stride;
    op.tokens = (int32_t)p->tokens;
    op.cols = (int32_t)linear->w.cols;
    op.n = (int32_t)linear->w.rows;
    mo_gpu_op_add(p, MO_OP_LOWER)->adapt = op;
    mo_gpu_op_add(p, MO_OP_ADAPT)->adapt = op;
}

void mo_gpu_ops_adapt(mo_gpu_ops *p, const mo_linear *linear, mo_dacts in, mo_daddr y, int64_t stride)
{
    mo_gpu_ops_adapt_rows(
        p, linear,
        &(mo_op_adapt){
            .in = in.x, .in_rows = (int32_t)p->tokens, .rows = (int32_t)p->tokens, .y = y, .stride = stride});
}
