/* Launch of slabs: they take what fits them, and leave the rest to the kernels of rows.h. */
#ifndef MO_DEVICE_CUDA_SLAB_LAUNCH_H
#define MO_DEVICE_CUDA_SLAB_LAUNCH_H

#include "device/cuda/launch.h"

/* As the functions of launch.h, for ops that those have found possible; 0: not for slabs. code: the capability that the kernels
 * are compiled for. */
int mo_cuda_launch_slab_product(const mo_op_product *op, int code, mo_cuda_launch *out);
int mo_cuda_launch_slab_in(const mo_op_experts *op, mo_cuda_launch *out);
int mo_cuda_launch_slab_down(const mo_op_experts *op, int code, mo_cuda_launch *out);

#endif
