/* Panel, a warp group: 64 rows times 32 or 16 tokens by four warps at once (9.0 with its own features). Codes of the matrix come from registers, as
 * mo_mma_s8() has them, the tokens' from shared memory; the sums are plain integers, which are converted one by one. Products of one piece of
 * 32 tokens are under way while the one before is folded. */
#ifndef MO_DEVICE_CUDA_PANEL_GROUP_CUH
#define MO_DEVICE_CUDA_PANEL_GROUP_CUH

#include "device/cuda/tile.cuh"
#include "device/cuda/warp_group.cuh"

#if MO_WARP_GROUPS

/* d = a x b: 64 rows, 32 values, 32 or 16 tokens. */
static __device__ __forceinline__ void mo_panel_send(int32_t (&d)[16], const uint32_t a[4], uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %21, 0;\n"
                 "wgmma.fence.sync.aligned;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
                 "%10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p;\n"
                 "wgmma.commit_group.sync.aligned;\n"
                 "}"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
                   "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
                   "+r"(d[14]), "+r"(d[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(0)
                 : "memory");
}
static __device__ __forceinline__ void mo_panel_send(int32_t (&d)[8], const uint32_t a[4], uint64_t b)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.b32 p, %13, 0;\n"
                 "wgmma.fence.sync.aligned;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7}, "
                 "{%8, %9, %10, %11}, %12, p;\n"
                 "wgmma.commit_group.sync.aligned;\n"
                 "}"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
                   "+r"(d[7])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(0)
                 : "memory");
}

/* d is not read before this; LEFT products may still be running. */
template <int LEFT> static __device__ __forceinline__ void mo_panel_await(int32_t (&d)[16])
{
    asm volatile("wgmma.wait_group.sync.aligned %16;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
                   "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
                   "+r"(d[14]), "+r"(d[15])
                 : "n"(LEFT)
                 : "memory");
}
template <int LEFT> static __device__ __forceinline__ void mo_panel_await(int32_t (&d)[8])
{
    asm volatile("wgmma.wait_group.sync.aligned %8;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
                   "+r"(d[7])
                 : "n"(LEFT)
                 : "memory");
}

/* Eight sums of a lane, of its outputs for 16 tokens. */
template <class P>
static __device__ __forceinline__ void
mo_panel_fold(float (*acc)[4], const int32_t *sum, const mo_tile_rows_scale<P::FOLD> &rs, const float *scales)
{
    const float4 d = *(const float4 *)scales;
    float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if constexpr (P::FOLD == MO_FOLD_MINIMUM) {
        s = *(const float4 *)(scales + MO_TILE_BLOCKS * P::TOKENS);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float dx = i < 4 ? (i & 1 ? d.y : d.x) : (i & 1 ? d.w : d.z);
        const float sx = i < 4 ? (i & 1 ? s.y : s.x) : (i & 1 ? s.w : s.z);
        float &o = acc[i / 4][i % 4];
        o = fmaf(dx, (i & 2 ? rs.a.y : rs.a.x) * (float)sum[i], o);
        if constexpr (P::FOLD == MO_FOLD_MINIMUM) {
            o = fmaf(sx, i & 2 ? rs.b.y : rs.b.x, o);
        }
    }
}

/* One block of 32 for the group's rows and the first N 16-token pieces: mo_panel_multiply(). An odd one comes last, by itself. */
template <class P, int N>
static __device__ __forceinline__ void mo_panel_multiply_group(float (*acc)[4], const uint32_t a[4],
                                                               const mo_tile_rows_scale<P::FOLD> &rs,
                                                               const uint8_t *acts, const float *scales)
{
    constexpr int PAIRS = N / 2;
    constexpr bool ODD = N % 2 != 0;
    const uint64_t matrix = mo_group_matrix(acts);
    int32_t sums[2][16], last[8];
    if constexpr (PAIRS > 0) {
        mo_panel_send(sums[0], a, matrix);
    }
    if constexpr (PAIRS == 0) {
        mo_panel_send(last, a, matrix);
    }
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        if (p + 1 < PAIRS) {
            mo_panel_send(sums[(p + 1) % 2], a, matrix + (p + 1) * (32 * MO_TILE_K / 16));
            mo_panel_await<1>(sums[p % 2]);
        } else if constexpr (ODD) {
            mo_panel_send(last, a, matrix + PAIRS * (32 * MO_TILE_K / 16));
            mo_panel_await<1>(sums[p % 2]);
        } else {
            mo_panel_await<0>(sums[p % 2]);
        }
        mo_panel_fold<P>(acc + 4 * p, sums[p % 2], rs, scales + 32 * p);
        mo_panel_fold<P>(acc + 4 * p + 2, sums[p % 2] + 8, rs, scales + 32 * p + 16);
    }
    if constexpr (ODD) {
        mo_panel_await<0>(last);
        mo_panel_fold<P>(acc + 4 * PAIRS, last, rs, scales + 32 * PAIRS);
    }
}

/* The same where the halves of a block have scales of their own: the sums of each, the other half being zeros. Pieces of 16 tokens, so that
 * there are registers for more than one. */
template <class P>
static __device__ __forceinline__ void
mo_panel_fold_halves(float (*acc)[4], const int32_t *low, const int32_t *high,
                     const mo_tile_rows_scale<P::FOLD> &rs, const float *scales)
{
    const float4 d = *(const float4 *)scales;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float dx = i < 4 ? (i & 1 ? d.y : d.x) : (i & 1 ? d.w : d.z);
        float &o = acc[i / 4][i % 4];
        if constexpr (P::FOLD == MO_FOLD_TWO_STEPS) {
            o = fmaf(dx, (i & 2 ? rs.a.y : rs.a.x) * (float)low[i], o);
            o = fmaf(dx, (i & 2 ? rs.b.y : rs.b.x) * (float)high[i], o);
        } else {
            const float isum = fmaf(i & 2 ? rs.c.y : rs.c.x, (float)high[i],
                                    (i & 2 ? rs.b.y : rs.b.x) * (float)low[i]); /* exact */
            o = fmaf(dx, (i & 2 ? rs.a.y : rs.a.x) * isum, o);
        }
    }
}

template <class P, int N>
static __device__ __forceinline__ void mo_panel_multiply_halves(float (*acc)[4], const uint32_t a[4],
                                                                const mo_tile_rows_scale<P::FOLD> &rs,
                                                                const uint8_t *acts, const float *scales)
{
    const uint64_t matrix = mo_group_matrix(acts);
    const uint32_t first[4] = {a[0], a[1], 0, 0}, second[4] = {0, 0, a[2], a[3]};
    int32_t sums[3][8]; /* of the first half of a piece, of its second, of the first half of the next */
    mo_panel_send(sums[0], first, matrix);
    mo_panel_send(sums[1], second, matrix);
#pragma unroll
    for (int p = 0; p < N; p++) {
        int32_t(&low)[8] = sums[2 * p % 3], (&high)[8] = sums[(2 * p + 1) % 3];
        const uint64_t next = matrix + (p + 1) * (16 * MO_TILE_K / 16);
        if (p + 1 < N) {
            mo_panel_send(sums[(2 * p + 2) % 3], first, next);
            mo_panel_await<1>(low);
            mo_panel_await<1>(high);
        } else {
            mo_panel_await<0>(low);
            mo_panel_await<0>(high);
        }
        mo_panel_fold_halves<P>(acc + 2 * p, low, high, rs, scales + 16 * p);
        if (p + 1 < N) {
            mo_panel_send(low, second, next);
        }
    }
}

#endif

#endif
