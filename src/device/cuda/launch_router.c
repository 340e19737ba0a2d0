/* Whether a product and a choice go together as one kernel, and how large it is. */
#include <string.h>

#include "device/cuda/choose.h"
#include "device/cuda/launch.h"
#include "device/cuda/router.h"
#include "device/cuda/rows_launch.h"

/* One token and a router of floats: a product that would have the kernel for such alone. */
static bool fits(const mo_op *first, const mo_op *second, int compute, int sms)
{
    mo_cuda_launch alone[MO_CUDA_KERNELS_PER_OP];
    mo_error err; /* told by whoever launches the op alone */
    if (first->kind != MO_OP_PRODUCT || second->kind != MO_OP_CHOOSE || second->choose.tokens != 1 ||
        mo_cuda_launch_op(second, compute, sms, alone, &err) != 1 ||
        mo_cuda_launch_op(first, compute, sms, alone, &err) != 1 ||
        strcmp(alone->kernel, "mo_product_1") != 0) {
        return false;
    }
    const mo_op_product *p = &first->product;
    const mo_dmatrix *m = &p->matrix[0];
    return p->count == 1 && mo_format_is_float(m->type) &&
           mo_choose_threads(&second->choose) <= MO_ROUTER_MOST && p->in.cols % 8 == 0 &&
           ((m->data | p->in.x) & 15) == 0;
}

/* Each block brings as few rows as fill the device. */
int mo_cuda_launch_router(const mo_op *first, const mo_op *second, int compute, int sms, mo_cuda_launch *out)
{
    if (!fits(first, second, compute, sms)) {
        return 0;
    }
    const mo_op_product *p = &first->product;
    const mo_dmatrix *m = &p->matrix[0];
    const int desk = 18 * 1024; /* static shared memory of the kernel */
    int rows = (m->rows + sms - 1) / sms;
    rows = rows < MO_ROUTER_ROWS ? rows : MO_ROUTER_ROWS;
    while (rows > 0 && mo_router_bytes(p, rows) > (int)(mo_rows_memory(compute) - 1) * 1024 - desk) {
        rows--;
    }
    if (rows == 0) {
        return 0;
    }
    const int threads = mo_choose_threads(&second->choose);
    *out = (mo_cuda_launch){
        .kernel = "mo_router_choose",
        .prelaunch = true,
        .grid = {(uint32_t)((m->rows + rows - 1) / rows), 1, 1},
        .block = {(uint32_t)(threads > MO_ROUTER_THREADS ? threads : MO_ROUTER_THREADS), 1, 1},
        .shared = (uint32_t)mo_router_bytes(p, rows)};
    return 1;
}

/* The norm that is the router's, of a short row to which no experts' outputs are added: all blocks read what is added. -1: not so. Nothing that
 * they read is one of the norms. */
static int norm_of_router(const mo_op *first, const mo_op_product *p, int compute, int sms)
{
    const mo_op_stream *s = &first->stream;
    mo_cuda_launch alone[MO_CUDA_KERNELS_PER_OP];
    mo_error err;
    if (first->kind != MO_OP_STREAM || s->tokens != 1 || s->feed != 0 || s->features || s->n != p->in.cols ||
        s->n > 4 * MO_ROUTED_THREADS * MO_ROUTED_QUADS ||
        mo_cuda_launch_op(first, compute, sms, alone, &err) != 1 ||
        strcmp(alone->kernel, "mo_stream_short") != 0) {
        return -1;
    }
    int which = -1;
    for (int i = 0; i < MO_OP_NORMS; i++) {
        const mo_daddr out = s->norm[i].out.x;
        which = out && out == p->in.x ? i : which;
        if (out && (out == s->x || out == s->y)) {
            return -1;
        }
    }
    return which;
}

int mo_cuda_launch_routed(const mo_op *ops, int count, int compute, int sms, mo_cuda_routed *op,
                          mo_cuda_launch *out)
{
    if (count < 3 || !mo_cuda_launch_router(&ops[1], &ops[2], compute, sms, out)) {
        return 0;
    }
    const int which = norm_of_router(&ops[0], &ops[1].product, compute, sms);
    if (which < 0) {
        return 0;
    }
    *op = (mo_cuda_routed){.stream = ops[0].stream,
                           .router = {.product = ops[1].product, .choose = ops[2].choose},
                           .which = which};
    out->kernel = "mo_stream_router";
    out->block[0] = MO_ROUTED_THREADS;
    return 1;
}
