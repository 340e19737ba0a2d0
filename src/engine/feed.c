/* The feed-forward part of a layer: all chosen experts, and the dense or shared part beside them, as one
 * region. Tokens are gathered expert by expert, so that a brick is read once however many tokens chose it;
 * each token's outputs are summed in router order, so that nobody can tell. */
#include <string.h>

#include "base/clock.h"
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

/* Picks of the expert, for the profile. */
static void tally(const mo_walk *walk, mo_tally_layer *counts, int expert, mo_found found)
{
    const int32_t picks = walk->w->first[expert + 1] - walk->w->first[expert];
    if (counts && picks > 0) {
        mo_tally_add(&counts->hits[mo_walk_phase(walk)][found][expert], (uint64_t)picks);
    }
}

static mo_tally_layer *tally_layer(const mo_walk *walk)
{
    mo_tally_layer *counts = walk->engine->tally ? mo_tally_find(walk->engine->tally, walk->index) : NULL;
    if (counts) {
        mo_tally_call(counts, mo_walk_phase(walk));
    }
    return counts;
}

/* ---- Activation ------------------------------------------------------------------------------- */

static void activate(const mo_kernels *k, mo_activation kind, float *y, const float *g, const float *u,
                     int64_t n)
{
    switch (kind) {
    case MO_SWIGLU: k->swiglu(y, g, u, n); break;
    case MO_GEGLU: k->geglu(y, g, u, n); break;
    case MO_SWIGLU_OSS: k->swiglu_oss(y, g, u, n, MO_OSS_ALPHA, MO_OSS_LIMIT); break;
    }
}

/* Items: the rows of this round's experts, then the tokens of the side part. */
static void activate_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_walk *walk = ctx;
    const mo_workspace *w = walk->w;
    const mo_ffn *side = side_of(walk->layer);
    for (int64_t i = begin; i < end; i++) {
        if (i < walk->row_count) {
            const int64_t row = w->rows[i];
            const int64_t n = walk->hidden.cols;
            activate(walk->k, walk->layer->moe.activation, walk->hidden.x + row * n, w->gate + row * n,
                     w->up + row * n, n);
            mo_walk_quantise(walk->k, &walk->hidden, row);
        } else {
            const int64_t t = i - walk->row_count;
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
        if (w->ids[i] < 0) { /* left out because it was not in RAM: --skip-missing */
            continue;
        }
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

/* ---- Rounds ----------------------------------------------------------------------------------- */

void mo_walk_add_in(mo_walk *walk, int expert, int64_t row, int64_t count)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_workspace *w = walk->w;
    const mo_brick *b = &moe->bricks[expert];
    mo_jobs_add(&w->ffn_in, &b->gate, &walk->in, w->by_expert + row, count, w->gate + row * moe->width,
                moe->width);
    mo_jobs_add(&w->ffn_in, &b->up, &walk->in, w->by_expert + row, count, w->up + row * moe->width,
                moe->width);
    for (int64_t i = 0; i < count; i++) {
        w->rows[walk->row_count++] = (int32_t)(row + i);
    }
}

void mo_walk_add_down(mo_walk *walk, int expert, int64_t row, int64_t count)
{
    mo_workspace *w = walk->w;
    mo_jobs_add(&w->ffn_out, &walk->layer->moe.bricks[expert].down, &walk->hidden, w->identity + row, count,
                w->down + row * walk->frame->width, walk->frame->width);
}

/* The rows of an expert that sort_by_expert() has laid together. */
static void add_in(mo_walk *walk, int expert)
{
    const int32_t *first = walk->w->first;
    mo_walk_add_in(walk, expert, first[expert], first[expert + 1] - first[expert]);
}

static void add_down(mo_walk *walk, int expert)
{
    const int32_t *first = walk->w->first;
    mo_walk_add_down(walk, expert, first[expert], first[expert + 1] - first[expert]);
}

static void add_side(mo_walk *walk)
{
    const mo_layer *l = walk->layer;
    const mo_ffn *side = side_of(l);
    mo_workspace *w = walk->w;
    if (!side) {
        return;
    }
    const mo_acts *in = l->dense ? &walk->in_dense : &walk->in;
    const int64_t n = walk->tokens, width = side->up.w.rows;
    walk->side_hidden = mo_acts_lay(w->side_hidden, n, width);
    walk->side_count = n;
    mo_jobs_add(&w->ffn_in, &side->gate, in, NULL, n, w->side_gate, width);
    mo_jobs_add(&w->ffn_in, &side->up, in, NULL, n, w->side_up, width);
    mo_jobs_add(&w->ffn_out, &side->down, &walk->side_hidden, NULL, n, w->side_down, walk->frame->width);
    if (!l->dense) {
        mo_jobs_add(&w->ffn_in, &l->moe.shared_gate, in, NULL, n, w->side_weight, 1);
    }
}

void mo_walk_begin_round(mo_walk *walk)
{
    mo_jobs_clear(&walk->w->ffn_in);
    mo_jobs_clear(&walk->w->ffn_out);
    walk->row_count = walk->side_count = 0;
}

/* A phase with an errand before its first item. */
typedef struct accompanied {
    mo_phase phase;
    mo_errand errand;
} accompanied;

static void run_accompanied(void *ctx, int64_t begin, int64_t end, int thread)
{
    const accompanied *a = ctx;
    if (begin == 0) {
        a->errand.fn(a->errand.ctx);
        begin = 1;
    }
    if (end > begin) {
        a->phase.fn(a->phase.ctx, begin - 1, end - 1, thread);
    }
}

void mo_walk_run_round(mo_walk *walk, bool last)
{
    mo_phase phases[4];
    int count = 0;
    accompanied in = {.phase = mo_jobs_phase(&walk->w->ffn_in), .errand = walk->errand};
    walk->errand = (mo_errand){0};
    phases[count++] = in.errand.fn ? (mo_phase){run_accompanied, &in, in.phase.count + 1, 1} : in.phase;
    phases[count++] = (mo_phase){activate_rows, walk, walk->row_count + walk->side_count, 1};
    phases[count++] = mo_jobs_phase(&walk->w->ffn_out);
    if (last) {
        phases[count++] = (mo_phase){merge, walk, walk->tokens, 1};
    }
    mo_walk_run(walk, phases, count);
}

/* ---- Experts that come and go ----------------------------------------------------------------- */

static int list_needs(mo_walk *walk)
{
    const mo_moe *moe = &walk->layer->moe;
    mo_workspace *w = walk->w;
    int count = 0;
    for (int e = 0; e < moe->experts; e++) {
        const int32_t picks = w->first[e + 1] - w->first[e];
        if (picks > 0) {
            w->needs[count++] = (mo_need){.expert = e, .picks = (uint32_t)picks};
        }
    }
    return count;
}

/* Adds what can be computed now; false when that is nothing. *left counts experts that are not finished. */
static bool add_ready(mo_walk *walk, int count, int *left)
{
    mo_need *needs = walk->w->needs;
    bool some = false;
    *left = 0;
    for (int i = 0; i < count; i++) {
        mo_need *n = &needs[i];
        if (n->skipped) {
            continue;
        }
        if (n->in && !n->in_done) {
            add_in(walk, n->expert);
            n->in_done = some = true;
        }
        if (n->in_done && n->down && !n->down_done) {
            add_down(walk, n->expert);
            n->down_done = some = true;
        }
        *left += !n->down_done;
    }
    return some;
}

static void release_done(mo_walk *walk, int count)
{
    mo_need *needs = walk->w->needs;
    for (int i = 0; i < count; i++) {
        if (needs[i].down_done && !needs[i].released) {
            mo_store_release(walk->engine->tiers->store, &needs[i]);
            needs[i].released = true;
        }
    }
}

/* When things happened in a layer whose experts come and go; all 0 when nobody wants to know. */
typedef struct stopwatch {
    bool on;
    int64_t began, landed; /* nanoseconds; landed: nothing was missing any more */
    int64_t computing, waiting;
} stopwatch;

static int64_t tick(const stopwatch *s)
{
    return s->on ? mo_clock_ns() : 0;
}

/* The lanes of document 001, here: computing is the hot one, reading the cold one. Routing shares a region with the
 * mixer and has no time of its own. */
static void tally_times(mo_tally_layer *counts, const stopwatch *s)
{
    if (s->on && counts) {
        const int64_t region = mo_clock_ns() - s->began;
        mo_tally_time(counts, (const uint64_t[MO_TIMES]){[MO_TIME_MOE] = (uint64_t)region,
                                                         [MO_TIME_HOT] = (uint64_t)s->computing,
                                                         [MO_TIME_COLD] = (uint64_t)(s->landed - s->began),
                                                         [MO_TIME_JOIN] = (uint64_t)s->waiting,
                                                         [MO_TIME_REGION] = (uint64_t)region});
    }
}

/* Rounds: what is in RAM first, then what has landed meanwhile, until nothing is left. */
static mo_status feed_stored(mo_walk *walk, mo_error *err)
{
    stopwatch watch = {.on = walk->engine->timed};
    watch.began = tick(&watch);
    mo_tiers *tiers = walk->engine->tiers;
    const int count = list_needs(walk);
    mo_status status = MO_OK;
    bool first = true, wait = false;
    mo_store_want(tiers->store, walk->index, walk->w->needs, count);
    mo_tally_layer *counts = tally_layer(walk);
    for (int i = 0; i < count; i++) {
        const mo_need *n = &walk->w->needs[i];
        tally(walk, counts, n->expert, n->missing ? MO_FOUND_COLD : MO_FOUND_HOT);
    }
    if (tiers->skip_missing) {
        mo_walk_skip(walk, count);
    }
    for (int left = 1; left > 0 && status == MO_OK;) {
        const int64_t looked = tick(&watch);
        status = mo_store_look(tiers->store, wait, err);
        watch.waiting += wait ? tick(&watch) - looked : 0;
        if (status != MO_OK) {
            break;
        }
        if (first && !wait) { /* the layer's own reads are asked for: the disk may look ahead behind them */
            mo_walk_guess(walk);
        }
        mo_walk_begin_round(walk);
        if (first) {
            add_side(walk);
        }
        const bool some = add_ready(walk, count, &left) || (first && walk->side_count > 0);
        wait = !some && left > 0;
        if (left == 0) { /* everything has landed */
            watch.landed = tick(&watch);
        }
        if (!wait) {
            const int64_t started = tick(&watch);
            mo_walk_run_round(walk, left == 0);
            watch.computing += tick(&watch) - started;
            release_done(walk, count);
            first = false;
        }
    }
    mo_store_leave(tiers->store);
    if (status == MO_OK) {
        tally_times(counts, &watch);
    }
    return status;
}

/* ---- The part --------------------------------------------------------------------------------- */

/* Everything but the routed experts. */
static void feed_beside(mo_walk *walk)
{
    for (int64_t i = 0; i < walk->tokens * walk->layer->moe.used; i++) {
        walk->w->ids[i] = -1; /* the merge passes over them */
    }
    mo_walk_begin_round(walk);
    add_side(walk);
    mo_walk_run_round(walk, true);
}

mo_status mo_walk_feed(mo_walk *walk, mo_error *err)
{
    const mo_layer *l = walk->layer;
    if (l->routed && walk->slices[0].routers_only) {
        feed_beside(walk);
        return MO_OK;
    }
    if (l->routed) {
        walk->hidden = mo_acts_lay(walk->w->hidden, walk->tokens * l->moe.used, l->moe.width);
        sort_by_expert(walk);
        if (walk->engine->tiers && walk->engine->tiers->store) {
            return feed_stored(walk, err);
        }
    }
    mo_walk_begin_round(walk);
    mo_tally_layer *counts = l->routed ? tally_layer(walk) : NULL;
    for (int e = 0; l->routed && e < l->moe.experts; e++) {
        add_in(walk, e);
        add_down(walk, e);
        tally(walk, counts, e, MO_FOUND_HOT);
    }
    add_side(walk);
    mo_walk_run_round(walk, true);
    return MO_OK;
}
