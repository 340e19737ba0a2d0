/* Experts of a batch on the device, expert by expert: those in slots first, the others as they cross the link, each at
 * most once, through a ring of stages that is filled while earlier ones compute. A large batch uses nearly every
 * expert, so the ring runs ahead into the next layer before its choice is known. */
#include <string.h>

#include "base/status.h"
#include "engine/card_parts.h"

/* Stages that are computed together. */
enum { WINDOW = 8 };

/* ---- Stages ----------------------------------------------------------------------------------- */

static mo_card_stage *stage_at(mo_card *card, uint64_t number)
{
    return &card->stages[number % (uint64_t)card->stage_count];
}

/* Sends a brick to the next stage; there must be a free one. */
static mo_status send(mo_card *card, int layer, int expert, mo_error *err)
{
    mo_card_stage *s = stage_at(card, card->stage_head);
    int64_t bytes = 0;
    mo_status status = MO_OK;
    if (card->stage_head >= (uint64_t)card->stage_count) { /* until then nobody has used it */
        status = mo_stream_after(card->fetch, s->done, err);
    }
    if (status == MO_OK) {
        status = mo_card_copy_brick(card, card->fetch, layer, expert, s->memory, &bytes, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(s->ready, card->fetch, err);
    }
    s->layer = layer;
    s->expert = expert;
    card->stage_head++;
    card->counters.fetched++;
    card->counters.fetched_bytes += (uint64_t)bytes;
    return status;
}

/* The oldest stage has been read, or was not needed. */
static mo_status retire(mo_card *card, mo_error *err)
{
    mo_card_stage *s = stage_at(card, card->stage_tail++);
    s->layer = -1;
    return mo_event_record(s->done, card->main, err);
}

mo_status mo_card_begin_batch(mo_card *card, mo_error *err)
{
    mo_status status = MO_OK;
    while (card->stage_tail < card->stage_head && status == MO_OK) {
        status = retire(card, err);
    }
    return status;
}

static bool room_ahead(const mo_card *card)
{
    return card->stage_head - card->stage_tail < (uint64_t)card->stage_count;
}

/* Stages first .. first + count - 1 of the ring to the file's layout; those side by side in one op. */
static mo_status restore(mo_card *card, mo_card_plan *p, int layer, uint64_t first, int count, mo_error *err)
{
    mo_status status = MO_OK;
    for (int done = 0, run; done < count && status == MO_OK; done += run) {
        const mo_card_stage *s = stage_at(card, first + (uint64_t)done);
        const int left = card->stage_count - (int)(s - card->stages);
        run = count - done < left ? count - done : left;
        p->count = 0;
        mo_card_restore(p, layer, s->memory, s->plain, run, -1);
        status = mo_card_launch(card->main, p, err);
        p->count = 0;
    }
    return status;
}

/* ---- The order of a layer --------------------------------------------------------------------- */

typedef struct order {
    int expert[MO_EXPERTS_MAX];
    int count, hot; /* the first `hot` lie in slots */
} order;

/* Rows follow the order in which experts are computed. */
static void arrange(const mo_card *card, mo_walk *walk, int layer, order *o)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_workspace *w = walk->w;
    const int64_t rows = walk->tokens * moe->used;
    int32_t picks[MO_EXPERTS_MAX] = {0};
    int32_t next = 0;
    o->count = o->hot = 0;
    for (int64_t i = 0; i < rows; i++) {
        picks[w->ids[i]]++;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int e = 0; e < moe->experts; e++) {
            const bool hot = mo_vram_find(card->vram, layer, e) != 0;
            if (picks[e] > 0 && hot == (pass == 0)) {
                o->expert[o->count++] = e;
                o->hot += hot;
                w->first[e] = next;
                next += picks[e];
            }
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        const int32_t row = w->first[w->ids[i]]++;
        card->pinned.row_of[i] = row;
        card->pinned.picks[row] = (int32_t)(i / moe->used);
    }
    for (int i = 0; i < o->count; i++) { /* first: the end of each; back to the beginnings */
        w->first[o->expert[i]] -= picks[o->expert[i]];
        w->needs[i] = (mo_need){.expert = o->expert[i], .picks = (uint32_t)picks[o->expert[i]]};
    }
}

/* Groups i .. i + count - 1 of the order, with their matrices at base[]. */
static mo_card_span describe(mo_card *card, const mo_walk *walk, int layer, int i, int count,
                             const mo_daddr *base)
{
    const mo_card_layer *l = &card->layers[layer];
    const int64_t at[] = {0, l->up_at, l->down_at};
    mo_card_span span = {.group = i, .groups = count, .first_row = walk->w->first[walk->w->needs[i].expert]};
    for (int j = 0; j < count; j++) {
        const mo_need *n = &walk->w->needs[i + j];
        for (int part = 0; part < 3; part++) {
            card->pinned.groups[part * card->group_limit + i + j] =
                (mo_dgroup){.data = base[j] + (mo_daddr)at[part],
                            .expert = n->expert,
                            .first = walk->w->first[n->expert],
                            .count = (int32_t)n->picks};
        }
        span.rows += n->picks;
        span.most = n->picks > span.most ? n->picks : span.most;
    }
    return span;
}

static mo_status compute(mo_card *card, mo_card_plan *p, int layer, const mo_card_span *span, mo_error *err)
{
    mo_status status = MO_OK;
    for (int part = 0; part < 3 && status == MO_OK; part++) {
        const int64_t at = part * card->group_limit + span->group;
        status = mo_copy_in(card->main, card->room.groups + (mo_daddr)at * sizeof(mo_dgroup),
                            &card->pinned.groups[at], (size_t)span->groups * sizeof(mo_dgroup), err);
    }
    p->count = 0;
    mo_card_groups(p, layer, span);
    status = status == MO_OK ? mo_card_launch(card->main, p, err) : status;
    p->count = 0;
    return status;
}

/* ---- What is in slots ------------------------------------------------------------------------- */

static mo_status compute_hot(mo_card *card, mo_walk *walk, mo_card_plan *p, int layer, const order *o,
                             mo_error *err)
{
    mo_daddr base[MO_EXPERTS_MAX];
    if (o->hot == 0) {
        return MO_OK;
    }
    for (int i = 0; i < o->hot; i++) {
        base[i] = mo_vram_find(card->vram, layer, o->expert[i]);
    }
    const mo_card_span span = describe(card, walk, layer, 0, o->hot, base);
    return compute(card, p, layer, &span, err);
}

/* ---- What crosses ----------------------------------------------------------------------------- */

/* Where the ring reads ahead: experts of `layer` from `expert` on that are not on the device. */
typedef struct cursor {
    int layer, expert;
} cursor;

/* The next brick that a large batch will probably need after c; false at the end of the model. */
static bool next_guess(const mo_card *card, cursor *c)
{
    for (; c->layer < card->frame->layer_count; c->layer++, c->expert = 0) {
        const mo_layer *l = &card->frame->layers[c->layer];
        for (; l->routed && c->expert < l->moe.experts; c->expert++) {
            if (!mo_vram_find(card->vram, c->layer, c->expert)) {
                return true;
            }
        }
    }
    return false;
}

/* Fills the ring: first what this layer still needs, then guesses. sent: how many of the order were sent. */
static mo_status fill(mo_card *card, int layer, const order *o, int *sent, bool ahead, cursor *guess,
                      mo_error *err)
{
    mo_status status = MO_OK;
    while (status == MO_OK && room_ahead(card) && *sent < o->count) {
        status = send(card, layer, o->expert[(*sent)++], err);
    }
    while (status == MO_OK && ahead && room_ahead(card) && next_guess(card, guess)) {
        status = send(card, guess->layer, guess->expert, err);
        guess->expert++;
    }
    return status;
}

/* What was sent ahead of the choice: counts how much of the order it covers, and passes over what earlier layers did
 * not need. Bricks are sent in ascending order, so whatever is needed up to the last one is there. */
static mo_status match_ahead(mo_card *card, int layer, const order *o, int *sent, mo_error *err)
{
    mo_status status = MO_OK;
    while (status == MO_OK && card->stage_tail < card->stage_head &&
           stage_at(card, card->stage_tail)->layer < layer) {
        status = retire(card, err);
    }
    for (uint64_t at = card->stage_tail; at < card->stage_head; at++) {
        const mo_card_stage *s = stage_at(card, at);
        while (*sent < o->count && (s->layer > layer || o->expert[*sent] <= s->expert)) {
            (*sent)++;
        }
    }
    return status;
}

static mo_status compute_crossing(mo_card *card, mo_walk *walk, mo_card_plan *p, int layer, const order *o,
                                  bool ahead, mo_error *err)
{
    const bool interleaved = mo_card_interleaved(card, layer);
    int sent = o->hot;
    cursor guess = {.layer = layer + 1};
    mo_status status = match_ahead(card, layer, o, &sent, err);
    if (card->stage_head > card->stage_tail) { /* guesses go on behind the last one */
        const mo_card_stage *last = stage_at(card, card->stage_head - 1);
        if (last->layer > layer) {
            guess = (cursor){.layer = last->layer, .expert = last->expert + 1};
        }
    }
    for (int i = o->hot; i < o->count && status == MO_OK;) {
        mo_daddr base[WINDOW];
        int count = 0;
        status = fill(card, layer, o, &sent, ahead, &guess, err);
        const uint64_t window_first = card->stage_tail;
        uint64_t at = window_first;
        while (count < WINDOW && i + count < o->count && at < card->stage_head) {
            const mo_card_stage *s = stage_at(card, at++);
            if (s->layer == layer && s->expert == o->expert[i + count]) {
                base[count++] = interleaved ? s->plain : s->memory;
            } else if (s->layer != layer) {
                at--;
                break;
            }
        }
        if (status == MO_OK && count > 0) {
            status = mo_stream_after(card->main, stage_at(card, at - 1)->ready, err);
        }
        if (status == MO_OK && count > 0 && interleaved) {
            status = restore(card, p, layer, window_first, (int)(at - window_first), err);
        }
        if (status == MO_OK && count > 0) {
            const mo_card_span span = describe(card, walk, layer, i, count, base);
            status = compute(card, p, layer, &span, err);
        }
        while (status == MO_OK && card->stage_tail < at) {
            status = retire(card, err);
        }
        i += count;
    }
    return status == MO_OK ? fill(card, layer, o, &sent, ahead, &guess, err) : status;
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
            mo_daddr base = stage_at(card, card->stage_head)->memory;
            status = send(card, layer, needs[i].expert, err);
            const uint64_t at = card->stage_head - 1;
            if (status == MO_OK) {
                status = mo_stream_after(card->main, stage_at(card, at)->ready, err);
            }
            if (status == MO_OK) {
                const mo_card_span span = describe(card, walk, layer, o->hot + i, 1, &base);
                status = compute(card, p, layer, &span, err);
            }
            if (status == MO_OK) {
                status = retire(card, err);
            }
            if (status == MO_OK) { /* its slot in RAM may be filled anew */
                status = mo_event_wait(stage_at(card, at)->ready, err);
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

mo_status mo_card_feed_batch(mo_card *card, mo_walk *walk, mo_card_plan *p, int layer, bool experts,
                             mo_error *err)
{
    const mo_moe *moe = &card->frame->layers[layer].moe;
    const int64_t rows = walk->tokens * moe->used;
    order o;
    walk->index = layer;
    walk->layer = &card->frame->layers[layer];
    mo_status status =
        mo_copy_out(card->main, card->pinned.ids, mo_card_choice(card, card->room.ids, walk->tokens, layer),
                    sizeof(int32_t) * (size_t)rows, err);
    if (status == MO_OK && mo_walk_listens(walk)) {
        status = mo_copy_out(card->main, walk->w->weights,
                             mo_card_choice(card, card->room.weights, walk->tokens, layer),
                             sizeof(float) * (size_t)rows, err);
    }
    if (status == MO_OK) {
        status = mo_stream_wait(card->main, err);
    }
    if (status != MO_OK) {
        return status;
    }
    memcpy(walk->w->ids, card->pinned.ids, sizeof(int32_t) * (size_t)rows);
    mo_walk_tell_routes(walk);
    if (!experts) {
        return MO_OK;
    }
    arrange(card, walk, layer, &o);
    tally(walk, layer, &o);
    walk->engine->counters.expert_picks += (uint64_t)rows;
    walk->engine->counters.bricks_run += (uint64_t)o.count;
    card->counters.asked += (uint64_t)o.count;
    card->counters.hits += (uint64_t)o.hot;
    status =
        mo_copy_in(card->main, card->room.picks, card->pinned.picks, sizeof(int32_t) * (size_t)rows, err);
    if (status == MO_OK) {
        status = mo_copy_in(card->main, card->room.row_of, card->pinned.row_of,
                            sizeof(int32_t) * (size_t)rows, err);
    }
    if (status == MO_OK) {
        status = compute_hot(card, walk, p, layer, &o, err);
    }
    if (status != MO_OK || o.count == o.hot) {
        return status;
    }
    if (walk->engine->tiers && walk->engine->tiers->store) {
        return compute_landing(card, walk, p, layer, &o, err);
    }
    /* With three picks for every expert, few are left out. */
    return compute_crossing(card, walk, p, layer, &o, rows >= 3 * (int64_t)moe->experts, err);
}
