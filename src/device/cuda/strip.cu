/* Matrix-matrix products for 2 to some dozen tokens: MO_OP_GROUPED and MO_OP_PRODUCT. A kernel has all formats; launch_strip.c
 * chooses. */
#include "device/cuda/jobs.cuh"
#include "device/cuda/strip.cuh"

/* Grid: row tiles, 1, groups. A block has all tokens of its group. */
MO_BOUNDED(mo_strip_grouped, mo_op_grouped, MO_STRIP_THREADS, MO_STRIP_RESIDENT);
MO_KERNEL(mo_strip_grouped, mo_op_grouped)
{
    MO_DYNAMIC_SHARED(shared);
    mo_tile_job *job = (mo_tile_job *)shared;
    mo_grid_begin();
    if (threadIdx.x == 0 && !mo_grouped_job(op, MO_STRIP_ROWS, MO_STRIP_ALL, job)) {
        job->type = op.matrix.type;
        job->count = 0;
    }
    mo_strip_all<MO_STRIP_ROWS>(*job, op.in, shared);
}

/* Grid: row tiles of all quantized matrices, token tiles. */
#define MO_STRIP_PRODUCT(name, rows)                                                                         \
    MO_BOUNDED(name, mo_op_product, MO_STRIP_THREADS, MO_STRIP_RESIDENT);                                    \
    MO_KERNEL(name, mo_op_product)                                                                           \
    {                                                                                                        \
        MO_DYNAMIC_SHARED(shared);                                                                           \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        mo_grid_begin();                                                                                     \
        if (threadIdx.x == 0) {                                                                              \
            mo_product_job(op, mo_quantized(), rows, MO_STRIP_TOKENS, job);                                  \
        }                                                                                                    \
        mo_strip_all<rows>(*job, op.in, shared);                                                             \
    }
MO_STRIP_PRODUCT(mo_strip_product, MO_STRIP_ROWS)
MO_STRIP_PRODUCT(mo_strip_product_few, MO_STRIP_SHARED_ROWS) /* where rows are few */
