#include "gpu/cpu_layers.h"

#include <string.h>

#include "base/clock.h"
#include "gpu/parts.h"
#include "plan/device.h"

int mo_gpu_host_share(const mo_gpu *gpu, int count, int candidates, int64_t layer_bytes)
{
    double seconds;
    return mo_plan_split_layers(count, candidates,
                                (double)layer_bytes * gpu->lanes.cpu_rate.s_per_byte + MO_PLAN_HAND_SECONDS,
                                (double)layer_bytes * gpu->lanes.fetch_rate.s_per_byte, &seconds);
}

/* ---- The stream -------------------------------------------------------------------------------- */

mo_status mo_gpu_host_meet(mo_gpu *gpu, mo_forward *forward, int from, mo_error *err)
{
    const mo_status status = mo_gpu_await_flag(gpu, from, err);
    if (status == MO_OK) {
        memcpy(forward->w->x, gpu->scratch.pinned.x,
               sizeof(float) * (size_t)(forward->tokens * gpu->core.spec->width));
    }
    return status;
}

mo_status mo_gpu_host_run(mo_gpu *gpu, mo_forward *forward, int from, int to, mo_error *err)
{
    mo_dreply *reply = mo_gpu_reply_of(&gpu->scratch, from);
    const int64_t began = mo_clock_ns();
    mo_status status = MO_OK;
    for (int i = from; i < to && status == MO_OK; i++) {
        status = mo_forward_cancelled(forward, err);
        if (status == MO_OK) {
            status = mo_forward_run_layer(forward, i, err);
        }
    }
    if (status != MO_OK) {
        return status;
    }
    gpu->lanes.host_ns += (uint64_t)(mo_clock_ns() - began);
    memcpy(gpu->scratch.pinned.x, forward->w->x,
           sizeof(float) * (size_t)(forward->tokens * gpu->core.spec->width));
    for (int64_t t = 0; t < forward->tokens; t++) {
        reply->row[t] = (int32_t)t;
    }
    reply->count = (int32_t)forward->tokens;
    __atomic_store_n(&reply->flag, gpu->scratch.sequence, __ATOMIC_RELEASE);
    mo_gpu_clock_hosted(gpu->lanes.clock, from, mo_clock_ns());
    return MO_OK;
}
