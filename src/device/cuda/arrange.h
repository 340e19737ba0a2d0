/* Arrange: the size of its kernel. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_ARRANGE_H
#define MO_DEVICE_CUDA_ARRANGE_H

#include <stdint.h>

enum {
    MO_ARRANGE_WARPS = 8,
    MO_ARRANGE_MANY_WARPS = 32, /* for many rows, as far as an expert's counts of all warps have space */
    MO_ARRANGE_MANY_ROWS = 4096,
    MO_ARRANGE_COUNTS = 8192, /* warps times experts */
};

static inline int32_t mo_arrange_warps(int64_t rows, int32_t experts)
{
    int32_t warps = rows >= MO_ARRANGE_MANY_ROWS ? MO_ARRANGE_MANY_WARPS : MO_ARRANGE_WARPS;
    while (warps > MO_ARRANGE_WARPS && warps * experts > MO_ARRANGE_COUNTS) {
        warps /= 2;
    }
    return warps;
}

#endif
