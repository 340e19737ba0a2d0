/* Slots at the start: which experts fill them, and how they get there. */
#include "base/status.h"
#include "engine/card_parts.h"

bool mo_card_in_ram(const mo_card *card, int layer, int expert)
{
    const mo_brick *b = &card->frame->layers[layer].moe.bricks[expert];
    return b->gate.w.data && b->up.w.data && b->down.w.data &&
           (!mo_card_store(card) || mo_store_resident(mo_card_store(card), layer, expert));
}

/* Through a stage where RAM has another layout; stages take turns, so that a copy runs beside the one before it. */
mo_status mo_card_send_to_slot(mo_card *card, int layer, int expert, mo_daddr to, int number, int64_t *bytes,
                               mo_error *err)
{
    mo_op ops[1];
    mo_card_plan p = {.card = card, .ops = ops, .limit = 1};
    const mo_card_stage *s = &card->stages[number % card->stage_count];
    const bool interleaved = mo_card_interleaved(card, layer);
    mo_status status = MO_OK;
    if (interleaved && number >= card->stage_count) {
        status = mo_dstream_after(card->fetch, s->done, err);
    }
    for (int tries = 0, again = status == MO_OK; again;) {
        status =
            mo_card_copy_brick(card, card->fetch, layer, expert, interleaved ? s->memory : to, bytes, err);
        again = mo_card_again(card, card->fetch, &tries, &status, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(s->ready, card->fetch, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_after(card->main, s->ready, err);
    }
    if (status == MO_OK && interleaved) {
        mo_card_restore(&p, layer, s->memory, to, 1, -1);
        status = mo_card_launch(card->main, &p, err);
    }
    return status == MO_OK ? mo_event_record(s->done, card->main, err) : status;
}

typedef struct filling {
    mo_card *card;
    int sent;
    int64_t done, all; /* bytes */
    bool bring;        /* experts that are on disk are read, too */
} filling;

/* Where a slot is free for it. */
static mo_status fill_one(filling *f, int layer, int expert, mo_error *err)
{
    mo_card *card = f->card;
    const bool stored = mo_card_store(card) != NULL;
    int64_t bytes = 0;
    mo_status status = MO_OK;
    if (mo_vram_find(card->vram, layer, expert) || (!f->bring && !mo_card_in_ram(card, layer, expert))) {
        return MO_OK;
    }
    const mo_daddr to = mo_vram_take_free(card->vram, layer, expert);
    if (!to) {
        return MO_OK;
    }
    if (f->bring && stored) {
        status = mo_store_bring(mo_card_store(card), layer, expert, err);
    }
    if (status == MO_OK) {
        status = mo_card_send_to_slot(card, layer, expert, to, f->sent++, &bytes, err);
    }
    if (status == MO_OK && f->bring && stored) { /* the next one may take its place in RAM */
        status = mo_dstream_wait(card->main, err);
    }
    mo_vram_landed(card->vram, layer, expert);
    f->done += bytes;
    if (status == MO_OK && card->options.progress &&
        !card->options.progress(card->options.user, f->done < f->all ? f->done : f->all, f->all)) {
        status = mo_fail(err, MO_ECANCELLED, "sending the model to the device was stopped");
    }
    return status;
}

/* Those of the same number in every layer together. */
static mo_status fill_by_number(filling *f, mo_error *err)
{
    const mo_frame *frame = f->card->frame;
    mo_status status = MO_OK;
    for (int64_t e = 0; e < f->card->extent.experts && status == MO_OK; e++) {
        for (int i = 0; i < frame->layer_count && status == MO_OK; i++) {
            const mo_layer *l = &frame->layers[i];
            if (l->routed && e < l->moe.experts) {
                status = fill_one(f, i, (int)e, err);
            }
        }
    }
    return status;
}

/* What the learned profile knows, hottest first; the policy hears of it, too. */
static mo_status fill_by_wishes(filling *f, mo_error *err)
{
    const mo_card_options *o = &f->card->options;
    mo_status status = MO_OK;
    for (int32_t i = 0; i < o->wish_count && status == MO_OK; i++) {
        const mo_store_wish *w = &o->wishes[i];
        if (mo_vram_has(f->card->vram, w->layer)) {
            mo_vram_seed(f->card->vram, w->layer, w->expert, w->hits, o->wishes[0].hits);
            status = fill_one(f, w->layer, w->expert, err);
        }
    }
    return status;
}

static mo_status fill_hot(filling *f, mo_error *err)
{
    const mo_packing *p = &f->card->hot.packing;
    mo_status status = MO_OK;
    f->bring = true;
    for (size_t i = 0; i < p->count && status == MO_OK; i++) {
        status = fill_one(f, p->entry[i].layer, p->entry[i].expert, err);
    }
    return status;
}

mo_status mo_card_fill(mo_card *card, mo_error *err)
{
    filling f = {.card = card};
    int32_t slots, filled;
    mo_vram_slots(card->vram, &slots, &filled, &f.all);
    mo_status status = MO_OK;
    if (card->hot.rules) {
        status = fill_hot(&f, err);
    } else if (slots > 0) {
        status = fill_by_wishes(&f, err);
        if (status == MO_OK) {
            status = fill_by_number(&f, err);
        }
    }
    mo_packing_free(&card->hot.packing);
    if (status == MO_OK) {
        status = mo_vram_switch(card->vram, card->main, err);
    }
    return status == MO_OK ? mo_dstream_wait(card->main, err) : status;
}
