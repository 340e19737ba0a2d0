/* Lowered: what adapters make of the input of a product with one token, by thread blocks added to those of the product (joined.h). Weights are asked
 * for before the kernel waits: rows of A come to shared memory, columns of B near enough. */
#ifndef MO_DEVICE_CUDA_LOWERED_CUH
#define MO_DEVICE_CUDA_LOWERED_CUH

#include "device/cuda/adapt.cuh"
#include "device/cuda/near.cuh"

/* Before a kernel some blocks of which wait for each other. A word that they exchange, and nothing else. */
#ifdef MO_CUDA_EMULATED
#include "meeting.h"
#define MO_MEETING(name) static const mo_emulated_meeting name##_meets(#name)

static inline uint32_t mo_read_device(const uint32_t *p)
{
    return mo_read_system(p);
}

static inline void mo_write_device(uint32_t *p, uint32_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}
#else
#define MO_MEETING(name) static_assert(true, "")

static __device__ __forceinline__ uint32_t mo_read_device(const uint32_t *p)
{
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

static __device__ __forceinline__ void mo_write_device(uint32_t *p, uint32_t value)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
#endif

/* Bit k: the token uses adapter k. By a warp; which: what lane k has read of use k, which is on its way meanwhile. */
static __device__ __forceinline__ int mo_lowered_which(const mo_cuda_parts &parts)
{
    const int lane = threadIdx.x & 31;
    return lane < MO_OP_USES ? mo_at<const mo_dadapter_use>(parts.uses)[lane].which : -1;
}

static __device__ __forceinline__ uint32_t mo_lowered_used(int which)
{
    const uint32_t end = __ballot_sync(MO_FULL, which < 0), before = (end & (0u - end)) - 1;
    return ((__ballot_sync(MO_FULL, which == 0) & before) != 0 ? 1u : 0) |
           ((__ballot_sync(MO_FULL, which == 1) & before) != 0 ? 2u : 0);
}
static_assert(MO_JOINED_LOWS == 2 && MO_OP_USES < 32, "as many are told apart above, and some lane has none");

/* ---- A x ---- */

/* Which run has row number `number` of all. */
static __device__ __forceinline__ int mo_lowered_run(const mo_cuda_rows &rows, int number)
{
    int run = 0;
    MO_UNROLL()
    for (int k = 1; k < MO_JOINED_PARTS * MO_JOINED_LOWS; k++) {
        run += number >= rows.first[k];
    }
    return run;
}

/* Sends the row to shared memory, by a warp. */
static __device__ __forceinline__ void mo_lowered_stage(const mo_cuda_lowered &op, int number, uint8_t *space)
{
    const int run = mo_lowered_run(op.rows, number), bytes = number < op.parts.words ? op.space : 0;
    const uint8_t *a = mo_at<const uint8_t>(op.rows.a[run]) + (number - op.rows.first[run]) * op.space;
    MO_UNROLL(1)
    for (int i = 16 * (threadIdx.x & 31); i < bytes; i += 16 * 32) {
        mo_async_copy16(space + i, a + i);
    }
}

/* Where u has row number `number`; run: its. */
static __device__ __forceinline__ float *mo_lowered_u(const mo_cuda_lowered &op, int number, int run)
{
    const mo_cuda_part &part = op.parts.part[run / MO_JOINED_LOWS];
    return mo_at<float>(part.u) + part.low[run % MO_JOINED_LOWS].u_at + number - op.rows.first[run];
}

static __device__ __forceinline__ float mo_lowered_product(int type, const uint8_t *a, const float *x,
                                                           int cols)
{
    constexpr int LINKS = 8; /* with slabs a thread has few registers */
    return type == MO_F32   ? mo_near_product<MO_F32, LINKS>(a, x, cols)
           : type == MO_F16 ? mo_near_product<MO_F16, LINKS>(a, x, cols)
                            : mo_near_product<MO_BF16, LINKS>(a, x, cols);
}

/* The word that stands for a value in the mail, and the other way round. What would be no word is another NaN. */
static __device__ __forceinline__ uint32_t mo_lowered_word(float value)
{
    const uint32_t word = ~__float_as_uint(value);
    return word ? word : 1;
}

static __device__ __forceinline__ float mo_lowered_value(uint32_t word)
{
    return __uint_as_float(~word);
}

/* ---- B (A x) ---- */

/* Value number `number` of all parts. */
typedef struct mo_lowered_at {
    const mo_cuda_part *part;
    int i;
} mo_lowered_at;

static __device__ __forceinline__ mo_lowered_at mo_lowered_part(const mo_cuda_parts &parts, int number)
{
    int which = 0;
    while (which + 1 < parts.count && number >= parts.part[which + 1].at) {
        which++;
    }
    mo_lowered_at v = {&parts.part[which], number - parts.part[which].at};
    return v;
}

/* Columns `first` and on of B, for value i. */
static __device__ __forceinline__ void mo_lowered_hold(const mo_dlow &l, int n, int i, int first, float *b)
{
    const float *at = mo_at<const float>(l.b) + (int64_t)first * n + i;
    MO_UNROLL()
    for (int j = 0; j < MO_HELD_RANK; j++) {
        b[j] = first + j < l.rank ? at[(int64_t)j * n] : 0.0f;
    }
}

/* The adapter that comes first for a part; NULL: none has anything for it. */
static __device__ __forceinline__ const mo_dlow *mo_lowered_first(const mo_cuda_part &part, uint32_t used)
{
    return part.low[0].a && (used & 1) ? &part.low[0] : part.low[1].a && (used & 2) ? &part.low[1] : NULL;
}

/* Asks for what a warp reads first of B: a lane for each column. Whether the token uses the adapter is not known yet. */
static __device__ __forceinline__ void mo_lowered_expect(const mo_cuda_parts &parts, int number)
{
    const int lane = threadIdx.x & 31;
    if (!parts.mail || number - lane >= parts.values) {
        return;
    }
    const mo_lowered_at v = mo_lowered_part(parts, number - lane);
    const mo_dlow *l = mo_lowered_first(*v.part, 3);
    if (l && lane < l->rank) {
        mo_prefetch(mo_at<const float>(l->b) + (int64_t)lane * v.part->n + v.i);
    }
}

/* For a thread's first value and the first adapter; false: there is none. */
static __device__ __forceinline__ bool mo_lowered_hold_first(const mo_cuda_parts &parts, uint32_t used,
                                                             int number, float *b)
{
    if (number >= parts.values) {
        return false;
    }
    const mo_lowered_at v = mo_lowered_part(parts, number);
    const mo_dlow *l = mo_lowered_first(*v.part, used);
    if (l) {
        mo_lowered_hold(*l, v.part->n, v.i, 0, b);
    }
    return l != NULL;
}

/* A thread's values, of which `b` are the first columns of B where `held`. u: A x of all blocks. */
static __device__ __forceinline__ void mo_lowered_raise(const mo_cuda_parts &parts, uint32_t used, int number,
                                                        int step, const float *u, bool held, float *b)
{
    MO_UNROLL(1)
    for (; number < parts.values; number += step) {
        const mo_lowered_at v = mo_lowered_part(parts, number);
        MO_UNROLL(1)
        for (int k = 0; k < MO_JOINED_LOWS; k++) {
            const mo_dlow &l = v.part->low[k];
            if (!l.a || !(used >> k & 1)) {
                continue;
            }
            float t = 0.0f;
            MO_UNROLL(1)
            for (int first = 0; first < l.rank; first += MO_HELD_RANK) {
                const float *by = u + v.part->word[k] + first;
                if (!held) {
                    mo_lowered_hold(l, v.part->n, v.i, first, b);
                }
                held = false;
                MO_UNROLL()
                for (int j = 0; j < MO_HELD_RANK; j++) {
                    t = first + j < l.rank ? fmaf(b[j], by[j], t) : t;
                }
            }
            mo_at<float>(v.part->t)[(int64_t)k * v.part->n + v.i] = t;
        }
    }
}

/* ---- A block ---- */

/* Rows of A, one after the other, each by a warp; the first is on its way. Returns the first's product, whose u is not written where there is mail. */
static __device__ __forceinline__ float mo_lowered_rows(const mo_cuda_lowered &op, uint32_t used, int number,
                                                        uint8_t *space, const float *x)
{
    uint32_t *mail = mo_at<uint32_t>(op.parts.mail);
    float first = 0.0f;
    bool later = false;
    MO_UNROLL(1)
    while (number < op.parts.words) {
        const float sum = mo_lowered_product(op.type, space, x, op.parts.cols);
        const int run = mo_lowered_run(op.rows, number);
        if ((threadIdx.x & 31) == 0) {
            if (mail) {
                mo_write_device(mail + number, mo_lowered_word(sum));
            }
            if ((later || !mail) && (used >> run % MO_JOINED_LOWS & 1)) {
                *mo_lowered_u(op, number, run) = sum;
            }
        }
        first = later ? first : sum;
        later = true;
        number += op.slots * op.blocks;
        if (number < op.parts.words) {
            __syncwarp();
            mo_lowered_stage(op, number, space);
            mo_async_commit();
            mo_async_wait<0>();
            __syncwarp();
        }
    }
    return first;
}

/* Shared memory: x, rows of A, A x of all blocks. */
static __device__ __forceinline__ void mo_lowered(const mo_cuda_lowered &op, uint8_t *memory)
{
    const mo_cuda_parts &parts = op.parts;
    const int warp = (int)threadIdx.x / 32, block = (int)blockIdx.x;
    uint8_t *rows = memory + 4 * parts.cols, *space = rows + warp * op.space;
    float *u = (float *)(rows + op.slots * op.space);
    const int number = warp < op.slots ? block + warp * op.blocks : parts.words;
    mo_lowered_stage(op, number, space);
    const int which = mo_lowered_which(parts);
    const int value = block * (int)blockDim.x + (int)threadIdx.x;
    mo_lowered_expect(parts, value);
    mo_grid_begin();
    const uint8_t *in = mo_at<const uint8_t>(parts.in);
    for (int i = 16 * (int)threadIdx.x; i < 4 * parts.cols; i += 16 * (int)blockDim.x) {
        mo_async_copy16(memory + i, in + i);
    }
    mo_async_commit();
    const uint32_t used = mo_lowered_used(which);
    mo_async_wait<0>();
    __syncthreads();
    const float sum = mo_lowered_rows(op, used, number, space, (const float *)memory);
    const uint32_t *mail = mo_at<const uint32_t>(parts.mail);
    if (!mail) {
        return;
    }
    float b[MO_HELD_RANK]; /* on their way while the others' A x is */
    const bool held = mo_lowered_hold_first(parts, used, value, b);
    for (int i = threadIdx.x; i < parts.words; i += blockDim.x) {
        uint32_t word;
        while ((word = mo_read_device(mail + i)) == 0) {
        }
        u[i] = mo_lowered_value(word);
    }
    __syncthreads();
    mo_lowered_raise(parts, used, value, op.blocks * (int)blockDim.x, u, held, b);
    const int run = mo_lowered_run(op.rows, number);
    if ((threadIdx.x & 31) == 0 && number < parts.words && (used >> run % MO_JOINED_LOWS & 1)) {
        *mo_lowered_u(op, number, run) = sum;
    }
}

#endif
