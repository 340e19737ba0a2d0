/* Predictions of experts: what the next layer will need. They never change a result, except the lossy option
 * that skips missing experts. */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/forward.h"
#include "numeric/ops.h"

/* ---- Prefetching -------------------------------------------------------------------------------- */

/* Predictions between two checks, and the share that must be correct. A wrong prediction costs a slot and
 * disk time that a need may wait for. A correct one saves about as much as it costs. */
enum { CHECKED_AT_ONCE = 256 };
static const double right_share = 0.5;

/* If more than this share of correct predictions is late, it pays to predict one layer further ahead, unless
 * the disk was busy for more than busy_share of the time: then nothing would arrive sooner. */
static const double late_share = 0.5, busy_share = 0.9;

/* The share of a layer's experts that counts as nearly all: seven of eight. */
static const double nearly_all = 0.875;

/* Maximum bytes of predictions for one layer, for any number of tokens: about what the disk can read while
 * the next layer's mixer computes. More would evict what later layers need, because experts of this layer,
 * which are needed last, cannot be evicted yet. */
static const int64_t guess_bytes = (int64_t)16 << 20;

/* Maximum tokens of a step whose experts are predicted, one by one: several sequences that decode together.
 * Larger steps are prompts, which soon need nearly all experts. */
enum { GUESSED_TOKENS = 16 };

/* The first routed layer after *index, which is set to it. */
static const mo_layer *next_routed(const mo_forward *forward, int *index)
{
    for (int i = *index + 1; i < forward->spec->layer_count; i++) {
        if (forward->spec->layers[i].routed) {
            *index = i;
            return &forward->spec->layers[i];
        }
    }
    return NULL;
}

/* True if the disk had idle time since the last check of the farthest predictions and most correct ones were
 * late. */
static bool could_come_sooner(const mo_prefetch_state *f, const mo_store_counters *c)
{
    const mo_prefetch_counters *now = &c->distance[f->distance], *then = &f->last_checked[f->distance];
    const double proven = (double)(now->proven - then->proven), late = (double)(now->late - then->late);
    const double busy = (double)(c->disk.busy_ns - f->busy_ns),
                 time = (double)(mo_clock_ns() - f->last_checked_ns);
    return late > late_share * proven && busy < busy_share * time;
}

/* Starts a new period for checking the farthest predictions against disk usage. */
static void begin_time(mo_prefetch_state *f, const mo_store_counters *c)
{
    f->last_checked_ns = mo_clock_ns();
    f->busy_ns = c->disk.busy_ns;
}

/* Predictions of this distance are wrong too often: reduces the distance, or turns prefetching off. */
static void shorten(mo_prefetch_state *f, int distance, double share)
{
    if (distance == 1) {
        f->on = false;
        mo_log(MO_LOG_INFO, "store", "prefetch is off: only %.0f %% of the predicted experts were needed",
               100.0 * share);
    } else {
        f->distance = f->most = distance - 1;
        mo_log(MO_LOG_INFO, "store",
               "prefetch no longer looks %d layers ahead: only %.0f %% of the experts were needed", distance,
               100.0 * share);
    }
}

/* Checks each distance by its own predictions, because the farthest may find no slots while nearer ones are
 * wrong. Increases the distance, up to `most`, if the farthest predictions are correct and could arrive
 * sooner. */
static bool pays(mo_tiers *tiers, int most)
{
    mo_prefetch_state *f = &tiers->prefetch;
    const mo_store_counters c = mo_store_count(tiers->store);
    if (f->last_checked_ns == 0) {
        begin_time(f, &c);
    }
    for (int r = f->distance; r > 0; r--) {
        const double made = (double)(c.distance[r].made - f->last_checked[r].made);
        const double proven = (double)(c.distance[r].proven - f->last_checked[r].proven);
        const bool furthest = r == f->distance;
        if (made < CHECKED_AT_ONCE) {
            continue;
        }
        if (proven < right_share * made) {
            shorten(f, r, proven / made);
        } else if (furthest && r < f->most && r < most && could_come_sooner(f, &c)) {
            f->distance++;
        }
        f->last_checked[r] = c.distance[r];
        if (furthest) {
            begin_time(f, &c);
        }
    }
    return f->on;
}

/* Approximates the router input of `l` for token t, as if its layer's mixer added nothing. With several
 * streams: as if it read this layer's input. */
static void guess_input(const mo_forward *forward, const mo_layer *l, int64_t t, const mo_acts *in)
{
    const int64_t n = forward->spec->width;
    const float *stream = (forward->spec->streams.count ? forward->in.x : forward->w->x) + t * n;
    if (l->moe.router.input_scale) {
        forward->k->rms_norm(in->x, stream, NULL, n, forward->spec->eps);
        forward->k->scale(in->x, 1.0f / sqrtf((float)n), n);
        forward->k->multiply(in->x, l->moe.router.input_scale, n);
    } else {
        mo_forward_norm(forward, in->x, stream, mo_layer_experts_norm(l), mo_layer_experts_norm_bias(l));
    }
    mo_forward_quantize(forward->k, in, 0);
}

/* The experts that the layer would probably choose for token t; false: unknown. */
static bool choose_for(mo_forward *forward, const mo_layer *l, int64_t t, int32_t *ids)
{
    mo_workspace *w = forward->w;
    const mo_moe *moe = &l->moe;
    if (moe->router.by_token) {
        const float *given = mo_forward_given(forward, &moe->router, moe->used, t);
        for (int i = 0; i < moe->used; i++) {
            ids[i] = (int32_t)given[i];
        }
        return true;
    }
    const mo_acts in = mo_acts_lay(w->guess_in, 1, forward->spec->width);
    guess_input(forward, l, t, &in);
    mo_jobs_clear(&w->phases.guess);
    mo_jobs_add(&w->phases.guess, &moe->router.logits, &in, NULL, 1, w->guess_scores, moe->experts);
    const mo_phase phase = mo_jobs_phase(&w->phases.guess);
    mo_pool_region(forward->engine->pool, &phase, 1);
    for (int e = 0; e < moe->experts; e++) {
        if (!isfinite(w->guess_scores[e])) {
            return false;
        }
    }
    if (moe->router.select_bias) {
        forward->k->add(w->guess_scores, moe->router.select_bias, moe->experts);
    }
    mo_topk(w->guess_scores, moe->experts, moe->used, ids);
    return true;
}

/* The experts that the first routed layer after *index would probably choose, each once; *index is set to
 * that layer. False: no such layer, or unknown. */
static bool choose(mo_forward *forward, int *index, int32_t *ids, int *count)
{
    const mo_layer *next = forward->tokens <= GUESSED_TOKENS ? next_routed(forward, index) : NULL;
    bool named[MO_EXPERTS_MAX] = {false};
    int32_t own[MO_EXPERTS_MAX];
    *count = 0;
    for (int64_t t = 0; next && t < forward->tokens; t++) {
        if (!choose_for(forward, next, t, own)) {
            return false;
        }
        for (int i = 0; i < next->moe.used; i++) {
            if (!named[own[i]]) {
                named[own[i]] = true;
                ids[(*count)++] = own[i];
            }
        }
    }
    return next;
}

/* Requests the experts that the step's tokens determine for this layer. */
static void ask_known(const mo_forward *forward, int index)
{
    const mo_moe *moe = &forward->spec->layers[index].moe;
    bool named[MO_EXPERTS_MAX] = {false};
    int32_t ids[MO_EXPERTS_MAX];
    int count = 0;
    for (int64_t t = 0; t < forward->tokens; t++) {
        const float *given = mo_forward_given(forward, &moe->router, moe->used, t);
        for (int i = 0; i < moe->used; i++) {
            if (!named[(int)given[i]]) {
                named[(int)given[i]] = true;
                ids[count++] = (int32_t)given[i];
            }
        }
    }
    mo_store_known(forward->engine->tiers->store, index, ids, count);
}

void mo_forward_ask_known(const mo_forward *forward)
{
    const mo_model_spec *spec = forward->spec;
    const mo_tiers *tiers = forward->engine->tiers;
    const int most = forward->tokens <= GUESSED_TOKENS ? spec->layer_count : 1;
    for (int i = 0, asked = 0; i < spec->layer_count && asked < most && tiers->prefetch.layers; i++) {
        if (spec->layers[i].routed && spec->layers[i].moe.router.by_token) {
            ask_known(forward, i);
            asked++;
        }
    }
}

void mo_forward_guess(mo_forward *forward, int needed)
{
    mo_tiers *tiers = forward->engine->tiers;
    const bool all = forward->tokens > 1 && needed >= nearly_all * forward->layer->moe.experts;
    int32_t ids[MO_EXPERTS_MAX];
    int index = forward->index, count = 0;
    const mo_layer *next = next_routed(forward, &index);
    if (next && next->moe.router.by_token) {
        if (tiers->prefetch.layers) {
            ask_known(forward, index);
        }
        return;
    }
    index = forward->index;
    if (all) {
        if (tiers->prefetch.layers && next_routed(forward, &index)) {
            mo_store_guess_layer(tiers->store, index);
        }
        return;
    }
    if (!tiers->prefetch.on || !pays(tiers, MO_PREFETCH_DISTANCE_MAX)) {
        return;
    }
    for (int distance = 1; distance <= tiers->prefetch.distance && choose(forward, &index, ids, &count);
         distance++) {
        mo_store_guess(tiers->store, index, ids, count, distance, guess_bytes);
    }
}

void mo_forward_guess_remote(mo_forward *forward)
{
    const mo_worker *others = mo_workers_ahead(&forward->engine->workers);
    int32_t ids[MO_EXPERTS_MAX];
    int index = forward->index, count = 0;
    if (others && forward->tokens == 1 && choose(forward, &index, ids, &count)) {
        others->guess(others->owner, index, ids, count);
    }
}

bool mo_guess_wanted(const mo_tiers *tiers)
{
    return tiers && tiers->store && tiers->prefetch.on;
}

void mo_guess_take(mo_tiers *tiers, int layer, const int32_t *experts, int count)
{
    if (mo_guess_wanted(tiers) && pays(tiers, 1)) {
        mo_store_guess(tiers->store, layer, experts, count, 1, guess_bytes);
    }
}

/* ---- Skipping missing experts ------------------------------------------------------------------- */

int mo_forward_skip(mo_forward *forward, int count)
{
    const mo_store *store = forward->engine->tiers->store;
    mo_need *needs = forward->w->needs;
    bool missing[MO_EXPERTS_MAX] = {false};
    int kept = 0, end = count;
    for (int i = 0; i < count; i++) {
        missing[needs[i].expert] = !mo_store_resident(store, forward->index, needs[i].expert);
    }
    forward->engine->tiers->skipped += (uint64_t)mo_picks_skip(&forward->w->picks, missing);
    while (kept < end) {
        if (missing[needs[kept].expert]) {
            const mo_need skipped = needs[kept];
            needs[kept] = needs[--end];
            needs[end] = skipped;
        } else {
            kept++;
        }
    }
    return kept;
}

void mo_forward_bring_skipped(mo_forward *forward, mo_need *needs, int count)
{
    mo_store *store = forward->engine->tiers->store;
    int32_t experts[MO_EXPERTS_MAX];
    for (int i = 0; i < count; i++) {
        mo_store_skip(store, &needs[i]);
        experts[i] = needs[i].expert;
    }
    if (count > 0) {
        mo_store_guess(store, forward->index, experts, count, 0, INT64_MAX);
    }
}
