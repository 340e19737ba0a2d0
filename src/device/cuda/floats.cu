/* Matrix-matrix products of F32, F16 and BF16: MO_OP_GROUPED, and MO_OP_PRODUCT with many tokens. launch_floats.c chooses. */
#include "device/cuda/float_panel.cuh"
#include "device/cuda/float_tile.cuh"
#include "device/cuda/jobs.cuh"

#define MO_FLOAT_PANEL_KERNELS(name, EACH)                                                                   \
    MO_BOUNDED(mo_grouped_float_##name, mo_op_grouped, 32 * MO_FLOAT_PANEL_WARPS, 1);                        \
    MO_KERNEL(mo_grouped_float_##name, mo_op_grouped)                                                        \
    {                                                                                                        \
        MO_DYNAMIC_SHARED(shared);                                                                           \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        if (threadIdx.x == 0 &&                                                                              \
            !mo_grouped_job(op, MO_FLOAT_PANEL_DOWN * EACH, MO_FLOAT_PANEL_ACROSS * EACH, job)) {            \
            job->count = 0;                                                                                  \
        }                                                                                                    \
        mo_float_panel_block<EACH>(*job, op.in, shared);                                                     \
    }                                                                                                        \
    MO_BOUNDED(mo_product_float_##name, mo_op_product, 32 * MO_FLOAT_PANEL_WARPS, 1);                        \
    MO_KERNEL(mo_product_float_##name, mo_op_product)                                                        \
    {                                                                                                        \
        MO_DYNAMIC_SHARED(shared);                                                                           \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        if (threadIdx.x == 0 && !mo_product_job(op, mo_of_fold<MO_FOLD_NONE>(), MO_FLOAT_PANEL_DOWN * EACH,  \
                                                MO_FLOAT_PANEL_ACROSS * EACH, job)) {                        \
            job->count = 0;                                                                                  \
        }                                                                                                    \
        mo_float_panel_block<EACH>(*job, op.in, shared);                                                     \
    }

MO_FLOAT_PANEL_KERNELS(wide, MO_FLOAT_PANEL_WIDE)
MO_FLOAT_PANEL_KERNELS(small, MO_FLOAT_PANEL_SMALL)

/* Rows of any length, and few tokens. */
MO_KERNEL(mo_grouped_float, mo_op_grouped)
{
    mo_tile_job job;
    if (mo_grouped_job(op, MO_FLOAT_TILE_ROWS, MO_FLOAT_TILE_TOKENS, &job)) {
        mo_float_block(job, op.in);
    }
}

MO_KERNEL(mo_product_tile_float, mo_op_product)
{
    mo_tile_job job;
    if (mo_product_job(op, mo_of_fold<MO_FOLD_NONE>(), MO_FLOAT_TILE_ROWS, MO_FLOAT_TILE_TOKENS, &job)) {
        mo_float_block(job, op.in);
    }
}

/* Routers, whose rows are few. A block has one of them. */
MO_KERNEL(mo_product_tile_float_few, mo_op_product)
{
    mo_tile_job job;
    if (mo_product_job(op, mo_of_fold<MO_FOLD_NONE>(), 1, MO_FLOAT_TILE_TOKENS, &job)) {
        mo_float_row(job, op.in);
    } else {
        mo_grid_begin();
    }
}
