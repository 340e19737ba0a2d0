/* Panel, a warp group: 64 rows times 32 tokens by four warps at once (9.0 with its own features). Codes of the matrix come from registers, as
 * mo_mma_s8() has them, the tokens' from shared memory; the sums are plain integers, which are converted one by one. Products of one piece of
 * 32 tokens are under way while the one before is folded. */
#ifndef MO_DEVICE_CUDA_PANEL_GROUP_CUH
#define MO_DEVICE_CUDA_PANEL_GROUP_CUH

#include "device/cuda/tile.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(MO_CUDA_EMULATED)
#define MO_PANEL_GROUP 1
#else
#define MO_PANEL_GROUP 0
#endif

/* What copies left in shared memory is seen by the group's products after a barrier. */
static __device__ __forceinline__ void mo_panel_show(void)
{
#if MO_PANEL_GROUP
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if MO_PANEL_GROUP

/* Where rows of 128 bytes, whose 16-byte chunks change places by row, are in shared memory; eight of them begin at a multiple of 1024. */
static __device__ __forceinline__ uint64_t mo_panel_matrix(const uint8_t *p)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(p);
    return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* d = a x b: 64 rows, 32 values, 32 tokens. */
static __device__ __forceinline__ void mo_panel_send(int32_t d[16], const uint32_t a[4], uint64_t b)
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

/* Nobody looks at d before this; LEFT products may still be under way. */
template <int LEFT> static __device__ __forceinline__ void mo_panel_await(int32_t d[16])
{
    asm volatile("wgmma.wait_group.sync.aligned %16;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
                   "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
                   "+r"(d[14]), "+r"(d[15])
                 : "n"(LEFT)
                 : "memory");
}

/* One block of 32 for the group's rows and the first N 16-token pieces: mo_panel_multiply(). */
template <class P, int N>
static __device__ __forceinline__ void mo_panel_multiply_group(float (*acc)[4], const uint32_t a[4],
                                                               const mo_tile_rows_scale<P::FOLD> &rs,
                                                               const uint8_t *acts, const float *scales)
{
    constexpr int PIECES = (N + 1) / 2; /* of 32 tokens */
    const uint64_t matrix = mo_panel_matrix(acts);
    int32_t sums[2][16];
    mo_panel_send(sums[0], a, matrix);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        int32_t *const sum = sums[p % 2];
        if (p + 1 < PIECES) {
            mo_panel_send(sums[(p + 1) % 2], a, matrix + (p + 1) * (32 * MO_TILE_K / 16));
            mo_panel_await<1>(sum);
        } else {
            mo_panel_await<0>(sum);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float4 d = *(const float4 *)(scales + 16 * (2 * p + half));
            float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if constexpr (P::FOLD == MO_FOLD_MINIMUM) {
                s = *(const float4 *)(scales + MO_TILE_BLOCKS * P::TOKENS + 16 * (2 * p + half));
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float dx = i < 4 ? (i & 1 ? d.y : d.x) : (i & 1 ? d.w : d.z);
                const float sx = i < 4 ? (i & 1 ? s.y : s.x) : (i & 1 ? s.w : s.z);
                float &o = acc[4 * p + 2 * half + i / 4][i % 4];
                o = fmaf(dx, (i & 2 ? rs.a.y : rs.a.x) * (float)sum[8 * half + i], o);
                if constexpr (P::FOLD == MO_FOLD_MINIMUM) {
                    o = fmaf(sx, i & 2 ? rs.b.y : rs.b.x, o);
                }
            }
        }
    }
}

/* The same where the halves of a block have scales of their own: the sums of each, the other half being zeros. Two pieces at a time have no
 * place in the registers. */
template <class P, int N>
static __device__ __forceinline__ void mo_panel_multiply_halves(float (*acc)[4], const uint32_t a[4],
                                                                const mo_tile_rows_scale<P::FOLD> &rs,
                                                                const uint8_t *acts, const float *scales)
{
    const uint64_t matrix = mo_panel_matrix(acts);
    const uint32_t first[4] = {a[0], a[1], 0, 0}, second[4] = {0, 0, a[2], a[3]};
#pragma unroll
    for (int p = 0; p < (N + 1) / 2; p++) {
        int32_t low[16], high[16];
        mo_panel_send(low, first, matrix + p * (32 * MO_TILE_K / 16));
        mo_panel_send(high, second, matrix + p * (32 * MO_TILE_K / 16));
        mo_panel_await<1>(low);
        mo_panel_await<0>(high);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const float2 d = *(const float2 *)(scales + 16 * (2 * p + i / 8) + i / 4 % 2 * 2);
            const float isum = fmaf(i & 2 ? rs.c.y : rs.c.x, (float)high[i],
                                    (i & 2 ? rs.b.y : rs.b.x) * (float)low[i]); /* exact */
            float &o = acc[4 * p + i / 4][i % 4];
            o = fmaf(i & 1 ? d.y : d.x, (i & 2 ? rs.a.y : rs.a.x) * isum, o);
        }
    }
}

#endif

#endif
