#include "device/cuda/arrange.h"
#include "device/cuda/launch.h"

int mo_cuda_launch_arrange(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    (void)compute;
    (void)sms;
    (void)err;
    if (op->arrange.tokens == 0) {
        return 0;
    }
    const int32_t warps =
        mo_arrange_warps((int64_t)op->arrange.tokens * op->arrange.used, op->arrange.experts);
    out[0] = (mo_cuda_launch){.kernel = "mo_arrange",
                              .prelaunch = true,
                              .patient = true,
                              .grid = {1, 1, 1},
                              .block = {32 * (uint32_t)warps, 1, 1}};
    return 1;
}
