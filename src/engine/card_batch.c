/* Experts of a batch on the device, expert by expert: those in slots first, the others as they cross the link, each at
 * most once, window by window through a ring that is filled while earlier ones compute. A large batch uses nearly every
 * expert, so the ring runs ahead into the next layer before its choice is known. */
#include <string.h>

#include "base/status.h"
#include "engine/card_parts.h"

/* ---- The order of a layer --------------------------------------------------------------------- */

/* Experts that are computed together: `count` from `first` on in the order, out of one window of the ring. */
typedef struct portion {
    uint64_t window;
    int first, count;
} portion;

typedef struct order {
    int expert[MO_EXPERTS_MAX];
    int count, hot; /* the first `hot` lie in slots */
    portion portion[MO_EXPERTS_MAX];
    int portions, sent; /* the first `sent` are in the ring */
} order;

/* What lies in slots. */
static void list_hot(const mo_card *card, int layer, int experts, int32_t *left, order *o)
{
    for (int e = 0; e < experts; e++) {
        if (left[e] > 0 && mo_vram_find(card->vram, layer, e)) {
            o->expert[o->count++] = e;
            left[e] = 0;
        }
    }
    o->hot = o->count;
}

/* What was sent ahead of the choice. */
static void list_sent(mo_card *card, int layer, int32_t *left, order *o)
{
    for (uint64_t at = card->ring_tail; at < card->ring_head; at++) {
        const mo_card_window *w = mo_card_window_at(card, at);
        portion p = {.window = at, .first = o->count};
        for (int i = 0; w->layer == layer && i < w->count; i++) {
            if (left[w->expert[i]] > 0) {
                o->expert[o->count++] = w->expert[i];
                left[w->expert[i]] = 0;
            }
        }
        p.count = o->count - p.first;
        if (p.count > 0) {
            o->portion[o->portions++] = p;
        }
    }
    o->sent = o->portions;
}

/* The rest goes into the windows that come next. */
static void list_rest(const mo_card *card, int experts, int32_t *left, order *o)
{
    portion *p = NULL;
    for (int e = 0; e < experts; e++) {
        if (left[e] == 0) {
            continue;
        }
        if (!p || p->count == card->window_size) {
            const uint64_t window = card->ring_head + (uint64_t)(o->portions - o->sent);
            p = &o->portion[o->portions++];
            *p = (portion){.window = window, .first = o->count};
        }
        o->expert[o->count++] = e;
        p->count++;
    }
}

/* Rows follow the order in which experts are computed. */
static void arrange(mo_card *card, mo_walk *walk, int layer, order *o)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_workspace *w = walk->w;
    const int64_t rows = walk->tokens * moe->used;
    int32_t picks[MO_EXPERTS_MAX] = {0}, left[MO_EXPERTS_MAX];
    int32_t next = 0;
    o->count = o->portions = 0;
    for (int64_t i = 0; i < rows; i++) {
        picks[w->ids[i]]++;
    }
    memcpy(left, picks, sizeof left);
    list_hot(card, layer, moe->experts, left, o);
    list_sent(card, layer, left, o);
    list_rest(card, moe->experts, left, o);
    for (int i = 0; i < o->count; i++) {
        const int e = o->expert[i];
        w->needs[i] = (mo_need){.expert = e, .picks = (uint32_t)picks[e]};
        w->first[e] = next;
        next += picks[e];
    }
    for (int64_t i = 0; i < rows; i++) {
        const int32_t row = w->first[w->ids[i]]++;
        card->pinned.row_of[i] = row;
        card->pinned.picks[row] = (int32_t)(i / moe->used);
    }
    for (int i = 0; i < o->count; i++) { /* first: the end of each; back to the beginnings */
        w->first[o->expert[i]] -= picks[o->expert[i]];
    }
}

/* ---- Groups ----------------------------------------------------------------------------------- */

/* Group i of the order: where the device finds the matrices of its expert. */
static void put_group(mo_card *card, const mo_walk *walk, int i, const mo_daddr *part)
{
    const mo_need *n = &walk->w->needs[i];
    for (int j = 0; j < 3; j++) {
        card->pinned.groups[j * card->group_limit + i] = (mo_dgroup){.data = part[j],
                                                                     .expert = n->expert,
                                                                     .first = walk->w->first[n->expert],
                                                                     .count = (int32_t)n->picks};
    }
}

static void put_hot(mo_card *card, const mo_walk *walk, int layer, const order *o)
{
    const mo_card_layer *l = &card->layers[layer];
    for (int i = 0; i < o->hot; i++) {
        const mo_daddr at = mo_vram_find(card->vram, layer, o->expert[i]);
        put_group(card, walk, i, (mo_daddr[]){at, at + (mo_daddr)l->up_at, at + (mo_daddr)l->down_at});
    }
}

/* Expert i of the order is, or will be, the one at `place` of a window. */
static void put_crossing(mo_card *card, const mo_walk *walk, int layer, int i, uint64_t window, int place)
{
    const mo_card_window *w = mo_card_window_at(card, window);
    mo_daddr part[3];
    for (int j = 0; j < 3; j++) {
        const mo_card_lie lie = mo_card_window_lie(card, layer, j);
        part[j] = (mo_card_interleaved(card, layer) ? w->plain : w->memory) +
                  (mo_daddr)(lie.at + place * lie.stride);
    }
    put_group(card, walk, i, part);
}

static void put_portion(mo_card *card, const mo_walk *walk, int layer, const order *o, int number)
{
    const portion *p = &o->portion[number];
    const mo_card_window *w = mo_card_window_at(card, p->window);
    for (int i = 0, place = 0; i < p->count; i++, place++) {
        while (number < o->sent && w->expert[place] != o->expert[p->first + i]) {
            place++; /* sent ahead, but nobody chose it */
        }
        put_crossing(card, walk, layer, p->first + i, p->window, place);
    }
}

static mo_status copy_in(mo_card *card, mo_daddr to, const void *from, size_t bytes, mo_error *err)
{
    mo_status status;
    int tries = 0;
    do {
        status = mo_copy_in(card->main, to, from, bytes, err);
    } while (mo_card_again(card, card->main, &tries, &status, err));
    return status;
}

static mo_status copy_out(mo_card *card, void *to, mo_daddr from, size_t bytes, mo_error *err)
{
    mo_status status;
    int tries = 0;
    do {
        status = mo_copy_out(card->main, to, from, bytes, err);
    } while (mo_card_again(card, card->main, &tries, &status, err));
    return status;
}

/* Which rows belong to whom, and all groups where they are known: side by side. The device fetches them itself: a copy
 * would wait behind the megabytes of experts that are crossing. */
static mo_status send_order(mo_card *card, mo_card_plan *p, int layer, int64_t rows, bool groups,
                            mo_error *err)
{
    const mo_card_pinned *pinned = &card->pinned;
    const uint8_t *from = groups ? (const uint8_t *)pinned->groups : (const uint8_t *)pinned->picks;
    p->count = 0;
    const int64_t bytes =
        (const uint8_t *)(pinned->row_of + rows) - from; /* both sides have room for whole words */
    mo_card_take_in(p, layer, from, groups ? card->room.groups : card->room.picks, (bytes + 15) / 16 * 16);
    const mo_status status = mo_card_launch(card->main, p, err);
    p->count = 0;
    return status;
}

/* Groups that come to be known later. */
static mo_status send_groups(mo_card *card, int first, int count, mo_error *err)
{
    mo_status status = MO_OK;
    for (int part = 0; part < 3 && status == MO_OK; part++) {
        const int64_t at = part * card->group_limit + first;
        status = copy_in(card, card->room.groups + (mo_daddr)at * sizeof(mo_dgroup), &card->pinned.groups[at],
                         (size_t)count * sizeof(mo_dgroup), err);
    }
    return status;
}

static mo_status compute(mo_card *card, const mo_walk *walk, mo_card_plan *p, int layer, int first, int count,
                         mo_error *err)
{
    const mo_need *needs = walk->w->needs;
    mo_card_span span = {.group = first, .groups = count, .first_row = walk->w->first[needs[first].expert]};
    for (int i = first; i < first + count; i++) {
        span.rows += needs[i].picks;
        span.most = needs[i].picks > span.most ? needs[i].picks : span.most;
    }
    mo_card_groups(p, layer, &span);
    const mo_status status = mo_card_launch(card->main, p, err);
    p->count = 0;
    return status;
}

/* The same for experts of a window, when it has arrived. */
static mo_status compute_window(mo_card *card, const mo_walk *walk, mo_card_plan *p, const portion *part,
                                mo_error *err)
{
    const mo_card_window *w = mo_card_window_at(card, part->window);
    const mo_status status = mo_dstream_after(card->main, w->ready, err);
    p->count = 0;
    return status == MO_OK ? compute(card, walk, p, w->layer, part->first, part->count, err) : status;
}

/* ---- What crosses ----------------------------------------------------------------------------- */

/* Fills the ring: first what this layer still needs, then guesses. */
static mo_status fill(mo_card *card, int layer, order *o, bool ahead, mo_error *err)
{
    mo_status status = MO_OK;
    while (status == MO_OK && o->sent < o->portions && mo_card_ring_room(card)) {
        const portion *p = &o->portion[o->sent++];
        status = mo_card_ring_send(card, layer, &o->expert[p->first], p->count, err);
    }
    return status == MO_OK && ahead && o->sent == o->portions ? mo_card_ring_ahead(card, layer + 1, err)
                                                              : status;
}

static mo_status compute_crossing(mo_card *card, const mo_walk *walk, mo_card_plan *p, int layer, order *o,
                                  bool ahead, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < o->portions && status == MO_OK; i++) {
        const portion *part = &o->portion[i];
        while (status == MO_OK && card->ring_tail < part->window && card->ring_tail < card->ring_head) {
            status = mo_card_ring_retire(card, err); /* computed, or a guess that was wrong */
        }
        if (status == MO_OK) {
            status = fill(card, layer, o, ahead, err);
        }
        if (status == MO_OK) {
            status = compute_window(card, walk, p, part, err);
        }
    }
    while (status == MO_OK && card->ring_tail < card->ring_head &&
           mo_card_window_at(card, card->ring_tail)->layer <= layer) {
        status = mo_card_ring_retire(card, err);
    }
    return status == MO_OK ? fill(card, layer, o, ahead, err) : status;
}

/* Experts that come from the disk: what has landed in RAM crosses, round by round. */
static mo_status compute_landing(mo_card *card, mo_walk *walk, mo_card_plan *p, int layer, const order *o,
                                 mo_error *err)
{
    mo_store *store = walk->engine->tiers->store;
    mo_need *needs = walk->w->needs + o->hot;
    const int count = o->count - o->hot;
    mo_status status = MO_OK;
    bool wait = false;
    int left = count;
    mo_store_want(store, layer, needs, count);
    while (left > 0 && status == MO_OK) {
        status = mo_store_look(store, wait, err);
        wait = true;
        for (int i = 0; i < count && status == MO_OK; i++) {
            if (!needs[i].in || !needs[i].down || needs[i].down_done) {
                continue;
            }
            const portion part = {.window = card->ring_head, .first = o->hot + i, .count = 1};
            put_crossing(card, walk, layer, part.first, part.window, 0);
            status = mo_card_ring_send(card, layer, &o->expert[part.first], 1, err);
            if (status == MO_OK) {
                status = send_groups(card, part.first, 1, err);
            }
            if (status == MO_OK) {
                status = compute_window(card, walk, p, &part, err);
            }
            if (status == MO_OK) {
                status = mo_card_ring_retire(card, err);
            }
            if (status == MO_OK) { /* its slot in RAM may be filled anew */
                status = mo_event_wait(mo_card_window_at(card, part.window)->ready, err);
            }
            needs[i].in_done = needs[i].down_done = true;
            if (status == MO_OK) {
                mo_store_release(store, &needs[i]);
                needs[i].released = true;
            }
            left--;
            wait = false;
        }
    }
    mo_store_leave(store);
    return status;
}

/* ---- The layer -------------------------------------------------------------------------------- */

static void tally(const mo_walk *walk, int layer, const order *o)
{
    mo_tally_layer *counts = walk->engine->tally ? mo_tally_find(walk->engine->tally, layer) : NULL;
    if (!counts) {
        return;
    }
    mo_tally_call(counts, mo_walk_phase(walk));
    for (int i = 0; i < o->count; i++) {
        mo_tally_add(
            &counts->hits[mo_walk_phase(walk)][i < o->hot ? MO_FOUND_HOT : MO_FOUND_COLD][o->expert[i]],
            walk->w->needs[i].picks);
    }
}

static bool is_stored(const mo_walk *walk)
{
    return walk->engine->tiers && walk->engine->tiers->store;
}

/* May the ring run ahead of the layer's choice? With three picks for every expert, few are left out. */
static bool goes_ahead(const mo_card *card, const mo_walk *walk, int layer, bool experts)
{
    const mo_moe *moe = &card->frame->layers[layer].moe;
    return experts && !is_stored(walk) && walk->tokens * moe->used >= 3 * (int64_t)moe->experts;
}

mo_status mo_card_begin_batch(mo_card *card, const mo_walk *walk, bool experts, mo_error *err)
{
    int first = 0;
    mo_status status = MO_OK;
    while (card->ring_tail < card->ring_head &&
           status == MO_OK) { /* steps of few tokens may have used its place */
        status = mo_card_ring_retire(card, err);
    }
    if (status != MO_OK) {
        return status;
    }
    while (first < card->frame->layer_count && !card->frame->layers[first].routed) {
        first++;
    }
    return first < card->frame->layer_count && goes_ahead(card, walk, first, experts)
               ? mo_card_ring_ahead(card, first, err)
               : MO_OK;
}

/* What the layer chose, to the workspace. */
static mo_status read_choice(mo_card *card, mo_walk *walk, int layer, mo_error *err)
{
    const size_t bytes = sizeof(int32_t) * (size_t)(walk->tokens * walk->layer->moe.used);
    mo_status status = copy_out(card, card->pinned.ids,
                                mo_card_choice(card, card->room.ids, walk->tokens, layer), bytes, err);
    if (status == MO_OK && mo_walk_listens(walk)) {
        status = copy_out(card, walk->w->weights,
                          mo_card_choice(card, card->room.weights, walk->tokens, layer), bytes, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_wait(card->main, err);
    }
    if (status == MO_OK) {
        memcpy(walk->w->ids, card->pinned.ids, bytes);
        mo_walk_tell_routes(walk);
    }
    return status;
}

static void count(mo_card *card, mo_walk *walk, int layer, const order *o)
{
    tally(walk, layer, o);
    walk->engine->counters.expert_picks += (uint64_t)(walk->tokens * walk->layer->moe.used);
    walk->engine->counters.bricks_run += (uint64_t)o->count;
    card->counters.asked += (uint64_t)o->count;
    card->counters.hits += (uint64_t)o->hot;
}

mo_status mo_card_feed_batch(mo_card *card, mo_walk *walk, mo_card_plan *p, int layer, bool experts,
                             mo_error *err)
{
    const int64_t rows = walk->tokens * card->frame->layers[layer].moe.used;
    const bool stored = is_stored(walk), ahead = goes_ahead(card, walk, layer, experts);
    order o;
    walk->index = layer;
    walk->layer = &card->frame->layers[layer];
    mo_status status =
        ahead ? mo_card_ring_ahead(card, layer, err) : MO_OK; /* the link works while we wait */
    if (status == MO_OK) {
        status = read_choice(card, walk, layer, err);
    }
    if (status != MO_OK || !experts) {
        return status;
    }
    arrange(card, walk, layer, &o);
    count(card, walk, layer, &o);
    put_hot(card, walk, layer, &o);
    for (int i = 0; i < o.portions && !stored; i++) {
        put_portion(card, walk, layer, &o, i);
    }
    status = send_order(card, p, layer, rows, !stored, err);
    if (status == MO_OK && stored && o.hot) {
        status = send_groups(card, 0, o.hot, err);
    }
    if (status == MO_OK && o.hot) {
        status = compute(card, walk, p, layer, 0, o.hot, err);
    }
    if (status != MO_OK || (stored && o.count == o.hot)) {
        return status;
    }
    return stored ? compute_landing(card, walk, p, layer, &o, err)
                  : compute_crossing(card, walk, p, layer, &o, ahead, err);
}
