/* Attention by integer sums (kv i16 and q8_0). Few tokens: chunks side by side, and a kernel that merges them. Many: tiles of queries
 * (planes_tile.cuh), or, for lengths that those do not know, some query heads after the others. */
#include "device/cuda/pipeline.cuh"
#include "device/cuda/planes_attend.cuh"
#include "device/cuda/planes_latent.cuh"
#include "device/cuda/planes_tile.cuh"
#include "device/cuda/planes_wide.cuh"
#include "device/cuda/view.cuh"

/* ---- Few tokens: blocks (chunk, KV head and part of its queries, token) ----------------------- */

MO_BOUNDED(mo_planes_chunk_64, mo_op_attend, MO_PLANES_THREADS, 3);
MO_KERNEL(mo_planes_chunk_64, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunk<64, 64>(op, NULL, space);
}

MO_BOUNDED(mo_planes_chunk_128, mo_op_attend, MO_PLANES_THREADS, 2);
MO_KERNEL(mo_planes_chunk_128, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunk<128, 128>(op, NULL, space);
}

MO_BOUNDED(mo_planes_chunk_256, mo_op_attend, MO_PLANES_THREADS, 1);
MO_KERNEL(mo_planes_chunk_256, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunk<256, 256>(op, NULL, space);
}

/* Any lengths. */
MO_BOUNDED(mo_planes_chunk, mo_op_attend, MO_PLANES_THREADS, 2);
MO_KERNEL(mo_planes_chunk, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunk<0, 0>(op, NULL, space);
}

/* ---- Few tokens after many: blocks (some chunks, KV head and part of its queries, token) ------- */

MO_BOUNDED(mo_planes_stream_64, mo_op_attend, MO_PLANES_THREADS, 2);
MO_KERNEL(mo_planes_stream_64, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunks<64>(op, NULL, space);
}

MO_BOUNDED(mo_planes_stream_128, mo_op_attend, MO_PLANES_THREADS, 2);
MO_KERNEL(mo_planes_stream_128, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunks<128>(op, NULL, space);
}

MO_BOUNDED(mo_planes_stream_256, mo_op_attend, MO_PLANES_THREADS, 1);
MO_KERNEL(mo_planes_stream_256, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_chunks<256>(op, NULL, space);
}

/* ---- Merging: blocks (head, token), a thread per value ---------------------------------------- */

/* The largest of the values of threads before this one and of `before`; all threads of the block. */
static __device__ __forceinline__ float largest_before(float v, float before, float *warps)
{
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    for (int s = 1; s < 32; s *= 2) {
        const float other = __shfl_up_sync(MO_FULL, v, s);
        v = lane >= s && other > v ? other : v;
    }
    const float mine = __shfl_up_sync(MO_FULL, v, 1);
    if (lane == 31) {
        warps[warp] = v;
    }
    __syncthreads();
    for (int i = 0; i < warp; i++) {
        before = before > warps[i] ? before : warps[i];
    }
    return lane > 0 && mine > before ? mine : before;
}

/* Value j of a head of n values, turned back by all threads of the block; row: space for as many floats as there are threads. */
static __device__ __forceinline__ float turned_back(float v, int n, float *row)
{
    const int j = threadIdx.x, block = mo_turn_block(n);
    for (int h = 1; h < 32 && h < block; h *= 2) {
        const float other = __shfl_xor_sync(MO_FULL, v, h);
        v = j & h ? other - v : v + other;
    }
    for (int h = 32; h < block; h *= 2) {
        __syncthreads();
        row[j] = v;
        __syncthreads();
        const float other = row[j ^ h];
        v = j & h ? other - v : v + other;
    }
    v = v * mo_turn_root(block);
    return mo_turn_flipped(v, j);
}

/* How chunks join is known from all m alone, so that a thread per chunk finds it; what is left for each value is a chain of two
 * operations per chunk. Merged so far, of value threadIdx.x of the head: */
typedef struct merged {
    float M, L, O;
} merged;

/* For one chunk, as it was left. */
typedef struct factors {
    float m, l, r;
} factors;

static __device__ __forceinline__ factors factors_of(const partials &p, int chunk)
{
    factors f;
    f.m = p.m[chunk];
    f.l = p.m[chunk + p.apart];
    f.r = p.m[chunk + 2 * p.apart];
    return f;
}

/* How a chunk joins those before it: a, b, l and b r. A thread per chunk, all of the block. */
static __device__ __forceinline__ float4 join_with(const factors &f, float M, float *warps)
{
    const mo_join join = mo_join_of(largest_before(f.m, M, warps), f.m);
    return make_float4(join.a, join.b, f.l, join.b * f.r);
}

static __device__ __forceinline__ void merge_chunk(merged &x, const float4 &by, float sum)
{
    x.L = fmaf(by.y, by.z, by.x * x.L);
    x.O = fmaf(by.w, sum, by.x * x.O);
}

/* The largest m of some chunks joins; those that follow have it in `warps` no more after a barrier. */
static __device__ __forceinline__ void merge_largest(merged &x, const float *warps, int threads)
{
    for (int i = 0; i < threads / 32; i++) { /* copies of the last chunk change nothing */
        x.M = x.M > warps[i] ? x.M : warps[i];
    }
    __syncthreads();
}

/* Everything is merged: sink, division, turned back, gate. row: space for a float of each thread. */
static __device__ __forceinline__ void merge_end(const mo_op_attend &op, int64_t t, int head, merged x,
                                                 float *row)
{
    const int j = threadIdx.x;
    if (op.sinks) {
        const mo_join join = mo_join_of(x.M, mo_at<const float>(op.sinks)[head]);
        x.L = mo_joined(join, x.L, 1.0f);
        x.O = mo_joined(join, x.O, 0.0f);
    }
    float value = turned_back(j < op.v_len ? x.O / x.L : 0.0f, op.v_len, row);
    if (j < op.v_len) {
        if (op.gated) {
            const float *gate =
                mo_at<const float>(op.q) + (t * op.heads + head) * (int64_t)(2 * op.k_len) + op.k_len;
            value = value * mo_sigmoid(gate[j]);
        }
        mo_at<float>(op.mixed.x)[mo_mixed_row(op, t, head) * op.mixed.cols + mo_mixed_column(op, head) + j] =
            value;
    }
    if (op.v_len % 32 == 0 &&
        j < op.v_len) { /* blocks of the mixed row are blocks of a head, in whole warps */
        mo_quantize_block(op.mixed, mo_mixed_row(op, t, head), (mo_mixed_column(op, head) + j) / 32, value);
    }
}

/* The sums of the next chunks are on their way to registers meanwhile. */
enum { PART = 8 }; /* a text that has just begun need not go through all of them */

template <int AHEAD> static __device__ __forceinline__ void merge(const mo_op_attend &op, uint8_t *space)
{
    /* In shared memory: what chunks join by, and a float of each warp. */
    const int head = blockIdx.x, threads = blockDim.x, j = threadIdx.x;
    const int64_t t = blockIdx.y;
    float4 *joins = (float4 *)space;
    float *warps = (float *)(joins + threads);
    const mo_view v = mo_view_of(op, t, MO_KV_BLOCK);
    mo_grid_begin();
    const partials p = partials_of(op, t, head, 0);
    const float *next = p.sums + min(j, op.v_len - 1);
    int left = v.chunks; /* to be asked for */
    merged x = {-INFINITY, 0.0f, 0.0f};
    float ahead[AHEAD];
    MO_UNROLL()
    for (int part = 0; part < AHEAD && part < v.chunks; part += PART) {
        MO_UNROLL()
        for (int i = part; i < part + PART; i++, left--, next += op.v_len) {
            ahead[i] = left > 0 ? *next : 0.0f;
        }
    }
    for (int base = 0; base < v.chunks; base += threads) {
        const int count = min(threads, v.chunks - base);
        joins[j] = join_with(factors_of(p, base + min(j, count - 1)), x.M, warps);
        __syncthreads();
        for (int first = 0; first < count; first += AHEAD) { /* threads are a multiple of AHEAD */
            MO_UNROLL()
            for (int part = 0; part < AHEAD && first + part < count; part += PART) {
                MO_UNROLL()
                for (int i = part; i < part + PART; i++, left--, next += op.v_len) {
                    const float sum = ahead[i];
                    ahead[i] = left > 0 ? *next : 0.0f;
                    if (first + i < count) {
                        merge_chunk(x, joins[first + i], sum);
                    }
                }
            }
        }
        merge_largest(x, warps, threads);
    }
    merge_end(op, t, head, x, (float *)space);
}

MO_BOUNDED(mo_planes_merge, mo_op_attend, 512, 1);
MO_KERNEL(mo_planes_merge, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    merge<32>(op, space);
}

/* For more than 512 values. */
MO_BOUNDED(mo_planes_merge_long, mo_op_attend, 1024, 1);
MO_KERNEL(mo_planes_merge_long, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    merge<8>(op, space);
}

/* After many chunks: the sums of some of them, a piece, come to shared memory at once. Warps have parts: those of the values have a
 * chain of one or two operations per chunk, one more has the same of L, and the last finds how the chunks of the next piece join. What
 * values read besides their sums is one float per chunk if M does not change, which is nearly always. */
typedef struct far_sums {
    mo_pipeline pipeline;
    const float *from; /* the first chunk's */
    int chunks, piece, v_len;
} far_sums;

/* Starts the copy of piece number `step`, if there is one. */
static __device__ __forceinline__ void far_bring(const far_sums &s, int step)
{
    const int first = step * s.piece;
    if (first >= s.chunks) {
        mo_pipeline_skip();
        return;
    }
#ifdef MO_PIPELINE_BULK
    if (threadIdx.x != 0) {
        return;
    }
#endif
    mo_pipeline_run run;
    run.from = (const uint8_t *)(s.from + (int64_t)first * s.v_len);
    run.bytes = (uint32_t)(min(s.piece, s.chunks - first) * s.v_len * 4);
    mo_pipeline_bring(s.pipeline, step % MO_PLANES_MERGES, run, run.from + run.bytes);
}

/* How the chunks of a piece join, by chunk: a, b r, b, l. Past the last chunk: as if it changed nothing. */
typedef struct far_joins {
    float a[MO_PLANES_MERGED], by[MO_PLANES_MERGED], b[MO_PLANES_MERGED], l[MO_PLANES_MERGED];
    uint32_t changes; /* bit i: a of chunk i is not 1 */
    uint32_t unused[3];
} far_joins;

/* By one warp: f is of the lane's chunk, one of the `count` of the piece. Gives the largest m so far. */
static __device__ __forceinline__ float far_find(far_joins *out, const factors &f, int count, float M)
{
    const int lane = threadIdx.x & 31;
    float top = f.m;
    for (int s = 1; s < 32; s *= 2) {
        const float other = __shfl_up_sync(MO_FULL, top, s);
        top = lane >= s && other > top ? other : top;
    }
    const float left = __shfl_up_sync(MO_FULL, top, 1), last = __shfl_sync(MO_FULL, top, count - 1);
    const mo_join join = mo_join_of(lane > 0 && left > M ? left : M, f.m);
    const bool here = lane < count;
    out->a[lane] = here ? join.a : 1.0f;
    out->by[lane] = join.b * f.r;
    out->b[lane] = join.b;
    out->l[lane] = f.l;
    const uint32_t changes = __ballot_sync(MO_FULL, here && join.a != 1.0f);
    if (lane == 0) {
        out->changes = changes;
    }
    return last > M ? last : M;
}

enum { AT_ONCE = 8 };

static __device__ __forceinline__ void far_read(float *out, const float *from)
{
    MO_UNROLL()
    for (int i = 0; i < AT_ONCE; i += 4) {
        const float4 four = *(const float4 *)(from + i);
        out[i] = four.x;
        out[i + 1] = four.y;
        out[i + 2] = four.z;
        out[i + 3] = four.w;
    }
}

/* A value's chain, or with v_len 1 that of L: `count` chunks, each sum v_len behind the one before. 1 x is x to the bit. */
static __device__ __forceinline__ float far_chain(float x, const far_joins &joins, const float *by,
                                                  const float *sum, int v_len, int count)
{
    const int whole = count & -AT_ONCE;
    for (int first = 0; first < whole; first += AT_ONCE) {
        float factor[AT_ONCE], a[AT_ONCE], value[AT_ONCE];
        far_read(factor, by + first);
        MO_UNROLL()
        for (int i = 0; i < AT_ONCE; i++) {
            value[i] = sum[(first + i) * v_len];
        }
        if (joins.changes >> first & ((1u << AT_ONCE) - 1)) {
            far_read(a, joins.a + first);
            MO_UNROLL()
            for (int i = 0; i < AT_ONCE; i++) {
                x = fmaf(factor[i], value[i], a[i] * x);
            }
        } else {
            MO_UNROLL()
            for (int i = 0; i < AT_ONCE; i++) {
                x = fmaf(factor[i], value[i], x);
            }
        }
    }
    for (int i = whole; i < count; i++) {
        x = fmaf(by[i], sum[i * v_len], joins.a[i] * x);
    }
    return x;
}

MO_BOUNDED(mo_planes_merge_far, mo_op_attend, 512 + MO_PLANES_MERGE_HELP, 1);
MO_KERNEL(mo_planes_merge_far, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    const mo_planes_merge_scratch lay = mo_planes_merge_lay(op.v_len);
    const int head = blockIdx.x, j = threadIdx.x, lane = j & 31;
    const int role =
        j / 32 - ((int)blockDim.x - MO_PLANES_MERGE_HELP) / 32; /* 0: L, 1: joins, less: values */
    const int64_t t = blockIdx.y;
    far_joins *joins = (far_joins *)(space + lay.joins); /* [2] */
    const mo_view v = mo_view_of(op, t, MO_KV_BLOCK);
    const partials p = partials_of(op, t, head, 0);
    far_sums s;
    s.pipeline.steps = space + lay.steps;
    s.pipeline.arrived = (uint64_t *)(space + lay.gates);
    s.pipeline.step_bytes = (uint32_t)(lay.joins / MO_PLANES_MERGES);
    s.pipeline.ahead = MO_PLANES_MERGES;
    s.from = p.sums;
    s.chunks = v.chunks;
    s.piece = mo_planes_merge_piece(op.v_len);
    s.v_len = op.v_len;
    mo_pipeline_begin(&s.pipeline, MO_PLANES_MERGES);
    __syncthreads();
    mo_grid_begin();
    for (int i = 0; i < MO_PLANES_MERGES - 1; i++) {
        far_bring(s, i);
    }
    float M = -INFINITY, x = 0.0f; /* x: a value, or L */
    factors f = {0.0f, 0.0f, 0.0f};
    if (role == 1) {
        f = factors_of(p, min(lane, v.chunks - 1));
        const factors next = factors_of(p, min(s.piece + lane, v.chunks - 1));
        M = far_find(joins, f, min(s.piece, v.chunks), M);
        f = next;
    }
    for (int first = 0, step = 0; first < v.chunks; first += s.piece, step++) {
        const int slot = step % MO_PLANES_MERGES, count = min(s.piece, v.chunks - first),
                  after = first + s.piece;
        const far_joins &now = joins[step & 1];
        mo_pipeline_wait(&s.pipeline, slot);
        __syncthreads(); /* it has arrived, with its joins, and all are done with the previous one */
        far_bring(s, step + MO_PLANES_MERGES - 1);
        if (role < 0) {
            x = far_chain(x, now, now.by,
                          (const float *)(s.pipeline.steps + slot * s.pipeline.step_bytes) +
                              min(j, op.v_len - 1),
                          op.v_len, count);
        } else if (role == 0) {
            x = far_chain(x, now, now.b, now.l, 1, count);
        } else if (after < v.chunks) {
            const factors next = factors_of(p, min(after + s.piece + lane, v.chunks - 1));
            M = far_find(joins + ((step + 1) & 1), f, min(s.piece, v.chunks - after), M);
            f = next;
        }
    }
    float *all = (float *)(space + lay.all);
    if (role >= 0 && lane == 0) {
        all[role] = role ? M : x;
    }
    __syncthreads();
    merged x_all = {all[1], all[0], x};
    merge_end(op, t, head, x_all, (float *)(space + lay.steps));
}

/* ---- Many tokens, any lengths: blocks (some queries, KV head) --------------------------------- */

/* What each row sees of the chunk that begins at `begin`; tokens [from, to] are of one session. */
static __device__ __forceinline__ void look(const mo_op_attend &op, const mo_planes_few &f, int64_t from,
                                            int64_t to, int64_t begin)
{
    if ((int)threadIdx.x < f.rows) {
        const int64_t t = mo_planes_token(f, threadIdx.x);
        const mo_dplace place = mo_at<const mo_dplace>(op.places)[t];
        const int64_t behind = place.position + 1 + mo_seen_ahead(op.window, place);
        const int64_t first = max(mo_first_seen(op.window, place.position) - begin, (int64_t)0);
        const int64_t end = min(behind - begin, (int64_t)MO_KV_BLOCK);
        const bool sees = t >= from && t <= to && first < end;
        f.from[threadIdx.x] = sees ? (int)first : 0;
        f.to[threadIdx.x] = sees ? (int)end : 0;
    }
}

MO_BOUNDED(mo_planes_rows, mo_op_attend, MO_PLANES_THREADS, 2);
MO_KERNEL(mo_planes_rows, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    const int group = op.heads / op.kv_heads, padded = mo_kv_padded(op.v_len);
    const int64_t all = (int64_t)op.tokens * group;
    const int most = (int)((all + gridDim.x - 1) / gridDim.x);
    const int64_t number = (int64_t)(gridDim.x - 1 - blockIdx.x) * most;
    if (number >= all) {
        return;
    }
    const int rows = (int)min((int64_t)most, all - number);
    mo_planes_few f = mo_planes_few_of(op, blockIdx.y, number, rows, most, space);
    const mo_planes_loads<0, 0> loads = {};
    const mo_dplace *places = mo_at<const mo_dplace>(op.places);
    mo_planes_begin(op, f);
    mo_planes_queries<0>(op, f);
    const int64_t end = mo_planes_token(f, rows - 1);
    for (int64_t from = mo_planes_token(f, 0), to; from <= end; from = to + 1) {
        for (to = from; to < end && places[to + 1].slice == places[from].slice;) {
            to++;
        }
        const mo_dstate state = mo_at<const mo_dstate>(places[from].layers)[op.layer];
        const int64_t start = mo_first_seen(op.window, places[from].position) / MO_KV_BLOCK * MO_KV_BLOCK;
        const int64_t last = places[to].position + mo_seen_ahead(op.window, places[to]);
        for (int64_t begin = start; begin <= last; begin += MO_KV_BLOCK) {
            __syncthreads();
            look(op, f, from, to, begin);
            f.span = mo_planes_block(op, state, f.kv_head, begin);
            __syncthreads();
            mo_planes_run<0, 0>(op, f, loads);
            mo_planes_join(op, f);
        }
    }
    for (int row = threadIdx.x / 32; row < f.rows; row += MO_PLANES_THREADS / 32) {
        __syncwarp();
        mo_planes_finish<0>(op, mo_planes_token(f, row), mo_planes_head(f, row), f.M[row], f.L[row],
                            f.O + row * padded);
    }
}

/* ---- Many tokens, the lengths that models have: blocks (tile of tokens, KV head) -------------- */

MO_BOUNDED(mo_planes_tile_64, mo_op_attend, MO_PLANES_TILE_THREADS, 3);
MO_KERNEL(mo_planes_tile_64, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_attend<64>(op, space);
}

MO_BOUNDED(mo_planes_tile_80, mo_op_attend, MO_PLANES_TILE_THREADS, 2);
MO_KERNEL(mo_planes_tile_80, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_attend<80>(op, space);
}

MO_BOUNDED(mo_planes_tile_96, mo_op_attend, MO_PLANES_TILE_THREADS, 2);
MO_KERNEL(mo_planes_tile_96, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_attend<96>(op, space);
}

MO_BOUNDED(mo_planes_tile_128, mo_op_attend, MO_PLANES_TILE_THREADS, 2);
MO_KERNEL(mo_planes_tile_128, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    planes_attend<128>(op, space);
}

MO_BOUNDED(mo_planes_tile_256, mo_op_attend, 256, 1);
MO_KERNEL(mo_planes_tile_256, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    wide_attend<256>(op, space);
}

MO_BOUNDED(mo_planes_tile_512, mo_op_attend, 512, 1);
MO_KERNEL(mo_planes_tile_512, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    wide_attend<512>(op, space);
}

/* ---- Many tokens over latent rows: blocks (tile of queries) ----------------------------------- */

MO_BOUNDED(mo_planes_latent, mo_op_attend, MO_PLANES_LATENT_THREADS, 1);
MO_KERNEL(mo_planes_latent, mo_op_attend)
{
    MO_DYNAMIC_SHARED(space);
    latent_attend(op, space);
}
