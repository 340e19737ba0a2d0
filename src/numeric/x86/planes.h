/* What the planes of several instruction sets of x86-64 share. */
#ifndef MO_NUMERIC_X86_PLANES_H
#define MO_NUMERIC_X86_PLANES_H

#include "numeric/lanes/planes.h"

#define PLANES_INLINE static inline __attribute__((always_inline))

/* What a sum has too much because 128 was added to every byte of b, modulo 2^32; both: b has a low plane. */
PLANES_INLINE int32_t added_by_offset(const int8_t *row, int64_t low, int64_t units, bool both)
{
    int32_t high_sum = 0, low_sum = 0;
    for (int64_t i = 0; i < 16 * units; i++) {
        high_sum += row[i];
        low_sum += row[low + i];
    }
    return (int32_t)(128u * ((both ? 257u : 256u) * (uint32_t)high_sum + (uint32_t)low_sum));
}

#endif
