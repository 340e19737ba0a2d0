/* The end of a step: its flags, logits, choices and times come back, and those who asked for them get them. */
#include "gpu/finish.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "gpu/session.h"

static mo_status check_flags(mo_gpu *gpu, mo_error *err)
{
    const int layers = gpu->core.spec->layer_count;
    const uint32_t *bad = gpu->scratch.pinned.bad;
    for (int i = 0; i < layers; i++) {
        if (bad[2 * i + 1]) {
            return mo_fail(
                err, MO_EUNSUPPORTED,
                "layer %d has keys or values too large for this cache format; run again with `kv` f32", i);
        }
        if (bad[2 * i]) {
            return mo_fail(
                err, MO_EFORMAT,
                "layer %d gives numbers that are not finite; the model file is damaged or not meant for "
                "this architecture",
                i);
        }
    }
    if (bad[2 * layers]) {
        return mo_fail(err, MO_EDEVICE,
                       "the device waited ten seconds for the CPU's part of a layer and gave up");
    }
    if (bad[2 * layers + 1]) {
        return mo_fail(
            err, MO_EFORMAT,
            "the logits are not finite; the model file is damaged or not meant for this architecture");
    }
    return MO_OK;
}

/* Rows of logits that were made for tokens first .. first + rows - 1 go to the slices that want them. */
static void hand_out(const mo_gpu *gpu, const mo_forward *forward, int64_t first, int64_t rows)
{
    const int64_t vocab = gpu->core.spec->vocab;
    int64_t t = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        for (int64_t j = 0; j < s->count; j++, t++) {
            if (s->logits && j >= s->logits_from && t >= first && t < first + rows) {
                memcpy(s->logits + (j - s->logits_from) * vocab,
                       gpu->scratch.pinned.logits + (t - first) * vocab, sizeof(float) * (size_t)vocab);
            }
        }
    }
}

static mo_status fetch_logits(mo_gpu *gpu, const mo_forward *forward, int64_t first, int64_t rows,
                              mo_error *err)
{
    const mo_slice *only = &forward->slices[0];
    const bool direct = rows == 1 && forward->slice_count == 1 && only->logits &&
                        only->logits == only->state->gpu_session->logits;
    mo_status status =
        mo_copy_out(gpu->link.main, direct ? only->logits : gpu->scratch.pinned.logits, gpu->scratch.logits,
                    sizeof(float) * (size_t)(rows * gpu->core.spec->vocab), err);
    if (status == MO_OK) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    if (status == MO_OK && !direct) {
        hand_out(gpu, forward, first, rows);
    }
    return status;
}

/* Logits of a batch: only of the tokens that somebody asked for, some at a time. */
static mo_status batch_logits(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    mo_gpu_ops p = {.core = &gpu->core,
                    .scratch = &gpu->scratch,
                    .vram = gpu->experts.vram,
                    .tokens = forward->tokens,
                    .slices = forward->slice_count,
                    .ops = gpu->programs.batch_ops,
                    .limit = gpu->programs.batch_ops_limit};
    mo_status status = MO_OK;
    int64_t first = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        for (int64_t j = s->logits_from; s->logits && j < s->count && status == MO_OK; j += GPU_LOGITS) {
            const int64_t rows = s->count - j < GPU_LOGITS ? s->count - j : GPU_LOGITS;
            p.count = 0;
            mo_gpu_ops_logits(&p, first + j, rows);
            status = mo_gpu_ops_launch(&p, &gpu->link, gpu->link.main, err);
            if (status == MO_OK) {
                status = fetch_logits(gpu, forward, first + j, rows, err);
            }
        }
        first += s->count;
    }
    return status;
}

/* What layers chose, for those who count or listen. Those that were served were counted then. */
static void tell_choices(mo_gpu *gpu, mo_forward *forward)
{
    const int64_t stride = mo_gpu_choice_rows(&gpu->scratch, forward->tokens);
    for (int i = 0; i < gpu->core.spec->layer_count; i++) {
        const mo_layer *l = &gpu->core.spec->layers[i];
        if (!l->routed || gpu->layer_buffer.cpu.layers[i]) { /* the CPU told and counted its own */
            continue;
        }
        const int64_t rows = forward->tokens * l->moe.used;
        forward->index = i;
        forward->layer = l;
        memcpy(forward->w->ids, gpu->scratch.pinned.all_ids + i * stride, sizeof(int32_t) * (size_t)rows);
        memcpy(forward->w->weights, gpu->scratch.pinned.all_weights + i * stride,
               sizeof(float) * (size_t)rows);
        mo_forward_tell_routes(forward);
        if (gpu->lanes.served[i] == gpu->number) {
            continue;
        }
        mo_tally_layer *counts = forward->engine->tally ? mo_tally_find(forward->engine->tally, i) : NULL;
        if (counts) {
            mo_tally_call(counts, mo_forward_phase(forward));
        }
        for (int64_t j = 0; counts && j < rows; j++) {
            mo_tally_add(&counts->hits[mo_forward_phase(forward)][MO_FOUND_HOT][forward->w->ids[j]], 1);
        }
        forward->engine->counters.expert_picks += (uint64_t)rows;
        forward->engine->counters.bricks_run += (uint64_t)rows;
    }
}

/* The profile's mode says what becomes of the step's times. */
static mo_status end_clock(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    const mo_status status = mo_gpu_lanes_measure_last(&gpu->lanes, err);
    if (status == MO_OK) {
        mo_gpu_clock_end(gpu->lanes.clock, gpu->scratch.pinned.bad + 2 * gpu->core.spec->layer_count + 2,
                         forward->engine->tally, forward->engine->timed, mo_clock_ns(), &gpu->lanes.fetch_ns,
                         &gpu->lanes.hidden_ns);
    }
    return status;
}

mo_status mo_gpu_finish(mo_gpu *gpu, mo_forward *forward, bool small, mo_error *err)
{
    mo_status status = small ? MO_OK : batch_logits(gpu, forward, err);
    const int layers = gpu->core.spec->layer_count;
    const size_t choices =
        sizeof(int32_t) * (size_t)(layers * mo_gpu_choice_rows(&gpu->scratch, forward->tokens));
    if (status == MO_OK) {
        status = mo_copy_out(gpu->link.main, gpu->scratch.pinned.bad, gpu->scratch.step,
                             sizeof(uint32_t) * (size_t)mo_gpu_bad_words(layers), err);
    }
    if (status == MO_OK && small && gpu->core.extent.expert_width) {
        status = mo_copy_out(gpu->link.main, gpu->scratch.pinned.all_ids, gpu->scratch.ids, choices, err);
    }
    if (status == MO_OK && small && mo_forward_listens(forward)) {
        status =
            mo_copy_out(gpu->link.main, gpu->scratch.pinned.all_weights, gpu->scratch.weights, choices, err);
    }
    if (status == MO_OK) {
        status = small && mo_gpu_wants_logits(forward) ? fetch_logits(gpu, forward, 0, forward->tokens, err)
                                                       : mo_dstream_wait(gpu->link.main, err);
    }
    if (status == MO_OK) {
        mo_gpu_layer_buffer_measure(&gpu->layer_buffer);
        status = check_flags(gpu, err);
    }
    if (status == MO_OK && small) {
        status = end_clock(gpu, forward, err);
    }
    if (status == MO_OK && small) {
        tell_choices(gpu, forward);
    }
    return status;
}
