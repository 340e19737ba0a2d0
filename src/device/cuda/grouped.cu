/* Matrix-matrix products: MO_OP_GROUPED, and MO_OP_PRODUCT with many tokens. One kernel for each fold and shape of tile,
 * for either op; launch_grouped.c chooses. */
#include "device/cuda/jobs.cuh"

#define MO_GROUPED_TILES(name, FOLD, SHAPE, blocks)                                                          \
    MO_BOUNDED(mo_grouped_##name, mo_op_grouped, SHAPE::THREADS, blocks);                                    \
    MO_KERNEL(mo_grouped_##name, mo_op_grouped)                                                              \
    {                                                                                                        \
        MO_DYNAMIC_SHARED(shared);                                                                           \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        if (threadIdx.x == 0 && !mo_grouped_job(op, SHAPE::ROWS, SHAPE::TOKENS, job)) {                      \
            job->count = 0;                                                                                  \
        }                                                                                                    \
        mo_tile_run<FOLD, SHAPE>(*job, op.in, shared);                                                       \
    }

#define MO_PRODUCT_TILES(name, FOLD, SHAPE, blocks)                                                          \
    MO_BOUNDED(mo_product_tile_##name, mo_op_product, SHAPE::THREADS, blocks);                               \
    MO_KERNEL(mo_product_tile_##name, mo_op_product)                                                         \
    {                                                                                                        \
        MO_DYNAMIC_SHARED(shared);                                                                           \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        if (threadIdx.x == 0 && !mo_product_job(op, mo_of_fold<FOLD>(), SHAPE::ROWS, SHAPE::TOKENS, job)) {  \
            job->count = 0;                                                                                  \
        }                                                                                                    \
        mo_tile_run<FOLD, SHAPE>(*job, op.in, shared);                                                       \
    }

#define MO_TILE_SHAPES_OF(KERNELS, name, FOLD)                                                               \
    KERNELS(name##_wide, FOLD, mo_shape_wide, 2)                                                             \
    KERNELS(name##_middle, FOLD, mo_shape_middle, 3)

#define MO_TILES_OF(name, FOLD)                                                                              \
    MO_TILE_SHAPES_OF(MO_GROUPED_TILES, name, FOLD)                                                          \
    MO_TILE_SHAPES_OF(MO_PRODUCT_TILES, name, FOLD)

MO_TILES_OF(plain, MO_FOLD_PLAIN)
MO_TILES_OF(minimum, MO_FOLD_MINIMUM)
MO_TILES_OF(half_minima, MO_FOLD_HALF_MINIMA)
MO_TILES_OF(half_scales, MO_FOLD_HALVES)
MO_GROUPED_TILES(two_steps_middle, MO_FOLD_TWO_STEPS, mo_shape_middle, 3)
MO_TILE_SHAPES_OF(MO_PRODUCT_TILES, two_steps, MO_FOLD_TWO_STEPS)
