/* Ops around layers: the first norm, the meetings with the host, the logits; and launching what was planned. */
#include "gpu/ops.h"

void mo_gpu_begin(mo_gpu_plan *p, int layer)
{
    mo_op_stream *op = mo_gpu_op_stream(p, layer < p->gpu->core.spec->layer_count ? layer : layer - 1);
    mo_gpu_op_norm(op, 0, mo_gpu_norm_before(p->gpu, layer), mo_gpu_in_of(p));
}

/* ---- The host's part ------------------------------------------------------------------------- */

static mo_daddr seen(const mo_gpu *gpu, const void *pinned)
{
    return gpu->scratch.pinned.seen + (mo_daddr)((const uint8_t *)pinned - gpu->scratch.pinned.memory);
}

void mo_gpu_publish(mo_gpu_plan *p, int layer)
{
    const mo_gpu *gpu = p->gpu;
    const mo_moe *moe = &gpu->core.spec->layers[layer].moe;
    mo_op_publish *op = &mo_gpu_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = mo_gpu_ids_of(p, layer);
    op->to[0] = seen(gpu, gpu->scratch.pinned.ids);
    op->bytes[0] = p->tokens * moe->used * 4;
    op->from[1] = mo_gpu_in_of(p).x;
    op->to[1] = seen(gpu, gpu->scratch.pinned.in);
    op->bytes[1] = p->tokens * gpu->core.spec->width * 4;
    op->ranges = 2;
    op->sequence = mo_gpu_block_at(p, mo_gpu_lay_block(gpu, p->tokens).sequence);
    op->flag = seen(gpu, &gpu->scratch.pinned.flags[layer]);
}

void mo_gpu_receive_input(mo_gpu_plan *p, int layer, const void *pinned, mo_daddr to, int64_t bytes)
{
    const mo_gpu *gpu = p->gpu;
    mo_op_publish *op = &mo_gpu_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = seen(gpu, pinned);
    op->to[0] = to;
    op->bytes[0] = bytes;
    op->ranges = 1;
    op->sequence = mo_gpu_block_at(p, mo_gpu_lay_block(gpu, p->tokens).sequence);
    op->flag = seen(gpu, &gpu->scratch.pinned.flags[layer]); /* nobody waits for it any more */
}

void mo_gpu_await(mo_gpu_plan *p, int layer)
{
    const mo_gpu *gpu = p->gpu;
    mo_gpu_op_add(p, MO_OP_AWAIT)->await = (mo_op_await){
        .reply = seen(gpu, gpu->scratch.pinned.replies + layer * gpu->scratch.pinned.reply_bytes),
        .sequence = mo_gpu_block_at(p, mo_gpu_lay_block(gpu, p->tokens).sequence),
        .from = seen(gpu, gpu->scratch.pinned.rows),
        .to = gpu->scratch.down,
        .n = (int32_t)gpu->core.spec->width,
        .most = (int32_t)(p->tokens * gpu->core.spec->layers[layer].moe.used),
        .bad = mo_gpu_bad(gpu, gpu->core.spec->layer_count, false),
        .waited = mo_gpu_waited(gpu, layer)};
}

void mo_gpu_hand_over(mo_gpu_plan *p, int from)
{
    const mo_gpu *gpu = p->gpu;
    mo_op_publish *op = &mo_gpu_op_add(p, MO_OP_PUBLISH)->publish;
    op->from[0] = mo_gpu_x_of(p);
    op->to[0] = seen(gpu, gpu->scratch.pinned.x);
    op->bytes[0] = p->tokens * gpu->core.spec->width * 4;
    op->ranges = 1;
    op->sequence = mo_gpu_block_at(p, mo_gpu_lay_block(gpu, p->tokens).sequence);
    op->flag = seen(gpu, &gpu->scratch.pinned.flags[from]);
}

void mo_gpu_free_all(mo_gpu_plan *p, int from, int to)
{
    const mo_gpu *gpu = p->gpu;
    mo_gpu_op_add(p, MO_OP_AWAIT)->await = (mo_op_await){
        .reply = seen(gpu, gpu->scratch.pinned.replies + from * gpu->scratch.pinned.reply_bytes),
        .sequence = mo_gpu_block_at(p, mo_gpu_lay_block(gpu, p->tokens).sequence),
        .from = seen(gpu, gpu->scratch.pinned.x),
        .to = mo_gpu_x_of(p),
        .n = (int32_t)gpu->core.spec->width,
        .most = (int32_t)p->tokens,
        .bad = mo_gpu_bad(gpu, gpu->core.spec->layer_count, false),
        .waited = mo_gpu_waited(gpu, from)};
    mo_gpu_begin(p, to);
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Logits of `rows` tokens from token `first` on; the stream was normed for the output. */
void mo_gpu_logits(mo_gpu_plan *p, int64_t first, int64_t rows)
{
    const mo_gpu *gpu = p->gpu;
    mo_op_product *op = mo_gpu_op_product(p, mo_dacts_from(mo_gpu_in_of(p), first));
    op->tokens = (int32_t)rows;
    mo_gpu_op_multiply(op, &gpu->core.output, gpu->scratch.logits, gpu->core.spec->vocab);
    mo_gpu_op_add(p, MO_OP_LOGITS)->logits =
        (mo_op_logits){.x = gpu->scratch.logits,
                       .count = rows * gpu->core.spec->vocab,
                       .bad = mo_gpu_bad(gpu, gpu->core.spec->layer_count, true),
                       .cap = gpu->core.spec->softcap};
}
