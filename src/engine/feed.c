/* Feed: brings sessions to their sequences, several in shared steps. Each feed ends by itself, well or not; what it was
 * asked to do stands in its session meanwhile, so that nothing is allocated. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/growing.h"
#include "base/status.h"
#include "engine/discover.h"
#include "engine/head.h"
#include "engine/session.h"

enum { FEEDS_MAX = 256, FEEDS_FEW = 8 };

/* ---- One feed --------------------------------------------------------------------------------- */

/* The feeds of a call, and the first failure among them. */
typedef struct feeding {
    mo_session *list[FEEDS_MAX];
    int count;
    mo_status status;
    mo_error *err;
} feeding;

/* The feed has ended, well or with the error. */
static void end_feed(feeding *all, mo_session *s, mo_status status, const mo_error *err)
{
    const mo_feed *f = &s->feed;
    s->ended = true;
    if (status != MO_OK && all->status == MO_OK) {
        all->status = status;
        *all->err = *err;
    }
    if (!f->report) {
        return;
    }
    const bool picked = status == MO_OK && f->sampler;
    mo_feed_report report = {.computed = s->computed,
                             .drafted = s->drafted,
                             .accepted = s->accepted,
                             .token = picked ? s->pick.token : -1};
    report.error.status = status;
    if (status != MO_OK) {
        report.error = *err;
    }
    if (picked && f->logprobs) {
        report.logprob = s->pick.logprob;
        report.top_count = s->pick.top_count;
        report.top = s->pick.top;
    }
    mo_report_write(f->report, f->report_size, &report, sizeof report);
}

static bool holds_all(const mo_session *s)
{
    return s->state.length == s->feed.count && (s->has_logits || s->feed.unfinished);
}

/* It holds the sequence; the next token has been picked, where one was asked for. */
static void end_well(feeding *all, mo_session *s)
{
    mo_error err;
    if (s->feed.sampler && s->pick.token < 0) {
        const bool masked = s->feed.mask || s->feed.late_mask;
        end_feed(all, s,
                 mo_fail(&err, MO_EINVAL, "%s",
                         masked ? "the grammar and the logit biases allow no token here"
                                : "the logit biases exclude every token"),
                 &err);
    } else {
        end_feed(all, s, MO_OK, NULL);
    }
}

static mo_status check_feed(const mo_session *s, mo_error *err)
{
    const mo_feed *f = &s->feed;
    const int64_t vocab = s->engine->spec->vocab;
    if (!f->tokens && f->count > 0) {
        return mo_refuse_member(err, "mo_feed", "tokens", "is NULL; it must be given");
    }
    if (f->count < 1) {
        return mo_refuse_member(err, "mo_feed", "count", "must be 1 or more, not %lld", (long long)f->count);
    }
    if (f->step < 0) {
        return mo_refuse_member(err, "mo_feed", "step",
                                "must be 1 or more (or 0 for the model's batch), not %lld",
                                (long long)f->step);
    }
    if (f->image_count < 0) {
        return mo_refuse_member(err, "mo_feed", "image_count", "must be 0 or more, not %d", f->image_count);
    }
    if (f->image_count > 0 && !f->images) {
        return mo_refuse_member(err, "mo_feed", "images", "is NULL, but its count is %d", f->image_count);
    }
    for (int i = 0; i < f->image_count; i++) {
        if (!f->images[i]) {
            return mo_refuse_member(err, "mo_feed", "images", "has NULL as picture %d; it must be given",
                                    i + 1);
        }
    }
    if (f->count > s->state.context) {
        return mo_fail(err, MO_EINVAL,
                       "the text has %lld tokens, but this session holds "
                       "%lld; increase `context` or shorten the text",
                       (long long)f->count, (long long)s->state.context);
    }
    if (f->sampler && mo_sampler_vocab(f->sampler) != vocab) {
        return mo_fail(err, MO_EINVAL, "the sampler was opened for %lld tokens, but the model has %lld",
                       (long long)mo_sampler_vocab(f->sampler), (long long)vocab);
    }
    if (f->unfinished && f->sampler) {
        return mo_fail(err, MO_EINVAL, "sampling requires a finished sequence; this one is unfinished");
    }
    if (f->routes && s->engine->remote_layers) {
        return mo_fail(
            err, MO_EUNSUPPORTED,
            "the experts of tokens are not reported when a model's layers are divided among ranks");
    }
    if (f->drafts < 0 || (f->drafts && (!f->sampler || !f->accept || f->logits))) {
        return mo_refuse_member(err, "mo_feed", "drafts",
                                "must be 0 or more; they require a sampler and someone who accepts them, not "
                                "the logits of every position");
    }
    if (f->top < 0 || f->top > MO_TOP_MAX || (f->top && !f->logprobs) || (f->logprobs && !f->sampler)) {
        return mo_refuse_member(
            err, "mo_feed", f->logprobs && !f->sampler ? "logprobs" : "top",
            "is not possible: logprobs requires a sampler, and top requires logprobs and is "
            "at most %d",
            MO_TOP_MAX);
    }
    return MO_OK;
}

/* Numbers below 0 are rows of pictures, where there are some. */
static mo_status check_tokens(const int32_t *tokens, int64_t count, int64_t vocab, bool pictures,
                              mo_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        if ((tokens[i] < 0 && !pictures) || tokens[i] >= vocab) {
            return mo_fail(err, MO_EINVAL, "`tokens`: token %d is not in the vocabulary of %lld tokens",
                           tokens[i], (long long)vocab);
        }
    }
    return MO_OK;
}

mo_status mo_engine_check_image(const mo_engine *e, const mo_image *image, bool all_logits, mo_error *err)
{
    const mo_picture_rule *rule = &e->spec->pictures;
    const int64_t rows = mo_image_rows(image),
                  most = all_logits ? mo_session_rows(e->spec, e->batch) : e->batch;
    if (rule->both_ways && rows > most) {
        return mo_fail(err, MO_EINVAL,
                       "a picture has %lld rows, which this model reads in one step, but a step has at "
                       "most %lld tokens; open the model with a larger `batch`, or with fewer rows for a "
                       "picture (`image_max_tokens`)",
                       (long long)rows, (long long)most);
    }
    return MO_OK;
}

/* The pictures of the sequence, and that what is below 0 in it are their rows. */
static mo_status place_images(mo_session *s, mo_error *err)
{
    const mo_feed *f = &s->feed;
    s->images.count = 0;
    if (f->image_count < 1) {
        return MO_OK;
    }
    mo_status status =
        mo_image_list_make(&s->images, s->engine->spec, f->images, f->image_count, f->tokens, f->count, err);
    for (int i = 0; i < s->images.count && status == MO_OK; i++) {
        status = mo_engine_check_image(s->engine, s->images.place[i].image, f->logits != NULL, err);
    }
    return status;
}

/* Without its pictures a sequence that the session holds has no positions. */
static mo_status check_held(const int32_t *tokens, int64_t count, mo_error *err)
{
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0) {
            return mo_fail(err, MO_EINVAL, "the sequence has pictures, which must be given with it");
        }
    }
    return MO_OK;
}

/* Shortens the state to what it shares with the sequence, less the last token. */
static mo_status begin_feed(mo_session *s, mo_error *err)
{
    const mo_feed *f = &s->feed;
    int64_t common = 0;
    mo_session_leave_lost_device(s);
    s->ended = s->stopped = false;
    s->alone_until = 0;
    s->computed = s->drafted = s->accepted = 0;
    s->told = 0;
    s->pick = (mo_pick){.sampler = f->sampler,
                        .mask = f->mask,
                        .late_mask = f->late_mask,
                        .user = f->user,
                        .recent = f->tokens,
                        .recent_count = f->count,
                        .logprobs = f->logprobs,
                        .top_wanted = f->top,
                        .accept = f->accept,
                        .token = -1};
    mo_status status = check_feed(s, err);
    if (status == MO_OK) {
        status = place_images(s, err);
    }
    while (status == MO_OK && common < s->state.length && common < f->count &&
           s->tokens[common] == f->tokens[common]) {
        common++;
    }
    if (status == MO_OK) {
        status = check_tokens(f->tokens + common, f->count - common, s->engine->spec->vocab,
                              s->images.count > 0, err);
    }
    if (status == MO_OK) {
        status = check_tokens(f->tokens + f->count, f->drafts, s->engine->spec->vocab, false, err);
    }
    if (status == MO_OK && !s->images.count) {
        status = check_held(f->tokens, common, err);
    }
    if (status != MO_OK) {
        return status;
    }
    if (common == 0 && s->state.length > 0) {
        mo_session_end_conversation(s);
    }
    if (common == f->count && common == s->state.length && s->has_logits && !f->logits) {
        const float *row = mo_session_logits(s); /* NULL: they were lost, and are made again */
        if (row && f->sampler) {
            mo_pick_run(&s->pick, row, s->engine->spec->vocab);
        }
        if (row) {
            return MO_OK; /* nothing new: the logits are there */
        }
    }
    if (f->unfinished && common == f->count && common == s->state.length && !f->logits) {
        return MO_OK;
    }
    s->has_logits = false;
    const int64_t keep = mo_image_list_whole(&s->images, common < f->count ? common : f->count - 1);
    if (!mo_state_trim(&s->state, keep)) {
        mo_state_reset(&s->state);
    }
    status = mo_image_list_fill(&s->images, s->state.length, &s->cancel, err);
    if (status != MO_OK) {
        return status;
    }
    s->prompt = f->count - s->state.length > 1;
    return MO_OK;
}

static mo_status want_rows(mo_session *s, int64_t rows, mo_error *err)
{
    if (rows > s->row_limit) {
        float *more = realloc(s->rows, sizeof(float) * (size_t)(rows * s->engine->spec->vocab));
        if (!more) {
            return mo_fail(err, MO_ENOMEM,
                           "out of memory for the logits of %lld tokens; choose a smaller `batch`",
                           (long long)rows);
        }
        s->rows = more;
        s->row_limit = rows;
    }
    return MO_OK;
}

/* What the engine calls while a slice runs needs the position, not the token's number in its slice. */
static void tell_routes(void *user, int layer, int64_t token, const int32_t *ids, const float *weights,
                        int used)
{
    const mo_session *s = user;
    const int64_t position = s->state.length + token;
    if (position >= s->told) {
        s->feed.routes(s->feed.user, layer, position, ids, weights, used);
    }
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t mo_feed_draft_rows(const mo_engine *e)
{
    const mo_accelerator *accelerator = atomic_load(&e->accelerator);
    return accelerator ? min64(e->drafts.rows, accelerator->draft_rows) : e->drafts.rows;
}

static bool takes_drafts(const mo_session *s)
{
    return s->engine->drafts.most && !s->feed.routes;
}

/* Adds to the slice of a sequence's last token at most this many drafts that follow it. */
static void add_drafts(mo_session *s, int64_t most, mo_slice *out)
{
    const mo_feed *f = &s->feed;
    const int64_t count = takes_drafts(s) ? min64(most, s->state.context - f->count) : 0;
    if (count > 0) {
        s->pick.drafts = f->tokens + f->count;
        s->pick.draft_count = out->drafts = count;
        out->count += count;
        out->logits_from = 0;
    }
}

/* Is any of the next `count` tokens a row of a picture? */
static bool has_rows(const mo_session *s, int64_t count)
{
    const int64_t from = s->state.length;
    bool any = false;
    for (int i = 0; i < s->images.count; i++) {
        const mo_image_place *p = &s->images.place[i];
        any |= p->at < from + count && p->at + mo_image_rows(p->image) > from;
    }
    return any;
}

/* Rows that see each other go in one step: the next slice of `count` tokens ends before a picture that it would cut, or has all of the
 * one that it begins with. */
static int64_t whole_images(const mo_session *s, int64_t count)
{
    const int64_t from = s->state.length;
    const mo_image_place *p = mo_image_list_find(&s->images, from + count);
    if (!p || !s->images.rule->both_ways) {
        return count;
    }
    return p->at > from ? p->at - from : mo_image_rows(p->image);
}

/* limit: most tokens of it; draft_rows: most rows if it has drafts. */
static mo_status next_slice(mo_session *s, int64_t limit, int64_t draft_rows, mo_slice *out, mo_error *err)
{
    const mo_feed *f = &s->feed;
    /* A step that failed may have emptied the state: the first pictures are needed again. */
    const mo_status made = mo_image_list_fill(&s->images, s->state.length, &s->cancel, err);
    if (made != MO_OK) {
        return made;
    }
    const int64_t rest = f->count - s->state.length;
    const int64_t step = f->step > 0 && f->step < limit ? f->step : limit;
    int64_t count = rest < step ? rest : step;
    if (f->logits) { /* every position has its row */
        count = mo_session_rows(s->engine->spec, count);
    }
    count = whole_images(s, count);
    const bool heard =
        s->follows && !s->head->head->whole && !has_rows(s, count); /* heads know no pictures */
    if (s->follows && s->state.anew) {                              /* what it held may be somebody else's */
        mo_head_session_forget(s->head, s->state.length);
    }
    s->pick.made = false; /* by a step that failed after that: this one makes it */
    s->pick.best = NULL;
    *out = (mo_slice){.state = &s->state,
                      .tokens = f->tokens + s->state.length,
                      .count = count,
                      .prompt = s->prompt,
                      .routes = f->routes ? tell_routes : NULL,
                      .user = s,
                      .touch = s->touch.picks && !f->uncounted ? &s->touch : NULL,
                      .uncounted = f->uncounted,
                      .cancel = &s->cancel,
                      .pick = f->sampler && count == rest ? &s->pick : NULL,
                      .follow = heard ? mo_head_follow : NULL,
                      .head = s->head,
                      .images = s->images.count ? &s->images : NULL,
                      .adapters = s->adapters.count ? &s->adapters : NULL};
    if (f->logits) {
        const mo_status status = want_rows(s, count, err);
        out->logits = s->rows;
        return status;
    }
    if (count == rest && !f->unfinished) {
        out->logits = s->logits;
        out->logits_from = count - 1;
    }
    s->pick.draft_count = s->pick.accepted = 0;
    s->pick.recent_count = f->count;
    if (f->drafts && rest == 1) {
        add_drafts(s, min64(min64(f->drafts, s->engine->drafts.most), min64(step - 1, draft_rows - 1)), out);
    }
    return MO_OK;
}

/* After a step: the session remembers its tokens and hands out what was asked for. */
static void end_slice(mo_session *s, const mo_slice *slice)
{
    mo_feed *f = &s->feed;
    const int64_t vocab = s->engine->spec->vocab;
    const int64_t accepted = slice->drafts ? s->pick.accepted : 0,
                  count = slice->count - slice->drafts + accepted;
    const int64_t from = s->state.length - count;
    memcpy(s->tokens + from, slice->tokens, sizeof(int32_t) * (size_t)count);
    f->count += accepted;
    s->computed += count;
    s->drafted += slice->drafts;
    s->accepted += accepted;
    for (int64_t i = 0; f->logits && i < slice->count; i++) {
        if (from + i >= s->told) {
            f->logits(f->user, from + i, s->rows + i * vocab);
        }
    }
    s->told = s->state.length > s->told ? s->state.length : s->told;
    if (s->state.length == f->count) {
        if (f->logits) {
            memcpy(s->logits, s->rows + (slice->count - 1) * vocab, sizeof(float) * (size_t)vocab);
        }
        s->has_logits = f->logits || !f->unfinished;
    }
    if (f->progress && !f->progress(f->user, s->state.length, f->count)) {
        s->stopped = true;
    }
}

/* ---- Steps ------------------------------------------------------------------------------------ */

/* A device computes the attention of a step in one format, and nothing of a state in RAM. */
static bool can_share_step(const mo_state *a, const mo_state *b)
{
    return !a->gpu_session == !b->gpu_session && (!a->gpu_session || a->kv == b->kv);
}

/* Also where all rows of a picture go in one step: they may need all of it. */
static bool must_be_alone(const mo_session *s)
{
    const mo_image_place *p = mo_image_list_find(&s->images, s->state.length);
    return s->state.length < s->alone_until || (p && s->images.rule->both_ways);
}

/* Single tokens before longer slices: a device attends to neighbours of one kind at once, and makes their logits so. */
static void singles_first(mo_slice *slices, mo_session **of, int count)
{
    int first = 0;
    for (int i = 0; i < count; i++) {
        if (slices[i].count == 1) {
            const mo_slice slice = slices[i];
            mo_session *session = of[i];
            slices[i] = slices[first];
            of[i] = of[first];
            slices[first] = slice;
            of[first++] = session;
        }
    }
}

/* A device, of this rank or another, keeps what recurrent layers are given of all tokens of a step with drafts: where these are too many,
 * the last ones go. */
static void limit_drafts(mo_slice *slices, mo_session **of, int count)
{
    const mo_engine *e = of[0]->engine;
    const bool bounded = atomic_load(&e->accelerator) || e->remote_layers;
    int64_t more = -mo_feed_draft_rows(e);
    for (int i = 0; i < count; i++) {
        more += slices[i].count;
    }
    for (int i = count - 1; bounded && i >= 0 && more > 0; i--) {
        const int64_t cut = min64(more, slices[i].drafts);
        more -= cut;
        slices[i].count -= cut;
        of[i]->pick.draft_count = slices[i].drafts -= cut;
        slices[i].logits_from = cut && !slices[i].drafts ? slices[i].count - 1 : slices[i].logits_from;
    }
}

/* The slices of the next step: of one session that must be alone, or else of all that can share it with the first,
 * sharing the batch evenly. The others' turn comes when these have ended. */
static int choose_slices(feeding *all, mo_slice *slices, mo_session **of)
{
    mo_session **list = all->list;
    const int count = all->count;
    int waiting = 0, used = 0;
    const mo_session *alone = NULL, *first = NULL;
    for (int i = 0; i < count; i++) {
        if (list[i]->ended) {
            continue;
        }
        first = first ? first : list[i];
        alone = !alone && must_be_alone(list[i]) ? list[i] : alone;
        waiting += can_share_step(&first->state, &list[i]->state);
    }
    int64_t left = list[0]->engine->batch, draft_rows = mo_feed_draft_rows(list[0]->engine);
    for (int i = 0; i < count && left > 0; i++) {
        mo_error err;
        if (list[i]->ended || (alone ? list[i] != alone : !can_share_step(&first->state, &list[i]->state))) {
            continue;
        }
        const int64_t share = alone ? left : left / waiting > 0 ? left / waiting : 1;
        const mo_status status = next_slice(list[i], share, draft_rows, &slices[used], &err);
        waiting--;
        if (status != MO_OK) {
            end_feed(all, list[i], status, &err);
            continue;
        }
        left -= slices[used].count;
        draft_rows -= slices[used].drafts ? slices[used].count : 0;
        of[used++] = list[i];
    }
    if (used > 0) {
        limit_drafts(slices, of, used);
    }
    singles_first(slices, of, used);
    return used;
}

/* A step that was not done. The device is lost: the CPU or the others go on, from the first token. Several sessions: each tries alone,
 * so that the failure is only its own, to the end of the slice that failed: a recurrent state is empty now, and would
 * otherwise meet the others there again and again. One session: it has failed. All were cancelled: nothing is to be
 * done; a step that says so of a session that was not cancelled has failed; do not retry it forever. */
static void handle_failure(feeding *all, mo_session **of, const mo_slice *slices, int used, mo_status status,
                           const mo_error *err)
{
    for (int i = 0; i < used; i++) {
        if (status == MO_ECANCELLED && atomic_load(&of[i]->cancel)) {
            continue;
        }
        if (status == MO_EDEVICE && mo_session_lost_device(of[i])) {
            mo_session_leave_lost_device(of[i]);
        } else if (used > 1) {
            of[i]->alone_until = slices[i].tokens - of[i]->feed.tokens + slices[i].count;
        } else {
            end_feed(all, of[i], status, err);
        }
    }
}

static void end_cancelled(feeding *all, mo_session *s)
{
    mo_error err;
    mo_fail(&err, MO_ECANCELLED, "cancelled after %lld of %lld tokens", (long long)s->state.length,
            (long long)s->feed.count);
    end_feed(all, s, MO_ECANCELLED, &err);
}

/* Ends what is done or cancelled. False: nothing is left to do. */
static bool collect_finished(feeding *all)
{
    bool more = false;
    for (int i = 0; i < all->count; i++) {
        mo_session *s = all->list[i];
        if (!s->ended && holds_all(s) && !s->stopped) {
            end_well(all, s);
        } else if (!s->ended && (s->stopped || atomic_load(&s->cancel))) {
            end_cancelled(all, s);
        }
        more |= !s->ended;
    }
    return more;
}

/* Slices of more than a few sessions would be too much for a small stack. */
static mo_status want_slices(mo_session *s, int count, mo_error *err)
{
    if (count > FEEDS_FEW && count > s->slice_limit) {
        mo_slice *more = realloc(s->slices, sizeof *more * (size_t)count);
        if (!more) {
            return mo_fail(err, MO_ENOMEM, "out of memory while feeding %d sessions at once", count);
        }
        s->slices = more;
        s->slice_limit = count;
    }
    return MO_OK;
}

static void feed_to_end(feeding *all)
{
    mo_slice few[FEEDS_FEW];
    mo_slice *slices = all->count > FEEDS_FEW ? all->list[0]->slices : few;
    mo_session *of[FEEDS_MAX];
    while (collect_finished(all)) {
        mo_error err;
        const int used = choose_slices(all, slices, of);
        if (used == 0) {
            continue;
        }
        const mo_status status = mo_step(all->list[0]->engine, slices, used, &err);
        if (status != MO_OK) {
            handle_failure(all, of, slices, used, status, &err);
        }
        for (int i = 0; i < used && status == MO_OK; i++) {
            end_slice(of[i], &slices[i]);
        }
    }
}

/* ---- The public functions --------------------------------------------------------------------- */

static const mo_feed *feed_at(const mo_feed *feeds, int index)
{
    return (const mo_feed *)((const char *)feeds + (size_t)index * feeds->size);
}

/* An older caller's feed ends before it. */
static const mo_sampler *sampler_of(const mo_feed *feed)
{
    return feed->size >= offsetof(mo_feed, sampler) + sizeof(void *) ? feed->sampler : NULL;
}

/* What cannot be fed together is refused before anything is. */
static mo_status check_together(const mo_feed *feeds, int count, mo_error *err)
{
    mo_feed own = {0};
    if (count < 1 || count > FEEDS_MAX) {
        return mo_refuse(err, "count", "mo_session_feed", "must be 1 to %d, not %d", FEEDS_MAX, count);
    }
    for (int i = 0; i < count; i++) {
        const mo_status status = mo_options_read(&own, sizeof own, feed_at(feeds, i), "mo_feed", err);
        if (status != MO_OK) {
            return status;
        }
        if (feed_at(feeds, i)->size != feeds->size ||
            feeds->size < offsetof(mo_feed, count) + sizeof own.count) {
            return mo_refuse_member(err, "mo_feed", "size", "must be sizeof(mo_feed) in all feeds of a call");
        }
        if (!own.session) {
            return mo_refuse_member(err, "mo_feed", "session", "is NULL in feed %d; it must be given", i + 1);
        }
        for (int j = 0; j < i; j++) {
            const mo_session *a = feed_at(feeds, i)->session, *b = feed_at(feeds, j)->session;
            if (a == b || a->engine != b->engine) {
                return mo_fail(err, MO_EINVAL,
                               "sessions fed together must be different ones of the same model");
            }
            if (own.sampler && own.sampler == sampler_of(feed_at(feeds, j))) { /* they pick side by side */
                return mo_fail(err, MO_EINVAL, "sessions fed together must not share a sampler");
            }
        }
    }
    return MO_OK;
}

mo_status mo_session_feed(const mo_feed *feeds, int count, mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, feeds)
    feeding all = {.count = count, .err = err};
    mo_status status = check_together(feeds, count, err);
    if (status == MO_OK) {
        status = mo_engine_check_process(feeds->session->engine, err);
    }
    if (status == MO_OK) {
        status = want_slices(feeds->session, count, err);
    }
    if (status != MO_OK) {
        return status;
    }
    for (int i = 0; i < count; i++) {
        mo_error own;
        mo_session *s = all.list[i] = feed_at(feeds, i)->session;
        s->feed = (mo_feed){0};
        mo_options_read(&s->feed, sizeof s->feed, feed_at(feeds, i), "mo_feed", &own);
        const mo_status begun = begin_feed(s, &own);
        if (begun != MO_OK) {
            end_feed(&all, s, begun, &own);
        }
    }
    feed_to_end(&all);
    return all.status;
}

mo_status mo_session_discover(mo_session *session, const int32_t *tokens, int64_t count, int64_t *experts,
                              mo_error *err)
{
    MO_OWN_ERROR(err)
    MO_REQUIRE(err, session, experts)
    if (count > 0) {
        MO_REQUIRE(err, tokens)
    }
    mo_status status = mo_engine_check_process(session->engine, err);
    bool lost;
    if (status == MO_OK && count < 1) {
        status = MO_REFUSE(err, "count", "must be 1 or more, not %lld", (long long)count);
    }
    if (status == MO_OK) {
        status = check_tokens(tokens, count, session->engine->spec->vocab, true, err);
    }
    if (status != MO_OK) {
        return status;
    }
    int64_t text = 0; /* what is before the first picture says enough */
    while (text < count && tokens[text] >= 0) {
        text++;
    }
    if (text == 0) {
        *experts = 0;
        return MO_OK;
    }
    count = text;
    if (atomic_load(&session->cancel)) {
        return mo_fail(err, MO_ECANCELLED, "cancelled");
    }
    do { /* again without the device that is lost meanwhile */
        mo_session_leave_lost_device(session);
        status = mo_discover(session->engine, &session->state, tokens, count, &session->cancel, experts, err);
        lost = mo_session_lost_device(session);
    } while (status == MO_EDEVICE && lost);
    return status;
}
