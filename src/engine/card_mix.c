/* The first half of a layer as ops: its mixer, the stream, and the choice of experts. The order is that of the CPU's walk;
 * what stands in its files about why is not repeated here. */
#include <math.h>

#include "engine/card_ops.h"

/* x += mixer's output, and what the feed-forward part reads. */
static void take_mixer(mo_card_plan *p, int layer)
{
    const mo_layer *l = &p->card->frame->layers[layer];
    const mo_card_layer *c = &p->card->layers[layer];
    mo_op_stream *op = mo_card_op_stream(p, layer);
    op->y = p->card->room.y;
    op->y_norm = c->post_mixer_norm;
    if (l->dense) {
        mo_card_op_norm(op, 0, c->ffn_norm,
                        mo_dacts_lay(p->card->room.in_dense, p->tokens, p->card->frame->width));
    }
    if (l->routed) {
        mo_card_op_norm(op, 1, c->moe_norm ? c->moe_norm : c->ffn_norm, mo_card_in_of(p));
    }
    if (l->routed && c->input_scale) {
        mo_card_op_norm(op, 2, 0, mo_dacts_lay(p->card->room.in_router, p->tokens, p->card->frame->width));
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
    mo_op_heads *op = &mo_card_op_add(p, MO_OP_HEADS)->heads;
    *op = (mo_op_heads){.q = card->room.q,
                        .k = card->room.k,
                        .v = card->room.v,
                        .q_norm = c->q_norm,
                        .k_norm = c->k_norm,
                        .rope_rows = p->tokens,
                        .rope_stride = card->extent.pairs,
                        .places = mo_card_block_at(p, b.places),
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
        op->rope = mo_card_block_at(p, b.rope) + (mo_daddr)(2 * c->rope * p->tokens * card->extent.pairs * 4);
    }
}

static void add_attend(mo_card_plan *p, int layer, mo_dacts mixed)
{
    const mo_card *card = p->card;
    const mo_attention *a = &card->frame->layers[layer].attention;
    mo_card_op_add(p, MO_OP_ATTEND)->attend =
        (mo_op_attend){.q = card->room.q,
                       .sinks = card->layers[layer].sinks,
                       .places = mo_card_block_at(p, mo_card_lay_block(card, p->tokens).places),
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
    mo_op_product *in = mo_card_op_product(p, mo_card_in_of(p));
    mo_card_op_multiply(in, &c->q, card->room.q, a->heads * a->k_len * (a->gated ? 2 : 1));
    mo_card_op_multiply(in, &c->k, card->room.k, a->kv_heads * a->k_len);
    mo_card_op_multiply(in, &c->v, card->room.v, a->kv_heads * a->v_len);
    add_heads(p, layer);
    add_attend(p, layer, mixed);
    mo_card_op_multiply(mo_card_op_product(p, mixed), &c->out, card->room.y, card->frame->width);
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
    mo_op_product *in = mo_card_op_product(p, mo_card_in_of(p));
    mo_card_op_multiply(in, &c->q, card->room.q, channels);
    mo_card_op_multiply(in, &c->k, card->room.k, d->v_heads * d->head);
    mo_card_op_multiply(in, &c->ba, card->room.v, 2 * (int64_t)d->v_heads);
    mo_card_op_multiply(in, &c->beta, card->room.v, 2 * (int64_t)d->v_heads);
    mo_card_op_multiply(in, &c->alpha, card->room.v + (mo_daddr)d->v_heads * 4, 2 * (int64_t)d->v_heads);
    mo_card_op_add(p, MO_OP_CONVOLVE)->convolve = (mo_op_convolve){.before = card->room.q,
                                                                   .after = after,
                                                                   .weight = c->conv,
                                                                   .places = mo_card_block_at(p, b.places),
                                                                   .slices = mo_card_block_at(p, b.slices),
                                                                   .tokens = (int32_t)p->tokens,
                                                                   .slice_count = (int32_t)p->slices,
                                                                   .layer = layer,
                                                                   .k_heads = d->k_heads,
                                                                   .v_heads = d->v_heads,
                                                                   .head = (int32_t)d->head,
                                                                   .taps = d->taps,
                                                                   .eps = card->frame->eps};
    mo_card_op_add(p, MO_OP_RECUR)->recur = (mo_op_recur){.after = after,
                                                          .z = card->room.k,
                                                          .gates = card->room.v,
                                                          .a = c->a,
                                                          .dt = c->dt,
                                                          .norm = c->delta_norm,
                                                          .slices = mo_card_block_at(p, b.slices),
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
    mo_card_op_multiply(mo_card_op_product(p, mixed), &c->out, card->room.y, card->frame->width);
}

/* ---- Routing --------------------------------------------------------------------------------- */

static void choose(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    const mo_moe *moe = &card->frame->layers[layer].moe;
    const mo_card_layer *c = &card->layers[layer];
    const mo_dacts in =
        c->input_scale ? mo_dacts_lay(card->room.in_router, p->tokens, card->frame->width) : mo_card_in_of(p);
    mo_card_op_multiply(mo_card_op_product(p, in), &c->router, card->room.scores, moe->experts);
    mo_card_op_add(p, MO_OP_CHOOSE)->choose = (mo_op_choose){.scores = card->room.scores,
                                                             .select_bias = c->select_bias,
                                                             .ids = mo_card_ids_of(p, layer),
                                                             .weights = mo_card_weights_of(p, layer),
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
