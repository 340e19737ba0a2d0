/* Outcome: what a step has brought to a sequence: more of its prompt, a token, or a failure. */
#include <string.h>

#include "base/clock.h"
#include "server/scheduler/scheduler.h"

/* The others begin where the first choice has come to the prompt's end. */
static void fork_choices(srv_engine *e, srv_sequence *first)
{
    srv_task *task = first->task;
    mo_snapshot *snapshot = NULL;
    mo_error err;
    if (task->choices == 1) {
        return;
    }
    const mo_status status = mo_snapshot_open(first->session, &snapshot, &err);
    for (int i = 1; i < task->choices; i++) {
        srv_sequence *s = &e->sequences[task->slots[i]];
        srv_sequence_restore(
            e, s, status == MO_OK ? snapshot : e->empty); /* without a copy each computes the prompt itself */
        pthread_mutex_lock(&e->lock);
        s->waits = false;
        s->held = s->cached = !s->dirty && mo_session_length(s->session) == s->prompt ? s->prompt : 0;
        pthread_mutex_unlock(&e->lock);
    }
    mo_snapshot_close(snapshot);
}

static void append(srv_engine *e, srv_sequence *s, int32_t token)
{
    pthread_mutex_lock(&e->lock);
    if (s->count < e->context) {
        s->tokens[s->count++] = token;
    }
    s->generated++;
    s->task->generated++;
    s->task->state = SRV_GENERATING;
    e->counts.predicted_tokens++;
    e->counts.longest = s->count > e->counts.longest ? s->count : e->counts.longest;
    pthread_mutex_unlock(&e->lock);
}

static bool has_said_enough(const srv_sequence *s)
{
    return s->task->max_tokens >= 0 && s->generated >= s->task->max_tokens;
}

static void take_token(srv_engine *e, srv_sequence *s, double now)
{
    srv_task *task = s->task;
    const mo_feed_report *r = &s->report;
    const bool ends = mo_token_ends(e->model, r->token) && !task->options.ignore_eos;
    srv_message m = {.kind = SRV_EVENT_TOKEN,
                     .task = task,
                     .choice = s->choice,
                     .at = now,
                     .token = r->token,
                     .ends = ends,
                     .soon = s->generated == 0 || task->options.stop_count > 0,
                     .logprob = r->logprob,
                     .top_count = r->top_count};
    memcpy(m.top, r->top, sizeof *m.top * (size_t)r->top_count);
    srv_messages_add(e, &m);
    append(e, s, r->token);
    mo_error err;
    if (s->constraint && !ends && mo_constraint_accept(s->constraint, r->token, &err) != MO_OK) {
        srv_end_task(e, task, &err);
        return;
    }
    if (ends || (s->constraint && mo_constraint_ended(s->constraint))) {
        srv_end_choice(e, s, SRV_FINISH_END);
    } else if (has_said_enough(s) || s->prompt + s->generated >= e->context) {
        srv_end_choice(e, s, SRV_FINISH_LENGTH);
    } else {
        s->wants_mask = s->constraint != NULL;
    }
}

/* The prompt has been computed further, or to its end. */
static void take_prompt(srv_engine *e, srv_sequence *s, double now)
{
    srv_task *task = s->task;
    const bool first = s->choice == 0;
    /* The library says what it really computed: less was found than hoped for when a session could not go back. */
    const int64_t held = s->held + s->piece;
    pthread_mutex_lock(&e->lock);
    if (first) {
        task->computed += s->report.computed;
        task->cached = held - task->computed > 0 ? held - task->computed : 0;
        s->cached = task->cached;
    }
    s->held = held;
    e->counts.prompt_tokens += (uint64_t)s->report.computed;
    if (held == s->prompt) {
        e->counts.cached_tokens += first ? (uint64_t)task->cached : 0;
        e->counts.prompt_s += first ? now - task->started : 0.0;
    }
    pthread_mutex_unlock(&e->lock);
    if (!e->info.rewinds && e->sharing && (held == s->mark || held == s->prompt)) {
        srv_memory_keep(e, s, held);
    }
    if (task->options.progress && first) {
        srv_messages_add(
            e,
            &(srv_message){
                .kind = SRV_EVENT_PROGRESS, .task = task, .at = now, .cached = task->cached, .done = held});
    }
    if (held < s->prompt) {
        return;
    }
    if (first) {
        fork_choices(e, s);
    }
    if (task->max_tokens == 0) {
        srv_end_choice(e, s, SRV_FINISH_LENGTH);
    } else if (!srv_sequence_draws_later(s) && !s->late) {
        take_token(e, s, now);
    }
}

static void take_failure(srv_engine *e, srv_sequence *s)
{
    const mo_error *unmasked = s->constraint ? srv_masks_failure(e->masks, &s->mask) : NULL;
    const mo_error err = unmasked ? *unmasked : s->report.error;
    if (err.status == MO_ECANCELLED) {
        return; /* the next round sees to it */
    }
    if (err.status == MO_ENOMEM && srv_memory_drop_kept(e)) {
        return; /* who runs goes before what is kept: it is fed again */
    }
    srv_end_task(e, s->task, &err);
}

void srv_outcome_take(srv_engine *e, srv_sequence *s, double now)
{
    if (!s->task) {
        return; /* its task has just ended with another choice */
    }
    s->late = s->constraint && srv_masks_missed(e->masks, &s->mask);
    if (s->report.error.status != MO_OK && !s->late) {
        take_failure(e, s);
    } else if (s->piece) {
        take_prompt(e, s, now);
    } else {
        pthread_mutex_lock(&e->lock);
        s->held = s->count;
        pthread_mutex_unlock(&e->lock);
        if (!s->late) {
            take_token(e, s, now);
        }
    }
}

/* A model that has thought as long as it may goes on with the tokens that end its thought. What it has said must have been
 * taken apart by then. */
void srv_outcome_end_thoughts(srv_engine *e)
{
    bool settled = false;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        const int64_t budget = s->task ? s->task->options.reasoning_budget : -1;
        const int32_t *tokens;
        if (budget < 0 || s->waits || srv_sequence_in_prompt(s) || s->generated < budget) {
            continue;
        }
        if (!settled) {
            srv_messages_send(e);
            srv_emitter_drain(e->emitter);
            settled = true;
        }
        const size_t count = srv_answer_thought_end(s->task->answers[s->choice], &tokens);
        if (count && s->constraint) {
            srv_masks_drop(e->masks, &s->mask);
            s->wants_mask = true;
            s->late = false;
        }
        for (size_t j = 0; j < count && s->count < e->context - 1 && !has_said_enough(s); j++) {
            if (s->constraint && mo_constraint_accept(s->constraint, tokens[j], NULL) != MO_OK) {
                break; /* what the answer must look like does not let the thought end here */
            }
            append(e, s, tokens[j]);
            srv_messages_add(e, &(srv_message){.kind = SRV_EVENT_TOKEN,
                                               .task = s->task,
                                               .choice = s->choice,
                                               .at = mo_clock_s(),
                                               .token = tokens[j]});
        }
        if (has_said_enough(s)) { /* these tokens count like any others */
            srv_end_choice(e, s, SRV_FINISH_LENGTH);
        }
    }
}
