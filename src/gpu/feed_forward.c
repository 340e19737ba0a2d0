/* The second half of a layer as ops: experts by worklist or in groups, the other parts, and the merge. */
#include "gpu/ops.h"

/* ---- Experts --------------------------------------------------------------------------------- */

static mo_op_experts experts_of(const mo_gpu_ops *p, int layer, mo_daddr work, int64_t most, mo_daddr hidden)
{
    const mo_moe *moe = &p->core->spec->layers[layer].moe;
    const mo_gpu_layer *c = &p->core->layers[layer];
    return (mo_op_experts){
        .work = work,
        .most = (int32_t)most,
        .activation = (int32_t)moe->activation,
        .limit = moe->limit,
        .in = mo_gpu_experts_in(p, layer),
        .hidden = mo_dacts_lay(hidden, p->tokens * moe->used, moe->width),
        .gate = mo_gated(moe->activation) ? c->expert_gate : c->expert_up, /* up takes the place of gate */
        .up = c->expert_up,
        .down = c->expert_down,
        .up_at = c->up_at,
        .down_at = c->down_at,
        .y = p->scratch->down,
    };
}

static void add_experts(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most)
{
    const mo_op_experts experts = experts_of(p, layer, work, most, p->scratch->hidden);
    mo_gpu_op_add(p, MO_OP_EXPERTS_IN)->experts = experts;
    mo_gpu_op_add(p, MO_OP_EXPERTS_DOWN)->experts = experts;
}

void mo_gpu_ops_down(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most)
{
    mo_gpu_op_add(p, MO_OP_EXPERTS_DOWN)->experts = experts_of(p, layer, work, most, p->scratch->sent);
}

void mo_gpu_ops_hot(mo_gpu_ops *p, int layer)
{
    add_experts(p, layer, p->scratch->work, p->tokens * p->core->spec->layers[layer].moe.used);
}

void mo_gpu_ops_expert(mo_gpu_ops *p, int layer, mo_daddr work, int64_t most)
{
    add_experts(p, layer, work, most);
}

static void add_grouped(mo_gpu_ops *p, const mo_gpu_span *span, int part, const mo_dmatrix *m, mo_dacts in,
                        mo_daddr pick, mo_daddr y)
{
    mo_gpu_op_add(p, MO_OP_GROUPED)->grouped = (mo_op_grouped){
        .in = in,
        .pick = pick,
        .groups =
            p->scratch->groups + (mo_daddr)(part * p->scratch->group_limit + span->group) * sizeof(mo_dgroup),
        .count = (int32_t)span->groups,
        .rows = (int32_t)(p->tokens * p->core->extent.used), /* groups give theirs */
        .most = (int32_t)span->most,
        .lossy_rows = span->lossy ? (int32_t)(pick ? p->tokens : span->first_row + span->rows) : 0,
        .matrix = *m,
        .y = y,
        .stride = m->rows};
}

/* Adds the adapters' part to one of the three products of a span's experts; gathers: its inputs are rows of
 * tokens. */
static void adapt_grouped(mo_gpu_ops *p, const mo_gpu_span *span, int part, const mo_linear *of, mo_dacts in,
                          bool gathers, mo_daddr y)
{
    const int64_t rows = p->tokens * p->core->extent.used;
    mo_gpu_ops_adapt_rows(
        p, of,
        &(mo_op_adapt){.in = in.x,
                       .in_rows = (int32_t)(gathers ? p->tokens : rows),
                       .pick = p->scratch->picks,
                       .groups = p->scratch->groups +
                                 (mo_daddr)(part * p->scratch->group_limit + span->group) * sizeof(mo_dgroup),
                       .group_count = (int32_t)span->groups,
                       .rows = (int32_t)rows,
                       .gathers = gathers,
                       .y = y,
                       .stride = of->w.rows});
}

void mo_gpu_ops_groups(mo_gpu_ops *p, int layer, const mo_gpu_span *span)
{
    const mo_moe *moe = &p->core->spec->layers[layer].moe;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_scratch *r = p->scratch;
    const mo_dacts hidden = mo_dacts_lay(r->hidden, p->tokens * moe->used, moe->width);
    const mo_daddr skip = (mo_daddr)(span->first_row * moe->width * 4);
    const mo_dacts in = mo_gpu_experts_in(p, layer);
    const bool gated = mo_gated(moe->activation);
    if (gated) {
        add_grouped(p, span, 0, &c->expert_gate, in, r->picks, r->gate);
    }
    add_grouped(p, span, 1, &c->expert_up, in, r->picks, r->up);
    if (gated) {
        adapt_grouped(p, span, 0, &moe->expert[0].gate, in, true, r->gate);
    }
    adapt_grouped(p, span, 1, &moe->expert[0].up, in, true, r->up);
    mo_gpu_op_add(p, MO_OP_ACTIVATE)->activate =
        (mo_op_activate){.gate = (gated ? r->gate : r->up) + skip,
                         .up = r->up + skip,
                         .hidden = mo_dacts_from(hidden, span->first_row),
                         .rows = (int32_t)span->rows,
                         .n = (int32_t)moe->width,
                         .activation = (int32_t)moe->activation,
                         .limit = moe->limit};
    add_grouped(p, span, 2, &c->expert_down, hidden, 0, r->down);
    adapt_grouped(p, span, 2, &moe->expert[0].down, hidden, false, r->down);
}

void mo_gpu_ops_all_groups(mo_gpu_ops *p, int layer)
{
    const mo_moe *moe = &p->core->spec->layers[layer].moe;
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_scratch *r = p->scratch;
    mo_gpu_op_add(p, MO_OP_ARRANGE)->arrange = (mo_op_arrange){
        .ids = mo_gpu_ids_of(p, layer),
        .table = mo_vram_table(p->vram, layer),
        .groups = r->groups,
        .picks = r->picks,
        .row_of = r->row_of,
        .counts = r->counts + (mo_daddr)(layer * r->group_limit) * sizeof(int32_t),
        .up_at = c->up_at,
        .down_at = c->down_at,
        .tokens = (int32_t)p->tokens,
        .experts = moe->experts,
        .used = moe->used,
        .limit = (int32_t)r->group_limit,
    };
    mo_gpu_ops_groups(p, layer,
                      &(mo_gpu_span){.groups = moe->experts,
                                     .rows = p->tokens * moe->used,
                                     .most = p->tokens,
                                     .lossy = p->bf16 && mo_precision_experts(&p->bf16->rule, p->whole,
                                                                              moe->used, moe->experts)});
}

/* ---- Other parts, and the merge ---------------------------------------------------------------- */

void mo_gpu_ops_side(mo_gpu_ops *p, int layer)
{
    const mo_layer *l = &p->core->spec->layers[layer];
    const mo_gpu_layer *c = &p->core->layers[layer];
    if (!c->up.data) {
        return;
    }
    const mo_gpu_scratch *r = p->scratch;
    const mo_dacts in = l->dense && !l->parallel ? mo_dacts_lay(r->in_dense, p->tokens, p->core->spec->width)
                                                 : mo_gpu_in_of(p);
    const mo_dacts hidden = mo_dacts_lay(r->side.hidden, p->tokens, c->up.rows);
    mo_op_product *first = mo_gpu_op_product(p, in);
    mo_gpu_op_multiply(first, &c->gate, r->side.gate, c->up.rows);
    mo_gpu_op_multiply(first, &c->up, r->side.up, c->up.rows);
    if (!l->dense) {
        mo_gpu_op_multiply(first, &c->shared_gate, r->side.weight, 1);
    }
    const mo_ffn *side = l->dense ? &l->ffn : &l->moe.shared;
    if (mo_gated(side->activation)) {
        mo_gpu_ops_adapt(p, &side->gate, in, r->side.gate, c->up.rows);
    }
    mo_gpu_ops_adapt(p, &side->up, in, r->side.up, c->up.rows);
    if (!l->dense) {
        mo_gpu_ops_adapt(p, &l->moe.shared_gate, in, r->side.weight, 1);
    }
    const mo_daddr gate = mo_gated(side->activation) ? r->side.gate : r->side.up;
    mo_gpu_op_add(p, MO_OP_ACTIVATE)->activate = (mo_op_activate){.gate = gate,
                                                                  .up = r->side.up,
                                                                  .hidden = hidden,
                                                                  .rows = (int32_t)p->tokens,
                                                                  .n = c->up.rows,
                                                                  .activation = (int32_t)side->activation,
                                                                  .limit = side->limit};
    mo_gpu_op_multiply(mo_gpu_op_product(p, hidden), &c->down, r->side.down, p->core->spec->width);
    mo_gpu_ops_adapt(p, &side->down, hidden, r->side.down, p->core->spec->width);
}

/* Adds a layer's experts to a stream op. */
static void add_picks(const mo_gpu_ops *p, int layer, bool grouped, mo_op_stream *op)
{
    const mo_gpu_scratch *r = p->scratch;
    op->used = p->core->spec->layers[layer].moe.used;
    op->weights = p->keeps ? r->kept_weights : mo_gpu_weights_of(p, layer);
    op->ids = p->keeps ? r->kept_ids : mo_gpu_ids_of(p, layer);
    op->down = r->down;
    op->row_of = grouped ? r->row_of : 0;
}

/* Sums the experts' outputs and adds the product after them, which is then merged like a dense part. */
static void add_latent(mo_gpu_ops *p, int layer, bool grouped, bool experts)
{
    const mo_moe *moe = &p->core->spec->layers[layer].moe;
    const mo_gpu_scratch *r = p->scratch;
    const int64_t width = p->core->spec->width;
    const mo_dacts sum = mo_dacts_lay(r->experts_latent.sum, p->tokens, moe->io);
    mo_op_stream *op = &mo_gpu_op_add(p, MO_OP_STREAM)->stream;
    *op = (mo_op_stream){.x = sum.x, .tokens = (int32_t)p->tokens, .n = (int32_t)moe->io, .feed = 2};
    if (experts) {
        add_picks(p, layer, grouped, op);
    }
    mo_gpu_op_quantize(p, sum);
    mo_gpu_op_multiply(mo_gpu_op_product(p, sum), &p->core->layers[layer].latent_up, r->experts_latent.up,
                       width);
    mo_gpu_ops_adapt(p, &moe->latent_up, sum, r->experts_latent.up, width);
}

void mo_gpu_ops_merge(mo_gpu_ops *p, int layer, bool grouped, bool experts)
{
    const mo_layer *l = &p->core->spec->layers[layer];
    const mo_gpu_layer *c = &p->core->layers[layer];
    const mo_gpu_scratch *r = p->scratch;
    if (!l->dense && !l->routed) {
        assert(!p->features); /* no model has such a layer among the first ones */
        return;               /* the layer has only a mixer, which has been added */
    }
    if (mo_layer_latent(l)) {
        add_latent(p, layer, grouped, experts);
    }
    mo_op_stream *op = mo_gpu_op_stream(p, layer);
    op->feed = 1;
    if (mo_layer_latent(l)) {
        op->dense = r->experts_latent.up;
    } else if (l->routed && experts) {
        add_picks(p, layer, grouped, op);
    }
    if (l->routed && !l->dense && c->up.data) {
        op->shared = r->side.down;
        op->shared_gate = c->shared_gate.data ? r->side.weight : 0;
    }
    if (l->dense) {
        op->dense = r->side.down;
        op->dense_norm = c->post_dense;
    }
    op->moe_norm = l->routed ? c->post_moe : 0;
    op->post_norm = c->post_ffn;
    op->out_scale = c->out_scale;
    op->features = p->features;
    op->places = p->features ? mo_gpu_block_at(p, mo_gpu_block_of(r, p->tokens).places) : 0;
    mo_gpu_op_norm_before(op, p->core, layer + 1, mo_gpu_in_of(p));
}
