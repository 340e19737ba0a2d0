/* Memory: a model's allocations on a device, under a ceiling. Any thread may allocate and free. Private to
 * gpu/. */
#ifndef MO_GPU_MEMORY_H
#define MO_GPU_MEMORY_H

#include <pthread.h>

#include "device/device.h"

typedef struct mo_gpu_memory {
    mo_device *device;        /* referenced, not owned */
    int64_t limit;            /* ceiling, bytes */
    bool shares_cores;        /* the device runs on this machine's threads */
    pthread_mutex_t lock;     /* sessions are opened and closed while a step runs; protects: */
    int64_t used, peak_bytes; /* device memory now, and at the peak */
} mo_gpu_memory;

void mo_gpu_memory_init(mo_gpu_memory *m, mo_device *device);
void mo_gpu_memory_drop(mo_gpu_memory *m);

/* Allocates under the ceiling. MO_ENOMEM says how much is used, and what the memory was for. */
mo_status mo_gpu_memory_alloc(mo_gpu_memory *m, int64_t bytes, const char *what, mo_daddr *out,
                              mo_error *err);
void mo_gpu_memory_free(mo_gpu_memory *m, mo_daddr address, int64_t bytes); /* 0 is allowed */
/* The model is open: counts the slots' allocations on the same device. The peak starts here; earlier buffers
 * used no more than the slots do now, or were small. */
void mo_gpu_memory_settle(mo_gpu_memory *m, int64_t bytes);

int64_t mo_gpu_memory_left(mo_gpu_memory *m); /* free under the ceiling */
int64_t mo_gpu_memory_peak(mo_gpu_memory *m);

#endif
