#include "gpu/lost.h"

#include <stdlib.h>

#include "base/log.h"
#include "engine/logits.h"
#include "gpu/logits.h"
#include "gpu/session.h"

/* ---- Detection ---- */

void mo_gpu_give_up(mo_gpu *gpu)
{
    const int layers = gpu->core.spec->layer_count;
    mo_error ignored = {0};
    for (int i = 0; i < layers; i++) {
        mo_dreply *reply = mo_gpu_reply_of(&gpu->scratch, i);
        __atomic_store_n(&reply->abort, 1, __ATOMIC_RELEASE);
    }
    mo_dstream_wait(gpu->link.lane, &ignored); /* a lost device fails here at once, as expected */
    mo_dstream_wait(gpu->link.main, &ignored);
    mo_dstream_wait(gpu->link.fetch, &ignored);
    for (int i = 0; i < layers; i++) {
        mo_dreply *reply = mo_gpu_reply_of(&gpu->scratch, i);
        __atomic_store_n(&reply->abort, 0, __ATOMIC_RELEASE);
    }
    mo_ahead_abort(&gpu->ahead);
    gpu->experts.window_head = gpu->experts.window_tail = 0;
    gpu->lanes.unmeasured = 0;
    mo_gpu_layer_buffer_abort(&gpu->layer_buffer);
}

/* A lost device fails every call at once. */
static bool is_gone(const mo_gpu *gpu)
{
    mo_error ignored = {0};
    return mo_dstream_wait(gpu->link.main, &ignored) == MO_EDEVICE;
}

/* Stops using the device; no session finds its logits there. */
static void leave(mo_gpu *gpu)
{
    mo_gpu_give_up(gpu);
    for (int i = 0; i < GPU_LOGITS_KEPT; i++) {
        mo_gpu_session *s = gpu->kept_logits[i];
        if (s) {
            atomic_store(&s->lost, true); /* set first: it must never appear neither kept nor lost */
            mo_gpu_session_drop_row(gpu, s);
        }
    }
    for (int i = gpu->core.first; i < gpu->core.end; i++) {
        gpu->layer_buffer.cpu.layers[i] = true;
    }
    gpu->layer_buffer.cpu.count = gpu->core.end - gpu->core.first;
    gpu->kv_in_ram.lost = true;
    gpu->experts.lost = true;
    gpu->lost = true;
}

/* Makes the CPU read the layers of lost devices that are on disk, and no others. */
static bool read_layers(const mo_gpu *head)
{
    const mo_tiers *tiers = head->layer_buffer.tiers;
    const int layers = head->core.spec->layer_count;
    if (!tiers || !tiers->layers) {
        return true;
    }
    bool *stays = calloc((size_t)layers + 1, sizeof *stays);
    for (int i = 0; stays && i < layers; i++) {
        stays[i] = !mo_gpu_with_layer(head, i)->lost;
    }
    if (stays) {
        mo_layer_buffer_skip(tiers->layers, stays);
    }
    free(stays);
    return stays != NULL;
}

static mo_status renew_blocks(const mo_gpu *head, int kind, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < MO_KV_TYPES && status == MO_OK; i++) {
        mo_block_pool *pool = atomic_load(&head->pools[i]);
        status = pool ? mo_block_pool_renew(pool, kind, err) : MO_OK;
    }
    return status;
}

static bool take_over(mo_gpu *head, mo_gpu *gpu, const mo_error *why)
{
    mo_error err = {0};
    leave(gpu);
    const mo_status status = renew_blocks(head, gpu->part, &err);
    if (status != MO_OK) {
        mo_log(MO_LOG_WARN, "device", "out of memory for the state that sessions had on a lost device: %s",
               err.detail);
        return false;
    }
    mo_log(MO_LOG_WARN, "device",
           "%s; the CPU computes layers %d to %d instead, more slowly; the other "
           "devices keep theirs, and the session state is recomputed from the tokens",
           why->detail, gpu->core.first, gpu->core.end - 1);
    return true;
}

bool mo_gpu_lost_find(mo_gpu *head, const mo_error *why)
{
    bool gone[MO_BLOCK_KINDS] = {false};
    int found = 0, left = 0;
    for (mo_gpu *gpu = head; gpu; gpu = gpu->next) {
        gone[gpu->part] = !gpu->lost && is_gone(gpu);
        found += gone[gpu->part];
        left += !gpu->lost;
    }
    for (mo_gpu *gpu = head; gpu && found == 0; gpu = gpu->next) { /* the device exists, but it failed */
        gone[gpu->part] = !gpu->lost && gpu->failed;
        found += gone[gpu->part];
    }
    if (found == 0 || found == left) {
        return false;
    }
    bool goes_on = true;
    for (mo_gpu *gpu = head; gpu && goes_on; gpu = gpu->next) {
        goes_on = !gone[gpu->part] || take_over(head, gpu, why);
    }
    return goes_on && read_layers(head);
}

/* ---- Computing its layers ---- */

mo_status mo_gpu_lost_run(mo_gpu *gpu, mo_forward *forward, mo_error *err)
{
    mo_status status = gpu == gpu->head ? mo_gpu_session_own(gpu, forward, err) : MO_OK;
    if (status == MO_OK) {
        status = mo_gpu_cpu_state_bring(gpu, forward, true, err);
    }
    if (status == MO_OK) {
        mo_forward_begin(forward);
        status = mo_forward_run_layers(forward, gpu->core.first, gpu->core.end, err);
    }
    if (status == MO_OK && mo_gpu_core_speaks(&gpu->core)) {
        status =
            mo_gpu_logits_begin(gpu, forward, err); /* rows that were lost with the device are recomputed */
    }
    if (status == MO_OK && mo_gpu_core_speaks(&gpu->core)) {
        status = mo_logits_emit(forward, err);
    }
    gpu->steps += status == MO_OK;
    return status;
}
