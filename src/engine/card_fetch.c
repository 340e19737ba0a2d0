/* The fetch lane: experts of a step of few tokens that cross the link while the CPU computes others. Which ones is decided
 * first. Where they stay and who has to go for them, the driver's calls, three for each expert, some ten for all, and the
 * launch of what follows are then one thread's errand while the others compute: the calls alone took 64 us of a layer's
 * 320 before (Qwen3-30B on an H200). */
#include "base/clock.h"
#include "base/status.h"
#include "engine/card_parts.h"

/* How many of `count` bricks to fetch, so that the link and the CPU end together. */
static int share_of_fetch(mo_card *card, int layer, int count)
{
    if (card->postfetch.mode == MO_POSTFETCH_OFF || card->postfetch.force_cpu) {
        return 0;
    }
    const int most = count < card->stage_count ? count : card->stage_count;
    return mo_lane_share(&card->cpu_rate, &card->fetch_rate, card->layers[layer].brick_bytes, count, most);
}

/* ---- Worklists -------------------------------------------------------------------------------- */

static uint8_t *list_of(const mo_card *card, int stage)
{
    return card->pinned.works + stage * card->pinned.work_bytes;
}

/* The expert's rows behind those that the list has already. */
static void add_work(const mo_walk *walk, uint8_t *list, int expert, mo_daddr base)
{
    mo_dwork *head = (mo_dwork *)(void *)list;
    mo_dwork_item *items = (mo_dwork_item *)(void *)(list + sizeof *head);
    for (int64_t i = 0; i < walk->tokens * walk->layer->moe.used; i++) {
        if (walk->w->ids[i] == expert) {
            items[head->count++] = (mo_dwork_item){.base = base,
                                                   .expert = expert,
                                                   .token = (int32_t)(i / walk->layer->moe.used),
                                                   .row = (int32_t)i};
        }
    }
}

mo_daddr mo_card_list_work(const mo_card *card, const mo_walk *walk, int stage, int expert, mo_daddr base)
{
    uint8_t *list = list_of(card, stage);
    *(mo_dwork *)(void *)list = (mo_dwork){0};
    add_work(walk, list, expert, base);
    return card->room.fetched + (mo_daddr)(stage * card->pinned.work_bytes);
}

static int32_t items_of(const uint8_t *list)
{
    return ((const mo_dwork *)(const void *)list)->count;
}

static mo_status send_work(mo_dstream *stream, const uint8_t *list, mo_daddr to, mo_error *err)
{
    return mo_copy_in(stream, to, list, sizeof(mo_dwork) + (size_t)items_of(list) * sizeof(mo_dwork_item),
                      err);
}

mo_status mo_card_send_work(mo_card *card, int stage, mo_error *err)
{
    return send_work(card->lane, list_of(card, stage),
                     card->room.fetched + (mo_daddr)(stage * card->pinned.work_bytes), err);
}

/* ---- Deciding --------------------------------------------------------------------------------- */

/* A brick goes to a slot of the pool, which it then keeps, or to a stage. Pinned as long as others look for slots: it
 * will be copied and computed there. */
static void give_place(mo_card *card, int layer, int expert, int stage)
{
    mo_card_stage *s = &card->stages[stage];
    const bool admit = !card->hot.rules && mo_vram_has(card->vram, layer);
    const mo_daddr slot = admit ? mo_vram_take(card->vram, layer, expert) : 0;
    s->to = slot ? slot : s->plain;
    if (slot) {
        mo_vram_landed(card->vram, layer, expert);
        mo_vram_pin(card->vram, layer, expert);
    }
    if (!mo_card_is_pinned(card, layer, expert)) {
        mo_card_clock_fall(card->clock, layer, MO_FALLBACK_UNPINNED);
    }
}

/* Habits are told what was chosen before anybody asks them who has to go. */
static void touch(mo_card *card, const mo_walk *walk, int layer)
{
    const mo_moe *moe = &walk->layer->moe;
    uint32_t picks[MO_EXPERTS_MAX] = {0};
    for (int64_t i = 0; i < walk->tokens * moe->used; i++) {
        picks[walk->w->ids[i]]++;
    }
    for (int e = 0; e < moe->experts; e++) {
        if (picks[e]) {
            mo_vram_touch(card->vram, layer, e, card->pass, picks[e]);
        }
    }
}

static bool crosses(const mo_walk *walk, const mo_card_service *s, int i)
{
    return walk->w->needs[s->need[i]].down_done; /* not after a copy that failed */
}

/* Places for all that cross. */
static void give_places(mo_card *card, const mo_walk *walk, const mo_card_service *s)
{
    touch(card, walk, s->layer);
    for (int i = 0; i < s->fetched; i++) {
        if (crosses(walk, s, i)) {
            give_place(card, s->layer, walk->w->needs[s->need[i]].expert, i);
        } else {
            card->stages[i].to = card->stages[i].plain;
        }
    }
    for (int i = 0; i < s->fetched; i++) {
        const int expert = walk->w->needs[s->need[i]].expert;
        if (mo_vram_find(card->vram, s->layer, expert)) {
            mo_vram_unpin(card->vram, s->layer, expert);
        }
    }
}

void mo_card_plan_fetch(mo_card *card, mo_walk *walk, mo_card_service *s)
{
    mo_need *needs = walk->w->needs;
    int ready = 0;
    for (int i = 0; i < s->count; i++) {
        ready += !s->stored || (needs[i].in && needs[i].down);
    }
    const int wanted = share_of_fetch(card, s->layer, ready);
    for (int i = 0; i < s->count && s->fetched < wanted; i++) {
        mo_need *n = &needs[i];
        if (!s->stored || (n->in && n->down)) {
            n->in_done = n->down_done = true; /* not the CPU's */
            s->need[s->fetched++] = (int16_t)i;
        }
    }
}

/* ---- Doing ------------------------------------------------------------------------------------ */

/* A copy that fails makes the expert the CPU's. */
static mo_status copy_brick(mo_card *card, mo_walk *walk, int stage, mo_card_service *s, mo_error *err)
{
    mo_need *need = &walk->w->needs[s->need[stage]];
    const mo_card_stage *to = &card->stages[stage];
    int64_t bytes = 0;
    const mo_status status =
        mo_card_copy_brick(card, card->fetch, s->layer, need->expert,
                           mo_card_interleaved(card, s->layer) ? to->memory : to->to, &bytes, err);
    if (status == MO_OK) {
        s->fetched_bytes += bytes;
        card->counters.fetched++;
        card->counters.fetched_bytes += (uint64_t)bytes;
        return MO_OK;
    }
    if (mo_vram_find(card->vram, s->layer, need->expert)) {
        mo_vram_drop(card->vram, s->layer, need->expert);
    }
    card->counters.fetch_failed++;
    mo_card_clock_fall(card->clock, s->layer, MO_FALLBACK_FAILED);
    need->in_done = need->down_done = false;
    return status == MO_EDEVICE ? MO_EDEVICE : MO_OK;
}

/* The list of what crosses, on the stream of the copies: behind them it would be the last to arrive. The second, after a
 * copy that failed, has memory of its own: the first may be on its way. */
static mo_status send_list(mo_card *card, const mo_walk *walk, const mo_card_service *s, int number,
                           int32_t *items, mo_error *err)
{
    uint8_t *list = list_of(card, number);
    *(mo_dwork *)(void *)list = (mo_dwork){0};
    for (int i = 0; i < s->fetched; i++) {
        if (crosses(walk, s, i)) {
            add_work(walk, list, walk->w->needs[s->need[i]].expert, card->stages[i].to);
        }
    }
    *items = items_of(list);
    return send_work(card->fetch, list, card->room.fetched, err);
}

/* To the file's layout: those that stay in stages lie side by side and take one op. */
static mo_status straighten(mo_card *card, const mo_walk *walk, const mo_card_service *s, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0, run; i < s->fetched && status == MO_OK; i += run) {
        mo_op ops[1];
        mo_card_plan p = {.card = card, .tokens = walk->tokens, .ops = ops, .limit = 1};
        const mo_card_stage *from = &card->stages[i];
        for (run = 1; from->to == from->plain && i + run < s->fetched; run++) {
            if (card->stages[i + run].to != card->stages[i + run].plain) {
                break;
            }
        }
        mo_card_restore(&p, s->layer, from->memory, from->to, run, -1);
        status = mo_card_launch(card->lane, &p, err);
    }
    return status;
}

/* The device computes what has arrived beside the stream that waits for the CPU: all of it at once, since every call
 * costs a thread as much as the products of a small expert take. */
static mo_status compute(mo_card *card, const mo_walk *walk, const mo_card_service *s, int32_t items,
                         mo_error *err)
{
    mo_op ops[2];
    mo_card_plan p = {
        .card = card, .tokens = walk->tokens, .slices = walk->slice_count, .ops = ops, .limit = 2};
    mo_status status = mo_dstream_after(card->lane, card->fetch_to, err);
    if (status == MO_OK && items && mo_card_interleaved(card, s->layer)) {
        status = straighten(card, walk, s, err);
    }
    if (status == MO_OK && items) {
        mo_card_brick(&p, s->layer, card->room.fetched, items);
        status = mo_card_launch(card->lane, &p, err);
    }
    return status;
}

/* Copies [from, to) of what crosses; *failed counts those that did not. */
static mo_status copy_bricks(mo_card *card, mo_walk *walk, mo_card_service *s, int from, int to, int *failed,
                             mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = from; i < to && status == MO_OK; i++) {
        status = copy_brick(card, walk, i, s, err);
        *failed += !crosses(walk, s, i);
    }
    return status;
}

/* Where bricks are put in order after they have arrived, the first sets out before anybody thinks about places. */
static mo_status fetch_all(mo_card *card, mo_walk *walk, mo_card_service *s, mo_error *err)
{
    const int first = mo_card_interleaved(card, s->layer) ? 1 : 0;
    int failed = 0;
    int32_t items = 0;
    if (first == 0) {
        give_places(card, walk, s);
    }
    mo_status status = mo_event_record(card->fetch_from, card->fetch, err);
    mo_card_clock_fetch(card->clock, s->layer, mo_clock_ns());
    status = status == MO_OK ? copy_bricks(card, walk, s, 0, first, &failed, err) : status;
    if (status == MO_OK && first > 0) {
        give_places(card, walk, s);
    }
    status = status == MO_OK ? send_list(card, walk, s, 0, &items, err) : status;
    failed = 0;
    status = status == MO_OK ? copy_bricks(card, walk, s, first, s->fetched, &failed, err) : status;
    if (status == MO_OK && failed) {
        status = send_list(card, walk, s, 1, &items, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(card->fetch_to, card->fetch, err);
    }
    if (status == MO_OK) {
        status = compute(card, walk, s, items, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(card->lane_done, card->lane, err);
    }
    return status == MO_OK ? mo_dstream_after(card->main, card->lane_done, err) : status;
}

/* The step ends here, and nobody knows what has come to the slots that were given away: they are empty. */
static void forget(mo_card *card, const mo_walk *walk, const mo_card_service *s)
{
    for (int i = 0; i < s->fetched; i++) {
        const int expert = walk->w->needs[s->need[i]].expert;
        if (mo_vram_find(card->vram, s->layer, expert)) {
            mo_vram_drop(card->vram, s->layer, expert);
        }
    }
}

mo_status mo_card_submit(mo_card *card, mo_walk *walk, mo_card_service *s, mo_error *err)
{
    mo_status status = MO_OK;
    if (s->fetched) {
        status = fetch_all(card, walk, s, err);
    } else {
        touch(card, walk, s->layer);
    }
    if (status != MO_OK) {
        forget(card, walk, s);
        return status;
    }
    status = mo_vram_switch(card->vram, card->main, err);
    return status == MO_OK && s->next ? mo_card_run_segment(card, s->next, err) : status;
}

void mo_card_errand(void *ctx)
{
    mo_card_service *s = ctx;
    const int64_t began = mo_clock_ns();
    s->status = mo_card_submit(s->card, s->walk, s, &s->error);
    mo_card_unpin_hot(s->card, s->walk, s->layer);
    s->errand_ns = mo_clock_ns() - began;
}
