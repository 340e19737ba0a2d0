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
