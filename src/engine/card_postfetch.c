/* Post-Fetch as document 000 defines it: after routing, down matrices (or whole experts) of what is not on the device
 * travel while the CPU computes gate and up; then the device computes down. Nothing is kept. Each transfer is CPU_ONLY,
 * then COPY_IN_FLIGHT, then GPU_READY, and is forgotten after the layer. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/card_parts.h"

bool mo_card_postfetching(const mo_card *card)
{
    const mo_postfetch_mode mode = card->postfetch.mode;
    return (mode == MO_POSTFETCH_DOWN || mode == MO_POSTFETCH_EXPERT) && !card->postfetch.force_cpu &&
           card->transfers_most > 0;
}

mo_status mo_card_size_transfers(mo_card *card, mo_error *err)
{
    const mo_card_layer *largest = NULL;
    for (int i = 0; i < card->frame->layer_count; i++) {
        if (!largest || card->layers[i].brick_bytes > largest->brick_bytes) {
            largest = &card->layers[i];
        }
    }
    if (card->stage_count == 0 || !largest) {
        return MO_OK;
    }
    const mo_postfetch_facts facts = {.vram_free_bytes = card->limit - card->taken,
                                      .down_bytes = largest->brick_bytes - largest->down_at,
                                      .expert_bytes = largest->brick_bytes,
                                      .used = (int)card->extent.used};
    mo_postfetch_room room = {0};
    mo_postfetch_notes notes = {.count = 0};
    const mo_status status = mo_postfetch_size(&card->postfetch, &facts, &room, &notes, err);
    for (int i = 0; i < notes.count; i++) {
        mo_log(MO_LOG_WARN, "device", "%s", notes.line[i]);
    }
    card->transfers_most = room.transfers < card->stage_count ? room.transfers : card->stage_count;
    return status;
}

static mo_dstream *copies(const mo_card *card)
{
    return card->postfetch.dedicated_streams ? card->fetch : card->lane;
}

/* ---- After routing ---------------------------------------------------------------------------- */

/* Begins the copy of a transfer. A copy that fails leaves it to the CPU. */
static mo_status begin(mo_card *card, int layer, mo_transfer *t, int64_t *sent, mo_error *err)
{
    const mo_card_layer *l = &card->layers[layer];
    const mo_card_stage *s = &card->stages[t->stage];
    int64_t bytes = 0;
    mo_status status;
    if (t->whole) {
        status = mo_card_copy_brick(card, copies(card), layer, t->expert, s->memory, &bytes, err);
    } else {
        const mo_weights *w = &card->frame->layers[layer].moe.bricks[t->expert].down.w;
        bytes = w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
        status = mo_card_copy_matrix(card, copies(card), w, s->memory + (mo_daddr)l->down_at, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(s->ready, copies(card), err);
    }
    if (status == MO_OK) {
        t->state = MO_COPY_IN_FLIGHT;
        *sent += bytes;
        if (!mo_card_is_pinned(card, layer, t->expert)) {
            mo_card_clock_fall(card->clock, layer, MO_FALLBACK_UNPINNED);
        }
    } else if (status != MO_EDEVICE) {
        card->counters.fetch_failed++;
        mo_card_clock_fall(card->clock, layer, MO_FALLBACK_FAILED);
        t->failed = true;
        status = MO_OK;
    }
    if (card->postfetch.debug) {
        mo_log(MO_LOG_INFO, "postfetch", "layer %d: expert %d, %s, %lld bytes to stage %d%s", layer,
               t->expert, t->whole ? "whole" : "down", (long long)bytes, t->stage,
               t->failed ? ": failed, the CPU's" : "");
    }
    return status;
}

mo_status mo_card_send(mo_card *card, mo_walk *walk, mo_card_service *s, mo_error *err)
{
    const mo_postfetch *p = &card->postfetch;
    mo_status status = mo_event_record(card->fetch_from, copies(card), err);
    int by_cpu = 0;
    mo_card_clock_fetch(card->clock, s->layer, mo_clock_ns());
    for (int i = 0; i < s->count && status == MO_OK; i++) {
        mo_need *n = &walk->w->needs[i];
        if (s->sent == card->stage_count) {
            mo_card_clock_fall(card->clock, s->layer, MO_FALLBACK_NO_STAGE);
            continue;
        }
        if (s->stored && !(n->in && n->down)) { /* still on disk: the CPU's when it lands */
            mo_card_clock_fall(card->clock, s->layer, MO_FALLBACK_ON_DISK);
            continue;
        }
        mo_transfer *t = &card->transfers[s->sent];
        *t = (mo_transfer){.expert = n->expert, .need = i, .stage = s->sent};
        t->whole = p->mode == MO_POSTFETCH_EXPERT || by_cpu >= p->cpu_limit;
        by_cpu += !t->whole;
        n->in_done = t->whole;
        n->down_done = true;
        if (s->sent < card->transfers_most) { /* the others queue */
            status = begin(card, s->layer, t, &s->fetched_bytes, err);
        }
        s->sent++;
    }
    return status;
}

/* ---- Before down ------------------------------------------------------------------------------ */

/* As many as may be are under way: the next one begins when the one that many before it has arrived. */
static mo_status begin_queued(mo_card *card, mo_card_service *s, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = card->transfers_most; i < s->sent && status == MO_OK; i++) {
        status = mo_event_wait(card->stages[i - card->transfers_most].ready, err);
        if (status == MO_OK) {
            status = begin(card, s->layer, &card->transfers[i], &s->fetched_bytes, err);
        }
    }
    return status == MO_OK ? mo_event_record(card->fetch_to, copies(card), err) : status;
}

/* Is it there, or worth waiting for? */
static mo_status settle(mo_card *card, int layer, mo_transfer *t, mo_error *err)
{
    bool done = false;
    if (t->state != MO_COPY_IN_FLIGHT) {
        return MO_OK;
    }
    const mo_status status = mo_event_query(card->stages[t->stage].ready, &done, err);
    if (status == MO_OK && (done || card->postfetch.block_on_miss)) {
        t->state = MO_GPU_READY; /* the device waits for the rest of it */
    } else if (status == MO_OK) {
        card->counters.late++;
        mo_card_clock_fall(card->clock, layer, MO_FALLBACK_LATE);
        t->state = MO_CPU_ONLY;
    }
    return status;
}

static mo_status launch(mo_card *card, mo_walk *walk, const mo_card_service *s, const mo_transfer *t,
                        mo_error *err)
{
    mo_op ops[3];
    mo_card_plan p = {
        .card = card, .tokens = walk->tokens, .slices = walk->slice_count, .ops = ops, .limit = 3};
    const mo_card_stage *stage = &card->stages[t->stage];
    const bool interleaved = mo_card_interleaved(card, s->layer);
    const mo_daddr work =
        mo_card_list_work(card, walk, t->stage, t->expert, interleaved ? stage->plain : stage->memory);
    const int64_t items = walk->w->needs[t->need].picks;
    mo_status status = mo_card_send_work(card, t->stage, err);
    if (status == MO_OK) {
        status = mo_dstream_after(card->lane, card->stages[t->stage].ready, err);
    }
    if (interleaved) {
        mo_card_restore(&p, s->layer, stage->memory, stage->plain, 1, t->whole ? -1 : 2);
    }
    if (t->whole) {
        mo_card_brick(&p, s->layer, work, items);
    } else {
        mo_card_down(&p, s->layer, work, items);
    }
    return status == MO_OK ? mo_card_launch(card->lane, &p, err) : status;
}

static mo_status launch_all(mo_card *card, mo_walk *walk, const mo_card_service *s, mo_error *err)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_status status = mo_copy_in(card->lane, card->room.sent, card->pinned.hidden,
                                  mo_acts_bytes(walk->tokens * moe->used, moe->width), err);
    for (int i = 0; i < s->sent && status == MO_OK; i++) {
        if (card->transfers[i].state == MO_GPU_READY) {
            status = launch(card, walk, s, &card->transfers[i], err);
        }
    }
    return status;
}

mo_status mo_card_receive(mo_card *card, mo_walk *walk, mo_card_service *s, bool *fetched, mo_error *err)
{
    const int64_t done = mo_clock_ns();
    mo_status status = begin_queued(card, s, err);
    mo_card_clock_waited(card->clock, s->layer, done, mo_clock_ns());
    bool late = false;
    for (int i = 0; i < s->sent && status == MO_OK; i++) {
        mo_transfer *t = &card->transfers[i];
        mo_need *n = &walk->w->needs[t->need];
        status = settle(card, s->layer, t, err);
        const bool here = t->state == MO_GPU_READY;
        fetched[t->expert] = here;
        card->counters.fetched += here;
        if (status == MO_OK && !here) {
            n->in_done = !t->whole; /* its gate and up are computed */
            n->down_done = false;
            late = true;
        }
    }
    if (status == MO_OK &&
        late) { /* before the hidden rows are copied: a whole expert that is late adds to them */
        status = mo_card_compute(card, walk, s, err);
    }
    if (status == MO_OK) {
        status = launch_all(card, walk, s, err);
    }
    if (status == MO_OK) {
        status = mo_event_record(card->lane_done, card->lane, err);
    }
    s->fetched = s->sent;
    card->counters.fetched_bytes += (uint64_t)s->fetched_bytes;
    const int64_t launched = mo_clock_ns();
    status = status == MO_OK ? mo_event_wait(card->lane_done, err) : status;
    mo_card_clock_waited(card->clock, s->layer, launched, mo_clock_ns());
    return status;
}
