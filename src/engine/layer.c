/* A layer on the CPU: mixer, router and feed-forward part, one after the other. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/forward.h"

/* The adapter of the step with the largest scale, as its users know it: servers do not tell where files are. NULL: there is none. */
static const char *largest_adapter(const mo_forward *forward, double *scale)
{
    const mo_adapting *a = &forward->w->adapting;
    const char *path = NULL;
    *scale = 0;
    for (int i = 0; i < (a->count ? forward->slice_count : 0); i++) {
        const mo_adapting_use *use = a->uses + (int64_t)i * MO_ADAPTERS_USED;
        for (int n = 0; n < MO_ADAPTERS_USED && use[n].which >= 0; n++) {
            if (!path || fabs((double)use[n].scale) > fabs(*scale)) {
                path = a->lora[use[n].which]->path;
                *scale = (double)use[n].scale;
            }
        }
    }
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

mo_status mo_forward_not_finite(const mo_forward *forward, int layer, mo_error *err)
{
    char what[48] = "the logits are";
    double scale;
    const char *adapter = largest_adapter(forward, &scale);
    if (layer >= 0) {
        snprintf(what, sizeof what, "the output of layer %d is", layer);
    }
    return adapter
               ? mo_fail(err, MO_EUNSUPPORTED,
                         "%s not finite with the adapter %s at a scale of %g; use a smaller "
                         "scale; if this also happens without adapters, the model file is damaged",
                         what, adapter, scale)
               : mo_fail(err, MO_EFORMAT,
                         "%s not finite; the model file is damaged or made for another architecture", what);
}

mo_status mo_forward_no_codes(const mo_forward *forward, int layer, mo_error *err)
{
    double scale;
    const char *adapter = largest_adapter(forward, &scale);
    return adapter ? mo_fail(err, MO_EUNSUPPORTED,
                             "layer %d: keys or values exceed the range of this KV cache format with the "
                             "adapter %s at a scale of %g; use a smaller scale, or run again with `kv` f32",
                             layer, adapter, scale)
                   : mo_fail(err, MO_EUNSUPPORTED,
                             "layer %d: keys or values exceed the range of "
                             "this KV cache format; run again with `kv` f32",
                             layer);
}

static const mo_linear *out_of(const mo_layer *l)
{
    switch (l->mixer) {
    case MO_MIXER_ATTENTION: return &l->attention.out;
    case MO_MIXER_DELTA: return &l->delta.out;
    case MO_MIXER_SHORT_CONV: return &l->short_conv.out;
    case MO_MIXER_MAMBA: return &l->mamba.out;
    case MO_MIXER_NONE: break;
    }
    return NULL;
}

/* Where the layer's intermediate rows are, which its products read. */
static void lay_rows(mo_forward *forward)
{
    const mo_layer *l = forward->layer;
    const mo_workspace *w = forward->w;
    const mo_ffn *side = mo_forward_side(l);
    const int64_t n = forward->tokens;
    const bool own = l->routed && l->moe.router.input_scale;
    const mo_linear *out = out_of(l);
    forward->mixed = out ? mo_acts_lay(w->mixed, n, out->w.cols) : (mo_acts){0};
    forward->in_router = own ? mo_acts_lay(w->in_router, n, forward->spec->width) : forward->in;
    if (side) {
        forward->side_hidden = mo_acts_lay(w->side.hidden, n, side->up.w.rows);
    }
    if (l->routed) {
        forward->hidden = mo_acts_lay(w->hidden, n * l->moe.used, l->moe.width);
    }
}

void mo_forward_at(mo_forward *forward, int index)
{
    const mo_layer *l = &forward->spec->layers[index];
    forward->index = index;
    forward->layer = l;
    forward->in_experts = mo_layer_latent(l)
                              ? mo_acts_lay(forward->w->latent_experts.in, forward->tokens, l->moe.io)
                              : forward->in;
}

static void enter_layer(mo_forward *forward, int index)
{
    mo_forward_at(forward, index);
    forward->rope_row = 0;
    for (int r = 0; r < forward->engine->rope_count; r++) {
        if (forward->engine->ropes[r] == forward->layer->attention.rope) {
            forward->rope_row = 2 * r * forward->engine->batch * forward->w->rope_stride;
        }
    }
    lay_rows(forward);
}

void mo_forward_tell_routes(const mo_forward *forward)
{
    const int used = forward->layer->moe.used;
    const mo_tally_layer *tally = forward->tally ? mo_tally_find(forward->tally, forward->index) : NULL;
    for (int64_t t = 0; forward->layer->routed && t < forward->tokens; t++) {
        const mo_slice *s = &forward->slices[forward->w->slice_of[t]];
        const bool draft =
            forward->w->position[t] - s->state->length >= s->count - s->drafts; /* marked if accepted */
        for (int r = 0; tally && s->touch && !draft && r < used; r++) {
            mo_touch_mark(s->touch, tally, forward->w->picks.ids[t * used + r]);
        }
        if (s->routes) {
            s->routes(s->user, forward->index, forward->w->position[t] - s->state->length,
                      forward->w->picks.ids + t * used, forward->w->picks.weights + t * used, used);
        }
    }
}

/* Has a region been left unfinished? */
static mo_status stopped(const mo_forward *forward, mo_error *err)
{
    return forward->stoppable ? mo_forward_cancelled(forward, err) : MO_OK;
}

/* The mixer, and the product of its result with the output matrix. */
static int add_mixer(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_linear *out = out_of(forward->layer);
    mo_workspace *w = forward->w;
    switch (forward->layer->mixer) {
    case MO_MIXER_ATTENTION: count = mo_forward_attention(forward, phases, count); break;
    case MO_MIXER_DELTA: count = mo_forward_delta(forward, phases, count); break;
    case MO_MIXER_SHORT_CONV: count = mo_forward_short_conv(forward, phases, count); break;
    case MO_MIXER_MAMBA: count = mo_forward_mamba(forward, phases, count); break;
    case MO_MIXER_NONE: return count;
    }
    mo_jobs_clear(&w->phases.mixer_out);
    mo_jobs_add(&w->phases.mixer_out, out, &forward->mixed, NULL, forward->tokens, w->y,
                forward->spec->width);
    return mo_jobs_phases(&w->phases.mixer_out, phases, count);
}

/* Waits for a core that comes from disk. */
static mo_status enter_core(const mo_forward *forward, mo_tiers *tiers, int index, mo_error *err)
{
    const int64_t began = forward->split ? mo_clock_ns() : 0;
    const mo_status status = mo_layer_buffer_enter(tiers->layers, index, err);
    if (forward->split) {
        forward->split->part_ns[MO_PART_COPIES] += mo_clock_ns() - began;
    }
    return status;
}

/* Behind one of the first layers: the vectors that rows of pictures have for it. */
static void add_features(const mo_forward *forward, int index)
{
    const int64_t n = forward->spec->width;
    for (int64_t t = 0; mo_forward_has_features(forward, index) && t < forward->tokens; t++) {
        const float *row = mo_forward_feature(forward, index, t);
        if (row) {
            forward->k->add(forward->w->x + t * n, row, n);
        }
    }
}

mo_status mo_forward_run_layer(mo_forward *forward, int index, mo_error *err)
{
    mo_tiers *tiers = forward->engine->tiers;
    mo_phase phases[MO_PHASES_MAX];
    int count = 0;
    enter_layer(forward, index);
    mo_status status = tiers && tiers->layers ? enter_core(forward, tiers, index, err) : MO_OK;
    if (status != MO_OK) {
        return status;
    }
    if (forward->spec->streams.count) {
        count = mo_forward_streams_mixer(forward, phases, count);
    } else {
        phases[count++] = mo_forward_mixer_input(forward);
    }
    count = add_mixer(forward, phases, count);
    count = mo_forward_route(forward, phases, count);
    /* Before experts nothing is asked for that is read behind them: it would have left the cache again. */
    forward->next = forward->layer->routed ? 0 : index + 2;
    mo_forward_run(forward, phases, count);
    forward->next = index + 2;
    forward->routing_ns = forward->engine->timed ? mo_clock_ns() - forward->routed_from : 0;
    status = stopped(forward, err); /* then the choice of experts is not there either */
    if (status == MO_OK) {
        mo_forward_tell_routes(forward);
        mo_forward_tell_kept(forward);
        status = mo_forward_feed_forward(forward, err);
    }
    if (status == MO_OK && forward->spec->streams.count) {
        mo_forward_streams_end(forward);
    }
    forward->next = 0;
    add_features(forward, index);
    if (status == MO_OK) { /* before its numbers are checked */
        status = stopped(forward, err);
    }
    if (tiers && tiers->layers) {
        mo_layer_buffer_leave(tiers->layers, index);
    }
    if (status != MO_OK) {
        return status;
    }
    if (atomic_load(&forward->overflow)) {
        return mo_forward_no_codes(forward, index, err);
    }
    if (atomic_load(&forward->infinite)) {
        return mo_forward_not_finite(forward, index, err);
    }
    return MO_OK;
}

mo_status mo_forward_run_layers(mo_forward *forward, int from, int to, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = from; i < to && status == MO_OK; i++) {
        status = mo_forward_cancelled(forward, err);
        if (status == MO_OK) {
            status = mo_forward_run_layer(forward, i, err);
        }
        if (status == MO_OK) {
            atomic_fetch_add_explicit(&forward->engine->layers_run, 1, memory_order_relaxed);
        }
    }
    return status;
}
