/* First fill: which experts get the slots of VRAM and RAM first. If all experts are in RAM, the device's
 * slots are filled when the model is opened. If experts are on disk, both tiers are filled during the first
 * steps. */
#include <stdlib.h>

#include "base/status.h"
#include "experts/ahead.h"

/* Experts of the order to look at together; and for RAM per turn, when the order is repeated. */
enum { LOOK_AHEAD = 64, AGAIN = 256 };

static bool is_routed(const mo_ahead *a, int layer)
{
    return layer >= a->first && layer < a->end && a->where->spec->layers[layer].routed;
}

static int most_experts(const mo_ahead *a)
{
    int most = 0;
    for (int i = a->first; i < a->end; i++) {
        const mo_layer *l = &a->where->spec->layers[i];
        most = l->routed && l->moe.experts > most ? l->moe.experts : most;
    }
    return most;
}

/* ---- At open ---- */

typedef struct filling {
    mo_ahead *a;
    const mo_ahead_fill *asked;
    int64_t done, all; /* bytes */
} filling;

/* Waits for all copies and marks their experts as arrived. */
static mo_status finish_copies(filling *f, mo_error *err)
{
    const mo_status status = f->a->mover.wait(f->a->mover.owner, err);
    return status == MO_OK ? mo_ahead_land(f->a, err) : status;
}

/* Copies the expert if a slot is free for it. bring: reads it first if it is on disk. */
static mo_status fill_one(filling *f, int layer, int expert, bool bring, mo_error *err)
{
    mo_ahead *a = f->a;
    const mo_where *w = a->where;
    const mo_move m = {layer, expert, -1};
    int64_t bytes = 0;
    mo_status status = MO_OK;
    if (mo_where_placed(w, layer, expert) || mo_vram_free(w->vram, layer) == 0 ||
        (!bring && !mo_where_readable(w, layer, expert))) {
        return MO_OK;
    }
    if (bring && w->store) {
        status = mo_store_bring(w->store, layer, expert, err);
    }
    if (status == MO_OK && mo_ahead_idle(a) < 0) {
        status = finish_copies(f, err);
    }
    if (status == MO_OK) {
        const mo_daddr to = mo_vram_acquire_free(w->vram, layer, expert);
        status = mo_ahead_begin(a, mo_ahead_idle(a), &m, to, false, true, &bytes, err);
    }
    if (status == MO_OK && f->asked->bring && w->store) {
        status = finish_copies(f, err);
        mo_store_yield(w->store, layer, expert);
    }
    f->done += bytes;
    if (status == MO_OK && f->asked->progress &&
        !f->asked->progress(f->asked->user, f->done < f->all ? f->done : f->all, f->all)) {
        status = mo_fail(err, MO_ECANCELLED, "sending the model to the device was cancelled");
    }
    return status;
}

/* Hottest first. The policy also gets their hits. */
static mo_status fill_by_requests(filling *f, mo_error *err)
{
    const mo_ahead_fill *asked = f->asked;
    mo_status status = MO_OK;
    for (int32_t i = 0; i < asked->request_count && status == MO_OK; i++) {
        const mo_store_request *r = &asked->requests[i];
        if (mo_vram_has(f->a->where->vram, r->layer)) {
            if (!asked->only) {
                mo_vram_seed(f->a->where->vram, r->layer, r->expert, r->hits, asked->requests[0].hits);
                if (r->keep) {
                    mo_vram_stay(f->a->where->vram, r->layer, r->expert);
                }
            }
            status = fill_one(f, r->layer, r->expert, asked->only, err);
        }
    }
    return status;
}

/* Experts of the same number in all layers together. */
static mo_status fill_by_number(filling *f, mo_error *err)
{
    const mo_ahead *a = f->a;
    mo_status status = MO_OK;
    for (int e = 0, most = most_experts(a); e < most; e++) {
        for (int i = a->first; i < a->end && status == MO_OK; i++) {
            if (is_routed(a, i) && e < a->where->spec->layers[i].moe.experts && mo_where_here(a->where, e)) {
                status = fill_one(f, i, e, f->asked->bring, err);
            }
        }
    }
    return status;
}

mo_status mo_ahead_fill_slots(mo_ahead *a, const mo_ahead_fill *asked, mo_error *err)
{
    filling f = {.a = a, .asked = asked};
    int32_t slots, filled;
    mo_status status = MO_OK;
    mo_vram_slots(a->where->vram, &slots, &filled, &f.all);
    if (slots > 0 && (asked->only || asked->bring || !a->where->store)) {
        status = fill_by_requests(&f, err);
        if (status == MO_OK && !asked->only) {
            status = fill_by_number(&f, err);
        }
        if (status == MO_OK) {
            status = finish_copies(&f, err);
        }
    }
    return status == MO_OK ? a->mover.publish(a->mover.owner, err) : status;
}

/* ---- During the first steps: the order ---- */

static void add(mo_first_fill *f, bool *listed, int64_t most, int layer, int expert)
{
    bool *seen = &listed[layer * most + expert];
    if (!*seen) {
        *seen = true;
        f->order[f->count++] = (mo_ahead_expert){.layer = layer, .expert = expert};
    }
}

static void list(mo_ahead *a, const mo_store_request *requests, int32_t count, int most, bool *listed)
{
    const mo_layer *layers = a->where->spec->layers;
    for (int32_t i = 0; i < count; i++) {
        const mo_store_request *r = &requests[i];
        if (is_routed(a, r->layer) && r->expert >= 0 && r->expert < layers[r->layer].moe.experts) {
            add(&a->fill, listed, most, r->layer, r->expert);
            mo_store_seed(a->where->store, r->layer, r->expert, r->hits, requests[0].hits);
            mo_vram_seed(a->where->vram, r->layer, r->expert, r->hits, requests[0].hits);
            if (r->keep) {
                mo_vram_stay(a->where->vram, r->layer, r->expert);
            }
        }
    }
    a->fill.known = a->fill.count > 0;
    for (int e = 0; e < most; e++) {
        for (int i = a->first; i < a->end; i++) {
            if (is_routed(a, i) && e < layers[i].moe.experts && mo_where_here(a->where, e)) {
                add(&a->fill, listed, most, i, e);
            }
        }
    }
}

mo_status mo_ahead_begin_fill(mo_ahead *a, const mo_store_request *requests, int32_t count, mo_error *err)
{
    const int most = most_experts(a);
    const size_t cells = (size_t)a->where->spec->layer_count * (size_t)most;
    if (!a->where->store) {
        return MO_OK;
    }
    bool *listed = calloc(cells + 1, sizeof *listed);
    a->fill.order = calloc(cells + 1, sizeof *a->fill.order);
    if (!listed || !a->fill.order) {
        free(listed);
        return mo_fail(err, MO_ENOMEM,
                       "out of memory for the read order of experts; free some and try again");
    }
    list(a, requests, count, most, listed);
    free(listed);
    return mo_ahead_continue_fill(a, err);
}

bool mo_ahead_leaves(const mo_ahead *a)
{
    const mo_first_fill *f = &a->fill;
    return f->order && mo_vram_admits(a->where->vram) && (!f->known || f->again || f->to_device == f->count);
}

/* ---- To the device ---- */

/* True if the expert should go to the device: it is not there or on its way, and a slot is free after those
 * before it. If RAM has hardly more slots than one token needs, nothing is lent: prompts leave their experts
 * on the device instead. */
static bool wanted(const mo_ahead *a, const mo_ahead_expert *e, int32_t before)
{
    const mo_where *w = a->where;
    return mo_vram_admits(w->vram) && mo_store_lends(w->store, e->layer) &&
           mo_vram_free(w->vram, e->layer) > before && !mo_where_address(w, e->layer, e->expert) &&
           !mo_ahead_comes(a, e->layer, e->expert);
}

/* Copies a lent expert. If the copy fails, it stays in RAM. */
static mo_status send(mo_ahead *a, int number, const mo_ahead_expert *e, mo_error *err)
{
    const mo_move m = {e->layer, e->expert, -1};
    const mo_daddr to = mo_vram_acquire_free(a->where->vram, e->layer, e->expert);
    int64_t bytes;
    const mo_status status = mo_ahead_begin(a, number, &m, to, true, false, &bytes, err);
    a->counters.filled_bytes += status == MO_OK ? (uint64_t)bytes : 0;
    return status == MO_EDEVICE ? status : MO_OK;
}

/* Maximum experts that wait in RAM to be sent, or are being read for that: few enough that none evicts
 * another. */
static int32_t coming_most(const mo_ahead *a)
{
    int32_t slots, filled;
    int64_t bytes;
    mo_store_slots(a->where->store, &slots, &filled, &bytes);
    return slots / 4 < LOOK_AHEAD ? slots / 4 + 1 : LOOK_AHEAD;
}

/* Sends experts that are in RAM, and begins to read the others, up to LOOK_AHEAD in the order. Experts being
 * read into RAM reserve slots, so that no colder expert gets the last ones. An expert that was read and is
 * gone again (its read failed, or a layer needed its slot) is skipped until it is needed. */
static mo_status fill_device(mo_ahead *a, mo_error *err)
{
    mo_first_fill *f = &a->fill;
    mo_store *store = a->where->store;
    const int32_t most = coming_most(a);
    mo_status status = MO_OK;
    int32_t coming = 0;
    bool settled = true; /* all experts up to here have their slot, or never will */
    for (int32_t i = f->to_device;
         i < f->count && i < f->to_device + LOOK_AHEAD && coming < most && status == MO_OK; i++) {
        mo_ahead_expert *e = &f->order[i];
        const int number = wanted(a, e, coming) ? mo_ahead_idle(a) : -1;
        if (number >= 0 && mo_store_lend(store, e->layer, e->expert)) {
            status = send(a, number, e, err);
        } else if (wanted(a, e, coming)) {
            const bool there = mo_where_arriving(a->where, e->layer, e->expert);
            const bool ask = !there && !e->read && !f->again;
            const mo_store_begun begun =
                ask ? mo_store_ahead(store, e->layer, e->expert, true) : MO_STORE_FULL;
            e->read |= begun == MO_STORE_BEGUN;
            coming += there || begun != MO_STORE_FULL;
            settled = settled && !there && !ask;
        }
        f->to_device = settled ? i + 1 : f->to_device;
    }
    return status;
}

/* ---- Into RAM ---- */

/* Experts without a free slot in RAM are skipped when the device needs none of RAM's slots any more. */
static void fill_ram(mo_ahead *a)
{
    mo_first_fill *f = &a->fill;
    const int32_t end = f->again && f->to_ram + AGAIN < f->count ? f->to_ram + AGAIN : f->count;
    while (f->to_ram < end) {
        const mo_ahead_expert *e = &f->order[f->to_ram];
        if (!mo_where_address(a->where, e->layer, e->expert) && !mo_ahead_comes(a, e->layer, e->expert)) {
            const mo_store_begun begun = mo_store_ahead(a->where->store, e->layer, e->expert, false);
            const bool more = f->to_device < f->count || a->under_way > 0;
            if (begun == MO_STORE_BUSY || (begun == MO_STORE_FULL && more)) {
                return;
            }
        }
        f->to_ram++;
    }
}

static bool is_done(const mo_ahead *a)
{
    return a->fill.to_device == a->fill.count && a->fill.to_ram == a->fill.count && a->under_way == 0;
}

/* Repeats the order if both tiers are through it and either not all of the device's slots are taken, or RAM
 * has free slots for experts that are in neither tier because others evicted them on their way. */
static void begin_again(mo_ahead *a)
{
    const mo_where *w = a->where;
    int32_t slots, filled, ram_slots, ram_filled;
    int64_t bytes;
    mo_vram_slots(w->vram, &slots, &filled, &bytes);
    mo_store_slots(w->store, &ram_slots, &ram_filled, &bytes);
    if (mo_vram_admits(w->vram) &&
        (filled < slots || (ram_filled < ram_slots && mo_store_absent(w->store)))) {
        a->fill.to_device = a->fill.to_ram = 0;
        a->fill.again = true;
    }
}

mo_status mo_ahead_continue_fill(mo_ahead *a, mo_error *err)
{
    if (!a->fill.order) {
        return MO_OK;
    }
    if (is_done(a)) {
        begin_again(a);
    }
    if (is_done(a)) {
        return MO_OK;
    }
    mo_status status = mo_ahead_look(a, true, err);
    if (status == MO_OK) {
        status = fill_device(a, err);
    }
    if (status == MO_OK) {
        fill_ram(a);
    }
    return status;
}
