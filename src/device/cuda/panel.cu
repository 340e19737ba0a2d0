/* Matrix-matrix products as panels (panel.h): a kernel for each format and shape, for either op. Q4_K and Q6_K, which stand side by side
 * in many models, share theirs for products: one launch for all matrices of an op. launch_grouped.c chooses. */
#include "device/cuda/panel.cuh"

template <int FIRST, int SECOND> struct mo_of_types {
    __device__ __forceinline__ bool operator()(int32_t type) const
    {
        return type == FIRST || type == SECOND;
    }
};

template <class FIRST, class SECOND>
static __device__ __forceinline__ void mo_panel_product(const mo_op_product &op, uint8_t *shared)
{
    mo_tile_job *job = (mo_tile_job *)shared;
    if (threadIdx.x == 0 &&
        !mo_product_job(op, mo_of_types<FIRST::TYPE, SECOND::TYPE>(), FIRST::ROWS, FIRST::TOKENS, job)) {
        job->count = 0;
    }
    __syncthreads();
    if (FIRST::TYPE == SECOND::TYPE || job->type == FIRST::TYPE) {
        mo_panel_run<FIRST>(*job, op.in, shared);
    } else {
        mo_panel_run<SECOND>(*job, op.in, shared);
    }
}

#define MO_PANEL_GROUPED(name, TYPE)                                                                         \
    typedef mo_panel<TYPE, MO_PANEL_WIDE_DOWN, MO_PANEL_WIDE_N> mo_panel_##name;                             \
    MO_BOUNDED(mo_panel_grouped_##name, mo_op_grouped, mo_panel_##name::THREADS, 2);                         \
    MO_KERNEL(mo_panel_grouped_##name, mo_op_grouped)                                                        \
    {                                                                                                        \
        MO_ALIGNED_SHARED(shared);                                                                           \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        mo_panel_grouped_job(op, mo_panel_##name::ROWS, mo_panel_##name::TOKENS, job);                       \
        __syncthreads();                                                                                     \
        mo_panel_run<mo_panel_##name>(*job, op.in, shared);                                                  \
    }
#define MO_PANEL_PRODUCT(name, FIRST, SECOND)                                                                \
    MO_PANEL_SHAPE(name##_wide, FIRST, SECOND, MO_PANEL_WIDE_DOWN, MO_PANEL_WIDE_N, 2)                       \
    MO_PANEL_SHAPE(name##_small, FIRST, SECOND, MO_PANEL_SMALL_DOWN, MO_PANEL_SMALL_N, 4)
#define MO_PANEL_SHAPE(name, FIRST, SECOND, DOWN, N, blocks)                                                 \
    MO_BOUNDED(mo_panel_product_##name, mo_op_product, 32 * DOWN, blocks);                                   \
    MO_KERNEL(mo_panel_product_##name, mo_op_product)                                                        \
    {                                                                                                        \
        MO_ALIGNED_SHARED(shared);                                                                           \
        mo_panel_product<mo_panel<FIRST, DOWN, N>, mo_panel<SECOND, DOWN, N>>(op, shared);                   \
    }

MO_PANEL_GROUPED(mxfp4, MO_MXFP4)
MO_PANEL_GROUPED(q8_0, MO_Q8_0)
MO_PANEL_GROUPED(q4_k, MO_Q4_K)
MO_PANEL_GROUPED(q6_k, MO_Q6_K)
MO_PANEL_PRODUCT(q8_0, MO_Q8_0, MO_Q8_0)
MO_PANEL_PRODUCT(k, MO_Q4_K, MO_Q6_K)
