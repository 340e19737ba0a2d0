/* Attention: queries, keys and values get their norms and rotation and are stored in the cache; then scores and values,
 * chunk by chunk, over a cache of floats (over codes: planes.cu). Few tokens: chunks side by side, and a kernel that merges them. Many: some
 * query heads after the others; such a cache is only used for comparisons. */
#include "device/cuda/adapt.cuh"
#include "device/cuda/codes.cuh"
#include "device/cuda/view.cuh"

/* ---- From products to cache: one warp per head ------------------------------------------------ */

/* Norms over all heads of a token together; blocks (token, queries or keys). */
MO_KERNEL(mo_heads_norm_all, mo_op_heads)
{
    __shared__ float factor;
    const int64_t t = blockIdx.x;
    const bool queries = blockIdx.y == 0;
    const int n = (queries ? op.heads : op.kv_heads) * op.k_len;
    const int64_t stride = queries ? (int64_t)n * (op.gated ? 2 : 1) : n;
    float *x = mo_at<float>(queries ? op.q : op.k) + t * stride;
    const float *w = mo_at<const float>(queries ? op.q_norm : op.k_norm);
    mo_grid_begin();
    if (threadIdx.x < 32) {
        const float r = mo_norm_factor(mo_square_sum(x, n), n, op.eps);
        if (threadIdx.x == 0) {
            factor = r;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        x[i] = w ? (x[i] * factor) * w[i] : x[i] * factor;
    }
}

/* row = x; gives this lane's part of the sum of squares. */
static __device__ __forceinline__ float load_head(float *row, const float *x, int n)
{
    float acc = 0.0f;
    MO_UNROLL(4)
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        const float v = x[i];
        row[i] = v;
        acc = fmaf(v, v, acc);
    }
    return acc;
}

/* What stands from the beginning of the step, of a lane: the first weights of a norm and the first angles. They are asked
 * for before the products are there. Longer heads read the rest when they come to it. */
enum { HELD_WEIGHTS = 8, HELD_PAIRS = 4 };
typedef struct held {
    const float *weight; /* the norm's; NULL: none */
    const float *c, *s;  /* of the token; c is NULL where nothing is rotated */
    float w[HELD_WEIGHTS], cosine[HELD_PAIRS], sine[HELD_PAIRS];
} held;

static __device__ __forceinline__ held hold(const mo_op_heads &op, mo_daddr weight, int64_t t)
{
    const int lane = threadIdx.x & 31;
    held h;
    h.weight = weight && !op.norm_all ? mo_at<const float>(weight) : NULL;
    h.c = op.rope ? mo_at<const float>(op.rope) + t * op.rope_stride : NULL;
    h.s = op.rope ? h.c + op.rope_rows * op.rope_stride : NULL;
    MO_UNROLL()
    for (int j = 0; j < HELD_WEIGHTS; j++) {
        h.w[j] = h.weight && lane + 32 * j < op.k_len ? h.weight[lane + 32 * j] : 0.0f;
    }
    MO_UNROLL()
    for (int j = 0; j < HELD_PAIRS; j++) {
        const bool there = h.c && lane + 32 * j < op.n_rot / 2;
        h.cosine[j] = there ? h.c[lane + 32 * j] : 0.0f;
        h.sine[j] = there ? h.s[lane + 32 * j] : 0.0f;
    }
    return h;
}

/* The norm of a row that was taken. */
static __device__ __forceinline__ void norm_head(float *row, int n, float squares, float eps)
{
    const float r = mo_norm_factor(mo_lane_sum(squares), n, eps);
    MO_UNROLL(4)
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        row[i] = row[i] * r;
    }
}

static __device__ __forceinline__ void norm_head_by(float *row, int n, float squares, float eps,
                                                    const held &h)
{
    const int lane = threadIdx.x & 31;
    const float r = mo_norm_factor(mo_lane_sum(squares), n, eps);
    MO_UNROLL()
    for (int j = 0; j < HELD_WEIGHTS; j++) {
        const int i = lane + 32 * j;
        if (i < n) {
            row[i] = (row[i] * r) * h.w[j];
        }
    }
    for (int i = lane + 32 * HELD_WEIGHTS; i < n; i += 32) {
        row[i] = (row[i] * r) * h.weight[i];
    }
}

static __device__ __forceinline__ void rotate_pair(const mo_op_heads &op, float *row, int p, float c, float s)
{
    const int first = op.neox ? p : 2 * p;
    const int second = op.neox ? p + op.n_rot / 2 : 2 * p + 1;
    const float a = row[first], b = row[second];
    row[first] = fmaf(a, c, -(b * s));
    row[second] = fmaf(a, s, b * c);
}

static __device__ __forceinline__ void rotate_head(const mo_op_heads &op, float *row, const held &h)
{
    const int lane = threadIdx.x & 31;
    MO_UNROLL()
    for (int j = 0; j < HELD_PAIRS; j++) {
        if (lane + 32 * j < op.n_rot / 2) {
            rotate_pair(op, row, lane + 32 * j, h.cosine[j], h.sine[j]);
        }
    }
    for (int p = lane + 32 * HELD_PAIRS; p < op.n_rot / 2; p += 32) {
        rotate_pair(op, row, p, h.c[p], h.s[p]);
    }
    __syncwarp();
}

static __device__ __forceinline__ void return_head(float *x, const float *row, int n, float factor)
{
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        x[i] = row[i] * factor;
    }
    __syncwarp();
}

/* A key or a value of position u of a block; the row is changed where codes are made of it. */
static __device__ __forceinline__ void store_head(const mo_op_heads &op, float *row, bool value, int h,
                                                  uint8_t *block, int u)
{
    const mo_kv_shape shape = mo_cache_shape(op.kv, op.kv_heads, op.k_len, op.v_len, 0);
    const int n = value ? op.v_len : op.k_len;
    uint8_t *out =
        block + (value ? mo_kv_values_at(shape, h) : mo_kv_keys_at(shape, h)) + u * mo_cache_bytes(op.kv, n);
    const bool fits =
        mo_kv_coded(op.kv) ? mo_planes_write(shape, row, value, h, block, u) : mo_cache_write(row, n, out);
    if (!fits && op.bad) {
        *mo_at<volatile uint32_t>(op.bad) = 1;
    }
}

/* The squares of a row, summed as load_head() does. */
static __device__ __forceinline__ float squares_of(const float *row, int n)
{
    float acc = 0.0f;
    for (int i = threadIdx.x & 31; i < n; i += 32) {
        acc = fmaf(row[i], row[i], acc);
    }
    return acc;
}

/* Queries and keys: the norm of each head, and its rotation, in the model's order. */
static __device__ __forceinline__ void norm_and_rotate(const mo_op_heads &op, float *row, float squares,
                                                       const held &h)
{
    if (h.weight && !op.norm_last) {
        norm_head_by(row, op.k_len, squares, op.eps, h);
    }
    __syncwarp();
    if (h.c) {
        rotate_head(op, row, h);
    }
    if (h.weight && op.norm_last) {
        norm_head_by(row, op.k_len, squares_of(row, op.k_len), op.eps, h);
        __syncwarp();
    }
}

/* What adapters add to a part of one token. */
static __device__ __forceinline__ mo_low_left added_of(const mo_cuda_parts *parts, int which)
{
    mo_low_left none = {};
    return parts ? mo_low_left_of(*parts, parts->part[which]) : none;
}

/* As load_head(), with what is added to all `all` values of which the first n are taken; x is value `at` of the part. */
static __device__ __forceinline__ float load_added(const mo_low_left &left, float *row, float *x, int at,
                                                   int n, int all)
{
    float acc = 0.0f;
    MO_UNROLL(4)
    for (int i = threadIdx.x & 31; i < all; i += 32) {
        const float y = mo_low_left_added(left, at + i, x[i]);
        if (i < n) {
            row[i] = y;
            acc = fmaf(y, y, acc);
        } else {
            x[i] = y;
        }
    }
    return acc;
}

static __device__ __forceinline__ void prepare_query(const mo_op_heads &op, float *row, int64_t t, int head,
                                                     const mo_cuda_parts *parts)
{
    const int n = op.k_len * (op.gated ? 2 : 1);
    float *x = mo_at<float>(op.q) + (t * op.heads + head) * n;
    const mo_low_left left = added_of(parts, 0);
    const held kept = hold(op, op.q_norm, t);
    const float factor = mo_query_factor(op.q_factor, t);
    mo_grid_begin();
    const float squares =
        parts ? load_added(left, row, x, head * n, op.k_len, n) : load_head(row, x, op.k_len);
    norm_and_rotate(op, row, squares, kept);
    return_head(x, row, op.k_len, factor);
}

/* A key, or a value. Its place in the cache takes three looks into memory, one after the other, all of them at what
 * stands from the beginning of the step. */
static __device__ __forceinline__ void prepare_entry(const mo_op_heads &op, float *row, int64_t t, int h,
                                                     bool value, const mo_cuda_parts *parts)
{
    const int n = value ? op.v_len : op.k_len;
    float *key = mo_at<float>(op.k) + (t * op.kv_heads + h) * op.k_len;
    float *x = value ? mo_at<float>(op.v) + (t * op.kv_heads + h) * op.v_len : key;
    const mo_low_left left = added_of(parts, value ? 2 : 1);
    const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
    const held kept = hold(op, op.k_norm, t);
    const mo_dstate state = mo_at<const mo_dstate>(place.layers)[op.layer];
    uint8_t *block = mo_cache_block(state, place.position);
    mo_grid_begin();
    /* Where something is added values are not made of keys. */
    const float squares =
        parts ? load_added(left, row, x, h * n, n, n) : load_head(row, value && op.v_from_k ? key : x, n);
    if (!value) {
        norm_and_rotate(op, row, squares, kept);
    } else if (op.v_norm) {
        norm_head(row, n, squares, op.eps);
    }
    __syncwarp();
    return_head(x, row, n, 1.0f);
    store_head(op, row, value, h, block, (int)(place.position % MO_KV_BLOCK));
}

/* Warps of a token: its query heads, its keys, then its values; a warp does both where values are made of raw keys. */
static __device__ __forceinline__ void prepare_heads(const mo_op_heads &op, uint8_t *space,
                                                     const mo_cuda_parts *parts)
{
    const int longest = op.k_len > op.v_len ? op.k_len : op.v_len;
    float *row = (float *)space + threadIdx.x / 32 * longest;
    const int vectors = op.heads + op.kv_heads * (op.v_from_k ? 1 : 2);
    const unsigned warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const unsigned token = warp / (unsigned)vectors;
    const int64_t t = token;
    const int which = (int)(warp - token * (unsigned)vectors), entry = which - op.heads;
    if (t >= op.tokens) {
        mo_grid_begin();
        return;
    }
    if (entry < 0) {
        prepare_query(op, row, t, which, parts);
    } else if (op.v_from_k) {
        prepare_entry(op, row, t, entry, true, parts);
        prepare_entry(op, row, t, entry, false, parts);
    } else {
        prepare_entry(op, row, t, entry % op.kv_heads, entry >= op.kv_heads, parts);
    }
}

MO_KERNEL(mo_heads, mo_op_heads)
{
    MO_DYNAMIC_SHARED(space);
    prepare_heads(op, space, NULL);
}

/* For one token, whose values are not derived from keys. */
MO_KERNEL(mo_heads_adapted, mo_cuda_raised)
{
    MO_DYNAMIC_SHARED(space);
    prepare_heads(op.heads, space, &op.parts);
    mo_low_mail_clear(op.parts);
}

/* ---- Where a token looks ---------------------------------------------------------------------- */

static __device__ __forceinline__ int query_stride(const mo_op_attend &op)
{
    return op.k_len * (op.gated ? 2 : 1);
}

/* Some query heads of a token from `head` on, with the arrays of the block laid out. */
static __device__ __forceinline__ mo_chunk chunk_of(const mo_op_attend &op, int64_t t, int head, int queries,
                                                    int piece, uint8_t *space)
{
    const mo_chunk_scratch lay = mo_chunk_lay(&op, piece);
    mo_chunk c;
    c.values = space + lay.values;
    c.p = (float *)(space + lay.p);
    c.o = (float *)(space + lay.o);
    c.m = (float *)(space + lay.m);
    c.l = (float *)(space + lay.l);
    c.piece = piece;
    c.k_len = op.k_len;
    c.v_len = op.v_len;
    c.k_bytes = mo_cache_bytes(op.kv, op.k_len);
    c.v_bytes = mo_chunk_value_bytes(&op);
    c.queries = queries;
    c.scale = op.scale;
    c.q_stride = op.tail ? (int)op.between * op.k_len : query_stride(op);
    c.q = mo_at<const float>(op.q) + mo_query_row(op, t, head) * query_stride(op);
    return c;
}

/* Sets c to chunk number `index` of the view. */
static __device__ __forceinline__ void enter_chunk(const mo_op_attend &op, mo_chunk &c, const mo_view &v,
                                                   int kv_head, int64_t index)
{
    const int64_t begin = index * MO_CHUNK_LENGTH;
    const int64_t end = v.end - begin;
    c.span = mo_cache_chunk(op, v.state, kv_head, begin, end);
    c.from = v.first > begin ? (int)(v.first - begin) : 0;
    c.to = end < MO_CHUNK_LENGTH ? (int)end : MO_CHUNK_LENGTH;
}

/* ---- Few tokens: blocks (chunk, head, token) -------------------------------------------------- */

/* A chunk's result: for each head m, l, then o. */
static __device__ __forceinline__ float *partial_of(const mo_op_attend &op, int64_t t, int chunk, int head)
{
    return mo_at<float>(op.partial) + ((t * op.chunks + chunk) * op.heads + head) * (int64_t)(op.v_len + 2);
}

/* How many queries of a group one block takes: all if there is enough work for every thread (the cache is read once),
 * fewer where the GPU would be idle. The grid has a block for every head; those that are not needed leave. */
static __device__ __forceinline__ int queries_at_once(const mo_op_attend &op, int group, int chunks)
{
    const int enough = 264;
    const int parts =
        min(group, max(1, mo_quotient(enough, min(enough + 1, chunks * op.kv_heads * op.tokens))));
    return min(mo_chunk_queries_most(&op), mo_quotient(group + parts - 1, parts));
}

/* The only chunk: nothing is left to merge. */
static __device__ __forceinline__ void finish_chunk(const mo_op_attend &op, const mo_chunk &c, int64_t t,
                                                    int head)
{
    for (int i = threadIdx.x; i < c.queries * op.v_len; i += MO_CHUNK_THREADS) {
        const int q = mo_quotient(i, op.v_len);
        const float v = mo_finish_value(op, t, head + q, i - q * op.v_len, c.m[q], c.l[q], c.o[i]);
        if (op.v_len % 32 == 0) { /* whole warps: i and the rows' lengths are multiples of 32 */
            mo_quantize_block(op.mixed, mo_mixed_row(op, t, head + q),
                              (mo_mixed_column(op, head + q) + i - q * op.v_len) / 32, v);
        }
    }
}

static __device__ __forceinline__ void attend_chunk(const mo_op_attend &op, int piece, uint8_t *space)
{
    const int64_t t = blockIdx.z;
    const int group = mo_quotient(op.heads, op.kv_heads);
    const int head = blockIdx.y, kv_head = mo_quotient(head, group);
    const mo_view v = mo_view_of(op, t, MO_CHUNK_LENGTH); /* a step's places stand from its beginning */
    const int some = queries_at_once(op, group, v.chunks);
    const int first = (head - kv_head * group) * some;
    if ((int)blockIdx.x >= v.chunks || first >= group) {
        mo_grid_begin();
        return;
    }
    const int begin = kv_head * group + first;
    mo_chunk c = chunk_of(op, t, begin, min(some, group - first), piece, space);
    enter_chunk(op, c, v, kv_head, v.chunk + blockIdx.x);
    /* What earlier steps left in the cache does not wait for this one's. */
    const int expected = mo_chunk_expect(
        c, (int)min((int64_t)MO_CHUNK_LENGTH, v.old - (v.chunk + blockIdx.x) * (int64_t)MO_CHUNK_LENGTH));
    mo_grid_begin();
    mo_chunk_run(c, expected);
    if (op.chunks == 1) {
        finish_chunk(op, c, t, begin);
        return;
    }
    for (int i = threadIdx.x; i < c.queries * (op.v_len + 2); i += MO_CHUNK_THREADS) {
        const int q = mo_quotient(i, op.v_len + 2), j = i - q * (op.v_len + 2);
        partial_of(op, t, blockIdx.x, begin + q)[j] = j == 0   ? c.m[q]
                                                      : j == 1 ? c.l[q]
                                                               : c.o[q * op.v_len + j - 2];
    }
}

/* On every GPU; and where there is much shared memory. */
MO_BOUNDED(mo_attend_chunk, mo_op_attend, MO_CHUNK_THREADS, 2);
MO_KERNEL(mo_attend_chunk, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    attend_chunk(op, mo_chunk_piece(&op, MO_CHUNK_SMALL), space);
}

MO_BOUNDED(mo_attend_chunk_large, mo_op_attend, MO_CHUNK_THREADS, 2);
MO_KERNEL(mo_attend_chunk_large, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    attend_chunk(op, mo_chunk_piece(&op, MO_CHUNK_LARGE), space);
}

/* ---- Merging: blocks (head, token), a thread per value ---------------------------------------- */

/* How chunks join is known from all m alone, so that a thread per chunk finds it; what is left for each value is a
 * chain of two operations per chunk. */
enum { PRELAUNCH = 4 };

MO_BOUNDED(mo_attend_merge, mo_op_attend, 1024, 1);
MO_KERNEL(mo_attend_merge, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space); /* m, l, a, b of blockDim.x chunks */
    const int head = blockIdx.x, threads = blockDim.x, j = threadIdx.x;
    const int64_t t = blockIdx.y;
    float *m = (float *)space, *l = m + threads, *a = l + threads, *b = a + threads;
    const mo_view v = mo_view_of(op, t, MO_CHUNK_LENGTH);
    mo_grid_begin();
    const int64_t step = (int64_t)op.heads * (op.v_len + 2);
    const float *o = partial_of(op, t, 0, head) + 2 + min(j, op.v_len - 1);
    float prelaunch[PRELAUNCH]; /* asked for before anything is known of them */
    MO_UNROLL()
    for (int i = 0; i < PRELAUNCH; i++) {
        prelaunch[i] = o[min(i, v.chunks - 1) * step];
    }
    float M = 0.0f, L = 0.0f, O = 0.0f;
    for (int base = 0; base < v.chunks; base += threads) {
        const int count = min(threads, v.chunks - base);
        if (j < count) {
            const float *p = partial_of(op, t, base + j, head);
            m[j] = p[0];
            l[j] = p[1];
        }
        __syncthreads();
        if (j < count) {
            float before = base == 0 ? m[0] : M;
            for (int i = 0; i < j; i++) {
                before = before > m[i] ? before : m[i];
            }
            const mo_join join = mo_join_of(before, m[j]);
            a[j] = join.a;
            b[j] = join.b;
        }
        __syncthreads();
        int i = 0;
        if (base == 0) {
            M = m[0];
            L = l[0];
            O = prelaunch[0];
            MO_UNROLL()
            for (i = 1; i < PRELAUNCH; i++) {
                if (i < count) {
                    L = fmaf(b[i], l[i], a[i] * L);
                    O = fmaf(b[i], prelaunch[i], a[i] * O);
                    M = M > m[i] ? M : m[i];
                }
            }
        }
        MO_UNROLL(4)
        for (; i < count; i++) {
            L = fmaf(b[i], l[i], a[i] * L);
            O = fmaf(b[i], o[(base + i) * step], a[i] * O);
            M = M > m[i] ? M : m[i];
        }
        __syncthreads();
    }
    float value = 0.0f;
    if (j < op.v_len) {
        value = mo_finish_value(op, t, head, j, M, L, O);
    }
    if (op.v_len % 32 ==
        0) { /* blocks of the mixed row are blocks of a head, and these threads whole warps */
        mo_quantize_block(op.mixed, mo_mixed_row(op, t, head), (mo_mixed_column(op, head) + j) / 32, value);
    }
}

/* Codes of mixed rows whose heads do not end where blocks do. */
MO_KERNEL(mo_attend_quantize, mo_op_attend)
{
    mo_grid_begin();
    mo_quantize_row(op.mixed, blockIdx.x);
}

/* ---- Many tokens, any lengths: blocks (token, part of the heads) ------------------------------ */

MO_BOUNDED(mo_attend_rows, mo_op_attend, MO_CHUNK_THREADS, 2);
MO_KERNEL(mo_attend_rows, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    const int64_t t = blockIdx.x;
    const int group = op.heads / op.kv_heads;
    const int some = mo_chunk_queries_most(&op), parts = (group + some - 1) / some;
    const int kv_head = blockIdx.y / parts, first = blockIdx.y % parts * some;
    const int piece = mo_chunk_piece(&op, MO_CHUNK_SMALL);
    const mo_chunk_scratch lay = mo_chunk_lay(&op, piece);
    float *M = (float *)(space + lay.M), *L = (float *)(space + lay.L), *O = (float *)(space + lay.O);
    const int begin = kv_head * group + first;
    const mo_view v = mo_view_of(op, t, MO_CHUNK_LENGTH);
    mo_chunk c = chunk_of(op, t, begin, min(some, group - first), piece, space);
    for (int i = 0; i < v.chunks; i++) {
        enter_chunk(op, c, v, kv_head, v.chunk + i);
        mo_chunk_run(c, 0);
        for (int x = threadIdx.x; x < c.queries * op.v_len; x += MO_CHUNK_THREADS) {
            const int q = x / op.v_len;
            O[x] = i == 0 ? c.o[x] : mo_joined(mo_join_of(M[q], c.m[q]), O[x], c.o[x]);
        }
        __syncthreads();
        if ((int)threadIdx.x < c.queries) {
            const int q = threadIdx.x;
            const mo_join join = mo_join_of(i == 0 ? c.m[q] : M[q], c.m[q]);
            L[q] = i == 0 ? c.l[q] : mo_joined(join, L[q], c.l[q]);
            M[q] = join.top;
        }
        __syncthreads();
    }
    for (int x = threadIdx.x; x < c.queries * op.v_len; x += MO_CHUNK_THREADS) {
        const int q = x / op.v_len;
        const float value = mo_finish_value(op, t, begin + q, x % op.v_len, M[q], L[q], O[x]);
        if (op.tail &&
            op.v_len % 32 == 0) { /* rows of other heads are not here: their codes are not made later */
            mo_quantize_block(op.mixed, mo_mixed_row(op, t, begin + q), x % op.v_len / 32, value);
        }
    }
}
