/* Matrix-matrix products as panels (panel.h): a kernel for each format and shape, for either op. Formats that stand side by side in
 * many models share theirs for products: one launch for all such matrices of an op. launch_panel.c lists them. */
#include "device/cuda/panel.cuh"

template <class... PANELS> struct mo_of_panels {
    __device__ __forceinline__ bool operator()(int32_t type) const
    {
        return ((type == PANELS::TYPE) || ...);
    }
};

template <class FIRST, class... REST>
static __device__ __forceinline__ void mo_panel_of_type(const mo_tile_job &job, const mo_dacts &in,
                                                        uint8_t *shared)
{
    if constexpr (sizeof...(REST) > 0) {
        if (job.type != FIRST::TYPE) {
            mo_panel_of_type<REST...>(job, in, shared);
            return;
        }
    }
    mo_panel_run<FIRST, false>(job, in, shared);
}

template <class FIRST, class... REST>
static __device__ __forceinline__ void mo_panel_product(const mo_op_product &op, uint8_t *shared)
{
    mo_tile_job *job = (mo_tile_job *)shared;
    if (threadIdx.x == 0 &&
        !mo_product_job(op, mo_of_panels<FIRST, REST...>(), FIRST::ROWS, FIRST::TOKENS, job)) {
        job->count = 0;
    }
    __syncthreads();
    if (job->count > 0) {
        mo_panel_of_type<FIRST, REST...>(*job, op.in, shared);
    }
}

#define MO_WIDE(TYPE)   mo_panel<TYPE, MO_PANEL_WIDE_DOWN, MO_PANEL_WIDE_N>
#define MO_SMALL(TYPE)  mo_panel<TYPE, MO_PANEL_SMALL_DOWN, MO_PANEL_SMALL_N>
#define MO_NARROW(TYPE) mo_panel<TYPE, MO_PANEL_NARROW_DOWN, MO_PANEL_NARROW_N, false, 4>

#define MO_PANEL_GROUPED(name, blocks, ...)                                                                  \
    typedef __VA_ARGS__ mo_panel_##name;                                                                     \
    MO_BOUNDED(mo_panel_grouped_##name, mo_op_grouped, mo_panel_##name::THREADS, blocks);                    \
    MO_KERNEL(mo_panel_grouped_##name, mo_op_grouped)                                                        \
    {                                                                                                        \
        MO_ALIGNED_SHARED(memory);                                                                           \
        uint8_t *const shared = mo_panel_keep(memory);                                                       \
        mo_tile_job *job = (mo_tile_job *)shared;                                                            \
        mo_grid_begin();                                                                                     \
        mo_panel_grouped_job(op, mo_panel_##name::ROWS, mo_panel_##name::TOKENS, job);                       \
        __syncthreads();                                                                                     \
        mo_panel_run<mo_panel_##name, true>(*job, op.in, shared);                                            \
    }
#define MO_PANEL_PRODUCT(name, DOWN, N, blocks, ...)                                                         \
    MO_BOUNDED(mo_panel_product_##name, mo_op_product, 32 * DOWN, blocks);                                   \
    MO_KERNEL(mo_panel_product_##name, mo_op_product)                                                        \
    {                                                                                                        \
        MO_ALIGNED_SHARED(memory);                                                                           \
        uint8_t *const shared = mo_panel_keep(memory);                                                       \
        mo_grid_begin();                                                                                     \
        mo_panel_product<__VA_ARGS__>(op, shared);                                                           \
    }
MO_PANEL_GROUPED(mxfp4, 2, MO_WIDE(MO_MXFP4))
MO_PANEL_GROUPED(q8_0, 2, MO_WIDE(MO_Q8_0))
MO_PANEL_GROUPED(q4_k, 2, MO_WIDE(MO_Q4_K))
MO_PANEL_GROUPED(q5_k, 2, MO_WIDE(MO_Q5_K))
MO_PANEL_GROUPED(q6_k, 2, MO_WIDE(MO_Q6_K))
MO_PANEL_GROUPED(q5_0, 2, MO_WIDE(MO_Q5_0))
MO_PANEL_GROUPED(nvfp4, 2, MO_WIDE(MO_NVFP4))
MO_PANEL_GROUPED(q4_k_narrow, 3, MO_NARROW(MO_Q4_K))
MO_PANEL_GROUPED(q6_k_narrow, 3, MO_NARROW(MO_Q6_K))
MO_PANEL_PRODUCT(k_wide, MO_PANEL_WIDE_DOWN, MO_PANEL_WIDE_N, 2, MO_WIDE(MO_Q4_K), MO_WIDE(MO_Q5_K),
                 MO_WIDE(MO_Q6_K))
MO_PANEL_PRODUCT(k_small, MO_PANEL_SMALL_DOWN, MO_PANEL_SMALL_N, 4, MO_SMALL(MO_Q4_K), MO_SMALL(MO_Q5_K),
                 MO_SMALL(MO_Q6_K))
MO_PANEL_PRODUCT(plain_wide, MO_PANEL_WIDE_DOWN, MO_PANEL_WIDE_N, 2, MO_WIDE(MO_Q8_0), MO_WIDE(MO_Q5_0),
                 MO_WIDE(MO_MXFP4), MO_WIDE(MO_NVFP4))
MO_PANEL_PRODUCT(plain_small, MO_PANEL_SMALL_DOWN, MO_PANEL_SMALL_N, 4, MO_SMALL(MO_Q8_0), MO_SMALL(MO_Q5_0),
                 MO_SMALL(MO_MXFP4), MO_SMALL(MO_NVFP4))
