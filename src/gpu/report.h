/* The counters of all objects, gathered. */
#ifndef MO_GPU_REPORT_H
#define MO_GPU_REPORT_H

#include "gpu/objects.h"

/* What mo_gpu_report() tells from now on. By the one who has the turn. */
void mo_gpu_report_publish(mo_gpu *gpu);

/* By any thread. */
void mo_gpu_report_read(mo_gpu *gpu, mo_device_report *out);

#endif
