/* Copies of strips: the next steps of a thread block's rows and tokens on their way to shared memory. */
#ifndef MO_DEVICE_CUDA_STRIP_COPY_CUH
#define MO_DEVICE_CUDA_STRIP_COPY_CUH

#include "device/cuda/strip.h"
#include "device/cuda/tile.cuh"

/* A format in blocks of this many rows: mo_strip_lay() when the kernel is compiled. */
template <int TYPE_, int ROWS_> struct mo_strip {
    static constexpr int TYPE = TYPE_, ROWS = ROWS_, K = mo_strip_k(TYPE, ROWS);
    static constexpr int STRIPS = ROWS / 16, BLOCKS = K / 32;
    static constexpr mo_fold FOLD = mo_tile_fold_of(TYPE);
    static constexpr mo_strip_span SPAN = mo_strip_span_of(TYPE, ROWS);
    static constexpr mo_strip_places AT = mo_strip_lay(TYPE, ROWS);
    static constexpr int ACTS = MO_STRIP_TOKENS * K, RAW = ROWS * SPAN.pitch; /* bytes of a step */
    static constexpr int TOKEN_PLANE = BLOCKS * MO_STRIP_TOKENS, ROW_PLANE = BLOCKS * 16;
    static constexpr int TOKEN_SCALES = mo_fold_token_scales(FOLD) * TOKEN_PLANE; /* of a step */
    static constexpr int ROW_SCALES = mo_fold_row_scales(FOLD) * ROW_PLANE;       /* of a strip */
};

/* Where a shared byte is, for copies: as a number, which costs no conversion again and again. */
#ifdef MO_CUDA_EMULATED
typedef uint8_t *mo_strip_place;
static inline mo_strip_place mo_strip_place_of(uint8_t *shared)
{
    return shared;
}
static inline void mo_strip_copy16(mo_strip_place to, const void *from)
{
    mo_async_copy16(to, from);
}
static inline void mo_strip_copy4(mo_strip_place to, const void *from)
{
    mo_tile_copy4(to, from);
}
#else
typedef uint32_t mo_strip_place;
static __device__ __forceinline__ mo_strip_place mo_strip_place_of(uint8_t *shared)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("" : "+r"(at)); /* kept, not made anew */
    return at;
}
static __device__ __forceinline__ void mo_strip_copy16(mo_strip_place to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
    const uint4 v = *(const uint4 *)from;
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
#endif
}
static __device__ __forceinline__ void mo_strip_copy4(mo_strip_place to, const void *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
#else
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(*(const uint32_t *)from) : "memory");
#endif
}
#endif

/* The block's rows, taken out of the job: offsets count from `data`, the 16 aligned bytes in which its first row begins. */
typedef struct mo_strip_rows {
    const uint8_t *data;
    int32_t begin;           /* of the first row */
    int32_t row_bytes, last; /* last: row, from the block's first */
    int32_t end;             /* of the matrix, as far as it can matter */
    int32_t blocks;          /* of 32 in a row */
} mo_strip_rows;

static __device__ __forceinline__ mo_strip_rows mo_strip_rows_of(const mo_tile_job &job)
{
    const int64_t begin = job.row * job.row_bytes, end = job.rows * job.row_bytes - (begin & ~(int64_t)15);
    return {
        job.data + (begin & ~(int64_t)15),        (int)begin & 15, (int)job.row_bytes, job.rows - 1 - job.row,
        (int)(end < INT32_MAX ? end : INT32_MAX), job.cols / 32};
}

/* Blocks of 32 of a step. */
template <class S> static __device__ __forceinline__ int mo_strip_blocks(const mo_strip_rows &m, int step)
{
    return min((int)S::BLOCKS, m.blocks - step * S::BLOCKS);
}

/* ---- Rows ---- */

/* Where a row begins. Rows past the end are the last one: never stored. */
static __device__ __forceinline__ int mo_strip_from(const mo_strip_rows &m, int row)
{
    return m.begin + min(row, m.last) * m.row_bytes;
}

/* The bytes of a step of all rows. Four lanes copy a row of their own warp's strip; of a strip that all share, eight threads one.
 * (A lane that starts the copy of a whole row, as devices since 9.0 can, makes the warp's lanes take turns: slower.) */
template <class S> struct mo_strip_share {
    static constexpr int EACH = S::STRIPS > 1 ? 4 : 8,
                         ROWS = S::STRIPS > 1 ? 8 : 16; /* of a strip at a time */
    static constexpr int CHUNKS = (S::SPAN.bytes + 30) / 16;
};
template <class S> static __device__ __forceinline__ int mo_strip_first_row(void)
{
    return S::STRIPS > 1 ? (threadIdx.x >> 5) * 16 + (threadIdx.x & 31) / 4 : threadIdx.x / 8;
}

template <class S>
static __device__ __forceinline__ void mo_strip_fetch_rows(const mo_strip_rows &m, int step, int slot,
                                                           mo_strip_place shared)
{
    typedef mo_strip_share<S> share;
    const int first = mo_strip_first_row<S>(), own = 16 * (threadIdx.x % share::EACH);
    const int skip = step * S::SPAN.bytes, bytes = min(m.row_bytes - skip, (int)S::SPAN.bytes);
    mo_strip_place to = shared + (S::AT.raw + slot * S::RAW + first * S::SPAN.pitch + own);
#pragma unroll
    for (int i = 0; i < 16; i += share::ROWS) {
        const int from = mo_strip_from(m, first + i) + skip;
        const int last = (from & 15) + bytes - own, at = (from & ~15) + own;
#pragma unroll
        for (int c = 0; c < 16 * share::CHUNKS; c += 16 * share::EACH) {
            if (c < last) {
#ifdef MO_CUDA_EMULATED /* memory of a device is given out in multiples of 256; here not one byte is read that is not there */
                if (at + c + 16 > m.end) {
                    for (int k = 0; at + c + k < m.end; k++) {
                        to[i * S::SPAN.pitch + c + k] = m.data[at + c + k];
                    }
                    continue;
                }
#endif
                mo_strip_copy16(to + (i * S::SPAN.pitch + c), m.data + at + c);
            }
        }
    }
}

/* ---- Tokens ---- */

/* The token that a thread copies a part of: its codes, scales and sums; q NULL: there is none. */
typedef struct mo_strip_token {
    const int8_t *q;
    const float *d;
    const void *sums; /* a float, or two int16, per block of 32 */
} mo_strip_token;

/* Eight threads share each of the tokens job.first + turn ... */
template <class S>
static __device__ __forceinline__ mo_strip_token mo_strip_token_of(const mo_tile_job &job, const mo_dacts &in,
                                                                   int turn)
{
    mo_strip_token own = {};
    const int token = turn + (threadIdx.x >> 3);
    if (token < job.count) {
        const int64_t row = job.pick ? job.pick[job.first + token] : job.first + token;
        const int64_t blocks = row * (job.cols / 32);
        own.q = mo_at<const int8_t>(in.q) + row * job.cols;
        own.d = mo_at<const float>(in.d) + blocks;
        own.sums = S::FOLD == MO_FOLD_MINIMUM ? (const void *)(mo_at<const float>(in.s) + blocks)
                                              : mo_at<const int16_t>(in.half_sum) + 2 * blocks;
    }
    return own;
}

/* Tokens' codes are in rows of K bytes, whose 16-byte chunks change places by token: eight tokens' chunks are loaded together
 * and must be in different banks. */
template <class S> static __device__ __forceinline__ int mo_strip_token_at(int token, int chunk)
{
    return token * S::K + ((chunk ^ (token & 7)) << 4);
}

template <class S>
static __device__ __forceinline__ void mo_strip_fetch_token(const mo_strip_rows &m, const mo_strip_token &own,
                                                            int step, int slot, mo_strip_place shared)
{
    const mo_strip_place acts = shared + (S::AT.acts + slot * S::ACTS);
    const mo_strip_place scales = shared + (S::AT.token_scale + 4 * slot * S::TOKEN_SCALES);
    const int blocks = mo_strip_blocks<S>(m, step);
    const int token = threadIdx.x >> 3, eighth = threadIdx.x & 7;
    if (!own.q) {
        return;
    }
#pragma unroll
    for (int chunk = eighth; chunk < 2 * S::BLOCKS; chunk += 8) {
        if (chunk < 2 * blocks) {
            mo_strip_copy16(acts + mo_strip_token_at<S>(token, chunk), own.q + step * S::K + 16 * chunk);
        }
    }
#pragma unroll
    for (int b = eighth; b < S::BLOCKS; b += 8) {
        if (b < blocks) {
            const mo_strip_place to = scales + 4 * (b * MO_STRIP_TOKENS + token);
            mo_strip_copy4(to, own.d + step * S::BLOCKS + b);
            if constexpr (mo_fold_token_scales(S::FOLD) == 2) {
                mo_strip_copy4(to + 4 * S::TOKEN_PLANE, (const float *)own.sums + step * S::BLOCKS + b);
            }
        }
    }
}

/* ---- Both ---- */

/* Starts the copies of a step, as one group; an empty one after the last. */
template <class S>
static __device__ __forceinline__ void mo_strip_fetch(const mo_strip_rows &m, const mo_strip_token &own,
                                                      int step, int slot, mo_strip_place shared)
{
    if (step * S::BLOCKS < m.blocks) {
        mo_strip_fetch_rows<S>(m, step, slot, shared);
        mo_strip_fetch_token<S>(m, own, step, slot, shared);
    }
    mo_async_commit();
}

/* What is computed from it stays behind the barriers before this: the compiler does not know what asm loads read. */
static __device__ __forceinline__ void mo_strip_hide(int *slot)
{
#ifdef MO_CUDA_EMULATED
    (void)slot;
#else
    asm volatile("" : "+r"(*slot)::"memory");
#endif
}

#endif
