/* Choose: the router's choice for one token, as mo_route() in numeric/route.h, by one block of threads, one thread per
 * expert; more threads wait. The best are found by counting, for each expert, how many are better: among the 32 of its
 * warp first, then among those that can still be chosen. That is more comparisons than picking one after the other, but
 * they do not wait for each other. */
#ifndef MO_DEVICE_CUDA_CHOOSE_CUH
#define MO_DEVICE_CUDA_CHOOSE_CUH

#include "device/cuda/choose.h"
#include "device/cuda/row.cuh"

enum {
    MO_CHOOSE_WARPS = MO_OP_EXPERTS / 32,
    MO_CHOOSE_HELD = 4, /* experts of a lane where one warp chooses */
};

/* Shared memory of one choice. */
typedef struct mo_choose_desk {
    float probs[MO_OP_EXPERTS];
    float select[MO_OP_EXPERTS];
    float best[MO_OP_EXPERTS]; /* what is left of `select` for the second round, and whose it is */
    int32_t best_id[MO_OP_EXPERTS];
    float part[MO_CHOOSE_WARPS];
    float total;
    float group[MO_OP_GROUPS];
    bool kept[MO_OP_GROUPS];
    int32_t chosen[MO_OP_USED];
    float weight[MO_OP_USED];
    bool done; /* by one warp */
} mo_choose_desk;

/* Is value b, which stands at j, before value a, which stands at i? Ties go to the lower place. */
static __device__ __forceinline__ bool mo_choose_before(float b, int j, float a, int i)
{
    return b > a || (b == a && j < i);
}

/* ---- Probabilities ---------------------------------------------------------------------------- */

/* The largest of one value per thread, for all threads. */
static __device__ __forceinline__ float mo_choose_largest(mo_choose_desk &d, float v, int threads)
{
    v = mo_warp_max(v);
    if ((threadIdx.x & 31) == 0) {
        d.part[threadIdx.x / 32] = v;
    }
    __syncthreads();
    float m = -INFINITY;
    for (int w = 0; w < threads / 32; w++) {
        m = fmaxf(m, d.part[w]);
    }
    return m + 0.0f;
}

static __device__ __forceinline__ float mo_choose_softmax(mo_choose_desk &d, float v, bool present,
                                                          int experts, int threads)
{
    const int e = threadIdx.x;
    const float x = mo_exp(v - mo_choose_largest(d, v, threads));
    if (present) {
        d.probs[e] = x;
    }
    __syncthreads();
    if (e < 32) {
        float lane = 0.0f;
        MO_UNROLL(8)
        for (int i = e; i < experts; i += 32) {
            lane += d.probs[i];
        }
        const float total = mo_lane_sum(lane);
        if (e == 0) {
            d.total = total;
        }
    }
    __syncthreads();
    return x / d.total;
}

/* ---- Groups ----------------------------------------------------------------------------------- */

/* Experts outside the best groups cannot be chosen: a group counts with its two best. */
static __device__ __forceinline__ bool mo_choose_in_best_group(const mo_op_choose &op, mo_choose_desk &d)
{
    const int size = op.experts / op.groups;
    const int g = threadIdx.x;
    if (g < op.groups) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < size; i++) {
            const float v = d.select[g * size + i];
            second = v > first ? first : v > second ? v : second;
            first = v > first ? v : first;
        }
        d.group[g] = first + (size < 2 ? 0.0f : second);
    }
    __syncthreads();
    if (g < op.groups) {
        int better = 0;
        for (int i = 0; i < op.groups; i++) {
            better += mo_choose_before(d.group[i], i, d.group[g], g);
        }
        d.kept[g] = better < op.groups_used;
    }
    __syncthreads();
    return d.kept[min((int)threadIdx.x / size, op.groups - 1)];
}

/* ---- The best --------------------------------------------------------------------------------- */

/* Fills d.chosen from d.select. Everything is preset, so that numbers that are none choose something that exists. */
static __device__ __forceinline__ void mo_choose_find_best(const mo_op_choose &op, mo_choose_desk &d,
                                                           int threads)
{
    const int e = threadIdx.x, lane = e & 31, warp = e / 32;
    const int kept = min(op.used, 32);
    const int rest = threads / 32 * kept;
    const float v = d.select[e];
    if (e < op.used) {
        d.chosen[e] = e;
    }
    if (e < rest) {
        d.best[e] = -INFINITY;
        d.best_id[e] = 0;
    }
    __syncthreads();
    int better = 0;
    MO_UNROLL()
    for (int j = 0; j < 32; j++) {
        better += mo_choose_before(d.select[32 * warp + j], j, v, lane);
    }
    if (e < op.experts && better < kept) {
        d.best[warp * kept + better] = v;
        d.best_id[warp * kept + better] = e;
    }
    __syncthreads();
    if (e < rest) { /* places are in the order of the experts where values are equal */
        const float mine = d.best[e];
        better = 0;
        MO_UNROLL(8)
        for (int j = 0; j < rest; j++) {
            better += mo_choose_before(d.best[j], j, mine, e);
        }
        if (better < op.used && mine >= -INFINITY) {
            d.chosen[better] = d.best_id[e];
        }
    }
    __syncthreads();
}

/* ---- Weights, by one warp --------------------------------------------------------------------- */

/* As weigh(): lane r has the weights of ranks r and r + 32. */
static __device__ __forceinline__ void mo_choose_weigh(const mo_op_choose &op, mo_choose_desk &d, int64_t t)
{
    const int r = threadIdx.x, s = r + 32;
    float a = r < op.used ? d.probs[d.chosen[r]] : -INFINITY;
    float b = s < op.used ? d.probs[d.chosen[s]] : -INFINITY;
    if (op.gating == MO_GATING_SOFTMAX_SELECTED) {
        const float m = mo_warp_max(fmaxf(a, b)) + 0.0f;
        a = mo_exp(a - m);
        b = mo_exp(b - m);
        const float total = mo_lane_sum((r < op.used ? 0.0f + a : 0.0f) + (s < op.used ? b : 0.0f));
        a = a / total;
        b = b / total;
    }
    if (op.normalize) {
        d.weight[r] = a;
        d.weight[s] = b;
        __syncwarp();
        float sum = 0.0f;
        MO_UNROLL(8)
        for (int i = 0; i < op.used; i++) {
            sum += d.weight[i];
        }
        const float least = fmaxf(sum, 0x1p-14f);
        a /= least;
        b /= least;
    }
    if (op.scale != 1.0f) {
        a *= op.scale;
        b *= op.scale;
    }
    if (r < op.used) {
        mo_at<int32_t>(op.ids)[t * op.used + r] = d.chosen[r];
        mo_at<float>(op.weights)[t * op.used + r] = a;
    }
    if (s < op.used) {
        mo_at<int32_t>(op.ids)[t * op.used + s] = d.chosen[s];
        mo_at<float>(op.weights)[t * op.used + s] = b;
    }
}

/* ---- The worklist ----------------------------------------------------------------------------- */

static __device__ __forceinline__ void mo_choose_put_item(const mo_op_choose &op, int at, mo_daddr base,
                                                          int expert, int row)
{
    mo_dwork_item *item = (mo_dwork_item *)(mo_at<mo_dwork>(op.work) + 1) + at;
    item->base = base;
    item->expert = expert;
    item->token = row / op.used;
    item->row = row;
    item->unused = 0;
}

static __device__ __forceinline__ void mo_choose_put_head(const mo_op_choose &op, int count)
{
    mo_dwork *head = mo_at<mo_dwork>(op.work);
    head->count = count;
    head->missing = op.tokens * op.used - count;
    head->unused[0] = head->unused[1] = 0;
}

/* For a single token, by one warp. */
static __device__ __forceinline__ void mo_choose_list_one(const mo_op_choose &op, const mo_choose_desk &d)
{
    const int lane = threadIdx.x;
    const mo_daddr *table = mo_at<const mo_daddr>(op.table);
    int count = 0;
    for (int first = 0; first < op.used; first += 32) {
        const int r = first + lane;
        const int expert = r < op.used ? d.chosen[r] : 0;
        const mo_daddr base = r < op.used ? table[expert] : 0;
        const uint32_t here = __ballot_sync(MO_FULL, base != 0);
        if (base != 0) {
            mo_choose_put_item(op, count + __popc(here & ((1u << lane) - 1)), base, expert, r);
        }
        count += __popc(here);
    }
    if (lane == 0) {
        mo_choose_put_head(op, count);
    }
}

/* ---- One warp ---------------------------------------------------------------------------------- */

/* Few experts without groups: one warp picks one after the other, with no barrier of the block between. */

static __device__ __forceinline__ uint32_t mo_choose_most(uint32_t v)
{
#if !defined(MO_CUDA_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(MO_FULL, v);
#else
    for (int s = 16; s >= 1; s /= 2) {
        v = max(v, __shfl_xor_sync(MO_FULL, v, s));
    }
    return v;
#endif
}

/* A word that is larger where the value is, for values that are numbers; both zeros are equal, and none is 0. */
static __device__ __forceinline__ uint32_t mo_choose_key(float v)
{
    const uint32_t bits = mo_bits_of(v + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The gate of a lane's experts lane, lane + 32, ...: what mo_choose_softmax() and the sigmoid make of the scores. */
static __device__ __forceinline__ void mo_choose_gate_held(const mo_op_choose &op, float *p)
{
    if (op.gating == MO_GATING_SOFTMAX) {
        float most = -INFINITY, sum = 0.0f;
        MO_UNROLL()
        for (int k = 0; k < MO_CHOOSE_HELD; k++) {
            most = fmaxf(most, p[k]);
        }
        most = mo_warp_max(most) + 0.0f;
        MO_UNROLL()
        for (int k = 0; k < MO_CHOOSE_HELD; k++) {
            p[k] = mo_exp(p[k] - most);
            sum = (int)threadIdx.x + 32 * k < op.experts ? sum + p[k] : sum;
        }
        sum = mo_lane_sum(sum);
        MO_UNROLL()
        for (int k = 0; k < MO_CHOOSE_HELD; k++) {
            p[k] = p[k] / sum;
        }
    } else if (op.gating == MO_GATING_SIGMOID) {
        MO_UNROLL()
        for (int k = 0; k < MO_CHOOSE_HELD; k++) {
            p[k] = mo_sigmoid(p[k]);
        }
    }
}

/* Picks by keys, of which those that were picked become 0, into d.chosen. */
static __device__ __forceinline__ void mo_choose_pick(const mo_op_choose &op, mo_choose_desk &d,
                                                      uint32_t *key)
{
    const int lane = threadIdx.x;
    MO_UNROLL(1)
    for (int r = 0; r < op.used; r++) {
        uint32_t mine = key[0];
        int at = 0;
        MO_UNROLL()
        for (int k = 1; k < MO_CHOOSE_HELD; k++) {
            at = key[k] > mine ? k : at;
            mine = max(mine, key[k]);
        }
        /* The best, and of equal ones the lowest place: the largest that is left of a place. */
        const uint32_t best = mo_choose_most(mine);
        const uint32_t left = mo_choose_most(mine == best ? 32 * MO_CHOOSE_HELD - (32 * at + lane) : 0);
        const int expert = 32 * MO_CHOOSE_HELD - (int)left;
        MO_UNROLL()
        for (int k = 0; k < MO_CHOOSE_HELD; k++) {
            key[k] = 32 * k + lane == expert ? 0 : key[k];
        }
        if (lane == 0) {
            d.chosen[r] = expert;
        }
    }
    __syncwarp();
}

/* The choice of the only token, by the first warp. False: there are values that are no numbers, and nothing has been written. */
static __device__ __forceinline__ bool mo_choose_held(const mo_op_choose &op, mo_choose_desk &d)
{
    const int lane = threadIdx.x;
    float *scores = mo_at<float>(op.scores);
    float p[MO_CHOOSE_HELD];
    uint32_t key[MO_CHOOSE_HELD];
    bool bad = false;
    MO_UNROLL()
    for (int k = 0; k < MO_CHOOSE_HELD; k++) {
        p[k] = 32 * k + lane < op.experts ? scores[32 * k + lane] : -INFINITY;
    }
    mo_choose_gate_held(op, p);
    MO_UNROLL()
    for (int k = 0; k < MO_CHOOSE_HELD; k++) {
        const int e = 32 * k + lane;
        key[k] = 0;
        if (e < op.experts) {
            const float select = op.select_bias ? p[k] + mo_at<const float>(op.select_bias)[e] : p[k];
            bad |= isnan(select);
            key[k] = mo_choose_key(select);
        }
    }
    if (__ballot_sync(MO_FULL, bad) != 0) {
        return false;
    }
    MO_UNROLL()
    for (int k = 0; k < MO_CHOOSE_HELD; k++) {
        const int e = 32 * k + lane;
        if (e < op.experts) {
            d.probs[e] = p[k];
            if (op.gating != MO_GATING_SOFTMAX_SELECTED) {
                scores[e] = p[k];
            }
        }
    }
    mo_choose_pick(op, d, key);
    mo_choose_weigh(op, d, 0);
    if (op.table) {
        mo_choose_list_one(op, d);
    }
    return true;
}

/* For one token and few experts. False: the other way is left. All threads come here. */
static __device__ __forceinline__ bool mo_choose_by_warp(const mo_op_choose &op, mo_choose_desk &d)
{
    if (op.tokens != 1 || op.experts > 32 * MO_CHOOSE_HELD || op.groups > 1 || op.used > op.experts) {
        return false;
    }
    if (threadIdx.x < 32) {
        const bool done = mo_choose_held(op, d);
        if (threadIdx.x == 0) {
            d.done = done;
        }
    }
    __syncthreads();
    return d.done;
}

/* ---- All of it -------------------------------------------------------------------------------- */

/* The choice of token t. The block has mo_choose_threads() or more; what they choose does not depend on it. */
static __device__ __forceinline__ void mo_choose_one(const mo_op_choose &op, mo_choose_desk &d, int64_t t)
{
    if (mo_choose_by_warp(op, d)) {
        return;
    }
    const int e = threadIdx.x, threads = mo_choose_threads(&op);
    const bool present = e < op.experts;
    float *scores = mo_at<float>(op.scores) + t * op.experts;
    float p = present ? scores[e] : -INFINITY;
    const float bias = present && op.select_bias ? mo_at<const float>(op.select_bias)[e] : 0.0f;
    if (op.gating == MO_GATING_SOFTMAX) {
        p = mo_choose_softmax(d, p, present, op.experts, threads);
    } else if (op.gating == MO_GATING_SIGMOID) {
        p = mo_sigmoid(p);
    }
    d.probs[e] = p;
    d.select[e] = !present ? -INFINITY : op.select_bias ? p + bias : p;
    if (present && op.gating != MO_GATING_SOFTMAX_SELECTED) {
        scores[e] = p;
    }
    __syncthreads();
    if (op.groups > 1) {
        const bool kept = mo_choose_in_best_group(op, d);
        if (!kept) {
            d.select[e] = -INFINITY;
        }
        __syncthreads();
    }
    mo_choose_find_best(op, d, threads);
    if (e < 32) {
        mo_choose_weigh(op, d, t);
        if (op.table && op.tokens == 1) {
            mo_choose_list_one(op, d);
        }
    }
}

#endif
