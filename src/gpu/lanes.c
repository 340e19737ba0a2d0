/* Lanes: the host's part of a layer whose experts do not all lie on the device. What does is already under way there;
 * of the rest, some cross the link and are computed by the device, the others are computed here, so that both end
 * together. */
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "gpu/parts.h"

/* The host looks whether the device still lives after waiting so long for it, and gives it up in the end. */
#define LOOK_NS    ((int64_t)50 * 1000 * 1000)
#define SPIN_NS    ((int64_t)50 * 1000)
#define GIVE_UP_NS ((int64_t)20 * 1000 * 1000 * 1000)

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- What the device chose -------------------------------------------------------------------- */

mo_status mo_gpu_await_flag(mo_gpu *gpu, int layer, mo_error *err)
{
    const uint32_t *flag = &gpu->scratch.pinned.flags[layer];
    const int64_t began = mo_clock_ns();
    int64_t looked = began;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != gpu->scratch.sequence) {
        for (int i = 0; i < 32; i++) {
            relax();
        }
        const int64_t now = mo_clock_ns();
        if (now - began > SPIN_NS) { /* somebody else may need this core, a simulated device above all */
            sched_yield();
        }
        if (now - looked > LOOK_NS) {
            bool done;
            const mo_status status = mo_event_query(gpu->lanes.lane_done, &done, err);
            if (status != MO_OK) {
                return status;
            }
            looked = now;
        }
        if (now - began > GIVE_UP_NS) {
            return mo_fail(err, MO_EDEVICE, "the device did not answer within 20 seconds");
        }
    }
    const int64_t seen = mo_clock_ns();
    gpu->lanes.wait_ns += (uint64_t)(seen - began);
    mo_gpu_clock_seen(gpu->lanes.clock, layer, seen);
    return MO_OK;
}

/* ids to the workspace; the experts that are not on the device become needs, each with a row for every token that
 * chose it: side by side, or apart, in the order of tokens and ranks. */
static int sort_choice(mo_gpu *gpu, mo_forward *forward, int layer, bool apart)
{
    const mo_moe *moe = &forward->layer->moe;
    mo_workspace *w = forward->w;
    const int64_t rows = forward->tokens * moe->used;
    int32_t next = 0;
    int count = 0;
    memcpy(w->ids, gpu->scratch.pinned.ids, sizeof(int32_t) * (size_t)rows);
    memset(w->first, 0, sizeof(int32_t) * (size_t)(moe->experts + 1));
    for (int64_t i = 0; i < rows; i++) {
        w->first[w->ids[i]]++;
    }
    for (int e = 0; e < moe->experts; e++) {
        const uint32_t picks = (uint32_t)w->first[e];
        if (picks == 0) {
            continue;
        }
        forward->engine->counters.bricks_run++;
        gpu->experts.asked++;
        if (mo_vram_find(gpu->experts.vram, layer, e)) {
            gpu->experts.hits++;
            mo_vram_pin(gpu->experts.vram, layer, e);
            w->first[e] = -1;
        } else {
            w->needs[count++] = (mo_need){.expert = e, .picks = picks};
            w->first[e] = next;
            next += (int32_t)picks;
        }
    }
    forward->engine->counters.expert_picks += (uint64_t)rows;
    for (int64_t i = 0; i < rows; i++) {
        const int32_t e = w->ids[i];
        if (w->first[e] < 0) {
            w->row_of[i] = -1;
        } else if (apart) { /* its row is its rank: the result needs no copy */
            w->row_of[i] = w->first[e] = (int32_t)i;
            w->by_expert[i] = (int32_t)(i / moe->used);
        } else {
            w->row_of[i] = w->first[e]++;
            w->by_expert[w->row_of[i]] = (int32_t)(i / moe->used);
        }
    }
    for (int i = 0; !apart && i < count; i++) { /* back to the beginnings */
        w->first[w->needs[i].expert] -= (int32_t)w->needs[i].picks;
    }
    return count;
}

void mo_gpu_unpin_hot(mo_gpu *gpu, const mo_forward *forward, int layer)
{
    const mo_moe *moe = &forward->layer->moe;
    for (int e = 0; e < moe->experts; e++) {
        if (forward->w->first[e] < 0) {
            mo_vram_unpin(gpu->experts.vram, layer, e);
            forward->w->first[e] = 0;
        }
    }
}

static void tally(const mo_forward *forward, int layer, int count)
{
    mo_tally_layer *counts = forward->engine->tally ? mo_tally_find(forward->engine->tally, layer) : NULL;
    const mo_moe *moe = &forward->layer->moe;
    if (!counts) {
        return;
    }
    mo_tally_call(counts, mo_forward_phase(forward));
    for (int i = 0; i < count; i++) {
        mo_tally_add(&counts->hits[mo_forward_phase(forward)][MO_FOUND_COLD][forward->w->needs[i].expert],
                     forward->w->needs[i].picks);
    }
    for (int64_t i = 0; i < forward->tokens * moe->used; i++) {
        if (forward->w->row_of[i] < 0) {
            mo_tally_add(&counts->hits[mo_forward_phase(forward)][MO_FOUND_HOT][forward->w->ids[i]], 1);
        }
    }
}

mo_status mo_gpu_serve(mo_gpu *gpu, mo_forward *forward, int layer, mo_gpu_service *out, mo_error *err)
{
    *out = (mo_gpu_service){.layer = layer};
    forward->index = layer;
    forward->layer = &gpu->core.spec->layers[layer];
    gpu->lanes.served[layer] = gpu->number;
    mo_status status = mo_gpu_await_flag(gpu, layer, err);
    if (status == MO_OK && gpu->lanes.serial) { /* its hot experts end with what is queued */
        status = mo_dstream_wait(gpu->link.main, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_measure_last(gpu, err);
    }
    if (status != MO_OK) {
        return status;
    }
    const bool by_document = mo_gpu_postfetching(gpu); /* 000's modes; otherwise the rates decide */
    out->apart = forward->tokens == 1 || by_document;
    out->count = sort_choice(gpu, forward, layer, out->apart);
    tally(forward, layer, out->count);
    mo_store *const store = out->count > 0 && forward->engine->tiers ? forward->engine->tiers->store : NULL;
    out->stored = store != NULL;
    if (store) {
        mo_store_want(store, layer, forward->w->needs, out->count);
        status = mo_store_look(store, false, err);
    }
    if (status == MO_OK && out->count > 0 && by_document) {
        status = mo_gpu_send(gpu, forward, out, err);
    } else if (status == MO_OK) {
        mo_gpu_plan_fetch(gpu, forward, out);
        /* With work for the CPU all calls of the driver are made beside it. */
        out->deferred = out->count > out->fetched && !out->stored && !gpu->lanes.serial;
    }
    if (status == MO_OK && !out->deferred) {
        status = mo_gpu_submit(gpu, forward, out, err);
    }
    if (status != MO_OK || !out->deferred) {
        mo_gpu_unpin_hot(gpu, forward, layer);
    }
    if (status != MO_OK && store) {
        mo_store_leave(store);
    }
    return status;
}

/* ---- The CPU's lane --------------------------------------------------------------------------- */

void mo_gpu_add(mo_forward *forward, const mo_need *n, bool apart, bool down)
{
    void (*const add)(mo_forward *, int, int64_t, int64_t) = down ? mo_forward_add_down : mo_forward_add_in;
    if (!apart) {
        add(forward, n->expert, forward->w->first[n->expert], n->picks);
        return;
    }
    for (int64_t i = 0; i < forward->tokens * forward->layer->moe.used; i++) {
        if (forward->w->ids[i] == n->expert) {
            add(forward, n->expert, i, 1);
        }
    }
}

static bool add_ready(mo_forward *forward, int count, bool stored, bool apart, int *left)
{
    mo_workspace *w = forward->w;
    bool some = false;
    *left = 0;
    for (int i = 0; i < count; i++) {
        mo_need *n = &w->needs[i];
        if ((!stored || n->in) && !n->in_done) {
            mo_gpu_add(forward, n, apart, false);
            n->in_done = some = true;
        }
        if (n->in_done && (!stored || n->down) && !n->down_done) {
            mo_gpu_add(forward, n, apart, true);
            n->down_done = some = true;
        }
        *left += !n->down_done;
    }
    return some;
}

/* What is done makes room for what is still on disk. A slot that was copied from is free when the copy has ended. */
static mo_status release_done(mo_gpu *gpu, mo_forward *forward, const mo_gpu_service *s, mo_error *err)
{
    mo_store *store = forward->engine->tiers->store;
    mo_status status = s->fetched ? mo_event_wait(gpu->lanes.fetch_to, err) : MO_OK;
    for (int i = 0; i < s->count && status == MO_OK; i++) {
        mo_need *n = &forward->w->needs[i];
        if (n->down_done && !n->released) {
            mo_store_release(store, n);
            n->released = true;
        }
    }
    return status;
}

mo_status mo_gpu_compute(mo_gpu *gpu, mo_forward *forward, const mo_gpu_service *s, mo_error *err)
{
    mo_store *store = s->stored ? forward->engine->tiers->store : NULL;
    mo_status status = MO_OK;
    const int64_t entered = mo_clock_ns();
    bool wait = false, any = false;
    for (int left = 1; left > 0 && status == MO_OK;) {
        if (store) {
            status = mo_store_look(store, wait, err);
        }
        if (status != MO_OK) {
            break;
        }
        mo_forward_begin_round(forward);
        const bool some = add_ready(forward, s->count, s->stored, s->apart, &left);
        wait = !some && left > 0;
        any |= some;
        if (some) {
            const int64_t began = mo_clock_ns();
            mo_forward_run_round(forward, false);
            gpu->lanes.cpu_ns += (uint64_t)(mo_clock_ns() - began);
        }
        if (store && left > 0) {
            status = release_done(gpu, forward, s, err);
        }
    }
    if (any) {
        mo_gpu_clock_computed(gpu->lanes.clock, s->layer, entered, mo_clock_ns());
    }
    return status;
}

/* Which rows the CPU made, and for several tokens the rows themselves. False: the device makes none. */
static bool write_reply(mo_gpu *gpu, const mo_forward *forward, const mo_gpu_service *s, const bool *fetched)
{
    const int64_t n = gpu->core.spec->width, rows = forward->tokens * forward->layer->moe.used;
    mo_dreply *reply = mo_gpu_reply_of(&gpu->scratch, s->layer);
    int32_t count = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (forward->w->row_of[i] < 0 || fetched[forward->w->ids[i]]) {
            continue;
        }
        reply->row[count++] = (int32_t)i;
        if (!s->apart) {
            memcpy(gpu->scratch.pinned.rows + i * n, forward->w->down + forward->w->row_of[i] * n,
                   sizeof(float) * (size_t)n);
        }
    }
    reply->count = count;
    __atomic_store_n(&reply->flag, gpu->scratch.sequence, __ATOMIC_RELEASE);
    return count < rows;
}

/* After the copies: what they took. */
static mo_status measure_fetch(mo_gpu *gpu, int layer, int64_t bytes, mo_error *err)
{
    double seconds = 0;
    const mo_status status = mo_event_seconds(gpu->lanes.fetch_from, gpu->lanes.fetch_to, &seconds, err);
    if (status == MO_OK) {
        mo_lane_rate_observe(&gpu->lanes.fetch_rate, seconds, bytes);
        mo_gpu_clock_fetched(gpu->lanes.clock, layer, (int64_t)(seconds * 1e9));
    }
    return status;
}

/* After the reply, where the host's time costs nobody anything; copies that take longer than the CPU did are measured
 * when the device has gone on, which it cannot without them. */
static mo_status measure_now_or_later(mo_gpu *gpu, const mo_gpu_service *s, mo_error *err)
{
    bool done = false;
    const mo_status status = mo_event_query(gpu->lanes.fetch_to, &done, err);
    if (status == MO_OK && !done) {
        gpu->lanes.unmeasured = s->layer + 1;
        gpu->lanes.unmeasured_bytes = s->fetched_bytes;
    }
    return status == MO_OK && done ? measure_fetch(gpu, s->layer, s->fetched_bytes, err) : status;
}

mo_status mo_gpu_measure_last(mo_gpu *gpu, mo_error *err)
{
    const int layer = gpu->lanes.unmeasured - 1;
    if (layer < 0) {
        return MO_OK;
    }
    gpu->lanes.unmeasured = 0;
    const mo_status status = mo_event_wait(gpu->lanes.fetch_to, err);
    return status == MO_OK ? measure_fetch(gpu, layer, gpu->lanes.unmeasured_bytes, err) : status;
}

/* Slots in RAM that were copied from may only be filled anew when the copies are done. */
static mo_status release(mo_gpu *gpu, mo_forward *forward, const mo_gpu_service *s, mo_error *err)
{
    mo_status status = s->stored && s->fetched ? mo_event_wait(gpu->lanes.fetch_to, err) : MO_OK;
    if (s->stored) {
        mo_store_leave(forward->engine->tiers->store);
    }
    return status;
}

/* The driver's calls were made meanwhile; copies that failed are the CPU's after all. */
static mo_status finish_side_task(mo_gpu *gpu, mo_forward *forward, const mo_gpu_service *s, bool *fetched,
                                  int64_t *bytes, mo_error *err)
{
    if (s->status != MO_OK) {
        *err = s->error;
        return s->status;
    }
    for (int i = 0; i < s->count; i++) {
        const mo_need *n = &forward->w->needs[i];
        if (!n->down_done) {
            fetched[n->expert] = false;
            *bytes += gpu->core.layers[s->layer].brick_bytes;
        }
    }
    return mo_gpu_compute(gpu, forward, s, err);
}

mo_status mo_gpu_reply(mo_gpu *gpu, mo_forward *forward, mo_gpu_service *s, mo_error *err)
{
    const mo_moe *moe = &forward->layer->moe;
    mo_workspace *w = forward->w;
    float *const down = w->down;
    const int64_t n = gpu->core.spec->width;
    bool fetched[MO_EXPERTS_MAX] = {false};
    int64_t bytes = 0;
    for (int i = 0; i < s->count; i++) {
        fetched[w->needs[i].expert] = w->needs[i].down_done;
        bytes += w->needs[i].down_done ? 0 : gpu->core.layers[s->layer].brick_bytes;
    }
    mo_status status = gpu->lanes.serial && s->fetched ? mo_event_wait(gpu->lanes.lane_done, err) : MO_OK;
    const int64_t began = mo_clock_ns();
    if (status == MO_OK && (bytes > 0 || s->sent)) {
        memcpy(forward->in.x, gpu->scratch.pinned.in, sizeof(float) * (size_t)(forward->tokens * n));
        for (int64_t t = 0; t < forward->tokens; t++) {
            mo_forward_quantize(forward->k, &forward->in, t);
        }
        forward->hidden = mo_acts_lay(s->sent ? gpu->scratch.pinned.hidden : w->hidden,
                                      forward->tokens * moe->used, moe->width);
        if (s->apart) {
            w->down = gpu->scratch.pinned.rows;
        }
        if (s->deferred) {
            forward->side_task = (mo_side_task){.fn = mo_gpu_side_task, .ctx = s};
            s->forward = forward;
            s->gpu = gpu;
        }
        status = mo_gpu_compute(gpu, forward, s, err);
        if (status == MO_OK && s->deferred) {
            status = finish_side_task(gpu, forward, s, fetched, &bytes, err);
        }
        if (status == MO_OK && s->sent) {
            status = mo_gpu_receive(gpu, forward, s, fetched, err);
        }
        w->down = down;
    }
    const double seconds = (double)(mo_clock_ns() - began) * 1e-9;
    if (status == MO_OK) {
        const bool device = write_reply(gpu, forward, s, fetched);
        const int64_t now = mo_clock_ns();
        int crossed = 0;
        for (int i = 0; i < s->count; i++) {
            crossed += fetched[w->needs[i].expert];
        }
        mo_gpu_clock_replied(gpu->lanes.clock, s->layer, device, crossed, now);
        /* A round that waited for the side_task says nothing about products. */
        const bool products = !s->deferred || (double)s->side_task_ns * 1e-9 < 0.8 * seconds;
        if (!s->stored && !s->sent && products) {
            mo_lane_rate_observe(&gpu->lanes.cpu_rate, seconds, bytes);
        }
        gpu->lanes.cpu_bytes += (uint64_t)bytes;
        gpu->lanes.by_cpu += (uint64_t)(s->count - crossed);
    }
    if (status == MO_OK && s->fetched) {
        status = measure_now_or_later(gpu, s, err);
    }
    mo_error ignored = {0};
    const mo_status left = release(gpu, forward, s, status == MO_OK ? err : &ignored);
    return status == MO_OK ? left : status;
}

void mo_gpu_abort(mo_gpu *gpu)
{
    const int layers = gpu->core.spec->layer_count;
    mo_error ignored = {0};
    for (int i = 0; i < layers; i++) {
        mo_dreply *reply = mo_gpu_reply_of(&gpu->scratch, i);
        __atomic_store_n(&reply->abort, 1, __ATOMIC_RELEASE);
    }
    mo_dstream_wait(gpu->link.lane, &ignored); /* a lost device fails here at once, which is known already */
    mo_dstream_wait(gpu->link.main, &ignored);
    mo_dstream_wait(gpu->link.fetch, &ignored);
    for (int i = 0; i < layers; i++) {
        mo_dreply *reply = mo_gpu_reply_of(&gpu->scratch, i);
        __atomic_store_n(&reply->abort, 0, __ATOMIC_RELEASE);
    }
    gpu->experts.window_head = gpu->experts.window_tail = 0;
    gpu->lanes.unmeasured = 0;
    mo_gpu_layer_buffer_abort(&gpu->layer_buffer);
}
