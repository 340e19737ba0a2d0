#include "engine/card.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "engine/card_parts.h"

/* Left free where no ceiling is given: the driver's own needs, and a desktop's. */
#define RESERVE_BYTES ((int64_t)256 << 20)
/* Host memory is pinned in pieces, so that a system that refuses all of it may still grant some. */
#define ADOPT_PIECE ((size_t)1 << 30)
/* First guesses, corrected by what is measured while running. */
#define CPU_BYTES_S  40e9
#define LINK_BYTES_S 12e9

/* ---- Opening ---------------------------------------------------------------------------------- */

static void find_ropes(mo_card *card)
{
    for (int i = 0; i < card->frame->layer_count; i++) {
        const mo_rope *rope = card->frame->layers[i].attention.rope;
        bool known = rope == NULL;
        for (int r = 0; r < card->rope_count; r++) {
            known |= card->ropes[r] == rope;
        }
        if (!known && card->rope_count < 8) {
            card->ropes[card->rope_count++] = rope;
        }
    }
}

static mo_status make_streams(mo_card *card, mo_error *err)
{
    mo_dstream **streams[] = {&card->main, &card->fetch, &card->lane};
    mo_event **events[] = {&card->fetch_from, &card->fetch_to, &card->lane_done};
    mo_status status = MO_OK;
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        status = mo_dstream_create(card->device, streams[i], err);
        if (status == MO_OK) {
            status = mo_event_create(card->device, events[i], err);
        }
    }
    return status;
}

bool mo_card_any_interleaved(const mo_card *card)
{
    bool interleaved = false;
    for (int i = 0; i < card->frame->layer_count; i++) {
        interleaved |= card->frame->layers[i].routed && mo_card_interleaved(card, i);
    }
    return interleaved;
}

int64_t mo_card_kept(const mo_card *card)
{
    return card->session_bytes + mo_card_map_bytes(card->frame);
}

int64_t mo_card_least_stages(const mo_card *card)
{
    return MO_VRAM_STAGES_LEAST * (mo_card_any_interleaved(card) ? 2 : 1) *
           mo_card_largest_brick(card->frame);
}

/* Bytes of slots for every expert; 0 when none is to stay. */
static int64_t all_slots(const mo_card *card)
{
    const bool hot = card->options.hot && card->options.hot->file; /* has a budget of its own */
    int64_t bytes = 0;
    for (int i = 0; i < card->frame->layer_count && !card->options.cpu_moe && !hot; i++) {
        const mo_layer *l = &card->frame->layers[i];
        bytes += l->routed ? l->moe.experts * card->layers[i].brick_bytes : 0;
    }
    return bytes;
}

static mo_status make_stages(mo_card *card, mo_error *err)
{
    const int64_t brick = mo_card_largest_brick(card->frame);
    if (brick == 0) {
        return MO_OK;
    }
    const bool interleaved = mo_card_any_interleaved(card);
    const int64_t each = interleaved ? 2 * brick : brick;
    const int64_t spare = card->limit - card->taken - mo_card_kept(card);
    const int64_t asked = card->options.stage_bytes;
    const int64_t bytes = asked == 0 ? mo_vram_staging(each, card->limit, spare, all_slots(card))
                          : asked < MO_VRAM_STAGES_LEAST * each ? MO_VRAM_STAGES_LEAST * each
                                                                : asked;
    const int64_t count = bytes / each < CARD_STAGES ? bytes / each : CARD_STAGES;
    card->stage_bytes = brick;
    card->staging_bytes = bytes;
    mo_daddr memory = 0;
    mo_status status = mo_card_take(card, bytes, "room for experts on their way", &memory, err);
    for (int64_t i = 0; i < count && status == MO_OK; i++) {
        mo_card_stage *s = &card->stages[i];
        s->memory = memory + (mo_daddr)(i * brick);
        s->plain = interleaved ? memory + (mo_daddr)((count + i) * brick) : s->memory;
        card->stage_count++;
        status = mo_event_create(card->device, &s->ready, err);
        if (status == MO_OK) {
            status = mo_event_create(card->device, &s->done, err);
        }
    }
    return status;
}

static mo_status make_slots(mo_card *card, mo_error *err)
{
    const int layers = card->frame->layer_count;
    mo_vram_layer *shapes = calloc((size_t)layers + 1, sizeof *shapes);
    if (!shapes) {
        return mo_fail(err, MO_ENOMEM, "no memory for the map of the device's experts");
    }
    for (int i = 0; i < layers; i++) {
        const mo_layer *l = &card->frame->layers[i];
        shapes[i] =
            (mo_vram_layer){.bytes = card->layers[i].brick_bytes, .experts = l->routed ? l->moe.experts : 0};
    }
    int64_t budget = card->limit - card->taken - mo_card_kept(card);
    mo_status status = MO_OK;
    if (card->options.hot && card->options.hot->file) {
        status = mo_card_hot_choose(card, budget, shapes, err);
        budget = MO_VRAM_BY_LAYER;
    } else {
        budget = budget < 0 || card->options.cpu_moe ? 0 : budget;
    }
    if (status == MO_OK) {
        status = mo_vram_open(card->device, shapes, layers, budget, card->options.policy, &card->vram, err);
    }
    if (status == MO_OK) {
        int32_t slots, filled;
        int64_t bytes;
        mo_vram_slots(card->vram, &slots, &filled, &bytes);
        card->taken += bytes + mo_card_map_bytes(card->frame);
        card->counters.peak_bytes = card->taken;
    }
    free(shapes);
    return status;
}

static void adopt(mo_card *card, uint8_t *memory, size_t bytes, const char *what, mo_adopted *out)
{
    const size_t piece_bytes = card->options.pin_bytes ? card->options.pin_bytes : ADOPT_PIECE;
    *out = (mo_adopted){.memory = memory, .piece = piece_bytes};
    bytes = bytes / 4096 * 4096;
    size_t at = 0;
    for (mo_error err = {0}; memory && at < bytes; at += piece_bytes) {
        const size_t piece = bytes - at < piece_bytes ? bytes - at : piece_bytes;
        if (mo_device_adopt(card->device, memory + at, piece, &err) != MO_OK) {
            mo_log(MO_LOG_WARN, "device",
                   "%.1f of %.1f GiB of %s in RAM could be pinned (%s); what lies in the rest reaches the "
                   "device "
                   "several times slower, so the CPU computes more of it where it can",
                   (double)at / (1 << 30), (double)bytes / (1 << 30), what, err.detail);
            break;
        }
        out->bytes = at + piece;
    }
}

/* The memory from which experts are fetched and layers pass is pinned where it lies. */
static void adopt_weights(mo_card *card)
{
    size_t bytes = 0;
    uint8_t *region = mo_checkpoint_region(card->model, &bytes);
    adopt(card, region, bytes, "weights", &card->adopted[0]);
    if (card->passage.count && card->passage.tiers && card->passage.tiers->ring) {
        region = mo_ring_region(card->passage.tiers->ring, &bytes);
        adopt(card, region, bytes, "layers from disk", &card->adopted[1]);
    }
    for (int i = 0; mo_card_store(card) && i < MO_BRICK_CLASSES; i++) {
        region = mo_store_region(mo_card_store(card), i, &bytes);
        adopt(card, region, bytes, "slots for experts", &card->adopted[2 + i]);
    }
}

static void release_weights(mo_card *card)
{
    for (int i = 0; i < CARD_ADOPTED; i++) {
        for (size_t at = 0; at < card->adopted[i].bytes; at += card->adopted[i].piece) {
            mo_device_release(card->device, card->adopted[i].memory + at);
        }
    }
}

/* How far a copy from here may go at once: it may not cross from one pinned piece to the next. */
static size_t pinned_run(const mo_card *card, const uint8_t *from, size_t run)
{
    for (int i = 0; i < CARD_ADOPTED; i++) {
        const mo_adopted *a = &card->adopted[i];
        if (a->memory && from >= a->memory && from < a->memory + a->bytes) {
            const size_t at = (size_t)(from - a->memory), end = a->bytes - at,
                         left = a->piece - at % a->piece;
            run = run < left ? run : left;
            run = run < end ? run : end;
        }
    }
    return run;
}

mo_status mo_card_copy_range(mo_card *card, mo_dstream *stream, const uint8_t *from, size_t bytes,
                             mo_daddr to, mo_error *err)
{
    mo_status status = MO_OK;
    for (size_t done = 0, run; done < bytes && status == MO_OK; done += run) {
        run = pinned_run(card, from + done, bytes - done);
        status = mo_copy_in(stream, to + done, from + done, run, err);
    }
    return status;
}

bool mo_card_is_pinned(const mo_card *card, int layer, int expert)
{
    const mo_brick *b = &card->frame->layers[layer].moe.bricks[expert];
    const uint8_t *parts[] = {b->gate.w.data, b->up.w.data, b->down.w.data};
    bool pinned = true;
    for (int i = 0; i < 3; i++) {
        bool here = false;
        for (int k = 0; k < CARD_ADOPTED; k++) {
            const mo_adopted *a = &card->adopted[k];
            here |= a->memory && parts[i] >= a->memory && parts[i] < a->memory + a->bytes;
        }
        pinned = pinned && here;
    }
    return pinned;
}

mo_status mo_card_copy_matrix(mo_card *card, mo_dstream *stream, const mo_weights *w, mo_daddr to,
                              mo_error *err)
{
    const int64_t bytes = w->rows * mo_format_row_bytes(mo_format_of(w->type), w->cols);
    return mo_card_copy_range(card, stream, w->data, (size_t)bytes, to, err);
}

mo_status mo_card_copy_brick(mo_card *card, mo_dstream *stream, int layer, int expert, mo_daddr to,
                             int64_t *bytes, mo_error *err)
{
    const mo_brick *b = &card->frame->layers[layer].moe.bricks[expert];
    const mo_weights *parts[] = {&b->gate.w, &b->up.w, &b->down.w};
    const int64_t at[] = {0, card->layers[layer].up_at, card->layers[layer].down_at};
    mo_status status = MO_OK;
    *bytes = 0;
    for (int i = 0; i < 3 && status == MO_OK; i++) {
        *bytes += parts[i]->rows * mo_format_row_bytes(mo_format_of(parts[i]->type), parts[i]->cols);
        status = mo_card_copy_matrix(card, stream, parts[i], to + (mo_daddr)at[i], err);
    }
    return status;
}

static mo_status set_limit(mo_card *card, mo_error *err)
{
    mo_device_info info;
    mo_device_describe(card->device, &info);
    card->shares_cores = strcmp(info.kind, "cuda") != 0;
    const mo_hot_request *hot = card->options.hot && card->options.hot->file ? card->options.hot : NULL;
    const bool less = hot && hot->max_mib < 0 && hot->reserve_mib < RESERVE_BYTES >> 20; /* as asked for */
    const int64_t reserve = less ? hot->reserve_mib << 20 : RESERVE_BYTES;
    const int64_t free_bytes = info.free_bytes > reserve ? info.free_bytes - reserve : 0;
    card->limit = card->options.vram_bytes > 0 ? card->options.vram_bytes : free_bytes;
    card->margin = card->options.vram_bytes > 0 ? 0 : info.free_bytes - free_bytes;
    if (card->options.vram_bytes > 0 && card->limit > info.free_bytes) {
        mo_log(MO_LOG_WARN, "device",
               "%s has %.1f GiB free, less than the %.1f of --vram: it is used as far as it goes", info.name,
               (double)info.free_bytes / (1 << 30), (double)card->limit / (1 << 30));
        card->limit = free_bytes;
    }
    if (card->limit <= 0) {
        return mo_fail(err, MO_ENOMEM, "%s has no memory left; end what uses it, or run with --device none",
                       info.name);
    }
    return MO_OK;
}

static mo_status open_card(mo_card *card, mo_error *err)
{
    mo_status status = set_limit(card, err);
    if (status == MO_OK) {
        status = mo_card_clock_open(card->frame->layer_count, &card->clock, err);
    }
    if (status == MO_OK) {
        status = make_streams(card, err);
    }
    if (status == MO_OK) {
        status = mo_card_take_room(card, err);
    }
    if (status == MO_OK) {
        status = mo_card_take_pinned(card, err);
    }
    if (status == MO_OK) {
        status = mo_card_pass_open(card, err);
    }
    if (status == MO_OK) {
        status = mo_card_upload(card, err);
    }
    if (status == MO_OK) {
        status = make_stages(card, err);
    }
    if (status == MO_OK) {
        status = mo_card_make_ring(card, err);
    }
    if (status == MO_OK) {
        status = mo_card_size_transfers(card, err);
    }
    if (status == MO_OK) {
        status = make_slots(card, err);
    }
    if (status == MO_OK) {
        adopt_weights(card);
        status = mo_card_fill(card, err);
    }
    return status;
}

mo_status mo_card_open(const mo_checkpoint *model, const mo_card_options *options, mo_card **out,
                       mo_error *err)
{
    *out = NULL;
    mo_card *card = calloc(1, sizeof *card);
    if (!card) {
        return mo_fail(err, MO_ENOMEM, "no memory for the device's part of the model");
    }
    card->device = options->device;
    card->model = model;
    card->frame = mo_checkpoint_frame(model);
    card->options = *options;
    card->extent = mo_extent_of(card->frame);
    card->passage.tiers = options->tiers;
    card->passage.held = -1;
    card->session_bytes =
        (int64_t)mo_state_bytes(card->frame, options->kv, options->context, options->batch) +
        mo_card_seat_bytes(card->frame);
    card->cpu_rate = mo_lane_rate_of(options->cpu_bytes_s > 0 ? options->cpu_bytes_s : CPU_BYTES_S);
    card->fetch_rate = mo_lane_rate_of(options->link_bytes_s > 0 ? options->link_bytes_s : LINK_BYTES_S);
    if (options->postfetch) {
        card->postfetch = *options->postfetch;
    }
    find_ropes(card);
    card->batch_ops_limit = CARD_OPS;
    card->batch_ops = malloc(sizeof *card->batch_ops * (size_t)card->batch_ops_limit);
    if (!card->batch_ops) {
        free(card);
        return mo_fail(err, MO_ENOMEM, "no memory for the device's part of the model");
    }
    const mo_status status = open_card(card, err);
    card->options.hot = NULL; /* the caller's, and not needed any more */
    card->options.wishes = NULL;
    card->options.wish_count = 0;
    if (status != MO_OK) {
        mo_card_close(card);
        return status;
    }
    *out = card;
    return MO_OK;
}

void mo_card_close(mo_card *card)
{
    if (!card) {
        return;
    }
    mo_dstream_destroy(card->main);
    mo_dstream_destroy(card->fetch);
    mo_dstream_destroy(card->lane);
    mo_card_hot_close(card);
    mo_card_drop_sets(card);
    release_weights(card);
    mo_card_pass_close(card);
    mo_vram_close(card->vram);
    for (int i = 0; i < card->stage_count; i++) {
        mo_event_destroy(card->stages[i].ready);
        mo_event_destroy(card->stages[i].done);
    }
    mo_card_drop_ring(card);
    mo_device_free(card->device, card->stage_count ? card->stages[0].memory : 0);
    mo_event_destroy(card->fetch_from);
    mo_event_destroy(card->fetch_to);
    mo_event_destroy(card->lane_done);
    mo_device_free(card->device, card->core);
    mo_device_free(card->device, card->room.memory);
    if (card->pinned.memory) {
        mo_device_unpin(card->device, card->pinned.memory);
    }
    mo_card_clock_close(card->clock);
    free(card->layers);
    free(card->batch_ops);
    free(card);
}

/* ---- Seats ------------------------------------------------------------------------------------ */

mo_status mo_seat_take(mo_card *card, mo_state *state, mo_error *err)
{
    const int layers = card->frame->layer_count;
    mo_seat *seat = calloc(1, sizeof *seat);
    mo_dstate *table = calloc((size_t)layers, sizeof *table);
    if (!seat || !table) {
        free(seat);
        free(table);
        return mo_fail(err, MO_ENOMEM, "no memory for a session's place on the device");
    }
    seat->card = card;
    seat->bytes = (int64_t)state->bytes;
    mo_status status = mo_card_take(card, seat->bytes, "the state of a session", &seat->memory, err);
    if (status == MO_OK) {
        status =
            mo_card_take(card, layers * (int64_t)sizeof *table, "the state of a session", &seat->table, err);
    }
    for (int i = 0; status == MO_OK && i < layers; i++) {
        const mo_state_layer *l = &state->layers[i];
        const uint8_t *base = state->memory;
        table[i] = (mo_dstate){.capacity = l->capacity};
        table[i].k = l->k ? seat->memory + (mo_daddr)(l->k - base) : 0;
        table[i].v = l->v ? seat->memory + (mo_daddr)(l->v - base) : 0;
        table[i].conv = l->conv ? seat->memory + (mo_daddr)((uint8_t *)l->conv - base) : 0;
        table[i].delta = l->delta ? seat->memory + (mo_daddr)((uint8_t *)l->delta - base) : 0;
    }
    if (status == MO_OK) {
        status = mo_copy_in(card->main, seat->table, table, (size_t)layers * sizeof *table, err);
    }
    if (status == MO_OK) {
        status = mo_dstream_wait(card->main, err);
    }
    free(table);
    state->seat = seat;
    if (status != MO_OK) {
        mo_seat_leave(state);
    }
    return status;
}

void mo_seat_adopt(mo_state *state, float *logits, size_t bytes)
{
    mo_error refused = {0};
    if (mo_device_adopt(state->seat->card->device, logits, bytes, &refused) == MO_OK) {
        state->seat->logits = logits;
    }
}

void mo_seat_leave(mo_state *state)
{
    mo_seat *seat = state->seat;
    if (seat) {
        if (seat->card && seat->logits) {
            mo_device_release(seat->card->device, seat->logits);
        }
        if (seat->card) {
            mo_card_give(seat->card, seat->memory, seat->bytes);
            mo_card_give(seat->card, seat->table,
                         seat->card->frame->layer_count * (int64_t)sizeof(mo_dstate));
        }
        free(seat);
        state->seat = NULL;
    }
}

mo_status mo_seat_pull(const mo_state *state, mo_error *err)
{
    const mo_seat *seat = state->seat;
    if (!seat) {
        return MO_OK;
    }
    mo_status status = mo_card_host_return(seat->card, state, err);
    if (status == MO_OK) {
        status = mo_copy_out(seat->card->main, state->memory, seat->memory, (size_t)seat->bytes, err);
    }
    return status == MO_OK ? mo_dstream_wait(seat->card->main, err) : status;
}

mo_status mo_seat_push(mo_state *state, mo_error *err)
{
    mo_seat *seat = state->seat;
    if (!seat) {
        return MO_OK;
    }
    seat->hosted = false;
    const mo_status status =
        mo_copy_in(seat->card->main, seat->memory, state->memory, (size_t)seat->bytes, err);
    state->cleared = false;
    return status == MO_OK ? mo_dstream_wait(seat->card->main, err) : status;
}

/* ---- Instruments ------------------------------------------------------------------------------ */

void mo_card_report(const mo_card *card, mo_device_report *out)
{
    *out = card->counters;
    out->limit_bytes = card->limit;
    out->core_bytes = card->core_bytes;
    out->passing_layers = card->passage.count - card->host.count;
    out->host_layers = card->host.count;
    out->passing_bytes = card->passage.count ? card->passage.ring * card->passage.room : 0;
    out->work_bytes = card->room.bytes;
    out->stage_bytes = card->staging_bytes;
    out->stage_bytes += card->hot.stage_bytes;
    out->cpu_bytes_s = 1.0 / card->cpu_rate.s_per_byte;
    out->link_bytes_s = 1.0 / card->fetch_rate.s_per_byte;
    out->round_trip_s = card->options.round_trip_s;
    mo_vram_slots(card->vram, &out->slots, &out->filled, &out->slot_bytes);
    mo_card_clock_report(card->clock, out);
}

int mo_card_report_layers(const mo_card *card, mo_device_layer *out, int room)
{
    return mo_card_clock_layers(card->clock, out, room);
}
