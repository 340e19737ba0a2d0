/* Hot: the hot cache on a device's slots. Private to the gpu's files. */
#ifndef MO_GPU_HOT_H
#define MO_GPU_HOT_H

#include "device/device.h"
#include "hotcache/capacity.h"
#include "hotcache/exchange.h"
#include "hotcache/packing.h"
#include "profile/profile.h"

typedef struct
    mo_gpu_move { /* an exchange whose copy is under way: to a spare slot, while the old expert serves */
    mo_exchange x;
    bool busy;
    mo_event *ready;
    mo_daddr stage; /* where RAM has another layout */
} mo_gpu_move;
typedef struct mo_gpu_cache {
    bool rules; /* its file has chosen what lies in slots; the policy keeps away */
    mo_weighting_options weighting;
    double rate;
    mo_packing packing; /* until the slots are filled */
    mo_dstream *stream; /* of the copies */
    mo_daddr stages;
    int64_t stage_bytes;
    mo_gpu_move moves[MO_HOT_MOVES];
    int move_count;
    mo_exchange *list; /* planned and not begun */
    size_t count;
    mo_profile *before; /* what was counted when the last update looked; NULL: nothing */
    int64_t tokens;     /* generated since */
    uint64_t updates, exchanged, exchange_failed;
} mo_gpu_cache;

#endif
