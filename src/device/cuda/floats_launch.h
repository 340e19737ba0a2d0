/* Float matrices for launch_grouped.c. */
#ifndef MO_DEVICE_CUDA_FLOATS_LAUNCH_H
#define MO_DEVICE_CUDA_FLOATS_LAUNCH_H

#include "device/cuda/launch.h"

/* 1; -1: it is more than one launch can be. */
int mo_cuda_launch_floats_grouped(const mo_op_grouped *op, int compute, int sms, mo_cuda_launch *out,
                                  mo_error *err);
/* For the float matrices of an op, in one launch. 0: there are none. */
int mo_cuda_launch_floats_product(const mo_op_product *op, int compute, int sms, mo_cuda_launch *out,
                                  mo_error *err);

#endif
