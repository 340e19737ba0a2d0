/* Exchanges of the hot cache: while tokens are generated, what was used more takes the place of what was used less. A copy
 * travels in the background to a spare slot, and only when it has arrived the device's map changes, both entries at once,
 * between two steps: nothing stops, nothing is read while it is written, and a copy that fails leaves everything as it
 * was.
 *
 * The document leaves open when a long request is looked at. Its author's updates come after a request, so does ours;
 * but one answer may have thousands of tokens, and neighbours of that work rebalance every few dozen, so an update
 * comes every WINDOW generated tokens as well. Each has the reference's cap of its own. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/status.h"
#include "gpu/parts.h"

enum { WINDOW = 64 }; /* generated tokens between two updates */

/* ---- Planning ---- */

bool mo_gpu_has_slots(const mo_gpu *gpu)
{
    int32_t slots, filled;
    int64_t bytes;
    mo_vram_slots(gpu->experts.vram, &slots, &filled, &bytes);
    return slots > 0;
}

static const mo_gpu_move *move_of(const mo_gpu_cache *h, int layer, int expert, bool add)
{
    for (int i = 0; i < h->move_count; i++) {
        const mo_gpu_move *m = &h->moves[i];
        if (m->busy && m->x.layer == layer && (add ? m->x.add : m->x.evict) == expert) {
            return m;
        }
    }
    return NULL;
}

/* What lies in slots, layer by layer; exchanges under way count as done, and stay. One block of memory: free() it. */
static mo_resident *list_residents(const mo_gpu *gpu, int32_t *layers)
{
    const mo_model_spec *f = gpu->core.spec;
    size_t cells = 0;
    for (int i = 0; i < f->layer_count; i++) {
        cells += f->layers[i].routed ? (size_t)f->layers[i].moe.experts : 0;
    }
    mo_resident *list =
        calloc(1, (size_t)(f->layer_count + 1) * sizeof *list + cells * (sizeof(int32_t) + sizeof(bool)));
    int32_t *expert = (int32_t *)(list + f->layer_count + 1);
    bool *kept = (bool *)(expert + cells);
    *layers = 0;
    for (int i = 0; list && i < f->layer_count; i++) {
        if (!f->layers[i].routed) {
            continue;
        }
        mo_resident *r = &list[(*layers)++];
        *r = (mo_resident){.layer = i, .experts = f->layers[i].moe.experts, .expert = expert, .kept = kept};
        for (int32_t e = 0; e < r->experts; e++) {
            const bool coming = move_of(&gpu->hot, i, e, true) != NULL;
            if (coming || (mo_vram_find(gpu->experts.vram, i, e) && !move_of(&gpu->hot, i, e, false))) {
                kept[r->slots] = coming;
                expert[r->slots++] = e;
            }
        }
        expert += r->slots;
        kept += r->slots;
    }
    return list;
}

static mo_status plan(const mo_gpu *gpu, const mo_profile *profile, const mo_weighting_options *weighting,
                      double rate, mo_exchange **list, size_t *count, mo_exchange_stats *stats, mo_error *err)
{
    int32_t layers;
    mo_resident *residents = list_residents(gpu, &layers);
    *list = NULL;
    *count = 0;
    *stats = (mo_exchange_stats){0};
    const mo_status status = residents ? mo_exchange_from_profile(profile, weighting, residents, layers, rate,
                                                                  list, count, stats, err)
                                       : mo_fail(err, MO_ENOMEM, "no memory for planning exchanges");
    free(residents);
    return status;
}

/* What a pick that misses costs: both lanes share such work where experts are fetched at all. */
static mo_exchange_rates rates_of(const mo_gpu *gpu)
{
    const bool fetches = gpu->lanes.postfetch.mode != MO_POSTFETCH_OFF && !gpu->lanes.postfetch.force_cpu;
    const double cpu = gpu->lanes.cpu_rate.s_per_byte, link = gpu->lanes.fetch_rate.s_per_byte;
    return (mo_exchange_rates){.miss = fetches ? cpu * link / (cpu + link) : cpu, .copy = link};
}

/* The next update looks at what is counted from now on. */
static mo_status look_from_here(mo_gpu_cache *h, const mo_tally *tally, mo_error *err)
{
    mo_profile *now = NULL;
    const mo_status status = mo_tally_snapshot(tally, &now, err);
    if (status == MO_OK) {
        mo_profile_free(h->before);
        h->before = now;
        h->tokens = 0;
    }
    return status;
}

static mo_status plan_update(mo_gpu *gpu, const mo_tally *tally, mo_error *err)
{
    mo_gpu_cache *h = &gpu->hot;
    mo_profile *window = NULL;
    mo_exchange *list = NULL;
    mo_exchange_stats stats = {0};
    size_t count = 0;
    mo_status status = mo_tally_snapshot(tally, &window, err);
    if (status == MO_OK && h->before) {
        mo_profile_subtract(window, h->before);
    }
    if (status == MO_OK) {
        status = plan(gpu, window, &h->weighting, h->rate, &list, &count, &stats, err);
    }
    if (status == MO_OK && stats.hot_slots + stats.cold_slots > 0) {
        const mo_exchange_rates rates = rates_of(gpu);
        const size_t pay = mo_exchange_pay_back(list, count, window, &rates);
        free(h->list); /* what was not begun was planned from older counts */
        h->list = list;
        h->count = pay;
        list = NULL;
        gpu->hot.updates++;
        mo_log(MO_LOG_INFO, "device",
               "%.1f %% of the picks were hot; %zu of %" PRIu64 " experts in %" PRIu64
               " layers are being exchanged, %" PRIu64 " would have helped, %zu would not have paid",
               100.0 * stats.hit_rate, pay, stats.hot_experts, mo_exchange_layers(h->list, pay),
               stats.candidates, count - pay);
        if (pay > 0 || h->tokens > WINDOW) { /* short requests that show too little are looked at together */
            status = look_from_here(h, tally, err);
        }
    }
    free(list);
    mo_profile_free(window);
    return status;
}

/* An update that cannot be planned costs hits, not the step. */
static void update(mo_gpu *gpu, const mo_tally *tally)
{
    mo_error err = {0};
    if (plan_update(gpu, tally, &err) != MO_OK) {
        gpu->hot.tokens = 0; /* try again later, not at every token */
        mo_log(MO_LOG_WARN, "device", "the hot cache stays as it is: %s", err.detail);
    }
}

/* ---- Copies in the background ---- */

/* What has arrived takes its place, and what it replaces leaves a spare slot behind. */
static mo_status land(mo_gpu *gpu, bool wait, mo_error *err)
{
    mo_gpu_cache *h = &gpu->hot;
    mo_status status = wait && h->stream ? mo_dstream_wait(h->stream, err) : MO_OK;
    for (int i = 0; i < h->move_count && status == MO_OK; i++) {
        mo_gpu_move *m = &h->moves[i];
        bool done = false;
        if (m->busy) {
            status = mo_event_query(m->ready, &done, err);
        }
        if (status == MO_OK && done) {
            mo_vram_landed(gpu->experts.vram, m->x.layer, m->x.add);
            mo_vram_drop(gpu->experts.vram, m->x.layer, m->x.evict);
            m->busy = false;
            gpu->hot.exchanged++;
        }
    }
    return status;
}

static mo_status send(mo_gpu *gpu, const mo_gpu_move *m, const mo_exchange *x, mo_daddr to, mo_error *err)
{
    mo_op ops[1];
    mo_gpu_plan p = {.gpu = gpu, .ops = ops, .limit = 1};
    mo_dstream *stream = gpu->hot.stream;
    const bool interleaved = mo_gpu_interleaved(gpu, x->layer);
    int64_t bytes = 0;
    mo_status status =
        mo_gpu_copy_brick(gpu, stream, x->layer, x->add, interleaved ? m->stage : to, &bytes, err);
    if (status == MO_OK && interleaved) {
        mo_gpu_restore(&p, x->layer, m->stage, to, 1, -1);
        status = mo_gpu_launch(stream, &p, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(m->ready, stream, err);
    }
    if (status == MO_OK && gpu->experts.store) { /* its place in RAM is safe until the step begins */
        status = mo_event_wait(m->ready, err);
    }
    return status;
}

/* False: not now, for want of a spare slot, or because the expert is on disk. One that was cold often will be read for
 * its own sake before long, so no read is begun here. */
static bool begin(mo_gpu *gpu, mo_gpu_move *m, const mo_exchange *x, mo_status *status, mo_error *err)
{
    if (!mo_vram_find(gpu->experts.vram, x->layer, x->evict) ||
        mo_vram_find(gpu->experts.vram, x->layer, x->add)) {
        return true; /* no longer an exchange */
    }
    const mo_daddr to =
        mo_gpu_in_ram(gpu, x->layer, x->add) ? mo_vram_take_free(gpu->experts.vram, x->layer, x->add) : 0;
    if (!to) {
        return false;
    }
    *status = send(gpu, m, x, to, err);
    m->x = *x;
    m->busy = *status == MO_OK;
    if (*status != MO_OK) {
        mo_vram_drop(gpu->experts.vram, x->layer, x->add);
        gpu->hot.exchange_failed++;
        *status = *status == MO_EDEVICE ? MO_EDEVICE : MO_OK; /* the old expert serves on */
    }
    return true;
}

static mo_status begin_some(mo_gpu *gpu, mo_error *err)
{
    mo_gpu_cache *h = &gpu->hot;
    mo_status status = MO_OK;
    size_t kept = 0;
    for (size_t i = 0; i < h->count; i++) {
        mo_gpu_move *idle = NULL;
        for (int k = 0; k < h->move_count && !idle; k++) {
            idle = h->moves[k].busy ? NULL : &h->moves[k];
        }
        if (!idle || status != MO_OK || !begin(gpu, idle, &h->list[i], &status, err)) {
            h->list[kept++] = h->list[i];
        }
    }
    h->count = kept;
    return status;
}

mo_status mo_gpu_hot_turn(mo_gpu *gpu, const mo_forward *forward, mo_error *err)
{
    mo_gpu_cache *h = &gpu->hot;
    if (h->move_count == 0) { /* what the map was not told when a copy failed */
        return mo_vram_switch(gpu->experts.vram, gpu->link.main, err);
    }
    mo_status status = land(gpu, false, err);
    h->tokens += forward->slices[0].prompt ? 0 : forward->tokens;
    if (status == MO_OK && h->tokens > WINDOW && forward->engine->tally) {
        update(gpu, forward->engine->tally);
    }
    if (status == MO_OK) {
        status = begin_some(gpu, err);
    }
    return status == MO_OK ? mo_vram_switch(gpu->experts.vram, gpu->link.main, err) : status;
}

mo_status mo_gpu_request_done(mo_gpu *gpu, const mo_tally *tally, mo_error *err)
{
    if (gpu->hot.move_count == 0 || !tally) {
        return MO_OK;
    }
    const mo_status status = land(gpu, false, err);
    if (status != MO_OK) {
        return status;
    }
    update(gpu, tally);
    return begin_some(gpu, err);
}

/* ---- By hand ---- */

/* The old expert comes back after a copy in its place failed. False: that failed as well, and *err says why. */
static bool put_back(mo_gpu *gpu, const mo_exchange *x, int number, mo_error *err)
{
    int64_t bytes = 0;
    if (gpu->experts.store && mo_store_bring(gpu->experts.store, x->layer, x->evict, err) != MO_OK) {
        return false;
    }
    const mo_daddr to = mo_vram_take_free(gpu->experts.vram, x->layer, x->evict);
    if (mo_gpu_send_to_slot(gpu, x->layer, x->evict, to, number, &bytes, err) != MO_OK ||
        mo_dstream_wait(gpu->link.main, err) != MO_OK) {
        mo_vram_drop(gpu->experts.vram, x->layer, x->evict);
        return false;
    }
    mo_vram_landed(gpu->experts.vram, x->layer, x->evict);
    return true;
}

/* After a copy that failed: nothing of it lies in a slot, the old expert does if it can, and *err tells which. */
static mo_status give_up(mo_gpu *gpu, const mo_exchange *x, bool in_place, int number, mo_status status,
                         mo_error *err)
{
    mo_error second = {0};
    if (status != MO_EDEVICE) { /* parts that went well may still be on their way to the slot */
        mo_dstream_wait(gpu->link.fetch, &second);
    }
    mo_vram_drop(gpu->experts.vram, x->layer, x->add);
    gpu->hot.exchange_failed++;
    if (status == MO_EDEVICE) {
        return status;
    }
    const bool kept = !in_place || put_back(gpu, x, number, &second);
    return mo_fail_prefix(err, status, "layer %d: expert %d cannot take the place of expert %d, %s", x->layer,
                          x->add, x->evict,
                          kept ? "which stays" : "which could not come back either; the CPU computes both");
}

/* The new expert goes to a spare slot, or else in the old one's place; then the old one comes back if the copy fails. */
static mo_status exchange_now(mo_gpu *gpu, const mo_exchange *x, int number, mo_error *err)
{
    int64_t bytes = 0;
    mo_status status = gpu->experts.store ? mo_store_bring(gpu->experts.store, x->layer, x->add, err) : MO_OK;
    if (status != MO_OK) {
        return status;
    }
    mo_daddr to = mo_vram_take_free(gpu->experts.vram, x->layer, x->add);
    const bool in_place = !to;
    if (in_place) {
        mo_vram_drop(gpu->experts.vram, x->layer, x->evict);
        to = mo_vram_take_free(gpu->experts.vram, x->layer, x->add);
    }
    status = mo_gpu_send_to_slot(gpu, x->layer, x->add, to, number, &bytes, err);
    if (status == MO_OK && gpu->experts.store) {
        status = mo_dstream_wait(gpu->link.main, err);
    }
    if (status != MO_OK) {
        return give_up(gpu, x, in_place, number + 1, status, err);
    }
    mo_vram_landed(gpu->experts.vram, x->layer, x->add);
    gpu->hot.exchanged++;
    if (!in_place) {
        mo_vram_drop(gpu->experts.vram, x->layer, x->evict);
    }
    return MO_OK;
}

/* Nothing is under way, and nothing that a batch sent ahead counts: its stages are used here. */
static mo_status rest(mo_gpu *gpu, mo_error *err)
{
    mo_status status = land(gpu, true, err);
    gpu->hot.count = 0;
    if (status == MO_OK) {
        status = mo_dstream_wait(gpu->link.fetch, err);
    }
    while (status == MO_OK && gpu->experts.window_tail < gpu->experts.window_head) {
        status = mo_gpu_window_retire(gpu, err);
    }
    return status;
}

/* And waits: before that stages are in use that a batch would fill. A map that cannot be told now is told by the next
 * step. */
static mo_status tell_map(mo_gpu *gpu, mo_error *err)
{
    mo_error second = {0};
    mo_status status;
    int tries = 0;
    do {
        status = mo_vram_switch(gpu->experts.vram, gpu->link.main, err);
    } while (mo_gpu_again(gpu, gpu->link.main, &tries, &status, err));
    const mo_status waited = mo_dstream_wait(gpu->link.main, &second);
    if (status == MO_OK && waited != MO_OK) {
        *err = second;
    }
    return status == MO_OK ? waited : status;
}

mo_status mo_gpu_apply(mo_gpu *gpu, const mo_profile *profile, const mo_weighting_options *weighting,
                       double rate, const mo_tally *tally, mo_exchange_stats *stats, mo_error *err)
{
    mo_exchange *list = NULL;
    size_t count = 0, done = 0;
    *stats = (mo_exchange_stats){0};
    mo_status status = rest(gpu, err);
    if (status == MO_OK) {
        status = plan(gpu, profile, weighting, rate, &list, &count, stats, err);
    }
    while (status == MO_OK && done < count) {
        status = exchange_now(gpu, &list[done], (int)done, err);
        done += status == MO_OK;
    }
    stats->exchanged = done;
    stats->layers_changed = mo_exchange_layers(list, done);
    free(list);
    mo_error later = {0}; /* the map is told what was done, whatever else went wrong */
    mo_status told = tell_map(gpu, &later);
    if (status == MO_OK && told != MO_OK) {
        *err = later;
        status = told;
    }
    return status == MO_OK && tally ? look_from_here(&gpu->hot, tally, err) : status;
}
