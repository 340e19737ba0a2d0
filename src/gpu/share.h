/* Share: the CPU's part of a batch of few tokens. So few choose an expert that carrying it over the link takes longer than
 * multiplying with it here: the CPU computes some of the experts that are not on the device while the others cross, so that
 * both end together. */
#ifndef MO_GPU_SHARE_H
#define MO_GPU_SHARE_H

#include "gpu/objects.h"

/* May the CPU have some of this step's experts? The tokens are few and without adapters, and it is not much slower than the link.
 * The choice of a layer then brings the experts' input with it, to pinned.shared_in. */
bool mo_gpu_share_may(const mo_gpu *gpu, const mo_forward *forward);

/* Marks the experts with picks left, in no slot and no window, that the CPU should compute, by the measured
 * rates of both lanes, in o->by_cpu. Returns how many: none while what comes from disk fills free slots on its way. */
int mo_gpu_share_choose(mo_gpu *gpu, const mo_forward *forward, int layer, const int32_t *left,
                        mo_gpu_order *o);

/* The CPU's experts are those from o->cpu_first to o->claimed_first. First what they are multiplied with is made; then
 * rounds compute those whose number among the needs is in `ready` (NULL: all of them), while one thread runs `beside`, which
 * makes the calls for the others; at the end their rows are sent to the device. */
void mo_gpu_share_input(const mo_gpu *gpu, mo_forward *forward);
void mo_gpu_share_begin(const mo_gpu *gpu, mo_forward *forward);
void mo_gpu_share_round(mo_gpu *gpu, mo_forward *forward, int layer, const mo_gpu_order *o, const bool *ready,
                        mo_side_task beside);
mo_status mo_gpu_share_end(mo_gpu *gpu, const mo_forward *forward, const mo_gpu_order *o, mo_error *err);
/* Sends rows first .. end - 1 of pinned.shared_rows to the device. */
mo_status mo_gpu_share_put(mo_gpu *gpu, const mo_forward *forward, int64_t first, int64_t end, mo_error *err);

#endif
