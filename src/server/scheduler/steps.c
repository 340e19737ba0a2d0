/* Steps: what is fed next: a token of every running answer, and of prompts as many as the pace allows. */
#include "server/scheduler/scheduler.h"

bool srv_sequence_in_prompt(const srv_sequence *s)
{
    return s->held < s->prompt;
}

/* Would it be fed if there were a step? */
static bool ready(const srv_sequence *s)
{
    return s->task && !s->waits && !s->late && (srv_sequence_in_prompt(s) || !s->task->paused);
}

/* Where the prompt's next piece must end at the latest. */
static int64_t prompt_border(const srv_sequence *s)
{
    return s->mark > s->held ? s->mark : s->prompt;
}

static int by_arrival(const srv_sequence *a, const srv_sequence *b)
{
    if (a->task->priority != b->task->priority) {
        return a->task->priority > b->task->priority ? -1 : 1;
    }
    return a->task->id < b->task->id ? -1 : 1;
}

static int64_t give(srv_sequence *s, int64_t tokens)
{
    const int64_t rest = prompt_border(s) - s->held - s->piece;
    const int64_t given = tokens < rest ? tokens : rest;
    s->piece += given > 0 ? given : 0;
    return given > 0 ? given : 0;
}

/* Half of what there is to the one whose turn it is, so that none waits for ever; half to the shortest, so that short ones
 * need not wait for long ones; what is left to the others. */
static int64_t share_out(srv_engine *e, int64_t tokens)
{
    srv_sequence *first = NULL, *shortest = NULL;
    int64_t left = tokens;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        if (!ready(s) || !srv_sequence_in_prompt(s)) {
            continue;
        }
        first = !first || by_arrival(s, first) < 0 ? s : first;
        shortest = !shortest || s->prompt - s->held < shortest->prompt - shortest->held ? s : shortest;
    }
    if (!first) {
        return 0;
    }
    left -= give(first, (tokens + 1) / 2);
    left -= give(shortest, left);
    left -= give(first, left);
    for (int i = 0; i < e->parallel && left > 0; i++) {
        srv_sequence *s = &e->sequences[i];
        if (ready(s) && srv_sequence_in_prompt(s)) {
            left -= give(s, left);
        }
    }
    return tokens - left;
}

/* A model that may not think at all, and whose prompt may have begun a thought, does not draw at the prompt's end: see
 * srv_outcome_end_thoughts(). */
bool srv_sequence_draws_later(const srv_sequence *s)
{
    return s->task->options.reasoning_budget == 0;
}

/* Asks for all that have changed. Not one by one: who changes one waits for those of the same grammar that are made. */
void srv_steps_want_masks(srv_engine *e)
{
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        if (s->wants_mask) {
            srv_masks_want(e->masks, &s->mask, s->constraint);
            s->wants_mask = false;
        }
    }
}

static const uint32_t *late_mask(void *sequence)
{
    srv_sequence *s = sequence;
    return srv_masks_get(s->masks, &s->mask);
}

static void tell_routes(void *sequence, int layer, int64_t position, const int32_t *ids, const float *weights,
                        int used)
{
    const srv_sequence *s = sequence;
    const srv_job_options *o = &s->task->options;
    (void)weights;
    o->routes(o->routes_user, layer, position, s->tokens[position], ids, used);
}

static mo_feed feed_of(srv_sequence *s)
{
    const int64_t count = srv_sequence_in_prompt(s) ? s->held + s->piece : s->count;
    const bool whole = count == s->count && s->task->max_tokens != 0 &&
                       !(srv_sequence_in_prompt(s) && srv_sequence_draws_later(s));
    const bool traced = s->task->options.routes && s->choice == 0 && !srv_sequence_in_prompt(s);
    return (mo_feed){.size = sizeof(mo_feed),
                     .session = s->session,
                     .tokens = s->tokens,
                     .count = count,
                     .report = &s->report,
                     .report_size = sizeof s->report,
                     .sampler = whole ? s->sampler : NULL,
                     .late_mask = whole && s->constraint ? late_mask : NULL,
                     .routes = traced ? tell_routes : NULL,
                     .user = s,
                     .logprobs = whole && s->task->options.logprobs,
                     .top = whole ? s->task->options.top : 0,
                     .unfinished = count < s->count && count != s->mark}; /* a snapshot has its logits */
}

/* Chooses what is fed: answers first, since the library shares a step out evenly from the beginning of the list, and then
 * prompts from the shortest piece to the longest. */
int srv_steps_build(srv_engine *e, int *answers, int64_t *prompt)
{
    int count = 0;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        s->piece = 0;
        s->late = s->late && srv_masks_is_late(e->masks, &s->mask);
        if (ready(s) && !srv_sequence_in_prompt(s) && count < e->info.batch) {
            e->fed[count++] = i;
        }
    }
    *answers = count;
    *prompt = count < e->info.batch ? share_out(e, srv_pace_piece(&e->pace, count)) : 0;
    for (int i = 0; i < e->parallel; i++) {
        int at = count;
        if (!e->sequences[i].piece) {
            continue;
        }
        for (; at > *answers && e->sequences[e->fed[at - 1]].piece > e->sequences[i].piece; at--) {
            e->fed[at] = e->fed[at - 1];
        }
        e->fed[at] = i;
        count++;
    }
    for (int i = 0; i < count; i++) {
        e->feeds[i] = feed_of(&e->sequences[e->fed[i]]);
    }
    return count;
}
