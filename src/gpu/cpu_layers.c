/* Layers of a model on a device that the CPU computes: some of those that do not fit there, chosen so that CPU and link finish
 * together. In small steps the stream of hidden rows comes to the host, goes through them and back; in a batch, where the
 * device is far ahead, they cross the link like the others. */
#include <string.h>

#include "base/clock.h"
#include "gpu/lanes.h"

mo_status mo_gpu_cpu_layers_meet(mo_gpu_lanes *lanes, mo_forward *forward, int from, mo_error *err)
{
    const mo_status status = mo_gpu_lanes_await(lanes, from, err);
    if (status == MO_OK) {
        memcpy(forward->w->x, lanes->scratch->pinned.x,
               sizeof(float) * (size_t)(forward->tokens * lanes->core->spec->width));
    }
    return status;
}

mo_status mo_gpu_cpu_layers_run(mo_gpu_lanes *lanes, mo_forward *forward, int from, int to, mo_error *err)
{
    mo_dreply *reply = mo_gpu_reply_of(lanes->scratch, from);
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
    lanes->host_ns += (uint64_t)(mo_clock_ns() - began);
    memcpy(lanes->scratch->pinned.x, forward->w->x,
           sizeof(float) * (size_t)(forward->tokens * lanes->core->spec->width));
    for (int64_t t = 0; t < forward->tokens; t++) {
        reply->row[t] = (int32_t)t;
    }
    reply->count = (int32_t)forward->tokens;
    __atomic_store_n(&reply->flag, lanes->scratch->sequence, __ATOMIC_RELEASE);
    mo_gpu_clock_hosted(lanes->clock, from, mo_clock_ns());
    return MO_OK;
}
