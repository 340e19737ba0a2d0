/* Hot: the hot cache on a device's slots. Private to the gpu's files. */
#ifndef MO_GPU_HOT_H
#define MO_GPU_HOT_H

#include "gpu/experts.h"
#include "gpu/lanes.h"
#include "hotcache/capacity.h"
#include "hotcache/packing.h"
#include "hotcache/update.h"
#include "plan/plan.h"

typedef struct mo_gpu_move { /* for an exchange under way: to a spare slot, while the old expert serves */
    mo_event *ready;
    mo_daddr stage; /* where RAM has another layout */
} mo_gpu_move;

typedef struct mo_gpu_hot {
    mo_gpu_memory *memory;
    mo_gpu_link *link;
    const mo_gpu_core *core;
    mo_gpu_experts *experts;
    const mo_gpu_lanes *lanes; /* what a miss costs */
    mo_hot_update *update;     /* exchanges, those by hand also where the policy has the slots */
    int by_hand;               /* exchanges begun by hand since it settled */
    mo_packing packing;        /* until the slots are filled */
    mo_dstream *stream;        /* of the copies */
    mo_daddr stages;
    int64_t stage_bytes;
    mo_gpu_move moves[MO_HOT_MOVES];
    int move_count;
} mo_gpu_hot;

/* Chooses what the slots hold by the request's profile (h->packing), allocates what exchanges need, and says in `shapes` how
 * many slots each layer has. */
mo_status mo_gpu_hot_choose(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *request,
                            const mo_plan_device *plan, mo_vram_layer *shapes, mo_error *err);
void mo_gpu_hot_close(mo_gpu_hot *h);

/* ---- exchange.c ---- */

/* Makes the slots a tier of the hot cache's updates; request NULL: exchanges by hand alone. */
mo_status mo_gpu_hot_open_updates(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *request,
                                  mo_error *err);
/* Those; NULL where there are no slots. */
mo_hot_update *mo_gpu_hot_updates(const mo_gpu_hot *h);

#endif
