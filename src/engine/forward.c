#include "engine/forward.h"

#include "base/clock.h"
#include "base/status.h"
#include "numeric/center.h"

/* ---- Rows of the stream ----------------------------------------------------------------------- */

void mo_forward_norm(const mo_forward *forward, float *out, const float *x, const float *weight,
                     const float *bias)
{
    const int64_t n = forward->spec->width;
    mo_norm_row(forward->k, forward->spec->centered, out, x, weight, n, forward->spec->eps);
    if (bias) {
        forward->k->add(out, bias, n);
    }
}

void mo_forward_out_norm(const mo_kernels *k, const mo_model_spec *spec, float *out, const float *x)
{
    mo_norm_row(k, spec->out_centered, out, x, spec->out_norm, spec->width, spec->out_eps);
    if (spec->out_norm_bias) {
        k->add(out, spec->out_norm_bias, spec->width);
    }
}

void mo_forward_quantize_some(const mo_kernels *k, const mo_acts *a, int64_t t, int64_t from, int64_t n)
{
    const int64_t at = t * a->cols + from, block = t * (a->cols / 32) + from / 32;
    k->quantize(a->x + at, n, a->q + at, a->d + block, a->s + block, a->sum + block, a->half_sum + 2 * block);
}

void mo_forward_quantize(const mo_kernels *k, const mo_acts *a, int64_t t)
{
    if (a->cols % 32 == 0) {
        const int64_t blocks = a->cols / 32;
        k->quantize(a->x + t * a->cols, a->cols, a->q + t * a->cols, a->d + t * blocks, a->s + t * blocks,
                    a->sum + t * blocks, a->half_sum + 2 * t * blocks);
    }
}

static void norm_input(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const int64_t n = forward->spec->width;
    for (int64_t t = begin; t < end; t++) {
        mo_forward_norm(forward, forward->in.x + t * n, forward->w->x + t * n, forward->layer->mixer_norm,
                        forward->layer->mixer_norm_bias);
        mo_forward_quantize(forward->k, &forward->in, t);
    }
}

mo_phase mo_forward_mixer_input(mo_forward *forward)
{
    return (mo_phase){
        .fn = norm_input, .ctx = forward, .count = forward->tokens, .grain = 1, .part = MO_PART_OTHER};
}

static void quantize_mixed(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    for (int64_t t = begin; t < end; t++) {
        mo_forward_quantize(forward->k, &forward->mixed, t);
    }
}

mo_phase mo_forward_mixed(mo_forward *forward)
{
    return (mo_phase){.fn = quantize_mixed,
                      .ctx = forward,
                      .count = forward->tokens,
                      .grain = 1,
                      .part = MO_PART_ATTENTION};
}

bool mo_forward_unwanted(const mo_forward *forward)
{
    const mo_forward *step = forward->whole ? forward->whole : forward;
    for (int i = 0; i < step->slice_count; i++) {
        const atomic_bool *cancel = step->slices[i].cancel;
        if (!cancel || !atomic_load_explicit(cancel, memory_order_relaxed)) {
            return false;
        }
    }
    return true;
}

mo_status mo_forward_cancelled(const mo_forward *forward, mo_error *err)
{
    return mo_forward_unwanted(forward) ? mo_fail(err, MO_ECANCELLED, "cancelled") : MO_OK;
}

static bool unwanted(const void *forward)
{
    return mo_forward_unwanted(forward);
}

/* One by one: there is a time of each. */
static void run_apart(mo_forward *forward, const mo_phase *phases, int count)
{
    for (int i = 0; i < count; i++) {
        const int64_t began = mo_clock_ns();
        mo_pool_region_until(forward->engine->pool, &phases[i], 1, forward->stoppable ? unwanted : NULL,
                             forward);
        forward->split->part_ns[phases[i].part] += mo_clock_ns() - began;
    }
}

/* ---- What later phases read ------------------------------------------------------------------- */

/* What describes a layer, which every thread looks at, and the norm before it, which is the calling thread's: all of it has left the caches since the
 * last token, and products wait for it. */
static int ahead_of_start(const mo_forward *forward, const mo_layer *l, mo_pool_ahead *list, int count)
{
    if (count + 2 <= MO_POOL_AHEAD_MAX) {
        const int64_t bytes = forward->spec->width * (int64_t)sizeof(float);
        list[count++] = (mo_pool_ahead){.data = l, .bytes = sizeof *l};
        list[count++] = (mo_pool_ahead){.data = l->mixer_norm,
                                        .bytes = bytes,
                                        .chunk_bytes = bytes,
                                        .count = mo_pool_threads(forward->engine->pool)};
    }
    return count;
}

/* The first products of a layer and what comes before them, or those of the logits. */
static int ahead_of_layer(const mo_forward *forward, int index, mo_pool_ahead *list, int count)
{
    const mo_tiers *tiers = forward->engine->tiers;
    const int64_t n = forward->tokens;
    if (tiers && tiers->layers) {
        return count; /* it comes from disk */
    }
    if (index >= forward->spec->layer_count) {
        const mo_linear *const output[] = {&forward->spec->output};
        return mo_linears_ahead(output, 1, n, list, count);
    }
    const mo_layer *l = &forward->spec->layers[index];
    const mo_attention *a = &l->attention;
    const mo_delta *d = &l->delta;
    const mo_linear *const plain[] = {&a->q, &a->k, &a->v, &a->gate};
    const mo_linear *const latent[] = {&a->latent.q_a, &a->k, &a->gate};
    const mo_linear *const streams[] = {&l->mixer_streams.product};
    const bool direct = !mo_linear_present(&d->alpha_in);
    const mo_linear *const delta[] = {&d->qkv,
                                      &d->k,
                                      &d->v,
                                      &d->ba,
                                      &d->beta,
                                      direct ? &d->alpha : &d->alpha_in,
                                      direct ? &d->gate : &d->gate_in};
    const mo_linear *const conv[] = {&l->short_conv.in};
    const mo_linear *const mamba[] = {&l->mamba.x, &l->mamba.z, &l->mamba.dt_in};
    count = ahead_of_start(forward, l, list, count);
    switch (l->mixer) {
    case MO_MIXER_ATTENTION:
        return mo_linear_present(streams[0]) ? mo_linears_ahead(streams, 1, n, list, count)
               : a->latent.plain             ? mo_linears_ahead(latent, 3, n, list, count)
                                             : mo_linears_ahead(plain, 4, n, list, count);
    case MO_MIXER_DELTA: return mo_linears_ahead(delta, 7, n, list, count);
    case MO_MIXER_SHORT_CONV: return mo_linears_ahead(conv, 1, n, list, count);
    case MO_MIXER_MAMBA: return mo_linears_ahead(mamba, 3, n, list, count);
    case MO_MIXER_NONE: {
        const mo_ffn *side = mo_forward_side(l);
        const mo_linear *const feed[] = {&l->moe.router.logits, &l->moe.latent_down,
                                         side ? &side->gate : &l->ffn.gate, side ? &side->up : &l->ffn.up};
        return mo_linears_ahead(feed, 4, n, list, count);
    }
    }
    return count;
}

/* Every phase in which threads have shares names what the products after it read, and the next region's first ones; where that is what was named
 * before, it still counts. */
static void look_ahead(const mo_forward *forward, mo_phase *phases, int count, mo_pool_ahead *list)
{
    int named = 0, begin[MO_PHASES_MAX];
    bool first = true;
    for (int i = 0; i < count; i++) {
        const mo_jobs *jobs = mo_jobs_of(&phases[i]);
        begin[i] = named = jobs && !first ? mo_jobs_ahead(jobs, list, named) : named;
        first = first && !jobs;
    }
    if (forward->next > 0) {
        named = ahead_of_layer(forward, forward->next - 1, list, named);
    }
    for (int i = 0, last = -1; i < count; i++) {
        if (phases[i].shares && begin[i] != last) {
            last = begin[i];
            phases[i].ahead = list + begin[i];
            phases[i].ahead_count = named - begin[i];
        }
    }
}

void mo_forward_run(mo_forward *forward, mo_phase *phases, int count)
{
    mo_pool_ahead list[MO_POOL_AHEAD_MAX];
    if (forward->tokens < MO_JOBS_FEW) {
        look_ahead(forward, phases, count, list);
    }
    if (forward->split) {
        run_apart(forward, phases, count);
        return;
    }
    int first = 0, last = count;
    for (; first < last && phases[first].count <= 1; first++) {
        phases[first].fn(phases[first].ctx, 0, phases[first].count, 0);
    }
    while (last > first && phases[last - 1].count <= 1) {
        last--;
    }
    mo_pool_region_until(forward->engine->pool, phases + first, last - first,
                         forward->stoppable ? unwanted : NULL, forward);
    for (; last < count; last++) {
        phases[last].fn(phases[last].ctx, 0, phases[last].count, 0);
    }
}

/* ---- The step --------------------------------------------------------------------------------- */

void mo_forward_refuse_key(mo_forward *forward, mo_kv_type kv)
{
    atomic_store_explicit(mo_kv_coded(kv) ? &forward->overflow : &forward->infinite, true,
                          memory_order_relaxed);
}

int64_t mo_forward_first(const mo_forward *forward, int64_t slice)
{
    int64_t first = 0;
    for (int64_t i = 0; i < slice; i++) {
        first += forward->slices[i].count;
    }
    return first;
}

bool mo_forward_listens(const mo_forward *forward)
{
    bool any = false;
    for (int i = 0; i < forward->slice_count; i++) {
        any |= forward->slices[i].routes != NULL;
    }
    return any;
}

/* What the step counts as, for statistics. */
static mo_trace_phase phase_of(const mo_forward *forward)
{
    return forward->slices[0].prompt ? MO_TRACE_PROMPT : MO_TRACE_GENERATION;
}

mo_tally_layer *mo_forward_tally(const mo_forward *forward, int layer)
{
    const mo_trace_phase phase = phase_of(forward);
    mo_tally_layer *counts = forward->tally ? mo_tally_find(forward->tally, layer) : NULL;
    if (counts) {
        mo_tally_call(counts, phase);
    }
    return counts;
}

void mo_forward_tally_expert(const mo_forward *forward, mo_tally_layer *counts, mo_found found, int expert,
                             uint64_t picks)
{
    if (counts && picks > 0) {
        mo_tally_add(&counts->hits[phase_of(forward)][found][expert], picks);
    }
}
