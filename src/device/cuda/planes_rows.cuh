/* Planes, rows: which queries are the rows of a tile, as they come from memory: turned and coded in the registers of four lanes for a
 * row. */
#ifndef MO_DEVICE_CUDA_PLANES_ROWS_CUH
#define MO_DEVICE_CUDA_PLANES_ROWS_CUH

#include "device/cuda/codes.cuh"

/* The queries of some neighbouring tokens that share a KV head, token after token. */
struct planes_rows {
    int group, tokens; /* query heads per KV head; tokens of the tile */
    int count;         /* rows that are queries */
    int64_t token;     /* the first */
    int kv_head;
};

/* Blocks are (tile, KV head). Tiles of late tokens see most and come first. */
static __device__ __forceinline__ planes_rows planes_rows_of(const mo_op_attend &op)
{
    planes_rows r;
    r.group = op.heads / op.kv_heads;
    const int most = MO_PLANES_TILE_ROWS / r.group;
    r.token = (int64_t)(gridDim.x - 1 - blockIdx.x) * most;
    r.tokens = (int)min((int64_t)most, op.tokens - r.token);
    r.count = r.tokens * r.group;
    r.kv_head = blockIdx.y;
    return r;
}

static __device__ __forceinline__ int planes_row_head(const planes_rows &r, int row)
{
    return r.kv_head * r.group + row % r.group;
}

static __device__ __forceinline__ const float *planes_query(const mo_op_attend &op, const planes_rows &r,
                                                            int row)
{
    return mo_at<const float>(op.q) + ((r.token + row / r.group) * op.heads + planes_row_head(r, row)) *
                                          (int64_t)(op.k_len * (op.gated ? 2 : 1));
}

/* The last of the tile's tokens that are of the same session as `first` and follow it. */
static __device__ __forceinline__ int planes_run_end(const mo_op_attend &op, const planes_rows &r, int first)
{
    const mo_dplace *places = mo_at<const mo_dplace>(op.places) + r.token;
    int last = first;
    while (last + 1 < r.tokens && places[last + 1].slice == places[first].slice) {
        last++;
    }
    return last;
}

/* The largest of a row, of the four lanes that have it. */
static __device__ __forceinline__ float planes_row_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(MO_FULL, v, 1));
    return fmaxf(v, __shfl_xor_sync(MO_FULL, v, 2));
}

/* ---- Turning: value 8 n + 2 q + b of row i is v[n][2 i + b] of lane q ------------------------- */

/* The butterflies of row i and their factor. */
template <int D> static __device__ __forceinline__ void planes_butterflies(float (*v)[4], int i)
{
    constexpr int BLOCK = D & -D, TILES = D / 8;
    const int q = threadIdx.x & 3;
    const float root = mo_turn_root(BLOCK);
    MO_UNROLL()
    for (int n = 0; n < TILES; n++) {
        const float x = v[n][2 * i], y = v[n][2 * i + 1];
        v[n][2 * i] = x + y;
        v[n][2 * i + 1] = x - y;
        MO_UNROLL()
        for (int h = 1; h <= 2; h *= 2) {
            MO_UNROLL()
            for (int b = 0; b < 2; b++) {
                const float own = v[n][2 * i + b], other = __shfl_xor_sync(MO_FULL, own, h);
                v[n][2 * i + b] = q & h ? other - own : own + other;
            }
        }
    }
    MO_UNROLL()
    for (int h = 1; 8 * h < BLOCK; h *= 2) {
        MO_UNROLL()
        for (int n = 0; n < TILES; n++) {
            MO_UNROLL()
            for (int b = 0; b < 2 && (n & h) == 0; b++) {
                const float x = v[n][2 * i + b], y = v[n + h][2 * i + b];
                v[n][2 * i + b] = x + y;
                v[n + h][2 * i + b] = x - y;
            }
        }
    }
    MO_UNROLL()
    for (int n = 0; n < TILES; n++) {
        v[n][2 * i] = v[n][2 * i] * root;
        v[n][2 * i + 1] = v[n][2 * i + 1] * root;
    }
}

/* Signs of the channels of row i. */
template <int D> static __device__ __forceinline__ void planes_flip(float (*v)[4], int i)
{
    const int q = threadIdx.x & 3;
    MO_UNROLL()
    for (int n = 0; n < D / 8; n++) {
        v[n][2 * i] = mo_turn_flipped(v[n][2 * i], 8 * n + 2 * q);
        v[n][2 * i + 1] = mo_turn_flipped(v[n][2 * i + 1], 8 * n + 2 * q + 1);
    }
}

/* Codes of row i of the warp, turned, into units of its 16 rows, `unit` bytes apart, the low plane `low` bytes further; gives their
 * scale. */
template <int D>
static __device__ __forceinline__ float planes_code_query(const mo_op_attend &op, const planes_rows &r,
                                                          float (*v)[4], int i, uint8_t *codes, int unit,
                                                          int low)
{
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    const int row = 16 * warp + 8 * i + g;
    const bool here = row < r.count;
    const float *x = planes_query(op, r, here ? row : 0) + 2 * q;
    float amax = 0.0f;
    bool bad = false;
    MO_UNROLL()
    for (int n = 0; n < D / 8; n++) {
        const float2 two = here ? *(const float2 *)(x + 8 * n) : make_float2(0.0f, 0.0f);
        v[n][2 * i] = two.x;
        v[n][2 * i + 1] = two.y;
    }
    planes_flip<D>(v, i);
    planes_butterflies<D>(v, i);
    MO_UNROLL()
    for (int n = 0; n < D / 8; n++) {
        amax = fmaxf(amax, fmaxf(fabsf(v[n][2 * i]), fabsf(v[n][2 * i + 1])));
        bad |= mo_not_finite(v[n][2 * i]) || mo_not_finite(v[n][2 * i + 1]);
    }
    const uint32_t four = __ballot_sync(MO_FULL, bad) >> 4 * g & 15;
    const mo_planes_scale s = mo_planes_scale_by(planes_row_max(amax), four == 0, 2);
    uint8_t *out = codes + 16 * (8 * i + g) + 2 * q;
    MO_UNROLL()
    for (int n = 0; n < D / 8; n++) {
        const int c = mo_planes_code(s, v[n][2 * i]), d = mo_planes_code(s, v[n][2 * i + 1]);
        uint8_t *p = out + n / 2 * unit + n % 2 * 8;
        *(uint16_t *)p = (uint16_t)((mo_code_high(c) & 255) | (mo_code_high(d) & 255) << 8);
        *(uint16_t *)(p + low) = (uint16_t)((mo_code_low(c) & 255) | (mo_code_low(d) & 255) << 8);
    }
    return s.finite ? s.s : NAN;
}

#endif
