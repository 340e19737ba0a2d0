/* Slab: the product of a few consecutive rows of one quantised matrix with one token, by one thread block. See slab.h. */
#ifndef MO_CUDA_SLAB_CUH
#define MO_CUDA_SLAB_CUH

#include "device/cuda/rows.cuh"
#include "device/cuda/slab.h"

/* The token's activations in shared memory: codes in two halves of 16 bytes, so that neighbours meet no bank twice. */
struct mo_slab_acts {
    mo_quad *low, *high; /* [blocks] */
    float *d, *s;
    uint32_t *sums;
};

static __device__ __forceinline__ mo_slab_acts mo_slab_acts_at(uint8_t *memory, const mo_slab_shape &shape)
{
    mo_slab_acts a;
    a.low = (mo_quad *)memory;
    a.high = a.low + shape.blocks;
    a.d = (float *)(a.high + shape.blocks);
    a.s = a.d + shape.blocks;
    a.sums = (uint32_t *)(a.s + shape.blocks);
    return a;
}

/* All threads; a barrier follows. */
template <int TYPE>
static __device__ __forceinline__ void mo_slab_take_acts(const mo_rows_acts &from, const mo_slab_acts &to,
                                                         int blocks)
{
    for (int b = threadIdx.x; b < blocks; b += blockDim.x) {
        uint32_t q[8];
        mo_words_at<16, 8>(from.q + 32 * b, q);
        if constexpr (mo_has_table<TYPE>) {
            mo_arrange<TYPE>(q);
        }
        mo_quad low, high;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low.word[i] = q[i];
            high.word[i] = q[4 + i];
        }
        to.low[b] = low;
        to.high[b] = high;
        to.d[b] = from.d[b];
        if constexpr (mo_needs_s<TYPE>) {
            to.s[b] = from.s[b];
        }
        if constexpr (mo_needs_sums<TYPE>) {
            to.sums[b] = from.sums[b];
        }
    }
}

/* bytes: the slab's first row; terms: [rows][pitch]. All threads. */
template <int TYPE>
static __device__ __forceinline__ void mo_slab_decode(const mo_slab_shape &shape, const mo_slab_acts &acts,
                                                      const uint8_t *bytes, float *terms, int rows)
{
    constexpr int PARTS = mo_rows_unit(TYPE), TERMS = mo_rows_terms(TYPE), UNITS = mo_units(TYPE);
    constexpr bool RAW = mo_has_table<TYPE>;
    const int pairs = rows * shape.units, row_bytes = shape.row_bytes, units = shape.units,
              pitch = shape.pitch;
    /* i / units, exact as long as i * units < 2^22 */
    const uint32_t inverse = ((1u << 22) + (uint32_t)units - 1) / (uint32_t)units;
    const int threads = blockDim.x;
    MO_UNROLL(2)
    for (int i = threadIdx.x; i < pairs; i += threads) {
        const int row = (int)((uint32_t)i * inverse >> 22), unit = i - row * units;
        const uint8_t *block_bytes = bytes + row * row_bytes + unit / UNITS * mo_rows_bytes(TYPE);
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const int block = mo_block_of<TYPE>(unit, p);
            const mo_quad low = acts.low[block], high = acts.high[block];
            uint32_t q[8];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                q[j] = low.word[j];
                q[4 + j] = high.word[j];
            }
            mo_terms32 w;
            mo_decode<TYPE, RAW>(block_bytes, unit % UNITS, p, &w);
            mo_terms_of<TYPE, RAW>(w, q, mo_needs_sums<TYPE> ? acts.sums[block] : 0,
                                   terms + row * pitch + TERMS * block);
        }
    }
}

/* Where a slab's rows lie in memory. */
struct mo_slab_place {
    const uint8_t *data;  /* its first row */
    const uint8_t *limit; /* end of the matrix */
    int32_t rows;         /* that it has: the last slab of a matrix may have fewer */
};

static __device__ __forceinline__ mo_ring mo_slab_ring(uint8_t *memory, uint8_t *steps, int step_bytes)
{
    mo_ring ring;
    ring.arrived = (uint64_t *)memory;
    ring.steps = steps;
    ring.step_bytes = step_bytes;
    ring.ahead = MO_ROWS_AHEAD;
    mo_ring_begin(&ring);
    return ring;
}

static __device__ __forceinline__ void mo_slab_bring(const mo_ring &ring, int slot,
                                                     const mo_slab_place &place, int row_bytes)
{
#ifdef MO_RING_BULK
    if (threadIdx.x != 0) {
        return;
    }
#endif
    mo_ring_run run;
    run.from = place.data;
    run.bytes = (uint32_t)(place.rows * row_bytes);
    mo_ring_bring(ring, slot, run, place.limit);
}

/* One slab: sink(row, value) gets every row, from one thread each. memory: mo_slab_shared() bytes. */
template <int TYPE, typename SINK>
static __device__ __forceinline__ void mo_slab_one(uint8_t *memory, const mo_slab_shape &shape,
                                                   const mo_rows_acts &from, const mo_slab_place &place,
                                                   const SINK &sink)
{
    const mo_slab_acts acts = mo_slab_acts_at(memory + 64, shape);
    uint8_t *bytes = memory + 64 + shape.acts_bytes;
    float *terms = (float *)(bytes + shape.step_bytes);
    mo_ring ring = mo_slab_ring(memory, bytes, shape.step_bytes);
    __syncthreads();
    mo_slab_bring(ring, 0, place, shape.row_bytes);
    mo_grid_begin(); /* the weights are on their way meanwhile */
    mo_slab_take_acts<TYPE>(from, acts, shape.blocks);
#ifdef MO_RING_BULK
    mo_ring_wait(&ring, 0);
#else
    mo_async_wait<0>();
#endif
    __syncthreads();
    mo_slab_decode<TYPE>(shape, acts, bytes + ((uintptr_t)place.data & 15), terms, place.rows);
    __syncthreads();
    if ((int)threadIdx.x < place.rows) {
        sink(threadIdx.x,
             mo_rows_fold<TYPE>(0.0f, terms + threadIdx.x * shape.pitch, acts.d, acts.s, shape.blocks));
    }
}

/* A tile: 32 rows of gate and the same of up, in four slabs of 16. result[0..31] gate, [32..63] up. All threads come
 * here; the results are everybody's after a barrier. memory: mo_slab_tile_shared() bytes. */
template <int TYPE>
static __device__ __forceinline__ void mo_slab_tile(uint8_t *memory, const mo_slab_shape &shape,
                                                    const mo_rows_acts &from, const mo_slab_place place[4],
                                                    float *result)
{
    const mo_slab_acts acts = mo_slab_acts_at(memory + 64, shape);
    uint8_t *bytes = memory + 64 + shape.acts_bytes;
    uint8_t *own = bytes + 4 * shape.step_bytes; /* terms of the first slab */
    mo_ring ring = mo_slab_ring(memory, bytes, shape.step_bytes);
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        mo_slab_bring(ring, i, place[i], shape.row_bytes);
    }
    mo_slab_take_acts<TYPE>(from, acts, shape.blocks);
    for (int i = 0; i < 4; i++) {
#ifdef MO_RING_BULK
        mo_ring_wait(&ring, i);
#else
        switch (i) {
        case 0: mo_async_wait<3>(); break;
        case 1: mo_async_wait<2>(); break;
        case 2: mo_async_wait<1>(); break;
        default: mo_async_wait<0>(); break;
        }
#endif
        __syncthreads(); /* the slab is here, and the one before has been read */
        float *terms = (float *)(i == 0 ? own : bytes + (i - 1) * shape.step_bytes);
        mo_slab_decode<TYPE>(shape, acts, bytes + i * shape.step_bytes + ((uintptr_t)place[i].data & 15),
                             terms, place[i].rows);
    }
    __syncthreads();
    const int slab = threadIdx.x / shape.rows, row = threadIdx.x - slab * shape.rows;
    if (slab < 4 && row < place[slab].rows) {
        const float *terms = (const float *)(slab == 0 ? own : bytes + (slab - 1) * shape.step_bytes);
        result[threadIdx.x] =
            mo_rows_fold<TYPE>(0.0f, terms + row * shape.pitch, acts.d, acts.s, shape.blocks);
    }
}

/* One way per format; a thread block takes one. */
#define MO_SLAB_TYPES(WAY)                                                                                   \
    WAY(MO_Q4_0)                                                                                             \
    WAY(MO_Q4_1)                                                                                             \
    WAY(MO_Q5_0)                                                                                             \
    WAY(MO_Q5_1)                                                                                             \
    WAY(MO_Q8_0)                                                                                             \
    WAY(MO_Q2_K)                                                                                             \
    WAY(MO_Q3_K)                                                                                             \
    WAY(MO_Q4_K)                                                                                             \
    WAY(MO_Q5_K)                                                                                             \
    WAY(MO_Q6_K)                                                                                             \
    WAY(MO_IQ4_NL)                                                                                           \
    WAY(MO_IQ4_XS)                                                                                           \
    WAY(MO_MXFP4)                                                                                            \
    WAY(MO_NVFP4)

#endif
