/* What the lanes of a device believe of the CPU, set by tests: whether experts cross meanwhile or not. */
#ifndef MO_TESTS_LANES_H
#define MO_TESTS_LANES_H

#include "gpu/objects.h"

/* From the start. */
static inline void start_cpu(mo_gpu *gpu, double bytes_s)
{
    gpu->lanes.rates.alone = gpu->lanes.rates.cpu = mo_lane_rate_of(bytes_s);
}

/* For now. */
static inline void slow_cpu_down(mo_gpu *gpu, double s_per_byte)
{
    gpu->lanes.rates.alone.s_per_byte = gpu->lanes.rates.cpu.s_per_byte = s_per_byte;
}

#endif
