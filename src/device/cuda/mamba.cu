/* Mamba: convolution, norms of a step's parts, the scans of both kinds. */
#include "device/cuda/row.cuh"
#include "device/cuda/tall.cuh"
#include "device/cuda/taps.cuh"

/* ---- Convolution: blocks (channels, token), a thread per channel; a warp holds a block of codes ---- */

MO_KERNEL(mo_ssm_convolve, mo_op_ssm_convolve)
{
    const int64_t channels = op.channels, t = mo_grid_row();
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    float *conv = mo_at<float>(mo_at<const mo_dstate>(place.layers)[op.layer].conv) + i;
    mo_grid_begin();
    if (i / 32 * 32 >= channels) {
        return;
    }
    float v = 0.0f;
    if (i < channels) {
        const float *before = mo_at<const float>(op.before) + t * channels + i;
        const float *weight = mo_at<const float>(op.weight) + i;
        MO_UNROLL(4)
        for (int j = 0; j < op.taps; j++) {
            const int back = op.taps - 1 - j;
            const float x = place.into >= back ? before[-back * channels] : conv[(place.into + j) * channels];
            v = fmaf(weight[j * channels], x, v);
        }
        v = mo_silu(v + mo_at<const float>(op.bias)[i]);
        mo_at<float>(op.after.x)[t * channels + i] = v;
        /* One token per slice: no other thread reads its past. */
        if (op.tokens == op.slice_count && op.state == MO_STATE_MOVES) {
            mo_taps_push(conv, op.taps, channels, before[0]);
        }
    }
    if (op.after.q && channels % 32 == 0) {
        mo_quantize_block(op.after, t, (int)(i / 32), v);
    }
}

/* What the next step of each slice looks back to: blocks (channels, slice). */
MO_KERNEL(mo_ssm_convolve_keep, mo_op_ssm_convolve)
{
    const int64_t channels = op.channels;
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const mo_dslice slice = mo_at<const mo_dslice>(op.slices)[mo_grid_row()];
    mo_grid_begin();
    if (i >= channels) {
        return;
    }
    float *kept = mo_at<float>(mo_at<const mo_dstate>(slice.layers)[op.layer].conv) + i;
    const float *before = mo_at<const float>(op.before) + i;
    mo_taps_keep(kept, op.taps, channels, slice, [=](int64_t t) { return before[t * channels]; });
}

/* ---- Parts of a step: blocks (token), a warp each for dt, b and c ------------------------------ */

MO_KERNEL(mo_ssm_parts, mo_op_ssm_parts)
{
    const int64_t t = blockIdx.x;
    const int part = threadIdx.x / 32, lane = threadIdx.x & 31;
    const int n = part == 0 ? op.rank : op.states;
    const float *weight = mo_at<const float>(part == 0 ? op.dt_norm : part == 1 ? op.b_norm : op.c_norm);
    mo_grid_begin();
    float *row = mo_at<float>(op.rows) + t * (op.rank + 2 * op.states);
    float *from = part == 0 ? row : row + op.rank + (part - 1) * op.states;
    float *to = part == 0 ? mo_at<float>(op.dt.x) + t * op.rank : from;
    const float r = mo_norm_factor(mo_square_sum(from, n), n, op.eps);
    for (int first = 0; first < n; first += 32) {
        const int i = first + lane;
        float v = 0.0f;
        if (i < n) {
            v = (from[i] * r) * weight[i];
            to[i] = v;
        }
        if (part == 0 && n % 32 == 0) {
            mo_quantize_block(op.dt, t, first / 32, v);
        }
    }
}

/* ---- The scan of the first kind: blocks (channels, slice), a thread per channel ---------------- */

/* One token: the state's values in memory or in registers, `stride` apart. */
static __device__ __forceinline__ float scan_token(float *S, int states, int64_t stride, const float *a,
                                                   int64_t a_stride, float dt, float x, const float *b,
                                                   const float *c, float d)
{
    const float change = dt * x;
    float o = 0.0f;
    MO_UNROLL(16)
    for (int j = 0; j < states; j++) {
        const float s = fmaf(change, b[j], mo_exp(dt * a[j * a_stride]) * S[j * stride]);
        S[j * stride] = s;
        o = fmaf(s, c[j], o);
    }
    return fmaf(d, x, o);
}

/* STATES 0: any number of them, which stay in memory. */
template <int STATES> static __device__ __forceinline__ void scan_channels(const mo_op_ssm_scan &op)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, inner = op.inner;
    const mo_dslice slice = mo_at<const mo_dslice>(op.slices)[mo_grid_row()];
    const int states = STATES ? STATES : op.states;
    const bool there = i < inner;
    float *state = mo_at<float>(mo_at<const mo_dstate>(slice.layers)[op.layer].delta) + (there ? i : 0);
    const float *a = mo_at<const float>(op.a) + (there ? i : 0);
    const float d = there ? mo_at<const float>(op.d)[i] : 0.0f;
    const bool stays = op.state == MO_STATE_STAYS;
    float S[STATES ? STATES : MO_OP_STAYS], A[STATES ? STATES : 1];
    MO_UNROLL()
    for (int j = 0; j < STATES; j++) {
        S[j] = state[j * inner]; /* no other thread uses it: it is as the previous step left it */
        A[j] = a[j * inner];
    }
    mo_grid_begin();
    if (i / 32 * 32 >= inner) {
        return;
    }
    for (int j = 0; j < states && !STATES && stays; j++) {
        S[j] = state[j * inner];
    }
    float *values = STATES || stays ? S : state;
    const int64_t apart = STATES || stays ? 1 : inner;
    for (int64_t t = slice.first; t < (int64_t)slice.first + slice.count; t++) {
        const float *b = mo_at<const float>(op.bc) + t * op.bc_stride, *c = b + states;
        float v = 0.0f;
        if (there) {
            const float dt = mo_softplus(mo_at<const float>(op.dt)[t * inner + i]);
            const float x = mo_at<const float>(op.x)[t * op.x_stride + i];
            v = STATES ? scan_token(S, STATES, 1, A, 1, dt, x, b, c, d)
                       : scan_token(values, states, apart, a, inner, dt, x, b, c, d);
            v = mo_silu(mo_at<const float>(op.z)[t * inner + i]) * v;
            mo_at<float>(op.mixed.x)[t * inner + i] = v;
        }
        if (inner % 32 == 0) {
            mo_quantize_block(op.mixed, t, (int)(i / 32), v);
        }
    }
    if (there && !stays) {
        MO_UNROLL()
        for (int j = 0; j < STATES; j++) {
            state[j * inner] = S[j];
        }
    }
}

MO_KERNEL(mo_ssm_scan_16, mo_op_ssm_scan)
{
    scan_channels<16>(op);
}

MO_KERNEL(mo_ssm_scan_any, mo_op_ssm_scan)
{
    scan_channels<0>(op);
}

/* ---- The scan of the second kind: blocks (head, slice), a thread per channel ------------------- */

typedef struct head_step {
    float decay, dt;
} head_step;

static __device__ __forceinline__ head_step step_of(const mo_op_ssm_scan &op, int64_t t, int h)
{
    head_step s;
    s.dt = mo_softplus(mo_at<const float>(op.dt)[t * op.heads + h] + mo_at<const float>(op.dt_bias)[h]);
    s.decay = mo_exp(s.dt * mo_at<const float>(op.a)[h]);
    return s;
}

static __device__ __forceinline__ float head_token(float *S, int states, int64_t stride, head_step step,
                                                   float x, const float *b, const float *c, float d)
{
    const float change = step.dt * x;
    float o = 0.0f;
    MO_UNROLL(128)
    for (int j = 0; j < states; j++) {
        const float s = fmaf(change, b[j], step.decay * S[j * stride]);
        S[j * stride] = s;
        o = fmaf(s, c[j], o);
    }
    return fmaf(d, x, o);
}

/* A channel's values stay in registers while the tokens of the slice pass; b and c of some tokens are in shared memory. */
MO_BOUNDED(mo_ssm_heads_128, mo_op_ssm_scan, 128, 1);
MO_KERNEL(mo_ssm_heads_128, mo_op_ssm_scan)
{
    enum { STATES = 128, TOKENS = 8 };
    __shared__ __align__(16) float in[TOKENS][2][STATES];
    const int h = blockIdx.x, count = op.inner / op.heads, i = threadIdx.x;
    const int64_t at = (int64_t)h * count + i;
    const int group = h / (op.heads / op.groups) * STATES, all = op.groups * STATES;
    const mo_dslice slice = mo_at<const mo_dslice>(op.slices)[mo_grid_row()];
    const bool there = i < count;
    float *state = mo_at<float>(mo_at<const mo_dstate>(slice.layers)[op.layer].delta) +
                   (int64_t)h * count * STATES + (there ? i : 0);
    const float d = mo_at<const float>(op.d)[h];
    float S[STATES];
    MO_UNROLL()
    for (int j = 0; j < STATES; j++) {
        S[j] = state[(int64_t)j * count];
    }
    mo_grid_begin();
    for (int first = 0; first < slice.count; first += TOKENS) {
        const int tokens = min((int)TOKENS, slice.count - first);
        __syncthreads();
        for (int e = threadIdx.x; e < tokens * 2 * STATES; e += blockDim.x) {
            const int token = e / (2 * STATES), which = e / STATES % 2, j = e % STATES;
            in[token][which][j] = mo_at<const float>(
                op.bc)[((int64_t)slice.first + first + token) * op.bc_stride + which * all + group + j];
        }
        __syncthreads();
        for (int token = 0; there && token < tokens; token++) {
            const int64_t t = (int64_t)slice.first + first + token;
            const float x = mo_at<const float>(op.x)[t * op.x_stride + at];
            const float v = head_token(S, STATES, 1, step_of(op, t, h), x, in[token][0], in[token][1], d);
            mo_at<float>(op.mixed.x)[t * op.inner + at] =
                mo_silu(mo_at<const float>(op.z)[t * op.inner + at]) * v;
        }
    }
    if (there && op.state != MO_STATE_STAYS) {
        MO_UNROLL()
        for (int j = 0; j < STATES; j++) {
            state[(int64_t)j * count] = S[j];
        }
    }
}

/* A channel's values, `stride` apart, while the tokens of a slice pass. */
static __device__ __forceinline__ void scan_channel(const mo_op_ssm_scan &op, const mo_dslice &slice, int h,
                                                    int i, float *S, int64_t stride)
{
    const int count = op.inner / op.heads;
    const int group = h / (op.heads / op.groups) * op.states, all = op.groups * op.states;
    const int64_t at = (int64_t)h * count + i;
    const float d = mo_at<const float>(op.d)[h];
    for (int64_t t = slice.first; t < (int64_t)slice.first + slice.count; t++) {
        const float *b = mo_at<const float>(op.bc) + t * op.bc_stride + group, *c = b + all;
        const float x = mo_at<const float>(op.x)[t * op.x_stride + at];
        const float v = head_token(S, op.states, stride, step_of(op, t, h), x, b, c, d);
        mo_at<float>(op.mixed.x)[t * op.inner + at] =
            mo_silu(mo_at<const float>(op.z)[t * op.inner + at]) * v;
    }
}

/* Any sizes: the state is where it is, or, where it stays, a channel of it in a thread's own memory. */
MO_KERNEL(mo_ssm_heads_any, mo_op_ssm_scan)
{
    const int h = blockIdx.x, count = op.inner / op.heads;
    const mo_dslice slice = mo_at<const mo_dslice>(op.slices)[mo_grid_row()];
    float *state =
        mo_at<float>(mo_at<const mo_dstate>(slice.layers)[op.layer].delta) + (int64_t)h * count * op.states;
    float copy[MO_OP_STAYS];
    mo_grid_begin();
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        for (int j = 0; j < op.states && op.state == MO_STATE_STAYS; j++) {
            copy[j] = state[(int64_t)j * count + i];
        }
        if (op.state == MO_STATE_STAYS) {
            scan_channel(op, slice, h, i, copy, 1);
        } else {
            scan_channel(op, slice, h, i, state + i, count);
        }
    }
}

/* Norms of the second kind: blocks (group, token). Codes where groups end with blocks of them. */
MO_KERNEL(mo_ssm_norm, mo_op_ssm_scan)
{
    __shared__ float factor;
    const int n = op.inner / op.groups, begin = (int)blockIdx.x * n;
    const int64_t t = mo_grid_row();
    const float *weight = mo_at<const float>(op.norm) + begin;
    float *row = mo_at<float>(op.mixed.x) + t * op.inner + begin;
    mo_grid_begin();
    if (threadIdx.x < 32) {
        const float sum = mo_square_sum(row, n);
        if (threadIdx.x == 0) {
            factor = mo_norm_factor(sum, n, op.eps);
        }
    }
    __syncthreads();
    const int lane = threadIdx.x & 31;
    for (int first = threadIdx.x - lane; first < n; first += blockDim.x) {
        const int i = first + lane;
        float v = 0.0f;
        if (i < n) {
            v = (row[i] * factor) * weight[i];
            row[i] = v;
        }
        if (n % 32 == 0) {
            mo_quantize_block(op.mixed, t, (begin + first) / 32, v);
        }
    }
}

/* Codes of rows whose groups do not end where blocks do. */
MO_KERNEL(mo_ssm_quantize, mo_op_ssm_scan)
{
    mo_grid_begin();
    mo_quantize_row(op.mixed, blockIdx.x);
}
