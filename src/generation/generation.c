#include "generation/generation.h"

#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/array.h"
#include "base/growing.h"
#include "base/status.h"
#include "engine/session.h"
#include "sampling/pick.h"

/* ---- Opening ---------------------------------------------------------------------------------- */

/* Compiles the grammar for the prompt: a prompt that has begun a thought needs another one. */
static mo_status want_grammar(mo_generation *g, bool in_thought, mo_error *err)
{
    mo_grammar *fresh;
    if (g->set.compiled || (g->grammar && g->grammar_in_thought == in_thought)) {
        return MO_OK;
    }
    const mo_status status = mo_generation_settings_compile(&g->set, g->model, in_thought, &fresh, err);
    if (status == MO_OK) {
        mo_grammar_close(g->grammar);
        g->grammar = fresh;
        g->grammar_in_thought = in_thought;
    }
    return status;
}

/* Opens the parser for a new answer. */
static mo_status want_events(mo_generation *g, bool in_thought, mo_error *err)
{
    mo_events *fresh;
    if (g->events && g->events_in_thought == in_thought && mo_events_tokens(g->events) == 0 &&
        mo_events_ended(g->events) == MO_END_NONE) {
        return MO_OK;
    }
    const mo_status status = mo_events_open(g->model, &g->set, in_thought, &fresh, err);
    if (status == MO_OK) {
        mo_events_close(g->events);
        g->events = fresh;
        g->events_in_thought = in_thought;
    }
    return status;
}

/* If the model was opened with speculative decoding. */
static mo_status open_drafting(mo_generation *g, const mo_generation_extra *extra, mo_error *err)
{
    const mo_generation_settings *set = &g->set;
    const int64_t most = g->model->engine->drafts.most;
    if (!most || !set->draft_max) {
        return MO_OK;
    }
    const mo_drafting_options drafting = {
        .most = set->draft_max > 0 && set->draft_max < most ? set->draft_max : most,
        .least = set->draft_min,
        .p_min = set->draft_p_min,
        .prediction = set->prediction,
        .prediction_count = set->prediction_count,
        .recent = extra ? extra->recent : NULL,
        .client = extra ? extra->client : 0,
        .text = g->model->guess_text,
        .source = extra ? extra->source : NULL,
    };
    return mo_drafting_open(&drafting, &g->drafting, err);
}

mo_status mo_generation_open_with(mo_model *model, const mo_generation_options *options,
                                  const mo_generation_extra *extra, mo_generation **out, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    mo_generation *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) {
        return mo_fail(err, MO_ENOMEM, "out of memory for a generation");
    }
    g->model = model;
    pthread_mutex_init(&g->lock, NULL);
    mo_status status = mo_generation_settings_make(model, options, extra, &g->set, err);
    const bool in_thought = g->set.reply_given && g->set.reply.in_thought;
    if (status == MO_OK) {
        status = open_drafting(g, extra, err);
    }
    if (status == MO_OK) {
        status = want_grammar(g, in_thought, err);
    }
    if (status == MO_OK) {
        status = want_events(g, in_thought, err);
    }
    if (status != MO_OK) {
        mo_generation_close(g);
        return status;
    }
    *out = g;
    return MO_OK;
}

mo_status mo_generation_open(mo_model *model, const mo_generation_options *options, mo_generation **out,
                             mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, model, out)
    return mo_generation_open_with(model, options, NULL, out, err);
}

/* Closes the constraint after the mask thread has released it. */
static void drop_constraint(mo_generation *g)
{
    if (g->constraint) {
        mo_mask_drop(g->masks, &g->mask);
    }
    mo_constraint_close(g->constraint);
    g->constraint = NULL;
    g->mask = (mo_mask){.ready = g->mask.ready, .user = g->mask.user};
    g->wants_mask = g->late = false;
}

static void drop_images(mo_generation *g)
{
    for (int i = 0; i < g->image_count; i++) {
        mo_image_release(g->images[i]);
    }
    free(g->images);
    g->images = NULL;
    g->image_count = 0;
    mo_image_list_drop(&g->places);
}

mo_status mo_generation_images(mo_generation *g, mo_image *const *images, int count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "generation", g)
    if (count < 0) {
        return MO_REFUSE(err, "count", "must be 0 or more, not %d", count);
    }
    if (count > 0) {
        MO_REQUIRE(err, images)
    }
    for (int i = 0; i < count; i++) {
        if (!images[i]) {
            return MO_REFUSE(err, "images", "has NULL as picture %d; it must be given", i + 1);
        }
    }
    mo_image **list = count > 0 ? calloc((size_t)count, sizeof(mo_image *)) : NULL;
    if (count > 0 && !list) {
        return mo_fail(err, MO_ENOMEM, "out of memory for %d pictures", count);
    }
    for (int i = 0; i < count; i++) {
        list[i] = images[i];
        mo_image_hold(list[i]);
    }
    drop_images(g);
    g->images = list;
    g->image_count = count;
    return MO_OK;
}

void mo_generation_close(mo_generation *g)
{
    if (g) {
        drop_constraint(g);
        mo_sampler_close(g->sampler);
        mo_events_close(g->events);
        mo_grammar_close(g->grammar);
        mo_drafting_close(g->drafting);
        mo_generation_settings_free(&g->set);
        pthread_mutex_destroy(&g->lock);
        drop_images(g);
        free(g->tokens);
        free(g->parts);
        free(g->feeds);
        free(g->list);
        free(g->taken);
        free(g);
    }
}

/* ---- Prompts ---------------------------------------------------------------------------------- */

/* Initial space for sampled tokens: as far as a server's draining side may be behind. */
enum { LIST = 40 + MO_DRAFTS_MAX };

static mo_status check_prompt(const mo_generation *g, const mo_session *session, const int32_t *tokens,
                              int64_t count, mo_error *err)
{
    if (session->engine != g->model->engine) {
        return mo_refuse(err, "session", "mo_generation_prompt",
                         "belongs to another model than the generation");
    }
    if (count < 1) {
        return mo_refuse(err, "count", "mo_generation_prompt", "must be 1 or more tokens, not %lld",
                         (long long)count);
    }
    if (count > session->state.context) {
        return mo_fail(err, MO_EINVAL,
                       "the prompt has %lld tokens, but this session holds "
                       "%lld; increase `context` or shorten the prompt",
                       (long long)count, (long long)session->state.context);
    }
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0 && g->model->encoder && !g->image_count) {
            return mo_refuse(err, "tokens", "mo_generation_prompt",
                             "has the rows of pictures; call mo_generation_images() with them first");
        }
        if ((tokens[i] < 0 && !g->image_count) || tokens[i] >= g->set.vocab) {
            return mo_refuse(err, "tokens", "mo_generation_prompt",
                             "has token %d, but the vocabulary has %lld tokens", tokens[i],
                             (long long)g->set.vocab);
        }
    }
    return MO_OK;
}

/* Number of tokens that the session already has; the last one is always fed. */
static int64_t common_tokens(const mo_session *session, const int32_t *tokens, int64_t count)
{
    int64_t common = 0;
    while (common < session->state.length && common < count - 1 &&
           session->tokens[common] == tokens[common]) {
        common++;
    }
    return common;
}

/* Opens the sampler and the constraint. */
static mo_status want_sampler(mo_generation *g, mo_error *err)
{
    mo_grammar *grammar = g->set.compiled ? g->set.compiled : g->grammar;
    mo_status status = MO_OK;
    if (!g->sampler) {
        status = mo_sampler_open(&g->set.sampler, g->set.vocab, &g->sampler, err);
    }
    if (status == MO_OK && grammar && !g->masks) {
        status = mo_model_masks(g->model, &g->masks, err);
    }
    if (status == MO_OK && grammar) {
        status = mo_constraint_open(grammar, &g->constraint, err);
        g->wants_mask = status == MO_OK;
    }
    return status;
}

mo_status mo_generation_prompt(mo_generation *g, mo_session *session, const int32_t *tokens, int64_t count,
                               mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE_AS(err, "generation, session, tokens", g, session, tokens)
    mo_status status = mo_engine_check_process(g->model->engine, err);
    if (status == MO_OK) {
        status = check_prompt(g, session, tokens, count, err);
    }
    if (status == MO_OK) {
        status = mo_image_list_make(&g->places, g->model->engine->spec, g->images, g->image_count, tokens,
                                    count, err);
    }
    if (status != MO_OK) {
        return status;
    }
    const bool in_thought = g->set.reply_given ? g->set.reply.in_thought
                            : g->set.raw       ? false
                                               : mo_model_in_thought(g->model, tokens, (size_t)count);
    if (!mo_array_reserve(&g->tokens, &g->space, (size_t)session->state.context + 1, sizeof *g->tokens) ||
        !mo_array_reserve(&g->list, &g->list_space, LIST, sizeof *g->list) ||
        !mo_array_reserve(&g->taken, &g->taken_space, LIST, sizeof *g->taken)) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the tokens of a generation");
    }
    drop_constraint(g);
    status = want_grammar(g, in_thought, err);
    status = status == MO_OK ? want_events(g, in_thought, err) : status;
    status = status == MO_OK ? want_sampler(g, err) : status;
    if (status == MO_OK && g->drafting) {
        status = mo_drafting_begin(g->drafting, tokens, count, session->state.context, err);
    }
    if (status != MO_OK) {
        return status;
    }
    mo_session_follow(session, g->drafting && mo_drafting_asks_head(g->drafting));
    memmove(g->tokens, tokens, sizeof *tokens * (size_t)count);
    g->count = g->prompt = count;
    g->context = session->state.context;
    g->held = mo_image_list_whole(&g->places, common_tokens(session, tokens, count));
    g->computed = g->generated = 0;
    g->end = MO_END_NONE;
    pthread_mutex_lock(&g->lock);
    g->list_count = 0;
    g->list_end = MO_END_NONE;
    g->error = (mo_error){0};
    pthread_mutex_unlock(&g->lock);
    g->taken_first = g->taken_count = 0;
    g->failure = (mo_error){0};
    g->end_told = false;
    atomic_store(&g->session, session);
    atomic_store(&g->cancelled, false);
    mo_session_clear_cancel(session);
    atomic_store(&g->ended, false);
    return MO_OK;
}

void mo_generation_cancel(mo_generation *g)
{
    if (g) {
        atomic_store(&g->cancelled, true);
        mo_session *session = atomic_load(&g->session);
        if (session && !atomic_load(&g->ended)) {
            mo_session_cancel(session);
        }
    }
}

/* ---- Between the sides ------------------------------------------------------------------------- */

void mo_generation_finish(mo_generation *g, mo_end end, const mo_error *why)
{
    if (g->end != MO_END_NONE) {
        return;
    }
    g->end = end;
    drop_constraint(g);
    mo_session *session = atomic_load(&g->session);
    atomic_store(&g->ended, true);
    if (session) {
        mo_session_clear_cancel(session); /* its cancel was this generation's */
    }
    pthread_mutex_lock(&g->lock);
    g->list_end = end;
    if (why) {
        g->error = *why;
    }
    pthread_mutex_unlock(&g->lock);
}

bool mo_generation_append(mo_generation *g, const mo_sampled *token)
{
    pthread_mutex_lock(&g->lock);
    const bool ok = mo_array_reserve(&g->list, &g->list_space, g->list_count + 1, sizeof *g->list);
    if (ok) {
        g->list[g->list_count++] = *token;
        g->tokens[g->count++] = token->id; /* there is space for the session's context and one more */
        g->generated++;
    }
    pthread_mutex_unlock(&g->lock);
    return ok;
}

/* ---- Events ----------------------------------------------------------------------------------- */

/* Takes the tokens sampled meanwhile. Returns the end after them; MO_END_NONE: not yet. */
static mo_end take_list(mo_generation *g, mo_error *why)
{
    mo_sampled *const taken = g->taken;
    const size_t space = g->taken_space;
    pthread_mutex_lock(&g->lock);
    g->taken = g->list;
    g->taken_space = g->list_space;
    g->taken_count = g->list_count;
    g->list = taken;
    g->list_space = space;
    g->list_count = 0;
    const mo_end end = g->list_end;
    *why = g->error;
    pthread_mutex_unlock(&g->lock);
    g->taken_first = 0;
    return end;
}

bool mo_generation_parse(mo_generation *g)
{
    mo_error why = {0}, err = {0};
    if (!g->events || g->failure.status != MO_OK || mo_events_ended(g->events) != MO_END_NONE) {
        return false;
    }
    mo_end end = MO_END_NONE;
    if (g->taken_first == g->taken_count) {
        end = take_list(g, &why);
    }
    mo_status status;
    if (g->taken_first < g->taken_count) {
        status = mo_events_put(g->events, &g->taken[g->taken_first++], &err);
    } else if (end != MO_END_NONE) {
        status = mo_events_end(g->events, end, why.status != MO_OK ? &why : NULL, &err);
    } else {
        return false;
    }
    if (status != MO_OK) {
        g->failure = err;
    }
    return true;
}

bool mo_generation_take_event(mo_generation *g, mo_generation_event *out, size_t size)
{
    mo_generation_event event = {0};
    bool found = g->events && mo_events_take(g->events, &event);
    /* there was no memory to report it as usual */
    if (!found && g->failure.status != MO_OK && !g->end_told) {
        event = (mo_generation_event){.kind = MO_EVENT_END,
                                      .text = {"", 0},
                                      .id = {"", 0},
                                      .call = -1,
                                      .generated = mo_events_tokens(g->events),
                                      .end = MO_END_FAILED,
                                      .stop = -1,
                                      .error = &g->failure};
        found = true;
    }
    if (found) {
        g->end_told |= event.kind == MO_EVENT_END;
        mo_report_write(out, size, &event, sizeof event);
    }
    return found;
}

bool mo_generation_next(mo_generation *g, mo_generation_event *out, size_t size)
{
    if (!g || !out) {
        return false;
    }
    while (!mo_generation_take_event(g, out, size)) {
        if (!mo_generation_parse(g)) {
            return false;
        }
    }
    return true;
}

/* ---- Description ------------------------------------------------------------------------------ */

void mo_generation_describe(const mo_generation *g, mo_generation_info *out, size_t size)
{
    int64_t drafted = 0, accepted = 0;
    if (g->drafting) {
        mo_drafting_count(g->drafting, &drafted, &accepted);
    }
    const mo_generation_info info = {.seed = g->set.sampler.seed,
                                     .temperature = g->set.sampler.temperature,
                                     .tokens = g->tokens,
                                     .count = g->count,
                                     .prompt_tokens = g->prompt,
                                     .computed = g->computed,
                                     .generated = g->generated,
                                     .end = g->end,
                                     .drafted = drafted,
                                     .accepted = accepted};
    mo_report_write(out, size, &info, sizeof info);
}

const char *mo_generation_unenforced(const mo_generation *g)
{
    const mo_grammar *grammar = g->set.compiled ? g->set.compiled : g->grammar;
    return grammar ? mo_grammar_unenforced(grammar) : "";
}

mo_end mo_generation_ended(const mo_generation *g)
{
    return g->end;
}

int64_t mo_generation_held(const mo_generation *g)
{
    return g->held;
}

void mo_generation_set_held(mo_generation *g, int64_t held)
{
    g->held = held;
}

void mo_generation_count(const mo_generation *g, int64_t *tokens, int64_t *thoughts)
{
    *tokens = mo_events_tokens(g->events);
    *thoughts = mo_events_thoughts(g->events);
}

const int32_t *mo_generation_parsed(const mo_generation *g, int64_t *count)
{
    *count = g->prompt + mo_events_tokens(g->events); /* the other side writes after these */
    return g->tokens;
}

bool mo_generation_stopped(const mo_generation *g)
{
    return mo_events_ended(g->events) == MO_END_STOP;
}

const char *mo_generation_call_id(const mo_generation *g, int index)
{
    return mo_events_call(g->events, index);
}

void mo_generation_on_mask(mo_generation *g, void (*fn)(void *user), void *user)
{
    g->mask.ready = fn;
    g->mask.user = user;
}
