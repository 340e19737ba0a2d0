/* The nine objects of a model on a device, and the number of the step. For the files on top of them (gpu.c, step.c, batch.c,
 * finish.c, session.c, report.c); each object's own files know those below it alone. */
#ifndef MO_GPU_OBJECTS_H
#define MO_GPU_OBJECTS_H

#include "engine/accelerator.h"
#include "gpu/core.h"
#include "gpu/experts.h"
#include "gpu/hot.h"
#include "gpu/lanes.h"
#include "gpu/layer_buffer.h"
#include "gpu/link.h"
#include "gpu/memory.h"
#include "gpu/programs.h"
#include "gpu/scratch.h"
#include "gpu/turn.h"

typedef struct mo_gpu {
    mo_accelerator accelerator;
    mo_gpu_turn turn;
    mo_gpu_memory memory;
    mo_gpu_link link;
    mo_gpu_layer_buffer layer_buffer;
    mo_gpu_core core;
    mo_gpu_scratch scratch;
    mo_gpu_experts experts;
    mo_gpu_programs programs;
    mo_gpu_lanes lanes;
    mo_gpu_hot hot;
    mo_state_size states;                        /* what was planned for sessions, here */
    _Atomic(mo_block_pool *) pools[MO_KV_TYPES]; /* of their blocks, by format; NULL: there were none yet */
    uint64_t number;                             /* of the step */
    uint64_t steps;                              /* that ended well */
    mo_device_report report;                     /* as of the last step; under report_lock */
    pthread_mutex_t report_lock;
} mo_gpu;

#endif
