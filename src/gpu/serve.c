/* Serve: the host's part of a layer whose experts are not all on the device. The device already computes its
 * own experts. Some of the others are copied and computed by the device, the rest is computed here, so that
 * both finish together. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "gpu/lanes.h"

/* ---- The device's choice ----------------------------------------------------------------------- */

/* Copies ids to the workspace, sorted; experts that are neither on the device nor claimed by a worker become
 * needs. apart: the CPU's rows are where the device reads them, in the order of tokens and picks. */
static int sort_choice(mo_gpu_lanes *lanes, mo_forward *forward, int layer, bool apart)
{
    const mo_moe *moe = &forward->layer->moe;
    mo_picks *p = &forward->w->picks;
    mo_expert_work *work = &lanes->work;
    int count = 0;
    mo_picks_begin(p, moe->experts, moe->used, forward->tokens);
    const int64_t rows = mo_picks_rows(p);
    memcpy(p->ids, lanes->scratch->pinned.ids, sizeof *p->ids * (size_t)rows);
    forward->engine->counters.experts_run += (uint64_t)mo_picks_sort(p);
    forward->engine->counters.expert_picks += (uint64_t)rows;
    const uint32_t *drafted = mo_forward_note_drafts(forward);
    for (int e = 0; e < moe->experts; e++) {
        const uint32_t picks = (uint32_t)p->count[e], drafts = drafted ? drafted[e] : 0;
        work->who[e] = MO_BY_CPU;
        if (picks == 0 || !mo_where_here(&lanes->experts->where, e)) {
            continue;
        }
        lanes->experts->asked++;
        if (mo_where_address(&lanes->experts->where, layer, e)) {
            work->who[e] = MO_BY_DEVICE;
            lanes->experts->hits++;
            mo_vram_pin(lanes->experts->where.vram, layer, e);
            if (lanes->experts->where.store && picks > drafts) {
                mo_store_touch(lanes->experts->where.store, layer, e, picks - drafts);
            }
        }
    }
    work->forward = forward;
    work->layer = layer;
    work->picks = p;
    work->out = forward->w->down;
    lanes->claimed = mo_workers_claim(&forward->engine->workers, work);
    for (int e = 0; e < moe->experts; e++) {
        if (p->count[e] > 0 && work->who[e] == MO_BY_CPU) {
            forward->w->needs[count++] =
                (mo_need){.expert = e, .picks = (uint32_t)p->count[e], .drafted = drafted ? drafted[e] : 0};
        }
    }
    for (int64_t i = 0; apart && i < rows; i++) {
        lanes->apart_tokens[i] = (int32_t)(i / moe->used);
    }
    return count;
}

/* Skips experts that are neither in RAM nor in VRAM, and reports the kept picks to the device. */
static void skip_missing(const mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s)
{
    const mo_gpu_pinned *pinned = &lanes->scratch->pinned;
    const mo_picks *p = &forward->w->picks;
    const size_t rows = (size_t)mo_picks_rows(p);
    memcpy(p->weights, pinned->weights, sizeof *p->weights * rows);
    const int kept = mo_forward_skip(forward, s->count);
    s->skipped = s->count - kept;
    s->count = kept;
    if (s->skipped > 0) {
        memcpy(pinned->ids, p->ids, sizeof *p->ids * rows);
        memcpy(pinned->weights, p->weights, sizeof *p->weights * rows);
    }
}

/* Unpins the hot experts of a served layer; they are pinned while others look for slots. */
static void unpin_hot(mo_gpu_lanes *lanes, const mo_forward *forward, int layer)
{
    const mo_moe *moe = &forward->layer->moe;
    for (int e = 0; e < moe->experts; e++) {
        if (lanes->work.who[e] == MO_BY_DEVICE) {
            mo_vram_unpin(lanes->experts->where.vram, layer, e);
        }
    }
}

/* Called after the reply, so that the device need not wait for it. count: needs, including skipped ones. */
static void tally(const mo_gpu_lanes *lanes, const mo_forward *forward, int layer, int count)
{
    mo_tally_layer *counts = mo_forward_tally(forward, layer);
    const mo_picks *p = &forward->w->picks;
    const uint32_t *drafted = mo_forward_drafted(forward);
    for (int i = 0; i < count; i++) {
        const mo_need *n = &forward->w->needs[i];
        mo_forward_tally_expert(forward, counts, MO_FOUND_COLD, n->expert, n->picks - n->drafted);
        mo_forward_found(forward, layer, n->expert, true);
    }
    for (int e = 0; (counts || drafted) && e < p->experts; e++) {
        if (lanes->work.who[e] == MO_BY_DEVICE) {
            mo_forward_tally_expert(forward, counts, MO_FOUND_HOT, e,
                                    (uint64_t)p->count[e] - (drafted ? drafted[e] : 0));
            mo_forward_found(forward, layer, e, false);
        }
    }
}

/* True if the CPU has work that need not wait for the disk; a round then begins at once. */
static bool cpu_has_work(const mo_forward *forward, const mo_gpu_service *s)
{
    for (int i = 0; i < s->count; i++) {
        const mo_need *n = &forward->w->needs[i];
        if (!n->in_done && (!s->stored || n->in)) {
            return true;
        }
    }
    return false;
}

/* Copies the layer's expert input from the device, for computing here. */
static void take_input(const mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s)
{
    if (!s->input) {
        const mo_gpu_pinned *pinned = &lanes->scratch->pinned;
        const mo_acts *in = &forward->in_experts;
        memcpy(in->x, mo_layer_latent(forward->layer) ? pinned->latent_in : pinned->in,
               sizeof(float) * (size_t)(forward->tokens * in->cols));
        for (int64_t t = 0; t < forward->tokens; t++) {
            mo_forward_quantize(forward->k, in, t);
        }
        s->input = true;
    }
}

static mo_status begin_workers(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, mo_error *err)
{
    if (lanes->claimed > 0) {
        take_input(lanes, forward, s);
    }
    return mo_gpu_lanes_begin_workers(lanes, forward, err);
}

/* Fails the step if an optional worker has failed: the device's lists are complete, so it cannot take the
 * experts. */
static mo_status returned_fails(mo_status status, int returned, mo_error *err)
{
    if (status == MO_OK && returned > 0) {
        return mo_fail(err, MO_EIO, "a worker that computes experts has failed; repeat the request");
    }
    if (status == MO_EDEVICE) { /* the worker's device, not the one that runs the step */
        err->status = status = MO_EIO;
    }
    return status;
}

mo_status mo_gpu_lanes_begin_workers(mo_gpu_lanes *lanes, mo_forward *forward, mo_error *err)
{
    mo_side_task rest = {0};
    int returned = 0;
    const mo_status status = mo_workers_begin(&forward->engine->workers, &lanes->work, &rest, &returned, err);
    if (status == MO_OK && rest.fn) { /* the device is already working */
        rest.fn(rest.ctx);
    }
    return returned_fails(status, returned, err);
}

mo_status mo_gpu_lanes_end_workers(mo_gpu_lanes *lanes, mo_forward *forward, mo_status status, mo_error *err)
{
    int returned = 0;
    const mo_status ended = mo_workers_end(&forward->engine->workers, &lanes->work, status, &returned, err);
    return status == MO_OK ? returned_fails(ended, returned, err) : status;
}

void mo_gpu_lanes_abort(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, mo_status status)
{
    mo_gpu_lanes_end_workers(lanes, forward, status, NULL);
    mo_gpu_fetch_leave(lanes, forward->w->needs, s, status);
}

mo_status mo_gpu_lanes_serve(mo_gpu_lanes *lanes, mo_forward *forward, int layer, uint64_t number,
                             mo_gpu_service *out, mo_error *err)
{
    *out = (mo_gpu_service){.layer = layer, .number = number, .way = MO_LATE_NONE};
    mo_forward_at(forward, layer);
    lanes->served[layer] = number;
    mo_status status = mo_gpu_lanes_await(lanes, layer, err);
    if (status == MO_OK && lanes->serial) { /* its hot experts end with the queued ops */
        status = mo_dstream_wait(lanes->link->main, err);
    }
    if (status == MO_OK) {
        status = mo_gpu_lanes_measure_last(lanes, err);
    }
    if (status != MO_OK) {
        return status;
    }
    /* modes of document 000; otherwise the rates decide */
    const bool postfetch_mode = mo_gpu_postfetch_on(lanes);
    out->began = mo_clock_ns();
    out->apart = forward->tokens == 1 || postfetch_mode;
    out->count = sort_choice(lanes, forward, layer, out->apart);
    mo_store *const store = out->count > 0 && forward->engine->tiers ? forward->engine->tiers->store : NULL;
    out->stored = store != NULL;
    if (store && lanes->experts->skips) {
        skip_missing(lanes, forward, out);
    }
    if (store) {
        mo_store_want(store, layer, forward->w->needs, out->count + out->skipped);
        mo_forward_bring_skipped(forward, forward->w->needs + out->count, out->skipped);
        status = mo_store_look(store, false, err);
    }
    if (status == MO_OK) {
        status = begin_workers(lanes, forward, out, err);
    }
    mo_gpu_clock_listed(lanes->clock, layer, mo_clock_ns());
    if (status == MO_OK && postfetch_mode) {
        status = out->count > 0 ? mo_gpu_postfetch_send(lanes, forward, out, err) : MO_OK;
    } else if (status == MO_OK) {
        mo_gpu_fetch_choose(lanes, forward, out);
    }
    /* If the CPU has work, all driver calls are made in parallel with it. */
    out->deferred = status == MO_OK && !lanes->serial && cpu_has_work(forward, out);
    if (status == MO_OK && !out->deferred) {
        status = mo_gpu_fetch_submit(lanes, forward, out, err);
    }
    if (status != MO_OK || !out->deferred) {
        unpin_hot(lanes, forward, layer);
    }
    if (status != MO_OK) {
        mo_gpu_lanes_abort(lanes, forward, out, status);
    }
    return status;
}

/* ---- The reply -------------------------------------------------------------------------------- */

/* Rows of a reply, copied by all threads to where the device reads them: eight tokens have up to half a
 * megabyte. */
typedef struct reply_rows {
    const mo_gpu_lanes *lanes;
    const mo_forward *forward;
    const mo_dreply *reply;
    bool apart; /* the CPU's rows are there already */
} reply_rows;

enum { ROWS_AT_ONCE = 2 };

static void put_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const reply_rows *r = ctx;
    const mo_workspace *w = r->forward->w;
    const int64_t n = r->forward->layer->moe.io;
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = r->reply->row[i];
        if (!r->apart || r->lanes->work.who[w->picks.ids[at]] != MO_BY_CPU) {
            memcpy(r->lanes->scratch->pinned.rows + at * n, w->down + w->picks.row_of[at] * n,
                   sizeof(float) * (size_t)n);
        }
    }
}

/* Writes which rows the CPU or a worker computed, and for several tokens the rows. False: the device computes
 * none. */
static bool write_reply(mo_gpu_lanes *lanes, const mo_forward *forward, const mo_gpu_service *s,
                        const bool *fetched)
{
    const int64_t rows = forward->tokens * forward->layer->moe.used;
    mo_dreply *reply = mo_gpu_reply_of(lanes->scratch, s->layer);
    int32_t count = 0;
    bool device = false;
    for (int64_t i = 0; i < rows; i++) {
        const int32_t e = forward->w->picks.ids[i];
        if (e < 0) { /* skipped */
            continue;
        }
        if (lanes->work.who[e] != MO_BY_DEVICE && !fetched[e]) {
            reply->row[count++] = (int32_t)i;
        } else {
            device = true;
        }
    }
    reply->count = count;
    if (!s->apart || lanes->claimed > 0) {
        reply_rows put = {.lanes = lanes, .forward = forward, .reply = reply, .apart = s->apart};
        mo_pool_run(forward->engine->pool, count, ROWS_AT_ONCE, put_rows, &put);
    }
    __atomic_store_n(&reply->flag, lanes->scratch->sequence, __ATOMIC_RELEASE);
    return device;
}

/* After the copies: measures them. */
static mo_status measure_fetch(mo_gpu_lanes *lanes, int layer, int64_t bytes, mo_error *err)
{
    double seconds = 0;
    const mo_status status = mo_event_seconds(lanes->fetch_from, lanes->fetch_to, &seconds, err);
    if (status == MO_OK) {
        mo_lane_rate_observe(&lanes->rates.link, seconds, bytes);
        mo_gpu_postfetch_measured(lanes, seconds, bytes);
        mo_gpu_clock_fetched(lanes->clock, layer, (int64_t)(seconds * 1e9));
        if (lanes->postfetch.debug) {
            int64_t total_ns = 0;
            const int64_t hidden_ns = mo_gpu_clock_overlap(lanes->clock, layer, &total_ns);
            mo_log_asked(MO_LOG_INFO, "postfetch",
                         "layer %d: transfer %.3f ms, total %.3f ms, overlap %.1f %%", layer, seconds * 1e3,
                         (double)total_ns * 1e-6, seconds > 0 ? (double)hidden_ns * 1e-7 / seconds : 0);
        }
    }
    return status;
}

/* After the reply, when the host's time costs nothing. Copies that take longer than the CPU are measured when
 * the device has continued, which requires them. */
static mo_status measure_now_or_later(mo_gpu_lanes *lanes, const mo_gpu_service *s, mo_error *err)
{
    bool done = false;
    const mo_status status = mo_event_query(lanes->fetch_to, &done, err);
    if (status == MO_OK && !done) {
        lanes->unmeasured = s->layer + 1;
        lanes->unmeasured_bytes = s->fetched_bytes;
    }
    return status == MO_OK && done ? measure_fetch(lanes, s->layer, s->fetched_bytes, err) : status;
}

mo_status mo_gpu_lanes_measure_last(mo_gpu_lanes *lanes, mo_error *err)
{
    const int layer = lanes->unmeasured - 1;
    if (layer < 0) {
        return MO_OK;
    }
    bool done = !mo_gpu_postfetch_on(lanes); /* otherwise they may be late, and nothing waits for them */
    mo_status status =
        done ? mo_event_wait(lanes->fetch_to, err) : mo_event_query(lanes->fetch_to, &done, err);
    if (status == MO_OK && !done) {
        return MO_OK;
    }
    lanes->unmeasured = 0;
    return status == MO_OK ? measure_fetch(lanes, layer, lanes->unmeasured_bytes, err) : status;
}

/* RAM slots may only be refilled when copies from them have ended. */
static mo_status release(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, mo_error *err)
{
    mo_status status = s->status; /* of the calls; the state of failed ones is unknown */
    if (status == MO_OK && s->stored && s->fetched) {
        status = mo_event_wait(lanes->fetch_to, err);
    }
    mo_gpu_fetch_leave(lanes, forward->w->needs, s, status);
    return status;
}

/* Makes the driver calls, on the first free CPU thread. */
static void run_side_task(void *ctx)
{
    mo_gpu_service *s = ctx;
    s->status = mo_gpu_fetch_submit(s->lanes, s->forward, s, &s->error);
    unpin_hot(s->lanes, s->forward, s->layer);
}

/* The first check failed, so there was no round and no driver call: nothing is copied. */
static void drop_side_task(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s)
{
    forward->side_task = (mo_side_task){0};
    unpin_hot(lanes, forward, s->layer);
    s->fetched = 0;
}

/* The driver calls were made meanwhile; the CPU computes experts whose copies failed. */
static mo_status finish_side_task(mo_gpu_lanes *lanes, mo_forward *forward, const mo_gpu_service *s,
                                  bool *fetched, int64_t *bytes, mo_error *err)
{
    if (s->status != MO_OK) {
        *err = s->error;
        return s->status;
    }
    bool any = false;
    for (int i = 0; i < s->fetched; i++) {
        if (s->failed[i]) {
            fetched[forward->w->needs[s->need[i]].expert] = false;
            *bytes += lanes->core->layers[s->layer].expert_bytes;
            any = true;
        }
    }
    return any ? mo_gpu_cpu_lane_run(lanes, forward, s, err) : MO_OK;
}

/* True if the next layer's probable experts are prefetched, as without a device: by this rank from disk, or
 * by another rank. */
static bool prefetches(const mo_gpu_lanes *lanes, const mo_forward *forward)
{
    const mo_layer *l = forward->layer;
    const bool reads = lanes->experts->where.store && forward->engine->tiers->prefetch.on &&
                       mo_gpu_swap_absent(lanes->experts);
    return forward->tokens == 1 && (reads || mo_workers_ahead(&forward->engine->workers)) &&
           mo_layer_experts_norm(l) && !mo_layer_experts_norm_bias(l) && !l->moe.router.input_scale;
}

/* Predicts while the device continues. The device has the stream. The experts' input is the stream after a
 * norm; undoing the norm's weights gives a multiple of it, and the next norm does not depend on the
 * length. */
static void guess_next(const mo_gpu_lanes *lanes, mo_forward *forward)
{
    const mo_layer *l = forward->layer;
    const float *weights = mo_layer_experts_norm(l);
    for (int64_t i = 0; i < forward->spec->width; i++) {
        forward->w->x[i] = weights[i] != 0.0f ? forward->in.x[i] / weights[i] : 0.0f;
    }
    mo_forward_guess_remote(forward);
    if (lanes->experts->where.store) {
        mo_forward_guess(forward, 0);
    }
}

/* Computes the CPU's share and finishes the copies meanwhile; *bytes: computed bytes. */
static mo_status compute_here(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, bool *fetched,
                              int64_t *bytes, mo_error *err)
{
    const mo_moe *moe = &forward->layer->moe;
    mo_workspace *w = forward->w;
    float *const down = w->down;
    const uint64_t computing = lanes->cpu_ns;
    take_input(lanes, forward, s);
    forward->side_waited_ns = 0;
    forward->hidden = mo_acts_lay(s->sent ? lanes->scratch->pinned.hidden : w->hidden,
                                  forward->tokens * moe->used, moe->width);
    if (s->apart) {
        w->down = lanes->scratch->pinned.rows;
    }
    if (s->deferred) {
        forward->side_task = (mo_side_task){.fn = run_side_task, .ctx = s};
        s->forward = forward;
        s->lanes = lanes;
    }
    mo_status status = mo_gpu_cpu_lane_run(lanes, forward, s, err);
    s->computed_ns = (int64_t)(lanes->cpu_ns - computing);
    if (s->deferred && forward->side_task.fn) {
        drop_side_task(lanes, forward, s);
    }
    if (status == MO_OK && s->deferred) {
        status = finish_side_task(lanes, forward, s, fetched, bytes, err);
    }
    if (status == MO_OK && s->sent) {
        status = mo_gpu_postfetch_receive(lanes, forward, s, fetched, err);
    }
    w->down = down;
    return status;
}

/* Writes the reply, after this computing time of the CPU, and counts. */
static void answer(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, const bool *fetched,
                   int64_t bytes, double seconds, int64_t waited_ns)
{
    const bool device = write_reply(lanes, forward, s, fetched);
    const int64_t now = mo_clock_ns();
    int crossed = 0;
    for (int i = 0; i < s->count; i++) {
        crossed += fetched[forward->w->needs[i].expert];
    }
    mo_gpu_clock_replied(lanes->clock, s->layer, device, crossed, now);
    tally(lanes, forward, s->layer, s->count + s->skipped);
    if (!s->sent && bytes > 0) { /* without products the time says nothing, and would only confirm the rate */
        lanes->alone = s->fetched == 0;
        mo_lane_observe_cpu(&lanes->rates, !lanes->alone, seconds - (double)forward->side_waited_ns * 1e-9,
                            bytes);
    }
    lanes->cpu_bytes += (uint64_t)bytes;
    lanes->by_cpu += (uint64_t)(s->count - crossed);
    if (mo_gpu_postfetch_on(lanes) && !(s->stored && (double)waited_ns * 1e-9 > 0.2 * seconds)) {
        mo_gpu_postfetch_learn(lanes, s, now);
    }
}

mo_status mo_gpu_lanes_reply(mo_gpu_lanes *lanes, mo_forward *forward, mo_gpu_service *s, mo_error *err)
{
    const mo_need *needs = forward->w->needs;
    bool fetched[MO_EXPERTS_MAX] = {false};
    int64_t bytes = 0;
    for (int i = 0; i < s->count; i++) {
        fetched[needs[i].expert] = needs[i].down_done;
        bytes += needs[i].down_done ? 0 : lanes->core->layers[s->layer].expert_bytes;
    }
    mo_status status = lanes->serial && s->fetched ? mo_event_wait(lanes->lane_done, err) : MO_OK;
    const uint64_t waited = lanes->waited_ns;
    const int64_t began = mo_clock_ns();
    if (status == MO_OK && (bytes > 0 || s->sent)) {
        status = compute_here(lanes, forward, s, fetched, &bytes, err);
    }
    /* Waiting for the disk, or for copies that hold slots, says nothing about products. */
    const int64_t waited_ns = (int64_t)(lanes->waited_ns - waited);
    const double seconds = (double)(mo_clock_ns() - began - waited_ns) * 1e-9;
    status = mo_gpu_lanes_end_workers(lanes, forward, status, err);
    const bool guess = status == MO_OK && prefetches(lanes, forward);
    /* after the reply the device overwrites the input */
    if (guess && (!s->input || mo_layer_latent(forward->layer))) {
        memcpy(forward->in.x, lanes->scratch->pinned.in, sizeof(float) * (size_t)forward->spec->width);
    }
    if (status == MO_OK) {
        answer(lanes, forward, s, fetched, bytes, seconds, waited_ns);
    }
    if (status == MO_OK && s->fetched) {
        status = measure_now_or_later(lanes, s, err);
    }
    if (status == MO_OK && guess) {
        guess_next(lanes, forward);
    }
    mo_error ignored = {0};
    const mo_status left = release(lanes, forward, s, status == MO_OK ? err : &ignored);
    return status == MO_OK ? left : status;
}
