/* Share: the CPU's part of a batch of few tokens. So few tokens choose an expert that copying it over the
 * link takes longer than computing it on the CPU. The CPU computes some of the experts that are not on the
 * device while the others are copied, so that both finish together. */
#ifndef MO_GPU_SHARE_H
#define MO_GPU_SHARE_H

#include "gpu/objects.h"

/* True if the CPU may compute some experts of this step: the tokens are few and have no adapters, and the CPU
 * is not much slower than the link. The choice of a layer then includes the experts' input, in
 * pinned.shared_in. */
bool mo_gpu_share_may(const mo_gpu *gpu, const mo_forward *forward);

/* Selects, among the experts with picks left and in no slot or window, those that the CPU should compute, by
 * the measured rates of both lanes, in o->by_cpu. Returns their number; 0 while experts from disk fill free
 * slots. */
int mo_gpu_share_choose(mo_gpu *gpu, const mo_forward *forward, int layer, const int32_t *left,
                        mo_gpu_order *o);

/* The CPU's experts are those from o->cpu_first to o->claimed_first. input prepares their input. round
 * computes those whose index among the needs is in `ready` (NULL: all), while one thread runs `beside`, which
 * makes the calls for the others. end sends their rows to the device. */
void mo_gpu_share_input(const mo_gpu *gpu, mo_forward *forward);
void mo_gpu_share_begin(const mo_gpu *gpu, mo_forward *forward);
void mo_gpu_share_round(mo_gpu *gpu, mo_forward *forward, int layer, const mo_gpu_order *o, const bool *ready,
                        mo_side_task beside);
mo_status mo_gpu_share_end(mo_gpu *gpu, const mo_forward *forward, const mo_gpu_order *o, mo_error *err);
/* Sends rows first .. end - 1 of pinned.shared_rows to the device. */
mo_status mo_gpu_share_put(mo_gpu *gpu, const mo_forward *forward, int64_t first, int64_t end, mo_error *err);

#endif
