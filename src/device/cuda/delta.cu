/* The delta rule: causal convolution, the recurrence, gated norm. */
#include "device/cuda/delta_chain.cuh"
#include "device/cuda/delta_gates.cuh"
#include "device/cuda/row.cuh"
#include "device/cuda/taps.cuh"

/* ---- Convolution: blocks (token and head), a thread per channel ------------------------------ */

/* Decays of a head's channels, in the place of what they are made of. */
static __device__ __forceinline__ void make_decays(const mo_op_convolve &op, int64_t t, int h)
{
    const int64_t first = (int64_t)h * op.head;
    float *row =
        mo_at<float>(op.gates) + t * mo_delta_gate_values(MO_DECAY_CHANNELS, op.v_heads, op.head) + first;
    const float *dt = mo_at<const float>(op.dt) + first, a = mo_at<const float>(op.a)[h];
    for (int i = threadIdx.x; i < op.head; i += blockDim.x) {
        row[i] = mo_decay_of(row[i] + dt[i], a, op.bound);
    }
}

MO_KERNEL(mo_convolve, mo_op_convolve)
{
    MO_DYNAMIC_SHARED(space);
    __shared__ float factor;
    float *row = (float *)space; /* [head] */
    const int heads = 2 * op.k_heads + op.v_heads, n = op.head;
    const int64_t channels = (int64_t)heads * n;
    const int64_t t = blockIdx.x / heads;
    const int h = (int)(blockIdx.x % heads);
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    const float *before = mo_at<const float>(op.before) + t * channels + (int64_t)h * n;
    const float *weight = mo_at<const float>(op.weight) + (int64_t)h * n;
    float *after = mo_at<float>(op.after) + t * channels + (int64_t)h * n;
    float *conv = mo_at<float>(mo_at<const mo_dstate>(place.layers)[op.layer].conv) + (int64_t)h * n;
    const int value_head = h - 2 * op.k_heads;
    mo_grid_begin();
    if (op.decay != MO_DECAY_HEADS && value_head >= 0) {
        make_decays(op, t, value_head);
    }
    /* One token per slice: no other reader of these inputs. */
    const bool alone = op.tokens == op.slice_count && op.state == MO_STATE_MOVES;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float acc = 0.0f;
        MO_UNROLL(4)
        for (int j = 0; j < op.taps; j++) {
            const int back = op.taps - 1 - j;
            const float x =
                place.into >= back ? before[i - back * channels] : conv[(place.into + j) * channels + i];
            acc = fmaf(weight[j * channels + i], x, acc);
        }
        row[i] = mo_silu(acc);
        if (alone) {
            mo_taps_push(conv + i, op.taps, channels, before[i]);
        }
    }
    __syncthreads();
    const bool normed = h < 2 * op.k_heads;
    if (normed && threadIdx.x < 32) {
        const float length = sqrtf(mo_square_sum(row, n));
        if (threadIdx.x == 0) {
            factor = 1.0f / (length > op.eps ? length : op.eps);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        after[i] = normed ? row[i] * factor : row[i];
    }
}

/* The last taps - 1 inputs of each slice are what its next step's first tokens look back to: blocks (channels, slice). */
MO_KERNEL(mo_convolve_keep, mo_op_convolve)
{
    const int64_t channels = (2 * (int64_t)op.k_heads + op.v_heads) * op.head;
    const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const mo_dslice slice = mo_at<const mo_dslice>(op.slices)[blockIdx.y];
    mo_grid_begin();
    if (c >= channels) {
        return;
    }
    float *kept = mo_at<float>(mo_at<const mo_dstate>(slice.layers)[op.layer].conv) + c;
    const float *before = mo_at<const float>(op.before) + c;
    mo_taps_keep(kept, op.taps, channels, slice, [=](int64_t t) { return before[t * channels]; });
}

/* ---- What comes after the recurrence ---------------------------------------------------------- */

/* silu(z) or sigmoid(z), times norm(o), of value i of a head. */
static __device__ __forceinline__ float gated(const mo_op_recur &op, int64_t t, int h, int i, float o,
                                              float r)
{
    const float z = mo_at<const float>(op.z)[(t * op.v_heads + h) * op.head + i];
    return (op.decay == MO_DECAY_HEADS ? mo_silu(z) : mo_sigmoid(z)) *
           ((o * r) * mo_at<const float>(op.norm)[i]);
}

/* One warp per token and value head; the mixed row holds what the recurrence gave. */
MO_KERNEL(mo_recur_finish, mo_op_recur)
{
    const int64_t warp = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int64_t t = warp / op.v_heads;
    const int h = (int)(warp % op.v_heads);
    mo_grid_begin();
    if (t >= op.tokens) {
        return;
    }
    float *row = mo_at<float>(op.mixed.x) + t * op.mixed.cols + (int64_t)h * op.head;
    const float r = mo_norm_factor(mo_square_sum(row, op.head), op.head, op.eps);
    for (int first = 0; first < op.head; first += 32) {
        const int i = first + (threadIdx.x & 31);
        float v = 0.0f;
        if (i < op.head) {
            v = gated(op, t, h, i, row[i], r);
            row[i] = v;
        }
        if (op.head % 32 == 0) {
            mo_quantize_block(op.mixed, t, (h * op.head + first) / 32, v);
        }
    }
}

/* Codes of mixed rows whose heads do not end where blocks do. */
MO_KERNEL(mo_recur_quantize, mo_op_recur)
{
    mo_grid_begin();
    mo_quantize_row(op.mixed, blockIdx.x);
}

/* ---- The recurrence: blocks (value head, slice), a thread per value --------------------------- */

/* Tokens whose inputs are brought into shared memory together. ROWS: every row of the state has a decay. */
template <int HEAD, bool ROWS> struct inputs {
    enum { TOKENS = 16 };
    float q[TOKENS][HEAD], k[TOKENS][HEAD], v[TOKENS][HEAD];
    float beta[TOKENS], decay[TOKENS][ROWS ? HEAD : 1];
};

template <int HEAD, bool ROWS>
static __device__ __forceinline__ void load_inputs(const mo_op_recur &op, inputs<HEAD, ROWS> &in,
                                                   int64_t first, int count, int h)
{
    const int64_t channels = (2 * (int64_t)op.k_heads + op.v_heads) * HEAD;
    const int key_head = mo_delta_key_head(op, h), j = threadIdx.x;
    for (int x = 0; x < count; x++) {
        const float *c = mo_at<const float>(op.after) + (first + x) * channels;
        in.q[x][j] = c[key_head * HEAD + j];
        in.k[x][j] = c[(op.k_heads + key_head) * HEAD + j];
        in.v[x][j] = c[(2 * op.k_heads + h) * HEAD + j];
        if (ROWS) {
            in.decay[x][j] = mo_delta_rows(op, first + x)[h * HEAD + j];
        }
    }
    if (j < count && ROWS) {
        in.beta[j] = mo_delta_rows_beta(op, first + j, h);
    } else if (j < count) {
        mo_delta_gates(op, first + j, h, &in.beta[j], in.decay[j]);
    }
}

/* S = decay * S; gives the sum of S[i] * k[i]. */
template <int HEAD, bool ROWS>
static __device__ __forceinline__ float decay_column(float *S, const float *decay, const float *k)
{
    float a = 0.0f;
    MO_UNROLL()
    for (int i = 0; i < HEAD; i++) {
        S[i] = decay[ROWS ? i : 0] * S[i];
        a = fmaf(S[i], k[i], a);
    }
    return a;
}

/* S = S + k * d; gives the sum of S[i] * q[i]. */
template <int HEAD>
static __device__ __forceinline__ float change_column(float *S, float d, const float *k, const float *q)
{
    float o = 0.0f;
    MO_UNROLL()
    for (int i = 0; i < HEAD; i++) {
        S[i] = fmaf(k[i], d, S[i]);
        o = fmaf(S[i], q[i], o);
    }
    return o;
}

/* Both, of a token and of the one after it: two chains that do not wait for each other. */
template <int HEAD, bool ROWS>
static __device__ __forceinline__ float change_and_decay(float *S, float d, const float *k, const float *q,
                                                         const float *decay, const float *next_k, float *a)
{
    float o = 0.0f, sum = 0.0f;
    MO_UNROLL()
    for (int i = 0; i < HEAD; i++) {
        S[i] = fmaf(k[i], d, S[i]);
        o = fmaf(S[i], q[i], o);
        S[i] = decay[ROWS ? i : 0] * S[i];
        sum = fmaf(S[i], next_k[i], sum);
    }
    *a = sum;
    return o;
}

/* A column of the state stays in registers while the tokens of the slice pass. */
template <int HEAD, bool ROWS>
static __device__ __forceinline__ void recur(const mo_op_recur &op, bool finish)
{
    __shared__ __align__(16) inputs<HEAD, ROWS> in;
    __shared__ float row[HEAD];
    const int h = blockIdx.x, j = threadIdx.x;
    const mo_dslice slice = mo_at<const mo_dslice>(op.slices)[blockIdx.y];
    float *state =
        mo_at<float>(mo_at<const mo_dstate>(slice.layers)[op.layer].delta) + (int64_t)h * HEAD * HEAD + j;
    float *out = mo_at<float>(op.mixed.x) + (int64_t)slice.first * op.mixed.cols + h * HEAD + j;
    float S[HEAD];
    MO_UNROLL()
    for (int i = 0; i < HEAD; i++) {
        S[i] = state[i * HEAD]; /* no other thread uses it: it is as the previous step left it */
    }
    mo_grid_begin();
    float a = 0.0f, o = 0.0f;
    for (int first = 0; first < slice.count; first += inputs<HEAD, ROWS>::TOKENS) {
        const int count = min((int)inputs<HEAD, ROWS>::TOKENS, slice.count - first);
        __syncthreads();
        load_inputs<HEAD, ROWS>(op, in, (int64_t)slice.first + first, count, h);
        __syncthreads();
        a = decay_column<HEAD, ROWS>(S, in.decay[0], in.k[0]);
        for (int x = 0; x < count; x++) {
            const float d = in.beta[x] * (in.v[x][j] - a);
            if (x + 1 < count) {
                o = change_and_decay<HEAD, ROWS>(S, d, in.k[x], in.q[x], in.decay[x + 1], in.k[x + 1], &a);
            } else {
                o = change_column<HEAD>(S, d, in.k[x], in.q[x]);
            }
            o = o * op.scale;
            if (!finish) {
                out[(int64_t)(first + x) * op.mixed.cols] = o;
            }
        }
    }
    if (op.state != MO_STATE_STAYS) {
        MO_UNROLL()
        for (int i = 0; i < HEAD; i++) {
            state[i * HEAD] = S[i];
        }
    }
    if (finish) { /* the slice is one token */
        row[j] = o;
        __syncthreads();
        const float r = mo_norm_factor(mo_square_sum(row, HEAD), HEAD, op.eps);
        const float v = gated(op, slice.first, h, j, o, r);
        *out = v;
        mo_quantize_block(op.mixed, slice.first, (h * HEAD + j) / 32, v);
    }
}

MO_BOUNDED(mo_recur_128, mo_op_recur, 128, 1);
MO_KERNEL(mo_recur_128, mo_op_recur)
{
    recur<128, false>(op, op.tokens == op.slice_count && op.state != MO_STATE_ONLY);
}

/* The same with a decay for each row of the state. */
MO_BOUNDED(mo_recur_rows_128, mo_op_recur, 128, 1);
MO_KERNEL(mo_recur_rows_128, mo_op_recur)
{
    recur<128, true>(op, op.tokens == op.slice_count && op.state != MO_STATE_ONLY);
}

MO_BOUNDED(mo_recur_chain, mo_op_recur, CHAIN_THREADS, 1);
MO_KERNEL(mo_recur_chain, mo_op_recur)
{
    __shared__ __align__(16) mo_chain_ring<false> ring;
    mo_chain_run(op, ring);
}

MO_BOUNDED(mo_recur_rows_chain, mo_op_recur, CHAIN_THREADS, 1);
MO_KERNEL(mo_recur_rows_chain, mo_op_recur)
{
    __shared__ __align__(16) mo_chain_ring<true> ring;
    mo_chain_run(op, ring);
}

/* A column of the state, `stride` apart, while the tokens of a slice pass. */
static __device__ __forceinline__ void recur_column(const mo_op_recur &op, const mo_dslice &slice, int h,
                                                    int j, float *column, int64_t stride)
{
    const int n = op.head;
    const int64_t channels = (2 * (int64_t)op.k_heads + op.v_heads) * n;
    for (int64_t t = slice.first; t < (int64_t)slice.first + slice.count; t++) {
        const float *c = mo_at<const float>(op.after) + t * channels;
        const float *q = c + mo_delta_key_head(op, h) * n;
        const float *k = c + (op.k_heads + mo_delta_key_head(op, h)) * n;
        const float *v = c + (2 * op.k_heads + h) * n;
        const bool rows = op.decay != MO_DECAY_HEADS;
        const float *decays = rows ? mo_delta_rows(op, t) + (int64_t)h * n : NULL;
        float beta, decay = 1.0f, a = 0.0f, o = 0.0f;
        if (rows) {
            beta = mo_delta_rows_beta(op, t, h);
        } else {
            mo_delta_gates(op, t, h, &beta, &decay);
        }
        for (int i = 0; i < n; i++) {
            column[i * stride] = (rows ? decays[i] : decay) * column[i * stride];
            a = fmaf(column[i * stride], k[i], a);
        }
        const float d = beta * (v[j] - a);
        for (int i = 0; i < n; i++) {
            column[i * stride] = fmaf(k[i], d, column[i * stride]);
            o = fmaf(column[i * stride], q[i], o);
        }
        mo_at<float>(op.mixed.x)[t * op.mixed.cols + h * n + j] = o * op.scale;
    }
}

/* Heads of any size: the state is where it is, or, where it stays, a column of it in a thread's own memory. */
MO_KERNEL(mo_recur_any, mo_op_recur)
{
    const int h = blockIdx.x, n = op.head;
    const mo_dslice slice = mo_at<const mo_dslice>(op.slices)[blockIdx.y];
    float *state = mo_at<float>(mo_at<const mo_dstate>(slice.layers)[op.layer].delta) + (int64_t)h * n * n;
    float copy[MO_OP_STAYS];
    mo_grid_begin();
    for (int j = threadIdx.x; j < n; j += blockDim.x) {
        for (int i = 0; i < n && op.state == MO_STATE_STAYS; i++) {
            copy[i] = state[(int64_t)i * n + j];
        }
        if (op.state == MO_STATE_STAYS) {
            recur_column(op, slice, h, j, copy, 1);
        } else {
            recur_column(op, slice, h, j, state + j, n);
        }
    }
}
