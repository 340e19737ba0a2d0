/* Which kernel multiplies: by the number of tokens. */
#include "base/status.h"
#include "device/cuda/rows_launch.h"
#include "device/cuda/slab_launch.h"

enum { ROUTER_ROWS = 1024 };

static const struct {
    int tokens;
    const char *kernel;
} kernels[] = {{1, "mo_product_1"}, {4, "mo_product_4"}, {MO_ROWS_TOKENS, "mo_product_8"}};

/* Float matrices of few rows: a warp for each row ends soonest. */
static bool is_router(const mo_op_product *p)
{
    int64_t rows = 0;
    for (int i = 0; i < p->count; i++) {
        const mo_format *f = p->matrix[i].type >= 0 ? mo_format_of((uint32_t)p->matrix[i].type) : NULL;
        if (p->matrix[i].data && (!f || f->kind != MO_KIND_FLOAT)) {
            return false;
        }
        rows += p->matrix[i].data ? p->matrix[i].rows : 0;
    }
    return rows > 0 && rows <= ROUTER_ROWS;
}

/* Strips read them faster than rows from two tokens on. */
static bool all_quantized(const mo_op_product *p)
{
    for (int i = 0; i < p->count; i++) {
        const mo_format *f = p->matrix[i].type >= 0 ? mo_format_of((uint32_t)p->matrix[i].type) : NULL;
        if (p->matrix[i].data && (!f || f->kind != MO_KIND_QUANTIZED)) {
            return false;
        }
    }
    return true;
}

int mo_cuda_launch_product(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const mo_op_product *p = &op->product;
    if (p->tokens > MO_ROWS_TOKENS || (p->tokens > 1 && all_quantized(p)) ||
        (p->tokens > 1 && is_router(p))) {
        return mo_cuda_launch_product_wide(op, compute, sms, out, err);
    }
    int which = 0;
    while (kernels[which].tokens < p->tokens) {
        which++;
    }
    const int tokens = kernels[which].tokens;
    mo_rows_threads threads = {0};
    int64_t steps = 0;
    for (int i = 0; i < p->count; i++) {
        const mo_dmatrix *m = &p->matrix[i];
        if (!mo_rows_possible(m, &p->in, "a matrix", err)) {
            return -1;
        }
        if (!m->data || m->rows <= 0) {
            continue;
        }
        const mo_rows_shape shape = mo_rows_cut(m->type, m->cols, tokens);
        mo_rows_threads_add(&threads, m->type, &shape, (double)m->rows * shape.row_bytes);
        steps += (m->rows + shape.rows - 1) / shape.rows;
    }
    if (steps == 0 || p->tokens <= 0) {
        return 0;
    }
    if (mo_cuda_launch_slab_product(p, compute, out) && mo_rows_slab_suits(compute, out)) {
        return 1;
    }
    const uint32_t size = mo_rows_threads_best(&threads, tokens);
    const int64_t resident = (int64_t)sms * mo_rows_resident(compute, tokens, threads.shared, size);
    out[0] = (mo_cuda_launch){.kernel = kernels[which].kernel,
                              .prelaunch = true,
                              .grid = {(uint32_t)(steps < resident ? steps : resident), 1, 1},
                              .block = {size, 1, 1},
                              .shared = threads.shared};
    return 1;
}
