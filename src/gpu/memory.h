/* Memory: what a model takes of a device, under a ceiling. Private to the gpu's files. */
#ifndef MO_GPU_MEMORY_H
#define MO_GPU_MEMORY_H

#include "device/device.h"

typedef struct mo_gpu_memory {
    mo_device *device;         /* kept and used, not owned */
    int64_t limit;             /* ceiling, bytes */
    int64_t margin;            /* free memory above a ceiling that nobody gave */
    int64_t session_bytes;     /* kept for the state of one session */
    int64_t taken, peak_bytes; /* of the device's memory: now, and at most */
    bool shares_cores;         /* the device is made of this machine's threads */
} mo_gpu_memory;

#endif
