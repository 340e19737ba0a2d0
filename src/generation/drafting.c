#include "generation/drafting.h"

#include <stdlib.h>

#include "base/status.h"
#include "speculate/ngram.h"
#include "speculate/recent.h"

/* Classes of matches from this on are long; and most guesses of a head, which feeds each to itself. */
enum { LONG_CLASS = 3, HEAD_MOST = 16 };

struct mo_drafting {
    mo_drafting_options set;
    mo_ngram *own, *predicted; /* n-grams of the session's text and of the prediction; NULL: none */
    int64_t space;             /* of `own` */
    mo_depth depth;
    /* Of the last look: */
    int class;           /* of what was decided on */
    const int32_t *from; /* what may follow in a text; NULL: nothing, or the source has put it there */
    bool from_prediction;
    int64_t drafted, accepted;
};

mo_status mo_drafting_open(const mo_drafting_options *options, mo_drafting **out, mo_error *err)
{
    mo_drafting *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the drafts of a generation");
    }
    d->set = *options;
    mo_depth_init(&d->depth);
    *out = d;
    return MO_OK;
}

void mo_drafting_close(mo_drafting *d)
{
    if (d) {
        mo_ngram_close(d->own);
        mo_ngram_close(d->predicted);
        free(d);
    }
}

bool mo_drafting_asks_head(const mo_drafting *d)
{
    return !d->set.source;
}

/* The n-grams of the prediction take more memory than its tokens: jobs that wait in a queue have none yet. */
static mo_status open_prediction(mo_drafting *d, mo_error *err)
{
    const int64_t count = (int64_t)d->set.prediction_count;
    if (!count || d->predicted) {
        return MO_OK;
    }
    const mo_status status = mo_ngram_open(count, &d->predicted, err);
    if (status == MO_OK) {
        mo_ngram_extend(d->predicted, d->set.prediction, count);
    }
    return status;
}

mo_status mo_drafting_begin(mo_drafting *d, const int32_t *tokens, int64_t count, int64_t context,
                            mo_error *err)
{
    d->drafted = d->accepted = 0;
    if (d->set.source || !d->set.text) {
        return MO_OK;
    }
    const mo_status begun = open_prediction(d, err);
    if (begun != MO_OK) {
        return begun;
    }
    if (d->space != context) {
        mo_ngram_close(d->own);
        d->own = NULL;
        d->space = 0;
        const mo_status status = mo_ngram_open(context, &d->own, err);
        if (status != MO_OK) {
            return status;
        }
        d->space = context;
    }
    mo_ngram_forget(d->own);
    mo_ngram_extend(d->own, tokens, count);
    return MO_OK;
}

/* Of the text, the prediction and recent answers what has the longest match; of equal ones the prediction, then the text. Returns how many
 * tokens it can guess: a match in the text goes on with what was just guessed. */
static int64_t find(mo_drafting *d, const int32_t *tokens, int64_t count, int64_t *match)
{
    const int64_t at = mo_ngram_find(d->own, tokens, tokens, count, match);
    int64_t known = at >= 0 ? INT64_MAX : 0, length = 0;
    d->from = at >= 0 ? tokens + at : NULL;
    *match = at >= 0 ? *match : 0;
    d->from_prediction = false;
    if (d->set.recent) {
        const int32_t *from = NULL;
        const int64_t follow = mo_recent_find(d->set.recent, d->set.client, tokens, count, &from, &length);
        if (follow && length > *match) {
            *match = length;
            d->from = from;
            known = follow;
        }
    }
    if (d->predicted) {
        const int64_t there = mo_ngram_find(d->predicted, d->set.prediction, tokens, count, &length);
        if (there >= 0 && length >= *match) {
            *match = length;
            d->from = d->set.prediction + there;
            d->from_prediction = true;
            known = (int64_t)d->set.prediction_count - there;
        }
    }
    return known;
}

/* How many are accepted with at least the probability that is asked for. */
static int64_t probable(const mo_drafting *d, mo_step_times *times, int class, int64_t most)
{
    double all = 1.0;
    int64_t count = 0;
    for (; count < most; count++) {
        all *= mo_depth_acceptance(&d->depth, times, class, count);
        if (all < (double)d->set.p_min) {
            break;
        }
    }
    return count;
}

/* Those of a source that the request wants; 0: none. */
static int64_t wanted(const mo_drafting *d, mo_step_times *times, int class, int64_t most)
{
    if (d->set.p_min > 0.0f && most > 0) {
        most = probable(d, times, class, most);
    }
    return most < 1 || most < d->set.least ? 0 : most;
}

bool mo_drafting_look(mo_drafting *d, mo_step_times *times, int32_t *tokens, int64_t count, int64_t most,
                      bool head, mo_depth_wish *out)
{
    int64_t match = 0, known = 0;
    most = most < d->set.most ? most : d->set.most;
    *out = (mo_depth_wish){.depth = &d->depth, .least = d->set.least};
    d->from = NULL;
    if (most < 1) {
        return false;
    }
    if (d->set.source) {
        out->given = d->set.source->match == 0;
        out->class = mo_depth_class(d->set.source->match);
        out->most = d->set.source->draft(d->set.source->user, tokens, count, tokens + count, most);
        return out->most > 0;
    }
    d->from_prediction = false;
    if (d->set.text) {
        mo_ngram_extend(d->own, tokens, count);
        known = find(d, tokens, count, &match);
    }
    out->class = mo_depth_class(match);
    out->most = wanted(d, times, out->class, known < most ? known : most);
    if (head && (!out->most || out->class < LONG_CLASS)) { /* it is not asked where the match is long */
        const int64_t by_head = wanted(d, times, MO_DEPTH_HEAD, HEAD_MOST < most ? HEAD_MOST : most);
        if (by_head) {
            out->match_class = out->class;
            out->match_most = out->most;
            out->class = MO_DEPTH_HEAD;
            out->most = by_head;
            out->head = true;
        }
    }
    return out->most > 0;
}

int64_t mo_drafting_put(mo_drafting *d, int32_t *tokens, int64_t count, const mo_depth_wish *wish)
{
    int64_t put = 0;
    d->class = wish->class;
    d->from_prediction = d->from_prediction && !wish->head;
    if (!d->from || wish->head) {
        return wish->drafts;
    }
    while (put < wish->drafts && d->from[put] >= 0) {
        tokens[count + put] = d->from[put];
        put++;
    }
    return put;
}

void mo_drafting_learn(mo_drafting *d, mo_step_times *times, int64_t drafted, int64_t accepted)
{
    mo_depth_learn(&d->depth, times, d->class, drafted, accepted);
    d->drafted += drafted;
    d->accepted += accepted;
}

void mo_drafting_count(const mo_drafting *d, int64_t *drafted, int64_t *accepted)
{
    *drafted = d->drafted;
    *accepted = d->accepted;
}

bool mo_drafting_predicted(const mo_drafting *d)
{
    return d->from_prediction;
}
