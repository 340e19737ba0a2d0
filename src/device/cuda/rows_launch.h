/* Launch of rows: how many threads and thread blocks the kernels of rows.cuh get. Private to launch_product.c and
 * launch_experts.c. */
#ifndef MO_DEVICE_CUDA_ROWS_LAUNCH_H
#define MO_DEVICE_CUDA_ROWS_LAUNCH_H

#include "base/status.h"
#include "device/cuda/launch.h"
#include "device/cuda/rows.h"

/* The threads that decode, for matrices whose shapes were added one after the other. */
typedef struct mo_rows_threads {
    double
        idle[MO_ROWS_THREADS / 32 + 1]; /* by warps: bytes read, divided by the share of threads that work */
    uint32_t shared;
} mo_rows_threads;

/* weight: bytes that are read. Steps are whole rows side by side: threads idle where a row's units do not fill them, or
 * the rows do not come out even. */
static inline void mo_rows_threads_add(mo_rows_threads *t, int type, const mo_rows_shape *shape,
                                       double weight)
{
    t->shared = shape->shared > (int32_t)t->shared ? (uint32_t)shape->shared : t->shared;
    for (int warps = 1; warps <= MO_ROWS_THREADS / 32; warps++) {
        double share = 1.0;
        if (!mo_format_is_float(type)) {
            const int threads = 32 * warps;
            const int wide = shape->cut_blocks / mo_rows_unit(type);
            const int slots = wide < threads ? threads / wide : 1;
            const int turns = wide < threads ? (shape->rows + slots - 1) / slots
                                             : shape->rows * ((wide + threads - 1) / threads);
            share = (double)wide * shape->rows / ((double)threads * turns);
        }
        t->idle[warps] += weight / share;
    }
}

/* Threads of a block, those that fold included. */
static inline uint32_t mo_rows_threads_best(const mo_rows_threads *t, int tokens)
{
    int best = MO_ROWS_THREADS / 32;
    for (int warps = best - 1; warps >= 5;
         warps--) { /* fewer would not hide the latency of their own loads */
        if (t->idle[warps] < t->idle[best] * 0.97) {
            best = warps;
        }
    }
    return 32 * (uint32_t)best + (uint32_t)mo_rows_folders(tokens);
}

/* Shared memory of a multiprocessor in KiB; a thread block gets one less at most. */
static inline uint32_t mo_rows_memory(int compute)
{
    return compute < 80                     ? 64
           : compute >= 90 && compute < 120 ? 228
           : compute == 80 || compute == 87 ? 164
                                            : 100;
}

/* Does a launch of slabs suit a device? They need space for many blocks side by side, which 7.5 does not have. */
static inline bool mo_rows_slab_suits(int compute, const mo_cuda_launch *launch)
{
    return compute >= 80 && launch->shared <= (mo_rows_memory(compute) - 1) * 1024;
}

/* Thread blocks that a multiprocessor of this capability holds at once. */
static inline int mo_rows_resident(int compute, int tokens, uint32_t shared, uint32_t threads)
{
    const uint32_t most = compute < 80 ? 1024 : mo_rows_memory(compute) == 100 ? 1536 : 2048;
    const uint32_t registers =
        65536 / (tokens == 1 ? 72 : 96); /* threads that the kernels' registers allow */
    const uint32_t by_memory = mo_rows_memory(compute) * 1024 / (shared + 1024);
    const uint32_t by_threads = (registers < most ? registers : most) / threads;
    const uint32_t resident = by_memory < by_threads ? by_memory : by_threads;
    return resident > 0 ? (int)resident : 1;
}

/* True when the kernels can multiply a matrix; otherwise err says why not. what: names it. */
static inline bool mo_rows_possible(const mo_dmatrix *matrix, const mo_dacts *in, const char *what,
                                    mo_error *err)
{
    const int bytes = matrix->type >= 0 ? mo_format_bytes(matrix->type) : 0;
    if (bytes == 0) {
        mo_fail(err, MO_EUNSUPPORTED, "%s has type %d, which no kernel of this GPU supports", what,
                matrix->type);
        return false;
    }
    if (matrix->cols != in->cols || matrix->cols <= 0 || matrix->cols % mo_format_values(matrix->type) != 0) {
        mo_fail(err, MO_EINVAL,
                "%s has rows of %d values, which do not match activations of %d in blocks of %d", what,
                matrix->cols, in->cols, mo_format_values(matrix->type));
        return false;
    }
    return true;
}

#endif
