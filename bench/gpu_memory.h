/* What the benchmarks of single kernels have in common: they end with a sentence when the device refuses, take its memory for good, and send what
 * it works on. */
#ifndef MO_BENCH_GPU_MEMORY_H
#define MO_BENCH_GPU_MEMORY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "numeric/acts.h"

static inline void check(mo_status status, const mo_error *err)
{
    if (status != MO_OK) {
        fprintf(stderr, "%s\n", err->detail);
        exit(1);
    }
}

static inline mo_daddr allocate(mo_device *device, int64_t bytes)
{
    mo_daddr at = 0;
    mo_error err = {0};
    check(mo_device_alloc(device, (size_t)bytes, &at, &err), &err);
    return at;
}

static inline void send(mo_dstream *stream, mo_daddr to, const void *from, int64_t bytes)
{
    mo_error err = {0};
    check(mo_copy_in(stream, to, from, (size_t)bytes, &err), &err);
    check(mo_dstream_wait(stream, &err), &err);
}

/* Where activations lie in memory of the device. */
static inline mo_dacts acts_at(mo_daddr memory, int64_t rows, int64_t cols)
{
    static char base[64]; /* only distances matter */
    const mo_acts a = mo_acts_lay(base, rows, cols);
    const mo_daddr zero = (mo_daddr)(uintptr_t)base;
#define PLACE(field) (memory + ((mo_daddr)(uintptr_t)a.field - zero))
    return (mo_dacts){.x = PLACE(x),
                      .q = PLACE(q),
                      .d = PLACE(d),
                      .s = PLACE(s),
                      .sum = PLACE(sum),
                      .half_sum = PLACE(half_sum),
                      .cols = (int32_t)cols};
#undef PLACE
}

#endif
