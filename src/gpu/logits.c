#include "gpu/logits.h"

#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "device/rank.h"
#include "engine/logits.h"

static mo_daddr row_at(const mo_gpu *gpu, int64_t place)
{
    return gpu->scratch.logits + (mo_daddr)(place * gpu->core.spec->vocab * (int64_t)sizeof(float));
}

/* A row that cannot be copied is lost, without other consequences: the session computes it again when it is
 * fed. */
static mo_status bring(mo_gpu *gpu, int place, mo_error *err)
{
    mo_gpu_session *s = gpu->kept_logits[place];
    mo_status status;
    int tries = 0;
    do {
        status = mo_copy_out(gpu->link.main, s->logits, row_at(gpu, place),
                             sizeof(float) * (size_t)gpu->core.spec->vocab, err);
    } while (mo_gpu_link_again(&gpu->link, gpu->link.main, &tries, &status, err));
    if (status == MO_OK) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    if (status != MO_EDEVICE) {
        atomic_store(&s->lost, status != MO_OK); /* set first: it must never appear neither kept nor lost */
        mo_gpu_session_drop_row(gpu, s);
    }
    return status;
}

/* For a session that is not in the step: only failures of the device itself concern the step. */
static mo_status bring_of_other(mo_gpu *gpu, int place, mo_error *err)
{
    mo_error own = {0};
    const mo_status status = bring(gpu, place, &own);
    if (status == MO_EDEVICE && err) {
        *err = own;
    } else if (status != MO_OK) {
        mo_log(MO_LOG_WARN, "device", "the logits of a session are lost: %s", own.detail);
    }
    return status == MO_EDEVICE ? status : MO_OK;
}

/* In a turn. */
static void forget(mo_gpu *gpu, mo_gpu_session *s)
{
    mo_gpu_session_drop_row(gpu, s);
    atomic_store(&s->lost, false);
}

mo_status mo_gpu_logits_begin(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    int slices;
    const bool makes = mo_logits_list(forward, &slices) > 0;
    mo_status status = MO_OK;
    for (int i = 0; i < forward->slice_count; i++) {
        forget(gpu, mo_gpu_session_of(forward->slices[i].state, gpu));
    }
    for (int i = 0; i < GPU_LOGITS_KEPT && makes && status == MO_OK; i++) {
        status = gpu->kept_logits[i] ? bring_of_other(gpu, i, err) : MO_OK;
    }
    return status;
}

mo_pick *mo_gpu_logits_stays(const mo_gpu *gpu, const mo_forward *forward, int32_t token, const float *row,
                             int64_t count)
{
    const mo_slice *s = &forward->slices[forward->w->slice_of[token]];
    const bool own = s->drafts || row == mo_gpu_session_of(s->state, gpu)->logits;
    return own && count <= GPU_LOGITS_KEPT && s->pick && mo_pick_plain(s->pick) ? s->pick : NULL;
}

/* The device that computes logits. */
static mo_gpu *last_of(mo_gpu *head)
{
    return mo_gpu_with_layer(head, head->core.spec->layer_count - 1);
}

/* Assigns the row at this index to the session. */
static void keep(mo_gpu *gpu, mo_gpu_session *s, int64_t place)
{
    gpu->kept_logits[place] = s;
    atomic_store(&s->kept, true);
}

void mo_gpu_logits_end(mo_gpu *gpu, const mo_forward *forward, bool small)
{
    int slices;
    const int64_t count = mo_logits_list(forward, &slices);
    const uint32_t *best = gpu->scratch.pinned.bad + mo_gpu_best_at(gpu->core.spec->layer_count);
    for (int64_t i = 0; i < count; i++) {
        const int32_t token = forward->w->logits.token[i];
        const int64_t place = small ? token : i;
        mo_pick *pick = mo_gpu_logits_stays(gpu, forward, token, forward->w->logits.row[i], count);
        if (pick) {
            const int slice = forward->w->slice_of[token];
            uint64_t rank;
            memcpy(&rank, best + 2 * place, sizeof rank);
            pick->made = true;
            if (forward->slices[slice].drafts) {
                int32_t *found = forward->engine->drafts.best + mo_forward_draft_row(forward, slice);
                found[token - mo_forward_first(forward, slice)] = mo_rank_token(rank);
                pick->best = found;
            } else {
                pick->token = mo_rank_token(rank);
                keep(gpu, mo_gpu_session_of(forward->slices[slice].state, gpu), place);
            }
        }
    }
}

void mo_gpu_logits_accept(mo_gpu *head, const mo_forward *forward)
{
    mo_gpu *gpu = last_of(head);
    int slices;
    const int64_t count = gpu->lost ? 0 : mo_logits_list(forward, &slices);
    for (int64_t i = 0; i < count; i++) {
        const int32_t token = forward->w->logits.token[i];
        const int slice = forward->w->slice_of[token];
        const mo_slice *s = &forward->slices[slice];
        if (s->drafts && s->pick->made && token == mo_forward_first(forward, slice) + s->pick->accepted) {
            keep(gpu, mo_gpu_session_of(s->state, gpu), gpu->small ? token : i);
        }
    }
}

mo_status mo_gpu_logits_bring(const mo_state *state, mo_error *err)
{
    mo_gpu *head = state->accelerator->owner, *gpu = last_of(head);
    const mo_gpu_session *s = mo_gpu_session_of(state, gpu);
    mo_status status = MO_OK;
    if (atomic_load(&s->kept)) {
        mo_gpu_turn_begin(&head->turn);
        for (int i = 0; i < GPU_LOGITS_KEPT && status == MO_OK; i++) {
            status = gpu->kept_logits[i] == s ? bring(gpu, i, err) : MO_OK;
        }
        mo_gpu_turn_end(&head->turn);
    }
    if (status == MO_OK && atomic_load(&s->lost)) {
        status = mo_fail(err, MO_EIO, "they could not be copied from the device; feed the session again");
    }
    return status;
}

void mo_gpu_logits_forget(const mo_state *state)
{
    mo_gpu *head = state->accelerator->owner, *gpu = last_of(head);
    mo_gpu_session *s = mo_gpu_session_of(state, gpu);
    if (atomic_load(&s->kept) || atomic_load(&s->lost)) {
        mo_gpu_turn_begin(&head->turn);
        forget(gpu, s);
        mo_gpu_turn_end(&head->turn);
    }
}
