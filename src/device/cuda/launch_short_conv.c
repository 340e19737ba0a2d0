#include "device/cuda/launch.h"

enum { THREADS = 128 };

int mo_cuda_launch_short_conv(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const mo_op_short_conv *o = &op->short_conv;
    const uint32_t pieces = (uint32_t)((o->channels + THREADS - 1) / THREADS);
    (void)compute;
    (void)sms;
    (void)err;
    if (o->tokens == 0) {
        return 0;
    }
    out[0] = (mo_cuda_launch){.kernel = "mo_short_conv",
                              .prelaunch = true,
                              .tall = true,
                              .grid = {pieces, (uint32_t)o->tokens, 1},
                              .block = {THREADS, 1, 1}};
    if (o->tokens == o->slice_count) { /* one token each: what they look back to is kept on the way */
        return 1;
    }
    out[1] = (mo_cuda_launch){.kernel = "mo_short_conv_keep",
                              .prelaunch = true,
                              .tall = true,
                              .grid = {pieces, (uint32_t)o->slice_count, 1},
                              .block = {THREADS, 1, 1}};
    return 2;
}
