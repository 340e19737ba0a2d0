/* The residual stream and the logits on the host. */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "device/host/ops.h"
#include "device/rank.h"
#include "numeric/center.h"
#include "numeric/merge.h"

/* Values of a row that needs no memory of its own: a step of a usual model allocates nothing. */
enum { ROW_MAX = sizeof(mo_scratch) / (2 * sizeof(float)) };

/* The operands of a stream op, found. */
typedef struct stream_parts {
    const mo_op_stream *o;
    float *x;
    const float *y, *y_norm, *features;
    const mo_dplace *places; /* with features */
    mo_merge merge;          /* where the feed-forward part is added */
    const float *out_scale;
    const float *norm_weight[MO_OP_NORMS], *norm_multiply[MO_OP_NORMS], *norm_add[MO_OP_NORMS];
    mo_acts norm_out[MO_OP_NORMS];
    uint32_t *bad;
    float *sum, *part; /* [n] each: what is added */
} stream_parts;

/* Rows of `down` that the ids name. */
static int64_t rows_named(mo_op_job *job, const mo_op_stream *o, const int32_t *ids, const int32_t *row_of)
{
    int64_t rows = 0;
    for (int64_t i = 0; ids && i < (int64_t)o->tokens * o->used; i++) {
        const int64_t row = row_of ? row_of[i] : i;
        if (ids[i] >= 0 && row < 0) {
            mo_op_refuse(job, "names row %lld of down", (long long)row);
        }
        if (ids[i] >= 0 && row >= rows) {
            rows = row + 1;
        }
    }
    return rows;
}

static void find_experts(mo_op_job *job, const mo_op_stream *o, mo_merge *m)
{
    const int64_t picks = (int64_t)o->tokens * o->used;
    int64_t rows = 0;
    m->used = o->used;
    m->weights = mo_op_floats(job, "weights", o->weights, picks);
    m->ids = mo_op_part(job, "ids", o->ids, picks * 4);
    m->row_of = mo_op_part_or_none(job, "row_of", o->row_of, picks * 4);
    if (job->status == MO_OK) {
        rows = rows_named(job, o, m->ids, m->row_of);
    }
    if (rows > 0) {
        m->down = mo_op_floats(job, "down", o->down, rows * o->n);
    }
}

static void find_merge(mo_op_job *job, const mo_op_stream *o, mo_merge *m)
{
    const int64_t n = o->n, all = o->tokens * n;
    m->n = n;
    m->eps = o->eps;
    if (o->used > 0) {
        find_experts(job, o, m);
    }
    m->shared = mo_op_floats_or_none(job, "shared", o->shared, all);
    m->shared_gate = mo_op_floats_or_none(job, "shared_gate", o->shared_gate, o->tokens);
    m->dense = mo_op_floats_or_none(job, "dense", o->dense, all);
    m->dense_norm = mo_op_floats_or_none(job, "dense_norm", o->dense_norm, n);
    m->moe_norm = mo_op_floats_or_none(job, "moe_norm", o->moe_norm, n);
    m->post_norm = mo_op_floats_or_none(job, "post_norm", o->post_norm, n);
    m->out_scale = mo_op_floats_or_none(job, "out_scale", o->out_scale, 1);
}

static void find(mo_op_job *job, stream_parts *p)
{
    const mo_op_stream *o = p->o;
    const int64_t n = o->n, all = o->tokens * n;
    p->x = mo_op_floats(job, "x", o->x, all);
    if (o->feed) {
        find_merge(job, o, &p->merge);
    } else {
        p->y = mo_op_floats_or_none(job, "y", o->y, all);
        p->y_norm = mo_op_floats_or_none(job, "y_norm", o->y_norm, n);
    }
    p->out_scale = mo_op_floats_or_none(job, "out_scale", o->out_scale, 1);
    p->bad = mo_op_part_or_none(job, "bad", o->bad, 4);
    p->features = mo_op_floats_or_none(job, "features", o->features, all);
    if (o->features) {
        p->places = mo_op_part(job, "places", o->places, o->tokens * (int64_t)sizeof *p->places);
    }
    for (int i = 0; i < MO_OP_NORMS; i++) {
        const mo_op_norm *norm = &o->norm[i];
        if (norm->out.x) {
            p->norm_weight[i] = mo_op_floats_or_none(job, "norm.weight", norm->weight, n);
            p->norm_multiply[i] = mo_op_floats_or_none(job, "norm.multiply", norm->multiply, n);
            p->norm_add[i] = mo_op_floats_or_none(job, "norm.add", norm->add, n);
            p->norm_out[i] = mo_op_acts(job, "norm.out", &norm->out, o->tokens, true, true);
        }
    }
}

static void add_to(const mo_kernels *k, const stream_parts *p, int64_t t)
{
    const int64_t n = p->o->n;
    float *x = p->x + t * n;
    bool finite;
    if (p->o->feed == 2) {
        memset(x, 0, sizeof *x * (size_t)n);
    }
    if (p->o->feed) {
        finite = mo_merge_token(k, &p->merge, t, p->sum, p->part, x);
    } else {
        if (p->y && p->y_norm) {
            k->rms_norm(p->sum, p->y + t * n, p->y_norm, n, p->o->eps);
            k->add(x, p->sum, n);
        } else if (p->y) {
            k->add(x, p->y + t * n, n);
        }
        if (p->out_scale) {
            k->scale(x, *p->out_scale, n);
        }
        finite = k->finite(x, n);
    }
    if (p->bad && !finite) {
        mo_op_set_bad(p->bad, 1);
    }
    if (p->features && p->places && p->places[t].added) {
        k->add(x, p->features + t * n, n);
    }
}

static void norm(const mo_kernels *k, const stream_parts *p, int i, int64_t t)
{
    const int64_t n = p->o->n;
    const mo_op_norm *norm = &p->o->norm[i];
    float *out = p->norm_out[i].x + t * n;
    mo_norm_row(k, p->o->centered, out, p->x + t * n, p->norm_weight[i], n, p->o->eps);
    if (norm->scale != 1.0f) {
        k->scale(out, norm->scale, n);
    }
    if (p->norm_multiply[i]) {
        k->multiply(out, p->norm_multiply[i], n);
    }
    if (p->norm_add[i]) {
        k->add(out, p->norm_add[i], n);
    }
    mo_op_quantize(k, &p->norm_out[i], t);
}

mo_status mo_op_host_stream(mo_op_job *job, const mo_op_stream *o)
{
    stream_parts p = {.o = o};
    if (o->tokens == 0) {
        return MO_OK;
    }
    find(job, &p);
    if (job->status != MO_OK) {
        return job->status;
    }
    float *own = (void *)job->scratch;
    p.sum = o->n <= ROW_MAX ? own : malloc(2 * sizeof(float) * (size_t)o->n);
    if (!p.sum) {
        return mo_fail(job->err, MO_ENOMEM, "out of memory for two rows of %d values", o->n);
    }
    p.part = p.sum + o->n;
    for (int64_t t = 0; t < o->tokens; t++) {
        add_to(job->k, &p, t);
        for (int i = 0; i < MO_OP_NORMS; i++) {
            if (o->norm[i].out.x) {
                norm(job->k, &p, i, t);
            }
        }
    }
    if (p.sum != own) {
        free(p.sum);
    }
    return MO_OK;
}

mo_status mo_op_host_logits(mo_op_job *job, const mo_op_logits *o)
{
    if (o->count == 0) {
        return MO_OK;
    }
    float *x = mo_op_floats(job, "x", o->x, o->count);
    uint32_t *bad = mo_op_part_or_none(job, "bad", o->bad, 4);
    uint64_t *best = o->best ? mo_op_part_or_none(job, "best", o->best, 8 * (o->count / o->cols)) : NULL;
    if (job->status != MO_OK) {
        return job->status;
    }
    if (o->cap > 0.0f) {
        job->k->softcap(x, o->count, o->cap);
    }
    if (bad && !job->k->finite(x, o->count)) {
        mo_op_set_bad(bad, 1);
    }
    for (int64_t i = 0; best && i < o->count; i++) {
        const uint64_t rank = mo_rank_of(x[i], (uint32_t)(i % o->cols));
        uint64_t *row = &best[i / o->cols];
        *row = rank > *row ? rank : *row;
    }
    return MO_OK;
}
