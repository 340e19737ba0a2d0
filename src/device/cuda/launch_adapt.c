#include "device/cuda/launch.h"

enum { LOWER_WARPS = 4, LOWER_BLOCKS = 4, ADAPT_THREADS = 128, ROWS_MOST = 16384 };

static uint32_t pieces(int64_t count, int64_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

int mo_cuda_launch_adapt(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const mo_op_adapt *o = &op->adapt;
    (void)compute;
    (void)sms;
    (void)err;
    if (o->rows == 0) {
        return 0;
    }
    const bool lower = op->kind == MO_OP_LOWER;
    const uint32_t rows = (uint32_t)(o->rows < ROWS_MOST ? o->rows : ROWS_MOST);
    *out = (mo_cuda_launch){.kernel = lower ? "mo_lower" : "mo_adapt",
                            .prelaunch = true,
                            .grid = {lower ? LOWER_BLOCKS : pieces(o->n, ADAPT_THREADS), rows, 1},
                            .block = {lower ? 32 * LOWER_WARPS : ADAPT_THREADS, 1, 1}};
    return 1;
}
