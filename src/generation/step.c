/* Step: computes the next tokens of generations in shared steps of the model. */
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/growing.h"
#include "base/status.h"
#include "engine/head.h"
#include "engine/session.h"
#include "generation/generation.h"

enum {
    LIST_MAX = 256,
    WAIT_NS = 20000000, /* interval for checking a cancel while waiting for a mask */
};

/* ---- One step --------------------------------------------------------------------------------- */

static bool in_prompt(const mo_generation *g)
{
    return g->held < g->prompt;
}

/* A model that must not think, and whose prompt may have begun a thought, does not sample at the end of the
 * prompt: see mo_generation_end_thought(). */
static bool samples_later(const mo_generation *g)
{
    return in_prompt(g) && g->set.thought_tokens == 0;
}

static const uint32_t *late_mask(void *user)
{
    mo_generation *g = user;
    return mo_mask_get(g->masks, &g->mask, g->patience);
}

static bool on_progress(void *user, int64_t done, int64_t total)
{
    const mo_generation *g = user;
    (void)total;
    return g->set.progress(g->set.user, done, g->prompt);
}

static void on_routes(void *user, int layer, int64_t position, const int32_t *ids, const float *weights,
                      int used)
{
    const mo_generation *g = user;
    g->part->routes(g->part->user, layer, position, ids, weights, used);
}

static bool accept(void *user, const mo_feed_report *picked);

/* Tokens that may be sampled before something outside the step must be checked. */
static int64_t draft_limit(const mo_generation *g)
{
    int64_t most = g->context - g->count;
    if (g->set.max_tokens >= 0 && g->set.max_tokens - g->generated - 1 < most) {
        most = g->set.max_tokens - g->generated - 1;
    }
    if (g->set.thought_tokens >= 0 && !g->settles && g->set.thought_tokens - g->generated - 1 < most) {
        most =
            g->set.thought_tokens - g->generated - 1; /* then the parsed text shows whether a thought ends */
    }
    return most > 0 ? most : 0;
}

/* True if the step has one new token per sequence, like the steps whose times are compared. */
static bool is_decoding(const mo_generation_part *parts, const mo_feed *feeds, int count)
{
    bool all = count > 0 && parts->generation->model->engine->drafts.most > 0;
    for (int i = 0; i < count && all; i++) {
        all = feeds[i].sampler && parts[i].piece == 1;
    }
    return all;
}

/* Lets an MTP head or a draft model draft, where it is the chosen source. */
static void ask_head(mo_generation_part *parts, mo_depth_wish *wishes, const int *of, int used, int count)
{
    mo_head_wish asked[MO_DEPTH_TOGETHER];
    mo_model *model = parts->generation->model;
    const int64_t began = mo_clock_ns();
    int n = 0;
    int64_t most, behind = 0, rows = 0;
    for (int k = 0; k < used; k++) {
        const mo_generation *g = parts[of[k]].generation;
        if (wishes[k].head && wishes[k].drafts) {
            mo_session *s = atomic_load(&g->session);
            asked[n++] = (mo_head_wish){.session = s->head,
                                        .cancel = &s->cancel,
                                        .tokens = g->tokens,
                                        .count = g->count,
                                        .drafts = wishes[k].drafts,
                                        .out = g->tokens + g->count};
        }
    }
    const bool good = n && mo_head_draft(model->engine, asked, n, &behind);
    most = 0;
    for (int k = 0, i = 0; k < used && n; k++) {
        if (wishes[k].head && wishes[k].drafts) {
            wishes[k].drafts = good ? asked[i].drafts : 0;
            most = wishes[k].drafts > most ? wishes[k].drafts : most;
            rows += wishes[k].behind;
            i++;
        }
    }
    if (most) {
        mo_step_times_add_head(&model->times, count, most, (double)(mo_clock_ns() - began - behind), rows,
                               (double)behind);
    }
}

/* Adds drafts to such a step where they pay. */
static void guess(mo_generation_part *parts, mo_feed *feeds, int count)
{
    mo_depth_wish wishes[MO_DEPTH_TOGETHER];
    int of[MO_DEPTH_TOGETHER], used = 0;
    if (count > MO_DEPTH_TOGETHER || !is_decoding(parts, feeds, count)) {
        return;
    }
    mo_model *model = parts->generation->model;
    for (int i = 0; i < count; i++) {
        mo_generation *g = parts[i].generation;
        const bool may = g->drafting && !parts[i].routes && g->generated > 0;
        const mo_session *s = atomic_load(&g->session);
        const bool head = s->follows && !s->state.anew; /* it knows nothing about replaced text yet */
        if (may && mo_drafting_look(g->drafting, &model->times, g->tokens, g->count, draft_limit(g), head,
                                    &wishes[used])) {
            wishes[used].behind = head ? mo_head_session_behind(s->head) : 0;
            of[used++] = i;
        }
    }
    mo_depth_choose(&model->times, count, wishes, used, mo_feed_draft_rows(model->engine));
    ask_head(parts, wishes, of, used, count);
    for (int k = 0; k < used; k++) {
        mo_generation *g = parts[of[k]].generation;
        feeds[of[k]].drafts = mo_drafting_put(g->drafting, g->tokens, g->count, &wishes[k]);
    }
}

/* Records the time of such a step by its contents. */
static void learn_time(const mo_generation_part *parts, const mo_feed *feeds, int count, int64_t ns)
{
    int64_t drafts = 0, accepted = 0;
    bool computed = is_decoding(parts, feeds, count);
    for (int i = 0; i < count && computed; i++) {
        const mo_feed_report *r = &parts[i].generation->report;
        computed = r->error.status == MO_OK;
        drafts += r->drafted;
        accepted += r->accepted;
    }
    if (computed) {
        mo_step_times_add(&parts->generation->model->times, count, drafts, accepted, (double)ns);
    }
}

/* End of a piece of `piece` tokens: before a picture rather than within it, unless the piece begins with the
 * picture. */
static int64_t end_of_piece(const mo_generation *g, int64_t piece)
{
    const mo_image_place *p = mo_image_list_find(&g->places, g->held + piece);
    return !p ? g->held + piece : p->at > g->held ? p->at : p->at + mo_image_rows(p->image);
}

mo_image *mo_generation_picture(const mo_generation *g)
{
    const int64_t from = mo_image_list_whole(&g->places, g->held);
    for (int i = 0; i < g->places.count; i++) {
        mo_image *image = g->places.place[i].image;
        if (g->places.place[i].at >= from && !atomic_load(&image->values)) {
            mo_image_hold(image);
            return image;
        }
    }
    return NULL;
}

/* Number of pictures among the first `count` tokens. */
static int images_of(const mo_generation *g, int64_t count)
{
    int n = 0;
    while (n < g->places.count && g->places.place[n].at < count) {
        n++;
    }
    return n;
}

/* The feed of a part. */
static mo_feed feed_of(mo_generation *g, mo_generation_part *part, mo_mask_patience *patience)
{
    const int64_t rest = g->count - g->held;
    const int64_t count = part->piece > 0 && part->piece < rest ? end_of_piece(g, part->piece) : g->count;
    const bool samples = count == g->count && g->set.max_tokens != 0 && !samples_later(g);
    g->part = part;
    g->settles = part->settled;
    g->patience = patience;
    g->drawn = 0;
    part->sampled = samples; /* provisional */
    part->piece = count - g->held;
    return (mo_feed){.size = sizeof(mo_feed),
                     .session = atomic_load(&g->session),
                     .tokens = g->tokens,
                     .count = count,
                     .progress = g->set.progress && in_prompt(g) ? on_progress : NULL,
                     .routes = part->routes ? on_routes : NULL,
                     .user = g,
                     .report = &g->report,
                     .report_size = sizeof g->report,
                     .sampler = samples ? g->sampler : NULL,
                     .late_mask = samples && g->constraint ? late_mask : NULL,
                     .logprobs = samples && g->set.logprobs >= 0,
                     .top = samples && g->set.logprobs > 0 ? g->set.logprobs : 0,
                     .unfinished = count < g->count && !part->logits,
                     .accept = accept,
                     .images = g->images,
                     .image_count = images_of(g, count)};
}

static bool has_enough(const mo_generation *g)
{
    return g->set.max_tokens >= 0 && g->generated >= g->set.max_tokens;
}

/* Records a sampled token. */
static void take_token(mo_generation_part *part, const mo_feed_report *r, int64_t now)
{
    mo_generation *g = part->generation;
    mo_error *err = &part->error;
    mo_sampled token = {.id = r->token,
                        .ends = mo_token_ends(g->model, r->token) && !g->set.ignore_end,
                        .logprob = r->logprob,
                        .top_count = r->top_count,
                        .time_ns = now};
    if (r->top_count > 0) { /* otherwise there may be no list */
        memcpy(token.top, r->top, sizeof *token.top * (size_t)r->top_count);
    }
    part->sampled = mo_generation_append(g, &token);
    if (!part->sampled) {
        mo_fail(err, MO_ENOMEM, "out of memory for the tokens of a generation");
        mo_generation_finish(g, MO_END_FAILED, err);
    } else if (g->constraint && !token.ends && mo_constraint_accept(g->constraint, r->token, err) != MO_OK) {
        mo_generation_finish(g, MO_END_FAILED, err);
    } else if (token.ends || (g->constraint && mo_constraint_ended(g->constraint))) {
        mo_generation_finish(g, MO_END_MODEL, NULL);
    } else if (has_enough(g)) {
        mo_generation_finish(g, MO_END_LENGTH, NULL);
    } else if (g->count > g->context) {
        mo_generation_finish(g, MO_END_CONTEXT, NULL);
    } else {
        g->wants_mask = g->constraint != NULL;
    }
}

/* Checks the text that decides what follows. True: the next token is not sampled as usual. */
static bool text_decides(mo_generation *g)
{
    const int32_t *tokens;
    if (!g->settles || (!g->set.stop_count && g->set.thought_tokens < 0)) {
        return false;
    }
    while (mo_generation_parse(g)) {
    }
    return g->failure.status != MO_OK || mo_generation_stopped(g) ||
           (g->set.thought_tokens >= 0 && g->generated >= g->set.thought_tokens &&
            mo_events_thought_end(g->events, &tokens) > 0);
}

/* A draft was sampled. False: the step must end here. */
static bool accept(void *user, const mo_feed_report *picked)
{
    mo_generation *g = user;
    g->drawn++;
    take_token(g->part, picked, mo_clock_ns());
    if (g->end != MO_END_NONE || atomic_load(&g->cancelled) || text_decides(g)) {
        return false;
    }
    if (g->wants_mask) {
        mo_mask_want(g->masks, &g->mask, g->constraint);
        g->wants_mask = false;
    }
    return true;
}

/* Processes the results of the step. */
static void take_result(mo_generation_part *part, int64_t now)
{
    mo_generation *g = part->generation;
    const bool sampling = part->sampled;
    const mo_error *unmasked = NULL;
    part->sampled = false;
    part->late = g->late = sampling && g->constraint && mo_mask_missed(g->masks, &g->mask);
    part->computed = g->report.computed;
    if (g->report.error.status != MO_OK && !g->late) {
        unmasked = sampling && g->constraint ? mo_mask_failure(g->masks, &g->mask) : NULL;
        part->error = unmasked ? *unmasked : g->report.error;
        return;
    }
    g->computed += in_prompt(g) ? part->computed : 0;
    g->held += part->piece + g->report.accepted;
    part->drafted = g->report.drafted;
    part->accepted = g->report.accepted;
    part->predicted = part->drafted && mo_drafting_predicted(g->drafting);
    /* tokens without drafts count too: the intervals of trials are in tokens */
    if (g->drafting && sampling) {
        mo_drafting_learn(g->drafting, &g->model->times, g->report.drafted, g->report.accepted);
    }
    if (g->set.max_tokens == 0 && g->held == g->count) {
        mo_generation_finish(g, MO_END_LENGTH, NULL);
    } else if (sampling && !g->late && g->drawn == g->report.accepted) { /* otherwise it has been taken */
        take_token(part, &g->report, now);
    }
}

/* Allocates the feeds of all generations. */
static mo_status want_feeds(mo_generation *g, int count, mo_error *err)
{
    if (!mo_array_reserve(&g->parts, &g->part_space, (size_t)count, sizeof *g->parts) ||
        !mo_array_reserve(&g->feeds, &g->feed_space, (size_t)count, sizeof *g->feeds)) {
        return mo_fail(err, MO_ENOMEM, "out of memory while stepping %d generations at once", count);
    }
    return MO_OK;
}

mo_status mo_generation_step_parts(mo_generation_part *parts, mo_feed *feeds, int count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, parts, feeds)
    mo_mask_patience patience = {0};
    for (int i = 0; i < count; i++) { /* all before any sampling */
        mo_generation *g = parts[i].generation;
        if (g->wants_mask) {
            mo_mask_want(g->masks, &g->mask, g->constraint);
            g->wants_mask = false;
        }
        g->report.token = -1;
        g->report.computed = 0;
        g->report.drafted = g->report.accepted = 0;
        g->report.error.status = MO_OK;
        parts[i].drafted = parts[i].accepted = 0;
        parts[i].error.status = MO_OK;
        feeds[i] = feed_of(g, &parts[i], &patience);
    }
    guess(parts, feeds, count);
    const int64_t began = mo_clock_ns();
    const mo_status status = mo_session_feed(feeds, count, err);
    const int64_t now = mo_clock_ns();
    bool fed = status == MO_OK;
    if (fed) {
        learn_time(parts, feeds, count, now - began);
    }
    for (int i = 0; i < count; i++) {
        fed |= parts[i].generation->report.error.status != MO_OK || parts[i].generation->report.computed > 0;
    }
    for (int i = 0; i < count; i++) {
        if (!fed) { /* the list was rejected: nothing has happened */
            parts[i].generation->report.error = *err;
        }
        take_result(&parts[i], now);
    }
    return fed ? MO_OK : status;
}

/* ---- Between steps ---------------------------------------------------------------------------- */

bool mo_generation_is_ready(mo_generation *g)
{
    g->late = g->late && mo_mask_is_late(g->masks, &g->mask);
    return !g->late;
}

void mo_generation_fail(mo_generation *g, mo_end end, const mo_error *err)
{
    mo_generation_finish(g, end, err);
}

void mo_generation_end_thought(mo_generation *g)
{
    const int32_t *tokens;
    if (g->set.thought_tokens < 0 || g->end != MO_END_NONE || in_prompt(g) ||
        g->generated < g->set.thought_tokens) {
        return;
    }
    const size_t count = mo_events_thought_end(g->events, &tokens);
    if (count && g->constraint) {
        mo_mask_drop(g->masks, &g->mask);
        g->wants_mask = true;
        g->late = false;
    }
    for (size_t i = 0; i < count && g->count < g->context - 1 && !has_enough(g); i++) {
        const mo_sampled token = {.id = tokens[i], .time_ns = mo_clock_ns()};
        if (g->constraint && mo_constraint_accept(g->constraint, token.id, NULL) != MO_OK) {
            break; /* the grammar does not allow the thought to end here */
        }
        if (!mo_generation_append(g, &token)) {
            break;
        }
    }
    if (has_enough(g)) { /* these tokens count like others */
        mo_generation_finish(g, MO_END_LENGTH, NULL);
    }
}

/* Parses the text that decides what follows: stop strings, and the end of thoughts. */
static void settle(mo_generation *g)
{
    if (g->end == MO_END_NONE && (g->set.stop_count || g->set.thought_tokens >= 0)) {
        while (mo_generation_parse(g)) {
        }
        if (g->failure.status != MO_OK) {
            mo_generation_finish(g, MO_END_FAILED, &g->failure);
        } else if (mo_generation_stopped(g)) {
            mo_generation_finish(g, MO_END_STOP, NULL);
        }
        mo_generation_end_thought(g);
    }
    if (g->end == MO_END_NONE && atomic_load(&g->cancelled)) {
        mo_generation_finish(g, MO_END_CANCELLED, NULL);
    }
}

static mo_status check_list(mo_generation *const *list, int count, mo_error *err)
{
    if (count < 1 || count > LIST_MAX) {
        return mo_refuse(err, "count", "mo_generation_step", "must be 1 to %d, not %d", LIST_MAX, count);
    }
    for (int i = 0; i < count; i++) {
        if (!list[i]) {
            return mo_refuse(err, "list", "mo_generation_step", "has NULL as generation %d", i + 1);
        }
        if (!atomic_load(&list[i]->session)) {
            return mo_refuse(err, "list", "mo_generation_step",
                             "has no prompt for generation %d; call mo_generation_prompt() first", i + 1);
        }
        for (int j = 0; j < i; j++) {
            if (list[i]->model != list[j]->model ||
                atomic_load(&list[i]->session) == atomic_load(&list[j]->session)) {
                return mo_refuse(err, "list", "mo_generation_step",
                                 "must have generations of one model, in different sessions");
            }
        }
    }
    return mo_engine_check_process(list[0]->model->engine, err);
}

/* Selects the generations that can be stepped now, in list[0]->parts; if all wait for masks, waits for the
 * first one. */
static int choose(mo_generation *const *list, int count, int running)
{
    mo_generation_part *parts = list[0]->parts;
    int used = 0;
    const int64_t piece = running > 1 ? list[0]->model->engine->batch : 0;
    for (int i = 0; i < count; i++) {
        if (list[i]->end == MO_END_NONE && mo_generation_is_ready(list[i])) {
            parts[used++] = (mo_generation_part){
                .generation = list[i], .piece = in_prompt(list[i]) ? piece : 0, .settled = true};
        }
    }
    for (int i = 0; i < count && !used; i++) {
        if (list[i]->end == MO_END_NONE) {
            mo_mask_wait(list[i]->masks, &list[i]->mask, mo_clock_ns() + WAIT_NS);
            break;
        }
    }
    return used;
}

static int settle_all(mo_generation *const *list, int count)
{
    int running = 0;
    for (int i = 0; i < count; i++) {
        settle(list[i]);
        running += list[i]->end == MO_END_NONE;
    }
    return running;
}

/* Steps the first parts. False: all waited for their masks. The generations' last events report errors. */
static bool step_chosen(mo_generation *first, int used)
{
    mo_error err;
    bool done = false;
    const mo_status status = mo_generation_step_parts(first->parts, first->feeds, used, &err);
    for (int i = 0; i < used; i++) {
        const mo_generation_part *part = &first->parts[i];
        const mo_error *why = status != MO_OK ? &err : &part->error;
        done |= !part->late;
        if (why->status != MO_OK) {
            const bool cancelled = why->status == MO_ECANCELLED;
            mo_generation_finish(part->generation, cancelled ? MO_END_CANCELLED : MO_END_FAILED,
                                 cancelled ? NULL : why);
        }
    }
    return done;
}

int mo_generation_step(mo_generation *const *list, int count, mo_error *err)
{
    MO_OWN_ERROR(err)
    const void *const needed[] = {list};
    if (!mo_required(needed, 1, __func__, "list", err) || check_list(list, count, err) != MO_OK ||
        want_feeds(list[0], count, err) != MO_OK) {
        return -1;
    }
    int running = settle_all(list, count);
    for (bool done = false; running && !done;) { /* until one has a token, or more of its prompt */
        const int used = choose(list, count, running);
        done = used && step_chosen(list[0], used);
        running = settle_all(list, count);
    }
    return running;
}
