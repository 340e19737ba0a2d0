/* The router's choice on the host: engine/route.c's choose(), and the worklist of what lies on the device. */
#include <math.h>
#include <string.h>

#include "device/host/ops.h"
#include "numeric/kinds.h"
#include "numeric/ops.h"

/* Experts outside the best groups cannot be chosen: a group counts with its two best. */
static void keep_best_groups(const mo_op_choose *o, float *select)
{
    const int size = o->experts / o->groups;
    float score[MO_OP_GROUPS];
    int32_t best[MO_OP_GROUPS];
    bool kept[MO_OP_GROUPS] = {false};
    for (int g = 0; g < o->groups; g++) {
        int32_t two[2];
        mo_topk(select + g * size, size, size < 2 ? size : 2, two);
        score[g] = select[g * size + two[0]] + (size < 2 ? 0.0f : select[g * size + two[1]]);
    }
    mo_topk(score, o->groups, o->groups_used, best);
    for (int g = 0; g < o->groups_used; g++) {
        kept[best[g]] = true;
    }
    for (int e = 0; e < o->experts; e++) {
        if (!kept[e / size]) {
            select[e] = -INFINITY;
        }
    }
}

static void weigh(const mo_kernels *k, const mo_op_choose *o, const float *probs, const int32_t *ids,
                  float *weights)
{
    float sum = 0.0f;
    for (int r = 0; r < o->used; r++) {
        weights[r] = probs[ids[r]];
    }
    if (o->gating == MO_GATING_SOFTMAX_SELECTED) {
        k->softmax(weights, o->used);
    }
    for (int r = 0; r < o->used; r++) {
        sum += weights[r];
    }
    for (int r = 0; o->normalize && r < o->used; r++) {
        weights[r] /= fmaxf(sum, 0x1p-14f);
    }
    for (int r = 0; o->scale != 1.0f && r < o->used; r++) {
        weights[r] *= o->scale;
    }
}

static void choose(const mo_kernels *k, const mo_op_choose *o, float *probs, const float *select_bias,
                   int32_t *ids, float *weights)
{
    float select[MO_OP_EXPERTS];
    if (o->gating == MO_GATING_SOFTMAX) {
        k->softmax(probs, o->experts);
    } else if (o->gating == MO_GATING_SIGMOID) {
        k->sigmoid(probs, probs, o->experts);
    }
    memcpy(select, probs, sizeof(float) * (size_t)o->experts);
    if (select_bias) {
        k->add(select, select_bias, o->experts);
    }
    if (o->groups > 1) {
        keep_best_groups(o, select);
    }
    mo_topk(select, o->experts, o->used, ids);
    weigh(k, o, probs, ids, weights);
}

static void list_work(const mo_op_choose *o, const int32_t *ids, const mo_daddr *table, mo_dwork *work)
{
    mo_dwork_item *items = (mo_dwork_item *)(void *)(work + 1);
    *work = (mo_dwork){0};
    for (int32_t row = 0; row < o->tokens * o->used; row++) {
        const mo_daddr base = table[ids[row]];
        if (base) {
            items[work->count++] =
                (mo_dwork_item){.base = base, .expert = ids[row], .token = row / o->used, .row = row};
        } else {
            work->missing++;
        }
    }
}

mo_status mo_op_host_choose(mo_op_job *job, const mo_op_choose *o)
{
    const int64_t picks = (int64_t)o->tokens * o->used;
    if (o->tokens == 0) {
        return MO_OK;
    }
    float *scores = mo_op_floats(job, "scores", o->scores, (int64_t)o->tokens * o->experts);
    const float *select_bias = mo_op_floats_or_none(job, "select_bias", o->select_bias, o->experts);
    int32_t *ids = mo_op_part(job, "ids", o->ids, picks * 4);
    float *weights = mo_op_floats(job, "weights", o->weights, picks);
    const mo_daddr *table =
        mo_op_part_or_none(job, "table", o->table, o->experts * (int64_t)sizeof(mo_daddr));
    mo_dwork *work = table ? mo_op_part(job, "work", o->work,
                                        (int64_t)sizeof(mo_dwork) + picks * (int64_t)sizeof(mo_dwork_item))
                           : NULL;
    for (int64_t t = 0; job->status == MO_OK && t < o->tokens; t++) {
        choose(job->k, o, scores + t * o->experts, select_bias, ids + t * o->used, weights + t * o->used);
    }
    if (job->status == MO_OK && table) {
        list_work(o, ids, table, work);
    }
    return job->status;
}
