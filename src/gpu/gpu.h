/* Card: a model on a device. The output matrix and the core of as many layers as fit lie in its memory, so do the states of
 * sessions that sit on it and as many experts as its slots hold. Other layers pass through or are computed by the CPU,
 * other experts are computed by the CPU or fetched while it works. Whatever lies where, the bits are the same.
 *
 * RAM keeps everything it would hold without a device: a device that is lost costs speed and the states on it, which
 * are made again from the tokens. */
#ifndef MO_GPU_GPU_H
#define MO_GPU_GPU_H

#include "base/pool.h"
#include "device/device.h"
#include "engine/accelerator.h"
#include "engine/forward.h"
#include "gpu/needs.h"
#include "hotcache/selection.h"
#include "hotcache/update.h"
#include "model/load.h"
#include "plan/postfetch.h"
#include "profile/tally.h"
#include "store/tiers.h"
#include "store/vram.h"

typedef struct mo_gpu mo_gpu;

typedef struct mo_gpu_options {
    mo_device *device;       /* kept and used, not owned */
    int64_t batch, context;  /* of the engine */
    mo_kv_type kv;           /* of sessions */
    int64_t vram_bytes;      /* hard ceiling for everything the gpu takes; 0: what is free, less a reserve */
    bool cpu_moe;            /* no expert stays on the device, but for the hot cache */
    const mo_policy *policy; /* of the slots; NULL: the default */
    mo_tiers *tiers; /* what does not lie in RAM for good; kept and used, not owned. NULL: everything does */
    /* The hot cache has the slots; NULL or without a file: the policy does. Read while opening. */
    const mo_hot_request *hot;
    const mo_store_request
        *requests; /* fill the slots first, in this order, where the policy has them; likewise */
    int32_t wish_count;
    bool serial;                      /* lanes run one after the other, for comparison */
    const mo_postfetch *postfetch;    /* NULL: off */
    double cpu_bytes_s, link_bytes_s; /* first guess of the lanes' rates; 0: defaults */
    double round_trip_s;              /* as probed, for reports; 0: not known */
    mo_progress_fn progress;
    void *user;
    /* Room for experts that pass through (0: a sixteenth of the ceiling, at most 1 GiB), and whole pages of the weights
     * that are pinned at once (0: 1 GiB). */
    int64_t stage_bytes;
    size_t pin_bytes;
} mo_gpu_options;

/* Uploads the core, as far as it fits (the other layers will pass through a ring), and takes the slots; fills them with the
 * hot cache's experts, or with those that are in RAM, as far as they go: first the requests, then by number. MO_ENOMEM says
 * how much the device would have to have. */
mo_status mo_gpu_open(const mo_checkpoint *model, const mo_gpu_options *options, mo_gpu **out, mo_error *err);
void mo_gpu_close(mo_gpu *gpu); /* no session sits on it any more; NULL is allowed */

/* What the engine calls; the gpu's own, until it is closed. */
const mo_accelerator *mo_gpu_accelerator(const mo_gpu *gpu);

/* ---- The hot cache ---- */

/* Exchanges between RAM and the slots; NULL where there are no slots. The gpu's own. */
mo_hot_update *mo_gpu_hot_update(const mo_gpu *gpu);

/* ---- Instruments ---- */

/* Fills everything but name and lost. */
void mo_gpu_report(const mo_gpu *gpu, mo_device_report *out);
/* As mo_model_device_layers(). */
int mo_gpu_report_layers(const mo_gpu *gpu, mo_device_layer *out, int room);

#endif
