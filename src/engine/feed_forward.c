/* The feed-forward part of a layer: all chosen experts, and the dense or shared part, as one region. Tokens
 * are gathered by expert, so that an expert is read once for all tokens that chose it. Each token's outputs
 * are summed in router order, so that results do not depend on the gathering. */
#include <string.h>

#include "base/clock.h"
#include "engine/forward.h"
#include "numeric/merge.h"

/* The part that every token runs besides the routed experts: a dense layer, or a shared expert. */
const mo_ffn *mo_forward_side(const mo_layer *l)
{
    if (l->dense) {
        return &l->ffn;
    }
    return l->routed && mo_linear_present(&l->moe.shared.up) ? &l->moe.shared : NULL;
}

/* ---- Tokens by expert --------------------------------------------------------------------------- */

/* The expert descriptors have left the caches since the layer's last step. They are all prefetched before the
 * first one is read. */
static void ask_expert(const mo_expert *b)
{
    for (size_t i = 0; i < sizeof *b; i += 64) {
        __builtin_prefetch((const uint8_t *)b + i);
    }
}

static void sort_by_expert(mo_forward *forward)
{
    const mo_moe *moe = &forward->layer->moe;
    const int64_t rows = forward->tokens * moe->used;
    mo_picks *p = &forward->w->picks;
    for (int64_t i = 0; i < rows; i++) {
        ask_expert(&moe->expert[p->ids[i]]);
    }
    mo_picks_begin(p, moe->experts, moe->used, forward->tokens);
    forward->engine->counters.experts_run += (uint64_t)mo_picks_sort(p);
    forward->engine->counters.expert_picks += (uint64_t)rows;
}

/* ---- Activation ------------------------------------------------------------------------------- */

/* Items: the rows of this round's experts, then the tokens of the side part. */
static void activate_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_workspace *w = forward->w;
    const mo_ffn *side = mo_forward_side(forward->layer);
    for (int64_t i = begin; i < end; i++) {
        if (i < forward->row_count) {
            const int64_t row = w->rows[i];
            const int64_t n = forward->hidden.cols;
            mo_activate_row(forward->k, forward->layer->moe.activation, forward->layer->moe.limit,
                            forward->hidden.x + row * n, w->gate + row * n, w->up + row * n, n);
            mo_forward_quantize(forward->k, &forward->hidden, row);
        } else {
            const int64_t t = i - forward->row_count;
            const int64_t n = forward->side_hidden.cols;
            mo_activate_row(forward->k, side->activation, side->limit, forward->side_hidden.x + t * n,
                            w->side.gate + t * n, w->side.up + t * n, n);
            mo_forward_quantize(forward->k, &forward->side_hidden, t);
        }
    }
}

/* ---- Merge ------------------------------------------------------------------------------------ */

static mo_merge merge_of(const mo_forward *forward)
{
    const mo_layer *l = forward->layer;
    const mo_workspace *w = forward->w;
    mo_merge m = {.n = forward->spec->width,
                  .eps = forward->spec->eps,
                  .dense = l->dense ? w->side.down : NULL,
                  .dense_norm = l->post_ffn_norm_dense,
                  .post_norm = l->post_ffn_norm,
                  .out_scale = l->out_scale};
    if (l->routed) {
        m.moe_norm = l->post_ffn_norm_moe;
        m.shared = mo_linear_present(&l->moe.shared.up) ? w->side.down : NULL;
        m.shared_gate = mo_linear_present(&l->moe.shared_gate) ? w->side.weight : NULL;
    }
    if (mo_layer_latent(l)) {
        m.dense = w->latent_experts.up;
    } else if (l->routed) {
        m.used = l->moe.used;
        m.weights = w->picks.weights;
        m.ids = w->picks.ids; /* negative: skipped because it was not in RAM (--skip-missing) */
        m.row_of = w->picks.row_of;
        m.down = w->down;
    }
    return m;
}

/* For experts with products around them: the sums that the last product reads. */
static void sum_latent(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const mo_moe *moe = &forward->layer->moe;
    const mo_picks *p = &forward->w->picks;
    const mo_acts sum = forward->sum;
    const mo_merge m = {.n = moe->io,
                        .used = moe->used,
                        .weights = p->weights,
                        .ids = p->ids,
                        .row_of = p->row_of,
                        .down = forward->w->down};
    for (int64_t t = begin; t < end; t++) {
        mo_merge_experts(forward->k, &m, t, sum.x + t * sum.cols);
        mo_forward_quantize(forward->k, &sum, t);
    }
}

static void merge(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    const mo_workspace *w = forward->w;
    const mo_merge m = merge_of(forward);
    float *const dense = mo_layer_latent(forward->layer) ? w->latent_experts.up : w->side.down;
    for (int64_t t = begin; t < end; t++) {
        float *y = w->y + t * m.n;
        if (!mo_merge_token(forward->k, &m, t, m.dense ? dense + t * m.n : y, y, w->x + t * m.n)) {
            atomic_store_explicit(&forward->infinite, true, memory_order_relaxed);
        }
    }
}

/* Values per piece of a token's row. The summands are in the caches of all cores; one core alone would wait
 * for them longer than several wait for each other. */
enum { MERGE_PIECE = 256 };

static int64_t merge_pieces(int64_t n)
{
    return (n + MERGE_PIECE - 1) / MERGE_PIECE;
}

static void merge_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    mo_forward *forward = ctx;
    const mo_workspace *w = forward->w;
    const mo_merge m = merge_of(forward);
    for (int64_t i = begin; i < end; i++) {
        const int64_t t = i / merge_pieces(m.n), from = i % merge_pieces(m.n) * MERGE_PIECE;
        const int64_t to = m.n - from < MERGE_PIECE ? m.n : from + MERGE_PIECE;
        if (!mo_merge_columns(forward->k, &m, t, from, to, w->y + t * m.n, w->x + t * m.n)) {
            atomic_store_explicit(&forward->infinite, true, memory_order_relaxed);
        }
    }
}

/* Appends the phases from the experts' outputs to the stream. Returns the new count. */
static int add_merging(mo_forward *forward, mo_phase *phases, int count)
{
    const mo_merge m = merge_of(forward);
    const mo_moe *moe = &forward->layer->moe;
    mo_workspace *w = forward->w;
    const int part = forward->layer->routed ? MO_PART_EXPERTS : MO_PART_PRODUCTS;
    if (mo_layer_latent(forward->layer)) {
        forward->sum = mo_acts_lay(w->latent_experts.sum, forward->tokens, moe->io);
        phases[count++] =
            (mo_phase){.fn = sum_latent, .ctx = forward, .count = forward->tokens, .grain = 1, .part = part};
        mo_jobs_clear(&w->phases.ffn_latent);
        mo_jobs_add(&w->phases.ffn_latent, &moe->latent_up, &forward->sum, NULL, forward->tokens,
                    w->latent_experts.up, m.n);
        count = mo_jobs_phases_of(&w->phases.ffn_latent, phases, count, part);
    }
    if (forward->tokens < MO_JOBS_FEW && mo_merge_divides(&m)) {
        phases[count++] = (mo_phase){.fn = merge_some,
                                     .ctx = forward,
                                     .count = forward->tokens * merge_pieces(m.n),
                                     .grain = 1,
                                     .part = part,
                                     .shares = true};
    } else {
        phases[count++] =
            (mo_phase){.fn = merge, .ctx = forward, .count = forward->tokens, .grain = 1, .part = part};
    }
    return count;
}

/* ---- Rounds ----------------------------------------------------------------------------------- */

/* Maximum tokens of a step whose experts still have few tokens each. */
enum { SMALL_TOKENS = 64 };

/* True if pieces of the first products also compute the activation. With many tokens pieces are cut
 * differently. */
static bool goes_on(const mo_forward *forward, int64_t count, const mo_linear *up)
{
    return count < MO_JOBS_FEW && forward->tokens <= SMALL_TOKENS && forward->w->adapting.count == 0 &&
           mo_linear_present(up) && up->w.rows % 32 == 0;
}

/* Appends the products that the activation reads, in pieces that also compute the activation. */
static void add_gated(mo_forward *forward, const mo_linear *gate, const mo_linear *up, const mo_acts *in,
                      const int32_t *tokens, int64_t count, float *gate_y, mo_job_gated gated)
{
    mo_jobs *jobs = &forward->w->phases.ffn_in;
    if (mo_gated(gated.activation)) {
        gated.up = up;
        mo_jobs_add_gated(jobs, gate, in, tokens, count, gate_y, &gated);
    } else {
        mo_jobs_add_gated(jobs, up, in, tokens, count, gated.y, &gated);
    }
}

void mo_forward_add_in(mo_forward *forward, int expert, const int32_t *tokens, int64_t row, int64_t count)
{
    const mo_moe *moe = &forward->layer->moe;
    mo_workspace *w = forward->w;
    const mo_expert *b = &moe->expert[expert];
    if (count > 0 && goes_on(forward, count, &b->up)) {
        add_gated(forward, &b->gate, &b->up, &forward->in_experts, tokens, count, w->gate + row * moe->width,
                  (mo_job_gated){.y = w->up + row * moe->width,
                                 .activation = moe->activation,
                                 .limit = moe->limit,
                                 .hidden = mo_acts_from(&forward->hidden, row)});
        return;
    }
    mo_jobs_add(&w->phases.ffn_in, &b->gate, &forward->in_experts, tokens, count, w->gate + row * moe->width,
                moe->width);
    mo_jobs_add(&w->phases.ffn_in, &b->up, &forward->in_experts, tokens, count, w->up + row * moe->width,
                moe->width);
    for (int64_t i = 0; i < count; i++) {
        w->rows[forward->row_count++] = (int32_t)(row + i);
    }
}

void mo_forward_add_down(mo_forward *forward, int expert, const int32_t *tokens, int64_t row, int64_t count)
{
    mo_workspace *w = forward->w;
    mo_jobs_add_for(&w->phases.ffn_out, &forward->layer->moe.expert[expert].down, &forward->hidden,
                    w->identity + row, tokens, count, w->down + row * forward->layer->moe.io,
                    forward->layer->moe.io);
}

static void add_side(mo_forward *forward)
{
    const mo_layer *l = forward->layer;
    const mo_ffn *side = mo_forward_side(l);
    mo_workspace *w = forward->w;
    if (!side) {
        return;
    }
    const mo_acts *in = l->dense && !l->parallel ? &forward->in_dense : &forward->in;
    const int64_t n = forward->tokens, width = side->up.w.rows;
    if (goes_on(forward, n, &side->up)) {
        add_gated(forward, &side->gate, &side->up, in, NULL, n, w->side.gate,
                  (mo_job_gated){.y = w->side.up,
                                 .activation = side->activation,
                                 .limit = side->limit,
                                 .hidden = forward->side_hidden});
    } else {
        forward->side_count = n;
        mo_jobs_add(&w->phases.ffn_in, &side->gate, in, NULL, n, w->side.gate, width);
        mo_jobs_add(&w->phases.ffn_in, &side->up, in, NULL, n, w->side.up, width);
    }
    mo_jobs_add(&w->phases.ffn_out, &side->down, &forward->side_hidden, NULL, n, w->side.down,
                forward->spec->width);
    if (!l->dense) {
        mo_jobs_add(&w->phases.ffn_in, &l->moe.shared_gate, in, NULL, n, w->side.weight, 1);
    }
}

void mo_forward_begin_round(mo_forward *forward)
{
    mo_jobs_clear(&forward->w->phases.ffn_in);
    mo_jobs_clear(&forward->w->phases.ffn_out);
    forward->row_count = forward->side_count = 0;
}

/* True if gate, up and down run as one phase: not if an activation is a separate phase, nor if the step may
 * be aborted in the middle. */
static bool flows(const mo_forward *forward)
{
    return !forward->stoppable && forward->w->adapting.count == 0 &&
           forward->row_count + forward->side_count == 0 &&
           mo_flow_joins(&forward->w->flow, &forward->w->phases.ffn_in, &forward->w->phases.ffn_out);
}

/* A phase with a side task before its first item. */
typedef struct accompanied {
    mo_phase phase;
    mo_side_task side_task;
    int64_t task_ended;             /* time when the task ended */
    _Atomic int64_t products_ended; /* time when the last other item ended, approximately */
} accompanied;

static void run_accompanied(void *ctx, int64_t begin, int64_t end, int thread)
{
    accompanied *a = ctx;
    if (begin == 0) {
        a->side_task.fn(a->side_task.ctx);
        a->task_ended = mo_clock_ns();
        begin = 1;
    }
    if (end > begin) {
        a->phase.fn(a->phase.ctx, begin - 1, end - 1, thread);
        atomic_store_explicit(&a->products_ended, mo_clock_ns(), memory_order_relaxed);
    }
}

/* Records when the merge begins, if times are measured: a phase of one chunk, without a barrier. */
static void note_merge(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)begin, (void)end, (void)thread;
    mo_forward *forward = ctx;
    forward->merged_from = mo_clock_ns();
}

void mo_forward_run_round(mo_forward *forward, bool last)
{
    mo_phase phases[12];
    /* The other parts run in the phases of the routed experts. */
    const int part = forward->layer->routed ? MO_PART_EXPERTS : MO_PART_PRODUCTS;
    const bool joined = flows(forward);
    int count = 1;
    if (joined) {
        phases[0] = mo_flow_phase(&forward->w->flow, &forward->w->phases.ffn_in, &forward->w->phases.ffn_out);
        phases[0].part = part;
    } else {
        count = mo_jobs_phases_of(&forward->w->phases.ffn_in, phases, 0, part);
    }
    accompanied in = {.phase = phases[count - 1], .side_task = forward->side_task};
    const int64_t began = in.side_task.fn ? mo_clock_ns() : 0;
    forward->side_task = (mo_side_task){0};
    if (in.side_task.fn) {
        phases[count - 1] = (mo_phase){.fn = run_accompanied,
                                       .ctx = &in,
                                       .count = in.phase.count + 1,
                                       .grain = 1,
                                       .part = part,
                                       .shares = in.phase.shares,
                                       .later = in.phase.later ? in.phase.later + 1 : 0};
    }
    if (!joined) {
        phases[count++] = (mo_phase){.fn = activate_rows,
                                     .ctx = forward,
                                     .count = forward->row_count + forward->side_count,
                                     .grain = 1,
                                     .part = part};
        count = mo_jobs_phases_of(&forward->w->phases.ffn_out, phases, count, part);
    }
    if (last && forward->engine->timed) {
        phases[count++] = (mo_phase){.fn = note_merge, .ctx = forward, .count = 1, .grain = 1, .part = part};
    }
    if (last) {
        count = add_merging(forward, phases, count);
    }
    mo_forward_run(forward, phases, count);
    if (in.task_ended > atomic_load_explicit(&in.products_ended, memory_order_relaxed)) {
        const int64_t ended = atomic_load_explicit(&in.products_ended, memory_order_relaxed);
        forward->side_waited_ns += in.task_ended - (ended ? ended : began);
    }
    if (last && forward->engine->timed) {
        forward->merge_ns = mo_clock_ns() - forward->merged_from;
    }
}

/* ---- The CPU's share of a layer ---------------------------------------------------------------- */

/* The part of a layer that the CPU computes, and how. */
typedef struct cpu_share {
    mo_forward *forward;
    const uint8_t *who; /* [experts] NULL: the CPU computes all */
    uint8_t mine;       /* the CPU's value in who */
    bool whole;         /* with the dense or shared part */
    bool merges;        /* with the merge, in the last round */
    int asked, count;   /* experts: requested; and of these, computed */
    int chosen;         /* those requested and those of a device */
} cpu_share;

static void begin_round(void *owner)
{
    mo_forward_begin_round(((const cpu_share *)owner)->forward);
}

/* Adds the rows of an expert, which sort_by_expert() has made consecutive. */
static void add_expert(void *owner, const mo_need *n, bool down)
{
    mo_forward *forward = ((const cpu_share *)owner)->forward;
    const mo_picks *p = &forward->w->picks;
    const int32_t first = p->first[n->expert], count = p->count[n->expert];
    if (down) {
        mo_forward_add_down(forward, n->expert, p->token_of + first, first, count);
    } else {
        mo_forward_add_in(forward, n->expert, p->token_of + first, first, count);
    }
}

static bool add_beside(void *owner)
{
    const cpu_share *c = owner;
    if (c->whole) {
        add_side(c->forward);
    }
    return c->whole && mo_forward_side(c->forward->layer);
}

static void run_round(void *owner, bool last)
{
    const cpu_share *c = owner;
    mo_forward_run_round(c->forward, last && c->merges);
    if (c->forward->experts_only) { /* shows other ranks that this one makes progress */
        atomic_fetch_add_explicit(&c->forward->engine->layers_run, 1, memory_order_relaxed);
    }
}

/* Runs the side task now, so that others need not wait for this rank's disk. */
static void run_task(void *owner)
{
    mo_forward *forward = ((const cpu_share *)owner)->forward;
    if (forward->side_task.fn) {
        forward->side_task.fn(forward->side_task.ctx);
        forward->side_task = (mo_side_task){0};
    }
}

/* The layer's own reads are queued: the disk may prefetch after them. */
static mo_status looked(void *owner, bool first, mo_error *err)
{
    const cpu_share *c = owner;
    mo_forward *forward = c->forward;
    const mo_status status = forward->stoppable ? mo_forward_cancelled(forward, err) : MO_OK;
    if (status == MO_OK && first && c->whole && forward->layer->routed && mo_engine_store(forward->engine)) {
        mo_forward_guess(forward, c->chosen);
    }
    return status;
}

static mo_status release_done(void *owner, mo_error *err)
{
    const cpu_share *c = owner;
    mo_need *needs = c->forward->w->needs;
    (void)err;
    for (int i = 0; i < c->count; i++) {
        if (needs[i].down_done && !needs[i].released) {
            mo_store_release(c->forward->engine->tiers->store, &needs[i]);
            needs[i].released = true;
        }
    }
    return MO_OK;
}

static const mo_round_ops cpu_rounds = {.begin_round = begin_round,
                                        .add_expert = add_expert,
                                        .beside = add_beside,
                                        .run_round = run_round,
                                        .idle = run_task,
                                        .looked = looked,
                                        .release_done = release_done};

static int list_needs(cpu_share *c)
{
    const mo_moe *moe = &c->forward->layer->moe;
    mo_workspace *w = c->forward->w;
    int count = 0;
    c->chosen = 0;
    for (int e = 0; e < moe->experts; e++) {
        const int32_t picks = w->picks.count[e];
        /* Descriptors of the others are not in the caches and are not read. */
        if (picks > 0 && (c->who ? c->who[e] == c->mine : mo_spec_has_expert(c->forward->spec, e))) {
            w->needs[count++] = (mo_need){.expert = e, .picks = (uint32_t)picks};
        }
        c->chosen += picks > 0 && c->who && c->who[e] != c->mine;
    }
    c->chosen += count;
    return count;
}

/* Computing counts as the hot cache's hot lane here, and reading as the cold lane. */
static void tally_times(const mo_forward *forward, mo_tally_layer *counts, const mo_rounds *r, int64_t began)
{
    const int64_t region = mo_clock_ns() - began, products = r->computing_ns - forward->merge_ns;
    mo_tally_time(counts,
                  (const uint64_t[MO_TIMES]){[MO_TIME_MOE] = (uint64_t)(forward->routing_ns + region),
                                             [MO_TIME_ROUTING] = (uint64_t)forward->routing_ns,
                                             [MO_TIME_HOT] = (uint64_t)r->computing_ns,
                                             [MO_TIME_COLD] = r->store ? (uint64_t)(r->landed - began) : 0,
                                             [MO_TIME_JOIN] = (uint64_t)r->waiting_ns,
                                             [MO_TIME_REGION] = (uint64_t)region,
                                             [MO_TIME_WORKLIST] = (uint64_t)forward->worklist_ns,
                                             [MO_TIME_PRODUCTS] = (uint64_t)(products > 0 ? products : 0),
                                             [MO_TIME_MERGE] = (uint64_t)forward->merge_ns});
}

static void tally(const mo_forward *forward, const mo_rounds *r, int64_t began, bool done)
{
    mo_tally_layer *counts = mo_forward_tally(forward, forward->index);
    for (int i = 0; i < r->count; i++) {
        const mo_need *need = &r->needs[i];
        mo_forward_tally_expert(forward, counts, need->missing ? MO_FOUND_COLD : MO_FOUND_HOT, need->expert,
                                need->picks - need->drafted);
        mo_forward_found(forward, forward->index, need->expert, need->missing);
    }
    if (done && counts && forward->engine->timed && !mo_forward_has_drafts(forward)) {
        tally_times(forward, counts, r, began);
    }
}

/* Computes the experts in RAM first, then the others as they land. */
static mo_status compute_share(cpu_share *c, mo_error *err)
{
    mo_forward *forward = c->forward;
    const bool routed = forward->layer->routed;
    mo_rounds r = {.ops = &cpu_rounds,
                   .owner = c,
                   .store = routed ? mo_engine_store(forward->engine) : NULL,
                   .needs = forward->w->needs,
                   .merges = c->merges,
                   .timed = routed && (forward->engine->timed || forward->split)};
    const int64_t began = r.timed ? mo_clock_ns() : 0;
    const int asked = c->asked = routed ? list_needs(c) : 0;
    const uint32_t *drafted = routed ? mo_forward_note_drafts(forward) : NULL;
    for (int i = 0; drafted && i < asked; i++) {
        r.needs[i].drafted = drafted[r.needs[i].expert];
    }
    r.count = asked;
    if (r.store && forward->engine->tiers->skip_missing) {
        r.count = mo_forward_skip(forward, asked);
    }
    c->count = r.count;
    if (r.store) {
        mo_store_want(r.store, forward->index, r.needs, asked);
        mo_forward_bring_skipped(forward, r.needs + r.count, asked - r.count);
    }
    const mo_status status = mo_rounds_run(&r, err);
    if (r.store) {
        mo_store_leave(r.store);
    }
    if (r.store && forward->split) {
        forward->split->part_ns[MO_PART_COPIES] += r.waiting_ns;
    }
    if (routed) {
        r.count = asked;
        tally(forward, &r, began, status == MO_OK);
    }
    return status;
}

/* ---- The feed-forward part ---------------------------------------------------------------------- */

/* Computes everything but the routed experts. */
static void feed_beside(mo_forward *forward)
{
    for (int64_t i = 0; i < forward->tokens * forward->layer->moe.used; i++) {
        forward->w->picks.ids[i] = -1; /* the merge skips them */
    }
    mo_forward_begin_round(forward);
    add_side(forward);
    mo_forward_run_round(forward, true);
}

void mo_forward_compute(mo_forward *forward, const mo_expert_work *work, uint8_t who)
{
    const mo_moe *moe = &forward->layer->moe;
    const mo_picks *p = work->picks;
    float *const down = forward->w->down;
    int count = 0;
    forward->hidden = mo_acts_lay(forward->w->hidden, mo_picks_rows(p), moe->width);
    forward->w->down = work->out;
    mo_forward_begin_round(forward);
    for (int e = 0; e < p->experts; e++) {
        if (p->count[e] > 0 && work->who[e] == who) {
            mo_forward_add_in(forward, e, p->token_of + p->first[e], p->first[e], p->count[e]);
            mo_forward_add_down(forward, e, p->token_of + p->first[e], p->first[e], p->count[e]);
            count++;
        }
    }
    if (count > 0) {
        mo_forward_run_round(forward, false);
    }
    forward->w->down = down;
}

/* Experts computed by local workers count as hits of the upper tier. Ranks count their own. */
static void tally_workers(const mo_forward *forward, const mo_workers *workers, const mo_expert_work *work)
{
    mo_tally_layer *counts = mo_forward_tally(forward, forward->index);
    const uint32_t *drafted = mo_forward_drafted(forward);
    const mo_picks *p = work->picks;
    for (int e = 0; e < p->experts; e++) {
        const int number = work->who[e] - MO_BY_WORKER;
        if (p->count[e] > 0 && number >= 0 && number < MO_WORKERS_MAX && workers->list[number] &&
            !workers->list[number]->remote) {
            mo_forward_tally_expert(forward, counts, MO_FOUND_HOT, e,
                                    (uint32_t)p->count[e] - (drafted ? drafted[e] : 0));
            mo_forward_found(forward, forward->index, e, false);
        }
    }
}

/* Computes the CPU's share while workers compute theirs, then merges when all outputs are ready. */
static mo_status feed_with_workers(mo_forward *forward, mo_error *err)
{
    mo_workers *workers = &forward->engine->workers;
    mo_expert_work work = {
        .forward = forward, .layer = forward->index, .picks = &forward->w->picks, .out = forward->w->down};
    cpu_share own = {.forward = forward, .who = work.who, .whole = !forward->experts_only};
    int returned = 0;
    if (own.whole) {
        mo_forward_guess_remote(forward); /* their disks prefetch while they compute */
    }
    mo_forward_note_drafts(forward); /* ranks receive them */
    mo_workers_claim(workers, &work);
    mo_status status = mo_workers_begin(workers, &work, &forward->side_task, &returned, err);
    if (status != MO_OK) {
        return status;
    }
    status = compute_share(&own, err);
    forward->side_task = (mo_side_task){0};
    status = mo_workers_end(workers, &work, status, &returned, err);
    if (status == MO_OK && returned > 0) {
        cpu_share again = {.forward = forward, .who = work.who, .mine = MO_BY_CPU_AGAIN};
        status = compute_share(&again, err);
    }
    if (status == MO_OK) {
        tally_workers(forward, workers, &work);
    }
    if (status == MO_OK && own.whole) {
        mo_phase at_last[4];
        mo_forward_run(forward, at_last, add_merging(forward, at_last, 0));
    }
    return status;
}

static mo_status feed(mo_forward *forward, mo_error *err)
{
    cpu_share all = {.forward = forward, .whole = !forward->experts_only, .merges = !forward->experts_only};
    return forward->layer->routed && mo_workers_any(&forward->engine->workers)
               ? feed_with_workers(forward, err)
               : compute_share(&all, err);
}

mo_status mo_forward_experts(mo_forward *forward, mo_error *err)
{
    const mo_moe *moe = &forward->layer->moe;
    forward->hidden = mo_acts_lay(forward->w->hidden, forward->w->picks.first[moe->experts], moe->width);
    return feed(forward, err);
}

mo_status mo_forward_feed_forward(mo_forward *forward, mo_error *err)
{
    const mo_layer *l = forward->layer;
    if (!l->routed && !l->dense) {
        if (!forward->k->finite(forward->w->x, forward->tokens * forward->spec->width)) {
            atomic_store_explicit(&forward->infinite, true, memory_order_relaxed);
        }
        return MO_OK;
    }
    if (l->routed && forward->slices[0].routers_only) {
        feed_beside(forward);
        return MO_OK;
    }
    if (l->routed) {
        const int64_t began = forward->engine->timed ? mo_clock_ns() : 0;
        sort_by_expert(forward);
        forward->worklist_ns = forward->engine->timed ? mo_clock_ns() - began : 0;
    }
    return feed(forward, err);
}
