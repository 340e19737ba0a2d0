/* The device's slots as a tier of the hot cache (hotcache/update.h). A copy travels in the background to a spare slot, and
 * only when it has arrived the device's map changes, both entries at once, between two steps: nothing stops, nothing is
 * read while it is written, and a copy that fails leaves everything as it was. */
#include "base/status.h"
#include "gpu/hot.h"

/* Generated tokens between two updates. The work that the hot cache follows leaves open when a long request is looked at:
 * its author's updates come after a request, so do ours; but one answer may have thousands of tokens, and neighbours of
 * that work rebalance every few dozen. Each update has the reference's cap of its own. */
enum { WINDOW = 64 };

mo_hot_update *mo_gpu_hot_updates(const mo_gpu_hot *h)
{
    int32_t slots, filled;
    int64_t bytes;
    mo_vram_slots(h->experts->where.vram, &slots, &filled, &bytes);
    return slots > 0 ? h->update : NULL;
}

static bool holds(const void *owner, int layer, int expert)
{
    const mo_gpu_hot *h = owner;
    return mo_gpu_core_routed(h->core, layer) && mo_where_address(&h->experts->where, layer, expert) != 0;
}

/* What a pick that misses costs: both lanes share such work where experts are fetched at all. */
static mo_exchange_rates rates_of(const void *owner)
{
    const mo_gpu_hot *h = owner;
    const bool fetches = h->lanes->postfetch.mode != MO_POSTFETCH_OFF && !h->lanes->postfetch.force_cpu;
    const double cpu = h->lanes->cpu_rate.s_per_byte, link = h->lanes->fetch_rate.s_per_byte;
    return (mo_exchange_rates){.miss = fetches ? cpu * link / (cpu + link) : cpu, .copy = link};
}

/* ---- Copies in the background ---- */

static mo_status landed(void *owner, int number, const mo_exchange *x, bool *done, mo_error *err)
{
    mo_gpu_hot *h = owner;
    const mo_status status = mo_event_query(h->moves[number].ready, done, err);
    if (status == MO_OK && *done) { /* what it replaces leaves a spare slot behind */
        mo_vram_landed(h->experts->where.vram, x->layer, x->add);
        mo_vram_drop(h->experts->where.vram, x->layer, x->evict);
    }
    return status;
}

static mo_status send(mo_gpu_hot *h, const mo_gpu_move *m, const mo_exchange *x, mo_daddr to, mo_error *err)
{
    mo_dstream *stream = h->stream;
    const bool interleaved = mo_gpu_core_interleaved(h->core, x->layer);
    int64_t bytes = 0;
    mo_status status = mo_gpu_core_copy_expert(h->core, h->link, stream, x->layer, x->add,
                                               interleaved ? m->stage : to, &bytes, err);
    if (status == MO_OK && interleaved) {
        const mo_op op = mo_gpu_core_restore(h->core, x->layer, m->stage, to, 1, 0, -1);
        status = mo_gpu_link_launch(h->link, stream, &op, 1, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(m->ready, stream, err);
    }
    if (status == MO_OK && h->experts->where.store) { /* its place in RAM is safe until the step begins */
        status = mo_event_wait(m->ready, err);
    }
    return status;
}

/* Later: for want of a spare slot, or because the expert is on disk. One that was cold often will be read for its own
 * sake before long, so no read is begun here. */
static mo_status begin_copy(mo_gpu_hot *h, int number, const mo_exchange *x, mo_hot_begun *begun,
                            mo_error *err)
{
    *begun = MO_HOT_VOID;
    if (!mo_where_address(&h->experts->where, x->layer, x->evict) ||
        mo_where_address(&h->experts->where, x->layer, x->add)) {
        return MO_OK; /* no longer an exchange */
    }
    const mo_daddr to = mo_where_readable(&h->experts->where, x->layer, x->add)
                            ? mo_vram_acquire_free(h->experts->where.vram, x->layer, x->add)
                            : 0;
    *begun = MO_HOT_LATER;
    if (!to) {
        return MO_OK;
    }
    const mo_status status = send(h, &h->moves[number], x, to, err);
    *begun = status == MO_OK ? MO_HOT_UNDER_WAY : MO_HOT_FAILED;
    if (status != MO_OK) {
        mo_vram_drop(h->experts->where.vram, x->layer, x->add);
    }
    return status == MO_EDEVICE ? status : MO_OK; /* otherwise the old expert serves on */
}

/* ---- By hand ---- */

/* The old expert comes back after a copy in its place failed. False: that failed as well, and *err says why. */
static bool put_back(mo_gpu_hot *h, const mo_exchange *x, int number, mo_error *err)
{
    int64_t bytes = 0;
    if (h->experts->where.store &&
        mo_store_bring(h->experts->where.store, x->layer, x->evict, err) != MO_OK) {
        return false;
    }
    const mo_daddr to = mo_vram_acquire_free(h->experts->where.vram, x->layer, x->evict);
    if (mo_gpu_experts_send(h->experts, x->layer, x->evict, to, number, &bytes, err) != MO_OK ||
        mo_dstream_wait(h->link->main, err) != MO_OK) {
        mo_vram_drop(h->experts->where.vram, x->layer, x->evict);
        return false;
    }
    mo_vram_landed(h->experts->where.vram, x->layer, x->evict);
    return true;
}

/* After a copy that failed: nothing of it is in a slot, the old expert does if it can, and *err tells which. */
static mo_status give_up(mo_gpu_hot *h, const mo_exchange *x, bool in_place, int number, mo_status status,
                         mo_error *err)
{
    mo_error second = {0};
    if (status != MO_EDEVICE) { /* parts that went well may still be on their way to the slot */
        mo_dstream_wait(h->link->fetch, &second);
    }
    mo_vram_drop(h->experts->where.vram, x->layer, x->add);
    if (status == MO_EDEVICE) {
        return status;
    }
    const bool kept = !in_place || put_back(h, x, number, &second);
    return mo_fail_prefix(err, status, "layer %d: expert %d cannot replace expert %d, %s", x->layer, x->add,
                          x->evict,
                          kept ? "which stays" : "which could not be restored either; the CPU computes both");
}

/* The new expert goes to a spare slot, or else in the old one's place; then the old one comes back if the copy fails. */
static mo_status exchange_now(mo_gpu_hot *h, const mo_exchange *x, mo_hot_begun *begun, mo_error *err)
{
    const int number = h->by_hand++;
    int64_t bytes = 0;
    *begun = MO_HOT_VOID;
    mo_status status =
        h->experts->where.store ? mo_store_bring(h->experts->where.store, x->layer, x->add, err) : MO_OK;
    if (status != MO_OK) {
        return status;
    }
    mo_daddr to = mo_vram_acquire_free(h->experts->where.vram, x->layer, x->add);
    const bool in_place = !to;
    if (in_place) {
        mo_vram_drop(h->experts->where.vram, x->layer, x->evict);
        to = mo_vram_acquire_free(h->experts->where.vram, x->layer, x->add);
    }
    status = mo_gpu_experts_send(h->experts, x->layer, x->add, to, number, &bytes, err);
    if (status == MO_OK && h->experts->where.store) {
        status = mo_dstream_wait(h->link->main, err);
    }
    *begun = status == MO_OK ? MO_HOT_DONE : MO_HOT_FAILED;
    if (status != MO_OK) {
        return give_up(h, x, in_place, number + 1, status, err);
    }
    mo_vram_landed(h->experts->where.vram, x->layer, x->add);
    if (!in_place) {
        mo_vram_drop(h->experts->where.vram, x->layer, x->evict);
    }
    return MO_OK;
}

static mo_status begin(void *owner, int number, const mo_exchange *x, mo_hot_begun *begun, mo_error *err)
{
    return number == MO_HOT_NOW ? exchange_now(owner, x, begun, err)
                                : begin_copy(owner, number, x, begun, err);
}

/* Nothing is under way, and nothing that a batch sent ahead counts: its stages are used by hand. */
static mo_status settle(void *owner, mo_error *err)
{
    mo_gpu_hot *h = owner;
    mo_status status = h->stream ? mo_dstream_wait(h->stream, err) : MO_OK;
    h->by_hand = 0;
    if (status == MO_OK) {
        status = mo_dstream_wait(h->link->fetch, err);
    }
    while (status == MO_OK && h->experts->window_tail < h->experts->window_head) {
        status = mo_gpu_window_retire(h->experts, err);
    }
    return status;
}

/* And waits: before that stages are in use that a batch would fill. A map that cannot be sent now is sent by the next
 * step. */
static mo_status tell_map(mo_gpu_hot *h, mo_error *err)
{
    mo_error second = {0};
    mo_status status;
    int tries = 0;
    do {
        status = mo_vram_switch(h->experts->where.vram, h->link->main, err);
    } while (mo_gpu_link_again(h->link, h->link->main, &tries, &status, err));
    const mo_status waited = mo_dstream_wait(h->link->main, &second);
    if (status == MO_OK && waited != MO_OK) {
        *err = second;
    }
    return status == MO_OK ? waited : status;
}

static mo_status switch_over(void *owner, bool wait, mo_error *err)
{
    mo_gpu_hot *h = owner;
    return wait ? tell_map(h, err) : mo_gpu_experts_map(h->experts, err);
}

mo_status mo_gpu_hot_open_updates(mo_gpu_hot *h, const mo_checkpoint *model, const mo_hot_request *r,
                                  mo_error *err)
{
    const mo_weighting_options weighting = r ? r->weighting : (mo_weighting_options){0};
    const mo_hot_tier tier = {.subsystem = "device",
                              .moves = h->move_count,
                              .window = WINDOW,
                              .owner = h,
                              .settle = settle,
                              .holds = holds,
                              .begin = begin,
                              .landed = landed,
                              .switch_over = switch_over,
                              .rates = rates_of};
    mo_profile_shape shape;
    mo_status status = mo_shape_make(model, &shape, err);
    if (status == MO_OK) {
        status = mo_hot_update_open(&tier, &shape, &weighting, r ? r->rate : 0.0, &h->update, err);
    }
    mo_shape_drop(&shape);
    return status;
}
