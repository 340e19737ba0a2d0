/* Hot: the hot cache on a device. A profile chooses what fills the slots, and updates plan exchanges. Private to the gpu's files. */
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
    const mo_gpu_lanes *lanes; /* what a miss costs */
    mo_ahead *ahead;
    mo_gpu_mover *mover;
    mo_packing packing;    /* until the slots are filled */
    mo_hot_update *update; /* exchanges, those by hand also where the policy has the slots */
} mo_gpu_hot;

/* Chooses what the slots hold by the request's profile (h->packing), opens the mover if there will be exchanges, and says in
 * `shapes` how many slots each layer has. */
mo_status mo_gpu_hot_choose(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *request,
                            const mo_plan_device *plan, mo_vram_layer *shapes, mo_error *err);
/* What it chose, in this order; free() it. NULL: no memory. */
mo_store_request *mo_gpu_hot_requests(const mo_gpu_hot *h);
/* request NULL: exchanges by hand alone. */
mo_status mo_gpu_hot_open_updates(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *request,
                                  mo_error *err);
void mo_gpu_hot_close(mo_gpu_hot *h);

#endif
