/* The fetch lane: experts of a small step that are copied over the link while the CPU computes others. First
 * the experts are chosen. Then one thread's side_task, while the others compute, assigns slots and evictions
 * and makes the driver calls (three per expert, about ten for all), and launches the next segment. Without
 * the side task the calls alone took 64 us of a layer's 320 (Qwen3-30B on an H200). */
#include "base/clock.h"
#include "base/log.h"
#include "gpu/lanes.h"

/* ---- Worklists -------------------------------------------------------------------------------- */

/* A worklist: the rows and tokens that a fetched expert computes, written in pinned memory and sent to the
 * device. */
static uint8_t *list_at(const mo_gpu_lanes *lanes, int stage)
{
    return lanes->scratch->pinned.works + stage * lanes->scratch->pinned.work_bytes;
}

/* Appends the expert's rows to the list. */
static void add_rows(const mo_picks *p, uint8_t *list, int expert, mo_daddr base)
{
    mo_dwork *head = (mo_dwork *)(void *)list;
    mo_dwork_item *items = (mo_dwork_item *)(void *)(list + sizeof *head);
    const int64_t rows = mo_picks_rows(p);
    for (int64_t i = 0; i < rows; i++) {
        if (p->ids[i] == expert) {
            items[head->count++] = (mo_dwork_item){
                .base = base, .expert = expert, .token = (int32_t)(i / p->used), .row = (int32_t)i};
        }
    }
}

mo_daddr mo_gpu_worklist_one(const mo_gpu_lanes *lanes, const mo_picks *picks, int stage, int expert,
                             mo_daddr base)
{
    uint8_t *list = list_at(lanes, stage);
    *(mo_dwork *)(void *)list = (mo_dwork){0};
    add_rows(picks, list, expert, base);
    return lanes->scratch->fetched + (mo_daddr)(stage * lanes->scratch->pinned.work_bytes);
}

static int32_t items_of(const uint8_t *list)
{
    return ((const mo_dwork *)(const void *)list)->count;
}

static mo_status copy_list(mo_gpu_link *link, mo_dstream *stream, const uint8_t *list, mo_daddr to,
                           mo_error *err)
{
    return mo_gpu_link_put(link, stream, to, list,
                           sizeof(mo_dwork) + (size_t)items_of(list) * sizeof(mo_dwork_item), err);
}

mo_status mo_gpu_worklist_send(mo_gpu_lanes *lanes, int stage, mo_error *err)
{
    return copy_list(lanes->link, lanes->link->lane, list_at(lanes, stage),
                     lanes->scratch->fetched + (mo_daddr)(stage * lanes->scratch->pinned.work_bytes), err);
}

/* ---- Swap -------------------------------------------------------------------------------------
 *
 * If experts are also on disk, an expert that is copied to the device and stays there frees its slot in RAM,
 * and the expert whose slot it takes is copied back to RAM instead of being dropped. So neither tier loses
 * experts. At most one per layer, so that the copy back costs a layer's fetches at most one expert's time. */

/* The copy back takes the link as long as one miss, so the new expert must save one within this many tokens
 * (chosen, not fitted). When all experts were equally likely, nearly every layer exchanged one: 13 MB in
 * gpt-oss-120b, 240 us on an H200's link in layers of about 700 us, by calculation. */
#define SWAP_TOKENS 16.0

bool mo_gpu_swap_absent(const mo_gpu_experts *x)
{
    int32_t slots, present;
    int64_t bytes;
    mo_store_slots(x->where.store, &slots, &present, &bytes);
    for (const mo_gpu_experts *part = x->first; part; part = part->next) {
        int32_t filled;
        mo_vram_slots(part->where.vram, &slots, &filled, &bytes);
        present += part->lost ? 0 : filled;
    }
    return present < mo_store_experts(x->where.store)->expert_count;
}

/* Copies an expert that will leave its slot to RAM; false: impossible. It evicts another expert from RAM only
 * if some expert is in neither tier; otherwise that would cause disk reads again. */
static bool take_back(mo_gpu_lanes *lanes, mo_gpu_service *s, int layer, int expert)
{
    mo_gpu_experts *x = lanes->experts;
    const mo_gpu_layer *l = &lanes->core->layers[layer];
    const mo_expert *b = &lanes->core->spec->layers[layer].moe.expert[expert];
    const mo_weights *matrix[] = {&b->gate.w, &b->up.w, &b->down.w};
    const int64_t at[] = {0, l->up_at, l->down_at};
    const mo_daddr from = mo_where_address(&x->where, layer, expert);
    uint8_t *parts[3];
    mo_error ignored = {0};
    mo_status status = MO_OK;
    if (s->back.busy || !mo_store_take(x->where.store, layer, expert, mo_gpu_swap_absent(x), parts)) {
        return false;
    }
    for (int i = 0, m = 0; i < 3 && status == MO_OK; i++) {
        if (matrix[i]->rows == 0) {
            continue;
        }
        const int64_t bytes =
            matrix[i]->rows * mo_format_row_bytes(mo_format_of(matrix[i]->type), matrix[i]->cols);
        status = mo_gpu_link_copy_back(lanes->link, lanes->link->fetch, from + (mo_daddr)at[i], (size_t)bytes,
                                       parts[m++], &ignored);
    }
    if (status == MO_OK) {
        s->back.busy = true;
        s->back.layer = layer;
        s->back.expert = expert;
        return true;
    }
    lanes->link->failed++;
    status = status == MO_EDEVICE ? status : mo_dstream_wait(lanes->link->fetch, &ignored);
    mo_store_taken(x->where.store, layer, expert, status == MO_OK ? MO_STORE_FAILED : MO_STORE_UNSURE);
    return false;
}

static bool pays(const mo_gpu_experts *x, int layer, int expert, int victim_layer, int victim)
{
    const double comes = mo_vram_chance(x->where.vram, layer, expert),
                 goes = mo_vram_chance(x->where.vram, victim_layer, victim);
    return comes < 0 || (comes - goes) * SWAP_TOKENS >= 1.0; /* below 0: the policy has its own reasons */
}

static mo_daddr swap_slot(mo_gpu_lanes *lanes, mo_gpu_service *s, int expert)
{
    mo_gpu_experts *x = lanes->experts;
    int layer, victim;
    if (mo_where_placed(&x->where, s->layer,
                        expert)) { /* it is being read; until then it only passes through */
        return 0;
    }
    if (mo_vram_free(x->where.vram, s->layer) == 0) {
        if (!mo_vram_victim(x->where.vram, s->layer, &layer, &victim) ||
            (!mo_where_resident(&x->where, layer, victim) &&
             (!pays(x, s->layer, expert, layer, victim) || !take_back(lanes, s, layer, victim)))) {
            return 0;
        }
    }
    return mo_vram_acquire(x->where.vram, s->layer, expert);
}

/* An expert that left the device has arrived in RAM, or has not. */
static void settle(mo_gpu_lanes *lanes, mo_gpu_service *s, mo_status status)
{
    mo_error ignored = {0};
    if (!s->back.busy) {
        return;
    }
    s->back.busy = false;
    mo_store_arrival arrival = MO_STORE_ARRIVED;
    if (status != MO_OK) { /* the step ends: the progress of the copy is unknown */
        arrival = status != MO_EDEVICE && mo_dstream_wait(lanes->link->fetch, &ignored) == MO_OK
                      ? MO_STORE_FAILED
                      : MO_STORE_UNSURE;
    }
    mo_store_taken(lanes->experts->where.store, s->back.layer, s->back.expert, arrival);
}

void mo_gpu_fetch_leave(mo_gpu_lanes *lanes, const mo_need *needs, mo_gpu_service *s, mo_status status)
{
    mo_store *store = lanes->experts->where.store;
    if (!s->stored) {
        return;
    }
    settle(lanes, s, status);
    mo_store_leave(store);
    for (int i = 0; i < s->fetched && status == MO_OK; i++) {
        const int expert = needs[s->need[i]].expert;
        if (mo_where_address(&lanes->experts->where, s->layer, expert)) {
            mo_store_yield(store, s->layer, expert);
        }
    }
}

/* ---- Choosing ---------------------------------------------------------------------------------- */

/* Number of `count` experts to fetch so that the link and the CPU finish together. */
static int share_of_fetch(mo_gpu_lanes *lanes, int layer, int count)
{
    if (lanes->postfetch.mode == MO_POSTFETCH_OFF || lanes->postfetch.force_cpu) {
        return 0;
    }
    const int most = count < lanes->experts->stage_count ? count : lanes->experts->stage_count;
    return mo_lane_share(&lanes->rates, lanes->core->layers[layer].expert_bytes, count, most);
}

/* Assigns an expert to a slot of the pool, which it keeps, or to a stage. It is pinned while others look for
 * slots, because it will be copied and computed there. */
static void assign_place(mo_gpu_lanes *lanes, mo_gpu_service *service, int expert, int stage)
{
    mo_gpu_stage *s = &lanes->experts->stages[stage];
    const int layer = service->layer;
    const bool admit =
        mo_vram_admits(lanes->experts->where.vram) && mo_vram_has(lanes->experts->where.vram, layer);
    const mo_daddr slot = !admit            ? 0
                          : service->stored ? swap_slot(lanes, service, expert)
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

/* The policy must know the choice before it selects victims. */
static void touch(mo_gpu_lanes *lanes, const mo_picks *picks, const mo_gpu_service *s)
{
    for (int e = 0; e < picks->experts; e++) {
        if (picks->count[e] && mo_where_here(&lanes->experts->where, e)) {
            mo_vram_touch(lanes->experts->where.vram, s->layer, e, s->number, (uint32_t)picks->count[e]);
        }
    }
}

/* Assigns slots or stages to all fetched experts. */
static void assign_places(mo_gpu_lanes *lanes, const mo_forward *forward, mo_gpu_service *s)
{
    touch(lanes, &forward->w->picks, s);
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
            n->in_done = n->down_done = true; /* not for the CPU */
            s->need[s->fetched++] = (int16_t)i;
        }
    }
}

/* ---- Copying ----------------------------------------------------------------------------------- */

/* If a copy fails, the CPU computes the expert. */
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

/* Sends the list of fetched experts on the copy stream, before the copies; after them it would arrive last.
 * The second list, after a failed copy, has separate memory: the first one may be in flight. */
static mo_status send_list(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s,
                           int number, int32_t *items, mo_error *err)
{
    uint8_t *list = list_at(lanes, number);
    *(mo_dwork *)(void *)list = (mo_dwork){0};
    for (int i = 0; i < s->fetched; i++) {
        if (!s->failed[i]) {
            add_rows(&forward->w->picks, list, forward->w->needs[s->need[i]].expert,
                     lanes->experts->stages[i].to);
        }
    }
    *items = items_of(list);
    return copy_list(lanes->link, lanes->link->fetch, list, lanes->scratch->fetched, err);
}

/* Converts to the file's layout. Experts in stages are contiguous and need one op. */
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

/* The device computes arrived experts outside the stream that waits for the CPU: all at once, because each
 * call costs a thread as much as the products of a small expert. */
static mo_status compute(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s,
                         int32_t items, mo_error *err)
{
    mo_op ops[2];
    mo_gpu_ops p = mo_gpu_lanes_ops(lanes, forward, ops, 2);
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

/* Copies fetched experts [from, to); *failed counts failures. */
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

/* If experts are converted after arrival, the first copy starts before slots are chosen. */
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

/* The step ends here, and the contents of the reserved slots are unknown: empties them. */
static void forget(mo_gpu_lanes *lanes, const mo_need *needs, const mo_gpu_service *s)
{
    for (int i = 0; i < s->fetched; i++) {
        const int expert = needs[s->need[i]].expert;
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
        touch(lanes, &forward->w->picks, s);
        if (lanes->postfetch.debug && lanes->postfetch.mode != MO_POSTFETCH_OFF && s->count && !s->sent) {
            mo_log_asked(MO_LOG_INFO, "postfetch",
                         "layer %d: transferring none of %d missing experts; the CPU computes them", s->layer,
                         s->count);
        }
    }
    if (status != MO_OK) {
        forget(lanes, forward->w->needs, s);
        return status;
    }
    status = mo_gpu_experts_map(lanes->experts, err);
    return status == MO_OK && s->next ? mo_gpu_programs_run(lanes->programs, s->next, err) : status;
}
