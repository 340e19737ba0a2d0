/* The feed-forward part of a layer: all chosen experts, and the dense or shared part beside them, as one
 * region. Tokens are gathered expert by expert, so that a brick is read once however many tokens chose it;
 * each token's outputs are summed in router order, so that nobody can tell. */
#include <string.h>

#include "engine/walk.h"

/* The part that every token runs beside the routed experts: a dense layer, or a shared expert. */
static const mo_ffn *side_of(const mo_layer *l)
{
    if (l->dense) {
        return &l->ffn;
    }
    return l->routed && mo_linear_present(&l->moe.shared.up) ? &l->moe.shared : NULL;
}

/* ---- Who needs which expert ------------------------------------------------------------------- */

/* A counting sort of the assignments: rows of one expert are neighbours, in the order of the tokens. */
static void sort_by_expert(mo_walk *walk)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_workspace *w = walk->w;
    const int64_t assignments = walk->tokens * moe->used;
    int32_t *first = w->first;
    memset(first, 0, sizeof(int32_t) * (size_t)(moe->experts + 1));
    for (int64_t i = 0; i < assignments; i++) {
        first[w->ids[i] + 1]++;
    }
    for (int e = 0; e < moe->experts; e++) {
        walk->engine->counters.bricks_run += first[e + 1] > 0;
        first[e + 1] += first[e];
    }
    for (int64_t i = 0; i < assignments; i++) {
        w->row_of[i] = first[w->ids[i]]++;
        w->by_expert[w->row_of[i]] = (int32_t)(i / moe->used);
    }
    for (int e = moe->experts; e > 0; e--) { /* back to the beginnings */
        first[e] = first[e - 1];
    }
    first[0] = 0;
    walk->engine->counters.expert_picks += (uint64_t)assignments;
}

/* ---- Activation ------------------------------------------------------------------------------- */

/* gpt-oss: slope and limit of its activation. */
static const float oss_alpha = 1.702f;
static const float oss_limit = 7.0f;

static void activate(const mo_kernels *k, mo_activation kind, float *y, const float *g, const float *u,
                     int64_t n)
{
    switch (kind) {
    case MO_SWIGLU: k->swiglu(y, g, u, n); break;
    case MO_GEGLU: k->geglu(y, g, u, n); break;
    case MO_SWIGLU_OSS: k->swiglu_oss(y, g, u, n, oss_alpha, oss_limit); break;
    }
}

/* Items: the assignments' rows, then the tokens of the side part. */
static void activate_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_walk *walk = ctx;
    const mo_workspace *w = walk->w;
    const mo_ffn *side = side_of(walk->layer);
    const int64_t rows = walk->layer->routed ? walk->tokens * walk->layer->moe.used : 0;
    for (int64_t i = begin; i < end; i++) {
        if (i < rows) {
            const int64_t n = walk->hidden.cols;
            activate(walk->k, walk->layer->moe.activation, walk->hidden.x + i * n, w->gate + i * n,
                     w->up + i * n, n);
            mo_walk_quantise(walk->k, &walk->hidden, i);
        } else {
            const int64_t t = i - rows;
            const int64_t n = walk->side_hidden.cols;
            activate(walk->k, side->activation, walk->side_hidden.x + t * n, w->side_gate + t * n,
                     w->side_up + t * n, n);
            mo_walk_quantise(walk->k, &walk->side_hidden, t);
        }
    }
}

/* ---- Merge ------------------------------------------------------------------------------------ */

/* The experts' outputs in router order, then the shared expert. */
static void merge_experts(const mo_walk *walk, int64_t t, float *out)
{
    const mo_moe *moe = &walk->layer->moe;
    const mo_workspace *w = walk->w;
    const int64_t n = walk->frame->width;
    memset(out, 0, sizeof(float) * (size_t)n);
    for (int r = 0; r < moe->used; r++) {
        const int64_t i = t * moe->used + r;
        walk->k->axpy(out, w->weights[i], w->down + w->row_of[i] * n, n);
    }
    if (mo_linear_present(&moe->shared.up)) {
        float g = 1.0f;
        if (mo_linear_present(&moe->shared_gate)) {
            walk->k->sigmoid(&g, &w->side_weight[t], 1);
        }
        walk->k->axpy(out, g, w->side_down + t * n, n);
    }
}

static void merge(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_walk *walk = ctx;
    const mo_layer *l = walk->layer;
    const mo_kernels *k = walk->k;
    const int64_t n = walk->frame->width;
    const float eps = walk->frame->eps;
    for (int64_t t = begin; t < end; t++) {
        float *x = walk->w->x + t * n;
        float *dense = l->dense ? walk->w->side_down + t * n : NULL;
        float *sum = dense ? dense : walk->w->y + t * n;
        if (dense && l->post_ffn_norm_dense) {
            k->rms_norm(dense, dense, l->post_ffn_norm_dense, n, eps);
        }
        if (l->routed) {
            float *experts = walk->w->y + t * n;
            merge_experts(walk, t, experts);
            if (l->post_ffn_norm_moe) {
                k->rms_norm(experts, experts, l->post_ffn_norm_moe, n, eps);
            }
            if (dense) {
                k->add(dense, experts, n);
            }
        }
        if (l->post_ffn_norm) {
            k->rms_norm(sum, sum, l->post_ffn_norm, n, eps);
        }
        k->add(x, sum, n);
        if (l->out_scale) {
            k->scale(x, *l->out_scale, n);
        }
        if (!k->finite(x, n)) {
            atomic_store_explicit(&walk->infinite, true, memory_order_relaxed);
        }
    }
}

/* ---- Phases ----------------------------------------------------------------------------------- */

static void add_experts(mo_walk *walk)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_workspace *w = walk->w;
    walk->hidden = mo_acts_lay(w->hidden, walk->tokens * moe->used, moe->width);
    sort_by_expert(walk);
    for (int e = 0; e < moe->experts; e++) {
        const int64_t row = w->first[e];
        const int64_t count = w->first[e + 1] - row;
        const mo_brick *b = &moe->bricks[e];
        mo_jobs_add(&w->ffn_in, &b->gate, &walk->in, w->by_expert + row, count, w->gate + row * moe->width,
                    moe->width);
        mo_jobs_add(&w->ffn_in, &b->up, &walk->in, w->by_expert + row, count, w->up + row * moe->width,
                    moe->width);
        mo_jobs_add(&w->ffn_out, &b->down, &walk->hidden, w->identity + row, count,
                    w->down + row * walk->frame->width, walk->frame->width);
    }
}

int mo_walk_feed(mo_walk *walk, mo_phase *phases, int count)
{
    const mo_layer *l = walk->layer;
    mo_workspace *w = walk->w;
    const int64_t n = walk->tokens;
    const mo_ffn *side = side_of(l);
    int64_t rows = 0;

    mo_jobs_clear(&w->ffn_in);
    mo_jobs_clear(&w->ffn_out);
    if (l->routed) {
        add_experts(walk);
        rows = n * l->moe.used;
    }
    if (side) {
        const mo_acts *in = l->dense ? &walk->in_dense : &walk->in;
        const int64_t width = side->up.w.rows;
        walk->side_hidden = mo_acts_lay(w->side_hidden, n, width);
        mo_jobs_add(&w->ffn_in, &side->gate, in, NULL, n, w->side_gate, width);
        mo_jobs_add(&w->ffn_in, &side->up, in, NULL, n, w->side_up, width);
        mo_jobs_add(&w->ffn_out, &side->down, &walk->side_hidden, NULL, n, w->side_down, walk->frame->width);
        if (!l->dense) {
            mo_jobs_add(&w->ffn_in, &l->moe.shared_gate, in, NULL, n, w->side_weight, 1);
        }
    }
    phases[count++] = mo_jobs_phase(&w->ffn_in);
    phases[count++] = (mo_phase){activate_rows, walk, rows + (side ? n : 0), 1};
    phases[count++] = mo_jobs_phase(&w->ffn_out);
    phases[count++] = (mo_phase){merge, walk, n, 1};
    return count;
}
