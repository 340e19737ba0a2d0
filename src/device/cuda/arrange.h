/* Arrange: the size of its kernel. Plain C: included by C and by CUDA C++. */
#ifndef MO_DEVICE_CUDA_ARRANGE_H
#define MO_DEVICE_CUDA_ARRANGE_H

enum { MO_ARRANGE_WARPS = 8, MO_ARRANGE_THREADS = 32 * MO_ARRANGE_WARPS };

#endif
