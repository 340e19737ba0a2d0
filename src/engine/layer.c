/* A layer on the CPU: mixer, router and feed-forward part, one after the other. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "engine/forward.h"

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

static void enter_layer(mo_forward *forward, int index)
{
    forward->index = index;
    forward->layer = &forward->spec->layers[index];
    forward->rope_row = 0;
    for (int r = 0; r < forward->engine->rope_count; r++) {
        if (forward->engine->ropes[r] == forward->layer->attention.rope) {
            forward->rope_row = 2 * r * forward->engine->batch * forward->w->rope_stride;
        }
    }
}

void mo_forward_tell_routes(const mo_forward *forward)
{
    const int used = forward->layer->moe.used;
    const mo_tally_layer *tally = forward->tally ? mo_tally_find(forward->tally, forward->index) : NULL;
    for (int64_t t = 0; forward->layer->routed && t < forward->tokens; t++) {
        const mo_slice *s = &forward->slices[forward->w->slice_of[t]];
        for (int r = 0; tally && s->touch && r < used; r++) {
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

static int add_mixer(mo_forward *forward, mo_phase *phases, int count)
{
    switch (forward->layer->mixer) {
    case MO_MIXER_ATTENTION: return mo_forward_attention(forward, phases, count);
    case MO_MIXER_DELTA: return mo_forward_delta(forward, phases, count);
    case MO_MIXER_SHORT_CONV: return mo_forward_short_conv(forward, phases, count);
    case MO_MIXER_MAMBA: return mo_forward_mamba(forward, phases, count);
    }
    return count;
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
    phases[count++] = mo_forward_mixer_input(forward);
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
        status = mo_forward_feed_forward(forward, err);
    }
    forward->next = 0;
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
