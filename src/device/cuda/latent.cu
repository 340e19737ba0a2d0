/* Latent attention around the scores: queries are taken apart and keys go into the cache; the heads' results become rows of tokens. */
#include "device/cuda/codes.cuh"
#include "device/cuda/tall.cuh"

/* Pairs of neighbours among n values, from x to `to`, then times a factor. c NULL: nothing rotates. */
static __device__ __forceinline__ void rotate(const float *x, float *to, int n, const float *c,
                                              const float *s, float factor)
{
    for (int i = threadIdx.x & 31; i < n && !c; i += 32) {
        to[i] = x[i] * factor;
    }
    if (!c) {
        __syncwarp();
        return;
    }
    for (int p = threadIdx.x & 31; p < n / 2; p += 32) {
        const float a = x[2 * p], b = x[2 * p + 1];
        to[2 * p] = fmaf(a, c[p], -(b * s[p])) * factor;
        to[2 * p + 1] = fmaf(a, s[p], b * c[p]) * factor;
    }
    __syncwarp();
}

/* The plain part to the row that k_b multiplies, with its codes; the tail to the finished query. */
static __device__ __forceinline__ void prepare_query(const mo_op_latent &op, int64_t t, int head,
                                                     const float *c, const float *s)
{
    const int lane = threadIdx.x & 31, plain = op.plain.cols;
    const int64_t row = (int64_t)head * op.tokens + t;
    const float *q = mo_at<const float>(op.q) + (t * op.heads + head) * (plain + op.n_rot);
    const float factor = mo_query_factor(op.q_factor, t);
    float *out = mo_at<float>(op.plain.x) + row * plain;
    for (int at = 0; at < plain; at += 32) {
        const float v = at + lane < plain ? q[at + lane] * factor : 0.0f;
        if (at + lane < plain) {
            out[at + lane] = v;
        }
        if (plain % 32 == 0) {
            mo_quantize_block(op.plain, row, at / 32, v);
        }
    }
    rotate(q + plain, mo_at<float>(op.query) + row * (op.v_len + op.n_rot) + op.v_len, op.n_rot, c, s,
           factor);
}

/* Value or tail of a latent row in shared memory, as codes of position u of a block: units from `first` on. */
static __device__ __forceinline__ bool store_codes(float *row, int n, uint8_t *codes, int planes, int first,
                                                   int low, float *scale)
{
    mo_turn(row, n);
    const mo_planes_scale s = mo_planes_scale_of(row, n, planes);
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        const int c = mo_planes_code(s, row[i]), at = mo_kv_key_code(0, first + i);
        codes[at] = (uint8_t)(planes == 2 ? mo_code_high(c) : c);
        if (planes == 2) {
            codes[at + low] = (uint8_t)mo_code_low(c);
        }
    }
    if ((threadIdx.x & 31) == 0) {
        *scale = s.s;
    }
    return s.finite && s.s <= MO_LATENT_SCALE;
}

static __device__ __forceinline__ bool store_key(const mo_op_latent &op, float *row, uint8_t *block, int u)
{
    const int k_len = op.v_len + op.n_rot;
    const mo_kv_shape shape = mo_cache_shape(op.kv, 1, k_len, op.v_len, op.n_rot);
    uint8_t *keys = block + mo_kv_keys_at(shape, 0);
    if (!mo_kv_coded(op.kv)) {
        return mo_cache_write(row, k_len, keys + u * mo_cache_bytes(op.kv, k_len));
    }
    const int low = MO_KV_BLOCK * mo_kv_plane(k_len, op.n_rot), planes = mo_kv_planes(op.kv);
    float *scales = (float *)(block + mo_kv_value_scales_at(shape, 0)),
          *tails = (float *)(block + mo_kv_key_scales_at(0));
    const bool fits = store_codes(row, op.v_len, keys + 16 * u, planes, 0, low, scales + u);
    return store_codes(row + op.v_len, op.n_rot, keys + 16 * u, planes, mo_kv_padded(op.v_len), low,
                       tails + u) &&
           fits;
}

/* The token's row: norm, rotation, cache. */
static __device__ __forceinline__ void prepare_key(const mo_op_latent &op, int64_t t, float *row,
                                                   const float *c, const float *s)
{
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    const mo_dstate state = mo_at<const mo_dstate>(place.layers)[op.layer];
    uint8_t *block = mo_cache_block(state, place.position);
    const float *k = mo_at<const float>(op.k) + t * (op.v_len + op.n_rot), *w = mo_at<const float>(op.norm);
    const float r = mo_norm_factor(mo_square_sum(k, op.v_len), op.v_len, op.eps);
    for (int i = threadIdx.x & 31; i < op.v_len; i += 32) {
        row[i] = (k[i] * r) * w[i];
    }
    rotate(k + op.v_len, row + op.v_len, op.n_rot, c, s, 1.0f);
    float *back = mo_at<float>(op.k) + t * (op.v_len + op.n_rot);
    for (int i = threadIdx.x & 31; i < op.v_len + op.n_rot; i += 32) {
        back[i] = row[i];
    }
    __syncwarp();
    if (!store_key(op, row, block, (int)(place.position % MO_KV_BLOCK)) && op.bad) {
        *mo_at<volatile uint32_t>(op.bad) = 1;
    }
}

/* Warps of a token: its query heads, then its key. The first block writes the groups of both products. */
MO_KERNEL(mo_latent, mo_op_latent)
{
    MO_DYNAMIC_SHARED(space);
    float *row = (float *)space + threadIdx.x / 32 * (op.v_len + op.n_rot);
    const unsigned warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, vectors = (unsigned)op.heads + 1;
    const unsigned token = warp / vectors;
    const int which = (int)(warp - token * vectors);
    mo_grid_begin();
    if (blockIdx.x == 0) {
        for (int i = threadIdx.x; i < 2 * op.heads; i += blockDim.x) {
            const int m = i / op.heads, h = i % op.heads;
            mo_dgroup g;
            g.data = op.data[m] + (mo_daddr)(h * op.part_bytes[m]);
            g.expert = 0;
            g.first = h * op.tokens;
            g.count = op.tokens;
            g.unused = 0;
            mo_at<mo_dgroup>(op.groups)[i] = g;
        }
    }
    if ((int)token >= op.tokens) {
        return;
    }
    const float *c = op.rope ? mo_at<const float>(op.rope) + token * op.rope_stride : NULL,
                *s = op.rope ? c + op.rope_rows * op.rope_stride : NULL;
    if (which < op.heads) {
        prepare_query(op, token, which, c, s);
    } else {
        prepare_key(op, token, row, c, s);
    }
}

/* Blocks (some blocks of 32 values, token). */
MO_KERNEL(mo_collect, mo_op_collect)
{
    const int lane = threadIdx.x & 31, at = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 32;
    const int64_t t = mo_grid_row();
    mo_grid_begin();
    if (at >= op.out.cols) {
        return;
    }
    const int i = at + lane, h = i / op.n;
    float v = 0.0f;
    if (i < op.out.cols) {
        const int64_t row = op.by_token ? t * op.heads + h : (int64_t)h * op.tokens + t;
        v = mo_at<const float>(op.from)[row * op.n + i - h * op.n];
        if (op.gate) {
            const float g = mo_at<const float>(op.gate)[op.each ? t * op.out.cols + i : t * op.heads + h];
            v = v * (op.kind == MO_GATE_SOFTPLUS ? mo_softplus(g) : mo_sigmoid(g));
        }
        mo_at<float>(op.out.x)[t * op.out.cols + i] = v;
    }
    if (op.out.cols % 32 == 0) {
        mo_quantize_block(op.out, t, at / 32, v);
    }
}
