/* Ops around layers: the first norm, the meetings with the host, the logits; and launching what was planned. */
#include "engine/card_ops.h"

#include "base/clock.h"

void mo_card_begin(mo_card_plan *p, int layer)
{
    mo_op_stream *op = mo_card_op_stream(p, layer < p->card->frame->layer_count ? layer : layer - 1);
    mo_card_op_norm(op, 0, mo_card_norm_before(p->card, layer), mo_card_in_of(p));
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
    mo_op_publish *op = &mo_card_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = mo_card_ids_of(p, layer);
    op->to[0] = seen(card, card->pinned.ids);
    op->bytes[0] = p->tokens * moe->used * 4;
    op->from[1] = mo_card_in_of(p).x;
    op->to[1] = seen(card, card->pinned.in);
    op->bytes[1] = p->tokens * card->frame->width * 4;
    op->ranges = 2;
    op->sequence = mo_card_block_at(p, mo_card_lay_block(card, p->tokens).sequence);
    op->flag = seen(card, &card->pinned.flags[layer]);
}

void mo_card_take_in(mo_card_plan *p, int layer, const void *pinned, mo_daddr to, int64_t bytes)
{
    const mo_card *card = p->card;
    mo_op_publish *op = &mo_card_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = seen(card, pinned);
    op->to[0] = to;
    op->bytes[0] = bytes;
    op->ranges = 1;
    op->sequence = mo_card_block_at(p, mo_card_lay_block(card, p->tokens).sequence);
    op->flag = seen(card, &card->pinned.flags[layer]); /* nobody waits for it any more */
}

void mo_card_await(mo_card_plan *p, int layer)
{
    const mo_card *card = p->card;
    mo_card_op_add(p, MO_OP_AWAIT)->await =
        (mo_op_await){.reply = seen(card, card->pinned.replies + layer * card->pinned.reply_bytes),
                      .sequence = mo_card_block_at(p, mo_card_lay_block(card, p->tokens).sequence),
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
    mo_op_publish *op = &mo_card_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = mo_card_x_of(p);
    op->to[0] = seen(card, card->pinned.x);
    op->bytes[0] = p->tokens * card->frame->width * 4;
    op->ranges = 1;
    op->sequence = mo_card_block_at(p, mo_card_lay_block(card, p->tokens).sequence);
    op->flag = seen(card, &card->pinned.flags[from]);
}

void mo_card_take_back(mo_card_plan *p, int from, int to)
{
    const mo_card *card = p->card;
    mo_card_op_add(p, MO_OP_AWAIT)->await =
        (mo_op_await){.reply = seen(card, card->pinned.replies + from * card->pinned.reply_bytes),
                      .sequence = mo_card_block_at(p, mo_card_lay_block(card, p->tokens).sequence),
                      .from = seen(card, card->pinned.x),
                      .to = mo_card_x_of(p),
                      .n = (int32_t)card->frame->width,
                      .most = (int32_t)p->tokens,
                      .bad = mo_card_bad(card, card->frame->layer_count, false),
                      .waited = mo_card_waited(card, from)};
    mo_card_begin(p, to);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Logits of `rows` tokens from token `first` on; the stream was normed for the output. */
void mo_card_logits(mo_card_plan *p, int64_t first, int64_t rows)
{
    const mo_card *card = p->card;
    mo_op_product *op = mo_card_op_product(p, mo_dacts_from(mo_card_in_of(p), first));
    op->tokens = (int32_t)rows;
    mo_card_op_multiply(op, &card->output, card->room.logits, card->frame->vocab);
    mo_card_op_add(p, MO_OP_LOGITS)->logits =
        (mo_op_logits){.x = card->room.logits,
                       .count = rows * card->frame->vocab,
                       .bad = mo_card_bad(card, card->frame->layer_count, true),
                       .cap = card->frame->softcap};
}

mo_status mo_card_launch(mo_dstream *stream, const mo_card_plan *p, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < p->count && status == MO_OK; i++) {
        const int64_t began = p->card->watch ? mo_clock_ns() : 0;
        status = mo_op_launch(stream, &p->ops[i], err);
        if (p->card->watch && status == MO_OK) { /* a benchmark wants to know what each takes */
            status = mo_dstream_wait(stream, err);
            p->card->watch->seconds[p->ops[i].kind] += (double)(mo_clock_ns() - began) * 1e-9;
            p->card->watch->count[p->ops[i].kind]++;
        }
    }
    return status;
}
