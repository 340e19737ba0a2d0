/* Launches of strips: for launch_grouped.c, which has looked at the matrices. */
#ifndef MO_DEVICE_CUDA_STRIP_LAUNCH_H
#define MO_DEVICE_CUDA_STRIP_LAUNCH_H

#include "device/cuda/launch.h"

void mo_cuda_launch_strip_grouped(const mo_op_grouped *op, mo_cuda_launch *out);

/* For all quantized matrices: 0 if there are none, or 1. */
int mo_cuda_launch_strip_product(const mo_op_product *op, int sms, mo_cuda_launch *out);

#endif
