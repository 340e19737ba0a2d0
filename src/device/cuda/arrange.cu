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

enum { MO_ARRANGE_EACH = MO_OP_EXPERTS / (32 * MO_ARRANGE_WARPS) }; /* experts of a thread */

/* Rows of every expert in [begin, end), which are the warp's. */
static __device__ __forceinline__ void mo_arrange_count(const mo_op_arrange &op, const int32_t *ids,
                                                        int begin, int end, int *next)
{
    const int lane = threadIdx.x & 31;
    for (int at = begin; at < end; at += 32) {
        const bool present = at + lane < end;
        const int expert = present ? ids[at + lane] : 0;
        const uint32_t same = mo_arrange_same(expert, op.experts, __ballot_sync(MO_FULL, present));
        if (present && (same & ((1u << lane) - 1)) == 0) { /* the first of them counts for all */
            next[expert] += __popc(same);
        }
        __syncwarp();
    }
}

/* Rows of all experts before the thread's first one, and of its own before each of them: threads have neighbours, warps their sums, warps before
 * them theirs. */
static __device__ __forceinline__ int mo_arrange_before(const mo_op_arrange &op, const int *total, int *sums,
                                                        int (&own)[MO_ARRANGE_EACH])
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int sum = 0;
    for (int i = 0; i < MO_ARRANGE_EACH; i++) {
        const int e = threadIdx.x * MO_ARRANGE_EACH + i;
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
    return before;
}

/* What is told of the thread's experts, and where the warps' rows of them begin. */
static __device__ __forceinline__ void mo_arrange_tell(const mo_op_arrange &op, const int *total, int *counts,
                                                       int before, const int (&own)[MO_ARRANGE_EACH])
{
    const int warps = blockDim.x >> 5;
    const int64_t part_at[3] = {0, op.up_at, op.down_at};
    for (int i = 0; i < MO_ARRANGE_EACH; i++) {
        const int e = threadIdx.x * MO_ARRANGE_EACH + i;
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
}

static __device__ __forceinline__ void mo_arrange_place(const mo_op_arrange &op, const int32_t *ids,
                                                        int begin, int end, int *next)
{
    const int lane = threadIdx.x & 31;
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

MO_BOUNDED(mo_arrange, mo_op_arrange, 32 * MO_ARRANGE_MANY_WARPS, 1);
MO_KERNEL(mo_arrange, mo_op_arrange)
{
    static_assert(MO_ARRANGE_WARPS * MO_OP_EXPERTS <= MO_ARRANGE_COUNTS, "any layer has space");
    __shared__ int counts[MO_ARRANGE_COUNTS]; /* [warps][experts]: a warp's rows, then its next place */
    __shared__ int total[MO_OP_EXPERTS];
    __shared__ int sums[MO_ARRANGE_MANY_WARPS];
    mo_grid_begin();
    const int warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    const int rows = op.tokens * op.used;
    int *const next = counts + warp * op.experts;
    const int each = ((rows + warps - 1) / warps + 31) / 32 * 32;
    const int begin = min(warp * each, rows), end = min(begin + each, rows);
    const int32_t *ids = mo_at<const int32_t>(op.ids);
    for (int i = threadIdx.x; i < warps * op.experts; i += blockDim.x) {
        counts[i] = 0;
    }
    __syncthreads();
    mo_arrange_count(op, ids, begin, end, next);
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
    int own[MO_ARRANGE_EACH];
    const int before = mo_arrange_before(op, total, sums, own);
    mo_arrange_tell(op, total, counts, before, own);
    __syncthreads();
    mo_arrange_place(op, ids, begin, end, next);
}
