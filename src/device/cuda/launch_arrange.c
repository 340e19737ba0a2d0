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
    out[0] = (mo_cuda_launch){
        .kernel = "mo_arrange", .prelaunch = true, .grid = {1, 1, 1}, .block = {MO_ARRANGE_THREADS, 1, 1}};
    return 1;
}
