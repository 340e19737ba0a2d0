/* Products in bfloat16 on the host. */
#include "numeric/bf16.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/status.h"
#include "device/host/ops.h"
#include "numeric/half.h"

mo_status mo_op_host_round(mo_op_job *job, const mo_op_round *o)
{
    if (o->count == 0) {
        return MO_OK;
    }
    const float *from = mo_op_floats(job, "from", o->from, o->count);
    uint16_t *to = mo_op_part(job, "to", o->to, o->count * 2);
    if (job->status == MO_OK) {
        mo_bf16_round(from, o->count, to);
    }
    return job->status;
}

mo_status mo_op_host_to_bf16(mo_op_job *job, const mo_op_to_bf16 *o)
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
            mo_bf16_decode(m.w.type, m.w.data, values, to);
        }
    }
    return job->status;
}

enum { TOKENS = 16 }; /* that are multiplied together */

/* Everything that the rows of an op have in common. */
typedef struct multiplying {
    mo_op_job *job;
    const mo_op_bf16 *o;
    const int32_t *pick;
    float *y;
    float *x; /* [TOKENS][cols], the rows in hand as floats */
} multiplying;

/* As a matrix of floats is multiplied, whose 32 lanes are the order of these sums (numeric/bf16.h). */
static void run_rows(const multiplying *p, const uint16_t *bf16, const float *scale, const float *bias,
                     int64_t row, int64_t count)
{
    const mo_op_bf16 *o = p->o;
    const int64_t cols = o->matrix.cols;
    const mo_op_matrix m = {
        .w = {.type = MO_BF16, .rows = o->matrix.rows, .cols = cols, .data = (const uint8_t *)bf16},
        .scale = scale,
        .bias = bias};
    for (int64_t t = 0; t < count; t++) {
        const int64_t from = p->pick ? p->pick[row + t] : row + t;
        if (from < 0) {
            mo_op_refuse(p->job, "picks row %" PRId64, from);
            return;
        }
        const uint16_t *in = mo_op_part(p->job, "in", o->in + (mo_daddr)(from * cols * 2), cols * 2);
        if (!in) {
            return;
        }
        for (int64_t i = 0; i < cols; i++) {
            p->x[t * cols + i] = mo_bf16_to_f32(in[i]);
        }
    }
    const mo_acts acts = {.rows = count, .cols = cols, .x = p->x};
    mo_op_multiply(p->job, &m, 0, o->matrix.rows, &acts, NULL, count, p->y + row * o->stride, o->stride);
}

static void run_group(const multiplying *p, int number, const mo_dgroup *g)
{
    const mo_dmatrix *m = &p->o->matrix;
    const int64_t values = (int64_t)m->rows * m->cols;
    if (g->first < 0 || g->count < 0 || g->first > p->o->rows - g->count || g->count > p->o->most) {
        mo_op_refuse(p->job, "has a group of rows that do not exist");
    }
    if (g->count == 0 || p->job->status != MO_OK) {
        return;
    }
    const uint16_t *bf16 =
        mo_op_part(p->job, "wide", p->o->bf16 + (mo_daddr)(number * values * 2), values * 2);
    const float *scale =
        mo_op_floats_or_none(p->job, "matrix.scale", m->scale ? m->scale + (mo_daddr)g->expert * 4 : 0, 1);
    const float *bias = mo_op_floats_or_none(
        p->job, "matrix.bias", m->bias ? m->bias + (mo_daddr)((int64_t)g->expert * m->rows) * 4 : 0, m->rows);
    for (int64_t i = 0; i < g->count && p->job->status == MO_OK; i += TOKENS) {
        run_rows(p, bf16, scale, bias, g->first + i, g->count - i < TOKENS ? g->count - i : TOKENS);
    }
}

mo_status mo_op_host_bf16(mo_op_job *job, const mo_op_bf16 *o)
{
    if (o->rows == 0 || o->count == 0) {
        return MO_OK;
    }
    const mo_dgroup alone = {.count = o->rows};
    const multiplying p = {.job = job,
                           .o = o,
                           .pick = mo_op_part_or_none(job, "pick", o->pick, o->rows * INT64_C(4)),
                           .y = mo_op_floats(job, "y", o->y, (o->rows - 1) * o->stride + o->matrix.rows),
                           .x = aligned_alloc(64, sizeof(float) * TOKENS * (size_t)o->matrix.cols)};
    const mo_dgroup *groups =
        o->groups ? mo_op_part(job, "groups", o->groups, o->count * (int64_t)sizeof *groups) : &alone;
    const int count = o->groups ? o->count : 1;
    if (!p.x) {
        job->status =
            mo_fail(job->err, MO_ENOMEM, "out of memory for %d rows of %d values", TOKENS, o->matrix.cols);
    }
    for (int i = 0; i < count && job->status == MO_OK; i++) {
        run_group(&p, i, &groups[i]);
    }
    free(p.x);
    return job->status;
}
