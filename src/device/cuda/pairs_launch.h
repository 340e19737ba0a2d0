/* Launches of experts that several tokens of a step may meet. */
#ifndef MO_DEVICE_CUDA_PAIRS_LAUNCH_H
#define MO_DEVICE_CUDA_PAIRS_LAUNCH_H

#include "device/cuda/launch.h"

/* How many launches: 0: not this way, 1. */
int mo_cuda_launch_pairs_in(const mo_op_experts *op, mo_cuda_launch *out);
int mo_cuda_launch_pairs_down(const mo_op_experts *op, int code, mo_cuda_launch *out);

#endif
