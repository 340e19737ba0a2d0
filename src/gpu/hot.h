/* Hot: the hot cache on a device. A profile selects the experts in the slots, and updates plan exchanges.
 * Private to gpu/. */
#ifndef MO_GPU_HOT_H
#define MO_GPU_HOT_H

#include "gpu/lanes.h"
#include "gpu/mover.h"
#include "hotcache/capacity.h"
#include "hotcache/update.h"
#include "plan/plan.h"

typedef struct mo_gpu_hot {
    mo_gpu_memory *memory;
    const mo_gpu_core *core;
    const mo_gpu_lanes *lanes; /* cost of a miss */
    mo_ahead *ahead;
    mo_gpu_mover *mover;
    mo_packing packing;    /* valid until the slots are filled */
    mo_hot_update *update; /* exchanges; manual ones also if the policy manages the slots */
} mo_gpu_hot;

/* Selects the contents of the slots by the request's profile (h->packing), opens the mover if there will be
 * exchanges, and sets the number of slots of each layer in `shapes`. */
mo_status mo_gpu_hot_choose(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *request,
                            const mo_plan_device *plan, mo_vram_layer *shapes, mo_error *err);
/* The selected experts, in order; free() it. NULL: out of memory. */
mo_store_request *mo_gpu_hot_requests(const mo_gpu_hot *h);
/* request NULL: only manual exchanges. */
mo_status mo_gpu_hot_open_updates(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *request,
                                  mo_error *err);
void mo_gpu_hot_close(mo_gpu_hot *h);

#endif
