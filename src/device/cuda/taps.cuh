/* Taps: the last taps - 1 inputs of a causal convolution, of one channel: what a sequence's next step looks back to. */
#ifndef MO_DEVICE_CUDA_TAPS_CUH
#define MO_DEVICE_CUDA_TAPS_CUH

#include "device/cuda/common.cuh"

/* After a step of one token, if no other thread reads them: they move up by one. */
static __device__ __forceinline__ void mo_taps_push(float *kept, int taps, int64_t channels, float input)
{
    for (int j = 0; j + 1 < taps; j++) {
        kept[j * channels] = j + 2 < taps ? kept[(j + 1) * channels] : input;
    }
}

/* After a step of any length. input(t): of row t of the step. */
template <class INPUT>
static __device__ __forceinline__ void mo_taps_keep(float *kept, int taps, int64_t channels,
                                                    const mo_dslice &slice, INPUT input)
{
    const int keep = taps - 1;
    const int stay = keep > slice.count ? keep - slice.count : 0;
    for (int j = 0; j < stay; j++) {
        kept[j * channels] = kept[(j + keep - stay) * channels];
    }
    for (int j = stay; j < keep; j++) {
        kept[j * channels] = input((int64_t)slice.first + slice.count - keep + j);
    }
}

#endif
