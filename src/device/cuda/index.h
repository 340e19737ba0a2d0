/* Index: how the kernels of indexers cut their work. */
#ifndef MO_DEVICE_CUDA_INDEX_H
#define MO_DEVICE_CUDA_INDEX_H

#include "numeric/half.h"

enum {
    MO_INDEX_WARPS = 8,
    MO_INDEX_POSITIONS = 64, /* of a block of scores, a thread each */
    MO_INDEX_CHOOSERS = 256, /* threads that choose for a token */
    MO_INDEX_LONGEST = 160,  /* values of keys that are staged in shared memory */
};

/* Bytes of a block's keys there, padded so that threads meet different banks; 0: they are read where they are. */
MO_ANYWHERE int mo_index_staged(int length)
{
    return length <= MO_INDEX_LONGEST ? MO_INDEX_POSITIONS * (length + 1) * 4 : 0;
}

#endif
