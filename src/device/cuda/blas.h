/* Blas: NVIDIA's library of products, opened at run time where it is installed, for products in bfloat16 of matrices that all rows share: its kernels
 * are made for each GPU. Without it the kernels of bf16.cu do the same. Private to src/device/cuda. */
#ifndef MO_DEVICE_CUDA_BLAS_H
#define MO_DEVICE_CUDA_BLAS_H

#include "device/cuda/parts.h"

/* Multiplies where it can; false: nothing was done. Opens the library at the first call; a missing library or a refusal is logged once and costs speed
 * alone. The device's context is current. */
bool mo_cuda_blas_multiply(mo_cuda_device *device, void *stream, const mo_op_bf16 *op);

/* Nothing of its work is under way. */
void mo_cuda_blas_close(mo_cuda_device *device);

#endif
