/* Small kernels for the test of the emulation itself: each does one thing of CUDA, or one thing wrong. */
#include "device/cuda/common.cuh"
#include "samples.h"

/* out[i] = what lane i gets. */
MO_KERNEL(sample_shuffles, sample)
{
    const int lane = (int)(threadIdx.x & 31);
    uint32_t *out = mo_at<uint32_t>(op.out);
    const float f = (float)lane * 1.5f;
    out[lane] = __float_as_uint(__shfl_xor_sync(MO_FULL, f, 5));
    out[32 + lane] = __shfl_down_sync(MO_FULL, (unsigned)lane, 3);
    out[64 + lane] = __shfl_up_sync(MO_FULL, (unsigned)lane, 3, 8);
    out[96 + lane] = (uint32_t)(__shfl_sync(MO_FULL, (unsigned long long)lane << 33, lane + 9, 16) >> 33);
    out[128 + lane] = __ballot_sync(MO_FULL, lane % 3 == 0);
    out[160 + lane] = (uint32_t)__reduce_add_sync(MO_FULL, lane - 20);
    out[192 + lane] = (uint32_t)__reduce_max_sync(MO_FULL, -lane - 1);
    if (lane < 8) { /* a part of the warp, the rest elsewhere */
        out[224 + lane] = __shfl_xor_sync(0xFFu, (unsigned)lane, 1);
    } else {
        out[224 + lane] = __shfl_xor_sync(0xFFFFFF00u, (unsigned)lane, 16);
    }
    out[256 + lane] = __float_as_uint(mo_lane_sum(1.0f / (float)(lane + 1)));
    __syncwarp();
}

/* One warp: out[16][8] = in: a[16][32] . b[8][32] + 7, fragments gathered as a kernel would. */
MO_KERNEL(sample_mma, sample)
{
    const int lane = (int)threadIdx.x, g = lane / 4, c = lane % 4;
    const uint32_t *a = mo_at<uint32_t>(op.in), *b = a + 16 * 8;
    const uint32_t fa[4] = {a[g * 8 + c], a[(g + 8) * 8 + c], a[g * 8 + c + 4], a[(g + 8) * 8 + c + 4]};
    const uint32_t fb[2] = {b[g * 8 + c], b[g * 8 + c + 4]};
    int32_t d[4] = {7, 7, 7, 7};
    mo_mma_s8(d, fa, fb);
    int32_t *out = mo_at<int32_t>(op.out);
    out[g * 8 + 2 * c] = d[0];
    out[g * 8 + 2 * c + 1] = d[1];
    out[(g + 8) * 8 + 2 * c] = d[2];
    out[(g + 8) * 8 + 2 * c + 1] = d[3];
}

/* Each thread writes its number and reads the mirrored one's. op.wrong leaves the barrier out. */
MO_KERNEL(sample_mirror, sample)
{
    __shared__ uint32_t tile[1024];
    const unsigned n = blockDim.x, t = threadIdx.x;
    tile[t] = t + blockIdx.x * n;
    if (!op.wrong) {
        __syncthreads();
    }
    mo_at<uint32_t>(op.out)[blockIdx.x * n + t] = tile[n - 1 - t];
}

/* out: what shared memory holds at the start, static, then dynamic; then leaves something there. */
MO_KERNEL(sample_unset, sample)
{
    MO_DYNAMIC_SHARED(dynamic);
    __shared__ uint32_t fixed[4];
    uint32_t *out = mo_at<uint32_t>(op.out) + blockIdx.x * 2;
    if (threadIdx.x == 0) {
        out[0] = fixed[3];
        out[1] = ((const uint32_t *)dynamic)[3];
        fixed[3] = 1;
        ((uint32_t *)dynamic)[3] = 1;
    }
}

/* out[t] = in[t], 16 bytes each, through shared memory. op.wrong: reads without waiting. */
MO_KERNEL(sample_async, sample)
{
    MO_DYNAMIC_SHARED(tile);
    const unsigned t = threadIdx.x, n = blockDim.x;
    for (unsigned half = 0; half < 2; half++) {
        mo_async_copy16(tile + (half * n + t) * 16, mo_at<uint8_t>(op.in) + (half * n + t) * 16);
        mo_async_commit();
    }
    for (unsigned half = 0; half < 2; half++) {
        if (half == 0) {
            mo_async_wait<1>();
        } else if (!op.wrong) {
            mo_async_wait<0>();
        }
        __syncthreads();
        mo_at<uint4>(op.out)[half * n + t] = ((const uint4 *)tile)[half * n + (t + 1) % n];
        __syncthreads();
    }
}

/* Barriers with a result; half of the threads end before the last. */
MO_KERNEL(sample_votes, sample)
{
    const unsigned t = threadIdx.x;
    const int any = __syncthreads_or(t == 37), all = __syncthreads_and(t != 37),
              n = __syncthreads_count(t % 2);
    if (t >= 32) {
        return;
    }
    __syncthreads();
    mo_at<int32_t>(op.out)[t] = any * 10000 + all * 1000 + n;
}

MO_KERNEL(sample_coordinates, sample)
{
    const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned n = blockDim.x * blockDim.y * blockDim.z;
    atomicAdd(mo_at<uint32_t>(op.out) + b * n + t, 1u + t);
}

/* The ways to hang, by op.wrong. */
MO_KERNEL(sample_hang, sample)
{
    const int lane = (int)threadIdx.x & 31;
    if (op.wrong == 1 && lane == 3) {
        return; /* and the others name it */
    }
    if (op.wrong == 2 && lane < 16) {
        __syncwarp();
    } else if (op.wrong == 3 && threadIdx.x < 32) {
        __syncthreads();
    }
    mo_at<uint32_t>(op.out)[threadIdx.x] =
        __shfl_xor_sync(op.wrong == 4 ? 0xFFFFu : MO_FULL, (unsigned)lane, 1);
    if (op.wrong == 5 && lane == 0) {
        return;
    }
    __syncwarp();
}

/* Waits for the host. */
MO_KERNEL(sample_await, sample)
{
    const uint32_t *flag = mo_at<uint32_t>(op.in);
    if (threadIdx.x == 0) {
        while (mo_read_system(flag) != 5) {
        }
    }
    __syncthreads();
    mo_at<uint32_t>(op.out)[threadIdx.x] = mo_read_system(flag);
}
