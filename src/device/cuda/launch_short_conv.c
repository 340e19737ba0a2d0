#include "device/cuda/launch.h"

enum { THREADS = 128 };

int mo_cuda_launch_taps(const char *kernel, const char *keep, int64_t channels, int64_t tokens,
                        int64_t slices, int32_t state, mo_cuda_launch *out)
{
    const uint32_t pieces = (uint32_t)((channels + THREADS - 1) / THREADS);
    int count = 0;
    if (state != MO_STATE_ONLY) {
        out[count++] = (mo_cuda_launch){.kernel = kernel,
                                        .prelaunch = true,
                                        .tall = true,
                                        .grid = {pieces, (uint32_t)tokens, 1},
                                        .block = {THREADS, 1, 1}};
    }
    /* One token each: what they look back to is kept on the way. */
    if (state == MO_STATE_STAYS || (tokens == slices && state == MO_STATE_MOVES)) {
        return count;
    }
    out[count++] = (mo_cuda_launch){.kernel = keep,
                                    .prelaunch = true,
                                    .tall = true,
                                    .grid = {pieces, (uint32_t)slices, 1},
                                    .block = {THREADS, 1, 1}};
    return count;
}

int mo_cuda_launch_short_conv(const mo_op *op, int compute, int sms, mo_cuda_launch *out, mo_error *err)
{
    const mo_op_short_conv *o = &op->short_conv;
    (void)compute;
    (void)sms;
    (void)err;
    return o->tokens == 0 ? 0
                          : mo_cuda_launch_taps("mo_short_conv", "mo_short_conv_keep", o->channels, o->tokens,
                                                o->slice_count, o->state, out);
}
