/* The end of a step: copies its flags, logits, choices and times back, and passes them to their
 * requesters. */
#include "gpu/finish.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/logits.h"
#include "gpu/batch.h"
#include "gpu/handover.h"
#include "gpu/logits.h"

static mo_status check_flags(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    const int layers = gpu->core.spec->layer_count;
    const uint32_t *bad = gpu->scratch.pinned.bad;
    for (int i = 0; i < layers; i++) {
        if (bad[2 * i + 1] && mo_kv_coded(forward->slices[0].state->kv)) {
            return mo_forward_no_codes(forward, i, err);
        }
        if (bad[2 * i] || bad[2 * i + 1]) {
            return mo_forward_not_finite(forward, i, err);
        }
    }
    if (bad[2 * layers]) {
        return mo_fail(err, MO_EDEVICE,
                       "the device waited ten seconds for the CPU's part of a layer and gave up");
    }
    if (bad[2 * layers + 1]) {
        return mo_forward_not_finite(forward, -1, err);
    }
    return MO_OK;
}

/* True if the row is the session's own memory for a token's logits, which the device may write. */
static bool own_row(const mo_gpu *gpu, const mo_forward *forward, int32_t token, const float *row)
{
    const mo_slice *s = &forward->slices[forward->w->slice_of[token]];
    return row == mo_gpu_session_of(s->state, gpu)->logits;
}

/* Copies rows `at` to `at + count` of a list of `all`, which are consecutive on the device from `from` on, to
 * the slices that need them now. */
static mo_status fetch_rows(mo_gpu *gpu, const mo_forward *forward, int64_t at, int64_t count, int64_t all,
                            mo_daddr from, mo_error *err)
{
    const size_t bytes = sizeof(float) * (size_t)gpu->core.spec->vocab;
    const int32_t *token = forward->w->logits.token + at;
    float *const *row = forward->w->logits.row + at;
    mo_status status = MO_OK;
    bool staged = false;
    for (int64_t i = 0, rows; i < count && status == MO_OK; i += rows) {
        const bool own = own_row(gpu, forward, token[i], row[i]);
        if (mo_gpu_logits_stays(gpu, forward, token[i], row[i], all)) {
            rows = 1;
            continue;
        }
        for (rows = 1; !own && i + rows < count && token[i + rows] == token[i] + rows &&
                       !own_row(gpu, forward, token[i + rows], row[i + rows]);
             rows++) { /* one copy stages consecutive rows */
        }
        staged |= !own;
        status = mo_gpu_link_get(
            &gpu->link, gpu->link.main, own ? row[i] : gpu->scratch.pinned.logits + i * gpu->core.spec->vocab,
            from + (mo_daddr)((size_t)(token[i] - token[0]) * bytes), (size_t)rows * bytes, err);
    }
    if (status == MO_OK && staged) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    for (int64_t i = 0; i < count && status == MO_OK && staged; i++) {
        if (!own_row(gpu, forward, token[i], row[i]) &&
            !mo_gpu_logits_stays(gpu, forward, token[i], row[i], all)) {
            memcpy(row[i], gpu->scratch.pinned.logits + i * gpu->core.spec->vocab, bytes);
        }
    }
    return status;
}

/* Logits of a batch: only for requested tokens, consecutive rows together, some at a time. */
static mo_status batch_logits(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    mo_gpu_ops p = {.core = &gpu->core,
                    .scratch = &gpu->scratch,
                    .vram = gpu->experts.where.vram,
                    .tokens = forward->tokens,
                    .slices = forward->slice_count,
                    .adapting = forward->w->adapting.count ? &forward->w->adapting : NULL,
                    .adapters = &gpu->adapters,
                    .ops = gpu->programs.batch_ops,
                    .limit = gpu->programs.batch_ops_limit};
    const int32_t *token = forward->w->logits.token;
    int slices;
    const int64_t count = mo_logits_list(forward, &slices);
    mo_status status = MO_OK;
    for (int64_t at = 0, rows; at < count && status == MO_OK; at += rows) {
        for (rows = 1; rows < GPU_LOGITS && at + rows < count && token[at + rows] == token[at] + rows;
             rows++) {
        }
        const int64_t place = count <= GPU_LOGITS_KEPT ? at : 0;
        p.count = 0;
        mo_gpu_ops_logits(&p, token[at], rows, place);
        status = mo_gpu_ops_launch(&p, &gpu->link, gpu->link.main, err);
        if (status == MO_OK) {
            const mo_daddr from =
                gpu->scratch.logits + (mo_daddr)(sizeof(float) * (size_t)(place * gpu->core.spec->vocab));
            status = fetch_rows(gpu, forward, at, rows, count, from, err);
        }
    }
    return status;
}

/* Logits of a small step, which its program computed for every token. */
static mo_status small_logits(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    int slices;
    const int64_t count = mo_logits_list(forward, &slices);
    const mo_daddr from =
        count ? gpu->scratch.logits +
                    (mo_daddr)(sizeof(float) * (size_t)(forward->w->logits.token[0] * gpu->core.spec->vocab))
              : 0;
    return fetch_rows(gpu, forward, 0, count, count, from, err);
}

/* Counts a layer's choice that was not counted yet: all experts were on the device. Drafts are counted when
 * accepted. */
static void count_choice(const mo_forward *forward, int layer, int64_t rows)
{
    const uint32_t *drafted = mo_forward_note_drafts(forward);
    const int used = forward->layer->moe.used;
    mo_tally_layer *counts = mo_forward_tally(forward, layer);
    for (int64_t j = 0; (counts || drafted) && j < rows; j++) {
        const mo_slice *s = &forward->slices[forward->w->slice_of[j / used]];
        const int64_t into = forward->w->position[j / used] - s->state->length;
        mo_forward_found(forward, layer, forward->w->picks.ids[j], false);
        mo_forward_tally_expert(forward, counts, MO_FOUND_HOT, forward->w->picks.ids[j],
                                into < s->count - s->drafts);
    }
    forward->engine->counters.expert_picks += (uint64_t)rows;
    forward->engine->counters.experts_run += (uint64_t)rows;
}

/* Reports the layers' choices to counters and observers. Layers that were served, or computed expert by
 * expert, were counted then. */
static void tell_choices(mo_gpu *gpu, mo_forward *forward, bool small)
{
    const int64_t stride = mo_gpu_choice_rows(&gpu->scratch, forward->tokens);
    for (int i = gpu->core.first; i < gpu->core.end; i++) {
        const mo_layer *l = &gpu->core.spec->layers[i];
        if (!l->routed || (small ? gpu->layer_buffer.cpu.layers[i] /* the CPU counted its own */
                                 : !mo_gpu_batch_stays(gpu, forward, i, true))) {
            continue;
        }
        const int64_t rows = forward->tokens * l->moe.used;
        mo_forward_at(forward, i);
        memcpy(forward->w->picks.ids, gpu->scratch.pinned.all_ids + i * stride,
               sizeof(int32_t) * (size_t)rows);
        if (small) {
            memcpy(forward->w->picks.weights, gpu->scratch.pinned.all_weights + i * stride,
                   sizeof(float) * (size_t)rows);
        }
        mo_forward_tell_routes(forward);
        if (gpu->lanes.served[i] != gpu->number) {
            count_choice(forward, i, rows);
        }
    }
}

/* The profile's mode determines which times are recorded. */
static mo_status end_clock(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    mo_status status = mo_gpu_lanes_measure_last(&gpu->lanes, err);
    if (status == MO_OK) {
        status = mo_gpu_marks_read(&gpu->programs.marks, gpu->lanes.clock, err);
    }
    if (status == MO_OK) {
        mo_gpu_clock_end(gpu->lanes.clock, gpu->scratch.pinned.bad + 2 * gpu->core.spec->layer_count + 2,
                         mo_forward_has_drafts(forward) ? NULL : forward->tally, forward->engine->timed,
                         mo_clock_ns(), &gpu->lanes.fetch_ns, &gpu->lanes.hidden_ns);
    }
    return status;
}

mo_status mo_gpu_finish(mo_gpu *gpu, mo_forward *forward, bool small, mo_error *err)
{
    const bool last = mo_gpu_core_speaks(&gpu->core);
    mo_status status = !last   ? mo_gpu_handover_give(gpu, forward, err)
                       : small ? MO_OK
                               : batch_logits(gpu, forward, err);
    const int layers = gpu->core.spec->layer_count;
    const bool tells = small || mo_forward_has_drafts(forward);
    const size_t choices =
        sizeof(int32_t) * (size_t)(layers * mo_gpu_choice_rows(&gpu->scratch, forward->tokens));
    if (status == MO_OK) {
        status = mo_gpu_link_get(&gpu->link, gpu->link.main, gpu->scratch.pinned.bad, gpu->scratch.step,
                                 sizeof(uint32_t) * (size_t)mo_gpu_bad_words(layers), err);
    }
    if (status == MO_OK && tells && gpu->core.extent.expert_width) {
        status = mo_gpu_link_get(&gpu->link, gpu->link.main, gpu->scratch.pinned.all_ids, gpu->scratch.ids,
                                 choices, err);
    }
    if (status == MO_OK && small && mo_forward_listens(forward)) {
        status = mo_gpu_link_get(&gpu->link, gpu->link.main, gpu->scratch.pinned.all_weights,
                                 gpu->scratch.weights, choices, err);
    }
    if (status == MO_OK && small && last) {
        status = small_logits(gpu, forward, err);
    }
    if (status == MO_OK && last) {
        status = mo_gpu_handover_show(gpu, forward, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    if (status == MO_OK && !last) {
        mo_gpu_handover_given(gpu, forward);
    } else if (status == MO_OK) {
        mo_gpu_handover_shown(gpu, forward);
    }
    if (status == MO_OK) {
        mo_gpu_layer_buffer_measure(&gpu->layer_buffer);
        status = check_flags(gpu, forward, err);
    }
    if (status == MO_OK && small) {
        status = end_clock(gpu, forward, err);
    }
    if (status == MO_OK && tells) {
        tell_choices(gpu, forward, small);
    } else if (status == MO_OK) {
        status = mo_gpu_batch_tell(gpu, forward, err);
    }
    if (status == MO_OK && last) {
        mo_gpu_logits_end(gpu, forward, small);
    }
    return status;
}
