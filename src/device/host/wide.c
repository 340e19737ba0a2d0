/* Products in bfloat16 on the host. */
#include "numeric/wide.h"

#include <inttypes.h>

#include "device/host/ops.h"
#include "numeric/merge.h"

mo_status mo_op_host_round(mo_op_job *job, const mo_op_round *o)
{
    if (o->count == 0) {
        return MO_OK;
    }
    const float *from = mo_op_floats(job, "from", o->from, o->count);
    uint16_t *to = mo_op_part(job, "to", o->to, o->count * 2);
    if (job->status == MO_OK) {
        mo_wide_round(from, o->count, to);
    }
    return job->status;
}

mo_status mo_op_host_widen(mo_op_job *job, const mo_op_widen *o)
{
    const mo_dgroup alone = {.data = o->matrix.data, .count = 1};
    const mo_dgroup *groups =
        o->groups ? mo_op_part(job, "groups", o->groups, o->count * (int64_t)sizeof *groups) : &alone;
    const int64_t values = (int64_t)o->matrix.rows * o->matrix.cols;
    const int count = o->groups || o->count == 0 ? o->count : 1;
    for (int i = 0; i < count && job->status == MO_OK; i++) {
        if (groups[i].count == 0) {
            continue;
        }
        const mo_op_matrix m = mo_op_matrix_at(job, "matrix", &o->matrix, groups[i].data, 0);
        uint16_t *to = mo_op_part(job, "to", o->to + (mo_daddr)(i * values * 2), values * 2);
        if (job->status == MO_OK) {
            mo_wide_decode(m.w.type, m.w.data, values, to);
        }
    }
    return job->status;
}

/* Everything that the rows of an op have in common. */
typedef struct multiplying {
    mo_op_job *job;
    const mo_op_wide *o;
    const int32_t *pick;
    float *y;
} multiplying;

static void run_row(const multiplying *p, const uint16_t *wide, const float *scale, const float *bias,
                    int64_t row)
{
    const mo_op_wide *o = p->o;
    const int64_t cols = o->matrix.cols, from = p->pick ? p->pick[row] : row;
    float *y = p->y + row * o->stride;
    if (from < 0) {
        mo_op_refuse(p->job, "picks row %" PRId64, from);
        return;
    }
    const uint16_t *x = mo_op_part(p->job, "in", o->in + (mo_daddr)(from * cols * 2), cols * 2);
    for (int64_t r = 0; x && r < o->matrix.rows; r++) {
        y[r] = mo_wide_dot(wide + r * cols, x, cols);
    }
    if (x) {
        mo_finish_product(scale, bias, o->matrix.rows, 1, y, o->stride);
    }
}

static void run_group(const multiplying *p, int number, const mo_dgroup *g)
{
    const mo_dmatrix *m = &p->o->matrix;
    const int64_t values = (int64_t)m->rows * m->cols;
    if (g->first < 0 || g->count < 0 || g->first > p->o->rows - g->count || g->count > p->o->most) {
        mo_op_refuse(p->job, "has a group of rows that there are not");
    }
    if (g->count == 0 || p->job->status != MO_OK) {
        return;
    }
    const uint16_t *wide =
        mo_op_part(p->job, "wide", p->o->wide + (mo_daddr)(number * values * 2), values * 2);
    const float *scale =
        mo_op_floats_or_none(p->job, "matrix.scale", m->scale ? m->scale + (mo_daddr)g->expert * 4 : 0, 1);
    const float *bias = mo_op_floats_or_none(
        p->job, "matrix.bias", m->bias ? m->bias + (mo_daddr)((int64_t)g->expert * m->rows) * 4 : 0, m->rows);
    for (int64_t i = 0; i < g->count && p->job->status == MO_OK; i++) {
        run_row(p, wide, scale, bias, g->first + i);
    }
}

mo_status mo_op_host_wide(mo_op_job *job, const mo_op_wide *o)
{
    if (o->rows == 0 || o->count == 0) {
        return MO_OK;
    }
    const mo_dgroup alone = {.count = o->rows};
    const multiplying p = {.job = job,
                           .o = o,
                           .pick = mo_op_part_or_none(job, "pick", o->pick, o->rows * INT64_C(4)),
                           .y = mo_op_floats(job, "y", o->y, (o->rows - 1) * o->stride + o->matrix.rows)};
    const mo_dgroup *groups =
        o->groups ? mo_op_part(job, "groups", o->groups, o->count * (int64_t)sizeof *groups) : &alone;
    const int count = o->groups ? o->count : 1;
    for (int i = 0; i < count && job->status == MO_OK; i++) {
        run_group(&p, i, &groups[i]);
    }
    return job->status;
}
