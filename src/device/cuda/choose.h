/* Choose: how many threads the router's choice takes, for the kernels and for those who launch them. Plain C: included by
 * C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_CHOOSE_H
#define MO_DEVICE_CUDA_CHOOSE_H

#include "device/cuda/rows.h"
#include "device/op.h"

/* One per expert, in whole warps; at least as many as there are groups and ranks. */
MO_CONSTANT int mo_choose_threads(const mo_op_choose *op)
{
    return ((op->groups > op->experts ? op->groups : op->experts) + 31) / 32 * 32;
}

#endif
