/* Memory: what a model allocates of a device, under a ceiling. Any thread may allocate and free. Private to the gpu's files. */
#ifndef MO_GPU_MEMORY_H
#define MO_GPU_MEMORY_H

#include <pthread.h>

#include "device/device.h"

typedef struct mo_gpu_memory {
    mo_device *device;        /* kept and used, not owned */
    int64_t limit;            /* ceiling, bytes */
    bool shares_cores;        /* the device is made of this machine's threads */
    pthread_mutex_t lock;     /* sessions come and go while a step runs; protects: */
    int64_t used, peak_bytes; /* of the device's memory: now, and at most */
} mo_gpu_memory;

void mo_gpu_memory_init(mo_gpu_memory *m, mo_device *device);
void mo_gpu_memory_drop(mo_gpu_memory *m);

/* Memory under the ceiling. MO_ENOMEM says how much is used, and what for more was wanted. */
mo_status mo_gpu_memory_alloc(mo_gpu_memory *m, int64_t bytes, const char *what, mo_daddr *out,
                              mo_error *err);
void mo_gpu_memory_free(mo_gpu_memory *m, mo_daddr address, int64_t bytes); /* 0 is allowed */
/* The model is open: counts what slots have allocated of the same device. The peak begins here; a buffer that was used
 * before took no more than slots do now, or was small. */
void mo_gpu_memory_settle(mo_gpu_memory *m, int64_t bytes);

int64_t mo_gpu_memory_left(mo_gpu_memory *m); /* under the ceiling */
int64_t mo_gpu_memory_peak(mo_gpu_memory *m);

#endif
