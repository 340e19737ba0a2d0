/* What adapters add to a row of a product, value by value: for adapt.cu and for kernels that do it in addition to their own work. */
#ifndef MO_DEVICE_CUDA_ADAPT_CUH
#define MO_DEVICE_CUDA_ADAPT_CUH

#include "device/cuda/common.cuh"
#include "device/cuda/joined.h"
#include "device/cuda/row.cuh"
#include "numeric/format.h"

/* A value of A as it lies there, and as a number. Apart, so that all loads are on their way before the first value is made. */
template <int TYPE> static __device__ __forceinline__ uint32_t mo_low_bits(const uint8_t *row, int i)
{
    return TYPE == MO_F32 ? ((const uint32_t *)row)[i] : ((const uint16_t *)row)[i];
}

template <int TYPE> static __device__ __forceinline__ float mo_low_value(uint32_t bits)
{
    return TYPE == MO_F32   ? __uint_as_float(bits)
           : TYPE == MO_F16 ? mo_half((uint16_t)bits)
                            : mo_bf16_to_f32((uint16_t)bits);
}

/* Values that are on their way at once: a chain that waits for each of them takes ten times as long. */
enum { MO_LOWER_AHEAD = 24, MO_ADAPT_AHEAD = 16 };

/* This lane's part of a row of A times x. */
template <int TYPE, int AHEAD>
static __device__ __forceinline__ float mo_low_lane(const uint8_t *a, const float *x, int cols)
{
    const int lane = threadIdx.x & 31;
    float sum = 0.0f;
    for (int first = lane; first < cols; first += 32 * AHEAD) {
        uint32_t v[AHEAD];
        float w[AHEAD];
        MO_UNROLL()
        for (int n = 0; n < AHEAD; n++) {
            const int at =
                first + 32 * n < cols ? first + 32 * n : first; /* behind the end any value will do */
            v[n] = mo_low_bits<TYPE>(a, at);
            w[n] = x[at];
        }
        MO_UNROLL()
        for (int n = 0; n < AHEAD; n++) {
            sum = first + 32 * n < cols ? fmaf(mo_low_value<TYPE>(v[n]), w[n], sum) : sum;
        }
    }
    return sum;
}

/* Row j of expert e's A. */
static __device__ __forceinline__ const uint8_t *mo_low_row(const mo_dlow &l, int expert, int j)
{
    return mo_at<const uint8_t>(l.a + (mo_daddr)(expert * l.a_stride)) + j * (l.a_bytes / l.rank);
}

/* Its product with x, by a warp; every lane gets it. */
template <int AHEAD>
static __device__ __forceinline__ float mo_low_product(const mo_dlow &l, const uint8_t *a, const float *x,
                                                       int cols)
{
    return mo_lane_sum(l.type == MO_F32   ? mo_low_lane<MO_F32, AHEAD>(a, x, cols)
                       : l.type == MO_F16 ? mo_low_lane<MO_F16, AHEAD>(a, x, cols)
                                          : mo_low_lane<MO_BF16, AHEAD>(a, x, cols));
}

/* Value i of a row of n, with what the token's adapters from number `from` on add to it: `lows` of them may have something, and u is the
 * row's. */
static __device__ __forceinline__ float mo_low_added(const mo_dadapter_use *use, const mo_dlow *low, int lows,
                                                     const float *u, int expert, int n, int i, float y,
                                                     int from = 0)
{
    for (int k = from; k < MO_OP_USES && use[k].which >= 0; k++) {
        if (use[k].which >= lows || !low[use[k].which].a) {
            continue;
        }
        const mo_dlow &l = low[use[k].which];
        const float *b = mo_at<const float>(l.b + (mo_daddr)(expert * l.b_stride)) + i;
        float t = 0.0f;
        for (int first = 0; first < l.rank; first += MO_ADAPT_AHEAD) {
            float v[MO_ADAPT_AHEAD], w[MO_ADAPT_AHEAD];
            MO_UNROLL()
            for (int j = 0; j < MO_ADAPT_AHEAD; j++) {
                const bool there = first + j < l.rank;
                v[j] = there ? b[(int64_t)(first + j) * n] : 0.0f;
                w[j] = there ? u[l.u_at + first + j] : 0.0f;
            }
            MO_UNROLL()
            for (int j = 0; j < MO_ADAPT_AHEAD; j++) {
                t = first + j < l.rank ? fmaf(v[j], w[j], t) : t;
            }
        }
        y = fmaf(mo_dlow_factor(&l, use[k].scale), t, y);
    }
    return y;
}

/* What the kernel of the product has left of one part (joined.h): B (A x) of the adapters that the token uses, in its order. All but the sums
 * themselves stands before a kernel waits. */
typedef struct mo_low_left {
    const float *t[MO_JOINED_LOWS]; /* NULL: no more */
    float factor[MO_JOINED_LOWS];
} mo_low_left;
static_assert(MO_JOINED_LOWS == 2, "as many are told apart below");

static __device__ __forceinline__ mo_low_left mo_low_left_of(const mo_cuda_parts &parts,
                                                             const mo_cuda_part &part)
{
    const mo_dadapter_use *use = mo_at<const mo_dadapter_use>(parts.uses);
    mo_low_left left = {};
    for (int k = 0; part.n > 0 && k < MO_OP_USES && use[k].which >= 0; k++) {
        const int which = use[k].which;
        if (which >= MO_JOINED_LOWS || !part.low[which].a) {
            continue;
        }
        const float *t = mo_at<const float>(part.t) + (int64_t)which * part.n;
        const float factor = mo_dlow_factor(&part.low[which], use[k].scale);
        if (!left.t[0]) {
            left.t[0] = t;
            left.factor[0] = factor;
        } else { /* none is named twice */
            left.t[1] = t;
            left.factor[1] = factor;
        }
    }
    return left;
}

/* Value i of the part. After the wait. */
static __device__ __forceinline__ float mo_low_left_added(const mo_low_left &left, int i, float y)
{
    y = left.t[0] ? fmaf(left.factor[0], left.t[0][i], y) : y;
    return left.t[1] ? fmaf(left.factor[1], left.t[1][i], y) : y;
}

/* By the block that is first, after the wait: nothing is in the mail when the next product's kernel begins. */
static __device__ __forceinline__ void mo_low_mail_clear(const mo_cuda_parts &parts)
{
    uint32_t *mail = mo_at<uint32_t>(parts.mail);
    for (int i = threadIdx.x; blockIdx.x == 0 && i < parts.words; i += blockDim.x) {
        mail[i] = 0;
    }
}

/* Value i of a row, by a thread: B of the first adapter is asked for before the kernel waits. */
typedef struct mo_low_held {
    float b[MO_HELD_RANK];
    bool there;
} mo_low_held;

static __device__ __forceinline__ mo_low_held mo_low_hold(const mo_dadapter_use *use, const mo_dlow *low,
                                                          int lows, int n, int i)
{
    mo_low_held h;
    const int which = use[0].which;
    h.there = which >= 0 && which < lows && low[which].a && low[which].rank <= MO_HELD_RANK && i < n;
    MO_UNROLL()
    for (int j = 0; j < MO_HELD_RANK; j++) {
        h.b[j] = h.there && j < low[which].rank ? mo_at<const float>(low[which].b)[(int64_t)j * n + i] : 0.0f;
    }
    return h;
}

static __device__ __forceinline__ float mo_low_held_added(const mo_low_held &h, const mo_dadapter_use *use,
                                                          const mo_dlow *low, int lows, const float *u, int n,
                                                          int i, float y)
{
    if (h.there) {
        const mo_dlow &l = low[use[0].which];
        float w[MO_HELD_RANK], t = 0.0f;
        MO_UNROLL()
        for (int j = 0; j < MO_HELD_RANK; j++) {
            w[j] = j < l.rank ? u[l.u_at + j] : 0.0f;
        }
        MO_UNROLL()
        for (int j = 0; j < MO_HELD_RANK; j++) {
            t = j < l.rank ? fmaf(h.b[j], w[j], t) : t;
        }
        y = fmaf(mo_dlow_factor(&l, use[0].scale), t, y);
    }
    return mo_low_added(use, low, lows, u, 0, n, i, y, h.there ? 1 : 0);
}

/* Asks for what those will read of B, which stands whatever the kernel before does; for experts it is not known yet. */
static __device__ __forceinline__ void mo_low_expect(const mo_dlow *low, int lows, int n, int i)
{
    for (int k = 0; k < lows; k++) {
        for (int j = 0; low[k].a && j < low[k].rank; j++) {
            mo_prefetch(mo_at<const float>(low[k].b) + (int64_t)j * n + i);
        }
    }
}

#endif
