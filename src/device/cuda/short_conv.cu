/* The short convolution: b * x, causal convolution, times c. */
#include "device/cuda/row.cuh"
#include "device/cuda/tall.cuh"
#include "device/cuda/taps.cuh"

/* b * x of a token's channel; in points at b. */
static __device__ __forceinline__ float input_of(const float *in, int64_t channels)
{
    return in[0] * in[2 * channels];
}

/* Blocks (channels, token), a thread per channel; a warp holds a block of codes. */
MO_KERNEL(mo_short_conv, mo_op_short_conv)
{
    const int64_t channels = op.channels, t = mo_grid_row();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    float *conv = mo_at<float>(mo_at<const mo_dstate>(place.layers)[op.layer].conv) + i;
    mo_grid_begin();
    if (i / 32 * 32 >= channels) {
        return;
    }
    float v = 0.0f;
    if (i < channels) {
        const float *in = mo_at<const float>(op.in) + t * 3 * channels + i;
        const float *weight = mo_at<const float>(op.weight) + i;
        const float newest = input_of(in, channels);
        MO_UNROLL(4)
        for (int j = 0; j < op.taps; j++) {
            const int back = op.taps - 1 - j;
            const float x = back == 0            ? newest
                            : place.into >= back ? input_of(in - back * 3 * channels, channels)
                                                 : conv[(place.into + j) * channels];
            v = fmaf(weight[j * channels], x, v);
        }
        v = v * in[channels];
        mo_at<float>(op.mixed.x)[t * channels + i] = v;
        /* One token per slice: no other thread reads its past. */
        if (op.tokens == op.slice_count && op.state == MO_STATE_MOVES) {
            mo_taps_push(conv, op.taps, channels, newest);
        }
    }
    if (channels % 32 == 0) {
        mo_quantize_block(op.mixed, t, (int)(i / 32), v);
    }
}

/* What the next step of each slice looks back to: blocks (channels, slice). */
MO_KERNEL(mo_short_conv_keep, mo_op_short_conv)
{
    const int64_t channels = op.channels;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const mo_dslice slice = mo_at<const mo_dslice>(op.slices)[mo_grid_row()];
    mo_grid_begin();
    if (i >= channels) {
        return;
    }
    float *kept = mo_at<float>(mo_at<const mo_dstate>(slice.layers)[op.layer].conv) + i;
    const float *in = mo_at<const float>(op.in) + i;
    mo_taps_keep(kept, op.taps, channels, slice,
                 [=](int64_t t) { return input_of(in + t * 3 * channels, channels); });
}
