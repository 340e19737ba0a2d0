/* Expert device: the worker (experts/worker.h) for a rank that only has experts of a model, or for a model
 * whose other parts the CPU computes (mo_spec_device_experts()). Its slots are filled once: with the
 * requested experts, then with experts of the same number in all layers. It computes the requested experts
 * that it holds, and the CPU computes the others. RAM keeps what it would hold without the device, so losing
 * the device only costs speed. */
#ifndef MO_GPU_EXPERT_DEVICE_H
#define MO_GPU_EXPERT_DEVICE_H

#include "experts/worker.h"
#include "gpu/gpu.h"

typedef struct mo_gpu_expert_device mo_gpu_expert_device;

/* Like mo_gpu_open(), but the device gets only experts. Experts on disk are read and sent during opening. */
mo_status mo_gpu_expert_device_open(const mo_checkpoint *model, const mo_gpu_options *options,
                                    mo_gpu_expert_device **out, mo_error *err);
/* Adds a device with the next layers; it is closed with the first. On failure the first is unchanged. */
mo_status mo_gpu_expert_device_join(mo_gpu_expert_device *first, const mo_checkpoint *model,
                                    const mo_gpu_options *options, mo_error *err);
void mo_gpu_expert_device_close(mo_gpu_expert_device *expert_device); /* NULL is allowed */

/* The worker for the engine; owned by the device. */
const mo_worker *mo_gpu_expert_device_worker(const mo_gpu_expert_device *expert_device);

/* Locations of a layer's experts; NULL: the device is lost. Under the engine's lock. */
const mo_where *mo_gpu_expert_device_where(mo_gpu_expert_device *expert_device, int layer);
/* Totals of all devices; any thread. Fills everything but the name. */
void mo_gpu_expert_device_report(mo_gpu_expert_device *expert_device, mo_device_report *out);

/* Slots of all devices, and how many hold an expert. */
void mo_gpu_expert_device_slots(const mo_gpu_expert_device *expert_device, int32_t *slots, int32_t *filled);

#endif
