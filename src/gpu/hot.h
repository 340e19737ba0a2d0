/* Hot: the hot cache on a device's slots. Private to the gpu's files. */
#ifndef MO_GPU_HOT_H
#define MO_GPU_HOT_H

#include "device/device.h"
#include "hotcache/capacity.h"
#include "hotcache/packing.h"
#include "hotcache/update.h"

typedef struct mo_gpu_move { /* for an exchange under way: to a spare slot, while the old expert serves */
    mo_event *ready;
    mo_daddr stage; /* where RAM has another layout */
} mo_gpu_move;
typedef struct mo_gpu_cache {
    bool rules;            /* its file has chosen what the slots hold; the policy keeps away */
    mo_hot_update *update; /* exchanges, those by hand also where the policy has the slots */
    int by_hand;           /* exchanges begun by hand since it settled */
    mo_packing packing;    /* until the slots are filled */
    mo_dstream *stream;    /* of the copies */
    mo_daddr stages;
    int64_t stage_bytes;
    mo_gpu_move moves[MO_HOT_MOVES];
    int move_count;
} mo_gpu_cache;

#endif
