/* Ops of adapters: the part they add after a product. */
#include "gpu/ops.h"

/* The adapter's matrices for this matrix; absent: none. */
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

/* Fills in the rest of `op`, whose u begins at row `row` of the common memory; false: no adapter of the step
 * changes the matrix. */
static bool fill(mo_gpu_ops *p, const mo_linear *linear, int64_t row, mo_op_adapt *op)
{
    const mo_adapting *a = p->adapting;
    int64_t u_at = 0;
    bool any = false;
    if (!a || !mo_linear_present(linear)) {
        return false;
    }
    for (int i = 0; i < a->count; i++) {
        op->low[i] = low_of(p, a->lora[i], linear, u_at);
        u_at += op->low[i].rank;
        any |= op->low[i].a != 0;
    }
    op->uses = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).uses);
    op->u_stride = p->adapters->u_stride;
    op->u = p->adapters->u + (mo_daddr)(row * op->u_stride) * sizeof(float);
    op->tokens = (int32_t)p->tokens;
    op->cols = (int32_t)linear->w.cols;
    op->n = (int32_t)linear->w.rows;
    return any;
}

void mo_gpu_ops_adapt_rows(mo_gpu_ops *p, const mo_linear *linear, const mo_op_adapt *rows)
{
    mo_op_adapt op = *rows;
    if (fill(p, linear, 0, &op)) {
        mo_gpu_op_add(p, MO_OP_LOWER)->adapt = op;
        mo_gpu_op_add(p, MO_OP_ADAPT)->adapt = op;
    }
}

static mo_op_adapt of_all(const mo_gpu_ops *p, mo_dacts in, mo_daddr y, int64_t stride)
{
    return (mo_op_adapt){
        .in = in.x, .in_rows = (int32_t)p->tokens, .rows = (int32_t)p->tokens, .y = y, .stride = stride};
}

void mo_gpu_ops_adapt(mo_gpu_ops *p, const mo_linear *linear, mo_dacts in, mo_daddr y, int64_t stride)
{
    const mo_op_adapt op = of_all(p, in, y, stride);
    mo_gpu_ops_adapt_rows(p, linear, &op);
}

/* All ops that read the input come first, then all ops that add. So a device can do the first with the
 * product, and the second when it reads the rows. This needs memory for all results. */
void mo_gpu_ops_adapt_some(mo_gpu_ops *p, mo_dacts in, const mo_gpu_adapted *of, int count)
{
    mo_op_adapt op[MO_OP_MATRICES];
    int n = 0;
    if (!p->adapting || count * p->tokens > p->adapters->rows) {
        for (int i = 0; i < count; i++) {
            mo_gpu_ops_adapt(p, of[i].linear, in, of[i].y, of[i].stride);
        }
        return;
    }
    for (int i = 0; i < count; i++) {
        op[n] = of_all(p, in, of[i].y, of[i].stride);
        n += fill(p, of[i].linear, n * p->tokens, &op[n]);
    }
    for (int i = 0; i < n; i++) {
        mo_gpu_op_add(p, MO_OP_LOWER)->adapt = op[i];
    }
    for (int i = 0; i < n; i++) {
        mo_gpu_op_add(p, MO_OP_ADAPT)->adapt = op[i];
    }
}
