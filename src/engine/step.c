#include "engine/step.h"

#include <string.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/mapped.h"
#include "base/status.h"
#include "engine/accelerator.h"
#include "engine/adapter.h"
#include "engine/forward.h"
#include "engine/logits.h"

/* ---- Before the layers ------------------------------------------------------------------------ */

/* What the first rank says of token t of the step. */
static void place_told(mo_forward *forward, const mo_slice *s, int64_t t)
{
    const int64_t at = forward->w->position[t];
    const mo_row_place *p = &s->places[at - s->state->length];
    const int64_t values = (forward->spec->pictures.features - s->first_feature) * forward->spec->width;
    forward->w->sees[t] = at + 1 + p->ahead;
    forward->w->row_of[t] = p->added ? s->features + (p->added - 1) * values : NULL;
    forward->left_out = s->first_feature + 1;
    forward->features = forward->features || p->added;
    forward->ahead = forward->ahead || p->ahead;
}

/* Token t of the step, of a model that reads pictures: is it a row of one? And what it sees. */
static bool place_row(mo_forward *forward, const mo_slice *s, int64_t t)
{
    const int64_t at = forward->w->position[t];
    const mo_image_place *p = s->images ? mo_image_list_find(s->images, at) : NULL;
    const float *values = p ? atomic_load(&p->image->values) : NULL;
    forward->w->sees[t] = at + 1;
    forward->w->row_of[t] = NULL;
    if (s->places) {
        place_told(forward, s, t);
    }
    if (!values) {
        return false;
    }
    forward->w->row_of[t] = values + (at - p->at) * (1 + p->image->features) * p->image->width;
    if (forward->spec->pictures.both_ways) {
        forward->w->sees[t] = p->at + mo_image_rows(p->image);
        forward->ahead = true;
    }
    forward->features = forward->features || p->image->features > 0;
    return true;
}

/* Token t of the step: its session, position and slice. */
static mo_status place_tokens(mo_forward *forward, mo_error *err)
{
    int64_t t = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        if (s->count < 1 || t + s->count > forward->engine->batch || s->state->spec != forward->spec ||
            s->count > s->state->batch) {
            return mo_fail(err, MO_EINVAL, "a step takes 1 to %lld tokens of this engine's sessions",
                           (long long)forward->engine->batch);
        }
        if (s->state->length + s->count > s->state->context) {
            return mo_fail(err, MO_EINVAL,
                           "the text has more than the %lld tokens this session "
                           "holds; increase `context` or shorten the text",
                           (long long)s->state->context);
        }
        for (int64_t j = 0; j < s->count; j++, t++) {
            forward->w->state_of[t] = s->state;
            forward->w->position[t] = s->state->length + j;
            forward->w->slice_of[t] = i;
            const bool row = forward->w->row_of && place_row(forward, s, t);
            if (forward->spec->first_layer == 0 && !row &&
                (s->tokens[j] < 0 || s->tokens[j] >= forward->spec->vocab)) {
                return mo_fail(err, MO_EINVAL, "token %d is not in the vocabulary of %lld tokens",
                               s->tokens[j], (long long)forward->spec->vocab);
            }
        }
    }
    forward->tokens = t;
    return MO_OK;
}

/* The adapters of all slices, each once; and which of them every slice has. */
static void place_adapters(const mo_forward *forward)
{
    mo_adapting *a = &forward->w->adapting;
    a->count = 0;
    a->slice_of = forward->w->slice_of;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_adapter_list *list = forward->slices[i].adapters;
        for (int n = 0; list && n < list->count; n++) {
            const mo_lora *lora = &list->use[n].adapter->lora;
            int which = 0;
            while (which < a->count && a->lora[which] != lora) {
                which++;
            }
            a->lora[which] = lora;
            a->count += which == a->count;
        }
    }
    for (int i = 0; a->count && i < forward->slice_count; i++) {
        const mo_adapter_list *list = forward->slices[i].adapters;
        mo_adapting_use *use = a->uses + (int64_t)i * MO_ADAPTERS_USED;
        for (int n = 0; n < MO_ADAPTERS_USED; n++) {
            use[n] = (mo_adapting_use){.which = -1};
            for (int which = 0; list && n < list->count && which < a->count; which++) {
                if (a->lora[which] == &list->use[n].adapter->lora) {
                    use[n] = (mo_adapting_use){.which = which, .scale = list->use[n].scale};
                }
            }
        }
    }
}

/* States in RAM get the blocks that they are about to write; a device sees to its own. */
static mo_status own_blocks(const mo_forward *forward, mo_error *err)
{
    mo_status status = MO_OK;
    for (int i = 0; i < forward->slice_count && status == MO_OK; i++) {
        const mo_slice *s = &forward->slices[i];
        if (!s->state->gpu_session) {
            status = mo_state_own(s->state, s->state->length, s->state->length + s->count, NULL, err);
        }
    }
    return status;
}

void mo_forward_begin(mo_forward *forward)
{
    for (int i = 0; i < forward->slice_count; i++) {
        mo_state *s = forward->slices[i].state;
        const int64_t end = s->length + forward->slices[i].count;
        s->written = s->written > end ? s->written : end;
        s->anew = false;
    }
    forward->begun = true;
}

/* A token's row of the embedding: from RAM, or from the file. NULL when it could not be read. */
static const uint8_t *embedding_row(mo_forward *forward, int32_t token, int64_t row_bytes, int thread)
{
    const mo_tiers *tiers = forward->engine->tiers;
    if (!tiers || !tiers->rows) {
        return forward->spec->embed.data + token * row_bytes;
    }
    uint8_t *row = forward->w->row + thread * row_bytes;
    mo_error err = {0};
    if (mo_rows_read(tiers->rows, token, row, &err) == MO_OK) {
        return row;
    }
    if (!atomic_exchange(&forward->unread, true)) {
        forward->read_error = err;
    }
    return NULL;
}

static bool embed_token(mo_forward *forward, int64_t t, int thread)
{
    const mo_weights *e = &forward->spec->embed;
    const int64_t n = forward->spec->width;
    const mo_slice *s = &forward->slices[forward->w->slice_of[t]];
    const int32_t token = s->tokens[forward->w->position[t] - s->state->length];
    float *x = forward->w->x + t * n;
    if (forward->w->row_of && forward->w->row_of[t]) {
        memcpy(x, forward->w->row_of[t], sizeof *x * (size_t)n);
        return true;
    }
    const uint8_t *row = embedding_row(forward, token, mo_format_row_bytes(mo_format_of(e->type), n), thread);
    if (!row) {
        return false;
    }
    forward->k->dequantize(e->type, row, n, x);
    if (forward->spec->embed_scale != 1.0f) {
        forward->k->scale(x, forward->spec->embed_scale, n);
    }
    return true;
}

/* The coordinates that rotate a token's heads. */
static void position_of(const mo_forward *forward, int64_t t, int64_t at[3])
{
    const mo_slice *s = &forward->slices[forward->w->slice_of[t]];
    if (s->images) {
        mo_image_list_position(s->images, forward->w->position[t], at);
    } else if (s->places) {
        memcpy(at, s->places[forward->w->position[t] - s->state->length].position, 3 * sizeof *at);
    } else {
        at[0] = at[1] = at[2] = forward->w->position[t];
    }
}

/* The stream of a rank with later layers has come from the one before it. */
static void embed(void *ctx, int64_t begin, int64_t end, int thread)
{
    mo_forward *forward = ctx;
    for (int64_t t = begin; t < end; t++) {
        if (forward->spec->first_layer == 0 && !embed_token(forward, t, thread)) {
            return;
        }
        int64_t at[3];
        position_of(forward, t, at);
        for (int r = 0; r < forward->engine->rope_count; r++) {
            const int64_t stride = forward->w->rope_stride;
            float *c = forward->w->rope + (2 * r * forward->engine->batch + t) * stride;
            mo_rope_fill_at(forward->engine->ropes[r], at, c, c + forward->engine->batch * stride);
        }
        if (forward->w->q_factor) {
            forward->w->q_factor[t] = mo_temper_at(&forward->spec->temper, forward->w->position[t]);
        }
    }
}

/* Steps of more tokens look for a cancellation within layers too. */
enum { SMALL_STEP = 8 };

/* ---- The step --------------------------------------------------------------------------------- */

/* After the layers that are here: those of other ranks, and the logits. */
static mo_status go_on(mo_forward *forward, mo_error *err)
{
    const mo_remote_layers *remote_layers = forward->engine->remote_layers;
    const mo_status status = remote_layers ? remote_layers->step(remote_layers->owner, forward, err) : MO_OK;
    return status == MO_OK ? mo_logits_emit(forward, err) : status;
}

/* The layers that are here. *all: nothing is left to do, the device has made the logits. */
static mo_status run_here(mo_forward *forward, bool *all, mo_error *err)
{
    mo_status status = place_tokens(forward, err);
    if (status == MO_OK) {
        status = own_blocks(forward, err);
    }
    if (status != MO_OK) {
        return status;
    }
    place_adapters(forward);
    forward->in = mo_acts_lay(forward->w->in, forward->tokens, forward->spec->width);
    forward->in_dense = mo_acts_lay(forward->w->in_dense, forward->tokens, forward->spec->width);
    mo_pool_run(forward->engine->pool, forward->tokens, 1, embed, forward);
    if (atomic_load(&forward->unread)) {
        *err = forward->read_error;
        return err->status;
    }
    if (mo_linear_present(&forward->spec->head.join)) {
        mo_forward_join(forward);
    }
    if (forward->engine->tiers && forward->engine->tiers->store && !forward->slices[0].routers_only) {
        mo_store_pass(forward->engine->tiers->store,
                      forward->slices[0].prompt ? MO_STORE_PROMPT : MO_STORE_GENERATION);
        if (!atomic_load(&forward->engine->accelerator)) {
            mo_forward_ask_known(forward);
        }
    }
    const mo_accelerator *accelerator = atomic_load(&forward->engine->accelerator);
    for (int i = 0; i < forward->slice_count; i++) { /* lost in a step of others, after this feed began */
        const mo_state *s = forward->slices[i].state;
        if (s->gpu_session && (!accelerator || s->losses != atomic_load(&forward->engine->losses))) {
            forward->stale = true;
            return mo_fail(err, MO_EDEVICE, "the device with the session's state is lost");
        }
    }
    if (accelerator) {
        status = accelerator->step(accelerator->owner, forward, err);
        *all = mo_spec_layers(forward->spec) == forward->spec->layer_count;
        atomic_fetch_add_explicit(&forward->engine->layers_run, !*all, memory_order_relaxed);
        return status;
    }
    mo_forward_begin(forward);
    forward->stoppable = forward->tokens > SMALL_STEP;
    return mo_forward_run_layers(forward, 0, forward->spec->layer_count, err);
}

/* ---- In groups --------------------------------------------------------------------------------- */

/* Into how many groups the step goes, so that other ranks work while this one does: 1 unless it is of several sessions, all of which want
 * logits, and computed by the CPU. */
static int groups_of(const mo_forward *forward)
{
    const mo_remote_layers *remote_layers = forward->engine->remote_layers;
    int64_t tokens = 0;
    bool good = remote_layers && forward->slice_count > 1 && !atomic_load(&forward->engine->accelerator) &&
                !forward->slices[0].routers_only;
    for (int i = 0; i < forward->slice_count && good; i++) {
        const mo_slice *s = &forward->slices[i];
        good = s->logits && s->logits_from < s->count && !s->drafts;
        tokens += s->count;
    }
    const int most = good ? remote_layers->groups(remote_layers->owner, tokens) : 1;
    return most < forward->slice_count ? most : forward->slice_count;
}

/* Slices of the next of `left` groups: as many as have their share of the tokens. */
static int slices_of_group(const mo_slice *slices, int count, int left)
{
    int64_t all = 0, some = 0;
    int taken = 0;
    for (int i = 0; i < count; i++) {
        all += slices[i].count;
    }
    while (taken < count - (left - 1) && (taken == 0 || (some + slices[taken].count) * left <= all)) {
        some += slices[taken++].count;
    }
    return left == 1 ? count : taken;
}

static mo_status run_in_groups(mo_forward *forward, int groups, mo_error *err)
{
    const mo_remote_layers *remote_layers = forward->engine->remote_layers;
    mo_forward part[MO_REMOTE_GROUPS];
    mo_status status = MO_OK;
    int begun = 0, first = 0;
    for (int g = 0; g < groups && status == MO_OK; g++) {
        const mo_slice *slices = forward->slices + first;
        const int count = slices_of_group(slices, forward->slice_count - first, groups - g);
        bool all = false;
        part[g] = (mo_forward){.engine = forward->engine,
                               .tally = forward->tally,
                               .spec = forward->spec,
                               .k = forward->k,
                               .w = forward->w,
                               .slices = slices,
                               .slice_count = count,
                               .whole = forward,
                               .split = forward->split};
        status = run_here(&part[g], &all, err);
        forward->begun |= part[g].begun;
        if (status == MO_OK) {
            status = remote_layers->begin(remote_layers->owner, &part[g], err);
            begun += status == MO_OK;
        }
        first += count;
    }
    int64_t tokens = 0;
    for (int g = 0; g < begun; g++) { /* also when one failed: they are under way */
        mo_error own = {0};
        const mo_status one = remote_layers->end(remote_layers->owner, &part[g],
                                                 forward->w->x + tokens * forward->spec->width, &own);
        if (one != MO_OK && status == MO_OK) {
            status = one;
            *err = own;
        }
        tokens += part[g].tokens;
        forward->forget |= part[g].forget;
        forward->stale |= part[g].stale;
    }
    if (status == MO_OK) { /* the output matrix is read once for all */
        status = place_tokens(forward, err);
    }
    if (status == MO_OK) {
        place_adapters(forward);
        status = mo_logits_emit(forward, err);
    }
    return status;
}

static mo_status run(mo_forward *forward, mo_error *err)
{
    const int groups = groups_of(forward);
    bool all = false;
    if (groups > 1) {
        return run_in_groups(forward, groups, err);
    }
    const mo_status status = run_here(forward, &all, err);
    return status == MO_OK && !all ? go_on(forward, err) : status;
}

/* What was computed from a file that is not whole any more counts for nothing, whatever came of it. */
static mo_status run_mapped(mo_forward *forward, mo_error *err)
{
    mo_error own;
    sigset_t before;
    mo_mapped_enter(&before);
    const mo_status status = run(forward, err);
    mo_mapped_leave(&before);
    const mo_status whole = mo_checkpoint_check(forward->engine->mapped, &own);
    if (whole != MO_OK) {
        *err = own;
        return whole;
    }
    return status;
}

static void pick_some(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const mo_forward *forward = ctx;
    const int64_t vocab = forward->spec->vocab;
    for (int64_t i = begin; i < end; i++) {
        const mo_slice *s = &forward->slices[i];
        if (s->drafts) {
            mo_pick_run_drafts(s->pick, mo_logits_row(forward, (int)i, 0), vocab);
            if (!s->pick->made) {
                memcpy(s->logits, mo_logits_row(forward, (int)i, s->pick->accepted),
                       sizeof(float) * (size_t)vocab);
            }
        } else if (s->pick && !s->pick->made && s->logits && s->logits_from < s->count) {
            mo_pick_run(s->pick, mo_logits_row(forward, (int)i, s->count - 1), vocab);
        }
    }
}

/* Draws for every slice that has a pick and the logits of its last token, side by side. */
static void pick_all(mo_forward *forward)
{
    int wanted = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        wanted += s->pick && !s->deferred && (!s->pick->made || s->drafts);
    }
    if (wanted > 1) {
        mo_pool_run(forward->engine->pool, forward->slice_count, 1, pick_some, forward);
    } else if (wanted == 1) {
        pick_some(forward, 0, forward->slice_count, 0);
    }
}

/* What was accepted enters recurrent states, and statistics. The tokens are known whatever becomes of the device: with it, states are made
 * again from them. */
static void commit(mo_forward *forward)
{
    mo_drafts *d = &forward->engine->drafts;
    const mo_accelerator *accelerator = atomic_load(&forward->engine->accelerator);
    const mo_remote_layers *others = forward->engine->remote_layers;
    mo_error err = {0};
    if (others) {
        others->accepted(others->owner, forward);
    }
    memset(d->applied, 0, sizeof *d->applied * (size_t)forward->spec->layer_count);
    if (accelerator && accelerator->apply_drafts(accelerator->owner, forward, &err) != MO_OK) {
        mo_engine_lose_accelerator(forward->engine, &err);
    }
    mo_forward_commit(forward);
}

/* The states hold the step's tokens, but for drafts that were not accepted. */
static void extend_states(const mo_forward *forward)
{
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        mo_state_extend(s->state, s->count - s->drafts + (s->drafts ? s->pick->accepted : 0), s->count);
    }
}

/* What the states have gained, for MTP heads that will guess what follows. What comes out of other ranks' layers is here for rows whose logits
 * are wanted: a head knows no prompts of theirs but for the last token. */
static void follow(const mo_forward *forward)
{
    const mo_streams *streams = &forward->spec->streams;
    const float *stream = streams->count ? forward->w->streams.x : forward->w->x;
    const int64_t values = (streams->count ? streams->count : 1) * forward->spec->width;
    const bool remote = forward->engine->remote_layers != NULL;
    int64_t first = 0;
    for (int i = 0; i < forward->slice_count; i++) {
        const mo_slice *s = &forward->slices[i];
        if (s->follow) {
            const int64_t kept = s->count - s->drafts + (s->drafts ? s->pick->accepted : 0);
            const int64_t from = !remote ? 0 : s->logits ? s->logits_from : kept;
            if (from < kept) {
                s->follow(s->head, forward->spec, s->tokens + from, s->state->length - kept + from,
                          kept - from, stream + (first + from) * values);
            }
        }
        first += s->count;
    }
}

static bool is_deferred(const mo_slice *slices, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        any |= slices[i].deferred;
    }
    return any;
}

/* What a step that succeeded leaves behind, once all is picked. */
static void end(mo_forward *forward)
{
    if (is_deferred(forward->slices, forward->slice_count)) {
        return;
    }
    if (mo_forward_has_drafts(forward)) {
        commit(forward);
    }
    extend_states(forward);
    follow(forward);
}

/* Does the step have a time that can be split? */
static bool is_large(const mo_slice *slices, int count)
{
    int64_t tokens = 0, drafts = 0;
    for (int i = 0; i < count; i++) {
        tokens += slices[i].count;
        drafts += slices[i].drafts;
    }
    return tokens > SMALL_STEP && !drafts && !slices[0].routers_only;
}

static void count_time(mo_engine_counters *c, const mo_slice *slices, int count, int64_t ns)
{
    if (count == 1 && slices[0].count == 1 && !slices[0].prompt) {
        c->single_steps++;
        c->single_ns += (uint64_t)ns;
    } else if (is_large(slices, count)) {
        for (int i = 0; i < count; i++) {
            c->prompt_tokens += (uint64_t)slices[i].count;
        }
        c->prompt_ns += (uint64_t)ns;
    }
}

static bool is_counted(const mo_slice *slices, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++) {
        any |= !slices[i].uncounted;
    }
    return any;
}

static mo_forward forward_of(mo_engine *engine, const mo_slice *slices, int count, bool counted)
{
    return (mo_forward){.engine = engine,
                        .tally = counted ? atomic_load(&engine->tally) : NULL,
                        .spec = engine->spec,
                        .k = engine->kernels,
                        .w = &engine->space,
                        .slices = slices,
                        .slice_count = count};
}

void mo_step_commit(mo_engine *engine, const mo_slice *slices, int count)
{
    mo_engine_take_turn(engine);
    mo_host_float_mode();
    mo_forward forward = forward_of(engine, slices, count, is_counted(slices, count));
    commit(&forward);
    extend_states(&forward);
    pthread_mutex_unlock(&engine->lock);
}

void mo_step_abandon(mo_engine *engine, const mo_slice *slices, int count)
{
    mo_engine_take_turn(engine);
    for (int i = 0; i < count; i++) {
        if (!slices[i].drafts) {
            mo_state_extend(slices[i].state, slices[i].count, slices[i].count);
        }
    }
    pthread_mutex_unlock(&engine->lock);
}

mo_status mo_step(mo_engine *engine, const mo_slice *slices, int count, mo_error *err)
{
    mo_error own = {0};
    err = err ? err : &own; /* what is logged, and what decides below, is read from it */
    mo_engine_take_turn(engine);
    mo_host_float_mode();
    const bool counted = is_counted(slices, count);
    const mo_engine_counters before = engine->counters;
    mo_forward forward = forward_of(engine, slices, count, counted);
    mo_split split = {.steps = 1};
    const int64_t began = mo_clock_ns();
    forward.split = engine->splits && counted && is_large(slices, count) ? &split : NULL;
    const mo_status status = engine->mapped ? run_mapped(&forward, err) : run(&forward, err);
    const int64_t took = mo_clock_ns() - began;
    if (forward.split && status == MO_OK) {
        split.tokens = (uint64_t)forward.tokens;
        split.total_ns = took;
        mo_split_add(&engine->split, &split);
    }
    if (status == MO_EDEVICE && !forward.stale) {
        mo_engine_lose_accelerator(engine, err);
    }
    for (int i = 0; i < count; i++) {
        const bool written = slices[i].state->recurrent && forward.begun && !slices[i].drafts;
        if (status != MO_OK && (written || forward.forget)) {
            mo_state_reset(slices[i].state);
        }
    }
    if (status == MO_OK && !slices[0].routers_only) {
        engine->counters.steps++;
        engine->counters.tokens += (uint64_t)forward.tokens;
        count_time(&engine->counters, slices, count, took);
    }
    if (status == MO_OK) {
        pick_all(&forward);
        end(&forward);
    }
    engine->counters = counted ? engine->counters : before;
    if (engine->after_step) {
        engine->after_step(engine->after_step_user);
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}
