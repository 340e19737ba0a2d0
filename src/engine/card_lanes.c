/* Lanes: the host's part of a layer whose experts do not all lie on the device. What does is already under way there;
 * of the rest, some cross the link and are computed by the device, the others are computed here, so that both end
 * together. */
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/card_parts.h"

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

mo_status mo_card_await_flag(mo_card *card, int layer, mo_error *err)
{
    const uint32_t *flag = &card->pinned.flags[layer];
    const int64_t began = mo_clock_ns();
    int64_t looked = began;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != card->sequence) {
        for (int i = 0; i < 32; i++) {
            relax();
        }
        const int64_t now = mo_clock_ns();
        if (now - began > SPIN_NS) { /* somebody else may need this core, a simulated device above all */
            sched_yield();
        }
        if (now - looked > LOOK_NS) {
            bool done;
            const mo_status status = mo_event_query(card->lane_done, &done, err);
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
    card->counters.wait_ns += (uint64_t)(seen - began);
    mo_card_clock_seen(card->clock, layer, seen);
    return MO_OK;
}

/* ids to the workspace; the experts that are not on the device become needs, each with a row for every token that
 * chose it: side by side, or apart, in the order of tokens and ranks. */
static int sort_choice(mo_card *card, mo_walk *walk, int layer, bool apart)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_workspace *w = walk->w;
    const int64_t rows = walk->tokens * moe->used;
    int32_t next = 0;
    int count = 0;
    memcpy(w->ids, card->pinned.ids, sizeof(int32_t) * (size_t)rows);
    memset(w->first, 0, sizeof(int32_t) * (size_t)(moe->experts + 1));
    for (int64_t i = 0; i < rows; i++) {
        w->first[w->ids[i]]++;
    }
    for (int e = 0; e < moe->experts; e++) {
        const uint32_t picks = (uint32_t)w->first[e];
        if (picks == 0) {
            continue;
        }
        walk->engine->counters.bricks_run++;
        card->counters.asked++;
        if (mo_vram_find(card->vram, layer, e)) {
            card->counters.hits++;
            mo_vram_pin(card->vram, layer, e);
            w->first[e] = -1;
        } else {
            w->needs[count++] = (mo_need){.expert = e, .picks = picks};
            w->first[e] = next;
            next += (int32_t)picks;
        }
    }
    walk->engine->counters.expert_picks += (uint64_t)rows;
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

void mo_card_unpin_hot(mo_card *card, const mo_walk *walk, int layer)
{
    const mo_moe *moe = &walk->layer->moe;
    for (int e = 0; e < moe->experts; e++) {
        if (walk->w->first[e] < 0) {
            mo_vram_unpin(card->vram, layer, e);
            walk->w->first[e] = 0;
        }
    }
}

static void tally(const mo_walk *walk, int layer, int count)
{
    mo_tally_layer *counts = walk->engine->tally ? mo_tally_find(walk->engine->tally, layer) : NULL;
    const mo_moe *moe = &walk->layer->moe;
    if (!counts) {
        return;
    }
    mo_tally_call(counts, mo_walk_phase(walk));
    for (int i = 0; i < count; i++) {
        mo_tally_add(&counts->hits[mo_walk_phase(walk)][MO_FOUND_COLD][walk->w->needs[i].expert],
                     walk->w->needs[i].picks);
    }
    for (int64_t i = 0; i < walk->tokens * moe->used; i++) {
        if (walk->w->row_of[i] < 0) {
            mo_tally_add(&counts->hits[mo_walk_phase(walk)][MO_FOUND_HOT][walk->w->ids[i]], 1);
        }
    }
}

mo_status mo_card_serve(mo_card *card, mo_walk *walk, int layer, mo_card_service *out, mo_error *err)
{
    *out = (mo_card_service){.layer = layer};
    walk->index = layer;
    walk->layer = &card->frame->layers[layer];
    card->layers[layer].served = card->pass;
    mo_status status = mo_card_await_flag(card, layer, err);
    if (status == MO_OK && card->options.serial) { /* its hot experts end with what is queued */
        status = mo_dstream_wait(card->main, err);
    }
    if (status == MO_OK) {
        status = mo_card_measure_last(card, err);
    }
    if (status != MO_OK) {
        return status;
    }
    const bool by_document = mo_card_postfetching(card); /* 000's modes; otherwise the rates decide */
    out->apart = walk->tokens == 1 || by_document;
    out->count = sort_choice(card, walk, layer, out->apart);
    tally(walk, layer, out->count);
    mo_store *const store = out->count > 0 && walk->engine->tiers ? walk->engine->tiers->store : NULL;
    out->stored = store != NULL;
    if (store) {
        mo_store_want(store, layer, walk->w->needs, out->count);
        status = mo_store_look(store, false, err);
    }
    if (status == MO_OK && out->count > 0 && by_document) {
        status = mo_card_send(card, walk, out, err);
    } else if (status == MO_OK) {
        mo_card_plan_fetch(card, walk, out);
        /* With work for the CPU all calls of the driver are made beside it. */
        out->deferred = out->count > out->fetched && !out->stored && !card->options.serial;
    }
    if (status == MO_OK && !out->deferred) {
        status = mo_card_submit(card, walk, out, err);
    }
    if (status != MO_OK || !out->deferred) {
        mo_card_unpin_hot(card, walk, layer);
    }
    if (status != MO_OK && store) {
        mo_store_leave(store);
    }
    return status;
}

/* ---- The CPU's lane --------------------------------------------------------------------------- */

void mo_card_add(mo_walk *walk, const mo_need *n, bool apart, bool down)
{
    void (*const add)(mo_walk *, int, int64_t, int64_t) = down ? mo_walk_add_down : mo_walk_add_in;
    if (!apart) {
        add(walk, n->expert, walk->w->first[n->expert], n->picks);
        return;
    }
    for (int64_t i = 0; i < walk->tokens * walk->layer->moe.used; i++) {
        if (walk->w->ids[i] == n->expert) {
            add(walk, n->expert, i, 1);
        }
    }
}

static bool add_ready(mo_walk *walk, int count, bool stored, bool apart, int *left)
{
    mo_workspace *w = walk->w;
    bool some = false;
    *left = 0;
    for (int i = 0; i < count; i++) {
        mo_need *n = &w->needs[i];
        if ((!stored || n->in) && !n->in_done) {
            mo_card_add(walk, n, apart, false);
            n->in_done = some = true;
        }
        if (n->in_done && (!stored || n->down) && !n->down_done) {
            mo_card_add(walk, n, apart, true);
            n->down_done = some = true;
        }
        *left += !n->down_done;
    }
    return some;
}

/* What is done makes room for what is still on disk. A slot that was copied from is free when the copy has ended. */
static mo_status release_done(mo_card *card, mo_walk *walk, const mo_card_service *s, mo_error *err)
{
    mo_store *store = walk->engine->tiers->store;
    mo_status status = s->fetched ? mo_event_wait(card->fetch_to, err) : MO_OK;
    for (int i = 0; i < s->count && status == MO_OK; i++) {
        mo_need *n = &walk->w->needs[i];
        if (n->down_done && !n->released) {
            mo_store_release(store, n);
            n->released = true;
        }
    }
    return status;
}

mo_status mo_card_compute(mo_card *card, mo_walk *walk, const mo_card_service *s, mo_error *err)
{
    mo_store *store = s->stored ? walk->engine->tiers->store : NULL;
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
        mo_walk_begin_round(walk);
        const bool some = add_ready(walk, s->count, s->stored, s->apart, &left);
        wait = !some && left > 0;
        any |= some;
        if (some) {
            const int64_t began = mo_clock_ns();
            mo_walk_run_round(walk, false);
            card->counters.cpu_ns += (uint64_t)(mo_clock_ns() - began);
        }
        if (store && left > 0) {
            status = release_done(card, walk, s, err);
        }
    }
    if (any) {
        mo_card_clock_computed(card->clock, s->layer, entered, mo_clock_ns());
    }
    return status;
}

/* Which rows the CPU made, and for several tokens the rows themselves. False: the device makes none. */
static bool write_reply(mo_card *card, const mo_walk *walk, const mo_card_service *s, const bool *fetched)
{
    const int64_t n = card->frame->width, rows = walk->tokens * walk->layer->moe.used;
    mo_dreply *reply = (mo_dreply *)(void *)(card->pinned.replies + s->layer * card->pinned.reply_bytes);
    int32_t count = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (walk->w->row_of[i] < 0 || fetched[walk->w->ids[i]]) {
            continue;
        }
        reply->row[count++] = (int32_t)i;
        if (!s->apart) {
            memcpy(card->pinned.rows + i * n, walk->w->down + walk->w->row_of[i] * n,
                   sizeof(float) * (size_t)n);
        }
    }
    reply->count = count;
    __atomic_store_n(&reply->flag, card->sequence, __ATOMIC_RELEASE);
    return count < rows;
}

/* After the copies: what they took. */
static mo_status measure_fetch(mo_card *card, int layer, int64_t bytes, mo_error *err)
{
    double seconds = 0;
    const mo_status status = mo_event_seconds(card->fetch_from, card->fetch_to, &seconds, err);
    if (status == MO_OK) {
        mo_lane_rate_observe(&card->fetch_rate, seconds, bytes);
        mo_card_clock_fetched(card->clock, layer, (int64_t)(seconds * 1e9));
    }
    return status;
}

/* After the reply, where the host's time costs nobody anything; copies that take longer than the CPU did are measured
 * when the device has gone on, which it cannot without them. */
static mo_status measure_now_or_later(mo_card *card, const mo_card_service *s, mo_error *err)
{
    bool done = false;
    const mo_status status = mo_event_query(card->fetch_to, &done, err);
    if (status == MO_OK && !done) {
        card->unmeasured = s->layer + 1;
        card->unmeasured_bytes = s->fetched_bytes;
    }
    return status == MO_OK && done ? measure_fetch(card, s->layer, s->fetched_bytes, err) : status;
}

mo_status mo_card_measure_last(mo_card *card, mo_error *err)
{
    const int layer = card->unmeasured - 1;
    if (layer < 0) {
        return MO_OK;
    }
    card->unmeasured = 0;
    const mo_status status = mo_event_wait(card->fetch_to, err);
    return status == MO_OK ? measure_fetch(card, layer, card->unmeasured_bytes, err) : status;
}

/* Slots in RAM that were copied from may only be filled anew when the copies are done. */
static mo_status release(mo_card *card, mo_walk *walk, const mo_card_service *s, mo_error *err)
{
    mo_status status = s->stored && s->fetched ? mo_event_wait(card->fetch_to, err) : MO_OK;
    if (s->stored) {
        mo_store_leave(walk->engine->tiers->store);
    }
    return status;
}

/* The driver's calls were made meanwhile; copies that failed are the CPU's after all. */
static mo_status finish_errand(mo_card *card, mo_walk *walk, const mo_card_service *s, bool *fetched,
                               int64_t *bytes, mo_error *err)
{
    if (s->status != MO_OK) {
        *err = s->error;
        return s->status;
    }
    for (int i = 0; i < s->count; i++) {
        const mo_need *n = &walk->w->needs[i];
        if (!n->down_done) {
            fetched[n->expert] = false;
            *bytes += card->layers[s->layer].brick_bytes;
        }
    }
    return mo_card_compute(card, walk, s, err);
}

mo_status mo_card_reply(mo_card *card, mo_walk *walk, mo_card_service *s, mo_error *err)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_workspace *w = walk->w;
    float *const down = w->down;
    const int64_t n = card->frame->width;
    bool fetched[MO_EXPERTS_MAX] = {false};
    int64_t bytes = 0;
    for (int i = 0; i < s->count; i++) {
        fetched[w->needs[i].expert] = w->needs[i].down_done;
        bytes += w->needs[i].down_done ? 0 : card->layers[s->layer].brick_bytes;
    }
    mo_status status = card->options.serial && s->fetched ? mo_event_wait(card->lane_done, err) : MO_OK;
    const int64_t began = mo_clock_ns();
    if (status == MO_OK && (bytes > 0 || s->sent)) {
        memcpy(walk->in.x, card->pinned.in, sizeof(float) * (size_t)(walk->tokens * n));
        for (int64_t t = 0; t < walk->tokens; t++) {
            mo_walk_quantise(walk->k, &walk->in, t);
        }
        walk->hidden =
            mo_acts_lay(s->sent ? card->pinned.hidden : w->hidden, walk->tokens * moe->used, moe->width);
        if (s->apart) {
            w->down = card->pinned.rows;
        }
        if (s->deferred) {
            walk->errand = (mo_errand){.fn = mo_card_errand, .ctx = s};
            s->walk = walk;
            s->card = card;
        }
        status = mo_card_compute(card, walk, s, err);
        if (status == MO_OK && s->deferred) {
            status = finish_errand(card, walk, s, fetched, &bytes, err);
        }
        if (status == MO_OK && s->sent) {
            status = mo_card_receive(card, walk, s, fetched, err);
        }
        w->down = down;
    }
    const double seconds = (double)(mo_clock_ns() - began) * 1e-9;
    if (status == MO_OK) {
        const bool device = write_reply(card, walk, s, fetched);
        const int64_t now = mo_clock_ns();
        int crossed = 0;
        for (int i = 0; i < s->count; i++) {
            crossed += fetched[w->needs[i].expert];
        }
        mo_card_clock_replied(card->clock, s->layer, device, crossed, now);
        /* A round that waited for the errand says nothing about products. */
        const bool products = !s->deferred || (double)s->errand_ns * 1e-9 < 0.8 * seconds;
        if (!s->stored && !s->sent && products) {
            mo_lane_rate_observe(&card->cpu_rate, seconds, bytes);
        }
        card->counters.cpu_bytes += (uint64_t)bytes;
        card->counters.by_cpu += (uint64_t)(s->count - crossed);
    }
    if (status == MO_OK && s->fetched) {
        status = measure_now_or_later(card, s, err);
    }
    mo_error ignored = {0};
    const mo_status left = release(card, walk, s, status == MO_OK ? err : &ignored);
    return status == MO_OK ? left : status;
}

void mo_card_abort(mo_card *card)
{
    const int layers = card->frame->layer_count;
    mo_error ignored = {0};
    for (int i = 0; i < layers; i++) {
        mo_dreply *reply = (mo_dreply *)(void *)(card->pinned.replies + i * card->pinned.reply_bytes);
        __atomic_store_n(&reply->abort, 1, __ATOMIC_RELEASE);
    }
    mo_dstream_wait(card->lane, &ignored); /* a lost device fails here at once, which is known already */
    mo_dstream_wait(card->main, &ignored);
    mo_dstream_wait(card->fetch, &ignored);
    for (int i = 0; i < layers; i++) {
        mo_dreply *reply = (mo_dreply *)(void *)(card->pinned.replies + i * card->pinned.reply_bytes);
        __atomic_store_n(&reply->abort, 0, __ATOMIC_RELEASE);
    }
    card->ring_head = card->ring_tail = 0;
    card->unmeasured = 0;
    mo_card_pass_abort(card);
}
