/* Which two ops go together as one kernel: by the kernels that each would get alone. */
#include <string.h>

#include "device/cuda/choose.h"
#include "device/cuda/launch.h"
#include "device/cuda/rows_launch.h"
#include "device/cuda/tail.h"

static bool is(const mo_cuda_launch *l, const char *kernel)
{
    return strcmp(l->kernel, kernel) == 0;
}

/* A stream that the last block can do quickly: short rows, one token, no norms before x is added to. */
static bool plain_stream(const mo_op *op, const mo_cuda_launch *l)
{
    const mo_op_stream *o = &op->stream;
    return op->kind == MO_OP_STREAM && o->tokens == 1 && is(l, "mo_stream_short") && !o->y_norm &&
           !(o->feed && (o->dense_norm || o->moe_norm || o->post_norm));
}

static int with_stream(const char *kernel, const mo_op_stream *stream, int compute,
                       const mo_cuda_launch *first, mo_cuda_launch *out)
{
    const uint32_t needed =
        MO_TAIL_BARRIERS + (uint32_t)mo_tail_stream_floats(stream) * (uint32_t)sizeof(float);
    *out = *first;
    out->kernel = kernel;
    out->shared = first->shared > needed ? first->shared : needed;
    /* More shared memory must not mean fewer blocks side by side. */
    return needed <= first->shared || mo_rows_memory(compute) / 4 * 1024 >= out->shared + 2 * 1024;
}

/* A router of floats. Each block brings as few rows as fill the device. */
static int with_choice(const mo_op *product, const mo_op *choose, int compute, int sms, mo_cuda_launch *out)
{
    const mo_op_product *p = &product->product;
    const mo_op_choose *c = &choose->choose;
    const mo_dmatrix *m = &p->matrix[0];
    if (p->count != 1 || !mo_rows_float(m->type) || mo_choose_threads(c) > MO_TAIL_ROUTER_MOST ||
        p->in.cols % 8 != 0 || ((m->data | p->in.x) & 15) != 0) {
        return 0;
    }
    const int desk = 18 * 1024; /* static shared memory of the kernel */
    int rows = (m->rows + sms - 1) / sms;
    rows = rows < MO_TAIL_ROUTER_ROWS ? rows : MO_TAIL_ROUTER_ROWS;
    while (rows > 0 && mo_tail_router_bytes(p, rows) > (int)(mo_rows_memory(compute) - 1) * 1024 - desk) {
        rows--;
    }
    if (rows == 0) {
        return 0;
    }
    const int threads = mo_choose_threads(c);
    *out = (mo_cuda_launch){
        .kernel = "mo_router_choose",
        .grid = {(uint32_t)((m->rows + rows - 1) / rows), 1, 1},
        .block = {(uint32_t)(threads > MO_TAIL_ROUTER_THREADS ? threads : MO_TAIL_ROUTER_THREADS), 1, 1},
        .shared = (uint32_t)mo_tail_router_bytes(p, rows)};
    return 1;
}

int mo_cuda_launch_tail(const mo_op *first, const mo_op *second, int compute, int sms, mo_cuda_launch *out)
{
    mo_cuda_launch a[MO_CUDA_KERNELS_PER_OP];
    mo_cuda_launch b[MO_CUDA_KERNELS_PER_OP];
    mo_error err; /* told by whoever launches the op alone */
    if ((first->kind != MO_OP_PRODUCT && first->kind != MO_OP_EXPERTS_DOWN) ||
        (second->kind != MO_OP_STREAM && second->kind != MO_OP_CHOOSE) ||
        mo_cuda_launch_op(first, compute, sms, a, &err) != 1 ||
        mo_cuda_launch_op(second, compute, sms, b, &err) != 1) {
        return 0;
    }
    if (plain_stream(second, b)) {
        const char *kernel = is(a, "mo_slab_product") ? "mo_slab_product_stream"
                             : is(a, "mo_slab_down")  ? "mo_slab_down_stream"
                                                      : NULL;
        return kernel ? with_stream(kernel, &second->stream, compute, a, out) : 0;
    }
    if (second->kind == MO_OP_CHOOSE && second->choose.tokens == 1 && is(a, "mo_product_1")) {
        return with_choice(first, second, compute, sms, out);
    }
    return 0;
}
