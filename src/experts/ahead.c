#include "experts/ahead.h"

#include <stdlib.h>

#include "base/status.h"

void mo_ahead_close(mo_ahead *a)
{
    mo_ahead_abort(a); /* lent experts are returned: the store may continue without the device */
    free(a->queue);
    free(a->hot);
    free(a->fill.order);
    *a = (mo_ahead){0};
}

/* ---- Copies ---- */

int mo_ahead_idle(const mo_ahead *a)
{
    for (int i = 0; i < a->mover.count; i++) {
        if (!a->copies[i].busy) {
            return i;
        }
    }
    return -1;
}

/* A failed copy that does not lose the device may be partial. Its slot and its source are released only when
 * all copies have ended. */
mo_status mo_ahead_begin(mo_ahead *a, int number, const mo_move *m, mo_daddr to, bool lent, bool retry,
                         int64_t *bytes, mo_error *err)
{
    mo_error ignored = {0};
    *bytes = 0;
    mo_status status = a->mover.begin(a->mover.owner, number, m->layer, m->expert, to, retry, bytes, err);
    if (status == MO_OK && a->where->store &&
        !lent) { /* its slot in RAM may be evicted when the step begins */
        status = a->mover.wait(a->mover.owner, err);
    }
    if (status == MO_OK) {
        a->copies[number] = (mo_ahead_copy){.move = *m, .busy = true, .lent = lent};
        a->under_way++;
        return MO_OK;
    }
    if (status != MO_EDEVICE) {
        a->mover.wait(a->mover.owner, &ignored);
    }
    mo_vram_drop(a->where->vram, m->layer, m->expert);
    if (lent) {
        mo_store_return(a->where->store, m->layer, m->expert);
    }
    return status;
}

static void finish(mo_ahead *a, mo_ahead_copy *c)
{
    const mo_move *m = &c->move;
    mo_vram_landed(a->where->vram, m->layer, m->expert);
    if (m->evict >= 0) { /* the evicted expert's slot becomes the spare one */
        mo_vram_drop(a->where->vram, m->layer, m->evict);
        a->counters.exchanged++;
    }
    if (c->lent) {
        mo_store_return(a->where->store, m->layer, m->expert);
        mo_store_yield(a->where->store, m->layer, m->expert);
    }
    c->busy = false;
    a->under_way--;
}

mo_status mo_ahead_look(mo_ahead *a, bool fill_only, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; a->under_way > 0 && i < a->mover.count && status == MO_OK; i++) {
        mo_ahead_copy *c = &a->copies[i];
        bool done = false;
        if (c->busy && !(fill_only && c->move.evict >= 0)) {
            status = a->mover.landed(a->mover.owner, i, &done, err);
        }
        if (done) {
            finish(a, c);
        }
    }
    return status;
}

mo_status mo_ahead_land(mo_ahead *a, mo_error *err)
{
    return mo_ahead_look(a, false, err);
}

void mo_ahead_abort(mo_ahead *a)
{
    mo_error ignored = {0};
    if (a->under_way == 0) {
        return;
    }
    a->mover.wait(a->mover.owner, &ignored);
    for (int i = 0; i < a->mover.count; i++) {
        mo_ahead_copy *c = &a->copies[i];
        if (c->busy && c->move.evict < 0) {
            mo_vram_drop(a->where->vram, c->move.layer, c->move.expert);
            if (c->lent) {
                mo_store_return(a->where->store, c->move.layer, c->move.expert);
            }
            c->busy = false;
            a->under_way--;
        }
    }
    a->fill.to_device = a->fill.to_ram = 0;
}

/* ---- Exchanges ---- */

static bool *hot_cell(const mo_ahead *a, int layer, int expert)
{
    return &a->hot[(int64_t)layer * mo_store_experts(a->where->store)->experts + expert];
}

mo_status mo_ahead_keep_hot(mo_ahead *a, const mo_store_request *requests, int32_t count, mo_error *err)
{
    const mo_expert_table *table = mo_store_experts(a->where->store);
    a->hot = calloc((size_t)table->layers * (size_t)table->experts + 1, sizeof *a->hot);
    if (!a->hot) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the hot cache's list; free some and try again");
    }
    for (int32_t i = 0; i < count; i++) {
        *hot_cell(a, requests[i].layer, requests[i].expert) =
            mo_where_resident(a->where, requests[i].layer, requests[i].expert);
    }
    return MO_OK;
}

bool mo_ahead_holds(const mo_ahead *a, int layer, int expert)
{
    if (a->mover.count > 0) {
        return layer >= a->first && layer < a->end && mo_vram_has(a->where->vram, layer) &&
               mo_where_address(a->where, layer, expert) != 0;
    }
    return a->hot ? *hot_cell(a, layer, expert) : mo_where_resident(a->where, layer, expert);
}

bool mo_ahead_comes(const mo_ahead *a, int layer, int expert)
{
    for (int i = 0; a->under_way > 0 && i < a->mover.count; i++) {
        const mo_ahead_copy *c = &a->copies[i];
        if (c->busy && c->move.layer == layer && c->move.expert == expert) {
            return true;
        }
    }
    return false;
}

bool mo_ahead_goes(const mo_ahead *a, int layer, int expert)
{
    for (int i = 0; a->under_way > 0 && i < a->mover.count; i++) {
        const mo_ahead_copy *c = &a->copies[i];
        if (c->busy && c->move.layer == layer && c->move.evict == expert) {
            return true;
        }
    }
    return false;
}

int mo_ahead_exchanging(const mo_ahead *a)
{
    int count = 0;
    for (int i = 0; i < a->mover.count; i++) {
        count += a->copies[i].busy && a->copies[i].move.evict >= 0;
    }
    return count;
}

/* Exchanges by a read, and waits for it. */
static mo_status exchange_in_ram(mo_ahead *a, const mo_move *m, mo_error *err)
{
    mo_store *store = a->where->store;
    mo_store_settle(store);
    const mo_status status = mo_store_exchange(store, m->layer, m->evict, m->expert, err);
    a->counters.exchanged += status == MO_OK;
    a->counters.failed += status != MO_OK;
    if (a->hot) {
        *hot_cell(a, m->layer, m->evict) = mo_where_resident(a->where, m->layer, m->evict);
        *hot_cell(a, m->layer, m->expert) = status == MO_OK;
    }
    return status;
}

/* *later: no copy is idle, no slot is spare, or the expert is on disk. No read is begun for it: an expert
 * that is picked often will soon be read for a layer. An exchange that has become pointless is dropped. */
static mo_status begin_exchange(mo_ahead *a, const mo_move *m, bool *later, mo_error *err)
{
    const mo_where *w = a->where;
    int64_t bytes;
    *later = false;
    if (a->mover.count == 0) {
        return exchange_in_ram(a, m, err);
    }
    const int number = mo_ahead_idle(a);
    if (number >= 0 &&
        (!mo_where_address(w, m->layer, m->evict) || mo_where_address(w, m->layer, m->expert))) {
        return MO_OK;
    }
    const mo_daddr to = number >= 0 && mo_where_readable(w, m->layer, m->expert)
                            ? mo_vram_acquire_free(w->vram, m->layer, m->expert)
                            : 0;
    *later = to == 0;
    const mo_status status = to ? mo_ahead_begin(a, number, m, to, false, false, &bytes, err) : MO_OK;
    a->counters.failed += status != MO_OK;
    return status == MO_EDEVICE ? status : MO_OK; /* after any other failure the old expert stays in use */
}

void mo_ahead_queue(mo_ahead *a, mo_move *moves, size_t count)
{
    free(a->queue);
    a->queue = moves;
    a->queued = count;
}

mo_status mo_ahead_exchange(mo_ahead *a, mo_error *err)
{
    mo_status status = MO_OK;
    size_t kept = 0;
    for (size_t i = 0; i < a->queued; i++) {
        bool later = true;
        if (status == MO_OK) {
            status = begin_exchange(a, &a->queue[i], &later, err);
        }
        if (later) {
            a->queue[kept++] = a->queue[i];
        }
    }
    a->queued = kept;
    return status;
}

mo_status mo_ahead_turn(mo_ahead *a, mo_error *err)
{
    mo_status status = mo_ahead_land(a, err);
    if (status == MO_OK) {
        status = mo_ahead_exchange(a, err);
    }
    return status == MO_OK ? mo_ahead_continue_fill(a, err) : status;
}

/* ---- Manual exchanges ---- */

mo_status mo_ahead_settle(mo_ahead *a, mo_error *err)
{
    a->queued = 0;
    if (a->mover.count == 0) {
        if (a->where->store) {
            mo_store_settle(a->where->store);
        }
        return MO_OK;
    }
    const mo_status status = a->mover.settle(a->mover.owner, err);
    return status == MO_OK ? mo_ahead_land(a, err) : status;
}

mo_status mo_ahead_publish(mo_ahead *a, mo_error *err)
{
    return a->mover.count > 0 ? a->mover.publish(a->mover.owner, err) : MO_OK;
}

/* Copies an expert to a free slot of its layer and waits for it. */
static mo_status copy_now(mo_ahead *a, int layer, int expert, mo_error *err)
{
    const mo_move m = {layer, expert, -1};
    int64_t bytes;
    mo_status status = a->where->store ? mo_store_bring(a->where->store, layer, expert, err) : MO_OK;
    const mo_daddr to = status == MO_OK ? mo_vram_acquire_free(a->where->vram, layer, expert) : 0;
    if (to) {
        status = mo_ahead_begin(a, mo_ahead_idle(a), &m, to, false, true, &bytes, err);
    }
    if (status == MO_OK) {
        status = a->mover.wait(a->mover.owner, err);
    }
    return status == MO_OK ? mo_ahead_land(a, err) : status;
}

/* The new expert gets a spare slot, or else the slot of the old one, which is restored if the copy fails. */
mo_status mo_ahead_exchange_now(mo_ahead *a, const mo_move *m, mo_error *err)
{
    const mo_where *w = a->where;
    if (a->mover.count == 0) {
        return exchange_in_ram(a, m, err);
    }
    mo_status status = w->store ? mo_store_bring(w->store, m->layer, m->expert, err) : MO_OK;
    if (status != MO_OK) {
        return status;
    }
    const bool in_place = mo_vram_free(w->vram, m->layer) == 0;
    if (in_place) {
        mo_vram_drop(w->vram, m->layer, m->evict);
    }
    status = copy_now(a, m->layer, m->expert, err);
    if (status == MO_OK) {
        if (!in_place) {
            mo_vram_drop(w->vram, m->layer, m->evict);
        }
        a->counters.exchanged++;
        return MO_OK;
    }
    a->counters.failed++;
    if (status == MO_EDEVICE) {
        return status;
    }
    mo_error second = {0};
    const bool kept = !in_place || copy_now(a, m->layer, m->evict, &second) == MO_OK;
    return mo_fail_prefix(err, status, "layer %d: expert %d cannot replace expert %d, %s", m->layer,
                          m->expert, m->evict,
                          kept ? "which stays" : "which could not be restored either; the CPU computes both");
}
