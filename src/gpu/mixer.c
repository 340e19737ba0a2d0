/* The first half of a layer as ops: its mixer, the stream, and the choice of experts. The order is that of the CPU's forward;
 * what stands in its files about why is not repeated here. */
#include <math.h>

#include "gpu/ops.h"

/* x += mixer's output, and what the feed-forward part reads. */
static void add_mixer(mo_gpu_ops *p, int layer)
{
    const mo_layer *l = &p->core->spec->layers[layer];
    const mo_gpu_layer *c = &p->core->layers[layer];
    mo_op_stream *op = mo_gpu_op_stream(p, layer);
    op->y = p->scratch->y;
    op->y_norm = c->post_mixer_norm;
    if (l->dense) {
        mo_gpu_op_norm(op, 0, c->ffn_norm, c->ffn_norm_bias,
                       mo_dacts_lay(p->scratch->in_dense, p->tokens, p->core->spec->width));
    }
    if (l->routed) {
        mo_gpu_op_norm(op, 1, c->moe_norm ? c->moe_norm : c->ffn_norm, c->moe_norm ? 0 : c->ffn_norm_bias,
                       mo_gpu_in_of(p));
    }
    if (l->routed && c->input_scale) {
        mo_gpu_op_norm(op, 2, 0, 0, mo_dacts_lay(p->scratch->in_router, p->tokens, p->core->spec->width));
        op->norm[2].scale = c->input_factor;
        op->norm[2].multiply = c->input_scale;
    }
}

/* The mixer's last product. */
static void multiply_out(mo_gpu_ops *p, int layer, const mo_linear *out, mo_dacts mixed)
{
    const int64_t width = p->core->spec->width;
    mo_gpu_op_multiply(mo_gpu_op_product(p, mixed), &p->core->layers[layer].out, p->scratch->y, width);
    mo_gpu_ops_adapt(p, out, mixed, p->scratch->y, width);
}

/* ---- Mixers ---------------------------------------------------------------------------------- */

static void add_heads(mo_gpu_ops *p, int layer)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    mo_op_heads *op = &mo_gpu_op_add(p, MO_OP_HEADS)->heads;
    *op = (mo_op_heads){.q = p->scratch->q,
                        .k = p->scratch->k,
                        .v = p->scratch->v,
                        .q_norm = c->q_norm,
                        .k_norm = c->k_norm,
                        .rope_rows = p->tokens,
                        .rope_stride = p->core->extent.pairs,
                        .places = mo_gpu_block_at(p, b.places),
                        .bad = mo_gpu_bad(p->scratch, layer, true),
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
                        .norm_last = a->norm_last,
                        .v_norm = a->v_norm,
                        .v_from_k = !mo_linear_present(&a->v),
                        .kv = (int32_t)p->kv,
                        .eps = p->core->spec->eps};
    if (c->rope >= 0) {
        op->rope =
            mo_gpu_block_at(p, b.rope) + (mo_daddr)(2 * c->rope * p->tokens * p->core->extent.pairs * 4);
    }
}

/* Attention of tokens first .. first + count - 1, which see at most `chunks` chunks. */
static void add_attend(mo_gpu_ops *p, int layer, mo_dacts mixed, int64_t first, int64_t count, int64_t chunks,
                       bool apart)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_daddr own = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).places);
    const mo_daddr places = p->kv_staging && !apart ? p->kv_staging : own;
    const int64_t query = a->latent.plain ? a->k_len : a->heads * a->k_len * (a->gated ? 2 : 1);
    mo_gpu_op_add(p, MO_OP_ATTEND)->attend =
        (mo_op_attend){.q = p->scratch->q + (mo_daddr)(first * query) * sizeof(float),
                       .sinks = p->core->layers[layer].sinks,
                       .places = places + (mo_daddr)first * sizeof(mo_dplace),
                       .partial = p->scratch->partial,
                       .mixed = mo_dacts_from(mixed, first),
                       .window = a->window,
                       .tokens = (int32_t)count,
                       .layer = layer,
                       .heads = a->heads,
                       .kv_heads = a->kv_heads,
                       .k_len = (int32_t)a->k_len,
                       .v_len = (int32_t)a->v_len,
                       .gated = a->gated,
                       .kv = (int32_t)p->kv,
                       .chunks = (int32_t)chunks,
                       .scale = a->scale,
                       .apart = apart,
                       .tail = (int32_t)mo_attention_tail(a),
                       .between = a->latent.plain ? p->tokens : 0};
}

/* Sessions that decode together have no keys in common: their tokens' attention goes chunk by chunk, of as many tokens as
 * there is space for what chunks leave. Those of longer slices share what they read. */
static void attend_all(mo_gpu_ops *p, int layer, mo_dacts mixed)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    for (int64_t first = 0; first < p->singles;) {
        const int64_t space =
            p->scratch->partial_floats / (p->single_chunks * a->heads * mo_kv_partial(p->kv, (int)a->v_len));
        const int64_t rest = p->singles - first, most = p->single_chunks == 1 ? rest : space;
        const int64_t count = rest < most ? rest : most;
        add_attend(p, layer, mixed, first, count, p->single_chunks, true);
        first += count;
    }
    if (p->singles < p->tokens) {
        add_attend(p, layer, mixed, p->singles, p->tokens - p->singles, p->chunks, false);
    }
}

static void mix_attention(mo_gpu_ops *p, int layer)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_dacts mixed = mo_dacts_lay(p->scratch->mixed, p->tokens, a->heads * a->v_len);
    mo_op_product *in = mo_gpu_op_product(p, mo_gpu_in_of(p));
    mo_gpu_op_multiply(in, &c->q, p->scratch->q, a->heads * a->k_len * (a->gated ? 2 : 1));
    mo_gpu_op_multiply(in, &c->k, p->scratch->k, a->kv_heads * a->k_len);
    mo_gpu_op_multiply(in, &c->v, p->scratch->v, a->kv_heads * a->v_len);
    mo_gpu_ops_adapt_some(p, mo_gpu_in_of(p),
                          (mo_gpu_adapted[]){{&a->q, p->scratch->q, a->heads * a->k_len * (a->gated ? 2 : 1)},
                                             {&a->k, p->scratch->k, a->kv_heads * a->k_len},
                                             {&a->v, p->scratch->v, a->kv_heads * a->v_len}},
                          3);
    add_heads(p, layer);
    attend_all(p, layer, mixed);
    multiply_out(p, layer, &a->out, mixed);
}

/* ---- Latent attention ------------------------------------------------------------------------ */

static int64_t part_bytes(const mo_dmatrix *m, int heads)
{
    return m->rows / heads * mo_format_row_bytes(mo_format_of((uint32_t)m->type), m->cols);
}

static void prepare_latent(mo_gpu_ops *p, int layer, mo_dacts plain)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    mo_gpu_op_add(p, MO_OP_LATENT)->latent = (mo_op_latent){
        .q = p->scratch->latent.q,
        .k = p->scratch->k,
        .norm = c->latent.norm,
        .rope = mo_gpu_block_at(p, b.rope) + (mo_daddr)(2 * c->rope * p->tokens * p->core->extent.pairs * 4),
        .rope_rows = p->tokens,
        .rope_stride = p->core->extent.pairs,
        .places = mo_gpu_block_at(p, b.places),
        .bad = mo_gpu_bad(p->scratch, layer, true),
        .plain = plain,
        .query = p->scratch->q,
        .groups = p->scratch->latent.groups,
        .data = {c->latent.k_b.data, c->latent.v_b.data},
        .part_bytes = {part_bytes(&c->latent.k_b, a->heads), part_bytes(&c->latent.v_b, a->heads)},
        .tokens = (int32_t)p->tokens,
        .layer = layer,
        .heads = a->heads,
        .v_len = (int32_t)a->v_len,
        .n_rot = (int32_t)a->n_rot,
        .kv = (int32_t)p->kv,
        .eps = p->core->spec->eps};
}

/* Every head's rows times its part of a matrix. which: 0 k_b, 1 v_b. */
static void multiply_heads(mo_gpu_ops *p, int layer, int which, mo_dacts in, mo_daddr y, int64_t stride)
{
    const int heads = p->core->spec->layers[layer].attention.heads;
    mo_dmatrix m = which ? p->core->layers[layer].latent.v_b : p->core->layers[layer].latent.k_b;
    m.rows /= heads;
    mo_gpu_op_add(p, MO_OP_GROUPED)->grouped =
        (mo_op_grouped){.in = in,
                        .groups = p->scratch->latent.groups + (mo_daddr)(which * heads) * sizeof(mo_dgroup),
                        .count = heads,
                        .rows = (int32_t)(heads * p->tokens),
                        .most = (int32_t)p->tokens,
                        .matrix = m,
                        .y = y,
                        .stride = stride};
}

static void mix_latent(mo_gpu_ops *p, int layer)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const int64_t n = p->tokens, rows = a->heads * n;
    const mo_dacts plain = mo_dacts_lay(p->scratch->latent.plain, rows, a->latent.plain);
    const mo_dacts mixed = mo_dacts_lay(p->scratch->latent.mixed, rows, a->v_len);
    const mo_dacts out = mo_dacts_lay(p->scratch->mixed, n, mo_attention_out(a));
    const mo_dacts reads = mo_dacts_lay(p->scratch->latent.in, n, c->latent.q_a.rows);
    mo_op_product *in = mo_gpu_op_product(p, mo_gpu_in_of(p));
    mo_gpu_op_multiply(in, &c->k, p->scratch->k, a->k_len);
    if (!c->latent.q_a.data) {
        mo_gpu_op_multiply(in, &c->q, p->scratch->latent.q, c->q.rows);
        mo_gpu_ops_adapt(p, &a->q, mo_gpu_in_of(p), p->scratch->latent.q, c->q.rows);
        mo_gpu_ops_adapt(p, &a->k, mo_gpu_in_of(p), p->scratch->k, a->k_len);
    } else { /* normed like the residual stream, to which nothing is added here */
        mo_gpu_op_multiply(in, &c->latent.q_a, p->scratch->q, c->latent.q_a.rows);
        mo_gpu_ops_adapt(p, &a->latent.q_a, mo_gpu_in_of(p), p->scratch->q, c->latent.q_a.rows);
        mo_gpu_ops_adapt(p, &a->k, mo_gpu_in_of(p), p->scratch->k, a->k_len);
        mo_op_stream *op = &mo_gpu_op_add(p, MO_OP_STREAM)->stream;
        *op = (mo_op_stream){
            .x = p->scratch->q, .tokens = (int32_t)n, .n = c->latent.q_a.rows, .eps = p->core->spec->eps};
        mo_gpu_op_norm(op, 0, c->latent.q_a_norm, 0, reads);
        mo_gpu_op_multiply(mo_gpu_op_product(p, reads), &c->q, p->scratch->latent.q, c->q.rows);
        mo_gpu_ops_adapt(p, &a->q, reads, p->scratch->latent.q, c->q.rows);
    }
    prepare_latent(p, layer, plain);
    multiply_heads(p, layer, 0, plain, p->scratch->q, a->k_len);
    attend_all(p, layer, mixed);
    multiply_heads(p, layer, 1, mixed, p->scratch->latent.out, a->latent.out_len);
    mo_gpu_op_add(p, MO_OP_COLLECT)->collect = (mo_op_collect){.from = p->scratch->latent.out,
                                                               .out = out,
                                                               .tokens = (int32_t)n,
                                                               .heads = a->heads,
                                                               .n = (int32_t)a->latent.out_len};
    multiply_out(p, layer, &a->out, out);
}

static void mix_delta(mo_gpu_ops *p, int layer)
{
    const mo_delta *d = &p->core->spec->layers[layer].delta;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    const int64_t channels = (2 * (int64_t)d->k_heads + d->v_heads) * d->head;
    const mo_dacts mixed = mo_dacts_lay(p->scratch->mixed, p->tokens, d->v_heads * d->head);
    const mo_daddr after = p->scratch->q + (mo_daddr)(p->tokens * channels * 4);
    mo_op_product *in = mo_gpu_op_product(p, mo_gpu_in_of(p));
    mo_gpu_op_multiply(in, &c->q, p->scratch->q, channels);
    mo_gpu_op_multiply(in, &c->k, p->scratch->k, d->v_heads * d->head);
    mo_gpu_op_multiply(in, &c->ba, p->scratch->v, 2 * (int64_t)d->v_heads);
    mo_gpu_op_multiply(in, &c->beta, p->scratch->v, 2 * (int64_t)d->v_heads);
    mo_gpu_op_multiply(in, &c->alpha, p->scratch->v + (mo_daddr)d->v_heads * 4, 2 * (int64_t)d->v_heads);
    mo_gpu_ops_adapt(p, &d->qkv, mo_gpu_in_of(p), p->scratch->q, channels);
    mo_gpu_ops_adapt(p, &d->gate, mo_gpu_in_of(p), p->scratch->k, d->v_heads * d->head);
    mo_gpu_ops_adapt(p, &d->ba, mo_gpu_in_of(p), p->scratch->v, 2 * (int64_t)d->v_heads);
    mo_gpu_ops_adapt(p, &d->beta, mo_gpu_in_of(p), p->scratch->v, 2 * (int64_t)d->v_heads);
    mo_gpu_ops_adapt(p, &d->alpha, mo_gpu_in_of(p), p->scratch->v + (mo_daddr)d->v_heads * 4,
                     2 * (int64_t)d->v_heads);
    mo_gpu_op_add(p, MO_OP_CONVOLVE)->convolve = (mo_op_convolve){.before = p->scratch->q,
                                                                  .after = after,
                                                                  .weight = c->conv,
                                                                  .places = mo_gpu_block_at(p, b.places),
                                                                  .slices = mo_gpu_block_at(p, b.slices),
                                                                  .tokens = (int32_t)p->tokens,
                                                                  .slice_count = (int32_t)p->slices,
                                                                  .layer = layer,
                                                                  .k_heads = d->k_heads,
                                                                  .v_heads = d->v_heads,
                                                                  .head = (int32_t)d->head,
                                                                  .taps = d->taps,
                                                                  .eps = p->core->spec->eps};
    mo_gpu_op_add(p, MO_OP_RECUR)->recur = (mo_op_recur){.after = after,
                                                         .z = p->scratch->k,
                                                         .gates = p->scratch->v,
                                                         .a = c->a,
                                                         .dt = c->dt,
                                                         .norm = c->delta_norm,
                                                         .slices = mo_gpu_block_at(p, b.slices),
                                                         .mixed = mixed,
                                                         .tokens = (int32_t)p->tokens,
                                                         .slice_count = (int32_t)p->slices,
                                                         .layer = layer,
                                                         .k_heads = d->k_heads,
                                                         .v_heads = d->v_heads,
                                                         .head = (int32_t)d->head,
                                                         .tiled = d->tiled,
                                                         .paired = mo_linear_present(&d->ba),
                                                         .eps = p->core->spec->eps,
                                                         .scale = 1.0f / sqrtf((float)d->head)};
    multiply_out(p, layer, &d->out, mixed);
}

static void mix_short_conv(mo_gpu_ops *p, int layer)
{
    const mo_short_conv *s = &p->core->spec->layers[layer].short_conv;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    const mo_dacts mixed = mo_dacts_lay(p->scratch->mixed, p->tokens, s->channels);
    mo_gpu_op_multiply(mo_gpu_op_product(p, mo_gpu_in_of(p)), &c->q, p->scratch->q, 3 * s->channels);
    mo_gpu_ops_adapt(p, &s->in, mo_gpu_in_of(p), p->scratch->q, 3 * s->channels);
    mo_gpu_op_add(p, MO_OP_SHORT_CONV)->short_conv =
        (mo_op_short_conv){.in = p->scratch->q,
                           .weight = c->conv,
                           .places = mo_gpu_block_at(p, b.places),
                           .slices = mo_gpu_block_at(p, b.slices),
                           .mixed = mixed,
                           .tokens = (int32_t)p->tokens,
                           .slice_count = (int32_t)p->slices,
                           .layer = layer,
                           .channels = (int32_t)s->channels,
                           .taps = s->taps};
    multiply_out(p, layer, &s->out, mixed);
}

/* ---- Routing --------------------------------------------------------------------------------- */

void mo_gpu_ops_choose(mo_gpu_ops *p, int layer)
{
    if (!p->core->spec->layers[layer].routed) {
        return;
    }
    const mo_moe *moe = &p->core->spec->layers[layer].moe;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_dacts in = c->input_scale ? mo_dacts_lay(p->scratch->in_router, p->tokens, p->core->spec->width)
                                       : mo_gpu_in_of(p);
    mo_gpu_op_multiply(mo_gpu_op_product(p, in), &c->router, p->scratch->scores, moe->experts);
    mo_gpu_ops_adapt(p, &moe->router.logits, in, p->scratch->scores, moe->experts);
    mo_gpu_op_add(p, MO_OP_CHOOSE)->choose =
        (mo_op_choose){.scores = p->scratch->scores,
                       .select_bias = c->select_bias,
                       .ids = mo_gpu_ids_of(p, layer),
                       .weights = mo_gpu_weights_of(p, layer),
                       .table = p->tokens <= GPU_SMALL ? mo_vram_table(p->vram, layer) : 0,
                       .work = p->scratch->work,
                       .tokens = (int32_t)p->tokens,
                       .experts = moe->experts,
                       .used = moe->used,
                       .gating = (int32_t)moe->router.gating,
                       .normalize = moe->router.normalize,
                       .groups = moe->router.groups,
                       .groups_used = moe->router.groups_used,
                       .scale = moe->router.scale};
}

void mo_gpu_ops_mixer(mo_gpu_ops *p, int layer)
{
    const mo_layer *l = &p->core->spec->layers[layer];
    switch (l->mixer) {
    case MO_MIXER_ATTENTION: (l->attention.latent.plain ? mix_latent : mix_attention)(p, layer); break;
    case MO_MIXER_DELTA: mix_delta(p, layer); break;
    case MO_MIXER_SHORT_CONV: mix_short_conv(p, layer); break;
    case MO_MIXER_MAMBA: mo_gpu_ops_mamba(p, layer); break;
    }
    add_mixer(p, layer);
}
