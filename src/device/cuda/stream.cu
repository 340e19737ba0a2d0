/* The residual stream and other small operations: merge and norms, activations, logits, and the exchange with the
 * host. */
#include "device/cuda/activation.cuh"
#include "device/cuda/adapt.cuh"
#include "device/cuda/stream.cuh"
#include "device/rank.h"

/* ---- The stream: one thread block per token --------------------------------------------------- */

enum { STREAM_THREADS = 1024, STREAM_MANY_THREADS = 512 };

/* Whose outputs a token takes: rows of op.down and their weights, in shared memory. */
typedef struct picks {
    int32_t row[MO_OP_USED]; /* -1: passed over */
    float weight[MO_OP_USED];
} picks;

static __device__ __forceinline__ void load_picks(const mo_op_stream &op, int64_t t, picks &p)
{
    for (int r = threadIdx.x; r < op.used; r += blockDim.x) {
        const int64_t i = t * op.used + r;
        const int32_t row = op.row_of ? mo_at<const int32_t>(op.row_of)[i] : (int32_t)i;
        p.row[r] = mo_at<const int32_t>(op.ids)[i] >= 0 ? row : -1;
        p.weight[r] = mo_at<const float>(op.weights)[i];
    }
    __syncthreads();
}

/* The quads at `at` of token t's first SOME outputs, in router order, before it is known which of them count. */
template <int SOME, bool WIDE>
static __device__ __forceinline__ void expect_outputs(const mo_op_stream &op, int64_t t, int at, float4 *y)
{
    const float *down = mo_at<const float>(op.down) + t * op.used * op.n;
    MO_UNROLL()
    for (int r = 0; r < SOME; r++) {
        if (r < op.used) {
            y[r] = mo_load_quad<WIDE>(down + (int64_t)r * op.n, at, op.n);
        }
    }
}

/* One quad of the experts' outputs in router order; the loads of SOME rows are under way together. expected: those of
 * the first SOME are in y already. */
template <int SOME, bool WIDE>
static __device__ __forceinline__ float4 merge_quad(const mo_op_stream &op, const picks &p, int at,
                                                    bool expected, float4 *y)
{
    const float *down = mo_at<const float>(op.down);
    float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int first = 0; first < op.used; first += SOME) {
        if (!expected || first > 0) {
            MO_UNROLL()
            for (int i = 0; i < SOME; i++) {
                const int r = first + i;
                if (r < op.used && p.row[r] >= 0) {
                    y[i] = mo_load_quad<WIDE>(down + (int64_t)p.row[r] * op.n, at, op.n);
                }
            }
        }
        MO_UNROLL()
        for (int i = 0; i < SOME; i++) {
            const int r = first + i;
            if (r < op.used && p.row[r] >= 0) {
                acc = axpy(p.weight[r], y[i], acc);
            }
        }
    }
    return acc;
}

/* The experts' outputs with their weights, then the shared part. Where outputs are in router order (row_of is 0), those of
 * a short row are asked for at once: who counts is another wait for memory. */
template <int QUADS, bool WIDE>
static __device__ __forceinline__ spread<QUADS> merge_experts(const mo_op_stream &op, int64_t t)
{
    __shared__ picks p;
    constexpr int SOME = QUADS == 1 ? 8 : QUADS == 2 ? 4 : 2;
    const bool expected = QUADS == 1 && !op.row_of;
    spread<QUADS> s;
    float4 y[SOME];
    if (expected) {
        expect_outputs<SOME, WIDE>(op, t, quad_at(0), y);
    }
    load_picks(op, t, p);
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        s.v[k] = merge_quad<SOME, WIDE>(op, p, quad_at(k), expected, y);
    }
    if (op.shared) {
        const float g = op.shared_gate ? mo_sigmoid(mo_at<const float>(op.shared_gate)[t]) : 1.0f;
        const float *shared = mo_at<const float>(op.shared) + t * op.n;
        MO_UNROLL()
        for (int k = 0; k < QUADS; k++) {
            s.v[k] = axpy(g, mo_load_quad<WIDE>(shared, quad_at(k), op.n), s.v[k]);
        }
    }
    return s;
}

/* As mo_merge_token() in numeric/merge.h. */
template <int QUADS, bool WIDE>
static __device__ __forceinline__ spread<QUADS> merge_feed(const mo_op_stream &op, const bench &b, int64_t t)
{
    spread<QUADS> sum;
    if (op.dense) {
        sum = load_row<QUADS, WIDE>(mo_at<const float>(op.dense) + t * op.n, op.n);
        if (op.dense_norm) {
            norm_row<QUADS, WIDE>(b, sum, mo_at<const float>(op.dense_norm));
        }
    }
    if (op.used > 0 || op.shared || !op.dense) {
        spread<QUADS> experts = merge_experts<QUADS, WIDE>(op, t);
        if (op.moe_norm) {
            norm_row<QUADS, WIDE>(b, experts, mo_at<const float>(op.moe_norm));
        }
        if (op.dense) {
            add_row(sum, experts);
        } else {
            sum = experts;
        }
    }
    if (op.post_norm) {
        norm_row<QUADS, WIDE>(b, sum, mo_at<const float>(op.post_norm));
    }
    return sum;
}

/* What a row of a picture has is added to it. */
template <int QUADS, bool WIDE>
static __device__ __forceinline__ void add_features(const mo_op_stream &op, int64_t t, spread<QUADS> &x)
{
    if (op.features && mo_at<const mo_dplace>(op.places)[t].added) {
        add_row(x, load_row<QUADS, WIDE>(mo_at<const float>(op.features) + t * op.n, op.n));
    }
}

/* What adapters add to a row, and the row again. */
template <int QUADS, bool WIDE>
static __device__ __forceinline__ void add_left(const mo_low_left &left, float *row, int n, spread<QUADS> &y)
{
    MO_UNROLL()
    for (int k = 0; k < QUADS; k++) {
        MO_UNROLL()
        for (int i = 0; i < MO_JOINED_LOWS; i++) {
            if (left.t[i]) {
                y.v[k] = axpy(left.factor[i], mo_load_quad<WIDE>(left.t[i], quad_at(k), n), y.v[k]);
            }
        }
        mo_store_quad<WIDE>(row, quad_at(k), n, y.v[k]);
    }
}

/* parts: what is added to y first, or NULL. */
template <int QUADS, bool WIDE>
static __device__ __forceinline__ void stream(const mo_op_stream &op, uint8_t *space,
                                              const mo_cuda_parts *parts = NULL)
{
    __shared__ float factor;
    const bench b = {(float *)space, &factor, op.n, op.eps};
    const int64_t t = blockIdx.x;
    float *row = mo_at<float>(op.x) + t * op.n;
    /* Short rows have space for the norms' weights from the beginning: one wait for memory less. */
    float4 prelaunch[MO_OP_NORMS];
    bool any = false;
    MO_UNROLL()
    for (int i = 0; i < MO_OP_NORMS; i++) {
        any |= op.norm[i].out.x != 0;
        if (QUADS == 1 && op.norm[i].out.x && op.norm[i].weight) {
            prelaunch[i] = mo_load_quad<WIDE>(mo_at<const float>(op.norm[i].weight), quad_at(0), op.n);
        }
    }
    mo_low_left left = {};
    if (parts) {
        left = mo_low_left_of(*parts, parts->part[0]);
    }
    mo_grid_begin();
    spread<QUADS> x = {};
    if (op.feed != 2) {
        x = load_row<QUADS, WIDE>(row, op.n);
    }
    if (op.feed) {
        add_row(x, merge_feed<QUADS, WIDE>(op, b, t));
    } else if (op.y) {
        spread<QUADS> y = load_row<QUADS, WIDE>(mo_at<const float>(op.y) + t * op.n, op.n);
        if (parts) {
            add_left<QUADS, WIDE>(left, mo_at<float>(op.y) + t * op.n, op.n, y);
        }
        if (op.y_norm) {
            norm_row<QUADS, WIDE>(b, y, mo_at<const float>(op.y_norm));
        }
        add_row(x, y);
    }
    scale_row(op, x);
    add_features<QUADS, WIDE>(op, t, x);
    keep_row<QUADS, WIDE>(op, row, x);
    if (!any) {
        return;
    }
    if (op.centered) {
        center_row(b, x); /* what the stream keeps has been written */
    }
    const float r = row_factor(b, x);
    MO_UNROLL()
    for (int i = 0; i < MO_OP_NORMS; i++) {
        if (!op.norm[i].out.x) {
            continue;
        }
        MO_UNROLL()
        for (int k = 0; k < QUADS; k++) {
            const int at = quad_at(k);
            float4 weight = prelaunch[i];
            if (QUADS != 1 && op.norm[i].weight) {
                weight = mo_load_quad<WIDE>(mo_at<const float>(op.norm[i].weight), at, op.n);
            }
            leave_quad<WIDE>(op.norm[i], t, at, op.n,
                             norm_quad<WIDE>(op.norm[i], at, op.n, x.v[k], r, weight));
        }
    }
}

/* Rows of up to 4096 values; of up to 16384; of any alignment. */
MO_BOUNDED(mo_stream_short, mo_op_stream, STREAM_THREADS, 1);
MO_KERNEL(mo_stream_short, mo_op_stream)
{
    MO_DYNAMIC_SHARED(space);
    stream<1, true>(op, space);
}

/* For one token, what adapters add to its mixer's output, and the stream. */
MO_BOUNDED(mo_stream_adapted, mo_cuda_streamed, STREAM_THREADS, 1);
MO_KERNEL(mo_stream_adapted, mo_cuda_streamed)
{
    MO_DYNAMIC_SHARED(space);
    stream<1, true>(op.stream, space, &op.parts);
    mo_low_mail_clear(op.parts);
}

/* Rows of up to 4096 values of many tokens: several blocks on a multiprocessor, which overlap their sums of squares with copies. */
MO_BOUNDED(mo_stream_many, mo_op_stream, STREAM_MANY_THREADS, 3);
MO_KERNEL(mo_stream_many, mo_op_stream)
{
    MO_DYNAMIC_SHARED(space);
    stream<2, true>(op, space);
}

MO_BOUNDED(mo_stream_long, mo_op_stream, STREAM_THREADS, 1);
MO_KERNEL(mo_stream_long, mo_op_stream)
{
    MO_DYNAMIC_SHARED(space);
    stream<4, true>(op, space);
}

MO_BOUNDED(mo_stream_odd, mo_op_stream, STREAM_THREADS, 1);
MO_KERNEL(mo_stream_odd, mo_op_stream)
{
    MO_DYNAMIC_SHARED(space);
    stream<4, false>(op, space);
}

/* ---- Activation: blocks of threads (row, part of it) ------------------------------------------ */

template <bool WIDE> static __device__ __forceinline__ void activate(const mo_op_activate &op)
{
    const int64_t row = blockIdx.x;
    const int at = 4 * (int)(blockIdx.y * blockDim.x + threadIdx.x);
    mo_grid_begin();
    const float4 g = mo_load_quad<WIDE>(mo_at<const float>(op.gate) + row * op.n, at, op.n);
    const float4 u = mo_load_quad<WIDE>(mo_at<const float>(op.up) + row * op.n, at, op.n);
    const float4 v = make_float4(mo_activation_of(op.activation, op.limit, g.x, u.x),
                                 mo_activation_of(op.activation, op.limit, g.y, u.y),
                                 mo_activation_of(op.activation, op.limit, g.z, u.z),
                                 mo_activation_of(op.activation, op.limit, g.w, u.w));
    mo_store_quad<WIDE>(mo_at<float>(op.hidden.x) + row * op.n, at, op.n, v);
    if (op.n % 32 == 0) {
        mo_quantize_quad(op.hidden, row, at, v);
    }
}

MO_KERNEL(mo_activate, mo_op_activate)
{
    activate<true>(op);
}

MO_KERNEL(mo_activate_odd, mo_op_activate)
{
    activate<false>(op);
}

/* ---- Logits ----------------------------------------------------------------------------------- */

/* The largest of all threads' ranks joins what there is. */
static __device__ __forceinline__ void keep_best(uint64_t *best, uint64_t rank)
{
    __shared__ uint64_t warps[32];
    for (int s = 16; s >= 1; s /= 2) {
        const uint64_t other = __shfl_xor_sync(MO_FULL, rank, s);
        rank = other > rank ? other : rank;
    }
    if ((threadIdx.x & 31) == 0) {
        warps[threadIdx.x / 32] = rank;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < (int)blockDim.x / 32; i++) {
            rank = warps[i] > rank ? warps[i] : rank;
        }
        atomicMax((unsigned long long *)best, (unsigned long long)rank);
    }
}

/* Blocks (some of a row, row). */
MO_KERNEL(mo_logits, mo_op_logits)
{
    const int64_t cols = op.best ? op.cols : op.count;
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float *row = mo_at<float>(op.x) + blockIdx.y * cols;
    uint64_t rank = 0;
    bool bad = false;
    mo_grid_begin();
    MO_UNROLL(4)
    for (int64_t i = first; i < cols; i += (int64_t)gridDim.x * blockDim.x) {
        float x = row[i];
        if (op.cap > 0.0f) {
            x = op.cap * mo_tanh(x / op.cap);
            row[i] = x;
        }
        const uint64_t here = mo_rank_of(x, (uint32_t)i);
        rank = here > rank ? here : rank;
        bad |= mo_not_finite(x);
    }
    if (op.bad && bad) {
        *mo_at<volatile uint32_t>(op.bad) = 1;
    }
    if (op.best) {
        keep_best(mo_at<uint64_t>(op.best) + blockIdx.y, rank);
    }
}

/* ---- To the host ------------------------------------------------------------------------------ */

static __device__ __forceinline__ bool range_wide(const mo_op_publish &op, int i)
{
    return ((op.from[i] | op.to[i] | (uint64_t)op.bytes[i]) & 15) == 0;
}

/* All ranges are one list of pieces of 16 or 4 bytes, so that every thread's loads are under way at once. */
static __device__ __forceinline__ void copy_ranges(const mo_op_publish &op, int64_t thread, int64_t threads)
{
    int64_t total = 0;
    for (int i = 0; i < op.ranges; i++) {
        total += op.bytes[i] / (range_wide(op, i) ? 16 : 4);
    }
    for (int64_t piece = thread; piece < total; piece += threads) {
        int64_t at = piece;
        MO_UNROLL()
        for (int i = 0; i < MO_OP_RANGES; i++) {
            if (i >= op.ranges) {
                break;
            }
            const bool wide = range_wide(op, i);
            const int64_t count = op.bytes[i] / (wide ? 16 : 4);
            if (at >= 0 && at < count) {
                if (wide) {
                    mo_at<uint4>(op.to[i])[at] = mo_at<const uint4>(op.from[i])[at];
                } else {
                    mo_at<uint32_t>(op.to[i])[at] = mo_at<const uint32_t>(op.from[i])[at];
                }
            }
            at -= count;
        }
    }
}

static __device__ __forceinline__ void raise_flag(const mo_op_publish &op)
{
    __threadfence_system(); /* also for what the barrier before, or the kernel before, has let us see */
    *mo_at<volatile uint32_t>(op.flag) = *mo_at<const uint32_t>(op.sequence);
}

/* A few kilobytes: one block of threads. */
MO_KERNEL(mo_publish, mo_op_publish)
{
    mo_grid_begin();
    copy_ranges(op, threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0) {
        raise_flag(op);
    }
}

/* More: many blocks, and the flag in a kernel of its own. */
MO_KERNEL(mo_publish_copy, mo_op_publish)
{
    mo_grid_begin();
    copy_ranges(op, (int64_t)blockIdx.x * blockDim.x + threadIdx.x, (int64_t)gridDim.x * blockDim.x);
}

MO_KERNEL(mo_publish_flag, mo_op_publish)
{
    mo_grid_begin();
    raise_flag(op);
}

/* ---- From the host ---------------------------------------------------------------------------- */

enum { AWAIT_ROWS = 256 }; /* names of rows that are read together */

static __device__ __forceinline__ bool host_answered(const mo_dreply *reply, uint32_t sequence,
                                                     uint64_t began)
{
    const uint64_t limit_ns = 10000000000u;
    while (mo_read_system(&reply->flag) != sequence) {
        if (mo_read_system(&reply->abort) != 0 || mo_nanoseconds() - began > limit_ns) {
            return false;
        }
    }
    return true;
}

/* This block's share of the rows named in rows[0 .. count). */
template <typename PIECE>
static __device__ __forceinline__ void load_rows(const mo_op_await &op, const int32_t *rows, int count)
{
    const int pieces = (int)(op.n * (int64_t)sizeof(float) / (int64_t)sizeof(PIECE));
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (int64_t)count * pieces; i += step) {
        const int64_t at = rows[i / pieces] * (int64_t)pieces + i % pieces;
        mo_at<PIECE>(op.to)[at] = mo_at<const PIECE>(op.from)[at];
    }
}

MO_KERNEL(mo_await, mo_op_await)
{
    __shared__ int32_t rows[AWAIT_ROWS];
    __shared__ int32_t count;
    const mo_dreply *reply = mo_at<const mo_dreply>(op.reply);
    mo_grid_wait(); /* and does not release the next: it may take long, and others need the space */
    if (threadIdx.x == 0) {
        const uint64_t began = mo_nanoseconds();
        const bool answered = host_answered(reply, *mo_at<const uint32_t>(op.sequence), began);
        if (blockIdx.x == 0 && op.waited) { /* all blocks wait for the same answer: one tells */
            const uint64_t ns = mo_nanoseconds() - began;
            *mo_at<uint32_t>(op.waited) = ns < 0xffffffffu ? (uint32_t)ns : 0xffffffffu;
        }
        const int32_t told = answered ? (int32_t)mo_read_system((const uint32_t *)&reply->count) : -1;
        count = told >= 0 && told <= op.most ? told : -1;
        if (count < 0 && op.bad) {
            *mo_at<volatile uint32_t>(op.bad) = 2;
        }
    }
    __syncthreads();
    const bool wide = op.n % 4 == 0 && ((op.from | op.to) & 15) == 0;
    for (int first = 0; first < count; first += AWAIT_ROWS) {
        const int some = count - first < AWAIT_ROWS ? count - first : AWAIT_ROWS;
        for (int i = threadIdx.x; i < some; i += blockDim.x) {
            rows[i] = *(const volatile int32_t *)&reply->row[first + i];
        }
        __syncthreads();
        if (wide) {
            load_rows<uint4>(op, rows, some);
        } else {
            load_rows<uint32_t>(op, rows, some);
        }
        __syncthreads();
    }
}
