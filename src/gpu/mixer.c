/* The first half of a layer as ops: its mixer, the stream, and the choice of experts. The order is that of
 * the CPU's code, whose comments explain it. */
#include <math.h>

#include "gpu/ops.h"
#include "numeric/delta.h"

/* x += mixer's output, and the feed-forward part's input. */
static void add_mixer(mo_gpu_ops *p, int layer)
{
    const mo_layer *l = &p->core->spec->layers[layer];
    const mo_gpu_layer *c = &p->core->layers[layer];
    mo_op_stream *op = mo_gpu_op_stream(p, layer);
    op->y = p->scratch->y;
    op->y_norm = c->post_mixer_norm;
    if (!l->dense && !l->routed) {
        mo_gpu_op_norm_before(op, p->core, layer + 1, mo_gpu_in_of(p));
    }
    if (l->parallel) {
        return;
    }
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

/* The factor of each token's queries, or 0. */
static mo_daddr q_factor_of(const mo_gpu_ops *p, const mo_gpu_block *b)
{
    return p->core->spec->temper.scale != 0.0 ? mo_gpu_block_at(p, b->q_factor) : 0;
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
                        .q_factor = q_factor_of(p, &b),
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
static mo_op_attend *add_attend(mo_gpu_ops *p, int layer, mo_dacts mixed, int64_t first, int64_t count,
                                int64_t chunks, bool apart)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_daddr own = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).places);
    const mo_daddr places = p->kv_staging && !apart ? p->kv_staging : own;
    const int64_t query = a->latent.plain ? a->k_len : a->heads * a->k_len * (a->gated ? 2 : 1);
    mo_op_attend *op = &mo_gpu_op_add(p, MO_OP_ATTEND)->attend;
    *op = (mo_op_attend){.q = p->scratch->q + (mo_daddr)(first * query) * sizeof(float),
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
    return op;
}

/* Attention of tokens first .. end - 1 chunk by chunk, for as many tokens at a time as the memory for chunk
 * results allows. */
static void attend_by_chunks(mo_gpu_ops *p, int layer, mo_dacts mixed, int64_t end, int64_t chunks)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    for (int64_t first = 0; first < end;) {
        const int64_t space =
            p->scratch->partial_floats / (chunks * a->heads * mo_kv_partial(p->kv, (int)a->v_len));
        const int64_t rest = end - first, most = chunks == 1 ? rest : space;
        const int64_t count = rest < most ? rest : most;
        add_attend(p, layer, mixed, first, count, chunks, true);
        first += count;
    }
}

/* Sessions that decode together share no keys, so their tokens attend chunk by chunk. So do those of a batch
 * with drafts, which would otherwise be too few to fill a device, unless the keys come from RAM. Tokens of
 * longer slices share their reads. */
static void attend_all(mo_gpu_ops *p, int layer, mo_dacts mixed)
{
    if (p->drafts && !p->kv_staging && p->tokens > GPU_SMALL) {
        attend_by_chunks(p, layer, mixed, p->tokens, p->chunks);
        return;
    }
    attend_by_chunks(p, layer, mixed, p->singles, p->single_chunks);
    if (p->singles < p->tokens) {
        add_attend(p, layer, mixed, p->singles, p->tokens - p->singles, p->chunks, p->slices == p->tokens);
    }
}

/* In place: each value is read and written by one thread. */
static void gate_heads(mo_gpu_ops *p, int layer, mo_dacts mixed)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    mo_gpu_op_add(p, MO_OP_COLLECT)->collect = (mo_op_collect){.from = mixed.x,
                                                               .gate = p->scratch->gates,
                                                               .out = mixed,
                                                               .tokens = (int32_t)p->tokens,
                                                               .heads = a->heads,
                                                               .n = (int32_t)a->v_len,
                                                               .by_token = 1,
                                                               .each = mo_attention_gates(a) > 1,
                                                               .kind = (int32_t)a->gate_kind};
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
    mo_gpu_op_multiply(in, &c->head_gate, p->scratch->gates, a->gate.w.rows);
    mo_gpu_ops_adapt_some(p, mo_gpu_in_of(p),
                          (mo_gpu_adapted[]){{&a->q, p->scratch->q, a->heads * a->k_len * (a->gated ? 2 : 1)},
                                             {&a->k, p->scratch->k, a->kv_heads * a->k_len},
                                             {&a->v, p->scratch->v, a->kv_heads * a->v_len},
                                             {&a->gate, p->scratch->gates, a->gate.w.rows}},
                          4);
    add_heads(p, layer);
    attend_all(p, layer, mixed);
    if (mo_linear_present(&a->gate)) {
        gate_heads(p, layer, mixed);
    }
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
        .rope = c->rope < 0 ? 0
                            : mo_gpu_block_at(p, b.rope) +
                                  (mo_daddr)(2 * c->rope * p->tokens * p->core->extent.pairs * 4),
        .rope_rows = p->tokens,
        .rope_stride = p->core->extent.pairs,
        .q_factor = q_factor_of(p, &b),
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

/* ---- Indexers -------------------------------------------------------------------------------- */

static void prepare_index(mo_gpu_ops *p, int layer)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_index_scratch *w = &p->scratch->index;
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    mo_gpu_op_add(p, MO_OP_INDEX)->index = (mo_op_index){
        .q = w->q,
        .k = w->k,
        .share = w->share,
        .norm = c->index.norm,
        .bias = c->index.norm_bias,
        .rope = mo_gpu_block_at(p, b.rope) + (mo_daddr)(2 * c->rope * p->tokens * p->core->extent.pairs * 4),
        .rope_rows = p->tokens,
        .rope_stride = p->core->extent.pairs,
        .places = mo_gpu_block_at(p, b.places),
        .bad = mo_gpu_bad(p->scratch, layer, false),
        .tokens = (int32_t)p->tokens,
        .layer = layer,
        .heads = a->index.heads,
        .length = (int32_t)a->index.length,
        .n_rot = (int32_t)a->n_rot,
        .neox = a->index.neox,
        .kv = (int32_t)p->kv,
        .k_len = (int32_t)a->k_len,
        .v_len = (int32_t)a->v_len,
        .tail = (int32_t)mo_attention_tail(a),
        .scale = a->index.scale};
}

/* Upper bound of the positions visible to a token of the step. */
static int64_t positions_seen(const mo_gpu_ops *p)
{
    const int64_t most = p->chunks * mo_kv_chunk(p->kv);
    return most < p->scratch->index.stride ? most : p->scratch->index.stride;
}

/* Selects the kept positions of tokens first .. first + count - 1. */
static void keep(mo_gpu_ops *p, int layer, mo_daddr places, int64_t first, int64_t count)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_gpu_index_scratch *w = &p->scratch->index;
    mo_gpu_op_add(p, MO_OP_KEEP)->keep =
        (mo_op_keep){.q = w->q + (mo_daddr)(first * a->index.heads * a->index.length) * sizeof(float),
                     .share = w->share + (mo_daddr)(first * a->index.heads) * sizeof(float),
                     .places = places + (mo_daddr)first * sizeof(mo_dplace),
                     .scores = w->scores,
                     .kept = w->kept + (mo_daddr)(first * a->index.top) * sizeof(int32_t),
                     .stride = w->stride,
                     .most = positions_seen(p),
                     .tokens = (int32_t)count,
                     .layer = layer,
                     .heads = a->index.heads,
                     .length = (int32_t)a->index.length,
                     .top = (int32_t)a->index.top,
                     .kv = (int32_t)p->kv,
                     .k_len = (int32_t)a->k_len,
                     .v_len = (int32_t)a->v_len,
                     .tail = (int32_t)mo_attention_tail(a)};
}

/* Their attention over a cache of the kept positions. */
static void attend_gathered(mo_gpu_ops *p, int layer, mo_dacts mixed, mo_daddr places, int64_t first,
                            int64_t count)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_gpu_index_scratch *w = &p->scratch->index;
    const int64_t chunk = mo_kv_chunk(p->kv), chunks = (a->index.top + chunk - 1) / chunk;
    mo_gpu_op_add(p, MO_OP_GATHER)->gather =
        (mo_op_gather){.places = places + (mo_daddr)first * sizeof(mo_dplace),
                       .kept = w->kept + (mo_daddr)(first * a->index.top) * sizeof(int32_t),
                       .blocks = w->blocks,
                       .tables = w->tables,
                       .states = w->states,
                       .out = w->places,
                       .tokens = (int32_t)count,
                       .layer = layer,
                       .top = (int32_t)a->index.top,
                       .kv = (int32_t)p->kv,
                       .k_len = (int32_t)a->k_len,
                       .v_len = (int32_t)a->v_len,
                       .tail = (int32_t)mo_attention_tail(a)};
    const int64_t space =
        p->scratch->partial_floats / (chunks * a->heads * mo_kv_partial(p->kv, (int)a->v_len));
    for (int64_t done = 0; done < count; done += space) {
        const int64_t some = count - done < space ? count - done : space;
        mo_op_attend *op = add_attend(p, layer, mixed, first + done, some, chunks, true);
        op->places = w->places + (mo_daddr)done * sizeof(mo_dplace);
        op->layer = 0;
        op->made = true;
    }
}

/* Attention of tokens that may see more positions than are kept, some tokens at a time. */
static void attend_kept(mo_gpu_ops *p, int layer, mo_dacts mixed)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_daddr places = mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).places);
    for (int64_t first = 0; first < p->tokens; first += GPU_KEPT) {
        const int64_t count = p->tokens - first < GPU_KEPT ? p->tokens - first : GPU_KEPT;
        if (a->index.heads) {
            keep(p, layer, places, first, count);
        }
        attend_gathered(p, layer, mixed, places, first, count);
    }
}

static bool keeps_some(const mo_gpu_ops *p, const mo_attention *a)
{
    return a->index.top && p->chunks * mo_kv_chunk(p->kv) > a->index.top;
}

/* The indexer's products with the input of the queries, together with the layer's. */
static void multiply_queries(mo_gpu_ops *p, int layer, mo_dacts reads)
{
    const mo_attention *a = &p->core->spec->layers[layer].attention;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const int64_t rows = a->index.heads * a->index.length;
    mo_op_product *op = mo_gpu_op_product(p, reads);
    mo_gpu_op_multiply(op, &c->q, p->scratch->latent.q, c->q.rows);
    mo_gpu_op_multiply(op, &c->index.q, p->scratch->index.q, rows);
    mo_gpu_ops_adapt_some(p, reads,
                          (mo_gpu_adapted[]){{&a->q, p->scratch->latent.q, c->q.rows},
                                             {&a->index.q, p->scratch->index.q, rows}},
                          a->index.heads ? 2 : 1);
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
    mo_gpu_op_multiply(in, &c->head_gate, p->scratch->gates, a->gate.w.rows);
    mo_gpu_ops_adapt(p, &a->gate, mo_gpu_in_of(p), p->scratch->gates, a->gate.w.rows);
    if (!c->latent.q_a.data) {
        mo_gpu_op_multiply(in, &c->q, p->scratch->latent.q, c->q.rows);
        mo_gpu_ops_adapt(p, &a->q, mo_gpu_in_of(p), p->scratch->latent.q, c->q.rows);
        mo_gpu_ops_adapt(p, &a->k, mo_gpu_in_of(p), p->scratch->k, a->k_len);
    } else { /* normed like the residual stream, without adding anything */
        mo_gpu_op_multiply(in, &c->latent.q_a, p->scratch->q, c->latent.q_a.rows);
        mo_gpu_op_multiply(in, &c->index.k, p->scratch->index.k, a->index.length);
        mo_gpu_op_multiply(in, &c->index.share, p->scratch->index.share, a->index.heads);
        mo_gpu_ops_adapt(p, &a->index.k, mo_gpu_in_of(p), p->scratch->index.k, a->index.length);
        mo_gpu_ops_adapt(p, &a->index.share, mo_gpu_in_of(p), p->scratch->index.share, a->index.heads);
        mo_gpu_ops_adapt(p, &a->latent.q_a, mo_gpu_in_of(p), p->scratch->q, c->latent.q_a.rows);
        mo_gpu_ops_adapt(p, &a->k, mo_gpu_in_of(p), p->scratch->k, a->k_len);
        mo_op_stream *op = &mo_gpu_op_add(p, MO_OP_STREAM)->stream;
        *op = (mo_op_stream){
            .x = p->scratch->q, .tokens = (int32_t)n, .n = c->latent.q_a.rows, .eps = p->core->spec->eps};
        mo_gpu_op_norm(op, 0, c->latent.q_a_norm, 0, reads);
        multiply_queries(p, layer, reads);
    }
    prepare_latent(p, layer, plain);
    if (a->index.heads) {
        prepare_index(p, layer);
    }
    multiply_heads(p, layer, 0, plain, p->scratch->q, a->k_len);
    (keeps_some(p, a) ? attend_kept : attend_all)(p, layer, mixed);
    multiply_heads(p, layer, 1, mixed, p->scratch->latent.out, a->latent.out_len);
    mo_gpu_op_add(p, MO_OP_COLLECT)->collect =
        (mo_op_collect){.from = p->scratch->latent.out,
                        .gate = mo_linear_present(&a->gate) ? p->scratch->gates : 0,
                        .out = out,
                        .tokens = (int32_t)n,
                        .heads = a->heads,
                        .n = (int32_t)a->latent.out_len,
                        .each = mo_attention_gates(a) > 1,
                        .kind = (int32_t)a->gate_kind};
    multiply_out(p, layer, &a->out, out);
}

/* ---- Recurrent layers -------------------------------------------------------------------------- */

/* Memory of a recurrent layer's rows: in a step with drafts separate from other layers, until the accepted
 * ones are applied. */
static mo_gpu_draft_inputs rows_of(const mo_gpu_ops *p, int layer, int64_t channels)
{
    return p->drafts ? p->drafts->inputs[layer]
                     : (mo_gpu_draft_inputs){.before = p->scratch->q,
                                             .after = p->scratch->q + (mo_daddr)(p->tokens * channels * 4),
                                             .gates = p->scratch->v};
}

static mo_daddr slices_of(const mo_gpu_ops *p)
{
    return mo_gpu_block_at(p, mo_gpu_block_of(p->scratch, p->tokens).slices);
}

static mo_state_use state_of(const mo_gpu_ops *p)
{
    return p->drafts ? MO_STATE_STAYS : MO_STATE_MOVES;
}

static void add_recurrence(mo_gpu_ops *p, int layer, mo_daddr slices, mo_state_use state)
{
    const mo_delta *d = &p->core->spec->layers[layer].delta;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    const mo_gpu_draft_inputs rows = rows_of(p, layer, (2 * (int64_t)d->k_heads + d->v_heads) * d->head);
    mo_gpu_op_add(p, MO_OP_CONVOLVE)->convolve = (mo_op_convolve){.before = rows.before,
                                                                  .after = rows.after,
                                                                  .weight = c->conv,
                                                                  .places = mo_gpu_block_at(p, b.places),
                                                                  .slices = slices,
                                                                  .gates = rows.gates,
                                                                  .a = c->a,
                                                                  .dt = c->dt,
                                                                  .tokens = (int32_t)p->tokens,
                                                                  .slice_count = (int32_t)p->slices,
                                                                  .layer = layer,
                                                                  .k_heads = d->k_heads,
                                                                  .v_heads = d->v_heads,
                                                                  .head = (int32_t)d->head,
                                                                  .taps = d->taps,
                                                                  .eps = p->core->spec->eps,
                                                                  .state = state,
                                                                  .decay = (int32_t)d->decay,
                                                                  .bound = d->bound};
    mo_gpu_op_add(p, MO_OP_RECUR)->recur =
        (mo_op_recur){.after = rows.after,
                      .z = p->scratch->k,
                      .gates = rows.gates,
                      .a = c->a,
                      .dt = c->dt,
                      .norm = c->delta_norm,
                      .slices = slices,
                      .mixed = mo_dacts_lay(p->scratch->mixed, p->tokens, d->v_heads * d->head),
                      .tokens = (int32_t)p->tokens,
                      .slice_count = (int32_t)p->slices,
                      .layer = layer,
                      .k_heads = d->k_heads,
                      .v_heads = d->v_heads,
                      .head = (int32_t)d->head,
                      .tiled = d->tiled,
                      .paired = mo_linear_present(&d->ba),
                      .eps = p->core->spec->eps,
                      .scale = 1.0f / sqrtf((float)d->head),
                      .state = state,
                      .decay = (int32_t)d->decay};
}

/* Alpha and gate, with their separate inputs if any; the feed-forward part later reuses the memory of
 * those. */
static void multiply_gates(mo_gpu_ops *p, int layer, mo_op_product *in, mo_daddr alphas)
{
    const mo_delta *d = &p->core->spec->layers[layer].delta;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const int64_t values = d->v_heads * d->head, stride = mo_delta_gate_values(d->decay, d->v_heads, d->head);
    if (!c->delta.alpha_in.data) {
        mo_gpu_op_multiply(in, &c->k, p->scratch->k, values);
        mo_gpu_op_multiply(in, &c->alpha, alphas, stride);
        mo_gpu_ops_adapt(p, &d->gate, mo_gpu_in_of(p), p->scratch->k, values);
        mo_gpu_ops_adapt(p, &d->alpha, mo_gpu_in_of(p), alphas, stride);
        return;
    }
    const mo_dacts alpha_in = mo_dacts_lay(p->scratch->in_dense, p->tokens, c->delta.alpha_in.rows);
    const mo_dacts gate_in = mo_dacts_lay(p->scratch->in_router, p->tokens, c->delta.gate_in.rows);
    mo_gpu_op_multiply(in, &c->delta.alpha_in, alpha_in.x, alpha_in.cols);
    mo_gpu_op_multiply(in, &c->delta.gate_in, gate_in.x, gate_in.cols);
    mo_gpu_ops_adapt(p, &d->alpha_in, mo_gpu_in_of(p), alpha_in.x, alpha_in.cols);
    mo_gpu_ops_adapt(p, &d->gate_in, mo_gpu_in_of(p), gate_in.x, gate_in.cols);
    mo_gpu_op_quantize(p, alpha_in);
    mo_gpu_op_quantize(p, gate_in);
    mo_gpu_op_multiply(mo_gpu_op_product(p, alpha_in), &c->alpha, alphas, stride);
    mo_gpu_ops_adapt(p, &d->alpha, alpha_in, alphas, stride);
    mo_gpu_op_multiply(mo_gpu_op_product(p, gate_in), &c->k, p->scratch->k, values);
    mo_gpu_ops_adapt(p, &d->gate, gate_in, p->scratch->k, values);
}

static void mix_delta(mo_gpu_ops *p, int layer)
{
    const mo_delta *d = &p->core->spec->layers[layer].delta;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const int64_t values = d->v_heads * d->head, keys = d->k_heads * d->head, channels = 2 * keys + values;
    const int64_t stride = mo_delta_gate_values(d->decay, d->v_heads, d->head);
    const bool heads = d->decay == MO_DECAY_HEADS;
    const mo_gpu_draft_inputs rows = rows_of(p, layer, channels);
    const mo_daddr alphas = rows.gates + (heads ? (mo_daddr)d->v_heads * 4 : 0);
    const mo_daddr betas = rows.gates + (heads ? 0 : (mo_daddr)values * 4);
    const mo_daddr k = rows.before + (mo_daddr)keys * 4, v = k + (mo_daddr)keys * 4;
    mo_op_product *in = mo_gpu_op_product(p, mo_gpu_in_of(p));
    mo_gpu_op_multiply(in, &c->q, rows.before, channels);
    mo_gpu_op_multiply(in, &c->delta.k, k, channels);
    mo_gpu_op_multiply(in, &c->delta.v, v, channels);
    mo_op_product *gates =
        c->delta.k.data ? mo_gpu_op_product(p, mo_gpu_in_of(p)) : in; /* an op has few products */
    mo_gpu_op_multiply(gates, &c->ba, rows.gates, stride);
    mo_gpu_op_multiply(gates, &c->beta, betas, stride);
    mo_gpu_ops_adapt(p, &d->qkv, mo_gpu_in_of(p), rows.before, channels);
    mo_gpu_ops_adapt(p, &d->k, mo_gpu_in_of(p), k, channels);
    mo_gpu_ops_adapt(p, &d->v, mo_gpu_in_of(p), v, channels);
    mo_gpu_ops_adapt(p, &d->ba, mo_gpu_in_of(p), rows.gates, stride);
    mo_gpu_ops_adapt(p, &d->beta, mo_gpu_in_of(p), betas, stride);
    multiply_gates(p, layer, gates, alphas);
    add_recurrence(p, layer, slices_of(p), state_of(p));
    multiply_out(p, layer, &d->out, mo_dacts_lay(p->scratch->mixed, p->tokens, d->v_heads * d->head));
}

static void add_short_conv(mo_gpu_ops *p, int layer, mo_daddr slices, mo_state_use state)
{
    const mo_short_conv *s = &p->core->spec->layers[layer].short_conv;
    const mo_gpu_block b = mo_gpu_block_of(p->scratch, p->tokens);
    mo_gpu_op_add(p, MO_OP_SHORT_CONV)->short_conv =
        (mo_op_short_conv){.in = rows_of(p, layer, 0).before,
                           .weight = p->core->layers[layer].conv,
                           .places = mo_gpu_block_at(p, b.places),
                           .slices = slices,
                           .mixed = mo_dacts_lay(p->scratch->mixed, p->tokens, s->channels),
                           .tokens = (int32_t)p->tokens,
                           .slice_count = (int32_t)p->slices,
                           .layer = layer,
                           .channels = (int32_t)s->channels,
                           .taps = s->taps,
                           .state = state};
}

static void mix_short_conv(mo_gpu_ops *p, int layer)
{
    const mo_short_conv *s = &p->core->spec->layers[layer].short_conv;
    const mo_daddr in = rows_of(p, layer, 0).before;
    mo_gpu_op_multiply(mo_gpu_op_product(p, mo_gpu_in_of(p)), &p->core->layers[layer].q, in, 3 * s->channels);
    mo_gpu_ops_adapt(p, &s->in, mo_gpu_in_of(p), in, 3 * s->channels);
    add_short_conv(p, layer, slices_of(p), state_of(p));
    multiply_out(p, layer, &s->out, mo_dacts_lay(p->scratch->mixed, p->tokens, s->channels));
}

void mo_gpu_ops_apply(mo_gpu_ops *p, int layer)
{
    switch (p->core->spec->layers[layer].mixer) {
    case MO_MIXER_DELTA: add_recurrence(p, layer, p->drafts->slices, MO_STATE_ONLY); break;
    case MO_MIXER_SHORT_CONV: add_short_conv(p, layer, p->drafts->slices, MO_STATE_ONLY); break;
    case MO_MIXER_MAMBA: mo_gpu_ops_apply_mamba(p, layer); break;
    case MO_MIXER_ATTENTION:
    case MO_MIXER_NONE: break;
    }
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
    mo_op_product *op = mo_gpu_op_product(p, in);
    mo_gpu_op_multiply(op, &c->router, p->scratch->scores, moe->experts);
    mo_gpu_op_multiply(op, &c->latent_down, p->scratch->experts_latent.in, moe->io);
    mo_gpu_ops_adapt(p, &moe->router.logits, in, p->scratch->scores, moe->experts);
    if (c->latent_down.data) {
        mo_gpu_ops_adapt(p, &moe->latent_down, in, p->scratch->experts_latent.in, moe->io);
        mo_gpu_op_quantize(p, mo_gpu_experts_in(p, layer));
    }
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
    case MO_MIXER_NONE: return; /* the feed-forward part's input is ready */
    }
    add_mixer(p, layer);
}
