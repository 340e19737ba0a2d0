/* Row: what the kernels that work on rows of floats share. Rows are cut into quads of four neighbouring values, one
 * per thread at a time, so that a block of 32 is in eight neighbouring lanes; or lane i holds value i of a block. */
#ifndef MO_DEVICE_CUDA_ROW_CUH
#define MO_DEVICE_CUDA_ROW_CUH

#include "device/cuda/common.cuh"

/* Before a kernel: how many threads its blocks have at most, and how many blocks a multiprocessor should hold. */
#define MO_BOUNDED(name, args, threads, blocks)                                                              \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ args op)

#ifdef MO_CUDA_EMULATED
#define MO_UNROLL(n)
#else
#define MO_PRAGMA(text) _Pragma(#text)
#define MO_UNROLL(n)    MO_PRAGMA(unroll n)
#endif

static __device__ __forceinline__ float mo_half(uint16_t h)
{
#ifdef MO_CUDA_EMULATED
    return mo_f16_to_f32(h);
#else
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); /* exact, as the definition's */
    return x;
#endif
}

static __device__ __forceinline__ bool mo_not_finite(float x)
{
    return (mo_bits_of(x) & 0x7F800000) == 0x7F800000;
}

static __device__ __forceinline__ float mo_warp_max(float v)
{
    for (int s = 16; s >= 1; s /= 2) {
        v = fmaxf(v, __shfl_xor_sync(MO_FULL, v, s));
    }
    return v;
}

/* Values at .. at+3 of a row of n; absent ones are 0. WIDE: the row is aligned to 16 bytes and n is a multiple of 4. */
template <bool WIDE> static __device__ __forceinline__ float4 mo_load_quad(const float *row, int at, int n)
{
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (WIDE) {
        if (at < n) {
            v = *(const float4 *)(row + at);
        }
        return v;
    }
    v.x = at < n ? row[at] : 0.0f;
    v.y = at + 1 < n ? row[at + 1] : 0.0f;
    v.z = at + 2 < n ? row[at + 2] : 0.0f;
    v.w = at + 3 < n ? row[at + 3] : 0.0f;
    return v;
}

template <bool WIDE> static __device__ __forceinline__ void mo_store_quad(float *row, int at, int n, float4 v)
{
    if (WIDE) {
        if (at < n) {
            *(float4 *)(row + at) = v;
        }
        return;
    }
    if (at < n) {
        row[at] = v.x;
    }
    if (at + 1 < n) {
        row[at + 1] = v.y;
    }
    if (at + 2 < n) {
        row[at + 2] = v.z;
    }
    if (at + 3 < n) {
        row[at + 3] = v.w;
    }
}

/* The sum of squares of a row, by one warp; every lane gets it. */
static __device__ __forceinline__ float mo_square_sum(const float *row, int n)
{
    float acc = 0.0f;
    MO_UNROLL(16)
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        const float x = row[i];
        acc = fmaf(x, x, acc);
    }
    return mo_lane_sum(acc);
}

/* The sum of a row, by one warp; every lane gets it. */
static __device__ __forceinline__ float mo_value_sum(const float *row, int n)
{
    float acc = 0.0f;
    MO_UNROLL(16)
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        acc += row[i];
    }
    return mo_lane_sum(acc);
}

static __device__ __forceinline__ float mo_norm_factor(float square_sum, int n, float eps)
{
    return 1.0f / sqrtf(square_sum / (float)n + eps);
}

/* ---- Codes of activations (numerics: Activations) ---- */

typedef struct mo_block_scale {
    float amax, inverse;
    bool zero;
} mo_block_scale;

static __device__ __forceinline__ mo_block_scale mo_scale_of(float amax)
{
    mo_block_scale s;
    s.amax = amax;
    s.zero = amax < 0x1p-100f;
    s.inverse = s.zero ? 0.0f : 127.0f / amax;
    return s;
}

static __device__ __forceinline__ int mo_code_of(mo_block_scale s, float x)
{
    return s.zero ? 0 : (int)rintf(x * s.inverse);
}

/* The data of a block apart from its codes. */
static __device__ __forceinline__ void mo_store_block(const mo_dacts &out, int64_t block, mo_block_scale s,
                                                      int sum)
{
    const float d = s.zero ? 0.0f : s.amax / 127.0f;
    mo_at<float>(out.d)[block] = d;
    mo_at<float>(out.s)[block] = d * (float)sum;
    mo_at<int32_t>(out.sum)[block] = sum;
}

/* Codes of the quad at `at` of a row. The whole warp calls it; out.cols is a multiple of 32. */
static __device__ __forceinline__ void mo_quantize_quad(const mo_dacts &out, int64_t row, int at, float4 v)
{
    float amax = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    for (int s = 1; s <= 4; s *= 2) {
        amax = fmaxf(amax, __shfl_xor_sync(MO_FULL, amax, s));
    }
    const mo_block_scale scale = mo_scale_of(amax);
    const int a = mo_code_of(scale, v.x), b = mo_code_of(scale, v.y);
    const int c = mo_code_of(scale, v.z), d = mo_code_of(scale, v.w);
    int half = a + b + c + d;
    half += __shfl_xor_sync(MO_FULL, half, 1);
    half += __shfl_xor_sync(MO_FULL, half, 2);
    const int sum = half + __shfl_xor_sync(MO_FULL, half, 4);
    if (at >= out.cols) {
        return;
    }
    const uint32_t word =
        (uint32_t)(a & 255) | (uint32_t)(b & 255) << 8 | (uint32_t)(c & 255) << 16 | (uint32_t)d << 24;
    *(uint32_t *)(mo_at<int8_t>(out.q) + row * out.cols + at) = word;
    if (at % 16 == 0) {
        mo_at<int16_t>(out.half_sum)[row * (out.cols / 16) + at / 16] = (int16_t)half;
    }
    if (at % 32 == 0) {
        mo_store_block(out, row * (out.cols / 32) + at / 32, scale, sum);
    }
}

/* Codes of one block of a row, a value in each lane. */
static __device__ __forceinline__ void mo_quantize_block(const mo_dacts &out, int64_t row, int block, float v)
{
    const int lane = threadIdx.x & 31;
    const mo_block_scale scale = mo_scale_of(mo_warp_max(fabsf(v)));
    const int code = mo_code_of(scale, v);
    int half = code;
    for (int s = 1; s <= 8; s *= 2) {
        half += __shfl_xor_sync(MO_FULL, half, s);
    }
    const int sum = half + __shfl_xor_sync(MO_FULL, half, 16);
    mo_at<int8_t>(out.q)[row * out.cols + 32 * block + lane] = (int8_t)code;
    if (lane % 16 == 0) {
        mo_at<int16_t>(out.half_sum)[row * (out.cols / 16) + 2 * block + lane / 16] = (int16_t)half;
    }
    if (lane == 0) {
        mo_store_block(out, row * (out.cols / 32) + block, scale, sum);
    }
}

/* The same of N neighbouring blocks: their ways through the lanes are side by side, and lane i divides for block i. */
template <int N>
static __device__ __forceinline__ void mo_quantize_blocks(const mo_dacts &out, int64_t row, int block,
                                                          const float *v)
{
    const int lane = threadIdx.x & 31;
    float amax[N], mine = 0.0f;
    int half[N], sum = 0;
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        amax[i] = fabsf(v[i]);
    }
    MO_UNROLL()
    for (int s = 16; s >= 1; s /= 2) {
        MO_UNROLL()
        for (int i = 0; i < N; i++) {
            amax[i] = fmaxf(amax[i], __shfl_xor_sync(MO_FULL, amax[i], s));
        }
    }
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        mine = lane == i ? amax[i] : mine;
    }
    const mo_block_scale scale = mo_scale_of(mine);
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        const float inverse = __shfl_sync(MO_FULL, scale.inverse, i);
        half[i] = mo_code_of({amax[i], inverse, amax[i] < 0x1p-100f}, v[i]);
        mo_at<int8_t>(out.q)[row * out.cols + 32 * (block + i) + lane] = (int8_t)half[i];
    }
    MO_UNROLL()
    for (int s = 1; s <= 8; s *= 2) {
        MO_UNROLL()
        for (int i = 0; i < N; i++) {
            half[i] += __shfl_xor_sync(MO_FULL, half[i], s);
        }
    }
    MO_UNROLL()
    for (int i = 0; i < N; i++) {
        const int all = half[i] + __shfl_xor_sync(MO_FULL, half[i], 16);
        sum = lane == i ? all : sum;
        if (lane % 16 == 0) {
            mo_at<int16_t>(out.half_sum)[row * (out.cols / 16) + 2 * (block + i) + lane / 16] =
                (int16_t)half[i];
        }
    }
    if (lane < N) {
        mo_store_block(out, row * (out.cols / 32) + block + lane, scale, sum);
    }
}

/* Codes of a row whose values stand in out.x, by all threads of a block that is made of whole warps. */
static __device__ __forceinline__ void mo_quantize_row(const mo_dacts &out, int64_t row)
{
    const int warps = blockDim.x / 32;
    for (int block = threadIdx.x / 32; block < out.cols / 32; block += warps) {
        mo_quantize_block(out, row, block,
                          mo_at<float>(out.x)[row * out.cols + 32 * block + (threadIdx.x & 31)]);
    }
}

#endif
