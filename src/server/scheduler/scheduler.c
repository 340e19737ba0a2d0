/* Scheduler: the thread that turns tasks into steps. Each round it ends what was cancelled, gives free sequences to those whose
 * turn it is, lets every running answer have its next token and prompts as many as the pace allows in one step, and hands
 * what came out to the emitter. */
#include "server/scheduler/scheduler.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/wait.h"

/* Steps: what is fed next: a token of every running answer, and of prompts as many as the pace allows. */

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

/* Outcome: what a step has brought to a sequence: more of its prompt, a token, or a failure. */

/* The others begin where the first choice has come to the prompt's end. */
static void fork_choices(srv_engine *e, srv_sequence *first)
{
    srv_job *task = first->task;
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
    srv_job *task = s->task;
    const mo_feed_report *r = &s->report;
    const bool ends = mo_token_ends(e->model, r->token) && !task->options.ignore_eos;
    srv_raw_event m = {.kind = SRV_EVENT_TOKEN,
                       .task = task,
                       .choice = s->choice,
                       .at = now,
                       .token = r->token,
                       .ends = ends,
                       .soon = s->generated == 0 || task->options.stop_count > 0,
                       .logprob = r->logprob,
                       .top_count = r->top_count};
    memcpy(m.top, r->top, sizeof *m.top * (size_t)r->top_count);
    srv_raw_events_add(e, &m);
    append(e, s, r->token);
    mo_error err;
    if (s->constraint && !ends && mo_constraint_accept(s->constraint, r->token, &err) != MO_OK) {
        srv_end_job(e, task, &err);
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
    srv_job *task = s->task;
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
        srv_raw_events_add(
            e,
            &(srv_raw_event){
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
    srv_end_job(e, s->task, &err);
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
            srv_raw_events_send(e);
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
            srv_raw_events_add(e, &(srv_raw_event){.kind = SRV_EVENT_TOKEN,
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

/* Rehearsal: the first steps of a device load kernels and prepare programs, which takes longer than the steps themselves. They are taken
 * before the first request: a short prompt, and tokens of several sequences at once. It is always the same token, which chooses few
 * experts: little is moved for it, and nothing is learned from it. */

enum {
    PROMPT = 16,  /* tokens: more than a small step has */
    TOGETHER = 8, /* sequences: larger steps are as prompts are */
};

typedef struct warmup {
    srv_engine *engine;
    const _Atomic bool *stopping;
    int64_t length[TOGETHER]; /* of the sequences */
    int steps;
} warmup;

/* Extends the first `count` sequences by this many tokens. False: it failed; a request will report it. */
static bool feed(warmup *r, int count, int64_t tokens)
{
    const srv_engine *e = r->engine;
    for (int i = 0; i < count; i++) {
        const srv_sequence *s = &e->sequences[i];
        for (int64_t t = 0; t < tokens; t++) {
            s->tokens[r->length[i]++] = 0;
        }
        e->feeds[i] = (mo_feed){.size = sizeof(mo_feed),
                                .session = s->session,
                                .tokens = s->tokens,
                                .count = r->length[i],
                                .uncounted = true};
    }
    const bool good = mo_session_feed(e->feeds, count, NULL) == MO_OK;
    r->steps += good;
    return good;
}

static void run(void *user)
{
    warmup *r = user;
    srv_engine *e = r->engine;
    bool good = !*r->stopping && e->context > 2 * PROMPT && feed(r, 1, PROMPT);
    for (int count = 1; good && !*r->stopping && count <= e->parallel && count <= TOGETHER; count *= 2) {
        good = feed(r, count, 1);
    }
    for (int i = 0; i < e->parallel && i < TOGETHER; i++) {
        srv_sequence_restore(e, &e->sequences[i], e->empty);
    }
}

int srv_engine_warmup(srv_engine *e, const _Atomic bool *stopping)
{
    warmup r = {.engine = e, .stopping = stopping};
    srv_engine_between_steps(e, run, &r);
    return r.steps;
}

/* Feeds one step. False: there was nothing to feed. */
static bool step(srv_engine *e)
{
    int answers;
    int64_t prompt;
    pthread_mutex_lock(&e->lock); /* pauses are read here */
    const int count = srv_steps_build(e, &answers, &prompt);
    pthread_mutex_unlock(&e->lock);
    if (!count) {
        return false;
    }
    srv_memory_make_room(e, count);
    srv_masks_begin(e->masks);
    const double begin = mo_clock_s();
    mo_session_feed(e->feeds, count, NULL);
    const double now = mo_clock_s();
    srv_pace_learn(&e->pace, answers, prompt, now - begin);
    pthread_mutex_lock(&e->lock);
    e->counts.steps++;
    e->counts.step_sequences += (uint64_t)count;
    e->counts.predicted_s += answers ? now - begin : 0.0;
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < count; i++) {
        srv_outcome_take(e, &e->sequences[e->fed[i]], now);
    }
    return true;
}

/* ---- The thread ------------------------------------------------------------------------------- */

/* What others asked to be done between steps. */
static void run_between(srv_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (e->between) {
        srv_between *work_item = e->between;
        e->between = work_item->next;
        pthread_mutex_unlock(&e->lock);
        work_item->work(work_item->user);
        pthread_mutex_lock(&e->lock);
        work_item->done = true;
        pthread_cond_broadcast(&e->ended);
    }
    pthread_mutex_unlock(&e->lock);
}

/* A hot cache learns from every request. */
static void tell_model(srv_engine *e)
{
    if (e->finished) {
        e->finished = 0;
        mo_model_request_done(e->model, NULL); /* a failure leaves the model as usable as before */
    }
}

/* Waits until something has changed since the round that found nothing to do. What the emitter stops is not announced. True:
 * there was no task before. */
static bool rest(srv_engine *e)
{
    bool idle = false;
    pthread_mutex_lock(&e->lock);
    if (e->changes == e->changes_seen && !e->closing) { /* then this round has ended the last task */
        idle = !e->tasks;
        if (e->tasks) {
            mo_cond_wait(&e->work, &e->lock, mo_clock_in(0.05));
        } else {
            pthread_cond_wait(&e->work, &e->lock);
        }
    }
    pthread_mutex_unlock(&e->lock);
    return idle;
}

/* Waits for those who ask at the same time as the first after a rest. False: that would not be worth it. */
static bool gather(srv_engine *e)
{
    int64_t prompt = 0;
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        prompt += s->task && srv_sequence_in_prompt(s) ? s->prompt - s->held : 0;
    }
    const double seconds = srv_pace_gathering(&e->pace, prompt);
    if (seconds <= 0.0) {
        return false;
    }
    const int64_t until = mo_clock_in(seconds);
    pthread_mutex_lock(&e->lock);
    while (!e->closing && mo_cond_wait(&e->work, &e->lock, until)) {
    }
    pthread_mutex_unlock(&e->lock);
    return true;
}

void *srv_scheduler_run(void *engine)
{
    srv_engine *e = engine;
    for (bool rested = false;;) {
        pthread_mutex_lock(&e->lock);
        e->changes_seen = e->changes;
        const bool closing = e->closing && !e->tasks && !e->between;
        pthread_mutex_unlock(&e->lock);
        if (closing) {
            break;
        }
        run_between(e);
        srv_end_what_is_over(e);
        tell_model(e);
        const bool begun = srv_admission_admit(e) || srv_admission_end_stalled(e);
        if (begun && rested && gather(e)) {
            rested = false;
            continue; /* those who came have their places first */
        }
        srv_outcome_end_thoughts(e);
        srv_steps_want_masks(e);
        const bool stepped = step(e);
        srv_raw_events_send(e);
        rested = !begun && !stepped && rest(e);
    }
    return NULL;
}
