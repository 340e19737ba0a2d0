/* Gpu: a model on a device. The output matrix and the core of as many layers as fit are in its memory, so are the states of
 * sessions and as many experts as its slots hold. Other layers are streamed or computed by the CPU, other experts are
 * computed by the CPU or fetched while it works. Wherever things are, the bits are the same.
 *
 * Where everything fits into RAM it stays there too; where experts are on disk, those on the device leave their places in
 * RAM to others. A device that is lost costs speed, reads of what only it had, and the states on it, which are made again
 * from the tokens.
 *
 * Several devices share a model by its layers: each has a run of them, with their cores, states and experts, and the stream
 * crosses from one to the next (gpu/handover.h). Where one of them is lost the CPU computes its run, and the others theirs. */
#ifndef MO_GPU_GPU_H
#define MO_GPU_GPU_H

#include "device/device.h"
#include "engine/accelerator.h"
#include "experts/where.h"
#include "hotcache/selection.h"
#include "hotcache/update.h"
#include "kv/state.h"
#include "model/load.h"
#include "plan/placement.h"
#include "plan/postfetch.h"
#include "plan/precision.h"
#include "store/tiers.h"

typedef struct mo_gpu mo_gpu;

typedef struct mo_gpu_options {
    mo_device *device;       /* kept and used, not owned */
    int64_t batch, context;  /* of the engine */
    mo_state_size states;    /* what was planned for sessions, on the device */
    mo_placement placement;  /* what is where on the device; read while opening */
    const mo_policy *policy; /* of the slots; NULL: the default */
    mo_tiers *tiers;         /* what is not in RAM for good; kept and used, not owned. NULL: everything is */
    /* The hot cache has the slots; NULL or without a file: the policy does. Read while opening. */
    const mo_hot_request *hot;
    const mo_store_request
        *requests; /* fill the slots first, in this order, where the policy has them; likewise */
    int32_t request_count;
    bool serial;                   /* lanes run one after the other, for comparison */
    const mo_postfetch *postfetch; /* NULL: off */
    /* First guess of the lanes' rates, 0: defaults: of the CPU while nothing crosses (0: as the other), of it while experts do, of the link. */
    double alone_bytes_s, cpu_bytes_s, link_bytes_s;
    double round_trip_s;         /* as probed, for reports; 0: not known */
    int64_t draft_max;           /* most drafts of a session in a step; 0: none */
    mo_precision_rule precision; /* of batches; zeros: exact */
    mo_progress_fn progress;
    void *user;
    size_t pin_bytes; /* whole pages of the weights that are pinned at once; 0: 1 GiB */
    int first,
        end; /* the layers of this device: [first, end); end 0: all. The plan's device part is for these alone */
} mo_gpu_options;

/* Carries the placement out: sends the core of the layers that stay, makes buffers for the others, stages and slots; fills
 * these with the hot cache's experts, or with those that are in RAM: first the requests, then by number; where experts
 * are on disk both tiers are filled in that order during the first steps. It decides nothing; MO_ENOMEM when the device has less than it said. */
mo_status mo_gpu_open(const mo_checkpoint *model, const mo_gpu_options *options, mo_gpu **out, mo_error *err);
/* One device more, with the layers that follow; it is the head's then, and is closed with it. Nothing has been computed yet. On
 * failure the head is as it was. */
mo_status mo_gpu_join(mo_gpu *head, const mo_checkpoint *model, const mo_gpu_options *options, mo_error *err);
/* Batches of more tokens go through the devices in pieces of this many, pipelined; 0: as a whole. Nothing has been computed yet. */
void mo_gpu_divide_batches(mo_gpu *gpu, int64_t tokens);
void mo_gpu_close(mo_gpu *gpu); /* no session has its state there any more; NULL is allowed */

/* What the engine calls; the gpu's own, until it is closed. NULL of NULL: there is none. */
const mo_accelerator *mo_gpu_accelerator(const mo_gpu *gpu);

/* ---- The hot cache ---- */

/* Exchanges between RAM and the slots of device number `part`, from 0 on; NULL where there are no slots, or no more. The gpu's own. */
mo_hot_update *mo_gpu_hot_update(const mo_gpu *gpu, int part);
int mo_gpu_parts(const mo_gpu *gpu); /* how many devices there are */

/* Code that uses it outside of steps (such as exchanging experts) does so between these two, under the engine's lock. */
void mo_gpu_enter(mo_gpu *gpu);
void mo_gpu_leave(mo_gpu *gpu);

/* Where the experts of a layer are; NULL: the device with that layer is lost. Under the engine's lock. */
const mo_where *mo_gpu_where(const mo_gpu *gpu, int layer);

/* ---- Reports: by any thread, without waiting for a step ---- */

/* As of the end of the last step, of all devices together. Fills everything but name and lost. */
void mo_gpu_report(mo_gpu *gpu, mo_device_report *out);
/* As mo_model_device_layers(). */
int mo_gpu_report_layers(mo_gpu *gpu, mo_device_layer *out, int count);

#endif
