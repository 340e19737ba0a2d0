#include "engine/workspace.h"

#include <string.h>

#include "base/host.h"
#include "base/status.h"

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void extend_attention(mo_extent *e, const mo_attention *a)
{
    e->mixer_q = max64(e->mixer_q, a->heads * a->k_len * (a->gated ? 2 : 1));
    e->mixer_k = max64(e->mixer_k, a->kv_heads * a->k_len);
    e->mixer_v = max64(e->mixer_v, a->kv_heads * a->v_len);
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

static void extend_delta(mo_extent *e, const mo_delta *d)
{
    const int64_t values = d->v_heads * d->head;
    e->mixer_q =
        max64(e->mixer_q, 2 * (2 * d->k_heads * d->head + values)); /* before and after the convolution */
    e->mixer_k = max64(e->mixer_k, values);
    e->mixer_v = max64(e->mixer_v, 2 * (int64_t)d->v_heads);
    e->mixed = max64(e->mixed, values);
}

static void extend_short_conv(mo_extent *e, const mo_short_conv *s)
{
    e->mixer_q = max64(e->mixer_q, 3 * s->channels);
    e->mixed = max64(e->mixed, s->channels);
}

static void extend_mamba(mo_extent *e, const mo_mamba *m)
{
    const int64_t channels = mo_mamba_channels(m);
    e->mixer_q = max64(e->mixer_q, m->heads ? 2 * channels : channels); /* and after the convolution */
    e->mixer_k = max64(e->mixer_k, m->inner);
    e->mixer_v = max64(e->mixer_v, m->heads ? m->heads : m->rank + 2 * m->states);
    e->mixed = max64(e->mixed, m->inner);
}

static void extend_mixer(mo_extent *e, const mo_layer *l)
{
    switch (l->mixer) {
    case MO_MIXER_ATTENTION: extend_attention(e, &l->attention); break;
    case MO_MIXER_DELTA: extend_delta(e, &l->delta); break;
    case MO_MIXER_SHORT_CONV: extend_short_conv(e, &l->short_conv); break;
    case MO_MIXER_MAMBA: extend_mamba(e, &l->mamba); break;
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
            e.side_width = max64(e.side_width, l->moe.shared.up.w.rows);
        }
        if (l->dense) {
            e.side_width = max64(e.side_width, l->ffn.up.w.rows);
        }
    }
    return e;
}

/* Cuts 64-byte aligned pieces off a block; counts only while base is NULL. */
typedef struct cutter {
    uint8_t *base;
    size_t used;
} cutter;

static void *cut(cutter *c, int64_t count, size_t bytes)
{
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += ((size_t)count * bytes + 63) / 64 * 64;
    return piece;
}

static void *cut_acts(cutter *c, int64_t rows, int64_t cols)
{
    return cut(c, 1, mo_acts_bytes(rows, cols));
}

static void cut_attention(cutter *c, mo_workspace *w, const mo_extent *e, int64_t context, int threads)
{
    const int64_t chunks =
        (context + MO_KV_BLOCK - 1) / MO_KV_BLOCK + 1; /* of the format with the shortest */
    const int64_t queries = e->queries * MO_QUERY_TILE;
    w->partial_floats = chunks * e->head_floats;
    w->partial = cut(c, w->partial_floats, sizeof(float));
    w->codes = cut(c, MO_CHUNKED_TOKENS * e->code_bytes, 1);
    w->g = cut(c, MO_CHUNKED_TOKENS * 2 * e->heads, sizeof(float));
    w->made = cut(c, e->heads, sizeof *w->made);
    mo_attend_space *spaces = cut(c, threads, sizeof *spaces);
    for (int i = 0; i < threads; i++) {
        const mo_attend_space s = {
            .q = cut(c, queries * e->k_len, sizeof(float)),
            .o = cut(c, queries * e->v_len, sizeof(float)),
            .O = cut(c, queries * e->v_len, sizeof(float)),
            .codes = cut(c, queries * 2 * e->plane, 1),
            .g = cut(c, 2 * queries, sizeof(float)),
            .m = cut(c, queries, sizeof(float)),
            .l = cut(c, queries, sizeof(float)),
            .r = cut(c, queries, sizeof(float)),
            .M = cut(c, queries, sizeof(float)),
            .L = cut(c, queries, sizeof(float)),
            .scratch = w->scratch ? &w->scratch[i] : NULL,
        };
        if (spaces) {
            spaces[i] = s;
        }
    }
    w->attend = spaces;
}

static void cut_latent(cutter *c, mo_workspace *w, const mo_extent *e, int64_t batch)
{
    if (e->latent.heads) {
        w->latent.in = cut_acts(c, batch, e->latent.in);
        w->latent.q = cut(c, batch * e->latent.q, sizeof(float));
        w->latent.plain = cut_acts(c, batch * e->latent.heads, e->latent.plain);
        w->latent.mixed = cut_acts(c, batch * e->latent.heads, e->latent.mixed);
        w->latent.acts = cut(c, 2 * e->latent.heads, sizeof *w->latent.acts);
    }
}

static void cut_ffn(cutter *c, mo_workspace *w, const mo_extent *e, int64_t width, int64_t batch)
{
    const int64_t rows = batch * e->used;
    w->scores = cut(c, batch * e->experts, sizeof(float));
    w->picks.ids = cut(c, rows, sizeof(int32_t));
    w->picks.weights = cut(c, rows, sizeof(float));
    w->picks.token_of = cut(c, rows, sizeof(int32_t));
    w->picks.row_of = cut(c, rows, sizeof(int32_t));
    w->identity = cut(c, rows, sizeof(int32_t));
    for (int64_t i = 0; w->identity && i < rows; i++) {
        w->identity[i] = (int32_t)i;
    }
    w->picks.first = cut(c, e->experts + 1, sizeof(int32_t));
    w->picks.count = cut(c, e->experts, sizeof(int32_t));
    w->rows = cut(c, rows, sizeof(int32_t));
    w->needs = cut(c, e->experts, sizeof(mo_need));
    w->guess_in = cut_acts(c, 1, width);
    w->guess_scores = cut(c, e->experts, sizeof(float));
    if (e->expert_width) {
        w->gate = cut(c, rows * e->expert_width, sizeof(float));
        w->up = cut(c, rows * e->expert_width, sizeof(float));
        w->hidden = cut_acts(c, rows, e->expert_width);
        w->down = cut(c, rows * width, sizeof(float));
    }
    w->side.gate = cut(c, batch * e->side_width, sizeof(float));
    w->side.up = cut(c, batch * e->side_width, sizeof(float));
    w->side.hidden = cut_acts(c, batch, e->side_width);
    w->side.down = cut(c, batch * width, sizeof(float));
    w->side.weight = cut(c, batch, sizeof(float));
}

static void cut_jobs(cutter *c, mo_jobs *jobs, int64_t limit, const mo_kernels *kernels, mo_scratch *scratch)
{
    *jobs = (mo_jobs){
        .kernels = kernels, .scratch = scratch, .list = cut(c, limit, sizeof(mo_job)), .limit = (int)limit};
}

static void lay_out(cutter *c, mo_workspace *w, const mo_model_spec *spec, const mo_kernels *kernels,
                    int64_t batch, int64_t context, int threads, int ropes)
{
    const mo_extent e = mo_extent_of(spec);
    const int64_t products = max64(e.experts, MO_APART_TOKENS * e.used);
    w->scratch = cut(c, threads, sizeof *w->scratch);
    w->state_of = cut(c, batch, sizeof(void *));
    w->position = cut(c, batch, sizeof *w->position);
    w->slice_of = cut(c, batch, sizeof *w->slice_of);
    w->chunk_first = cut(c, batch + 1, sizeof *w->chunk_first);
    w->x = cut(c, batch * spec->width, sizeof(float));
    w->in = cut_acts(c, batch, spec->width);
    w->in_dense = cut_acts(c, batch, spec->width);
    w->in_router = cut_acts(c, batch, spec->width);
    w->q = cut(c, batch * e.mixer_q, sizeof(float));
    w->k = cut(c, batch * e.mixer_k, sizeof(float));
    w->v = cut(c, batch * e.mixer_v, sizeof(float));
    w->mixed = cut_acts(c, batch, e.mixed);
    w->y = cut(c, batch * spec->width, sizeof(float));
    w->rope_stride = e.pairs;
    w->rope = cut(c, 2 * ropes * batch * e.pairs, sizeof(float));
    w->row = cut(c, threads, (size_t)mo_format_row_bytes(mo_format_of(spec->embed.type), spec->width));
    cut_attention(c, w, &e, context, threads);
    cut_latent(c, w, &e, batch);
    cut_ffn(c, w, &e, spec->width, batch);
    w->logits.token = cut(c, batch, sizeof *w->logits.token);
    w->logits.row = cut(c, batch, sizeof *w->logits.row);
    w->logits.piece = cut(c, (int64_t)threads * MO_LOGITS_TOKENS * MO_LOGITS_ROWS, sizeof(float));
    cut_jobs(c, &w->phases.mixer_in, 4, kernels, w->scratch);
    cut_jobs(c, &w->phases.latent_queries, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.latent_absorb, e.latent.heads, kernels, w->scratch);
    cut_jobs(c, &w->phases.latent_expand, e.latent.heads, kernels, w->scratch);
    cut_jobs(c, &w->phases.mixer_parts, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.mixer_dt, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.mixer_out, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.router, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.ffn_in, 2 * products + 3, kernels, w->scratch);
    cut_jobs(c, &w->phases.ffn_out, products + 1, kernels, w->scratch);
    w->flow = (mo_flow){.units = cut(c, products + 3, sizeof(mo_flow_unit)),
                        .after = cut(c, products + 3, sizeof(int32_t)),
                        .limit = (int)products + 3};
    cut_jobs(c, &w->phases.guess, 1, kernels, w->scratch);
    cut_jobs(c, &w->phases.output, 1, kernels, w->scratch);
}

/* ---- Adapters ---- */

/* The lists of products that adapters can change. */
enum { ADAPTED = 11 };
static void adapted_lists(mo_workspace *w, mo_jobs *lists[ADAPTED])
{
    mo_jobs *const all[ADAPTED] = {
        &w->phases.mixer_in,    &w->phases.latent_queries, &w->phases.latent_absorb, &w->phases.latent_expand,
        &w->phases.mixer_parts, &w->phases.mixer_dt,       &w->phases.mixer_out,     &w->phases.router,
        &w->phases.ffn_in,      &w->phases.ffn_out,        &w->phases.output};
    memcpy(lists, all, sizeof all);
}

/* The rows that the products of one phase have together. */
static int64_t low_rows(const mo_model_spec *spec, int64_t batch)
{
    return batch * (2 * mo_extent_of(spec).used + 3);
}

static void lay_out_low(cutter *c, mo_workspace *w, const mo_model_spec *spec, int64_t batch, int adapters,
                        int64_t ranks)
{
    mo_jobs *lists[ADAPTED];
    adapted_lists(w, lists);
    mo_jobs *low = cut(c, ADAPTED, sizeof *low);
    w->adapting.uses = cut(c, batch * MO_ADAPTERS_USED, sizeof *w->adapting.uses);
    w->adapting.u = cut(c, low_rows(spec, batch) * ranks, sizeof(float));
    for (int i = 0; i < ADAPTED; i++) {
        const int64_t limit = (int64_t)lists[i]->limit * adapters;
        lists[i]->lows = cut(c, limit, sizeof(mo_low));
        mo_job *list = cut(c, limit, sizeof *list);
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
    cutter lists = {0}, c = {0};
    lay_out(&lists, &w, spec, NULL, 1, 1, 1, 1); /* how many products the lists have */
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
    cutter c = {.base = memory};
    if (memory) {
        lay_out_low(&c, w, spec, batch, adapters, ranks);
    }
    return MO_OK;
}

/* ---- The whole ---- */

size_t mo_workspace_bytes(const mo_model_spec *spec, int64_t batch, int64_t context, int threads, int ropes)
{
    mo_workspace w = {0};
    cutter c = {0};
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
    cutter c = {.base = w->memory};
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
