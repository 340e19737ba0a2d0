#include "gpu/remote.h"

#include <string.h>

int32_t mo_gpu_remote_count(mo_gpu_remote *remote, const mo_forward *forward, const int32_t *ids,
                            int32_t base)
{
    const mo_moe *moe = &forward->layer->moe;
    int32_t *first = remote->first;
    memset(first, 0, sizeof *first * (size_t)(moe->experts + 1));
    for (int64_t i = 0; i < forward->tokens * moe->used; i++) {
        first[ids[i] + 1] += mo_gpu_remote_is(forward->spec, ids[i]);
    }
    first[0] = base;
    for (int e = 0; e < moe->experts; e++) {
        first[e + 1] += first[e];
    }
    return first[moe->experts] - base;
}

mo_status mo_gpu_remote_ask(mo_gpu_remote *remote, mo_forward *forward, const float *in,
                            const mo_remote_rows *rows, mo_error *err)
{
    const mo_remote_experts *others = forward->engine->remote_experts;
    memcpy(forward->in.x, in, sizeof(float) * (size_t)(forward->tokens * forward->spec->width));
    for (int64_t t = 0; t < forward->tokens; t++) {
        mo_forward_quantize(forward->k, &forward->in, t);
    }
    const mo_status status = others->begin(others->owner, forward, rows, err);
    remote->asked = status == MO_OK;
    if (forward->side_task.fn) { /* the device is at work already */
        forward->side_task.fn(forward->side_task.ctx);
        forward->side_task = (mo_side_task){0};
    }
    return status;
}

mo_status mo_gpu_remote_take(mo_gpu_remote *remote, mo_forward *forward, mo_error *err)
{
    const mo_remote_experts *others = forward->engine->remote_experts;
    if (!remote->asked) {
        return MO_OK;
    }
    remote->asked = false;
    return others->end(others->owner, forward, err);
}

void mo_gpu_remote_drop(mo_gpu_remote *remote, mo_forward *forward)
{
    mo_error ignored = {0};
    mo_gpu_remote_take(remote, forward, &ignored);
}
