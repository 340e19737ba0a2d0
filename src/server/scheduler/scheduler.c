/* Scheduler: the thread that turns tasks into steps. Each round it ends what was cancelled, gives free sequences to those whose
 * turn it is, asks for the rows of their pictures (encoding.c), lets every running answer have its next token and prompts as many
 * as the pace allows in one step, and hands what came out to the emitter. */
#include "server/scheduler/scheduler.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/wait.h"

/* Steps: what is fed next: a token of every running answer, and of prompts as many as the pace allows. */

static bool in_prompt(const srv_sequence *s)
{
    return s->held < s->prompt;
}

/* Would more of its prompt be fed if there were a step? Or a token of its answer? */
static bool can_read(const srv_sequence *s)
{
    return s->task && !s->waits && !s->encodes && in_prompt(s);
}

static bool can_answer(const srv_sequence *s)
{
    return s->task && !s->waits && !in_prompt(s) && !s->task->paused &&
           mo_generation_is_ready(srv_sequence_generation(s));
}

/* Where the prompt's next piece must end at the latest. */
static int64_t prompt_border(const srv_sequence *s)
{
    return s->mark > s->held ? s->mark : s->prompt;
}

int srv_sequence_order(const srv_sequence *a, const srv_sequence *b)
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
        if (!can_read(s)) {
            continue;
        }
        first = !first || srv_sequence_order(s, first) < 0 ? s : first;
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
        if (can_read(s)) {
            left -= give(s, left);
        }
    }
    return tokens - left;
}

static void tell_routes(void *sequence, int layer, int64_t position, const int32_t *ids, const float *weights,
                        int used)
{
    const srv_sequence *s = sequence;
    const srv_job_options *o = &s->task->options;
    (void)weights;
    o->routes(o->routes_user, layer, position, s->tokens[position], ids, used);
}

static void set_part(srv_sequence *s, mo_generation_part *part)
{
    const bool traced = s->task->options.routes && s->choice == 0 && !in_prompt(s);
    part->generation = srv_sequence_generation(s);
    part->piece = s->piece;
    part->settled = s->settled;
    part->logits = s->held + s->piece == s->mark; /* a snapshot has its logits */
    part->routes = traced ? tell_routes : NULL;
    part->user = s;
}

/* Fills the engine's parts and returns how many there are: of answers, and then of this many prompt tokens. Under the lock.
 * Answers come first, since the library shares a step out evenly from the beginning of the list, and then prompts from the
 * shortest piece to the longest. */
static int build(srv_engine *e, int *answers, int64_t *prompt)
{
    int count = 0;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        s->piece = 0;
        if (count < e->info.batch && can_answer(s)) {
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
        set_part(&e->sequences[e->fed[i]], &e->parts[i]);
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
        mo_generation_set_held(task->generations[i], s->held);
    }
    mo_snapshot_close(snapshot);
}

static void append(srv_engine *e, srv_sequence *s, int32_t token)
{
    pthread_mutex_lock(&e->lock);
    s->tokens[s->count++] = token; /* generations end before there is no space */
    s->generated++;
    s->task->generated++;
    s->task->state = SRV_GENERATING;
    e->counts.predicted_tokens++;
    e->counts.longest = s->count > e->counts.longest ? s->count : e->counts.longest;
    pthread_mutex_unlock(&e->lock);
}

/* Those that the generation has got, of which the first `accepted` were guessed. */
static void take_tokens(srv_engine *e, srv_sequence *s, int64_t accepted, bool predicted, double now)
{
    mo_generation_info info;
    mo_generation_describe(srv_sequence_generation(s), &info, sizeof info);
    while (s->count < info.count) {
        srv_draft_counts drafts = s->untold;
        drafts.accepted = accepted > 0;
        drafts.prediction_accepted = accepted > 0 && predicted;
        s->untold = (srv_draft_counts){0};
        srv_raw_events_add(
            e, &(srv_raw_event){.kind = SRV_EVENT_TOKEN,
                                .task = s->task,
                                .choice = s->choice,
                                .at = now,
                                .number = s->generated + 1,
                                .drafts = drafts,
                                .soon = s->generated == 0 || s->task->options.generation.stop_count > 0});
        append(e, s, info.tokens[s->count]);
        accepted -= accepted > 0 ? 1 : 0;
    }
}

/* The prompt has been computed further, or to its end. */
static void take_prompt(srv_engine *e, srv_sequence *s, const mo_generation_part *part, double now)
{
    srv_job *task = s->task;
    const bool first = s->choice == 0;
    /* The library says what it really computed: less was found than hoped for when a session could not go back. */
    const int64_t held = mo_generation_held(part->generation);
    pthread_mutex_lock(&e->lock);
    if (first) {
        task->computed += part->computed;
        task->cached = held - task->computed > 0 ? held - task->computed : 0;
        s->cached = task->cached;
    }
    s->held = held;
    e->counts.prompt_tokens += (uint64_t)part->computed;
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
    if (held == s->prompt && first) {
        fork_choices(e, s);
    }
}

static void take_failure(srv_engine *e, srv_sequence *s, const mo_error *err)
{
    if (err->status == MO_ECANCELLED) {
        return; /* the next round sees to it */
    }
    if (err->status == MO_ENOMEM && srv_memory_drop_kept(e)) {
        return; /* who runs goes before what is kept: it is fed again */
    }
    srv_end_job(e, s->task, err);
}

/* After a step with the sequence in it, which ended at that time. */
static void take_outcome(srv_engine *e, srv_sequence *s, const mo_generation_part *part, double now)
{
    if (!s->task) {
        return; /* its task has just ended with another choice */
    }
    const mo_end end = mo_generation_ended(part->generation);
    if (part->error.status != MO_OK && end == MO_END_NONE) {
        take_tokens(e, s, 0, false, now); /* guesses that came true before it */
        take_failure(e, s, &part->error);
        return;
    }
    if (s->piece) {
        take_prompt(e, s, part, now);
    } else {
        pthread_mutex_lock(&e->lock);
        s->held = mo_generation_held(part->generation);
        pthread_mutex_unlock(&e->lock);
    }
    s->untold.drafted += part->drafted;
    s->untold.prediction_drafted += part->predicted ? part->drafted : 0;
    take_tokens(e, s, part->accepted, part->predicted, now);
    if (end == MO_END_FAILED) {
        srv_end_job(e, s->task, &part->error);
    } else if (end != MO_END_NONE) {
        srv_end_choice(e, s, false);
    }
}

/* A model that has thought as long as it may goes on with the tokens that end its thought. What it has said must have been
 * taken apart by then. */
static void end_thoughts(srv_engine *e)
{
    bool settled = false;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        const int64_t budget = s->task ? s->task->options.generation.thought_tokens : -1;
        s->settled = false;
        if (budget < 0 || s->waits || in_prompt(s) || s->generated < budget) {
            continue;
        }
        if (!settled) {
            srv_raw_events_send(e);
            srv_emitter_drain(e->emitter);
            settled = true;
        }
        mo_generation_end_thought(srv_sequence_generation(s));
        take_tokens(e, s, 0, false, mo_clock_s());
        const bool ended = mo_generation_ended(srv_sequence_generation(s)) != MO_END_NONE;
        s->settled = !ended;
        if (ended) {
            srv_end_choice(e, s, false);
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
    srv_encoding_ask(e);
    pthread_mutex_lock(&e->lock); /* pauses are read here */
    const int count = build(e, &answers, &prompt);
    pthread_mutex_unlock(&e->lock);
    if (!count) {
        return false;
    }
    srv_memory_make_room(e, count);
    const double begin = mo_clock_s();
    mo_generation_step_parts(e->parts, e->feeds, count, NULL);
    const double now = mo_clock_s();
    srv_pace_learn(&e->pace, answers, prompt, now - begin);
    pthread_mutex_lock(&e->lock);
    e->counts.steps++;
    e->counts.step_sequences += (uint64_t)count;
    e->counts.predicted_s += answers ? now - begin : 0.0;
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < count; i++) {
        take_outcome(e, &e->sequences[e->fed[i]], &e->parts[i], now);
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
        prompt += s->task && in_prompt(s) ? s->prompt - s->held : 0;
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
        end_thoughts(e);
        const bool stepped = step(e);
        srv_raw_events_send(e);
        rested = !begun && !stepped && rest(e);
    }
    return NULL;
}
