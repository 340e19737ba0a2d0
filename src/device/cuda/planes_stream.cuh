/* Planes, few queries after many positions: a block takes several chunks of a KV head, one after the other, and those that follow are
 * on their way to shared memory meanwhile: keys of a chunk, its values, the next keys, each as a whole into the next of some
 * slots. */
#ifndef MO_DEVICE_CUDA_PLANES_STREAM_CUH
#define MO_DEVICE_CUDA_PLANES_STREAM_CUH

#include "device/cuda/planes_few.cuh"
#include "device/cuda/planes_group.cuh"

/* The chunks of a block: `count` of them from the one that begins at `begin` on. Item 2 i is the keys of chunk i, 2 i + 1 its values. */
template <int D, int SLOTS> struct planes_stream {
    static constexpr int CODES = 2 * MO_KV_BLOCK * D; /* of an item, both planes; its scales follow */
    mo_dstate state;
    int64_t begin;
    int count, kv_head;
    uint8_t *slots;
    uint64_t *gates; /* [SLOTS] */
};

template <int D, int SLOTS>
static __device__ __forceinline__ uint8_t *stream_slot(const planes_stream<D, SLOTS> &s, int slot)
{
    return s.slots + slot * mo_planes_slot(D);
}

/* Sends item i on its way; its slot is free. Items that do not exist keep their place in the order of copies. */
template <int D, int SLOTS>
static __device__ __forceinline__ void stream_bring(const mo_op_attend &op, const planes_stream<D, SLOTS> &s,
                                                    int i)
{
    if (i >= 2 * s.count) {
#if !MO_PLANES_BULK
        mo_async_commit();
#endif
        return;
    }
#if MO_PLANES_BULK
    if (threadIdx.x != 0) {
        return;
    }
#endif
    const mo_planes_span span =
        mo_planes_block(op, s.state, s.kv_head, s.begin + (int64_t)(i / 2) * MO_KV_BLOCK);
    const int slot = i % SLOTS;
    uint8_t *to = stream_slot(s, slot);
    planes_bring<true>(planes_gate{s.gates + slot, 0}, to, i % 2 ? span.values : span.keys,
                       span.planes * MO_KV_BLOCK * D, to + planes_stream<D, SLOTS>::CODES,
                       i % 2 ? span.value_scales : span.key_scales, 4 * MO_KV_BLOCK);
}

/* Item i is visible to all threads; LEFT: how many later ones have been sent. */
template <int LEFT, int D, int SLOTS>
static __device__ __forceinline__ uint8_t *stream_wait(const planes_stream<D, SLOTS> &s, int i)
{
    const int slot = i % SLOTS;
#if MO_PLANES_BULK
    planes_gate gate = {s.gates + slot, (uint32_t)(i / SLOTS) & 1};
    planes_pass(&gate);
#else
    planes_arrive<LEFT>();
    __syncthreads();
#endif
    return stream_slot(s, slot);
}

/* Sums of the 16 rows of a (STEPS * 2 units, as f.q and f.weights have them) with 8 rows of units at b. */
template <int STEPS>
static __device__ __forceinline__ void stream_products(int32_t (*hh)[4], int32_t (*xx)[4], const uint8_t *a,
                                                       const uint8_t *b, int b_unit, int b_low, int row,
                                                       int apart, int tiles)
{
    MO_UNROLL()
    for (int d = 0; d < STEPS; d++) {
        uint32_t hi[4], lo[4];
        planes_rows_operand(hi, a + 2 * d * MO_PLANES_UNIT, MO_PLANES_UNIT, 0);
        planes_rows_operand(lo, a + (2 * STEPS + 2 * d) * MO_PLANES_UNIT, MO_PLANES_UNIT, 0);
        MO_UNROLL()
        for (int n = 0; n < tiles; n++) {
            uint32_t both[4];
            planes_columns_operand(both, b + 2 * d * b_unit, b_unit, b_low, row + n * apart);
            planes_step(hh[n], xx[n], hi, lo, both, both + 2);
        }
    }
}

template <int D>
static __device__ __forceinline__ void stream_scores(const mo_planes_few &f, const uint8_t *keys,
                                                     const float *scales)
{
    enum { UNIT = 16 * MO_KV_BLOCK };
    const int first = 16 * (threadIdx.x / 32), g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    int32_t hh[2][4] = {{0}}, xx[2][4] = {{0}};
    stream_products<D / 32>(hh, xx, f.q, keys, UNIT, D / 16 * UNIT, first, 8, 2);
    MO_UNROLL()
    for (int n = 0; n < 2; n++) {
        const int u = first + 8 * n + 2 * q;
        const float2 s = *(const float2 *)(scales + u);
        MO_UNROLL()
        for (int e = 0; e < 4; e++) {
            if (g + e / 2 * 8 < f.rows) {
                f.scores[(g + e / 2 * 8) * MO_PLANES_SCORES + u + e % 2] =
                    (e % 2 ? s.y : s.x) * mo_planes_sum(hh[n][e], xx[n][e]);
            }
        }
    }
}

/* The sums of a chunk: out is where the first head's go, heads are `apart` floats from each other. */
template <int D>
static __device__ __forceinline__ void stream_values(const mo_planes_few &f, const uint8_t *values,
                                                     float *out, int64_t apart)
{
    enum { UNIT = 16 * D, TILES = D / 64 };
    const int warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, q = threadIdx.x & 3;
    int32_t hh[TILES][4] = {{0}}, xx[TILES][4] = {{0}};
    stream_products<MO_KV_BLOCK / 32>(hh, xx, f.weights, values, UNIT, MO_KV_BLOCK / 16 * UNIT, 8 * warp, 64,
                                      TILES);
    MO_UNROLL()
    for (int half = 0; half < 2; half++) { /* rows g, then g + 8 */
        float *row = out + (g + 8 * half) * apart + 8 * warp + 2 * q;
        if (g + 8 * half < f.rows) {
            MO_UNROLL()
            for (int n = 0; n < TILES; n++) {
                *(float2 *)(row + 64 * n) =
                    make_float2(mo_planes_sum(hh[n][2 * half], xx[n][2 * half]),
                                mo_planes_sum(hh[n][2 * half + 1], xx[n][2 * half + 1]));
            }
        }
    }
}

#endif
