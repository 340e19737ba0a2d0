/* Latent attention (mo_latent in model/parts.h), before and after the scores: a matrix per head maps queries
 * to the rows in the cache, and another maps results back. attention.c computes the part in between. */
#include "engine/forward.h"
#include "numeric/heads.h"

/* Acts with the rows of all tokens for each head, head by head; and a view of each head, for the products. */
typedef struct by_head {
    mo_acts all;
    mo_acts *head; /* [heads] */
} by_head;

static by_head plain_of(const mo_forward *forward)
{
    const mo_attention *a = &forward->layer->attention;
    return (by_head){.all =
                         mo_acts_lay(forward->w->latent.plain, a->heads * forward->tokens, a->latent.plain),
                     .head = forward->w->latent.acts};
}

static by_head mixed_of(const mo_forward *forward)
{
    const mo_attention *a = &forward->layer->attention;
    return (by_head){.all = mo_acts_lay(forward->w->latent.mixed, a->heads * forward->tokens, a->v_len),
                     .head = forward->w->latent.acts + a->heads};
}

/* Adds the products of all heads with their parts of a matrix, `rows` rows each, into y[t * stride + h *
 * step]. */
static void add_heads(const mo_forward *forward, mo_jobs *jobs, const mo_linear *linear, const by_head *in,
                      int64_t rows, float *y, int64_t step, int64_t stride)
{
    mo_jobs_clear(jobs);
    for (int64_t h = 0; h < forward->layer->attention.heads; h++) {
        in->head[h] = mo_acts_from(&in->all, h * forward->tokens);
        mo_jobs_add_rows(jobs, linear, h * rows, rows, &in->head[h], forward->tokens, y + h * (step - rows),
                         stride);
    }
}

/* ---- Queries and keys ------------------------------------------------------------------------- */

/* Norms q_a's products, the input of q. */
static void norm_queries(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_latent *l = &forward->layer->attention.latent;
    const mo_acts in = mo_acts_lay(forward->w->latent.in, forward->tokens, l->q_a.w.rows);
    for (int64_t t = begin; t < end; t++) {
        float *x = in.x + t * in.cols;
        forward->k->rms_norm(x, x, l->q_norm, in.cols, forward->spec->eps);
        mo_forward_quantize(forward->k, &in, t);
    }
}

/* Items are (token, piece of the heads). The first piece also handles the key. */
static void prepare(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    const mo_attention *a = &forward->layer->attention;
    const by_head plain = plain_of(forward);
    const int64_t part = mo_attention_part(a), parts = (a->heads + part - 1) / part,
                  n = a->latent.plain + a->n_rot;
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i / parts, first = i % parts * part;
        const int64_t stride = forward->w->rope_stride;
        const float *c = a->rope ? forward->w->rope + forward->rope_row + t * stride : NULL;
        const float *s = a->rope ? c + forward->engine->batch * stride : NULL;
        for (int64_t h = first; h < first + part && h < a->heads; h++) {
            const int64_t row = h * forward->tokens + t;
            mo_latent_query(forward->k, forward->w->latent.q + (t * a->heads + h) * n, a->latent.plain,
                            a->n_rot, c, s, mo_forward_q_factor(forward, t),
                            plain.all.x + row * plain.all.cols,
                            forward->w->q + (t * a->heads + h) * a->k_len + a->v_len);
            mo_forward_quantize(forward->k, &plain.all, row);
        }
        const mo_kv_head kv = mo_state_head(forward->w->state_of[t], forward->index, 0);
        if (first == 0 && !mo_latent_key(forward->k, a->latent.norm, forward->spec->eps,
                                         forward->w->k + t * a->k_len, c, s, &kv, forward->w->position[t])) {
            mo_forward_refuse_key(forward, kv.type);
        }
    }
}

int mo_forward_latent_in(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_attention *a = &forward->layer->attention;
    const mo_latent *l = &a->latent;
    mo_workspace *w = forward->w;
    const int64_t n = forward->tokens, part = mo_attention_part(a);
    const bool two = mo_linear_present(&l->q_a);
    w->latent.reads = two ? mo_acts_lay(w->latent.in, n, l->q_a.w.rows) : forward->in;
    mo_jobs_clear(&w->phases.mixer_in);
    mo_jobs_add(&w->phases.mixer_in, &l->q_a, &forward->in, NULL, n, w->latent.reads.x, l->q_a.w.rows);
    mo_jobs_add(&w->phases.mixer_in, &a->k, &forward->in, NULL, n, w->k, a->k_len);
    mo_jobs_add(&w->phases.mixer_in, &a->gate, &forward->in, NULL, n, w->gates, a->gate.w.rows);
    mo_jobs_clear(&w->phases.latent_queries);
    mo_jobs_add(two ? &w->phases.latent_queries : &w->phases.mixer_in, &a->q, &w->latent.reads, NULL, n,
                w->latent.q, a->q.w.rows);
    if (a->index.heads) {
        mo_forward_index_in(forward, &w->phases.mixer_in,
                            two ? &w->phases.latent_queries : &w->phases.mixer_in, &w->latent.reads);
    }
    count = mo_jobs_phases(&w->phases.mixer_in, phases, count);
    if (two) {
        phases[count++] =
            (mo_phase){.fn = norm_queries, .ctx = forward, .count = n, .grain = 1, .part = MO_PART_ATTENTION};
        count = mo_jobs_phases(&w->phases.latent_queries, phases, count);
    }
    phases[count++] = (mo_phase){.fn = prepare,
                                 .ctx = forward,
                                 .count = n * ((a->heads + part - 1) / part),
                                 .grain = 1,
                                 .part = MO_PART_ATTENTION};
    if (a->index.heads) {
        count = mo_forward_index(forward, phases, count);
    }
    const by_head plain = plain_of(forward);
    add_heads(forward, &w->phases.latent_absorb, &l->k_b, &plain, a->v_len, w->q, a->k_len,
              a->heads * a->k_len);
    count = mo_jobs_phases(&w->phases.latent_absorb, phases, count);
    return count;
}

/* ---- Results ---------------------------------------------------------------------------------- */

static void gate_results(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_attention *a = &forward->layer->attention;
    const int64_t n = a->latent.out_len, gates = mo_attention_gates(a);
    for (int64_t i = begin; i < end; i++) { /* heads of all tokens */
        mo_heads_gate(forward->k, a->gate_kind, forward->w->gates + i * gates, gates > 1, n,
                      forward->mixed.x + i * n);
    }
}

int mo_forward_latent_out(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_attention *a = &forward->layer->attention;
    const by_head mixed = mixed_of(forward);
    const int64_t n = a->latent.out_len;
    add_heads(forward, &forward->w->phases.latent_expand, &a->latent.v_b, &mixed, n, forward->mixed.x, n,
              forward->mixed.cols);
    count = mo_jobs_phases(&forward->w->phases.latent_expand, phases, count);
    if (mo_linear_present(&a->gate)) {
        phases[count++] = (mo_phase){.fn = gate_results,
                                     .ctx = forward,
                                     .count = forward->tokens * a->heads,
                                     .grain = 1,
                                     .part = MO_PART_ATTENTION};
    }
    return count;
}
