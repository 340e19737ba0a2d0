/* What adapters add to products, on the host. */
#include <inttypes.h>

#include "device/host/ops.h"

/* Everything that the rows of an op have in common. */
typedef struct adapting {
    mo_op_job *job;
    const mo_op_adapt *o;
    const float *in;
    const int32_t *pick;
    const mo_dadapter_use *uses;
    float *u, *y;
} adapting;

static adapting adapting_of(mo_op_job *job, const mo_op_adapt *o)
{
    return (adapting){.job = job,
                      .o = o,
                      .in = mo_op_floats(job, "in", o->in, (int64_t)o->in_rows * o->cols),
                      .pick = mo_op_part_or_none(job, "pick", o->pick, o->rows * INT64_C(4)),
                      .uses = mo_op_part(job, "uses", o->uses,
                                         (int64_t)o->tokens * MO_OP_USES * (int64_t)sizeof(mo_dadapter_use)),
                      .u = mo_op_floats(job, "u", o->u, (int64_t)o->rows * o->u_stride),
                      .y = o->y ? mo_op_floats(job, "y", o->y, (o->rows - 1) * o->stride + o->n) : NULL};
}

/* The adapters of a row's token; NULL after a refusal. */
static const mo_dadapter_use *uses_of(const adapting *a, int64_t row)
{
    const int64_t token = a->pick ? a->pick[row] : a->o->first + row;
    if (token < 0 || token >= a->o->tokens) {
        mo_op_refuse(a->job, "has a row of token %" PRId64 "; there are %d", token, a->o->tokens);
        return NULL;
    }
    return a->uses + token * MO_OP_USES;
}

static void lower_row(const adapting *a, int64_t row, int32_t expert)
{
    const mo_op_adapt *o = a->o;
    const int64_t from = o->gathers && a->pick ? a->pick[row] : row;
    const mo_dadapter_use *use = uses_of(a, row);
    if (use && (from < 0 || from >= o->in_rows)) {
        mo_op_refuse(a->job, "reads row %" PRId64 " of %d", from, o->in_rows);
        return;
    }
    for (int k = 0; use && k < MO_OP_USES && use[k].which >= 0; k++) {
        const mo_dlow *l = &o->low[use[k].which];
        if (!l->a) {
            continue;
        }
        const mo_weights w = {
            .data = mo_op_part(a->job, "a", l->a + (mo_daddr)(expert * l->a_stride), l->a_bytes),
            .type = (mo_type)l->type,
            .rows = l->rank,
            .cols = o->cols};
        const mo_acts acts = {.rows = 1, .cols = o->cols, .x = (float *)a->in + from * o->cols};
        if (a->job->status == MO_OK) {
            a->job->k->product(&w, 0, l->rank, &acts, NULL, 1, a->u + row * o->u_stride + l->u_at, l->rank,
                               a->job->scratch);
        }
    }
}

static void adapt_row(const adapting *a, int64_t row, int32_t expert)
{
    const mo_op_adapt *o = a->o;
    const mo_dadapter_use *use = uses_of(a, row);
    for (int k = 0; use && k < MO_OP_USES && use[k].which >= 0; k++) {
        const mo_dlow *l = &o->low[use[k].which];
        if (!l->a) {
            continue;
        }
        const float *b =
            mo_op_floats(a->job, "b", l->b + (mo_daddr)(expert * l->b_stride), (int64_t)l->rank * o->n);
        if (a->job->status == MO_OK) {
            a->job->k->low_rank(a->y + row * o->stride, b, o->n, a->u + row * o->u_stride + l->u_at, l->rank,
                                mo_dlow_factor(l, use[k].scale), o->n);
        }
    }
}

static mo_status each_row(mo_op_job *job, const mo_op_adapt *o,
                          void (*row)(const adapting *a, int64_t row, int32_t expert))
{
    if (o->rows == 0) {
        return MO_OK;
    }
    const adapting a = adapting_of(job, o);
    const mo_dgroup all = {.count = o->rows};
    const mo_dgroup *groups =
        o->groups ? mo_op_part(job, "groups", o->groups, o->group_count * (int64_t)sizeof *groups) : &all;
    const int count = o->groups ? o->group_count : 1;
    for (int g = 0; g < count && job->status == MO_OK; g++) {
        if (groups[g].first < 0 || groups[g].count < 0 || groups[g].first + groups[g].count > o->rows) {
            mo_op_refuse(job, "has a group of rows that do not exist");
        }
        for (int64_t i = groups[g].first; i < groups[g].first + groups[g].count && job->status == MO_OK;
             i++) {
            row(&a, i, groups[g].expert);
        }
    }
    return job->status;
}

mo_status mo_op_host_lower(mo_op_job *job, const mo_op_adapt *o)
{
    return each_row(job, o, lower_row);
}

mo_status mo_op_host_adapt(mo_op_job *job, const mo_op_adapt *o)
{
    return each_row(job, o, adapt_row);
}
