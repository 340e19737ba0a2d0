/* Ops: how the card's files append them to a plan. Private to those that say what a layer is made of. */
#ifndef MO_ENGINE_CARD_OPS_H
#define MO_ENGINE_CARD_OPS_H

#include <assert.h>

#include "engine/card_parts.h"

/* One more op, all of it zero but its kind. */
static inline mo_op *mo_card_op_add(mo_card_plan *p, mo_op_kind kind)
{
    assert(p->count < p->limit);
    mo_op *op = &p->ops[p->count++];
    *op = (mo_op){.kind = kind};
    return op;
}

/* In the step's block; there, the stream; and the experts' input, or the mixer's. */
static inline mo_daddr mo_card_block_at(const mo_card_plan *p, int64_t offset)
{
    return p->card->room.step + (mo_daddr)offset;
}

static inline mo_daddr mo_card_x_of(const mo_card_plan *p)
{
    return mo_card_block_at(p, mo_card_lay_block(p->card, p->tokens).x);
}

static inline mo_dacts mo_card_in_of(const mo_card_plan *p)
{
    return mo_dacts_lay(p->card->room.in, p->tokens, p->card->frame->width);
}

/* Rows of activations from row `first` on. */
static inline mo_dacts mo_dacts_from(mo_dacts a, int64_t first)
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

/* ---- Products ---- */

static inline mo_op_product *mo_card_op_product(mo_card_plan *p, mo_dacts in)
{
    mo_op_product *op = &mo_card_op_add(p, MO_OP_PRODUCT)->product;
    op->in = in;
    op->tokens = (int32_t)p->tokens;
    return op;
}

/* One more matrix of the product, unless the layer has none. */
static inline void mo_card_op_multiply(mo_op_product *op, const mo_dmatrix *m, mo_daddr y, int64_t stride)
{
    if (m->data) {
        op->matrix[op->count] = *m;
        op->y[op->count] = y;
        op->stride[op->count++] = stride;
    }
}

/* ---- The stream ---- */

/* What comes to the stream, and norms of it, are the caller's to add. */
static inline mo_op_stream *mo_card_op_stream(mo_card_plan *p, int layer)
{
    mo_op_stream *op = &mo_card_op_add(p, MO_OP_STREAM)->stream;
    op->x = mo_card_x_of(p);
    op->tokens = (int32_t)p->tokens;
    op->n = (int32_t)p->card->frame->width;
    op->eps = p->card->frame->eps;
    op->bad = mo_card_bad(p->card, layer, false);
    return op;
}

static inline void mo_card_op_norm(mo_op_stream *op, int which, mo_daddr weight, mo_dacts out)
{
    op->norm[which] = (mo_op_norm){.weight = weight, .scale = 1.0f, .out = out};
}

/* The weights of the norm before a layer; one past the last: before the output. */
static inline mo_daddr mo_card_norm_before(const mo_card *card, int layer)
{
    return layer < card->frame->layer_count ? card->layers[layer].mixer_norm : card->out_norm;
}

/* ---- A layer's choice ---- */

static inline mo_daddr mo_card_ids_of(const mo_card_plan *p, int layer)
{
    return mo_card_choice(p->card, p->card->room.ids, p->tokens, layer);
}

static inline mo_daddr mo_card_weights_of(const mo_card_plan *p, int layer)
{
    return mo_card_choice(p->card, p->card->room.weights, p->tokens, layer);
}

#endif
