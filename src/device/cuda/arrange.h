/* Arrange: the size of its kernel. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_ARRANGE_H
#define MO_DEVICE_CUDA_ARRANGE_H

#include <stdint.h>

enum {
    MO_ARRANGE_WARPS = 8,
    MO_ARRANGE_MANY_WARPS = 32, /* for many rows, where an expert's counts of all warps have space */
    MO_ARRANGE_MANY_ROWS = 4096,
    MO_ARRANGE_MANY_EXPERTS = 256,
};

static inline int32_t mo_arrange_warps(int64_t rows, int32_t experts)
{
    return rows >= MO_ARRANGE_MANY_ROWS && experts <= MO_ARRANGE_MANY_EXPERTS ? MO_ARRANGE_MANY_WARPS
                                                                              : MO_ARRANGE_WARPS;
}

#endif
