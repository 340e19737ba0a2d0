/* Fake driver: NVIDIA's driver as src/device/cuda/driver.h lists it, made of the emulation: a GPU on which the whole
 * CUDA device runs without one. Device memory is memory of this process, filled with MO_EMULATED_POISON when it is
 * given out; addresses outside of it are refused by copies. A stream is a thread, so that kernels wait for the host
 * and streams for each other as they do on a GPU. */
#ifndef MO_FAKE_DRIVER_H
#define MO_FAKE_DRIVER_H

#include <stddef.h>

typedef struct mo_fake_gpu {
    int compute;         /* capability: 75, 80, 90 */
    size_t total_bytes;  /* memory of the device */
    size_t pinned_bytes; /* what the system lets it pin */
} mo_fake_gpu;

/* From now on mo_cuda_open() finds one such GPU and nothing else. No device is open. NULL: back to the real driver. */
void mo_fake_gpu_use(const mo_fake_gpu *gpu);

/* Every call of the driver fails with this result from now on, and what was under way has ended somehow when this
 * returns: 719 is a kernel that went astray. 0 repairs it. */
void mo_fake_gpu_break(int result);

/* How many allocations, streams, events, graphs and modules there are that nobody gave back. */
int mo_fake_gpu_holds(void);

#endif
