/* Expert device: the worker (experts/worker.h) of a rank that has experts of a model and nothing else of it, or of a model whose other parts
 * the CPU computes (mo_spec_device_experts()). Its slots are filled once, with those that were requested, then with those of
 * the same number in every layer together; what is asked of these it computes, and the CPU the rest. RAM keeps what it would hold alone,
 * so that a device that is lost costs speed and nothing else. */
#ifndef MO_GPU_EXPERT_DEVICE_H
#define MO_GPU_EXPERT_DEVICE_H

#include "experts/worker.h"
#include "gpu/gpu.h"

typedef struct mo_gpu_expert_device mo_gpu_expert_device;

/* As mo_gpu_open(), of a model of which the device gets experts alone. Experts that are on disk are read and sent while it opens. */
mo_status mo_gpu_expert_device_open(const mo_checkpoint *model, const mo_gpu_options *options,
                                    mo_gpu_expert_device **out, mo_error *err);
/* One device more, with the layers that follow; closed with the first. On failure that is as it was. */
mo_status mo_gpu_expert_device_join(mo_gpu_expert_device *first, const mo_checkpoint *model,
                                    const mo_gpu_options *options, mo_error *err);
void mo_gpu_expert_device_close(mo_gpu_expert_device *expert_device); /* NULL is allowed */

/* What the engine calls; it belongs to the device. */
const mo_worker *mo_gpu_expert_device_worker(const mo_gpu_expert_device *expert_device);

/* Where the experts of a layer are; NULL: the device is lost. Under the engine's lock. */
const mo_where *mo_gpu_expert_device_where(mo_gpu_expert_device *expert_device, int layer);
/* Of all its devices together, by any thread. Fills everything but the name. */
void mo_gpu_expert_device_report(mo_gpu_expert_device *expert_device, mo_device_report *out);

/* Slots of all its devices, and how many hold an expert. */
void mo_gpu_expert_device_slots(const mo_gpu_expert_device *expert_device, int32_t *slots, int32_t *filled);

#endif
