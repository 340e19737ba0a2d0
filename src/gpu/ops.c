/* Ops around layers: the first norm, the meetings with the host, the logits; and launching what was planned. */
#include "gpu/ops.h"

void mo_gpu_ops_begin(mo_gpu_ops *p, int layer)
{
    mo_op_stream *op = mo_gpu_op_stream(p, layer < p->core->spec->layer_count ? layer : layer - 1);
    mo_gpu_op_norm_before(op, p->core, layer, mo_gpu_in_of(p));
}

/* ---- The host's part ------------------------------------------------------------------------- */

static mo_daddr seen(const mo_gpu_scratch *s, const void *pinned)
{
    return s->pinned.seen + (mo_daddr)((const uint8_t *)pinned - s->pinned.memory);
}

void mo_gpu_ops_publish(mo_gpu_ops *p, int layer)
{
    const mo_moe *moe = &p->core->spec->layers[layer].moe;
    mo_op_publish *op = &mo_gpu_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = mo_gpu_ids_of(p, layer);
    op->to[0] = seen(p->scratch, p->scratch->pinned.ids);
    op->bytes[0] = p->tokens * moe->used * 4;
    op->from[1] = mo_gpu_in_of(p).x;
    op->to[1] = seen(p->scratch, p->scratch->pinned.in);
    op->bytes[1] = p->tokens * p->core->spec->width * 4;
    op->ranges = 2;
    op->sequence = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).sequence);
    op->flag = seen(p->scratch, &p->scratch->pinned.flags[layer]);
}

void mo_gpu_ops_receive(mo_gpu_ops *p, int layer, const void *pinned, mo_daddr to, int64_t bytes)
{
    mo_op_publish *op = &mo_gpu_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = seen(p->scratch, pinned);
    op->to[0] = to;
    op->bytes[0] = bytes;
    op->ranges = 1;
    op->sequence = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).sequence);
    op->flag = seen(p->scratch, &p->scratch->pinned.flags[layer]); /* no longer waited for */
}

void mo_gpu_ops_receive_also(mo_gpu_ops *p, const void *pinned, mo_daddr to, int64_t bytes)
{
    mo_op_publish *op = &p->ops[p->count - 1].publish;
    op->from[op->ranges] = seen(p->scratch, pinned);
    op->to[op->ranges] = to;
    op->bytes[op->ranges++] = bytes;
}

void mo_gpu_ops_await(mo_gpu_ops *p, int layer)
{
    mo_gpu_op_add(p, MO_OP_AWAIT)->await = (mo_op_await){
        .reply = seen(p->scratch, p->scratch->pinned.replies + layer * p->scratch->pinned.reply_bytes),
        .sequence = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).sequence),
        .from = seen(p->scratch, p->scratch->pinned.rows),
        .to = p->scratch->down,
        .n = (int32_t)p->core->spec->width,
        .most = (int32_t)(p->tokens * p->core->spec->layers[layer].moe.used),
        .bad = mo_gpu_bad(p->scratch, p->core->spec->layer_count, false),
        .waited = mo_gpu_waited(p->scratch, layer)};
}

void mo_gpu_ops_hand_over(mo_gpu_ops *p, int from)
{
    mo_op_publish *op = &mo_gpu_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = mo_gpu_x_of(p);
    op->to[0] = seen(p->scratch, p->scratch->pinned.x);
    op->bytes[0] = p->tokens * p->core->spec->width * 4;
    op->ranges = 1;
    op->sequence = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).sequence);
    op->flag = seen(p->scratch, &p->scratch->pinned.flags[from]);
}

void mo_gpu_ops_hand_back(mo_gpu_ops *p, int from, int to)
{
    mo_gpu_op_add(p, MO_OP_AWAIT)->await = (mo_op_await){
        .reply = seen(p->scratch, p->scratch->pinned.replies + from * p->scratch->pinned.reply_bytes),
        .sequence = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).sequence),
        .from = seen(p->scratch, p->scratch->pinned.x),
        .to = mo_gpu_x_of(p),
        .n = (int32_t)p->core->spec->width,
        .most = (int32_t)p->tokens,
        .bad = mo_gpu_bad(p->scratch, p->core->spec->layer_count, false),
        .waited = mo_gpu_waited(p->scratch, from)};
    mo_gpu_ops_begin(p, to);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* The stream was normed for the output. */
void mo_gpu_ops_logits(mo_gpu_ops *p, int64_t first, int64_t rows, int64_t place)
{
    const int64_t vocab = p->core->spec->vocab;
    const int layers = p->core->spec->layer_count;
    const mo_daddr y = p->scratch->logits + (mo_daddr)(place * vocab * (int64_t)sizeof(float));
    mo_op_product *op = mo_gpu_op_product(p, mo_dacts_from(mo_gpu_in_of(p), first));
    op->tokens = (int32_t)rows;
    mo_gpu_op_multiply(op, &p->core->output, y, vocab);
    mo_gpu_ops_adapt_rows(p, &p->core->spec->output,
                          &(mo_op_adapt){.in = mo_dacts_from(mo_gpu_in_of(p), first).x,
                                         .in_rows = (int32_t)rows,
                                         .rows = (int32_t)rows,
                                         .first = (int32_t)first,
                                         .y = y,
                                         .stride = vocab});
    mo_gpu_op_add(p, MO_OP_LOGITS)->logits =
        (mo_op_logits){.x = y,
                       .count = rows * vocab,
                       .bad = mo_gpu_bad(p->scratch, layers, true),
                       .cap = p->core->spec->softcap,
                       .cols = (int32_t)vocab,
                       .best = p->scratch->step + (mo_daddr)(4 * (mo_gpu_best_at(layers) + 2 * place))};
}
