/* Routing: the feed-forward part's input, the router's logits, the choice of experts and their weights. */
#include <math.h>
#include <string.h>

#include "engine/forward.h"
#include "numeric/math.h"
#include "numeric/ops.h"

/* x += mixer's output, then the norms the feed-forward part reads: one token. */
static void take_mixer(const mo_forward *forward, int64_t t)
{
    const mo_layer *l = forward->layer;
    const int64_t n = forward->spec->width;
    const float eps = forward->spec->eps;
    float *x = forward->w->x + t * n;
    float *y = forward->w->y + t * n;
    if (l->post_mixer_norm) {
        forward->k->rms_norm(y, y, l->post_mixer_norm, n, eps);
    }
    forward->k->add(x, y, n);
    if (l->dense) {
        forward->k->rms_norm(forward->in_dense.x + t * n, x, l->ffn_norm, n, eps);
        mo_forward_quantize(forward->k, &forward->in_dense, t);
    }
    if (l->routed) {
        forward->k->rms_norm(forward->in.x + t * n, x, l->moe_norm ? l->moe_norm : l->ffn_norm, n, eps);
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

static void take_mixers(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        take_mixer(ctx, t);
    }
}

/* Experts outside the best groups cannot be chosen: a group counts with its two best. */
static void keep_best_groups(const mo_router *r, float *select, int experts)
{
    const int size = experts / r->groups;
    float score[64];
    int32_t best[64];
    bool kept[64] = {false};
    for (int g = 0; g < r->groups; g++) {
        int32_t two[2];
        mo_topk(select + g * size, size, size < 2 ? size : 2, two);
        score[g] = select[g * size + two[0]] + (size < 2 ? 0.0f : select[g * size + two[1]]);
    }
    mo_topk(score, r->groups, r->groups_used, best);
    for (int g = 0; g < r->groups_used; g++) {
        kept[best[g]] = true;
    }
    for (int e = 0; e < experts; e++) {
        if (!kept[e / size]) {
            select[e] = -INFINITY;
        }
    }
}

static void weigh(const mo_forward *forward, const float *probs, const int32_t *ids, float *weights)
{
    const mo_moe *moe = &forward->layer->moe;
    float sum = 0.0f;
    for (int r = 0; r < moe->used; r++) {
        weights[r] = probs[ids[r]];
    }
    if (moe->router.gating == MO_GATING_SOFTMAX_SELECTED) {
        forward->k->softmax(weights, moe->used);
    }
    for (int r = 0; r < moe->used; r++) {
        sum += weights[r];
    }
    for (int r = 0; moe->router.normalize && r < moe->used; r++) {
        weights[r] /= fmaxf(sum, 0x1p-14f);
    }
    for (int r = 0; moe->router.scale != 1.0f && r < moe->used; r++) {
        weights[r] *= moe->router.scale;
    }
}

static void choose(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_moe *moe = &forward->layer->moe;
    const mo_router *r = &moe->router;
    for (int64_t t = begin; t < end; t++) {
        float *probs = forward->w->scores + t * moe->experts;
        int32_t *ids = forward->w->ids + t * moe->used;
        float select[MO_EXPERTS_MAX];
        if (r->gating == MO_GATING_SOFTMAX) {
            forward->k->softmax(probs, moe->experts);
        } else if (r->gating == MO_GATING_SIGMOID) {
            forward->k->sigmoid(probs, probs, moe->experts);
        }
        memcpy(select, probs, sizeof(float) * (size_t)moe->experts);
        if (r->select_bias) {
            forward->k->add(select, r->select_bias, moe->experts);
        }
        if (r->groups > 1) {
            keep_best_groups(r, select, moe->experts);
        }
        mo_topk(select, moe->experts, moe->used, ids);
        weigh(forward, probs, ids, forward->w->weights + t * moe->used);
    }
}

int mo_forward_route(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_layer *l = forward->layer;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens;
    const bool own = l->routed && l->moe.router.input_scale;
    forward->in_router = own ? mo_acts_lay(w->in_router, n, forward->spec->width) : forward->in;
    phases[count++] = (mo_phase){take_mixers, forward, n, 1};
    if (l->routed) {
        mo_jobs_clear(&w->router);
        mo_jobs_add(&w->router, &l->moe.router.logits, &forward->in_router, NULL, n, w->scores,
                    l->moe.experts);
        phases[count++] = mo_jobs_phase(&w->router);
        phases[count++] = (mo_phase){choose, forward, n, 1};
    }
    return count;
}
