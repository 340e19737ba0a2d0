#include "engine/logits.h"

#include <string.h>

#include "numeric/merge.h"

/* Tokens that go through the output matrix. Their rows of logits belong to different sessions. If all belong
 * to one slice, the rows are consecutive, and products write there directly. */
typedef struct output {
    mo_forward *forward;
    mo_acts in;           /* the tokens' normed rows, in the order of `token` */
    const int32_t *token; /* of the step */
    float *const *row;    /* destination of each token's logits */
    int64_t count;
    atomic_bool bad;
} output;

static void norm(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    output *o = ctx;
    const mo_forward *forward = o->forward;
    const int64_t n = forward->spec->width;
    for (int64_t i = begin; i < end; i++) {
        mo_forward_out_norm(forward->k, forward->spec, o->in.x + i * n, forward->w->x + o->token[i] * n);
        mo_forward_quantize(forward->k, &o->in, i);
    }
}

/* Applies the soft cap, and checks that all values are finite. */
static void finish(output *o, float *logits, int64_t n)
{
    const mo_forward *forward = o->forward;
    if (forward->spec->softcap > 0.0f) {
        forward->k->softcap(logits, n, forward->spec->softcap);
    }
    if (!forward->k->finite(logits, n)) {
        atomic_store_explicit(&o->bad, true, memory_order_relaxed);
    }
}

static mo_status run(output *o, mo_phase *phases, int count, mo_error *err)
{
    mo_forward *forward = o->forward;
    forward->next = atomic_load(&forward->engine->accelerator) ? 0 : 1; /* the next token's first layer */
    mo_forward_run(forward, phases, count);
    if (forward->stoppable && mo_forward_unwanted(forward)) {
        return mo_forward_cancelled(forward, err);
    }
    if (atomic_load(&o->bad)) {
        return mo_forward_not_finite(forward, -1, err);
    }
    return MO_OK;
}

/* ---- Consecutive rows --------------------------------------------------------------------------- */

enum { FINISH_PIECE = 8192 };

static void finish_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    output *o = ctx;
    const int64_t vocab = o->forward->spec->vocab;
    const int64_t pieces = (vocab + FINISH_PIECE - 1) / FINISH_PIECE;
    for (int64_t i = begin; i < end; i++) {
        const int64_t from = i % pieces * FINISH_PIECE;
        finish(o, o->row[0] + i / pieces * vocab + from,
               vocab - from < FINISH_PIECE ? vocab - from : FINISH_PIECE);
    }
}

static mo_status emit_together(output *o, mo_error *err)
{
    const mo_forward *forward = o->forward;
    const int64_t vocab = forward->spec->vocab;
    mo_jobs *jobs = &forward->w->phases.output;
    mo_jobs_clear(jobs);
    mo_jobs_add_for(jobs, &forward->spec->output, &o->in, NULL, o->token, o->count, o->row[0], vocab);
    mo_phase phases[4] = {{.fn = norm, .ctx = o, .count = o->count, .grain = 1, .part = MO_PART_OTHER}};
    int count = mo_jobs_phases(jobs, phases, 1);
    phases[count++] = (mo_phase){.fn = finish_rows,
                                 .ctx = o,
                                 .count = o->count * ((vocab + FINISH_PIECE - 1) / FINISH_PIECE),
                                 .grain = 1,
                                 .part = MO_PART_OTHER};
    return run(o, phases, count, err);
}

/* ---- Rows of several sessions ----------------------------------------------------------------- */

/* Items are pieces of the output matrix: computed for all tokens into the thread's memory, then copied to
 * each session's. */
static void multiply_piece(void *ctx, int64_t begin, int64_t end, int thread)
{
    output *o = ctx;
    const mo_forward *forward = o->forward;
    const mo_linear *linear = &forward->spec->output;
    float *made = forward->w->logits.piece + (int64_t)thread * MO_LOGITS_TOKENS * MO_LOGITS_ROWS;
    for (int64_t i = begin; i < end; i++) {
        const int64_t from = i * MO_LOGITS_ROWS, rest = linear->w.rows - from;
        const int64_t rows = rest < MO_LOGITS_ROWS ? rest : MO_LOGITS_ROWS;
        /* Products write at the index of the matrix row. */
        forward->k->product(&linear->w, from, from + rows, &o->in, NULL, o->count, made - from,
                            MO_LOGITS_ROWS, &forward->w->scratch[thread]);
        mo_finish_product(linear->scale, linear->bias ? linear->bias + from : NULL, rows, o->count, made,
                          MO_LOGITS_ROWS);
        mo_job_adapt(&forward->w->phases.output, forward->w->phases.output.list, from, from + rows, 0,
                     o->count, made, MO_LOGITS_ROWS);
        for (int64_t t = 0; t < o->count; t++) {
            finish(o, made + t * MO_LOGITS_ROWS, rows);
            memcpy(o->row[t] + from, made + t * MO_LOGITS_ROWS, sizeof(float) * (size_t)rows);
        }
    }
}

static mo_status emit_apart(output *o, mo_error *err)
{
    const int64_t rows = o->forward->spec->output.w.rows;
    /* for the adapters of the product, which is computed in another way */
    mo_jobs *jobs = &o->forward->w->phases.output;
    mo_jobs_clear(jobs);
    mo_jobs_add_for(jobs, &o->forward->spec->output, &o->in, NULL, o->token, o->count, NULL, MO_LOGITS_ROWS);
    mo_phase phases[3] = {{.fn = norm, .ctx = o, .count = o->count, .grain = 1, .part = MO_PART_OTHER}};
    const int count = mo_jobs_phases(jobs, phases, 1);
    phases[count - 1] = (mo_phase){.fn = multiply_piece,
                                   .ctx = o,
                                   .count = (rows + MO_LOGITS_ROWS - 1) / MO_LOGITS_ROWS,
                                   .grain = 1,
                                   .part = MO_PART_PRODUCTS};
    return run(o, phases, count, err);
}

/* ---- All rows ----------------------------------------------------------------------------------- */

float *mo_logits_row(const mo_forward *forward, int slice, int64_t token)
{
    const mo_slice *s = &forward->slices[slice];
    float *rows = s->drafts ? forward->engine->drafts.logits +
                                  mo_forward_draft_row(forward, slice) * forward->spec->vocab
                            : s->logits;
    return rows + (token - s->logits_from) * forward->spec->vocab;
}

int64_t mo_logits_list(const mo_forward *forward, int *slices)
{
    const mo_workspace *w = forward->w;
    int64_t first = 0, count = 0;
    *slices = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        for (int64_t j = s->logits_from; s->logits && j < s->count; j++) {
            *slices += j == s->logits_from;
            w->logits.token[count] = (int32_t)(first + j);
            w->logits.row[count++] = mo_logits_row(forward, i, j);
        }
        first += s->count;
    }
    return count;
}

mo_status mo_logits_emit(mo_forward *forward, mo_error *err)
{
    const mo_workspace *w = forward->w;
    int slices;
    const int64_t count = mo_logits_list(forward, &slices);
    const int64_t most = slices > 1 ? MO_LOGITS_TOKENS : count;
    mo_status status = MO_OK;
    for (int64_t at = 0; at < count && status == MO_OK; at += most) {
        const int64_t part = count - at < most ? count - at : most;
        output o = {.forward = forward,
                    .in = mo_acts_lay(w->in, part, forward->spec->width),
                    .token = w->logits.token + at,
                    .row = w->logits.row + at,
                    .count = part};
        status = slices > 1 ? emit_apart(&o, err) : emit_together(&o, err);
    }
    return status;
}
