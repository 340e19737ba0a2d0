/* Panel, copies: how a thread block's rows and tokens come to shared memory, step by step. P: an mo_panel of panel.cuh. */
#ifndef MO_DEVICE_CUDA_PANEL_COPY_CUH
#define MO_DEVICE_CUDA_PANEL_COPY_CUH

#include "device/cuda/panel.h"
#include "device/cuda/tile.cuh"

/* What a thread copies: where its next bytes are. Addresses go on by addition from step to step. */
template <class P> struct mo_panel_copies {
    static constexpr int LANES = P::SPAN.chunks <= 8 ? 8 : 16; /* that copy a row */
    static constexpr int PASS = P::THREADS / LANES;
    static constexpr int CODES = (P::TOKENS * 8 + P::THREADS - 1) / P::THREADS; /* 16-byte pieces of a step */
    static constexpr int SCALES = (P::TOKENS * 4 + P::THREADS - 1) / P::THREADS;
    const uint8_t *row;     /* the next span of the first of its rows */
    int32_t rows;           /* from that one on */
    int32_t pass;           /* bytes from one of its rows to the next */
    int32_t left;           /* blocks of 32 that were not requested yet */
    int32_t count;          /* tokens */
    uint32_t code[CODES];   /* 16-byte pieces of the activations' codes */
    uint32_t scale[SCALES]; /* their scales */
};

/* Shared memory by an address that the compiler does not know: it would make a known one anew, in three instructions, wherever it is wanted. */
static __device__ __forceinline__ uint8_t *mo_panel_keep(uint8_t *shared)
{
#ifdef MO_CUDA_EMULATED
    return shared;
#else
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("" : "+r"(at));
    return (uint8_t *)__cvta_shared_to_generic(at);
#endif
}

template <class P>
static __device__ __forceinline__ void mo_panel_copies_begin(mo_panel_copies<P> *c, const mo_tile_job &job)
{
    typedef mo_panel_copies<P> copies;
    static_assert(copies::PASS * P::SPAN.block_bytes % 16 == 0,
                  "a thread's rows begin at the same place modulo 16");
    const int r = threadIdx.x / copies::LANES;
    c->row = job.data + (job.row + r) * job.row_bytes;
    c->rows = job.rows - job.row - r;
    c->pass = copies::PASS * (int32_t)job.row_bytes;
    c->left = job.cols / 32;
    c->count = job.count;
#pragma unroll
    for (int i = 0; i < copies::CODES; i++) {
        const int t = (threadIdx.x + i * P::THREADS) >> 3;
        const int row = t >= job.count ? 0 : job.pick ? job.pick[job.first + t] : job.first + t;
        c->code[i] = (uint32_t)row * (uint32_t)(2 * c->left) + (threadIdx.x & 7);
    }
#pragma unroll
    for (int i = 0; i < copies::SCALES; i++) {
        const int t = (threadIdx.x + i * P::THREADS) >> 2;
        const int row = t >= job.count ? 0 : job.pick ? job.pick[job.first + t] : job.first + t;
        c->scale[i] = (uint32_t)row * (uint32_t)c->left + (threadIdx.x & 3);
    }
}

/* The bytes of the next span of all rows that there are. */
template <class P>
static __device__ __forceinline__ void mo_panel_fetch_rows(mo_panel_copies<P> *own, const mo_tile_job &job,
                                                           uint8_t *raw)
{
    typedef mo_panel_copies<P> copies;
    const int bytes = P::WHOLE
                          ? P::SPAN.bytes
                          : min(P::SPAN.bytes, own->left * 32 / P::SPAN.block_values * P::SPAN.block_bytes);
    const uint8_t *const last = job.data + job.rows * job.row_bytes - 16; /* where 16 bytes may begin */
    const int c = threadIdx.x % copies::LANES;
    const int before = P::ALIGNED ? 0 : (int)((uintptr_t)own->row & 15); /* data is aligned */
    const uint8_t *at = own->row - before + 16 * c;
    uint8_t *to = raw + threadIdx.x / copies::LANES * P::STRIDE + 16 * c;
    const int rows = 16 * c < before + bytes ? own->rows : 0;
#pragma unroll
    for (int i = 0; i < P::ROWS; i += copies::PASS) {
        if (i < rows) {
            if (P::ALIGNED || at <= last) {
                mo_async_copy16(to, at);
            } else { /* not one byte more than there is */
                for (int j = 0; at + j < last + 16; j++) {
                    to[j] = at[j];
                }
            }
        }
        at += own->pass;
        to += copies::PASS * P::STRIDE;
    }
    own->row += P::SPAN.bytes;
}

/* A token's place among the scales: a lane's four of a 16-token piece are neighbours. */
static __device__ __forceinline__ int mo_panel_scale_at(int token)
{
    return (token & ~15) + ((token >> 1 & 3) << 2) + (token >> 3 & 1) * 2 + (token & 1);
}

/* Codes and scales of the next step's blocks for all tokens. */
template <class P>
static __device__ __forceinline__ void mo_panel_fetch_tokens(mo_panel_copies<P> *own, const mo_dacts &in,
                                                             uint8_t *acts, float *scales)
{
    typedef mo_panel_copies<P> copies;
    const int t = threadIdx.x >> 3, chunk = threadIdx.x & 7;
    uint8_t *to = acts + t * MO_TILE_K + ((chunk ^ (t & 7)) << 4);
#pragma unroll
    for (int i = 0; i < copies::CODES; i++) {
        if (t + i * (P::THREADS / 8) < own->count && chunk < 2 * own->left) {
            mo_async_copy16(to + i * (P::THREADS / 8 * MO_TILE_K),
                            mo_at<const uint8_t>(in.q) + (uint64_t)own->code[i] * 16);
        }
        own->code[i] += 2 * MO_TILE_BLOCKS;
    }
    const int u = threadIdx.x >> 2, b = threadIdx.x & 3;
    float *place = scales + b * P::TOKENS + mo_panel_scale_at(u);
#pragma unroll
    for (int i = 0; i < copies::SCALES; i++) {
        if (u + i * (P::THREADS / 4) < own->count && b < own->left) {
            mo_tile_copy4(place + i * (P::THREADS / 4), mo_at<const float>(in.d) + own->scale[i]);
            if constexpr (P::FOLD == MO_FOLD_MINIMUM) {
                mo_tile_copy4(place + i * (P::THREADS / 4) + MO_TILE_BLOCKS * P::TOKENS,
                              mo_at<const float>(in.s) + own->scale[i]);
            }
        }
        own->scale[i] += MO_TILE_BLOCKS;
    }
}

/* Starts all copies of a step, as one group; an empty one after the last step. */
template <class P>
static __device__ __forceinline__ void mo_panel_fetch(mo_panel_copies<P> *own, const mo_tile_job &job,
                                                      const mo_dacts &in, int step, uint8_t *shared)
{
    if (own->left > 0) {
        if (step % P::STEPS == 0) {
            mo_panel_fetch_rows<P>(own, job,
                                   shared + P::AT.raw + step / P::STEPS % P::SPANS * (P::ROWS * P::STRIDE));
        }
        const int turn = step % (P::AHEAD + 1);
        mo_panel_fetch_tokens<P>(own, in, shared + P::AT.acts + turn * (P::TOKENS * MO_TILE_K),
                                 (float *)(shared + P::AT.token_scale) + turn * P::TOKEN_SCALES);
        own->left -= MO_TILE_BLOCKS;
    }
    mo_async_commit();
}

#endif
