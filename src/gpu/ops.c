/* Ops around layers: the first norm, synchronization with the host, the logits; and launching planned ops. */
#include "gpu/ops.h"

/* ---- Adding one op ---------------------------------------------------------------------------- */

mo_status mo_gpu_ops_launch(const mo_gpu_ops *p, const mo_gpu_link *link, mo_dstream *stream, mo_error *err)
{
    return p->bf16 ? mo_gpu_bf16_launch(p->bf16, link, stream, p->ops, p->count, p->scratch->scores, err)
                   : mo_gpu_link_launch(link, stream, p->ops, p->count, err);
}

mo_op *mo_gpu_op_add(mo_gpu_ops *p, mo_op_kind kind)
{
    assert(p->count < p->limit);
    mo_op *op = &p->ops[p->count++];
    *op = (mo_op){.kind = kind};
    return op;
}

mo_daddr mo_gpu_block_at(const mo_gpu_ops *p, int64_t offset)
{
    return p->scratch->step + (mo_daddr)offset;
}

mo_daddr mo_gpu_x_of(const mo_gpu_ops *p)
{
    return mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).x);
}

mo_dacts mo_gpu_in_of(const mo_gpu_ops *p)
{
    return mo_dacts_lay(p->scratch->in, p->tokens, p->core->spec->width);
}

mo_dacts mo_gpu_experts_in(const mo_gpu_ops *p, int layer)
{
    return mo_dacts_lay(mo_gpu_experts_rows(p->scratch, layer), p->tokens,
                        p->core->spec->layers[layer].moe.io);
}

void mo_gpu_op_quantize(mo_gpu_ops *p, mo_dacts rows)
{
    mo_gpu_op_add(p, MO_OP_COLLECT)->collect = (mo_op_collect){
        .from = rows.x, .out = rows, .tokens = (int32_t)p->tokens, .heads = 1, .n = rows.cols, .by_token = 1};
}

mo_dacts mo_dacts_from(mo_dacts a, int64_t first)
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

mo_op_product *mo_gpu_op_product(mo_gpu_ops *p, mo_dacts in)
{
    mo_op_product *op = &mo_gpu_op_add(p, MO_OP_PRODUCT)->product;
    op->in = in;
    op->tokens = (int32_t)p->tokens;
    return op;
}

void mo_gpu_op_multiply(mo_op_product *op, const mo_dmatrix *m, mo_daddr y, int64_t stride)
{
    if (m->data) {
        op->matrix[op->count] = *m;
        op->y[op->count] = y;
        op->stride[op->count++] = stride;
    }
}

mo_op_stream *mo_gpu_op_stream(mo_gpu_ops *p, int layer)
{
    mo_op_stream *op = &mo_gpu_op_add(p, MO_OP_STREAM)->stream;
    op->x = mo_gpu_x_of(p);
    op->tokens = (int32_t)p->tokens;
    op->n = (int32_t)p->core->spec->width;
    op->eps = p->core->spec->eps;
    op->centered = p->core->spec->centered;
    op->bad = mo_gpu_bad(p->scratch, layer, false);
    return op;
}

void mo_gpu_op_norm(mo_op_stream *op, int which, mo_daddr weight, mo_daddr bias, mo_dacts out)
{
    op->norm[which] = (mo_op_norm){.weight = weight, .add = bias, .scale = 1.0f, .out = out};
}

void mo_gpu_op_norm_before(mo_op_stream *op, const mo_gpu_core *core, int layer, mo_dacts out)
{
    if (mo_gpu_core_has(core, layer)) {
        mo_gpu_op_norm(op, 0, core->layers[layer].mixer_norm, core->layers[layer].mixer_norm_bias, out);
    } else if (mo_gpu_core_speaks(core)) {
        mo_gpu_op_norm(op, 0, core->out_norm, core->out_norm_bias, out);
    }
}

mo_daddr mo_gpu_ids_of(const mo_gpu_ops *p, int layer)
{
    return mo_gpu_choice(p->scratch, p->scratch->ids, p->tokens, layer);
}

mo_daddr mo_gpu_weights_of(const mo_gpu_ops *p, int layer)
{
    return mo_gpu_choice(p->scratch, p->scratch->weights, p->tokens, layer);
}

/* ---- Parts of a layer ------------------------------------------------------------------------- */

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
    if (p->keeps) {
        op->from[2] = mo_gpu_weights_of(p, layer);
        op->to[2] = seen(p->scratch, p->scratch->pinned.weights);
        op->bytes[2] = op->bytes[0];
        op->ranges = 3;
    }
    if (mo_layer_latent(&p->core->spec->layers[layer])) {
        op->from[op->ranges] = mo_gpu_experts_in(p, layer).x;
        op->to[op->ranges] = seen(p->scratch, p->scratch->pinned.latent_in);
        op->bytes[op->ranges++] = p->tokens * moe->io * 4;
    }
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
        .n = (int32_t)p->core->spec->layers[layer].moe.io,
        .most = (int32_t)(p->tokens * p->core->spec->layers[layer].moe.used),
        .bad = mo_gpu_bad(p->scratch, p->core->spec->layer_count, false),
        .waited = mo_gpu_waited(p->scratch, layer)};
    if (p->keeps) {
        const int64_t bytes = p->tokens * p->core->spec->layers[layer].moe.used * 4;
        mo_gpu_ops_receive(p, layer, p->scratch->pinned.ids, p->scratch->kept_ids, bytes);
        mo_gpu_ops_receive_also(p, p->scratch->pinned.weights, p->scratch->kept_weights, bytes);
    }
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

/* The stream has been normed for the output. */
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
