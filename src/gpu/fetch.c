/* The fetch lane: experts of a small step that cross the link while the CPU computes others. Which ones is decided
 * first. Where they stay and who has to go for them, the driver's calls, three for each expert, some ten for all, and the
 * launch of what follows are then one thread's side_task while the others compute: the calls alone took 64 us of a layer's
 * 320 before (Qwen3-30B on an H200). */
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "gpu/lanes.h"

/* How many of `count` experts to fetch, so that the link and the CPU end together. */
static int share_of_fetch(mo_gpu_lanes *lanes, int layer, int count)
{
    if (lanes->postfetch.mode == MO_POSTFETCH_OFF || lanes->postfetch.force_cpu) {
        return 0;
    }
    const int most = count < lanes->experts->stage_count ? count : lanes->experts->stage_count;
    return mo_lane_share(&lanes->cpu_rate, &lanes->fetch_rate, lanes->core->layers[layer].expert_bytes, count,
                         most);
}

/* ---- Deciding --------------------------------------------------------------------------------- */

/* A expert goes to a slot of the pool, which it then keeps, or to a stage. Pinned as long as others look for slots: it
 * will be copied and computed there. */
static void assign_place(mo_gpu_lanes *lanes, mo_gpu_service *service, int expert, int stage)
{
    mo_gpu_stage *s = &lanes->experts->stages[stage];
    const int layer = service->layer;
    const bool admit =
        mo_vram_admits(lanes->experts->where.vram) && mo_vram_has(lanes->experts->where.vram, layer);
    const mo_daddr slot = !admit            ? 0
                          : service->stored ? mo_gpu_swap_slot(lanes, service, expert)
                                            : mo_vram_acquire(lanes->experts->where.vram, layer, expert);
    s->to = slot ? slot : s->plain;
    if (slot) {
        mo_vram_landed(lanes->experts->where.vram, layer, expert);
        mo_vram_pin(lanes->experts->where.vram, layer, expert);
    }
    if (!mo_gpu_core_expert_pinned(lanes->core, lanes->link, layer, expert)) {
        mo_gpu_clock_fall(lanes->clock, layer, MO_FALLBACK_UNPINNED);
    }
}

/* The policy is told what was chosen before anybody asks them who has to go. */
static void touch(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s)
{
    const int32_t *count = forward->w->picks.count;
    for (int e = 0; e < forward->layer->moe.experts; e++) {
        if (count[e] && mo_where_here(&lanes->experts->where, e)) {
            mo_vram_touch(lanes->experts->where.vram, s->layer, e, s->number, (uint32_t)count[e]);
        }
    }
}

/* Places for all that cross. */
static void assign_places(mo_gpu_lanes *lanes, const mo_forward *forward, mo_gpu_service *s)
{
    touch(lanes, forward, s);
    for (int i = 0; i < s->fetched; i++) {
        if (!s->failed[i]) {
            assign_place(lanes, s, forward->w->needs[s->need[i]].expert, i);
        } else {
            lanes->experts->stages[i].to = lanes->experts->stages[i].plain;
        }
    }
    for (int i = 0; i < s->fetched; i++) {
        const int expert = forward->w->needs[s->need[i]].expert;
        if (mo_where_address(&lanes->experts->where, s->layer, expert)) {
            mo_vram_unpin(lanes->experts->where.vram, s->layer, expert);
        }
    }
}

void mo_gpu_fetch_choose(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s)
{
    mo_need *needs = forward->w->needs;
    int ready = 0;
    for (int i = 0; i < s->count; i++) {
        ready += !s->stored || (needs[i].in && needs[i].down);
    }
    const int wanted = share_of_fetch(lanes, s->layer, ready);
    for (int i = 0; i < s->count && s->fetched < wanted; i++) {
        mo_need *n = &needs[i];
        if (!s->stored || (n->in && n->down)) {
            n->in_done = n->down_done = true; /* not the CPU's */
            s->need[s->fetched++] = (int16_t)i;
        }
    }
}

/* ---- Doing ------------------------------------------------------------------------------------ */

/* A copy that fails makes the expert the CPU's. */
static mo_status copy_expert(mo_gpu_lanes *lanes, mo_forward *forward, int stage, mo_gpu_service *s,
                             mo_error *err)
{
    mo_need *need = &forward->w->needs[s->need[stage]];
    const mo_gpu_stage *to = &lanes->experts->stages[stage];
    int64_t bytes = 0;
    const mo_status status = mo_gpu_core_copy_expert(
        lanes->core, lanes->link, lanes->link->fetch, s->layer, need->expert,
        mo_gpu_core_interleaved(lanes->core, s->layer) ? to->memory : to->to, &bytes, err);
    if (status == MO_OK) {
        s->fetched_bytes += bytes;
        lanes->experts->fetched++;
        lanes->experts->fetched_bytes += (uint64_t)bytes;
        if (lanes->postfetch.debug) {
            const bool kept = mo_where_address(&lanes->experts->where, s->layer, need->expert) != 0;
            mo_log_asked(MO_LOG_INFO, "postfetch", "layer %d: expert %d: whole, %lld bytes to %s", s->layer,
                         need->expert, (long long)bytes, kept ? "a slot" : "a stage");
        }
        return MO_OK;
    }
    if (mo_where_address(&lanes->experts->where, s->layer, need->expert)) {
        mo_vram_drop(lanes->experts->where.vram, s->layer, need->expert);
    }
    lanes->link->failed++;
    mo_gpu_clock_fall(lanes->clock, s->layer, MO_FALLBACK_FAILED);
    need->in_done = need->down_done = false;
    s->failed[stage] = true;
    return status == MO_EDEVICE ? MO_EDEVICE : MO_OK;
}

/* The list of what crosses, on the stream of the copies: behind them it would be the last to arrive. The second, after a
 * copy that failed, has memory of its own: the first may be on its way. */
static mo_status send_list(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s,
                           int number, int32_t *items, mo_error *err)
{
    uint8_t *list = mo_gpu_worklist_at(lanes, number);
    *(mo_dwork *)(void *)list = (mo_dwork){0};
    for (int i = 0; i < s->fetched; i++) {
        if (!s->failed[i]) {
            mo_gpu_worklist_add(forward, list, forward->w->needs[s->need[i]].expert,
                                lanes->experts->stages[i].to);
        }
    }
    *items = mo_gpu_worklist_items(list);
    return mo_gpu_worklist_copy(lanes->link, lanes->link->fetch, list, lanes->scratch->fetched, err);
}

/* To the file's layout: those that stay in stages are side by side and need one op. */
static mo_status straighten(mo_gpu_lanes *lanes, const mo_gpu_service *s, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0, run; i < s->fetched && status == MO_OK; i += run) {
        const mo_gpu_stage *from = &lanes->experts->stages[i];
        for (run = 1; from->to == from->plain && i + run < s->fetched; run++) {
            if (lanes->experts->stages[i + run].to != lanes->experts->stages[i + run].plain) {
                break;
            }
        }
        const mo_op op = mo_gpu_core_restore(lanes->core, s->layer, from->memory, from->to, run,
                                             lanes->experts->stage_bytes, -1);
        status = mo_gpu_link_launch(lanes->link, lanes->link->lane, &op, 1, err);
    }
    return status;
}

/* The device computes what has arrived beside the stream that waits for the CPU: all of it at once, since every call
 * costs a thread as much as the products of a small expert take. */
static mo_status compute(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s,
                         int32_t items, mo_error *err)
{
    mo_op ops[2];
    mo_gpu_ops p = {.core = lanes->core,
                    .scratch = lanes->scratch,
                    .vram = lanes->experts->where.vram,
                    .tokens = forward->tokens,
                    .slices = forward->slice_count,
                    .ops = ops,
                    .limit = 2};
    mo_status status = mo_dstream_after(lanes->link->lane, lanes->fetch_to, err);
    if (status == MO_OK && items && mo_gpu_core_interleaved(lanes->core, s->layer)) {
        status = straighten(lanes, s, err);
    }
    if (status == MO_OK && items) {
        mo_gpu_ops_expert(&p, s->layer, lanes->scratch->fetched, items);
        status = mo_gpu_ops_launch(&p, lanes->link, lanes->link->lane, err);
    }
    return status;
}

/* Copies [from, to) of what crosses; *failed counts those that did not. */
static mo_status copy_experts(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, int from, int to,
                              int *failed, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = from; i < to && status == MO_OK; i++) {
        status = copy_expert(lanes, forward, i, s, err);
        *failed += s->failed[i];
    }
    return status;
}

/* Where experts are put in order after they have arrived, the first copy starts before slots are chosen. */
static mo_status fetch_all(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, mo_error *err)
{
    const int first = mo_gpu_core_interleaved(lanes->core, s->layer) ? 1 : 0;
    int failed = 0;
    int32_t items = 0;
    if (first == 0) {
        assign_places(lanes, forward, s);
    }
    mo_status status = mo_event_record(lanes->fetch_from, lanes->link->fetch, err);
    mo_gpu_clock_fetch(lanes->clock, s->layer, mo_clock_ns());
    if (lanes->postfetch.debug) {
        mo_log_asked(MO_LOG_INFO, "postfetch", "layer %d: transferring %d of %d missing experts, %.2f MiB",
                     s->layer, s->fetched, s->count,
                     (double)(s->fetched * lanes->core->layers[s->layer].expert_bytes) / (1 << 20));
    }
    status = status == MO_OK ? copy_experts(lanes, forward, s, 0, first, &failed, err) : status;
    if (status == MO_OK && first > 0) {
        assign_places(lanes, forward, s);
    }
    status = status == MO_OK ? send_list(lanes, forward, s, 0, &items, err) : status;
    failed = 0;
    status = status == MO_OK ? copy_experts(lanes, forward, s, first, s->fetched, &failed, err) : status;
    if (status == MO_OK && failed) {
        status = send_list(lanes, forward, s, 1, &items, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(lanes->fetch_to, lanes->link->fetch, err);
    }
    if (status == MO_OK) {
        status = compute(lanes, forward, s, items, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(lanes->lane_done, lanes->link->lane, err);
    }
    return status == MO_OK ? mo_dstream_after(lanes->link->main, lanes->lane_done, err) : status;
}

/* The step ends here, and the contents of the reserved slots are unknown: they are empty. */
static void forget(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s)
{
    for (int i = 0; i < s->fetched; i++) {
        const int expert = forward->w->needs[s->need[i]].expert;
        if (mo_where_address(&lanes->experts->where, s->layer, expert)) {
            mo_vram_drop(lanes->experts->where.vram, s->layer, expert);
        }
    }
}

mo_status mo_gpu_fetch_submit(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, mo_error *err)
{
    mo_status status = MO_OK;
    if (s->fetched) {
        status = fetch_all(lanes, forward, s, err);
    } else {
        touch(lanes, forward, s);
    }
    if (status != MO_OK) {
        forget(lanes, forward, s);
        return status;
    }
    status = mo_gpu_experts_map(lanes->experts, err);
    return status == MO_OK && s->next ? mo_gpu_programs_run(lanes->programs, s->next, err) : status;
}
