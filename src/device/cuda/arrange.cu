/* MO_OP_ARRANGE: one block of threads. Each warp has a part of the rows, one after the other; it counts its rows of every
 * expert, and when it is known how many there are before them, it gives them their places in a second pass. */
#include "device/cuda/arrange.h"
#include "device/cuda/row.cuh"

/* Lanes with the same expert as this one, among the given number. */
static __device__ __forceinline__ uint32_t mo_arrange_same(int expert, int experts, uint32_t here)
{
    uint32_t same = here;
    for (int bit = 0; (1 << bit) < experts; bit++) {
        const bool set = expert >> bit & 1;
        const uint32_t with = __ballot_sync(MO_FULL, set);
        same &= set ? with : ~with;
    }
    return same;
}

MO_BOUNDED(mo_arrange, mo_op_arrange, 32 * MO_ARRANGE_MANY_WARPS, 1);
MO_KERNEL(mo_arrange, mo_op_arrange)
{
    static_assert(MO_ARRANGE_WARPS * MO_OP_EXPERTS <= MO_ARRANGE_COUNTS, "any layer has space");
    __shared__ int counts[MO_ARRANGE_COUNTS]; /* [warps][experts]: a warp's rows, then its next place */
    __shared__ int total[MO_OP_EXPERTS];
    __shared__ int sums[MO_ARRANGE_MANY_WARPS];
    mo_grid_begin();
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int rows = op.tokens * op.used;
    int *const next = counts + warp * op.experts;
    const int each = ((rows + warps - 1) / warps + 31) / 32 * 32;
    const int begin = min(warp * each, rows), end = min(begin + each, rows);
    const int32_t *ids = mo_at<const int32_t>(op.ids);
    for (int i = threadIdx.x; i < warps * op.experts; i += blockDim.x) {
        counts[i] = 0;
    }
    __syncthreads();
    for (int at = begin; at < end; at += 32) {
        const bool present = at + lane < end;
        const int expert = present ? ids[at + lane] : 0;
        const uint32_t same = mo_arrange_same(expert, op.experts, __ballot_sync(MO_FULL, present));
        if (present && (same & ((1u << lane) - 1)) == 0) { /* the first of them counts for all */
            next[expert] += __popc(same);
        }
        __syncwarp();
    }
    __syncthreads();
    for (int e = threadIdx.x; e < op.experts; e += blockDim.x) {
        int sum = 0;
        for (int w = 0; w < warps; w++) {
            const int own = counts[w * op.experts + e];
            counts[w * op.experts + e] = sum;
            sum += own;
        }
        total[e] = sum;
    }
    __syncthreads();
    /* Where each expert's rows begin: threads have neighbours, warps their sums, warps before them theirs. */
    constexpr int PER_THREAD = MO_OP_EXPERTS / (32 * MO_ARRANGE_WARPS);
    int own[PER_THREAD], sum = 0;
    for (int i = 0; i < PER_THREAD; i++) {
        const int e = threadIdx.x * PER_THREAD + i;
        own[i] = sum;
        sum += e < op.experts ? total[e] : 0;
    }
    int before = sum;
    for (int s = 1; s < 32; s *= 2) {
        const int other = __shfl_up_sync(MO_FULL, before, s);
        before += lane >= s ? other : 0;
    }
    if (lane == 31) {
        sums[warp] = before;
    }
    before -= sum;
    __syncthreads();
    for (int w = 0; w < warp; w++) {
        before += sums[w];
    }
    const int64_t part_at[3] = {0, op.up_at, op.down_at};
    for (int i = 0; i < PER_THREAD; i++) {
        const int e = threadIdx.x * PER_THREAD + i;
        if (e >= op.experts) {
            break;
        }
        const mo_daddr base = mo_at<const mo_daddr>(op.table)[e];
        mo_dgroup group = {};
        group.expert = e;
        group.first = before + own[i];
        group.count = base ? total[e] : 0;
        for (int part = 0; part < 3; part++) {
            group.data = base + (mo_daddr)part_at[part];
            mo_at<mo_dgroup>(op.groups)[part * op.limit + e] = group;
        }
        mo_at<int32_t>(op.counts)[e] = total[e];
        for (int w = 0; w < warps; w++) {
            counts[w * op.experts + e] += group.first;
        }
    }
    __syncthreads();
    for (int at = begin; at < end; at += 32) {
        const bool present = at + lane < end;
        const int expert = present ? ids[at + lane] : 0;
        const uint32_t same = mo_arrange_same(expert, op.experts, __ballot_sync(MO_FULL, present));
        const uint32_t earlier = same & ((1u << lane) - 1);
        const int row = next[expert] + __popc(earlier);
        __syncwarp();
        if (present) {
            mo_at<int32_t>(op.row_of)[at + lane] = row;
            mo_at<int32_t>(op.picks)[row] = (at + lane) / op.used;
            if (earlier == 0) {
                next[expert] += __popc(same);
            }
        }
        __syncwarp();
    }
}
