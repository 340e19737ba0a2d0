#include "engine/workspace.h"

#include <string.h>

#include "base/host.h"
#include "base/status.h"
#include "engine/cutter.h"
#include "numeric/compress.h"
#include "numeric/delta.h"

/* Maximum products that read the mixer's input. */
enum { MIXER_PRODUCTS = 7 };

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void extend_attention(mo_extent *e, const mo_attention *a)
{
    e->mixer_q = max64(e->mixer_q, a->heads * a->k_len * (a->gated ? 2 : 1));
    e->mixer_k = max64(e->mixer_k, a->kv_heads * a->k_len);
    e->mixer_v = max64(e->mixer_v, a->kv_heads * a->v_len);
    e->gates = max64(e->gates, a->gate.w.rows);
    e->mixed = max64(e->mixed, mo_attention_out(a));
    e->queries = max64(e->queries, mo_attention_part(a));
    e->k_len = max64(e->k_len, a->k_len);
    e->v_len = max64(e->v_len, a->v_len);
    e->head_floats = max64(e->head_floats, a->heads * (int64_t)mo_kv_partial(MO_KV_I16, (int)a->v_len));
    e->heads = max64(e->heads, a->heads);
    const int64_t plane = mo_kv_plane((int)a->k_len, (int)mo_attention_tail(a));
    e->plane = max64(e->plane, plane);
    e->code_bytes = max64(e->code_bytes, a->heads * 2 * plane);
    e->pairs = max64(e->pairs, a->n_rot / 2);
    if (a->latent.plain) {
        e->mixer_q = max64(e->mixer_q, a->latent.q_a.w.rows); /* on a device */
        e->latent.in = max64(e->latent.in, a->latent.q_a.w.rows);
        e->latent.q = max64(e->latent.q, a->q.w.rows);
        e->latent.plain = max64(e->latent.plain, a->latent.plain);
        e->latent.mixed = max64(e->latent.mixed, a->v_len);
        e->latent.heads = max64(e->latent.heads, a->heads);
    }
}

/* Bytes of the blocks of one chunk of positions, or of one block, maximum of all formats. */
static int64_t chunk_bytes(const mo_attention *a, bool one)
{
    int64_t bytes = 0;
    for (int kv = 0; kv < MO_KV_TYPES; kv++) {
        mo_kv_shape shape = mo_attention_cache(a, (mo_kv_type)kv);
        shape.index = 0;
        bytes = max64(bytes, mo_kv_block_bytes(shape) * (one ? 1 : mo_kv_chunk(kv) / MO_KV_BLOCK));
    }
    return bytes;
}

static void extend_compressed(mo_extent *e, const mo_attention *a)
{
    const mo_compressed *c = &a->compressed;
    if (c->groups) {
        e->latent.in = max64(e->latent.in, c->q_a.w.rows);
        e->latent.mixed = max64(e->latent.mixed, c->group_out.w.cols);
        e->compressed.groups = max64(e->compressed.groups, c->groups);
        e->compressed.pairs = max64(e->compressed.pairs, mo_attention_pairs(a));
        e->compressed.key = max64(e->compressed.key, max64(a->k_len, c->index.length));
        e->index.gathered = max64(e->index.gathered, chunk_bytes(a, false));
        e->index.block = max64(e->index.block, chunk_bytes(a, true));
    }
}

static void extend_index(mo_extent *e, const mo_attention *a)
{
    const mo_indexer *x = &a->index;
    if (x->top) {
        e->index.q = max64(e->index.q, x->heads * x->length);
        e->index.k = max64(e->index.k, mo_attention_index(a));
        e->index.heads = max64(e->index.heads, x->heads);
        e->index.top = max64(e->index.top, x->top);
        e->index.gathered = max64(e->index.gathered, chunk_bytes(a, false));
        e->index.block = max64(e->index.block, chunk_bytes(a, true));
    }
}

static void extend_delta(mo_extent *e, const mo_delta *d)
{
    const int64_t values = d->v_heads * d->head;
    e->mixer_q =
        max64(e->mixer_q, 2 * (2 * d->k_heads * d->head + values)); /* before and after the convolution */
    e->mixer_k = max64(e->mixer_k, values);
    e->mixer_v = max64(e->mixer_v, mo_delta_gate_values(d->decay, d->v_heads, d->head));
    e->mixed = max64(e->mixed, values);
    e->parts = max64(e->parts, max64(d->alpha_in.w.rows, d->gate_in.w.rows));
}

static void extend_short_conv(mo_extent *e, const mo_short_conv *s)
{
    e->mixer_q = max64(e->mixer_q, 3 * s->channels);
    e->mixed = max64(e->mixed, s->channels);
}

static void extend_mamba(mo_extent *e, const mo_mamba *m)
{
    const int64_t channels = mo_mamba_channels(m);
    /* including the result of the convolution */
    e->mixer_q = max64(e->mixer_q, m->heads ? 2 * channels : channels);
    e->mixer_k = max64(e->mixer_k, m->inner);
    e->mixer_v = max64(e->mixer_v, m->heads ? m->heads : m->rank + 2 * m->states);
    e->mixed = max64(e->mixed, m->inner);
}

static void extend_mixer(mo_extent *e, const mo_layer *l)
{
    switch (l->mixer) {
    case MO_MIXER_ATTENTION:
        extend_attention(e, &l->attention);
        extend_index(e, &l->attention);
        extend_compressed(e, &l->attention);
        break;
    case MO_MIXER_DELTA: extend_delta(e, &l->delta); break;
    case MO_MIXER_SHORT_CONV: extend_short_conv(e, &l->short_conv); break;
    case MO_MIXER_MAMBA: extend_mamba(e, &l->mamba); break;
    case MO_MIXER_NONE: break;
    }
}

mo_extent mo_extent_of(const mo_model_spec *spec)
{
    mo_extent e = {.queries = 1, .used = 1, .experts = 1, .pairs = 1};
    for (int i = 0; i < spec->layer_count; i++) {
        const mo_layer *l = &spec->layers[i];
        extend_mixer(&e, l);
        if (l->routed) {
            e.experts = max64(e.experts, l->moe.experts);
            e.used = max64(e.used, l->moe.used);
            e.expert_width = max64(e.expert_width, l->moe.width);
            e.expert_io = max64(e.expert_io, l->moe.io);
            e.expert_latent = max64(e.expert_latent, l->moe.latent_down.w.rows);
            e.side_width = max64(e.side_width, l->moe.shared.up.w.rows);
        }
        if (l->dense) {
            e.side_width = max64(e.side_width, l->ffn.up.w.rows);
        }
    }
    return e;
}

static void *cut_acts(mo_cutter *c, int64_t rows, int64_t cols)
{
    return mo_cut(c, 1, mo_acts_bytes(rows, cols));
}

static void cut_attention(mo_cutter *c, mo_workspace *w, const mo_extent *e, int64_t context, int threads)
{
    /* for the format with the shortest chunks */
    const int64_t chunks = (context + MO_KV_BLOCK - 1) / MO_KV_BLOCK + 1;
    const int64_t queries = e->queries * MO_QUERY_TILE;
    w->partial_floats = chunks * e->head_floats;
    w->partial = mo_cut(c, w->partial_floats, sizeof(float));
    w->codes = mo_cut(c, MO_CHUNKED_TOKENS * e->code_bytes, 1);
    w->g = mo_cut(c, MO_CHUNKED_TOKENS * 2 * e->heads, sizeof(float));
    w->made = mo_cut(c, e->heads, sizeof *w->made);
    mo_attend_space *spaces = mo_cut(c, threads, sizeof *spaces);
    for (int i = 0; i < threads; i++) {
        const mo_attend_space s = {
            .q = mo_cut(c, queries * e->k_len, sizeof(float)),
            .o = mo_cut(c, queries * e->v_len, sizeof(float)),
            .O = mo_cut(c, queries * e->v_len, sizeof(float)),
            .codes = mo_cut(c, queries * 2 * e->plane, 1),
            .g = mo_cut(c, 2 * queries, sizeof(float)),
            .m = mo_cut(c, queries, sizeof(float)),
            .l = mo_cut(c, queries, sizeof(float)),
            .r = mo_cut(c, queries, sizeof(float)),
            .M = mo_cut(c, queries, sizeof(float)),
            .L = mo_cut(c, queries, sizeof(float)),
            .scratch = w->scratch ? &w->scratch[i] : NULL,
            .gathered = mo_cut(c, e->index.gathered, 1),
        };
        if (spaces) {
            spaces[i] = s;
        }
    }
    w->attend = spaces;
}

static void cut_latent(mo_cutter *c, mo_workspace *w, const mo_extent *e, int64_t batch)
{
    if (e->latent.heads) {
        w->latent.in = cut_acts(c, batch, e->latent.in);
        w->latent.q = mo_cut(c, batch * e->latent.q, sizeof(float));
        w->latent.plain = cut_acts(c, batch * e->latent.heads, e->latent.plain);
        w->latent.mixed = cut_acts(c, batch * e->latent.heads, e->latent.mixed);
        w->latent.acts = mo_cut(c, 2 * e->latent.heads, sizeof *w->latent.acts);
    }
}

static void cut_compressed(mo_cutter *c, mo_workspace *w, const mo_extent *e, int64_t batch, int threads)
{
    const mo_compressed_extent *x = &e->compressed;
    if (!x->groups) {
        return;
    }
    w->latent.in = cut_acts(c, batch, e->latent.in);
    w->latent.mixed = cut_acts(c, batch * x->groups, e->latent.mixed);
    w->latent.acts = mo_cut(c, x->groups, sizeof *w->latent.acts);
    w->compressed = (mo_compressed_space){.weight_floats = MO_COMPRESS_ROWS * x->key,
                                          .key_floats = x->key,
                                          .turn_floats = 2 * e->pairs,
                                          .row_bytes = 4 * x->key + (int64_t)sizeof(float)};
    w->compressed.pairs = mo_cut(c, batch * x->pairs, sizeof(float));
    w->compressed.weights = mo_cut(c, threads * w->compressed.weight_floats, sizeof(float));
    w->compressed.key = mo_cut(c, threads * x->key, sizeof(float));
    w->compressed.turn = mo_cut(c, threads * w->compressed.turn_floats, sizeof(float));
    w->compressed.row = mo_cut(c, threads * w->compressed.row_bytes, 1);
}

static void cut_streams(mo_cutter *c, mo_workspace *w, const mo_model_spec *spec, int64_t batch)
{
    if (spec->streams.count) {
        const int64_t values = MO_STREAMS * spec->width;
        w->streams.x = mo_cut(c, batch * values, sizeof(float));
        w->streams.in = cut_acts(c, batch, values);
        w->streams.mix = mo_cut(c, batch * MO_STREAMS_MIX, sizeof(float));
        w->streams.shares = mo_cut(c, batch, sizeof *w->streams.shares);
    }
}

static void cut_index(mo_cutter *c, mo_workspace *w, const mo_extent *e, int64_t batch, int64_t context,
                      int threads)
{
    const mo_index_extent *x = &e->index;
    if (!x->top) {
        return;
    }
    w->index.context = context;
    w->index.q = mo_cut(c, batch * x->q, sizeof(float));
    w->index.k = mo_cut(c, batch * x->k, sizeof(float));
    w->index.share = mo_cut(c, batch * x->heads, sizeof(float));
    w->index.scores = mo_cut(c, MO_CHUNKED_TOKENS * context, sizeof(float));
    w->index.kept = mo_cut(c, batch * x->top, sizeof(int32_t));
    mo_index_place *places = mo_cut(c, threads, sizeof *places);
    for (int i = 0; i < threads; i++) {
        const mo_index_place p = {
            .products = mo_cut(c, MO_QUERY_TILE * x->heads * MO_KV_BLOCK, sizeof(float)),
            .scores = mo_cut(c, MO_QUERY_TILE * MO_KV_BLOCK, sizeof(float)),
            .rank = mo_cut(c, MO_QUERY_TILE * 2 * x->top, sizeof(uint32_t)),
            .position = mo_cut(c, MO_QUERY_TILE * 2 * x->top, sizeof(int32_t)),
        };
        if (places) {
            places[i] = p;
        }
    }
    w->index.place = places;
}

static void cut_ffn(mo_cutter *c, mo_workspace *w, const mo_extent *e, int64_t width, int64_t batch)
{
    const int64_t rows = batch * e->used;
    w->scores = mo_cut(c, batch * e->experts, sizeof(float));
    w->picks.ids = mo_cut(c, rows, sizeof(int32_t));
    w->picks.weights = mo_cut(c, rows, sizeof(float));
    w->picks.token_of = mo_cut(c, rows, sizeof(int32_t));
    w->picks.row_of = mo_cut(c, rows, sizeof(int32_t));
    w->identity = mo_cut(c, rows, sizeof(int32_t));
    for (int64_t i = 0; w->identity && i < rows; i++) {
        w->identity[i] = (int32_t)i;
    }
    w->picks.first = mo_cut(c, e->experts + 1, sizeof(int32_t));
    w->picks.count = mo_cut(c, e->experts, sizeof(int32_t));
    w->rows = mo_cut(c, rows, sizeof(int32_t));
    w->needs = mo_cut(c, e->experts, sizeof(mo_need));
    w->guess_in = cut_acts(c, 1, width);
    w->guess_scores = mo_cut(c, e->experts, sizeof(float));
    if (e->expert_width) {
        w->gate = mo_cut(c, rows * e->expert_width, sizeof(float));
        w->up = mo_cut(c, rows * e->expert_width, sizeof(float));
        w->hidden = cut_acts(c, rows, e->expert_width);
        w->down = mo_cut(c, rows * e->expert_io, sizeof(float));
    }
    if (e->expert_latent) {
        w->latent_experts.in = cut_acts(c, batch, e->expert_latent);
        w->latent_experts.sum = cut_acts(c, batch, e->expert_latent);
        w->latent_experts.up = mo_cut(c, batch * width, sizeof(float));
    }
    w->side.gate = mo_cut(c, batch * e->side_width, sizeof(float));
    w->side.up = mo_cut(c, batch * e->side_width, sizeof(float));
    w->side.hidden = cut_acts(c, batch, e->side_width);
    w->side.down = mo_cut(c, batch * width, sizeof(float));
    w->side.weight = mo_cut(c, batch, sizeof(float));
}

static void cut_jobs(mo_cutter *c, mo_jobs *jobs, int64_t limit, const mo_kernels *kernels,
                     mo_scratch *scratch)
{
    *jobs = (mo_jobs){.kernels = kernels,
                      .scratch = scratch,
                      .list = mo_cut(c, limit, sizeof(mo_job)),
                      .limit = (int)limit};
}

static void lay_out(mo_cutter *c, mo_workspace *w, const mo_model_spec *spec, const mo_kernels *kernels,
                    int64_t batch, int64_t context, int threads, int ropes)
{
    const mo_extent e = mo_extent_of(spec);
    const int64_t products = max64(e.experts, MO_APART_TOKENS * e.used);
    w->scratch = mo_cut(c, threads, sizeof *w->scratch);
    w->state_of = mo_cut(c, batch, sizeof(void *));
    w->position = mo_cut(c, batch, sizeof *w->position);
    w->slice_of = mo_cut(c, batch, sizeof *w->slice_of);
    w->chunk_first = mo_cut(c, batch + 1, sizeof *w->chunk_first);
    w->row_of = spec->pictures.accepted ? mo_cut(c, batch, sizeof *w->row_of) : NULL;
    w->sees = spec->pictures.accepted ? mo_cut(c, batch, sizeof *w->sees) : NULL;
    w->x = mo_cut(c, batch * spec->width, sizeof(float));
    w->in = cut_acts(c, batch, max64(spec->width, e.expert_io)); /* also read by another rank's experts */
    w->in_dense = cut_acts(c, batch, max64(spec->width, e.parts));
    w->in_router = cut_acts(c, batch, max64(spec->width, e.parts));
    if (mo_linear_present(&spec->head.join)) {
        w->joined = cut_acts(c, batch * (spec->streams.count ? MO_STREAMS : 1), 2 * spec->width);
    }
    w->q = mo_cut(c, batch * e.mixer_q, sizeof(float));
    w->k = mo_cut(c, batch * e.mixer_k, sizeof(float));
    w->v = mo_cut(c, batch * e.mixer_v, sizeof(float));
    w->gates = mo_cut(c, batch * e.gates, sizeof(float));
    w->mixed = cut_acts(c, batch, e.mixed);
    w->y = mo_cut(c, batch * spec->width, sizeof(float));
    w->rope_stride = e.pairs;
    w->rope = mo_cut(c, 2 * ropes * batch * e.pairs, sizeof(float));
    w->q_factor = spec->temper.scale != 0.0 ? mo_cut(c, batch, sizeof(float)) : NULL;
    w->row = mo_cut(c, threads, (size_t)mo_format_row_bytes(mo_format_of(spec->embed.type), spec->width));
    cut_attention(c, w, &e, context, threads);
    cut_latent(c, w, &e, batch);
    cut_compressed(c, w, &e, batch, threads);
    cut_streams(c, w, spec, batch);
    cut_index(c, w, &e, batch, context, threads);
    cut_ffn(c, w, &e, spec->width, batch);
    w->logits.token = mo_cut(c, batch, sizeof *w->logits.token);
    w->logits.row = mo_cut(c, batch, sizeof *w->logits.row);
    w->logits.piece = mo_cut(c, (int64_t)threads * MO_LOGITS_TOKENS * MO_LOGITS_ROWS, sizeof(float));
    cut_jobs(c, &w->phases.join, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.streams[0], 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.streams[1], 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.mixer_in, MIXER_PRODUCTS, kernels, w->scratch);
    cut_jobs(c, &w->phases.latent_queries, 2, kernels, w->scratch);
    cut_jobs(c, &w->phases.latent_absorb, e.latent.heads, kernels, w->scratch);
    cut_jobs(c, &w->phases.latent_expand, max64(e.latent.heads, e.compressed.groups), kernels, w->scratch);
    cut_jobs(c, &w->phases.mixer_parts, 2, kernels, w->scratch);
    cut_jobs(c, &w->phases.mixer_dt, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.mixer_out, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.router, 2, kernels, w->scratch);
    cut_jobs(c, &w->phases.ffn_in, 2 * products + 3, kernels, w->scratch);
    cut_jobs(c, &w->phases.ffn_out, products + 1, kernels, w->scratch);
    w->flow = (mo_flow){.units = mo_cut(c, products + 3, sizeof(mo_flow_unit)),
                        .after = mo_cut(c, products + 3, sizeof(int32_t)),
                        .limit = (int)products + 3};
    cut_jobs(c, &w->phases.ffn_latent, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.guess, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.output, 1, kernels, w->scratch);
}

/* ---- Adapters ---- */

/* The job lists that adapters can change. */
enum { ADAPTED = 14 };
static void adapted_lists(mo_workspace *w, mo_jobs *lists[ADAPTED])
{
    mo_jobs *const all[ADAPTED] = {
        &w->phases.mixer_in,    &w->phases.latent_queries, &w->phases.latent_absorb, &w->phases.latent_expand,
        &w->phases.mixer_parts, &w->phases.mixer_dt,       &w->phases.mixer_out,     &w->phases.router,
        &w->phases.ffn_in,      &w->phases.ffn_out,        &w->phases.ffn_latent,    &w->phases.output,
        &w->phases.streams[0],  &w->phases.streams[1]};
    memcpy(lists, all, sizeof all);
}

/* Maximum groups of heads with products of their own; 0: none. */
static int64_t groups_of(const mo_model_spec *spec)
{
    int64_t groups = 0;
    for (int i = 0; i < spec->layer_count; i++) {
        groups = max64(groups, spec->layers[i].attention.compressed.groups);
    }
    return groups;
}

/* Maximum rows of all products in one phase. */
static int64_t low_rows(const mo_model_spec *spec, int64_t batch)
{
    const mo_extent e = mo_extent_of(spec);
    return batch * max64(max64(2 * e.used + 3, MIXER_PRODUCTS), groups_of(spec));
}

static void lay_out_low(mo_cutter *c, mo_workspace *w, const mo_model_spec *spec, int64_t batch, int adapters,
                        int64_t ranks)
{
    mo_jobs *lists[ADAPTED];
    adapted_lists(w, lists);
    mo_jobs *low = mo_cut(c, ADAPTED, sizeof *low);
    w->adapting.uses = mo_cut(c, batch * MO_ADAPTERS_USED, sizeof *w->adapting.uses);
    w->adapting.u = mo_cut(c, low_rows(spec, batch) * ranks, sizeof(float));
    for (int i = 0; i < ADAPTED; i++) {
        const int64_t limit = (int64_t)lists[i]->limit * adapters;
        lists[i]->lows = mo_cut(c, limit, sizeof(mo_low));
        mo_job *list = mo_cut(c, limit, sizeof *list);
        if (low) {
            low[i] = (mo_jobs){.kernels = w->phases.mixer_in.kernels,
                               .scratch = w->scratch,
                               .list = list,
                               .limit = (int)limit};
            lists[i]->low = &low[i];
        }
    }
}

size_t mo_workspace_low_bytes(const mo_model_spec *spec, int64_t batch, int adapters, int64_t ranks)
{
    mo_workspace w = {0};
    mo_cutter lists = {0}, c = {0};
    lay_out(&lists, &w, spec, NULL, 1, 1, 1, 1); /* sets the limits of the lists */
    lay_out_low(&c, &w, spec, batch, adapters, ranks);
    return adapters ? c.used : 0;
}

mo_status mo_workspace_lower(mo_workspace *w, const mo_model_spec *spec, int64_t batch, int adapters,
                             int64_t ranks, mo_error *err)
{
    const size_t bytes = mo_workspace_low_bytes(spec, batch, adapters, ranks);
    void *memory = bytes ? mo_host_alloc_huge(bytes) : NULL;
    if (bytes && !memory) {
        return mo_fail(err, MO_ENOMEM,
                       "working memory of %.1f MiB for adapters is not available; choose a smaller `batch`",
                       (double)bytes / (1 << 20));
    }
    if (w->low_memory) {
        mo_host_free_huge(w->low_memory, w->low_bytes);
    }
    w->low_memory = memory;
    w->low_bytes = bytes;
    mo_cutter c = {.base = memory};
    if (memory) {
        lay_out_low(&c, w, spec, batch, adapters, ranks);
    }
    return MO_OK;
}

/* ---- The workspace ---- */

size_t mo_workspace_bytes(const mo_model_spec *spec, int64_t batch, int64_t context, int threads, int ropes)
{
    mo_workspace w = {0};
    mo_cutter c = {0};
    lay_out(&c, &w, spec, NULL, batch, context, threads, ropes);
    return c.used;
}

mo_status mo_workspace_init(mo_workspace *w, const mo_model_spec *spec, const mo_kernels *kernels,
                            int64_t batch, int64_t context, int threads, int ropes, mo_error *err)
{
    *w = (mo_workspace){.bytes = mo_workspace_bytes(spec, batch, context, threads, ropes)};
    w->memory = mo_host_alloc_huge(w->bytes);
    if (!w->memory) {
        return mo_fail(err, MO_ENOMEM,
                       "working memory of %.1f MiB is not available; choose a smaller `batch` or `context`",
                       (double)w->bytes / (1 << 20));
    }
    mo_cutter c = {.base = w->memory};
    lay_out(&c, w, spec, kernels, batch, context, threads, ropes);
    mo_jobs *lists[ADAPTED];
    adapted_lists(w, lists);
    for (int i = 0; i < ADAPTED; i++) {
        lists[i]->adapting = &w->adapting;
    }
    return MO_OK;
}

void mo_workspace_drop(mo_workspace *w)
{
    if (w->memory) {
        mo_host_free_huge(w->memory, w->bytes);
    }
    if (w->low_memory) {
        mo_host_free_huge(w->low_memory, w->low_bytes);
    }
    *w = (mo_workspace){0};
}
