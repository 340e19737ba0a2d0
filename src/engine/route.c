/* Routing: the feed-forward part's input, the router's logits, the choice of experts and their weights. */
#include <math.h>

#include "base/clock.h"
#include "engine/forward.h"
#include "numeric/route.h"

/* For one token: x += the mixer's output, then the norms that the feed-forward part reads. */
static void add_mixer(const mo_forward *forward, int64_t t)
{
    const mo_layer *l = forward->layer;
    const int64_t n = forward->spec->width;
    const float eps = forward->spec->eps;
    float *x = forward->w->x + t * n;
    float *y = forward->w->y + t * n;
    if (l->mixer == MO_MIXER_NONE) {
        return; /* the only norm is in forward->in */
    }
    if (l->post_mixer_norm) {
        forward->k->rms_norm(y, y, l->post_mixer_norm, n, eps);
    }
    forward->k->add(x, y, n);
    if (l->parallel) {
        return; /* the mixer's input is also this part's input */
    }
    if (l->dense) {
        mo_forward_norm(forward, forward->in_dense.x + t * n, x, l->ffn_norm, l->ffn_norm_bias);
        mo_forward_quantize(forward->k, &forward->in_dense, t);
    }
    if (l->routed) {
        mo_forward_norm(forward, forward->in.x + t * n, x, mo_layer_experts_norm(l),
                        mo_layer_experts_norm_bias(l));
        mo_forward_quantize(forward->k, &forward->in, t);
    }
    if (l->routed && l->moe.router.input_scale) {
        float *r = forward->in_router.x + t * n;
        forward->k->rms_norm(r, x, NULL, n, eps);
        forward->k->scale(r, 1.0f / sqrtf((float)n), n);
        forward->k->multiply(r, l->moe.router.input_scale, n);
        mo_forward_quantize(forward->k, &forward->in_router, t);
    }
}

static void add_mixers(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    for (int64_t t = begin; t < end; t++) {
        add_mixer(forward, t);
    }
    if (end == forward->tokens && forward->engine->timed) { /* only one thread has the last token */
        forward->routed_from = mo_clock_ns();
    }
}

_Static_assert((int)MO_EXPERTS_MAX <= (int)MO_ROUTE_EXPERTS, "what families may have");

const float *mo_forward_given(const mo_forward *forward, const mo_router *r, int used, int64_t t)
{
    const mo_slice *s = &forward->slices[forward->w->slice_of[t]];
    return r->by_token + (int64_t)s->tokens[forward->w->position[t] - s->state->length] * used;
}

static void choose(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_moe *moe = &forward->layer->moe;
    const mo_router *r = &moe->router;
    const mo_routing routing = {.experts = moe->experts,
                                .used = moe->used,
                                .gating = r->gating,
                                .normalize = r->normalize,
                                .scale = r->scale,
                                .groups = r->groups,
                                .groups_used = r->groups_used};
    for (int64_t t = begin; t < end; t++) {
        float *scores = forward->w->scores + t * moe->experts,
              *weights = forward->w->picks.weights + t * moe->used;
        int32_t *ids = forward->w->picks.ids + t * moe->used;
        if (r->by_token) {
            mo_route_given(forward->k, &routing, scores, mo_forward_given(forward, r, moe->used, t), ids,
                           weights);
        } else {
            mo_route(forward->k, &routing, scores, r->select_bias, ids, weights);
        }
        if (mo_layer_latent(forward->layer)) {
            mo_forward_quantize(forward->k, &forward->in_experts, t);
        }
    }
}

int mo_forward_route(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_layer *l = forward->layer;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    if (forward->spec->streams.count) {
        count = mo_forward_streams_ffn(forward, phases, count);
    } else {
        phases[count++] =
            (mo_phase){.fn = add_mixers, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_OTHER};
    }
    if (l->routed) {
        mo_jobs_clear(&w->phases.router);
        mo_jobs_add(&w->phases.router, &l->moe.router.logits, &forward->in_router, NULL, n, w->scores,
                    l->moe.experts);
        mo_jobs_add(&w->phases.router, &l->moe.latent_down, &forward->in, NULL, n, forward->in_experts.x,
                    l->moe.io);
        count = mo_jobs_phases_of(&w->phases.router, phases, count, MO_PART_ROUTING);
        phases[count++] =
            (mo_phase){.fn = choose, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ROUTING};
    }
    return count;
}
