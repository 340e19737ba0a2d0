/* The ring through which the experts of a batch cross the link: stages, taken together in windows. A window holds
 * experts of one layer, all gate matrices, then all up, then all down, because that is how neighbouring experts lie in
 * RAM: each run of neighbours crosses in one copy per tensor. On an H200 a copy costs the link 3.5 us beside its bytes,
 * and each call 2 to 3 us of the host, so that 0.9 MB at a time leave a sixth of the link's rate unused. */
#include "base/log.h"
#include "base/status.h"
#include "engine/card_parts.h"

/* A window is computed when all of it has arrived, and filled again when all of it was computed: there should be some,
 * and none needs to be larger than this for copies to run at the link's rate. */
#define WINDOW_BYTES ((int64_t)48 << 20)
enum { WINDOWS_LEAST = 6 };

/* ---- Making ----------------------------------------------------------------------------------- */

mo_status mo_card_make_ring(mo_card *card, mo_error *err)
{
    if (card->stage_count == 0) {
        return MO_OK;
    }
    int64_t size = WINDOW_BYTES / card->stage_bytes;
    size = size < CARD_WINDOW ? size : CARD_WINDOW;
    size = size < card->stage_count / WINDOWS_LEAST ? size : card->stage_count / WINDOWS_LEAST;
    size = size > 1 ? size : 1;
    card->window_size = (int)size;
    mo_status status = MO_OK;
    for (int i = 0; i < card->stage_count / size && status == MO_OK; i++) {
        mo_card_window *w = &card->windows[i];
        w->memory = card->stages[i * size].memory;
        w->plain = card->stages[i * size].plain;
        card->window_count++;
        status = mo_event_create(card->device, &w->arrived, err);
        if (status == MO_OK) {
            status = mo_event_create(card->device, &w->ready, err);
        }
        if (status == MO_OK) {
            status = mo_event_create(card->device, &w->done, err);
        }
    }
    return status;
}

void mo_card_drop_ring(mo_card *card)
{
    for (int i = 0; i < card->window_count; i++) {
        mo_event_destroy(card->windows[i].arrived);
        mo_event_destroy(card->windows[i].ready);
        mo_event_destroy(card->windows[i].done);
    }
}

/* ---- Where things lie ------------------------------------------------------------------------- */

mo_card_window *mo_card_window_at(mo_card *card, uint64_t number)
{
    return &card->windows[number % (uint64_t)card->window_count];
}

mo_card_lie mo_card_window_lie(const mo_card *card, int layer, int part)
{
    const mo_card_layer *l = &card->layers[layer];
    const int64_t at[] = {0, l->up_at, l->down_at, l->brick_bytes};
    return (mo_card_lie){.at = card->window_size * at[part], .stride = at[part + 1] - at[part]};
}

static const mo_weights *matrix_of(const mo_card *card, int layer, int expert, int part)
{
    const mo_brick *b = &card->frame->layers[layer].moe.bricks[expert];
    return part == 0 ? &b->gate.w : part == 1 ? &b->up.w : &b->down.w;
}

static int64_t bytes_of(const mo_weights *w)
{
    return w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
}

/* ---- Copies that must arrive ------------------------------------------------------------------ */

bool mo_card_again(mo_card *card, mo_dstream *stream, int *tries, mo_status *status, mo_error *err)
{
    if (*status == MO_EDEVICE || (*status == MO_OK && *tries == 0)) {
        return false;
    }
    if (*status == MO_OK) { /* the second try: whatever is wrong with it shows now */
        *status = mo_dstream_wait(stream, err);
        return false;
    }
    card->counters.fetch_failed++;
    if ((*tries)++ > 0) {
        mo_fail_prefix(err, *status,
                       "a copy to or from the device failed twice; run again, or with --device none");
        return false;
    }
    mo_log(MO_LOG_WARN, "device", "a copy failed (%s); it is tried once more", err ? err->detail : "");
    const mo_status waited = mo_dstream_wait(stream, err);
    *status = waited == MO_OK ? *status : waited;
    return waited == MO_OK;
}

/* ---- Sending ---------------------------------------------------------------------------------- */

bool mo_card_ring_room(const mo_card *card)
{
    return card->ring_head - card->ring_tail < (uint64_t)card->window_count;
}

/* One part of all the window's experts, runs that lie side by side here and there in one copy. */
static mo_status copy_part(mo_card *card, const mo_card_window *w, int part, int64_t *bytes, mo_error *err)
{
    const mo_card_lie lie = mo_card_window_lie(card, w->layer, part);
    mo_status status = MO_OK;
    for (int i = 0, run; i < w->count && status == MO_OK; i += run) {
        const mo_weights *first = matrix_of(card, w->layer, w->expert[i], part);
        const int64_t size = bytes_of(first);
        for (run = 1; size == lie.stride && i + run < w->count; run++) {
            if (matrix_of(card, w->layer, w->expert[i + run], part)->data != first->data + run * size) {
                break;
            }
        }
        *bytes += run * size;
        status = mo_card_copy_range(card, card->fetch, first->data, (size_t)(run * size),
                                    w->memory + (mo_daddr)(lie.at + i * lie.stride), err);
    }
    return status;
}

/* To the file's layout, beside the stream that computes. */
static mo_status straighten(mo_card *card, const mo_card_window *w, mo_error *err)
{
    mo_op ops[3];
    mo_card_plan p = {.card = card, .ops = ops, .limit = 3};
    mo_card_restore_window(&p, w);
    mo_status status = mo_event_record(w->arrived, card->fetch, err);
    if (status == MO_OK) {
        status = mo_dstream_after(card->lane, w->arrived, err);
    }
    if (status == MO_OK) {
        status = mo_card_launch(card->lane, &p, err);
    }
    return status == MO_OK ? mo_event_record(w->ready, card->lane, err) : status;
}

mo_status mo_card_ring_send(mo_card *card, int layer, const int *experts, int count, mo_error *err)
{
    mo_card_window *w = mo_card_window_at(card, card->ring_head);
    mo_status status = MO_OK;
    int64_t bytes = 0;
    w->layer = layer;
    w->count = count;
    for (int i = 0; i < count; i++) {
        w->expert[i] = (int16_t)experts[i];
    }
    if (card->ring_head >= (uint64_t)card->window_count) { /* until then nobody has used it */
        status = mo_dstream_after(card->fetch, w->done, err);
    }
    for (int part = 0; part < 3 && status == MO_OK; part++) {
        int tries = 0;
        int64_t copied;
        do {
            copied = 0;
            status = copy_part(card, w, part, &copied, err);
        } while (mo_card_again(card, card->fetch, &tries, &status, err));
        bytes += copied;
    }
    if (status == MO_OK) {
        status = mo_card_interleaved(card, layer) ? straighten(card, w, err)
                                                  : mo_event_record(w->ready, card->fetch, err);
    }
    card->ring_head++;
    card->counters.fetched += (uint64_t)count;
    card->counters.fetched_bytes += (uint64_t)bytes;
    return status;
}

/* Up to a window of experts that are not on the device: of `layer` from *expert on, which moves behind them. */
static int pick_missing(const mo_card *card, int layer, int *expert, int *out)
{
    const mo_layer *l = &card->frame->layers[layer];
    int count = 0;
    for (; l->routed && *expert < l->moe.experts && count < card->window_size; (*expert)++) {
        if (!mo_vram_find(card->vram, layer, *expert)) {
            out[count++] = *expert;
        }
    }
    return count;
}

mo_status mo_card_ring_ahead(mo_card *card, int layer, mo_error *err)
{
    mo_status status = MO_OK;
    int expert = 0, experts[CARD_WINDOW];
    if (card->ring_head > card->ring_tail) {
        const mo_card_window *last = mo_card_window_at(card, card->ring_head - 1);
        if (last->layer >= layer) {
            layer = last->layer;
            expert = last->expert[last->count - 1] + 1;
        }
    }
    while (status == MO_OK && layer < card->frame->layer_count && mo_card_ring_room(card)) {
        const int count = pick_missing(card, layer, &expert, experts);
        if (count > 0) {
            status = mo_card_ring_send(card, layer, experts, count, err);
        } else {
            layer++;
            expert = 0;
        }
    }
    return status;
}

mo_status mo_card_ring_retire(mo_card *card, mo_error *err)
{
    return mo_event_record(mo_card_window_at(card, card->ring_tail++)->done, card->main, err);
}
