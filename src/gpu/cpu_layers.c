#include "gpu/cpu_layers.h"

#include <string.h>

#include "base/clock.h"
#include "gpu/parts.h"
#include "plan/device.h"

int mo_gpu_host_share(const mo_gpu *gpu, int count, int candidates, int64_t layer_bytes)
{
    double seconds;
    return mo_plan_split_layers(count, candidates,
                                (double)layer_bytes * gpu->cpu_rate.s_per_byte + MO_PLAN_HAND_SECONDS,
                                (double)layer_bytes * gpu->fetch_rate.s_per_byte, &seconds);
}

/* ---- States ------------------------------------------------------------------------------------ */

static size_t begin_of(const mo_state *s, int layer)
{
    const mo_state_layer *l = &s->layers[layer];
    const uint8_t *at = l->k ? l->k : (const uint8_t *)l->conv;
    return (size_t)(at - (const uint8_t *)s->memory);
}

static size_t end_of(const mo_state *s, int layer)
{
    return layer + 1 < s->spec->layer_count ? begin_of(s, layer + 1) : s->bytes;
}

static mo_status move(mo_gpu *gpu, const mo_state *s, bool to_device, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < gpu->spec->layer_count && status == MO_OK; i++) {
        if (gpu->host.layers[i]) {
            const size_t at = begin_of(s, i), bytes = end_of(s, i) - at;
            uint8_t *here = (uint8_t *)s->memory + at;
            const mo_daddr there = s->gpu_session->memory + (mo_daddr)at;
            status = to_device ? mo_copy_in(gpu->main, there, here, bytes, err)
                               : mo_copy_out(gpu->main, here, there, bytes, err);
        }
    }
    return status == MO_OK ? mo_dstream_wait(gpu->main, err) : status;
}

mo_status mo_gpu_cpu_state_return(mo_gpu *gpu, const mo_state *state, mo_error *err)
{
    if (!state->gpu_session->hosted) {
        return MO_OK;
    }
    const mo_status status = move(gpu, state, true, err);
    state->gpu_session->hosted = status != MO_OK;
    return status;
}

mo_status mo_gpu_cpu_state_bring(mo_gpu *gpu, const mo_forward *forward, bool few, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < forward->slice_count && gpu->host.count && status == MO_OK; i++) {
        const mo_state *s = forward->slices[i].state;
        if (!few) {
            status = mo_gpu_cpu_state_return(gpu, s, err);
        } else if (!s->gpu_session->hosted) {
            status = move(gpu, s, false, err);
            s->gpu_session->hosted = status == MO_OK;
        }
    }
    return status;
}

/* ---- The stream -------------------------------------------------------------------------------- */

mo_status mo_gpu_host_meet(mo_gpu *gpu, mo_forward *forward, int from, mo_error *err)
{
    const mo_status status = mo_gpu_await_flag(gpu, from, err);
    if (status == MO_OK) {
        memcpy(forward->w->x, gpu->pinned.x, sizeof(float) * (size_t)(forward->tokens * gpu->spec->width));
    }
    return status;
}

mo_status mo_gpu_host_run(mo_gpu *gpu, mo_forward *forward, int from, int to, mo_error *err)
{
    mo_dreply *reply = (mo_dreply *)(void *)(gpu->pinned.replies + from * gpu->pinned.reply_bytes);
    const int64_t began = mo_clock_ns();
    mo_status status = MO_OK;
    for (int i = from; i < to && status == MO_OK; i++) {
        status = mo_forward_run_layer(forward, i, err);
    }
    if (status != MO_OK) {
        return status;
    }
    gpu->counters.host_ns += (uint64_t)(mo_clock_ns() - began);
    memcpy(gpu->pinned.x, forward->w->x, sizeof(float) * (size_t)(forward->tokens * gpu->spec->width));
    for (int64_t t = 0; t < forward->tokens; t++) {
        reply->row[t] = (int32_t)t;
    }
    reply->count = (int32_t)forward->tokens;
    __atomic_store_n(&reply->flag, gpu->sequence, __ATOMIC_RELEASE);
    mo_gpu_clock_hosted(gpu->clock, from, mo_clock_ns());
    return MO_OK;
}
