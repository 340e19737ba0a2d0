/* A layer as ops. The order is that of the CPU's walk; what stands in its files about why is not repeated here. */
#include <assert.h>
#include <math.h>

#include "base/clock.h"
#include "engine/card_parts.h"

static mo_op *add(mo_card_plan *p, mo_op_kind kind)
{
    assert(p->count < p->limit);
    mo_op *op = &p->ops[p->count++];
    *op = (mo_op){.kind = kind};
    return op;
}

static mo_daddr block_at(const mo_card_plan *p, int64_t offset)
{
    return p->card->room.step + (mo_daddr)offset;
}

static mo_daddr stream_of(const mo_card_plan *p)
{
    return block_at(p, mo_card_lay_block(p->card, p->tokens).x);
}

static mo_dacts in_of(const mo_card_plan *p)
{
    return mo_dacts_lay(p->card->room.in, p->tokens, p->card->frame->width);
}

/* Rows of activations from row `first` on. */
static mo_dacts rows_from(mo_dacts a, int64_t first)
{
    const int64_t blocks = (a.cols + 31) / 32;
    a.x += (mo_daddr)(first * a.cols * 4);
    a.q += (mo_daddr)(first * a.cols);
    a.d += (mo_daddr)(first * blocks * 4);
    a.s += (mo_daddr)(first * blocks * 4);
    a.sum += (mo_daddr)(first * blocks * 4);
    a.half_sum += (mo_daddr)(first * blocks * 4);
    return a;
}

/* ---- Products -------------------------------------------------------------------------------- */

static mo_op_product *add_product(mo_card_plan *p, mo_dacts in)
{
    mo_op_product *op = &add(p, MO_OP_PRODUCT)->product;
    op->in = in;
    op->tokens = (int32_t)p->tokens;
    return op;
}

static void multiply(mo_op_product *op, const mo_dmatrix *m, mo_daddr y, int64_t stride)
{
    if (m->data) {
        op->matrix[op->count] = *m;
        op->y[op->count] = y;
        op->stride[op->count++] = stride;
    }
}

/* ---- The stream ------------------------------------------------------------------------------ */

static mo_op_stream *add_stream(mo_card_plan *p, int layer)
{
    mo_op_stream *op = &add(p, MO_OP_STREAM)->stream;
    op->x = stream_of(p);
    op->tokens = (int32_t)p->tokens;
    op->n = (int32_t)p->card->frame->width;
    op->eps = p->card->frame->eps;
    op->bad = mo_card_bad(p->card, layer, false);
    return op;
}

static void norm_into(mo_op_stream *op, int which, mo_daddr weight, mo_dacts out)
{
    op->norm[which] = (mo_op_norm){.weight = weight, .scale = 1.0f, .out = out};
}

static mo_daddr norm_before(const mo_card *card, int layer)
{
    return layer < card->frame->layer_count ? card->layers[layer].mixer_norm : card->out_norm;
}

void mo_card_begin(mo_card_plan *p, int layer)
{
    mo_op_stream *op = add_stream(p, layer < p->card->frame->layer_count ? layer : layer - 1);
    norm_into(op, 0, norm_before(p->card, layer), in_of(p));
}

/* x += mixer's output, and what the feed-forward part reads. */
static void take_mixer(mo_card_plan *p, int layer)
{
    const mo_layer *l = &p->card->frame->layers[layer];
    const mo_card_layer *c = &p->card->layers[layer];
    mo_op_stream *op = add_stream(p, layer);
    op->y = p->card->room.y;
    op->y_norm = c->post_mixer_norm;
    if (l->dense) {
        norm_into(op, 0, c->ffn_norm, mo_dacts_lay(p->card->room.in_dense, p->tokens, p->card->frame->width));
    }
    if (l->routed) {
        norm_into(op, 1, c->moe_norm ? c->moe_norm : c->ffn_norm, in_of(p));
    }
    if (l->routed && c->input_scale) {
        norm_into(op, 2, 0, mo_dacts_lay(p->card->room.in_router, p->tokens, p->card->frame->width));
        op->norm[2].scale = c->input_factor;
        op->norm[2].multiply = c->input_scale;
    }
}

/* ---- Mixers ---------------------------------------------------------------------------------- */

static void add_heads(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    const mo_attention *a = &card->frame->layers[layer].attention;
    const mo_card_layer *c = &card->layers[layer];
    const mo_card_block b = mo_card_lay_block(card, p->tokens);
    mo_op_heads *op = &add(p, MO_OP_HEADS)->heads;
    *op = (mo_op_heads){.q = card->room.q,
                        .k = card->room.k,
                        .v = card->room.v,
                        .q_norm = c->q_norm,
                        .k_norm = c->k_norm,
                        .rope_rows = p->tokens,
                        .rope_stride = card->extent.pairs,
                        .places = block_at(p, b.places),
                        .bad = mo_card_bad(card, layer, true),
                        .tokens = (int32_t)p->tokens,
                        .layer = layer,
                        .heads = a->heads,
                        .kv_heads = a->kv_heads,
                        .k_len = (int32_t)a->k_len,
                        .v_len = (int32_t)a->v_len,
                        .n_rot = (int32_t)a->n_rot,
                        .neox = a->neox,
                        .gated = a->gated,
                        .norm_all = a->norm_all,
                        .v_norm = a->v_norm,
                        .v_from_k = !mo_linear_present(&a->v),
                        .kv = (int32_t)p->kv,
                        .eps = card->frame->eps};
    if (c->rope >= 0) {
        op->rope = block_at(p, b.rope) + (mo_daddr)(2 * c->rope * p->tokens * card->extent.pairs * 4);
    }
}

static void add_attend(mo_card_plan *p, int layer, mo_dacts mixed)
{
    const mo_card *card = p->card;
    const mo_attention *a = &card->frame->layers[layer].attention;
    add(p, MO_OP_ATTEND)->attend =
        (mo_op_attend){.q = card->room.q,
                       .sinks = card->layers[layer].sinks,
                       .places = block_at(p, mo_card_lay_block(card, p->tokens).places),
                       .partial = card->room.partial,
                       .mixed = mixed,
                       .window = a->window,
                       .tokens = (int32_t)p->tokens,
                       .layer = layer,
                       .heads = a->heads,
                       .kv_heads = a->kv_heads,
                       .k_len = (int32_t)a->k_len,
                       .v_len = (int32_t)a->v_len,
                       .gated = a->gated,
                       .kv = (int32_t)p->kv,
                       .chunks = (int32_t)p->chunks,
                       .scale = a->scale};
}

static void mix_attention(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    const mo_attention *a = &card->frame->layers[layer].attention;
    const mo_card_layer *c = &card->layers[layer];
    const mo_dacts mixed = mo_dacts_lay(card->room.mixed, p->tokens, a->heads * a->v_len);
    mo_op_product *in = add_product(p, in_of(p));
    multiply(in, &c->q, card->room.q, a->heads * a->k_len * (a->gated ? 2 : 1));
    multiply(in, &c->k, card->room.k, a->kv_heads * a->k_len);
    multiply(in, &c->v, card->room.v, a->kv_heads * a->v_len);
    add_heads(p, layer);
    add_attend(p, layer, mixed);
    multiply(add_product(p, mixed), &c->out, card->room.y, card->frame->width);
}

static void mix_delta(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    const mo_delta *d = &card->frame->layers[layer].delta;
    const mo_card_layer *c = &card->layers[layer];
    const mo_card_block b = mo_card_lay_block(card, p->tokens);
    const int64_t channels = (2 * (int64_t)d->k_heads + d->v_heads) * d->head;
    const mo_dacts mixed = mo_dacts_lay(card->room.mixed, p->tokens, d->v_heads * d->head);
    const mo_daddr after = card->room.q + (mo_daddr)(p->tokens * channels * 4);
    mo_op_product *in = add_product(p, in_of(p));
    multiply(in, &c->q, card->room.q, channels);
    multiply(in, &c->k, card->room.k, d->v_heads * d->head);
    multiply(in, &c->ba, card->room.v, 2 * (int64_t)d->v_heads);
    multiply(in, &c->beta, card->room.v, 2 * (int64_t)d->v_heads);
    multiply(in, &c->alpha, card->room.v + (mo_daddr)d->v_heads * 4, 2 * (int64_t)d->v_heads);
    add(p, MO_OP_CONVOLVE)->convolve = (mo_op_convolve){.before = card->room.q,
                                                        .after = after,
                                                        .weight = c->conv,
                                                        .places = block_at(p, b.places),
                                                        .slices = block_at(p, b.slices),
                                                        .tokens = (int32_t)p->tokens,
                                                        .slice_count = (int32_t)p->slices,
                                                        .layer = layer,
                                                        .k_heads = d->k_heads,
                                                        .v_heads = d->v_heads,
                                                        .head = (int32_t)d->head,
                                                        .taps = d->taps,
                                                        .eps = card->frame->eps};
    add(p, MO_OP_RECUR)->recur = (mo_op_recur){.after = after,
                                               .z = card->room.k,
                                               .gates = card->room.v,
                                               .a = c->a,
                                               .dt = c->dt,
                                               .norm = c->delta_norm,
                                               .slices = block_at(p, b.slices),
                                               .mixed = mixed,
                                               .tokens = (int32_t)p->tokens,
                                               .slice_count = (int32_t)p->slices,
                                               .layer = layer,
                                               .k_heads = d->k_heads,
                                               .v_heads = d->v_heads,
                                               .head = (int32_t)d->head,
                                               .tiled = d->tiled,
                                               .paired = mo_linear_present(&d->ba),
                                               .eps = card->frame->eps,
                                               .scale = 1.0f / sqrtf((float)d->head)};
    multiply(add_product(p, mixed), &c->out, card->room.y, card->frame->width);
}

/* ---- Routing --------------------------------------------------------------------------------- */

static mo_daddr ids_of(const mo_card_plan *p, int layer)
{
    return mo_card_choice(p->card, p->card->room.ids, p->tokens, layer);
}

static mo_daddr weights_of(const mo_card_plan *p, int layer)
{
    return mo_card_choice(p->card, p->card->room.weights, p->tokens, layer);
}

static void choose(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    const mo_moe *moe = &card->frame->layers[layer].moe;
    const mo_card_layer *c = &card->layers[layer];
    const mo_dacts in =
        c->input_scale ? mo_dacts_lay(card->room.in_router, p->tokens, card->frame->width) : in_of(p);
    multiply(add_product(p, in), &c->router, card->room.scores, moe->experts);
    add(p, MO_OP_CHOOSE)->choose = (mo_op_choose){.scores = card->room.scores,
                                                  .select_bias = c->select_bias,
                                                  .ids = ids_of(p, layer),
                                                  .weights = weights_of(p, layer),
                                                  .table = mo_vram_table(card->vram, layer),
                                                  .work = card->room.work,
                                                  .tokens = (int32_t)p->tokens,
                                                  .experts = moe->experts,
                                                  .used = moe->used,
                                                  .gating = (int32_t)moe->router.gating,
                                                  .normalise = moe->router.normalise,
                                                  .groups = moe->router.groups,
                                                  .groups_used = moe->router.groups_used,
                                                  .scale = moe->router.scale};
}

void mo_card_mix(mo_card_plan *p, int layer)
{
    const mo_layer *l = &p->card->frame->layers[layer];
    if (l->mixer == MO_MIXER_ATTENTION) {
        mix_attention(p, layer);
    } else {
        mix_delta(p, layer);
    }
    take_mixer(p, layer);
    if (l->routed) {
        choose(p, layer);
    }
}

/* ---- The host's part ------------------------------------------------------------------------- */

static mo_daddr seen(const mo_card *card, const void *pinned)
{
    return card->pinned.seen + (mo_daddr)((const uint8_t *)pinned - card->pinned.memory);
}

void mo_card_publish(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    const mo_moe *moe = &card->frame->layers[layer].moe;
    mo_op_publish *op = &add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = ids_of(p, layer);
    op->to[0] = seen(card, card->pinned.ids);
    op->bytes[0] = p->tokens * moe->used * 4;
    op->from[1] = in_of(p).x;
    op->to[1] = seen(card, card->pinned.in);
    op->bytes[1] = p->tokens * card->frame->width * 4;
    op->ranges = 2;
    op->sequence = block_at(p, mo_card_lay_block(card, p->tokens).sequence);
    op->flag = seen(card, &card->pinned.flags[layer]);
}

void mo_card_take_in(mo_card_plan *p, int layer, const void *pinned, mo_daddr to, int64_t bytes)
{
    const mo_card *card = p->card;
    mo_op_publish *op = &add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = seen(card, pinned);
    op->to[0] = to;
    op->bytes[0] = bytes;
    op->ranges = 1;
    op->sequence = block_at(p, mo_card_lay_block(card, p->tokens).sequence);
    op->flag = seen(card, &card->pinned.flags[layer]); /* nobody waits for it any more */
}

void mo_card_await(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    add(p, MO_OP_AWAIT)->await =
        (mo_op_await){.reply = seen(card, card->pinned.replies + layer * card->pinned.reply_bytes),
                      .sequence = block_at(p, mo_card_lay_block(card, p->tokens).sequence),
                      .from = seen(card, card->pinned.rows),
                      .to = card->room.down,
                      .n = (int32_t)card->frame->width,
                      .most = (int32_t)(p->tokens * card->frame->layers[layer].moe.used),
                      .bad = mo_card_bad(card, card->frame->layer_count, false),
                      .waited = mo_card_waited(card, layer)};
}

void mo_card_hand_over(mo_card_plan *p, int from)
{
    const mo_card *card = p->card;
    mo_op_publish *op = &add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = stream_of(p);
    op->to[0] = seen(card, card->pinned.x);
    op->bytes[0] = p->tokens * card->frame->width * 4;
    op->ranges = 1;
    op->sequence = block_at(p, mo_card_lay_block(card, p->tokens).sequence);
    op->flag = seen(card, &card->pinned.flags[from]);
}

void mo_card_take_back(mo_card_plan *p, int from, int to)
{
    const mo_card *card = p->card;
    add(p, MO_OP_AWAIT)->await =
        (mo_op_await){.reply = seen(card, card->pinned.replies + from * card->pinned.reply_bytes),
                      .sequence = block_at(p, mo_card_lay_block(card, p->tokens).sequence),
                      .from = seen(card, card->pinned.x),
                      .to = stream_of(p),
                      .n = (int32_t)card->frame->width,
                      .most = (int32_t)p->tokens,
                      .bad = mo_card_bad(card, card->frame->layer_count, false),
                      .waited = mo_card_waited(card, from)};
    mo_card_begin(p, to);
}

/* ---- Feed-forward ---------------------------------------------------------------------------- */

static mo_op_experts experts_of(const mo_card_plan *p, int layer, mo_daddr work, int64_t most,
                                mo_daddr hidden)
{
    const mo_card *card = p->card;
    const mo_moe *moe = &card->frame->layers[layer].moe;
    const mo_card_layer *c = &card->layers[layer];
    return (mo_op_experts){
        .work = work,
        .most = (int32_t)most,
        .activation = (int32_t)moe->activation,
        .in = in_of(p),
        .hidden = mo_dacts_lay(hidden, p->tokens * moe->used, moe->width),
        .gate = c->expert_gate,
        .up = c->expert_up,
        .down = c->expert_down,
        .up_at = c->up_at,
        .down_at = c->down_at,
        .y = card->room.down,
    };
}

static void add_experts(mo_card_plan *p, int layer, mo_daddr work, int64_t most)
{
    const mo_op_experts experts = experts_of(p, layer, work, most, p->card->room.hidden);
    add(p, MO_OP_EXPERTS_IN)->experts = experts;
    add(p, MO_OP_EXPERTS_DOWN)->experts = experts;
}

void mo_card_down(mo_card_plan *p, int layer, mo_daddr work, int64_t most)
{
    add(p, MO_OP_EXPERTS_DOWN)->experts = experts_of(p, layer, work, most, p->card->room.sent);
}

bool mo_card_interleaved(const mo_card *card, int layer)
{
    const mo_brick *b = &card->frame->layers[layer].moe.bricks[0];
    return b->gate.w.interleave || b->up.w.interleave || b->down.w.interleave;
}

/* One more matrix of `count` bricks. */
static void restore_part(mo_op_restore *op, const mo_weights *w, int64_t at, int64_t stride)
{
    op->at[op->parts] = at;
    op->stride[op->parts] = stride;
    op->type[op->parts] = (int32_t)w->type;
    op->rows[op->parts] = (int32_t)w->rows;
    op->cols[op->parts] = (int32_t)w->cols;
    op->group[op->parts++] = w->interleave;
}

void mo_card_restore(mo_card_plan *p, int layer, mo_daddr from, mo_daddr to, int64_t count, int only)
{
    const mo_brick *b = &p->card->frame->layers[layer].moe.bricks[0];
    const mo_weights *parts[] = {&b->gate.w, &b->up.w, &b->down.w};
    const int64_t at[] = {0, p->card->layers[layer].up_at, p->card->layers[layer].down_at};
    mo_op_restore *op = &add(p, MO_OP_RESTORE)->restore;
    op->from = from;
    op->to = to;
    op->count = (int32_t)count;
    for (int i = 0; i < 3; i++) {
        if (only < 0 || only == i) {
            restore_part(op, parts[i], at[i], p->card->stage_bytes);
        }
    }
}

void mo_card_restore_window(mo_card_plan *p, const mo_card_window *w)
{
    const mo_brick *b = &p->card->frame->layers[w->layer].moe.bricks[0];
    const mo_weights *parts[] = {&b->gate.w, &b->up.w, &b->down.w};
    mo_op_restore *op = &add(p, MO_OP_RESTORE)->restore;
    op->from = w->memory;
    op->to = w->plain;
    op->count = w->count;
    for (int i = 0; i < 3; i++) {
        const mo_card_lie lie = mo_card_window_lie(p->card, w->layer, i);
        restore_part(op, parts[i], lie.at, lie.stride);
    }
}

void mo_card_hot(mo_card_plan *p, int layer)
{
    add_experts(p, layer, p->card->room.work, p->tokens * p->card->frame->layers[layer].moe.used);
}

void mo_card_brick(mo_card_plan *p, int layer, mo_daddr work, int64_t most)
{
    add_experts(p, layer, work, most);
}

void mo_card_side(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    const mo_layer *l = &card->frame->layers[layer];
    const mo_card_layer *c = &card->layers[layer];
    if (!c->up.data) {
        return;
    }
    const mo_card_room *r = &card->room;
    const mo_dacts in = l->dense ? mo_dacts_lay(r->in_dense, p->tokens, card->frame->width) : in_of(p);
    const mo_dacts hidden = mo_dacts_lay(r->side_hidden, p->tokens, c->up.rows);
    mo_op_product *first = add_product(p, in);
    multiply(first, &c->gate, r->side_gate, c->up.rows);
    multiply(first, &c->up, r->side_up, c->up.rows);
    if (!l->dense) {
        multiply(first, &c->shared_gate, r->side_weight, 1);
    }
    add(p, MO_OP_ACTIVATE)->activate =
        (mo_op_activate){.gate = r->side_gate,
                         .up = r->side_up,
                         .hidden = hidden,
                         .rows = (int32_t)p->tokens,
                         .n = c->up.rows,
                         .activation = (int32_t)(l->dense ? l->ffn.activation : l->moe.shared.activation)};
    multiply(add_product(p, hidden), &c->down, r->side_down, card->frame->width);
}

void mo_card_merge(mo_card_plan *p, int layer, bool grouped, bool experts)
{
    const mo_card *card = p->card;
    const mo_layer *l = &card->frame->layers[layer];
    const mo_card_layer *c = &card->layers[layer];
    const mo_card_room *r = &card->room;
    mo_op_stream *op = add_stream(p, layer);
    op->feed = 1;
    if (l->routed && experts) {
        op->used = l->moe.used;
        op->weights = weights_of(p, layer);
        op->ids = ids_of(p, layer);
        op->down = r->down;
        op->row_of = grouped ? r->row_of : 0;
    }
    if (l->routed && !l->dense && c->up.data) {
        op->shared = r->side_down;
        op->shared_gate = c->shared_gate.data ? r->side_weight : 0;
    }
    if (l->dense) {
        op->dense = r->side_down;
        op->dense_norm = c->post_dense;
    }
    op->moe_norm = l->routed ? c->post_moe : 0;
    op->post_norm = c->post_ffn;
    op->out_scale = c->out_scale;
    norm_into(op, 0, norm_before(card, layer + 1), in_of(p));
}

static void add_grouped(mo_card_plan *p, const mo_card_span *span, int part, const mo_dmatrix *m, mo_dacts in,
                        mo_daddr pick, mo_daddr y)
{
    add(p, MO_OP_GROUPED)->grouped =
        (mo_op_grouped){.in = in,
                        .pick = pick,
                        .groups = p->card->room.groups +
                                  (mo_daddr)(part * p->card->group_limit + span->group) * sizeof(mo_dgroup),
                        .count = (int32_t)span->groups,
                        .rows = (int32_t)(p->tokens * p->card->extent.used), /* groups name theirs */
                        .most = (int32_t)span->most,
                        .matrix = *m,
                        .y = y,
                        .stride = m->rows};
}

void mo_card_groups(mo_card_plan *p, int layer, const mo_card_span *span)
{
    const mo_card *card = p->card;
    const mo_moe *moe = &card->frame->layers[layer].moe;
    const mo_card_layer *c = &card->layers[layer];
    const mo_card_room *r = &card->room;
    const mo_dacts hidden = mo_dacts_lay(r->hidden, p->tokens * moe->used, moe->width);
    const mo_daddr skip = (mo_daddr)(span->first_row * moe->width * 4);
    add_grouped(p, span, 0, &c->expert_gate, in_of(p), r->picks, r->gate);
    add_grouped(p, span, 1, &c->expert_up, in_of(p), r->picks, r->up);
    add(p, MO_OP_ACTIVATE)->activate = (mo_op_activate){.gate = r->gate + skip,
                                                        .up = r->up + skip,
                                                        .hidden = rows_from(hidden, span->first_row),
                                                        .rows = (int32_t)span->rows,
                                                        .n = (int32_t)moe->width,
                                                        .activation = (int32_t)moe->activation};
    add_grouped(p, span, 2, &c->expert_down, hidden, 0, r->down);
}

mo_status mo_card_launch(mo_stream *stream, const mo_card_plan *p, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < p->count && status == MO_OK; i++) {
        const int64_t began = p->card->watch ? mo_clock_ns() : 0;
        status = mo_op_launch(stream, &p->ops[i], err);
        if (p->card->watch && status == MO_OK) { /* a benchmark wants to know what each takes */
            status = mo_stream_wait(stream, err);
            p->card->watch->seconds[p->ops[i].kind] += (double)(mo_clock_ns() - began) * 1e-9;
            p->card->watch->count[p->ops[i].kind]++;
        }
    }
    return status;
}

/* Logits of `rows` tokens from token `first` on; the stream was normed for the output. */
void mo_card_logits(mo_card_plan *p, int64_t first, int64_t rows)
{
    const mo_card *card = p->card;
    mo_op_product *op = add_product(p, rows_from(in_of(p), first));
    op->tokens = (int32_t)rows;
    multiply(op, &card->output, card->room.logits, card->frame->vocab);
    add(p, MO_OP_LOGITS)->logits = (mo_op_logits){.x = card->room.logits,
                                                  .count = rows * card->frame->vocab,
                                                  .bad = mo_card_bad(card, card->frame->layer_count, true),
                                                  .cap = card->frame->softcap};
}
