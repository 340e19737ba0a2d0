/* Remote: experts of a layer that other ranks have (engine/remote_experts.h). They are asked while the device and the CPU compute what is here.
 * Private to the gpu's files. */
#ifndef MO_GPU_REMOTE_H
#define MO_GPU_REMOTE_H

#include "engine/forward.h"

typedef struct mo_gpu_remote {
    bool asked;                        /* their rows are still to come */
    int32_t first[MO_EXPERTS_MAX + 1]; /* where every expert's rows begin; one that is here has none */
} mo_gpu_remote;

/* Is the expert with another rank? */
static inline bool mo_gpu_remote_is(const mo_model_spec *spec, int expert)
{
    return !mo_spec_has_expert(spec, expert);
}

/* Rows of these picks begin at `base`: fills remote->first; how many there are. */
int32_t mo_gpu_remote_count(mo_gpu_remote *remote, const mo_forward *forward, const int32_t *ids,
                            int32_t base);
/* Asks for these rows: `in` is what the experts read, as floats. Afterwards mo_gpu_remote_take(). */
mo_status mo_gpu_remote_ask(mo_gpu_remote *remote, mo_forward *forward, const float *in,
                            const mo_remote_rows *rows, mo_error *err);
/* Waits until they are there; MO_OK where nothing was asked. */
mo_status mo_gpu_remote_take(mo_gpu_remote *remote, mo_forward *forward, mo_error *err);
/* The same where the step has failed already. */
void mo_gpu_remote_drop(mo_gpu_remote *remote, mo_forward *forward);

#endif
