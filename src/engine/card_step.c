/* A step on the card: few tokens run prepared programs, with the host's help where a layer's experts do not all lie on
 * the device; a batch goes layer by layer. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/card_parts.h"

/* The CPU's part of a layer follows that of the layer before after what the device does between them. */
#define STAY_AWAKE_NS ((int64_t)500 * 1000)

/* ---- Before ----------------------------------------------------------------------------------- */

/* Recurrent parts of seats whose session begins anew. */
static mo_status clear_seats(mo_card *card, const mo_walk *walk, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < walk->slice_count; i++) {
        mo_state *s = walk->slices[i].state;
        s->seat->hosted = s->seat->hosted && !s->cleared;
        for (int l = 0; s->cleared && s->recurrent && l < card->frame->layer_count && status == MO_OK; l++) {
            const mo_state_layer *layer = &s->layers[l];
            if (layer->conv) {
                const mo_daddr at =
                    s->seat->memory + (mo_daddr)((const uint8_t *)layer->conv - (const uint8_t *)s->memory);
                const size_t bytes = (size_t)((const uint8_t *)layer->delta - (const uint8_t *)layer->conv) +
                                     sizeof(float) * (size_t)layer->delta_values;
                status = mo_device_clear(card->main, at, bytes, err);
            }
        }
        s->cleared = s->cleared && status != MO_OK;
    }
    return status;
}

/* Everything about the step that ops read from the device's memory: one copy. */
static mo_status send_block(mo_card *card, const mo_walk *walk, mo_error *err)
{
    const int64_t n = walk->tokens, pairs = card->extent.pairs, width = card->frame->width;
    const mo_card_block b = mo_card_lay_block(card, n);
    uint8_t *block = card->pinned.block;
    mo_dplace *places = (mo_dplace *)(void *)(block + b.places);
    mo_dslice *slices = (mo_dslice *)(void *)(block + b.slices);
    memset(block + b.bad, 0, (size_t)(b.sequence - b.bad));
    card->sequence = card->sequence + 1 ? card->sequence + 1 : 1;
    memcpy(block + b.sequence, &card->sequence, sizeof card->sequence);
    int64_t t = 0;
    for (int i = 0; i < walk->slice_count; i++) {
        const mo_slice *s = &walk->slices[i];
        const mo_daddr table = s->state->seat->table;
        slices[i] = (mo_dslice){
            .layers = table, .position = s->state->length, .first = (int32_t)t, .count = (int32_t)s->count};
        for (int64_t j = 0; j < s->count; j++, t++) {
            places[t] = (mo_dplace){
                .layers = table, .position = walk->w->position[t], .slice = i, .into = (int32_t)j};
        }
    }
    for (int r = 0; r < card->rope_count; r++) {
        for (int part = 0; part < 2; part++) {
            memcpy(block + b.rope + (2 * r + part) * n * pairs * 4,
                   walk->w->rope + (2 * r + part) * walk->engine->batch * walk->w->rope_stride,
                   (size_t)(n * pairs) * sizeof(float));
        }
    }
    memcpy(block + b.x, walk->w->x, (size_t)(n * width) * sizeof(float));
    return mo_copy_in(card->main, card->room.step, block, (size_t)b.bytes, err);
}

/* ---- Few tokens: programs --------------------------------------------------------------------- */

static int64_t chunks_seen(const mo_walk *walk)
{
    int64_t most = 1;
    for (int64_t t = 0; t < walk->tokens; t++) {
        const int64_t chunks = walk->w->position[t] / MO_CHUNK + 1;
        most = chunks > most ? chunks : most;
    }
    return most;
}

/* Programs serve all steps up to the next power of two of chunks. */
static int64_t chunk_bucket(const mo_card *card, int64_t chunks)
{
    const int64_t most = (card->options.context + MO_CHUNK - 1) / MO_CHUNK;
    int64_t bucket = 1;
    while (bucket < chunks) {
        bucket *= 2;
    }
    return bucket < most ? bucket : most;
}

static bool wants_logits(const mo_walk *walk)
{
    for (int i = 0; i < walk->slice_count; i++) {
        if (walk->slices[i].logits && walk->slices[i].logits_from < walk->slices[i].count) {
            return true;
        }
    }
    return false;
}

static bool is_open(const mo_card *card, int layer)
{
    return card->frame->layers[layer].routed && !mo_vram_closed(card->vram, layer);
}

static bool passes(const mo_card *card, int layer)
{
    return card->passage.number[layer] >= 0;
}

/* open: the host serves layer to - 1 before the next segment goes on. */
static mo_status end_segment(mo_card *card, mo_card_set *set, mo_card_plan *p, int from, int to, bool open,
                             mo_error *err)
{
    mo_card_segment *s = &set->segments[set->count];
    *s = (mo_card_segment){.from = from, .to = to, .open = open, .passing = p->passing};
    p->passing = -1;
    const mo_status status = mo_program_create(card->device, p->ops, p->count, &s->program, err);
    set->count += status == MO_OK;
    p->count = 0;
    return status;
}

/* One past the last of neighbouring layers that the CPU computes. */
static int end_of_host(const mo_card *card, int layer)
{
    while (layer < card->frame->layer_count && card->host.layers[layer]) {
        layer++;
    }
    return layer;
}

static mo_status build_set(mo_card *card, mo_card_set *set, mo_card_plan *p, mo_error *err)
{
    const int layers = card->frame->layer_count;
    mo_status status = MO_OK;
    int from = 0;
    mo_card_begin(p, 0);
    for (int i = 0; i < layers && status == MO_OK; i++) {
        if (card->host.layers[i]) {
            const int to = end_of_host(card, i);
            mo_card_hand_over(p, i);
            status = end_segment(card, set, p, from, i, false, err);
            set->segments[set->count - 1].host_from = i;
            set->segments[set->count - 1].host_to = to;
            mo_card_take_back(p, i, to);
            from = to;
            i = to - 1;
            continue;
        }
        const bool open = is_open(card, i), alone = passes(card, i);
        if (alone && p->count > 0) { /* what is before it need not wait for it */
            status = end_segment(card, set, p, from, i, false, err);
            from = i;
        }
        p->passing = alone ? i : -1;
        mo_card_mix(p, i);
        if (open) {
            mo_card_publish(p, i);
        }
        if (card->frame->layers[i].routed && mo_vram_has(card->vram, i)) {
            mo_card_hot(p, i);
        }
        mo_card_side(p, i);
        if (open && status == MO_OK) {
            status = end_segment(card, set, p, from, i + 1, true, err);
            from = i + 1;
            mo_card_await(p, i);
        }
        mo_card_merge(p, i, false, true);
        if (alone && !open && status == MO_OK) { /* its place in the ring is free again */
            status = end_segment(card, set, p, from, i + 1, false, err);
            from = i + 1;
        }
    }
    if (status == MO_OK && set->logits) {
        mo_card_logits(p, 0, p->tokens);
    }
    return status == MO_OK && p->count > 0 ? end_segment(card, set, p, from, layers, false, err) : status;
}

static void drop_set(mo_card_set *set)
{
    for (int i = 0; i < set->count; i++) {
        mo_program_destroy(set->segments[i].program);
    }
    free(set->segments);
    *set = (mo_card_set){0};
}

static mo_status find_set(mo_card *card, const mo_walk *walk, mo_card_set **out, mo_error *err)
{
    const int64_t chunks = chunk_bucket(card, chunks_seen(walk));
    const bool logits = wants_logits(walk);
    mo_card_set *oldest = &card->sets[0];
    for (int i = 0; i < CARD_PROGRAMS; i++) {
        mo_card_set *s = &card->sets[i];
        if (s->segments && s->tokens == walk->tokens && s->slices == walk->slice_count &&
            s->chunks == chunks && s->logits == logits && s->kv == walk->slices[0].state->kv) {
            s->used = card->pass;
            *out = s;
            return MO_OK;
        }
        if (s->used < oldest->used) {
            oldest = s;
        }
    }
    const int limit = card->frame->layer_count * CARD_OPS + CARD_OPS;
    drop_set(oldest);
    mo_op *ops = malloc(sizeof *ops * (size_t)limit);
    oldest->segments = calloc(2 * (size_t)card->frame->layer_count + 1, sizeof *oldest->segments);
    oldest->tokens = walk->tokens;
    oldest->slices = walk->slice_count;
    oldest->chunks = chunks;
    oldest->logits = logits;
    oldest->kv = walk->slices[0].state->kv;
    oldest->used = card->pass;
    mo_card_plan p = {.card = card,
                      .tokens = walk->tokens,
                      .chunks = chunks,
                      .slices = walk->slice_count,
                      .kv = walk->slices[0].state->kv,
                      .passing = -1,
                      .ops = ops,
                      .limit = limit};
    const mo_status status = ops && oldest->segments
                                 ? build_set(card, oldest, &p, err)
                                 : mo_fail(err, MO_ENOMEM, "no memory for the device's programs");
    free(ops);
    if (status != MO_OK) {
        drop_set(oldest);
    }
    *out = oldest;
    return status;
}

mo_status mo_card_run_segment(mo_card *card, const mo_card_segment *s, mo_error *err)
{
    mo_status status = s->passing >= 0 ? mo_card_pass_enter(card, s->passing, err) : MO_OK;
    if (status == MO_OK) {
        status = mo_program_run(s->program, card->main, err);
    }
    return status == MO_OK && s->passing >= 0 ? mo_card_pass_leave(card, s->passing, err) : status;
}

static mo_status run_few(mo_card *card, mo_walk *walk, const atomic_bool *cancel, mo_error *err)
{
    mo_card_set *set;
    mo_status status = find_set(card, walk, &set, err);
    if (status == MO_OK) {
        status = mo_card_run_segment(card, &set->segments[0], err);
        mo_card_clock_launched(card->clock, mo_clock_ns());
    }
    for (int i = 0; i + 1 < set->count && status == MO_OK; i++) {
        const mo_card_segment *s = &set->segments[i];
        const bool open = s->open, hosted = s->host_to > s->host_from;
        mo_card_service service = {0};
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed)) {
            status = mo_fail(err, MO_ECANCELLED, "cancelled");
            break;
        }
        if (open) {
            status = mo_card_serve(card, walk, s->to - 1, &service, err);
        } else if (hosted) {
            status = mo_card_host_meet(card, walk, s->host_from, err);
        }
        if (status == MO_OK && service.deferred) {
            service.next = &set->segments[i + 1];
        } else if (status == MO_OK) {
            status = mo_card_run_segment(card, &set->segments[i + 1], err);
        }
        if (status == MO_OK && open) {
            status = mo_card_reply(card, walk, &service, err);
        } else if (status == MO_OK && hosted) {
            status = mo_card_host_run(card, walk, s->host_from, s->host_to, err);
        }
    }
    return status;
}

/* ---- A batch ---------------------------------------------------------------------------------- */

static mo_status run_batch(mo_card *card, mo_walk *walk, const atomic_bool *cancel, mo_error *err)
{
    const int layers = card->frame->layer_count;
    const bool experts = !walk->slices[0].routers_only;
    mo_op *ops = card->batch_ops;
    mo_card_plan p = {.card = card,
                      .tokens = walk->tokens,
                      .chunks = chunks_seen(walk),
                      .slices = walk->slice_count,
                      .kv = walk->slices[0].state->kv,
                      .ops = ops,
                      .limit = card->batch_ops_limit};
    mo_status status = MO_OK;
    mo_card_begin(&p, 0);
    for (int i = 0; i < layers && status == MO_OK; i++) {
        if (cancel && atomic_load_explicit(cancel, memory_order_relaxed)) {
            return mo_fail(err, MO_ECANCELLED, "cancelled");
        }
        if (passes(card, i)) {
            status = mo_card_launch(card->main, &p, err);
            p.count = 0;
            status = status == MO_OK ? mo_card_pass_enter(card, i, err) : status;
        }
        mo_card_mix(&p, i);
        status = status == MO_OK ? mo_card_launch(card->main, &p, err) : status;
        p.count = 0;
        mo_card_side(&p, i);
        if (status == MO_OK) {
            status = mo_card_launch(card->main, &p, err);
        }
        p.count = 0;
        if (status == MO_OK && passes(card, i)) {
            status = mo_card_pass_leave(card, i, err);
        }
        if (status == MO_OK && card->frame->layers[i].routed) {
            status = mo_card_feed_batch(card, walk, &p, i, experts, err);
            p.count = 0;
        }
        mo_card_merge(&p, i, true, experts);
    }
    return status == MO_OK ? mo_card_launch(card->main, &p, err) : status;
}

/* ---- After ------------------------------------------------------------------------------------ */

static mo_status check_flags(mo_card *card, mo_error *err)
{
    const int layers = card->frame->layer_count;
    const uint32_t *bad = card->pinned.bad;
    for (int i = 0; i < layers; i++) {
        if (bad[2 * i + 1]) {
            return mo_fail(
                err, MO_EUNSUPPORTED,
                "layer %d has keys or values too large for this cache format; run again with --kv f32", i);
        }
        if (bad[2 * i]) {
            return mo_fail(
                err, MO_EFORMAT,
                "layer %d gives numbers that are not finite; the model file is damaged or not meant for "
                "this architecture",
                i);
        }
    }
    if (bad[2 * layers]) {
        return mo_fail(err, MO_EDEVICE,
                       "the device waited ten seconds for the CPU's part of a layer and gave up");
    }
    if (bad[2 * layers + 1]) {
        return mo_fail(
            err, MO_EFORMAT,
            "the logits are not finite; the model file is damaged or not meant for this architecture");
    }
    return MO_OK;
}

/* Rows of logits that were made for tokens first .. first + rows - 1 go to the slices that want them. */
static void hand_out(const mo_card *card, const mo_walk *walk, int64_t first, int64_t rows)
{
    const int64_t vocab = card->frame->vocab;
    int64_t t = 0;
    for (int i = 0; i < walk->slice_count; i++) {
        const mo_slice *s = &walk->slices[i];
        for (int64_t j = 0; j < s->count; j++, t++) {
            if (s->logits && j >= s->logits_from && t >= first && t < first + rows) {
                memcpy(s->logits + (j - s->logits_from) * vocab, card->pinned.logits + (t - first) * vocab,
                       sizeof(float) * (size_t)vocab);
            }
        }
    }
}

static mo_status fetch_logits(mo_card *card, const mo_walk *walk, int64_t first, int64_t rows, mo_error *err)
{
    const mo_slice *only = &walk->slices[0];
    const bool direct =
        rows == 1 && walk->slice_count == 1 && only->logits && only->logits == only->state->seat->logits;
    mo_status status = mo_copy_out(card->main, direct ? only->logits : card->pinned.logits, card->room.logits,
                                   sizeof(float) * (size_t)(rows * card->frame->vocab), err);
    if (status == MO_OK) {
        status = mo_stream_wait(card->main, err);
    }
    if (status == MO_OK && !direct) {
        hand_out(card, walk, first, rows);
    }
    return status;
}

/* Logits of a batch: only of the tokens that somebody asked for, some at a time. */
static mo_status batch_logits(mo_card *card, const mo_walk *walk, mo_error *err)
{
    mo_card_plan p = {.card = card,
                      .tokens = walk->tokens,
                      .slices = walk->slice_count,
                      .ops = card->batch_ops,
                      .limit = card->batch_ops_limit};
    mo_status status = MO_OK;
    int64_t first = 0;
    for (int i = 0; i < walk->slice_count; i++) {
        const mo_slice *s = &walk->slices[i];
        for (int64_t j = s->logits_from; s->logits && j < s->count && status == MO_OK; j += CARD_LOGITS) {
            const int64_t rows = s->count - j < CARD_LOGITS ? s->count - j : CARD_LOGITS;
            p.count = 0;
            mo_card_logits(&p, first + j, rows);
            status = mo_card_launch(card->main, &p, err);
            if (status == MO_OK) {
                status = fetch_logits(card, walk, first + j, rows, err);
            }
        }
        first += s->count;
    }
    return status;
}

/* What layers chose, for those who count or listen. Open layers were counted when they were served. */
static void tell_choices(mo_card *card, mo_walk *walk)
{
    const int64_t stride = mo_card_choice_rows(card, walk->tokens);
    for (int i = 0; i < card->frame->layer_count; i++) {
        const mo_layer *l = &card->frame->layers[i];
        if (!l->routed || card->host.layers[i]) { /* the CPU told and counted its own */
            continue;
        }
        const int64_t rows = walk->tokens * l->moe.used;
        walk->index = i;
        walk->layer = l;
        memcpy(walk->w->ids, card->pinned.all_ids + i * stride, sizeof(int32_t) * (size_t)rows);
        memcpy(walk->w->weights, card->pinned.all_weights + i * stride, sizeof(float) * (size_t)rows);
        mo_walk_tell_routes(walk);
        if (is_open(card, i)) {
            continue;
        }
        mo_tally_layer *counts = walk->engine->tally ? mo_tally_find(walk->engine->tally, i) : NULL;
        if (counts) {
            mo_tally_call(counts, mo_walk_phase(walk));
        }
        for (int64_t j = 0; counts && j < rows; j++) {
            mo_tally_add(&counts->hits[mo_walk_phase(walk)][MO_FOUND_HOT][walk->w->ids[j]], 1);
        }
        walk->engine->counters.expert_picks += (uint64_t)rows;
        walk->engine->counters.bricks_run += (uint64_t)rows;
    }
}

/* The profile's mode says what becomes of the step's times. */
static mo_status end_clock(mo_card *card, const mo_walk *walk, mo_error *err)
{
    const mo_status status = mo_card_measure_last(card, err);
    if (status == MO_OK) {
        mo_card_clock_end(card->clock, card->pinned.bad + 2 * card->frame->layer_count + 2,
                          walk->engine->tally, walk->engine->timed, mo_clock_ns(), &card->counters.fetch_ns,
                          &card->counters.hidden_ns);
    }
    return status;
}

static mo_status finish(mo_card *card, mo_walk *walk, bool few, mo_error *err)
{
    mo_status status = few ? MO_OK : batch_logits(card, walk, err);
    const int layers = card->frame->layer_count;
    const size_t choices = sizeof(int32_t) * (size_t)(layers * mo_card_choice_rows(card, walk->tokens));
    if (status == MO_OK) {
        status = mo_copy_out(card->main, card->pinned.bad, card->room.step,
                             sizeof(uint32_t) * (size_t)mo_card_bad_words(layers), err);
    }
    if (status == MO_OK && few && card->extent.expert_width) {
        status = mo_copy_out(card->main, card->pinned.all_ids, card->room.ids, choices, err);
    }
    if (status == MO_OK && few && mo_walk_listens(walk)) {
        status = mo_copy_out(card->main, card->pinned.all_weights, card->room.weights, choices, err);
    }
    if (status == MO_OK) {
        status = few && wants_logits(walk) ? fetch_logits(card, walk, 0, walk->tokens, err)
                                           : mo_stream_wait(card->main, err);
    }
    if (status == MO_OK) {
        status = check_flags(card, err);
    }
    if (status == MO_OK && few) {
        status = end_clock(card, walk, err);
    }
    if (status == MO_OK && few) {
        tell_choices(card, walk);
    }
    return status;
}

mo_status mo_card_step(mo_card *card, mo_walk *walk, const atomic_bool *cancel, mo_error *err)
{
    const bool few = walk->tokens <= CARD_FEW && !walk->slices[0].routers_only;
    for (int i = 0; i < walk->slice_count; i++) {
        if (!walk->slices[i].state->seat || walk->slices[i].state->kv != walk->slices[0].state->kv) {
            return mo_fail(err, MO_EINVAL,
                           "sessions that share a step on a device must have the same --kv format");
        }
    }
    card->pass++;
    mo_card_clock_begin(card->clock, walk->engine->tally != NULL, mo_clock_ns());
    mo_pool_expect(walk->engine->pool, few && !card->shares_cores ? STAY_AWAKE_NS : 0);
    mo_status status = mo_card_hot_turn(card, walk, err);
    if (status == MO_OK) {
        status = clear_seats(card, walk, err);
    }
    if (status == MO_OK && !few) {
        status = mo_card_begin_batch(card, walk, !walk->slices[0].routers_only, err);
    }
    if (status == MO_OK) {
        status = mo_card_host_bring(card, walk, few, err);
    }
    if (status == MO_OK) {
        status = mo_card_pass_begin(card, few, err);
    }
    if (status == MO_OK) {
        status = send_block(card, walk, err);
    }
    if (status == MO_OK) {
        status = few ? run_few(card, walk, cancel, err) : run_batch(card, walk, cancel, err);
    }
    if (status == MO_OK) {
        status = finish(card, walk, few, err);
    }
    if (status != MO_OK) {
        mo_card_abort(card);
    }
    if (status == MO_EDEVICE) {
        mo_card_pass_end(card);
    } else if (status == MO_OK) {
        card->counters.steps++;
    }
    mo_pool_expect(walk->engine->pool, 0);
    return status;
}
