#include "gpu/step.h"

#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "gpu/batch.h"
#include "gpu/commit.h"
#include "gpu/finish.h"
#include "gpu/handover.h"
#include "gpu/kv_staging.h"
#include "gpu/logits.h"
#include "gpu/lost.h"
#include "gpu/pieces.h"
#include "gpu/report.h"
#include "gpu/session.h"
#include "gpu/share.h"
#include "gpu/split.h"

/* How long threads stay awake between the CPU's parts of two layers, while the device computes. */
#define STAY_AWAKE_NS ((int64_t)500 * 1000)
/* With several tokens the device's part takes longer, including pending copies. */
#define STAY_AWAKE_SHARED_NS ((int64_t)3000 * 1000)

/* ---- Before ----------------------------------------------------------------------------------- */

/* Copies a step's rows from RAM to pinned memory: on all threads if there are many tokens. */
enum { COPY_TOKENS = 32, COPY_ALONE = 128 };

typedef struct block_rows {
    const mo_gpu *gpu;
    const mo_forward *forward;
    uint8_t *rope, *q_factor;
    uint8_t *x; /* NULL: the stream comes from another device */
} block_rows;

static void copy_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const block_rows *r = ctx;
    const mo_forward *f = r->forward;
    const int64_t pairs = r->gpu->core.extent.pairs, width = r->gpu->core.spec->width;
    const int64_t stride = f->w->rope_stride;
    for (int i = 0; i < 2 * r->gpu->core.rope_count; i++) {
        memcpy(r->rope + (i * f->tokens + begin) * pairs * 4,
               f->w->rope + (i * f->engine->batch + begin) * stride,
               (size_t)((end - begin) * pairs) * sizeof(float));
    }
    if (f->w->q_factor) {
        memcpy(r->q_factor + begin * 4, f->w->q_factor + begin, (size_t)(end - begin) * sizeof(float));
    }
    if (r->x) {
        memcpy(r->x + begin * width * 4, f->w->x + begin * width,
               (size_t)((end - begin) * width) * sizeof(float));
    }
}

/* Sends everything about the step that ops read from device memory: one copy, plus the stream if it comes
 * from another device. */
static mo_status send_block(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    const int64_t n = forward->tokens;
    const mo_gpu_block b = mo_gpu_block_of(&gpu->scratch, n);
    uint8_t *block = gpu->scratch.pinned.block;
    mo_dplace *places = (mo_dplace *)(void *)(block + b.places);
    mo_dslice *slices = (mo_dslice *)(void *)(block + b.slices);
    memset(block + b.bad, 0, (size_t)(b.sequence - b.bad));
    gpu->scratch.sequence = gpu->scratch.sequence + 1 ? gpu->scratch.sequence + 1 : 1;
    memcpy(block + b.sequence, &gpu->scratch.sequence, sizeof gpu->scratch.sequence);
    int64_t t = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        const mo_daddr table = mo_gpu_session_of(s->state, gpu)->table;
        slices[i] = (mo_dslice){
            .layers = table, .position = s->state->length, .first = (int32_t)t, .count = (int32_t)s->count};
        for (int64_t j = 0; j < s->count; j++, t++) {
            const int64_t position = forward->w->position[t];
            places[t] = (mo_dplace){.layers = table,
                                    .position = position,
                                    .slice = i,
                                    .into = (int32_t)j,
                                    .ahead = (int32_t)(mo_forward_end_seen(forward, t) - position - 1),
                                    .added = mo_forward_feature(forward, 0, t) != NULL};
        }
    }
    block_rows rows = {
        .gpu = gpu, .forward = forward, .rope = block + b.rope, .q_factor = block + b.q_factor};
    rows.x = mo_gpu_handover_from_host(gpu) ? block + b.x : NULL;
    if (n > COPY_ALONE) {
        mo_pool_run(forward->engine->pool, n, COPY_TOKENS, copy_rows, &rows);
    } else {
        copy_rows(&rows, 0, n, 0);
    }
    const mo_adapting *a = &forward->w->adapting;
    for (int64_t i = 0; a->count && i < n; i++) {
        memcpy(block + b.uses + i * (int64_t)sizeof(mo_dadapter_use) * MO_OP_USES, mo_adapting_uses(a, i),
               sizeof(mo_dadapter_use) * MO_OP_USES);
    }
    return mo_gpu_handover_take(gpu, &b, n, (size_t)(a->count ? b.bytes : b.uses), err);
}

/* ---- Few tokens ------------------------------------------------------------------------------- */

static mo_status run_small(mo_gpu *gpu, mo_forward *forward, mo_error *err)
{
    mo_gpu_program_set *set;
    mo_status status = mo_gpu_programs_find(&gpu->programs, forward, gpu->number, &set, err);
    if (status == MO_OK) {
        status = mo_gpu_programs_run(&gpu->programs, &set->segments[0], err);
        mo_gpu_clock_launched(gpu->lanes.clock, mo_clock_ns());
    }
    for (int i = 0; status == MO_OK && i + 1 < set->count; i++) {
        const mo_gpu_segment *s = &set->segments[i];
        const bool served = s->served, hosted = s->host_to > s->host_from;
        mo_gpu_service service = {0};
        status = mo_forward_cancelled(forward, err);
        if (status != MO_OK) {
            break;
        }
        if (served) {
            status = mo_gpu_lanes_serve(&gpu->lanes, forward, s->to - 1, gpu->number, &service, err);
        } else if (hosted) {
            status = mo_gpu_cpu_layers_meet(&gpu->lanes, forward, s->host_from, err);
        }
        if (status == MO_OK && service.deferred) {
            service.next = &set->segments[i + 1];
        } else if (status == MO_OK) {
            status = mo_gpu_programs_run(&gpu->programs, &set->segments[i + 1], err);
            if (status != MO_OK && served) {
                mo_gpu_lanes_abort(&gpu->lanes, forward, &service, status);
            }
        }
        if (status == MO_OK && served) {
            status = mo_gpu_lanes_reply(&gpu->lanes, forward, &service, err);
        } else if (status == MO_OK && hosted) {
            status = mo_gpu_cpu_layers_run(&gpu->lanes, forward, s->host_from, s->host_to, err);
        }
    }
    return status;
}

/* ---- A batch ---------------------------------------------------------------------------------- */

/* In a step of more tokens the host is at most twice this many layers ahead of the device, so that a cancel
 * takes effect soon, but far enough that the device never waits for it. */
enum { LONG_STEP = 1024, LOOK_LAYERS = 2 };

static mo_status look(mo_gpu *gpu, int layer, mo_error *err)
{
    const mo_status status = layer >= LOOK_LAYERS ? mo_event_wait(gpu->link.look, err) : MO_OK;
    return status == MO_OK ? mo_event_record(gpu->link.look, gpu->link.main, err) : status;
}

/* Sends the vectors that rows of pictures add after the layer to the memory of its mixer's output, through
 * the stream's pinned memory: after waiting, earlier data from there have arrived. */
static mo_status send_features(mo_gpu *gpu, const mo_forward *forward, int layer, mo_error *err)
{
    const int64_t n = gpu->core.spec->width;
    const int64_t place = mo_gpu_block_of(&gpu->scratch, forward->tokens).x;
    float *rows = (float *)(void *)(gpu->scratch.pinned.block + place);
    int64_t first = -1, end = 0;
    mo_status status = mo_event_wait(gpu->link.look, err);
    for (int64_t t = 0; t < forward->tokens && status == MO_OK; t++) {
        const float *row = mo_forward_feature(forward, layer, t);
        if (row) {
            memcpy(rows + t * n, row, sizeof *row * (size_t)n);
            first = first < 0 ? t : first;
            end = t + 1;
        }
    }
    if (status == MO_OK && first >= 0) {
        status =
            mo_gpu_link_put(&gpu->link, gpu->link.main, gpu->scratch.y + (mo_daddr)(first * n) * sizeof *rows,
                            rows + first * n, sizeof *rows * (size_t)((end - first) * n), err);
    }
    return status == MO_OK ? mo_event_record(gpu->link.look, gpu->link.main, err) : status;
}

static mo_status run_batch(mo_gpu *gpu, mo_forward *forward, mo_error *err)
{
    const bool experts = !forward->slices[0].routers_only;
    mo_op *ops = gpu->programs.batch_ops;
    mo_gpu_ops p = {.core = &gpu->core,
                    .scratch = &gpu->scratch,
                    .vram = gpu->experts.where.vram,
                    .tokens = forward->tokens,
                    .whole = mo_gpu_whole(gpu, forward),
                    .chunks = mo_gpu_chunks_seen(forward),
                    .slices = forward->slice_count,
                    .single_chunks = 1,
                    .kv = forward->slices[0].state->kv,
                    .adapting = forward->w->adapting.count ? &forward->w->adapting : NULL,
                    .adapters = &gpu->adapters,
                    .drafts = mo_forward_has_drafts(forward) ? &gpu->drafts : NULL,
                    .ops = ops,
                    .limit = gpu->programs.batch_ops_limit};
    p.bf16 = p.drafts                                                  ? NULL
             : mo_precision_products(&gpu->scratch.bf16.rule, p.whole) ? &gpu->scratch.bf16
                                                                       : NULL;
    mo_status status = MO_OK;
    while (p.singles < forward->slice_count && forward->slices[p.singles].count == 1) {
        const int64_t chunks = (mo_forward_end_seen(forward, p.singles++) - 1) / mo_kv_chunk(p.kv) + 1;
        p.single_chunks = chunks > p.single_chunks ? chunks : p.single_chunks;
    }
    mo_gpu_kv_staging kv_staging;
    status = mo_gpu_kv_staging_begin(gpu, forward, &kv_staging, err);
    if (status == MO_OK && forward->features) {
        status = mo_event_record(gpu->link.look, gpu->link.main, err);
    }
    mo_gpu_ops_begin(&p, gpu->core.first);
    for (int i = gpu->core.first; i < gpu->core.end && status == MO_OK; i++) {
        status = mo_forward_cancelled(forward, err);
        if (status != MO_OK) {
            break;
        }
        if (mo_gpu_layer_buffer_has(&gpu->layer_buffer, i)) {
            status = mo_gpu_ops_launch(&p, &gpu->link, gpu->link.main, err);
            p.count = 0;
            status = status == MO_OK ? mo_gpu_layer_buffer_enter(&gpu->layer_buffer, i, err) : status;
        }
        p.kv_staging = mo_gpu_kv_staging_positions(&kv_staging, gpu, i);
        mo_gpu_ops_mixer(&p, i);
        mo_gpu_ops_choose(&p, i);
        if (status == MO_OK) {
            status = p.kv_staging ? mo_gpu_kv_staging_launch(&kv_staging, gpu, forward, &p, i, err)
                                  : mo_gpu_ops_launch(&p, &gpu->link, gpu->link.main, err);
        }
        p.count = 0;
        mo_gpu_ops_side(&p, i);
        if (status == MO_OK) {
            status = mo_gpu_ops_launch(&p, &gpu->link, gpu->link.main, err);
        }
        p.count = 0;
        if (status == MO_OK && mo_gpu_layer_buffer_has(&gpu->layer_buffer, i)) {
            status = mo_gpu_layer_buffer_leave(&gpu->layer_buffer, i, err);
        }
        if (status == MO_OK && forward->tokens > LONG_STEP && i % LOOK_LAYERS == LOOK_LAYERS - 1) {
            status = look(gpu, i - gpu->core.first, err);
        }
        if (mo_gpu_batch_stays(gpu, forward, i, experts)) {
            mo_gpu_ops_all_groups(&p, i);
        } else if (status == MO_OK && gpu->core.spec->layers[i].routed) {
            status = mo_gpu_batch_feed_forward(gpu, forward, &p, i, experts, err);
            p.count = 0;
        }
        if (status == MO_OK && mo_forward_has_features(forward, i)) {
            status = mo_gpu_ops_launch(&p, &gpu->link, gpu->link.main, err);
            p.count = 0;
            status = status == MO_OK ? send_features(gpu, forward, i, err) : status;
            p.features = gpu->scratch.y;
        }
        mo_gpu_ops_merge(&p, i, true, experts);
        p.features = 0;
    }
    return status == MO_OK ? mo_gpu_ops_launch(&p, &gpu->link, gpu->link.main, err) : status;
}

/* ---- The whole step ---------------------------------------------------------------------------- */

/* Adapters of experts add between products that a small step's kernels fuse, so such a step runs layer by
 * layer, like a batch. */
static bool adapts_experts(const mo_adapting *a)
{
    for (int i = 0; i < a->count; i++) {
        if (a->lora[i]->experts) {
            return true;
        }
    }
    return false;
}

/* Without drafts, which are counted when they are accepted. */
static int64_t tokens_of(const mo_forward *forward)
{
    int64_t tokens = forward->tokens;
    for (int i = 0; i < forward->slice_count; i++) {
        tokens -= forward->slices[i].drafts;
    }
    return tokens;
}

/* Applies the changes since the device's last step. */
static mo_status begin_part(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    const bool drafts = mo_forward_has_drafts(forward);
    const int64_t tokens = (forward->slices[0].prompt ? 0 : tokens_of(forward)) + gpu->accepted;
    gpu->number++;
    gpu->accepted = 0;
    mo_gpu_clock_begin(gpu->lanes.clock, forward->tally && !drafts, mo_clock_ns());
    mo_status status = mo_hot_update_turn(gpu->hot.update, forward->tally, tokens, err);
    if (status == MO_OK) {
        status = mo_ahead_turn(&gpu->ahead, err);
    }
    return status == MO_OK ? mo_gpu_experts_map(&gpu->experts, err) : status;
}

/* Enqueues everything before a device's layers on its main stream. */
static mo_status send_all(mo_gpu *gpu, mo_forward *forward, bool small, mo_error *err)
{
    mo_status status = MO_OK;
    if (!small) {
        status = mo_gpu_batch_begin(gpu, forward, !forward->slices[0].routers_only, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_cpu_state_bring(gpu, forward, small, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_session_send(gpu, forward, err);
    }
    if (status == MO_OK) {
        mo_forward_begin(forward);
        status = mo_gpu_layer_buffer_begin(&gpu->layer_buffer, small, err);
    }
    if (status == MO_OK && mo_gpu_core_speaks(&gpu->core)) {
        status = mo_gpu_logits_begin(gpu, forward, err);
    }
    return status == MO_OK ? send_block(gpu, forward, err) : status;
}

/* Runs a device's layers and the ops around them. */
static mo_status run_part(mo_gpu *gpu, mo_forward *forward, bool small, mo_error *err)
{
    const bool together = small || mo_gpu_share_may(gpu, forward); /* host and device work layer by layer */
    const int64_t awake_ns = small ? STAY_AWAKE_NS : STAY_AWAKE_SHARED_NS;
    gpu->small = small;
    mo_pool_expect(forward->engine->pool, together && !gpu->memory.shares_cores ? awake_ns : 0);
    mo_status status = begin_part(gpu, forward, err);
    if (status == MO_OK && gpu == gpu->head) {
        status = mo_gpu_session_own(gpu, forward, err);
    }
    if (status == MO_OK) {
        status = send_all(gpu, forward, small, err);
    }
    if (status == MO_OK) {
        status = small ? run_small(gpu, forward, err) : run_batch(gpu, forward, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_finish(gpu, forward, small, err);
    }
    if (status != MO_OK) {
        mo_gpu_give_up(gpu);
    } else {
        gpu->steps++;
    }
    return status;
}

/* Runs one device after the other: each continues with the stream of the previous one. The CPU runs a lost
 * device's part. */
static mo_status run_parts(mo_gpu *head, mo_forward *forward, bool small, mo_error *err)
{
    mo_status status = MO_OK;
    for (mo_gpu *gpu = head; gpu && status == MO_OK; gpu = gpu->next) {
        if (gpu->lost) {
            status = mo_gpu_lost_run(gpu, forward, err);
            continue;
        }
        status = mo_gpu_split_begin(gpu, forward->split, err);
        if (status == MO_OK) {
            status = run_part(gpu, forward, small, err);
        }
        status = mo_gpu_split_end(gpu, forward->split, status, err);
        gpu->failed = status == MO_EDEVICE;
    }
    return status;
}

/* ---- In pieces -------------------------------------------------------------------------------- */

/* Runs a piece of a batch on one device, on its thread. The stream has been taken. */
static mo_status run_piece(mo_gpu *gpu, mo_forward *forward, mo_error *err)
{
    mo_status status = send_all(gpu, forward, false, err);
    if (status == MO_OK && gpu->before) {
        status = mo_event_record(gpu->link.look, gpu->link.main, err);
        status = status == MO_OK ? mo_event_wait(gpu->link.look, err) : status;
        if (status == MO_OK) {
            mo_gpu_pieces_took(gpu);
        }
    }
    if (status == MO_OK) {
        status = run_batch(gpu, forward, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_finish(gpu, forward, false, err);
    }
    if (status != MO_OK) {
        mo_gpu_give_up(gpu);
    }
    gpu->failed = status == MO_EDEVICE;
    return status;
}

/* Work for the whole step comes first: a piece changes nothing that others read. */
static mo_status run_pieces(mo_gpu *head, mo_forward *forward, mo_error *err)
{
    mo_status status = MO_OK;
    mo_gpu *unbegun = head; /* the first that has not begun */
    mo_pool_expect(forward->engine->pool, 0);
    for (; unbegun && status == MO_OK; unbegun = unbegun->next) {
        status = begin_part(unbegun, forward, err);
        unbegun->failed = status == MO_EDEVICE;
    }
    if (status == MO_OK) {
        status = mo_gpu_session_own(head, forward, err);
    }
    for (mo_gpu *gpu = head; gpu != unbegun && status != MO_OK; gpu = gpu->next) {
        mo_gpu_give_up(gpu);
    }
    if (status == MO_OK) {
        mo_forward_begin(forward);
        status = mo_gpu_pieces_run(head, forward, run_piece, err);
    }
    for (mo_gpu *gpu = head; gpu; gpu = gpu->next) {
        gpu->steps += status == MO_OK;
    }
    return status;
}

static mo_status run_step(mo_gpu *head, mo_forward *forward, mo_error *err)
{
    const bool small = forward->tokens <= GPU_SMALL && !forward->slices[0].routers_only &&
                       !forward->features && !adapts_experts(&forward->w->adapting);
    for (int i = 0; i < forward->slice_count; i++) {
        if (!forward->slices[i].state->gpu_session ||
            forward->slices[i].state->kv != forward->slices[0].state->kv) {
            return mo_fail(err, MO_EINVAL,
                           "sessions that share a step on a device must have the same `kv` format");
        }
    }
    const mo_status status = !small && mo_gpu_pieces_may(head, forward)
                                 ? run_pieces(head, forward, err)
                                 : run_parts(head, forward, small, err);
    if (status != MO_OK) {
        mo_gpu_session_doubt(head, forward);
    }
    mo_pool_expect(forward->engine->pool, 0);
    return status;
}

static void publish_all(mo_gpu *head)
{
    for (mo_gpu *gpu = head; gpu; gpu = gpu->next) {
        mo_gpu_report_publish(gpu);
    }
}

mo_status mo_gpu_step(void *owner, mo_forward *forward, mo_error *err)
{
    mo_gpu *gpu = owner;
    mo_gpu_turn_begin(&gpu->turn);
    const mo_status status = run_step(gpu, forward, err);
    publish_all(gpu);
    mo_gpu_turn_end(&gpu->turn);
    return status;
}

/* ---- Drafts ----------------------------------------------------------------------------------- */

/* For one device: small steps leave some layers to the CPU, which applies them itself. */
static mo_status apply_drafts(mo_gpu *gpu, mo_forward *forward, mo_error *err)
{
    const bool *skip = gpu->small && gpu->layer_buffer.cpu.count ? gpu->layer_buffer.cpu.layers : NULL;
    int32_t first = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        const int64_t accepted = s->drafts ? s->pick->accepted : 0;
        gpu->drafts.accepted[i] = (mo_dslice){.layers = mo_gpu_session_of(s->state, gpu)->table,
                                              .position = s->state->length,
                                              .first = first,
                                              .count = (int32_t)(s->count - s->drafts + accepted)};
        first += (int32_t)s->count;
        gpu->accepted += forward->slices[0].prompt ? 0 : accepted;
    }
    for (int i = gpu->core.first; i < gpu->core.end; i++) {
        forward->engine->drafts.applied[i] = !skip || !skip[i];
    }
    const mo_status status = mo_gpu_commit(&gpu->drafts, &gpu->link, forward->slice_count, skip, err);
    gpu->failed = status != MO_OK;
    return status;
}

mo_status mo_gpu_apply_drafts(void *owner, mo_forward *forward, mo_error *err)
{
    mo_gpu *head = owner;
    mo_status status = MO_OK;
    mo_gpu_turn_begin(&head->turn);
    mo_gpu_logits_accept(
        head, forward); /* first: if a device is lost, so are its rows, and no others are mistaken for them */
    for (mo_gpu *gpu = head; gpu && status == MO_OK; gpu = gpu->next) {
        status = gpu->lost ? MO_OK : apply_drafts(gpu, forward, err);
    }
    mo_gpu_turn_end(&head->turn);
    return status == MO_OK || status == MO_EDEVICE
               ? status
               : mo_fail_prefix(err, MO_EDEVICE, "the accepted tokens of a step cannot be applied");
}

bool mo_gpu_lose(void *owner, const mo_error *why)
{
    mo_gpu *gpu = owner;
    mo_gpu_turn_begin(&gpu->turn);
    const bool goes_on = mo_gpu_lost_find(gpu, why);
    for (mo_gpu *g = gpu; g && !goes_on; g = g->next) {
        mo_gpu_give_up(g); /* layers may be in flight for a step that will not run */
        mo_gpu_layer_buffer_end(&g->layer_buffer);
    }
    publish_all(gpu);
    mo_gpu_turn_end(&gpu->turn);
    return goes_on;
}
