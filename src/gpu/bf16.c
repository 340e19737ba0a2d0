#include "gpu/bf16.h"

_Static_assert((int)MO_PRECISION_FEW == (int)MO_OP_SMALL, "small steps have no products in bfloat16");

/* Bytes of a layer's experts decoded at once: enough to fill a GPU, and little of its memory. */
#define EXPERT_BYTES ((int64_t)256 << 20)

/* ---- Sizes ------------------------------------------------------------------------------------ */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t values_of(const mo_dmatrix *m)
{
    return (int64_t)m->rows * m->cols;
}

static void add_experts(mo_gpu_bf16 *bf16, const mo_moe *moe, int64_t batch)
{
    const mo_linear *linear[] = {&moe->expert[0].gate, &moe->expert[0].up, &moe->expert[0].down};
    if (!mo_precision_experts(&bf16->rule, batch, moe->used, moe->experts)) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        const int64_t each = 2 * linear[i]->w.rows * linear[i]->w.cols, all = each * moe->experts;
        bf16->matrix_bytes =
            larger(bf16->matrix_bytes, all < EXPERT_BYTES ? all : larger(each, EXPERT_BYTES));
    }
    bf16->row_bytes = larger(bf16->row_bytes, 2 * batch * moe->used * moe->width);
    bf16->row_bytes = larger(bf16->row_bytes, 2 * batch * moe->io);
}

void mo_gpu_bf16_size(mo_gpu_bf16 *bf16, const mo_gpu_core *core, int64_t batch)
{
    bf16->row_bytes = bf16->matrix_bytes = 0;
    if (!mo_precision_products(&bf16->rule, batch)) {
        return;
    }
    const mo_gpu_widest widest = mo_gpu_core_widest(core->spec);
    bf16->matrix_bytes = 2 * widest.values;
    bf16->row_bytes = 2 * batch * widest.cols;
    for (int i = 0; i < core->spec->layer_count; i++) {
        if (core->spec->layers[i].routed) {
            add_experts(bf16, &core->spec->layers[i].moe, batch);
        }
    }
}

/* ---- Launching -------------------------------------------------------------------------------- */

typedef struct launching {
    const mo_gpu_bf16 *bf16;
    const mo_gpu_link *link;
    mo_dstream *stream;
    mo_daddr rounded; /* the rows in bf16->rounded; 0: none */
    mo_error *err;
} launching;

static mo_status launch(const launching *l, const mo_op *op)
{
    return mo_gpu_link_launch(l->link, l->stream, op, 1, l->err);
}

static mo_status round_rows(launching *l, const mo_dacts *in, int64_t rows)
{
    if (l->rounded == in->x) {
        return MO_OK;
    }
    l->rounded = in->x;
    return launch(l, &(mo_op){.kind = MO_OP_ROUND,
                              .round = {.from = in->x, .to = l->bf16->rounded, .count = rows * in->cols}});
}

static mo_status multiply(const launching *l, const mo_op_to_bf16 *matrices, const mo_op_bf16 *product)
{
    const mo_status status = launch(l, &(mo_op){.kind = MO_OP_TO_BF16, .to_bf16 = *matrices});
    return status == MO_OK ? launch(l, &(mo_op){.kind = MO_OP_BF16, .bf16 = *product}) : status;
}

/* Matrices without a product in bfloat16 stay in one op. */
static mo_status launch_product(launching *l, const mo_op_product *o)
{
    mo_op rest = {.kind = MO_OP_PRODUCT, .product = *o};
    mo_status status = MO_OK;
    rest.product.count = 0;
    for (int i = 0; i < o->count && status == MO_OK; i++) {
        const mo_dmatrix *m = &o->matrix[i];
        if (!mo_gpu_core_suits_bf16(m)) {
            const int at = rest.product.count++;
            rest.product.matrix[at] = *m;
            rest.product.y[at] = o->y[i];
            rest.product.stride[at] = o->stride[i];
            continue;
        }
        status = round_rows(l, &o->in, o->tokens);
        if (status == MO_OK) {
            status = multiply(l, &(mo_op_to_bf16){.matrix = *m, .to = l->bf16->matrices, .count = 1},
                              &(mo_op_bf16){.in = l->bf16->rounded,
                                            .bf16 = l->bf16->matrices,
                                            .count = 1,
                                            .rows = o->tokens,
                                            .most = o->tokens,
                                            .matrix = *m,
                                            .y = o->y[i],
                                            .stride = o->stride[i]});
        }
    }
    return status == MO_OK && rest.product.count ? launch(l, &rest) : status;
}

/* Processes as many experts at once as memory allows. */
static mo_status launch_grouped(launching *l, const mo_op_grouped *o)
{
    const int64_t each = 2 * values_of(&o->matrix), most = l->bf16->matrix_bytes / each;
    mo_status status = round_rows(l, &o->in, o->lossy_rows);
    for (int32_t first = 0; first < o->count && status == MO_OK; first += (int32_t)most) {
        const mo_daddr groups = o->groups + (mo_daddr)first * sizeof(mo_dgroup);
        const int32_t count = o->count - first < most ? o->count - first : (int32_t)most;
        status = multiply(
            l,
            &(mo_op_to_bf16){.matrix = o->matrix, .groups = groups, .to = l->bf16->matrices, .count = count},
            &(mo_op_bf16){.in = l->bf16->rounded,
                          .pick = o->pick,
                          .groups = groups,
                          .bf16 = l->bf16->matrices,
                          .count = count,
                          .rows = o->rows,
                          .most = o->most,
                          .matrix = o->matrix,
                          .y = o->y,
                          .stride = o->stride});
    }
    return status;
}

mo_status mo_gpu_bf16_launch(const mo_gpu_bf16 *bf16, const mo_gpu_link *link, mo_dstream *stream,
                             const mo_op *ops, int count, mo_daddr exact, mo_error *err)
{
    launching l = {.bf16 = bf16, .link = link, .stream = stream, .err = err};
    mo_status status = MO_OK;
    for (int i = 0; i < count && status == MO_OK; i++) {
        const mo_op *op = &ops[i];
        if (op->kind == MO_OP_PRODUCT && op->product.y[0] != exact) {
            status = launch_product(&l, &op->product);
        } else if (op->kind == MO_OP_GROUPED && op->grouped.lossy_rows &&
                   mo_gpu_core_suits_bf16(&op->grouped.matrix)) {
            status = launch_grouped(&l, &op->grouped);
        } else {
            l.rounded = 0; /* it may overwrite the rounded input */
            status = launch(&l, op);
        }
    }
    return status;
}
