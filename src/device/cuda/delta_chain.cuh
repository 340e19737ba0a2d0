/* The recurrence of the delta rule over a prompt, where the latency of one token after the other is what counts: the sum
 * with k is 128 additions in a row, and the next token's begins when it is known. A block has 32 columns of a head's
 * state and five warps, four of which have a scheduler each: two for the chain, which ends in a token's d; two that follow
 * a group of tokens behind, with d from shared memory and a state of their own, and make the outputs; one that brings the
 * inputs. A column is in two lanes, the upper half of its rows in lanes 0 to 15 and the lower half in lanes 16 to 31: the
 * steps outside the chain are halved, and k of the next token fits in registers while the chain runs. Every lane
 * goes through its rows twice; the first time the upper half's sums are right, from which the lower half starts. */
#ifndef MO_DEVICE_CUDA_DELTA_CHAIN_CUH
#define MO_DEVICE_CUDA_DELTA_CHAIN_CUH

#include "device/cuda/delta_gates.cuh"
#include "device/cuda/row.cuh"

enum {
    CHAIN_HEAD = 128,
    CHAIN_HALF = CHAIN_HEAD / 2, /* rows of a lane */
    CHAIN_COLUMNS = 32,          /* of a block */
    CHAIN_EARLY = 16,            /* values of q that are read before the token before is done */
    CHAIN_THREADS = 160
};

/* The halves of a row are in different banks. */
struct mo_chain_row {
    float upper[CHAIN_HALF], space[4], lower[CHAIN_HALF];
};

/* ROWS: every row of the state has a decay. Then there is space for fewer tokens. */
template <bool ROWS> struct mo_chain_ring {
    enum {
        GROUP = ROWS ? 4 : 8, /* tokens between two barriers */
        RING = 4 * GROUP      /* tokens in shared memory: groups behind, at work, ahead and to come */
    };
    mo_chain_row q[RING], k[RING], decays[ROWS ? RING : 1];
    float v[RING][CHAIN_COLUMNS], d[RING][CHAIN_COLUMNS];
    float beta[RING], decay[RING];
};

struct mo_chain_work {
    mo_dslice slice;
    int h, column; /* the first of the block's */
};

/* ---- Inputs ---- */

template <bool ROWS>
static __device__ __forceinline__ void mo_chain_bring(const mo_op_recur &op, mo_chain_ring<ROWS> &ring,
                                                      const mo_chain_work &work, int group)
{
    const int lane = threadIdx.x & 31, first = group * ring.GROUP;
    const int count = min((int)ring.GROUP, work.slice.count - first);
    const int64_t channels = (2 * (int64_t)op.k_heads + op.v_heads) * CHAIN_HEAD;
    const int key_head = mo_delta_key_head(op, work.h), place = 4 * lane + (lane < 16 ? 0 : 4);
    for (int x = 0; x < count; x++) {
        const int at = (first + x) % ring.RING;
        const float *c = mo_at<const float>(op.after) + ((int64_t)work.slice.first + first + x) * channels;
        mo_async_copy16(ring.q[at].upper + place, c + key_head * CHAIN_HEAD + 4 * lane);
        mo_async_copy16(ring.k[at].upper + place, c + (op.k_heads + key_head) * CHAIN_HEAD + 4 * lane);
        if (ROWS) {
            const float *rows = mo_delta_rows(op, (int64_t)work.slice.first + first + x);
            mo_async_copy16(ring.decays[at].upper + place, rows + work.h * CHAIN_HEAD + 4 * lane);
        }
        if (lane < CHAIN_COLUMNS / 4) {
            mo_async_copy16(ring.v[at] + 4 * lane,
                            c + (2 * op.k_heads + work.h) * CHAIN_HEAD + work.column + 4 * lane);
        }
    }
    mo_async_commit();
    if (lane < count) {
        const int at = (first + lane) % ring.RING;
        const int64_t t = (int64_t)work.slice.first + first + lane;
        if (ROWS) {
            ring.beta[at] = mo_delta_rows_beta(op, t, work.h);
        } else {
            mo_delta_gates(op, t, work.h, &ring.beta[at], &ring.decay[at]);
        }
    }
}

/* This lane's half of a row. */
static __device__ __forceinline__ const float *mo_chain_half(const mo_chain_row &row)
{
    return (threadIdx.x & 16) ? row.lower : row.upper;
}

/* This lane's column among the block's. */
static __device__ __forceinline__ int mo_chain_column(void)
{
    return threadIdx.x / 32 % 2 * 16 + threadIdx.x % 16;
}

/* ---- The chain ---- */

/* The sum of S[i] * x[i] over a column; both its lanes get it. */
static __device__ __forceinline__ float mo_chain_sum(const float *S, const float *x)
{
    const int lane = threadIdx.x & 15;
    float sum = 0.0f;
    MO_UNROLL()
    for (int i = 0; i < CHAIN_HALF; i++) {
        sum = fmaf(S[i], x[i], sum);
    }
    sum = __shfl_sync(MO_FULL, sum, lane);
    MO_UNROLL()
    for (int i = 0; i < CHAIN_HALF; i++) {
        sum = fmaf(S[i], x[i], sum);
    }
    return __shfl_sync(MO_FULL, sum, 16 + lane);
}

template <bool ROWS>
static __device__ __forceinline__ void mo_chain_read(float *k, const mo_chain_ring<ROWS> &ring, int t)
{
    const float *half = mo_chain_half(ring.k[t % ring.RING]);
    MO_UNROLL()
    for (int i = 0; i < CHAIN_HALF; i++) {
        k[i] = half[i];
    }
}

struct mo_chain_state {
    float a;       /* the sum of the token to come */
    float v, beta; /* of that token */
    float decay;   /* of the one after it, unless rows have theirs */
};

template <bool ROWS>
static __device__ __forceinline__ void mo_chain_scalars(mo_chain_state &c, const mo_chain_ring<ROWS> &ring,
                                                        int t)
{
    c.v = ring.v[t % ring.RING][mo_chain_column()];
    c.beta = ring.beta[t % ring.RING];
    c.decay = ROWS ? 1.0f : ring.decay[(t + 1) % ring.RING];
}

/* Token t changes the state; then the decay and the sum of the token after it. k and next are those tokens'; k becomes
 * that of the token after them. */
template <bool ROWS>
static __device__ __forceinline__ void mo_chain_token(float *S, mo_chain_state &c, float *k,
                                                      const float *next, mo_chain_ring<ROWS> &ring, int t)
{
    const float d = c.beta * (c.v - c.a), decay = c.decay;
    const float *decays = mo_chain_half(ring.decays[ROWS ? (t + 1) % ring.RING : 0]);
    ring.d[t % ring.RING][mo_chain_column()] = d;
    mo_chain_scalars(c, ring, t + 1);
    MO_UNROLL()
    for (int i = 0; i < CHAIN_HALF; i++) {
        S[i] = fmaf(k[i], d, S[i]);
        S[i] = (ROWS ? decays[i] : decay) * S[i];
    }
    mo_chain_read(k, ring, t + 2);
    c.a = mo_chain_sum(S, next);
}

/* ---- The outputs ---- */

/* Four values of shared memory, read here and not where they are used. */
static __device__ __forceinline__ void mo_chain_quad(float *to, const float *from)
{
#ifdef MO_CUDA_EMULATED
    for (int i = 0; i < 4; i++) {
        to[i] = from[i];
    }
#else
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(from))
                 : "memory");
#endif
}

struct mo_chain_follow {
    float d, decay;
    float k[CHAIN_HALF], q[CHAIN_EARLY]; /* q: the first of the lane's */
    float o;                             /* of the token before, which is on its way between lanes */
};

template <bool ROWS>
static __device__ __forceinline__ float mo_chain_change(const mo_chain_ring<ROWS> &ring, int t)
{
    return *(const volatile float *)&ring.d[t % ring.RING][mo_chain_column()];
}

/* What token t needs first, but for d, while the one before is at work. */
template <bool ROWS>
static __device__ __forceinline__ void mo_chain_ahead(mo_chain_follow &f, const mo_chain_ring<ROWS> &ring,
                                                      int t)
{
    const float *k = mo_chain_half(ring.k[t % ring.RING]), *q = mo_chain_half(ring.q[t % ring.RING]);
    f.decay = ROWS ? 1.0f : *(const volatile float *)&ring.decay[t % ring.RING];
    MO_UNROLL()
    for (int i = 0; i < CHAIN_HALF; i += 4) {
        if (i < CHAIN_EARLY) {
            mo_chain_quad(f.q + i, q + i);
        }
        mo_chain_quad(f.k + i, k + i);
    }
}

/* Outputs of tokens first - 1 to end - 2: the last one's is in f. Both lanes of a column store it: a branch would keep the
 * reads from moving up. */
template <bool ROWS>
static __device__ __forceinline__ void mo_chain_outputs(float *S, mo_chain_follow &f,
                                                        const mo_chain_ring<ROWS> &ring, int first, int end,
                                                        float scale, float *out, int64_t stride)
{
    f.d = mo_chain_change(ring, first);
    MO_UNROLL(1)
    for (int t = first; t < end; t++) {
        const float *row = mo_chain_half(ring.q[t % ring.RING]);
        const float *decays = mo_chain_half(ring.decays[ROWS ? t % ring.RING : 0]);
        float q[CHAIN_HALF];
        out[max(t - 1, 0) * stride] = f.o * scale; /* the first is none and soon gone */
        MO_UNROLL()
        for (int i = 0; i < CHAIN_HALF; i++) {
            q[i] = i < CHAIN_EARLY ? f.q[i] : row[i];
            S[i] = (ROWS ? decays[i] : f.decay) * S[i];
            S[i] = fmaf(f.k[i], f.d, S[i]);
        }
        f.d = mo_chain_change(ring, min(t + 1, end - 1));
        mo_chain_ahead(f, ring, t + 1);
        f.o = mo_chain_sum(S, q);
    }
}

/* ---- The block: its warps meet after every group ---- */

/* Whole groups: results of tokens after the last are not used. */
template <bool ROWS>
static __device__ __forceinline__ void mo_chain_lead(float *S, mo_chain_ring<ROWS> &ring, int groups)
{
    const float *decays = mo_chain_half(ring.decays[0]);
    float k[CHAIN_HALF], next[CHAIN_HALF];
    mo_chain_state c;
    MO_UNROLL()
    for (int i = 0; i < CHAIN_HALF; i++) {
        S[i] = (ROWS ? decays[i] : ring.decay[0]) * S[i];
    }
    mo_chain_read(k, ring, 0);
    mo_chain_read(next, ring, 1);
    mo_chain_scalars(c, ring, 0);
    c.a = mo_chain_sum(S, k);
    for (int g = 0; g < groups; g++) {
        MO_UNROLL(1)
        for (int t = g * ring.GROUP; t < (g + 1) * ring.GROUP; t += 2) {
            mo_chain_token(S, c, k, next, ring, t);
            mo_chain_token(S, c, next, k, ring, t + 1);
        }
        __syncthreads();
    }
    __syncthreads();
}

template <bool ROWS>
static __device__ __forceinline__ void mo_chain_run(const mo_op_recur &op, mo_chain_ring<ROWS> &ring)
{
    const int pieces = CHAIN_HEAD / CHAIN_COLUMNS, part = __shfl_sync(MO_FULL, (int)threadIdx.x / 64, 0);
    const mo_chain_work work = {mo_at<const mo_dslice>(op.slices)[blockIdx.y], (int)blockIdx.x / pieces,
                                (int)blockIdx.x % pieces * CHAIN_COLUMNS};
    const int column = work.column + mo_chain_column(), count = work.slice.count;
    const int groups = (count + ring.GROUP - 1) / ring.GROUP, row = (threadIdx.x & 16) ? CHAIN_HALF : 0;
    float *state = mo_at<float>(mo_at<const mo_dstate>(work.slice.layers)[op.layer].delta) +
                   ((int64_t)work.h * CHAIN_HEAD + row) * CHAIN_HEAD + column;
    float S[CHAIN_HALF];
    if (part < 2) {
        MO_UNROLL()
        for (int i = 0; i < CHAIN_HALF; i++) {
            S[i] = state[i * CHAIN_HEAD]; /* no other thread uses it: it is as the previous step left it */
        }
    }
    mo_grid_begin();
    if (part == 2) {
        mo_chain_bring(op, ring, work, 0);
        mo_chain_bring(op, ring, work, 1);
        mo_async_wait<0>();
        __syncthreads();
        for (int g = 0; g <= groups; g++) {
            mo_chain_bring(op, ring, work, g + 2);
            mo_async_wait<0>();
            __syncthreads();
        }
        return;
    }
    __syncthreads();
    if (part == 0) {
        mo_chain_lead(S, ring, groups);
        return;
    }
    float *out =
        mo_at<float>(op.mixed.x) + (int64_t)work.slice.first * op.mixed.cols + work.h * CHAIN_HEAD + column;
    mo_chain_follow f;
    f.o = 0.0f;
    mo_chain_ahead(f, ring, 0);
    __syncthreads();
    for (int g = 0; g < groups; g++) {
        mo_chain_outputs(S, f, ring, g * ring.GROUP, min((g + 1) * (int)ring.GROUP, count), op.scale, out,
                         op.mixed.cols);
        __syncthreads();
    }
    if (count > 0) {
        out[(count - 1) * (int64_t)op.mixed.cols] = f.o * op.scale;
    }
    if (op.state != MO_STATE_STAYS) {
        MO_UNROLL()
        for (int i = 0; i < CHAIN_HALF; i++) {
            state[i * CHAIN_HEAD] = S[i];
        }
    }
}

#endif
