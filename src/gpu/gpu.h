/* Gpu: a model on a device. Device memory holds the output matrix, the core of as many layers as fit, session
 * states, and as many experts as there are slots. Other layers are streamed, or computed by the CPU. Other
 * experts are computed by the CPU, or fetched while it works. The output is bit-identical wherever each part
 * runs.
 *
 * If everything fits in RAM, it also stays there. If experts are on disk, those on the device free their
 * slots in RAM. Losing a device costs speed, reads of experts that only it had, and its states, which are
 * recomputed from the tokens.
 *
 * Several devices share a model by layers: each has a range of layers with their cores, states and experts,
 * and the stream passes from one to the next (gpu/handover.h). If one is lost, the CPU computes its layers,
 * and the others continue. */
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
    mo_device *device;       /* referenced, not owned */
    int64_t batch, context;  /* as in the engine */
    mo_state_size states;    /* planned session states on the device */
    mo_placement placement;  /* what goes where on the device; read during opening */
    const mo_policy *policy; /* cache policy of the slots; NULL: the default */
    /* weights that do not stay in RAM; referenced, not owned. NULL: all stay in RAM */
    mo_tiers *tiers;
    /* Fills the slots from the hot cache's profile; NULL or without a file: the policy manages them. Read
     * during opening. */
    const mo_hot_request *hot;
    /* if the policy manages the slots: experts to load first, in this order; likewise */
    const mo_store_request *requests;
    int32_t request_count;
    bool serial;                   /* lanes run one after the other, for comparison */
    const mo_postfetch *postfetch; /* NULL: off */
    /* Initial rates of the lanes, 0: defaults: the CPU while nothing is copied (0: as the next), the CPU
     * during copies, the link. */
    double alone_bytes_s, cpu_bytes_s, link_bytes_s;
    double round_trip_s;         /* probed value, for reports; 0: unknown */
    int64_t draft_max;           /* maximum drafts of a session per step; 0: none */
    mo_precision_rule precision; /* of batches; zeros: exact */
    mo_progress_fn progress;
    void *user;
    size_t pin_bytes; /* bytes of weights pinned per call, whole pages; 0: 1 GiB */
    /* layers of this device: [first, end); end 0: all. The plan's device part is only for these layers */
    int first, end;
} mo_gpu_options;

/* Carries out the placement: sends the core of resident layers, allocates buffers for the others, stages and
 * slots. The slots are filled with the hot cache's experts, or with experts in RAM: the requests first, then
 * by number. If experts are on disk, both tiers are filled in that order during the first steps. Makes no
 * decisions of its own. MO_ENOMEM: the device has less memory than it reported. */
mo_status mo_gpu_open(const mo_checkpoint *model, const mo_gpu_options *options, mo_gpu **out, mo_error *err);
/* Adds a device with the next layers; the head owns and closes it. Only before any computation. On failure
 * the head is unchanged. */
mo_status mo_gpu_join(mo_gpu *head, const mo_checkpoint *model, const mo_gpu_options *options, mo_error *err);
/* Batches of more tokens pass through the devices in pieces of this size, pipelined; 0: as a whole. Only
 * before any computation. */
void mo_gpu_divide_batches(mo_gpu *gpu, int64_t tokens);
void mo_gpu_close(mo_gpu *gpu); /* no session may have its state there; NULL is allowed */

/* The engine's interface, owned by the gpu. NULL for NULL. */
const mo_accelerator *mo_gpu_accelerator(const mo_gpu *gpu);

/* ---- The hot cache ---- */

/* Exchanges between RAM and the slots of device `part`, from 0; NULL: it has no slots, or no longer. Owned by
 * the gpu. */
mo_hot_update *mo_gpu_hot_update(const mo_gpu *gpu, int part);
int mo_gpu_parts(const mo_gpu *gpu); /* number of devices */

/* Other uses of the device between steps, such as exchanging experts, must be enclosed by these, under the
 * engine's lock. */
void mo_gpu_enter(mo_gpu *gpu);
void mo_gpu_leave(mo_gpu *gpu);

/* Lends memory of the first device that is free under its ceiling, to another use of the device that is enclosed
 * likewise; until it is given back. MO_ENOMEM: less is free. */
mo_status mo_gpu_lend(mo_gpu *gpu, int64_t bytes, const char *what, mo_device **device, mo_daddr *memory,
                      mo_error *err);
void mo_gpu_take_back(mo_gpu *gpu, mo_daddr memory, int64_t bytes);
int64_t mo_gpu_free_bytes(mo_gpu *gpu); /* that it can lend */

/* Locations of a layer's experts; NULL: the device with that layer is lost. Under the engine's lock. */
const mo_where *mo_gpu_where(const mo_gpu *gpu, int layer);

/* ---- Reports: any thread, without waiting for a step ---- */

/* Totals of all devices at the end of the last step. Fills everything but name and lost. */
void mo_gpu_report(mo_gpu *gpu, mo_device_report *out);
/* As mo_model_device_layers(). */
int mo_gpu_report_layers(mo_gpu *gpu, mo_device_layer *out, int count);

#endif
