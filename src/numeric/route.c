#include "numeric/route.h"

#include <math.h>
#include <string.h>

#include "numeric/ops.h"

/* Experts outside the best groups cannot be chosen: a group counts with its two best. */
static void keep_best_groups(const mo_routing *r, float *select)
{
    const int size = r->experts / r->groups;
    float score[MO_ROUTE_GROUPS];
    int32_t best[MO_ROUTE_GROUPS];
    bool kept[MO_ROUTE_GROUPS] = {false};
    for (int g = 0; g < r->groups; g++) {
        int32_t two[2];
        mo_topk(select + g * size, size, size < 2 ? size : 2, two);
        score[g] = select[g * size + two[0]] + (size < 2 ? 0.0f : select[g * size + two[1]]);
    }
    mo_topk(score, r->groups, r->groups_used, best);
    for (int g = 0; g < r->groups_used; g++) {
        kept[best[g]] = true;
    }
    for (int e = 0; e < r->experts; e++) {
        if (!kept[e / size]) {
            select[e] = -INFINITY;
        }
    }
}

static void weigh(const mo_kernels *k, const mo_routing *r, const float *probs, const int32_t *ids,
                  float *weights)
{
    float sum = 0.0f;
    for (int i = 0; i < r->used; i++) {
        weights[i] = probs[ids[i]];
    }
    if (r->gating == MO_GATING_SOFTMAX_SELECTED) {
        k->softmax(weights, r->used);
    }
    for (int i = 0; i < r->used; i++) {
        sum += weights[i];
    }
    for (int i = 0; r->normalize && i < r->used; i++) {
        weights[i] /= fmaxf(sum, 0x1p-14f);
    }
    for (int i = 0; r->scale != 1.0f && i < r->used; i++) {
        weights[i] *= r->scale;
    }
}

/* Logits become what is chosen by. */
static void gate(const mo_kernels *k, const mo_routing *r, float *scores)
{
    if (r->gating == MO_GATING_SOFTMAX) {
        k->softmax(scores, r->experts);
    } else if (r->gating == MO_GATING_SIGMOID) {
        k->sigmoid(scores, scores, r->experts);
    } else if (r->gating == MO_GATING_ROOT_SOFTPLUS) {
        k->softplus(scores, scores, r->experts);
        for (int e = 0; e < r->experts; e++) {
            scores[e] = sqrtf(scores[e]);
        }
    }
}

void mo_route_given(const mo_kernels *k, const mo_routing *r, float *scores, const float *given, int32_t *ids,
                    float *weights)
{
    gate(k, r, scores);
    for (int i = 0; i < r->used; i++) {
        ids[i] = (int32_t)given[i];
    }
    weigh(k, r, scores, ids, weights);
}

void mo_route(const mo_kernels *k, const mo_routing *r, float *scores, const float *select_bias, int32_t *ids,
              float *weights)
{
    float select[MO_ROUTE_EXPERTS];
    gate(k, r, scores);
    memcpy(select, scores, sizeof(float) * (size_t)r->experts);
    if (select_bias) {
        k->add(select, select_bias, r->experts);
    }
    if (r->groups > 1) {
        keep_best_groups(r, select);
    }
    mo_topk(select, r->experts, r->used, ids);
    weigh(k, r, scores, ids, weights);
}
