/* Collects the counters of all objects. */
#ifndef MO_GPU_REPORT_H
#define MO_GPU_REPORT_H

#include "gpu/objects.h"

/* Updates the result of mo_gpu_report(). Called in a turn. */
void mo_gpu_report_publish(mo_gpu *gpu);

/* Any thread. */
void mo_gpu_report_read(mo_gpu *gpu, mo_device_report *out);

#endif
