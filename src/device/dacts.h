/* Dacts: rows of activations in memory of a device. */
#ifndef MO_DEVICE_DACTS_H
#define MO_DEVICE_DACTS_H

#include "device/op.h"

static inline mo_daddr mo_dacts_padded(int64_t bytes)
{
    return (mo_daddr)((bytes + 63) / 64 * 64);
}

/* As mo_acts_lay(); the memory is mo_acts_bytes(). */
static inline mo_dacts mo_dacts_lay(mo_daddr memory, int64_t rows, int64_t cols)
{
    const int64_t blocks = (cols + 31) / 32;
    mo_dacts a = {.x = memory, .cols = (int32_t)cols};
    a.q = a.x + mo_dacts_padded(rows * cols * 4);
    a.d = a.q + mo_dacts_padded(rows * cols);
    a.s = a.d + mo_dacts_padded(rows * blocks * 4);
    a.sum = a.s + mo_dacts_padded(rows * blocks * 4);
    a.half_sum = a.sum + mo_dacts_padded(rows * blocks * 4);
    return a;
}

#endif
