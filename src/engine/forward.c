#include "engine/forward.h"

#include "base/clock.h"

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
    const mo_linear *const plain[] = {&a->q, &a->k, &a->v};
    const mo_linear *const latent[] = {&a->latent.q_a, &a->k};
    const mo_linear *const delta[] = {&d->qkv, &d->gate, &d->ba, &d->beta, &d->alpha};
    const mo_linear *const conv[] = {&l->short_conv.in};
    const mo_linear *const mamba[] = {&l->mamba.x, &l->mamba.z, &l->mamba.dt_in};
    count = ahead_of_start(forward, l, list, count);
    switch (l->mixer) {
    case MO_MIXER_ATTENTION:
        return a->latent.plain ? mo_linears_ahead(latent, 2, n, list, count)
                               : mo_linears_ahead(plain, 3, n, list, count);
    case MO_MIXER_DELTA: return mo_linears_ahead(delta, 5, n, list, count);
    case MO_MIXER_SHORT_CONV: return mo_linears_ahead(conv, 1, n, list, count);
    case MO_MIXER_MAMBA: return mo_linears_ahead(mamba, 3, n, list, count);
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
