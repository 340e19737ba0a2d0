/* The router's choice on the host, and the worklist of what is on the device. */
#include "numeric/route.h"
#include "device/host/ops.h"

_Static_assert((int)MO_OP_EXPERTS <= (int)MO_ROUTE_EXPERTS && (int)MO_OP_GROUPS <= (int)MO_ROUTE_GROUPS,
               "what ops may have");

static void list_work(const mo_op_choose *o, const int32_t *ids, const mo_daddr *table, mo_dwork *work)
{
    mo_dwork_item *items = (mo_dwork_item *)(void *)(work + 1);
    const int32_t rows = o->tokens * o->used;
    const bool sorted = o->tokens > 1 && rows <= MO_OP_SORTED;
    *work = (mo_dwork){0};
    for (int32_t row = 0; row < rows; row++) {
        const mo_daddr base = table[ids[row]];
        if (!base) {
            work->missing++;
            continue;
        }
        int32_t at = work->count++;
        for (; sorted && at > 0 && items[at - 1].expert > ids[row]; at--) {
            items[at] = items[at - 1];
        }
        items[at] = (mo_dwork_item){.base = base, .expert = ids[row], .token = row / o->used, .row = row};
    }
}

mo_status mo_op_host_choose(mo_op_job *job, const mo_op_choose *o)
{
    const int64_t picks = (int64_t)o->tokens * o->used;
    const mo_routing routing = {.experts = o->experts,
                                .used = o->used,
                                .gating = (mo_gating)o->gating,
                                .normalize = o->normalize,
                                .scale = o->scale,
                                .groups = o->groups,
                                .groups_used = o->groups_used};
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
        mo_route(job->k, &routing, scores + t * o->experts, select_bias, ids + t * o->used,
                 weights + t * o->used);
    }
    if (job->status == MO_OK && table) {
        list_work(o, ids, table, work);
    }
    return job->status;
}
