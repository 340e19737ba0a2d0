/* The card's memory: what a step works in, on the device and pinned on the host. */
#include <string.h>

#include "base/status.h"
#include "engine/card_parts.h"

mo_status mo_card_take(mo_card *card, int64_t bytes, const char *what, mo_daddr *out, mo_error *err)
{
    if (card->taken + bytes > card->limit) {
        return mo_fail(
            err, MO_ENOMEM,
            "%s takes %.1f MiB of device memory and %.1f of %.1f MiB are taken; raise --vram, choose a "
            "smaller --ctx or --batch, or run with --device none",
            what, (double)bytes / (1 << 20), (double)card->taken / (1 << 20),
            (double)card->limit / (1 << 20));
    }
    const mo_status status = mo_device_alloc(card->device, (size_t)bytes, out, err);
    if (status == MO_OK) {
        card->taken += bytes;
        if (card->taken > card->counters.peak_bytes) {
            card->counters.peak_bytes = card->taken;
        }
    }
    return status;
}

void mo_card_give(mo_card *card, mo_daddr address, int64_t bytes)
{
    if (address) {
        mo_device_free(card->device, address);
        card->taken -= bytes;
    }
}

/* Cuts aligned pieces off a range of addresses. */
typedef struct cutter {
    uint64_t base;
    int64_t used;
} cutter;

static uint64_t cut(cutter *c, int64_t count, size_t bytes)
{
    const uint64_t at = c->base + (uint64_t)c->used;
    c->used += (count * (int64_t)bytes + MO_OP_ALIGN - 1) / MO_OP_ALIGN * MO_OP_ALIGN;
    return at;
}

static int64_t padded(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* As mo_acts_lay(). */
mo_dacts mo_dacts_lay(mo_daddr memory, int64_t rows, int64_t cols)
{
    const int64_t blocks = (cols + 31) / 32;
    mo_dacts a = {.x = memory, .cols = (int32_t)cols};
    a.q = a.x + (mo_daddr)padded(rows * cols * 4);
    a.d = a.q + (mo_daddr)padded(rows * cols);
    a.s = a.d + (mo_daddr)padded(rows * blocks * 4);
    a.sum = a.s + (mo_daddr)padded(rows * blocks * 4);
    a.half_sum = a.sum + (mo_daddr)padded(rows * blocks * 4);
    return a;
}

mo_card_block mo_card_lay_block(const mo_card *card, int64_t tokens)
{
    cutter c = {0};
    mo_card_block b;
    b.bad = (int64_t)cut(&c, mo_card_bad_words(card->frame->layer_count), sizeof(uint32_t));
    b.sequence = (int64_t)cut(&c, 1, sizeof(uint32_t));
    b.places = (int64_t)cut(&c, tokens, sizeof(mo_dplace));
    b.slices = (int64_t)cut(&c, tokens, sizeof(mo_dslice));
    b.rope = (int64_t)cut(&c, 2 * card->rope_count * tokens * card->extent.pairs, sizeof(float));
    b.x = (int64_t)cut(&c, tokens * card->frame->width, sizeof(float));
    b.bytes = c.used;
    return b;
}

static int64_t work_bytes(int64_t rows)
{
    return (int64_t)sizeof(mo_dwork) + rows * (int64_t)sizeof(mo_dwork_item);
}

static void lay_room(const mo_card *card, cutter *c, mo_card_room *r)
{
    const mo_extent *e = &card->extent;
    const int64_t batch = card->options.batch, width = card->frame->width, rows = batch * e->used;
    const int64_t chunks = (card->options.context + MO_CHUNK - 1) / MO_CHUNK + 1;
    r->step = cut(c, mo_card_lay_block(card, batch).bytes, 1);
    r->in = cut(c, 1, mo_acts_bytes(batch, width));
    r->in_dense = cut(c, 1, mo_acts_bytes(batch, width));
    r->in_router = cut(c, 1, mo_acts_bytes(batch, width));
    r->q = cut(c, batch * e->mixer_q, sizeof(float));
    r->k = cut(c, batch * e->mixer_k, sizeof(float));
    r->v = cut(c, batch * e->mixer_v, sizeof(float));
    r->mixed = cut(c, 1, mo_acts_bytes(batch, e->mixed));
    r->y = cut(c, batch * width, sizeof(float));
    r->partial_floats = chunks * MO_OP_FEW * e->head_floats;
    r->partial = cut(c, r->partial_floats, sizeof(float));
    r->scores = cut(c, batch * e->experts, sizeof(float));
    const int64_t chosen = rows > CARD_FEW * e->used ? rows : CARD_FEW * e->used;
    r->weights = cut(c, card->frame->layer_count * chosen, sizeof(float));
    r->ids = cut(c, card->frame->layer_count * chosen, sizeof(int32_t));
    r->work = cut(c, work_bytes(rows), 1);
    r->fetched = cut(c, CARD_STAGES * card->pinned.work_bytes, 1);
    r->groups = cut(c, 3 * card->group_limit, sizeof(mo_dgroup)); /* with the next two: sent in one copy */
    r->picks = cut(c, rows, sizeof(int32_t));
    r->row_of = cut(c, rows, sizeof(int32_t));
    if (e->expert_width) {
        r->gate = cut(c, rows * e->expert_width, sizeof(float));
        r->up = cut(c, rows * e->expert_width, sizeof(float));
        r->hidden = cut(c, 1, mo_acts_bytes(rows, e->expert_width));
        r->down = cut(c, rows * width, sizeof(float));
        r->sent = cut(c, 1, mo_acts_bytes(CARD_FEW * e->used, e->expert_width));
    }
    r->side_gate = cut(c, batch * e->side_width, sizeof(float));
    r->side_up = cut(c, batch * e->side_width, sizeof(float));
    r->side_hidden = cut(c, 1, mo_acts_bytes(batch, e->side_width));
    r->side_down = cut(c, batch * width, sizeof(float));
    r->side_weight = cut(c, batch, sizeof(float));
    r->logits = cut(c, CARD_LOGITS * card->frame->vocab, sizeof(float));
}

mo_status mo_card_take_room(mo_card *card, mo_error *err)
{
    cutter c = {0};
    card->pinned.work_bytes = work_bytes(CARD_FEW * card->extent.used);
    card->group_limit = card->extent.experts;
    lay_room(card, &c, &card->room);
    const int64_t bytes = c.used;
    mo_daddr memory = 0;
    const mo_status status = mo_card_take(card, bytes, "working memory", &memory, err);
    if (status == MO_OK) {
        c = (cutter){.base = memory};
        lay_room(card, &c, &card->room);
        card->room.memory = memory;
        card->room.bytes = bytes;
    }
    return status;
}

static void lay_pinned(const mo_card *card, cutter *c, mo_card_pinned *p)
{
    const mo_extent *e = &card->extent;
    const int64_t rows = card->options.batch * e->used, few = CARD_FEW * e->used;
    const int layers = card->frame->layer_count;
    p->reply_bytes = ((int64_t)sizeof(mo_dreply) + 4 * (few > CARD_FEW ? few : CARD_FEW) + 63) / 64 * 64;
    p->block = (uint8_t *)cut(c, mo_card_lay_block(card, card->options.batch).bytes, 1);
    p->flags = (uint32_t *)cut(c, layers, sizeof(uint32_t));
    p->replies = (uint8_t *)cut(c, layers * p->reply_bytes, 1);
    p->ids = (int32_t *)cut(c, rows > few ? rows : few, sizeof(int32_t));
    p->all_ids = (int32_t *)cut(c, layers * few, sizeof(int32_t));
    p->all_weights = (float *)cut(c, layers * few, sizeof(float));
    p->in = (float *)cut(c, CARD_FEW * card->frame->width, sizeof(float));
    p->x = (float *)cut(c, CARD_FEW * card->frame->width, sizeof(float));
    p->rows = (float *)cut(c, few * card->frame->width, sizeof(float));
    p->hidden = (void *)cut(c, 1, mo_acts_bytes(few, e->expert_width));
    p->logits = (float *)cut(c, CARD_LOGITS * card->frame->vocab, sizeof(float));
    p->bad = (uint32_t *)cut(c, mo_card_bad_words(layers), sizeof(uint32_t));
    p->works = (uint8_t *)cut(c, CARD_STAGES * p->work_bytes, 1);
    p->groups = (mo_dgroup *)cut(c, 3 * card->group_limit, sizeof(mo_dgroup));
    p->picks = (int32_t *)cut(c, rows, sizeof(int32_t));
    p->row_of = (int32_t *)cut(c, rows, sizeof(int32_t));
}

mo_status mo_card_take_pinned(mo_card *card, mo_error *err)
{
    cutter c = {0};
    mo_card_pinned p = card->pinned;
    void *memory = NULL;
    lay_pinned(card, &c, &p);
    const mo_status status = mo_device_pin(card->device, (size_t)c.used, &memory, &p.seen, err);
    if (status != MO_OK) {
        return mo_fail_prefix(err, status, "%.1f MiB of pinned memory for the device",
                              (double)c.used / (1 << 20));
    }
    memset(memory, 0, (size_t)c.used);
    p.bytes = c.used;
    p.memory = memory;
    c = (cutter){.base = (uint64_t)(uintptr_t)memory};
    lay_pinned(card, &c, &p);
    card->pinned = p;
    return MO_OK;
}

int64_t mo_card_map_bytes(const mo_frame *frame)
{
    int64_t entries = 1;
    for (int i = 0; i < frame->layer_count; i++) {
        entries += frame->layers[i].routed ? frame->layers[i].moe.experts : 0;
    }
    return entries * (int64_t)sizeof(mo_daddr);
}

int64_t mo_card_seat_bytes(const mo_frame *frame)
{
    return (frame->layer_count + 8) * (int64_t)sizeof(mo_dstate);
}

int64_t mo_card_largest_brick(const mo_frame *frame)
{
    int64_t largest = 0;
    for (int i = 0; i < frame->layer_count; i++) {
        const mo_layer *l = &frame->layers[i];
        if (l->routed) {
            const mo_brick *b = &l->moe.bricks[0];
            const mo_weights *w[] = {&b->gate.w, &b->up.w, &b->down.w};
            int64_t bytes = 0;
            for (int j = 0; j < 3; j++) {
                bytes += mo_vram_room(w[j]->rows * mo_format_row_bytes(mo_format_of(w[j]->type), w[j]->cols));
            }
            largest = bytes > largest ? bytes : largest;
        }
    }
    return largest;
}

mo_card_needs mo_card_measure(const mo_frame *frame, int64_t batch, int64_t context)
{
    mo_card card = {.frame = frame, .options = {.batch = batch, .context = context}, .rope_count = 8};
    cutter c = {0};
    card.extent = mo_extent_of(frame);
    card.pinned.work_bytes = work_bytes(CARD_FEW * card.extent.used);
    card.group_limit = card.extent.experts;
    lay_room(&card, &c, &card.room);
    return (mo_card_needs){.core = mo_card_core_bytes(frame),
                           .work = c.used,
                           .stage_room = 2 * mo_card_largest_brick(frame),
                           .map = mo_card_map_bytes(frame),
                           .seat = mo_card_seat_bytes(frame)};
}
