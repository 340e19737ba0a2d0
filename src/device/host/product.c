/* Products and activations on the host. */
#include <inttypes.h>
#include <stdio.h>

#include "device/host/ops.h"
#include "numeric/merge.h"

mo_op_matrix mo_op_matrix_at(mo_op_job *job, const char *operand, const mo_dmatrix *m, mo_daddr data,
                             int64_t expert)
{
    const mo_format *f = mo_format_of((uint32_t)m->type);
    mo_op_matrix out = {.w = {.type = (mo_type)m->type, .rows = m->rows, .cols = m->cols}};
    if (!f || f->kind == MO_KIND_INTEGER || m->cols % f->block_values != 0) {
        mo_op_refuse(job, "cannot multiply by %s of type %d with rows of %d values", operand, m->type,
                     m->cols);
        return out;
    }
    char name[64];
    out.w.data = mo_op_part(job, operand, data, m->rows * mo_format_row_bytes(f, m->cols));
    snprintf(name, sizeof name, "%s.scale", operand);
    out.scale = mo_op_floats_or_none(job, name, m->scale ? m->scale + (mo_daddr)expert * 4 : 0, 1);
    snprintf(name, sizeof name, "%s.bias", operand);
    out.bias =
        mo_op_floats_or_none(job, name, m->bias ? m->bias + (mo_daddr)(expert * m->rows) * 4 : 0, m->rows);
    return out;
}

mo_acts mo_op_acts_for(mo_op_job *job, const char *operand, const mo_dacts *a, int64_t rows,
                       const mo_dmatrix *m)
{
    const mo_format *f = mo_format_of((uint32_t)m->type);
    const bool codes = f && f->kind == MO_KIND_QUANTIZED;
    if (a->cols != m->cols || (codes && a->cols % 32 != 0)) {
        mo_op_refuse(job, "has rows of %d values in %s for a matrix with %d columns", a->cols, operand,
                     m->cols);
    }
    return mo_op_acts(job, operand, a, rows, !codes, codes);
}

void mo_op_multiply(const mo_op_job *job, const mo_op_matrix *m, int64_t begin, int64_t end,
                    const mo_acts *acts, const int32_t *pick, int64_t count, float *y, int64_t stride)
{
    mo_weights w = m->w;
    const int64_t rows = end - begin;
    w.data += begin * mo_format_row_bytes(mo_format_of(w.type), w.cols);
    w.rows = rows;
    job->k->product(&w, 0, rows, acts, pick, count, y, stride, job->scratch);
    mo_finish_product(m->scale, m->bias ? m->bias + begin : NULL, rows, count, y, stride);
}

mo_status mo_op_host_product(mo_op_job *job, const mo_op_product *o)
{
    mo_op_matrix matrix[MO_OP_MATRICES];
    mo_acts in[MO_OP_MATRICES];
    float *y[MO_OP_MATRICES];
    if (o->tokens == 0) {
        return MO_OK;
    }
    for (int i = 0; i < o->count; i++) {
        const mo_dmatrix *m = &o->matrix[i];
        matrix[i] = mo_op_matrix_at(job, "matrix", m, m->data, 0);
        in[i] = mo_op_acts_for(job, "in", &o->in, o->tokens, m);
        y[i] = mo_op_floats(job, "y", o->y[i], (o->tokens - 1) * o->stride[i] + m->rows);
    }
    for (int i = 0; job->status == MO_OK && i < o->count; i++) {
        mo_op_multiply(job, &matrix[i], 0, o->matrix[i].rows, &in[i], NULL, o->tokens, y[i], o->stride[i]);
    }
    return job->status;
}

/* ---- Groups ----------------------------------------------------------------------------------- */

/* One more than the last activation row that the groups read; their rows are checked on the way. */
static int64_t rows_read(mo_op_job *job, const mo_op_grouped *o, const mo_dgroup *groups, const int32_t *pick)
{
    int64_t rows = 0;
    for (int g = 0; g < o->count; g++) {
        const int64_t first = groups[g].first, end = first + groups[g].count;
        if (first < 0 || end < first || end > o->rows || end - first > o->most) {
            mo_op_refuse(job,
                         "has a group of rows %" PRId64 " to %" PRId64
                         ", but there are %d rows and %d in the largest group",
                         first, end, o->rows, o->most);
            return 0;
        }
        for (int64_t i = first; i < end; i++) {
            const int64_t row = pick ? pick[i] : i;
            if (row < 0) {
                mo_op_refuse(job, "picks row %" PRId64, row);
            }
            rows = row >= rows ? row + 1 : rows;
        }
    }
    return rows;
}

static void run_group(mo_op_job *job, const mo_op_grouped *o, const mo_dgroup *g, const mo_acts *in,
                      const int32_t *pick, float *y)
{
    if (g->count == 0) {
        return;
    }
    const mo_op_matrix m = mo_op_matrix_at(job, "groups.data", &o->matrix, g->data, g->expert);
    const mo_acts rows = pick ? *in : mo_acts_from(in, g->first);
    if (job->status == MO_OK) {
        mo_op_multiply(job, &m, 0, o->matrix.rows, &rows, pick ? pick + g->first : NULL, g->count,
                       y + g->first * o->stride, o->stride);
    }
}

mo_status mo_op_host_grouped(mo_op_job *job, const mo_op_grouped *o)
{
    if (o->rows == 0) {
        return MO_OK;
    }
    const int32_t *pick = mo_op_part_or_none(job, "pick", o->pick, o->rows * INT64_C(4));
    const mo_dgroup *groups = mo_op_part(job, "groups", o->groups, o->count * (int64_t)sizeof *groups);
    float *y = mo_op_floats(job, "y", o->y, (o->rows - 1) * o->stride + o->matrix.rows);
    if (job->status != MO_OK) {
        return job->status;
    }
    const mo_acts in = mo_op_acts_for(job, "in", &o->in, rows_read(job, o, groups, pick), &o->matrix);
    for (int i = 0; job->status == MO_OK && i < o->count; i++) {
        run_group(job, o, &groups[i], &in, pick, y);
    }
    return job->status;
}

/* ---- Activation ------------------------------------------------------------------------------- */

mo_status mo_op_host_activate(mo_op_job *job, const mo_op_activate *o)
{
    const int64_t n = o->n;
    if (o->rows == 0) {
        return MO_OK;
    }
    const float *gate = mo_op_floats(job, "gate", o->gate, o->rows * n);
    const float *up = mo_op_floats(job, "up", o->up, o->rows * n);
    const mo_acts hidden = mo_op_acts(job, "hidden", &o->hidden, o->rows, true, true);
    for (int64_t i = 0; job->status == MO_OK && i < o->rows; i++) {
        mo_activate_row(job->k, (mo_activation)o->activation, o->limit, hidden.x + i * n, gate + i * n,
                        up + i * n, n);
        mo_op_quantize(job->k, &hidden, i);
    }
    return job->status;
}
