/* Scheduler: the thread that turns tasks into steps. Each round it ends what was cancelled, gives free sequences to those whose
 * turn it is, lets every running answer have its next token and prompts as many as the pace allows in one step, and hands
 * what came out to the teller. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/engine.h"

enum {
    WORTHWHILE = 32, /* tokens: less is not worth a snapshot, or waiting for somebody else's prompt */
};

int64_t srv_common(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count)
{
    const int64_t count = a_count < b_count ? a_count : b_count;
    int64_t i = 0;
    while (i < count && a[i] == b[i]) {
        i++;
    }
    return i;
}

/* ---- Messages --------------------------------------------------------------------------------- */

static void say_all(srv_engine *e)
{
    srv_teller_say(e->teller, e->messages, e->message_count, true);
    e->message_count = 0;
    pthread_mutex_lock(&e->lock);
    if (e->unsaid) {
        e->unsaid = false;
        pthread_cond_broadcast(&e->ended);
    }
    pthread_mutex_unlock(&e->lock);
}

/* Without memory for a list the message goes out by itself. */
static void say(srv_engine *e, const srv_message *message)
{
    if (e->message_count == e->message_capacity) {
        const size_t more = 2 * e->message_capacity + 16;
        srv_message *list = realloc(e->messages, more * sizeof *list);
        if (!list) {
            say_all(e);
            srv_teller_say(e->teller, message, 1, true);
            return;
        }
        e->messages = list;
        e->message_capacity = more;
    }
    e->messages[e->message_count++] = *message;
}

/* ---- Ends ------------------------------------------------------------------------------------- */

/* What the next step needs of blocks. */
typedef struct room {
    srv_engine *engine;
    uint64_t need;
} room;

static bool has_room(void *user)
{
    const room *r = user;
    mo_kept_report blocks;
    mo_model_kept(r->engine->model, &blocks, sizeof blocks);
    return blocks.free_bytes >= (int64_t)r->need &&
           blocks.snapshot_bytes + blocks.spilled_bytes <= r->engine->options.cache_bytes;
}

static void keep(srv_engine *e, srv_sequence *s, int64_t count)
{
    mo_snapshot *snapshot;
    if (!e->prefix || s->dirty || count < WORTHWHILE || srv_prefix_has(e->prefix, s->tokens, count) ||
        mo_snapshot_open(s->session, &snapshot, NULL) != MO_OK) {
        return; /* it is computed again when it is needed */
    }
    srv_prefix_keep(e->prefix, s->tokens, count, snapshot);
    srv_prefix_make_room(e->prefix, has_room, &(room){.engine = e});
}

/* The sequence is free, and keeps what it holds. */
static void release(srv_engine *e, srv_sequence *s)
{
    mo_sampler_close(s->sampler);
    s->sampler = NULL;
    if (s->constraint) {
        srv_masks_drop(e->masks, &s->mask);
    }
    mo_constraint_close(s->constraint);
    s->constraint = NULL;
    s->mask = (srv_mask){0};
    s->wants_mask = s->late = false;
    const int64_t held = s->dirty ? 0 : mo_session_length(s->session);
    pthread_mutex_lock(&e->lock);
    s->last_job = s->task->id;
    s->task->slots[s->choice] = -1;
    s->task = NULL;
    s->waits = false;
    s->held = s->count = held;
    s->used = ++e->uses;
    pthread_mutex_unlock(&e->lock);
    s->mark = 0;
    s->kept = false;
    if (e->options.cache_dir) {
        keep(e, s, held);
        s->kept = true;
    }
}

static void end_task(srv_engine *e, srv_task *task, const mo_error *error)
{
    srv_message m = {.saying = error ? SRV_SAY_FAILED : SRV_SAY_DONE, .task = task, .at = srv_now()};
    for (int i = 0; i < task->choices; i++) {
        if (task->slots[i] >= 0) {
            release(e, &e->sequences[task->slots[i]]);
        }
    }
    if (error) {
        m.error = malloc(sizeof *m.error);
        if (m.error) {
            *m.error = *error;
        }
    }
    pthread_mutex_lock(&e->lock);
    m.cached = task->cached;
    m.done = task->cached + task->computed;
    e->counts.done += !error;
    e->counts.cancelled += error && error->status == MO_ECANCELLED;
    e->counts.failed += error && error->status != MO_ECANCELLED;
    srv_engine_forget(e, task);
    e->unsaid = true;
    pthread_mutex_unlock(&e->lock);
    e->finished++;
    say(e, &m);
}

static void end_choice(srv_engine *e, srv_sequence *s, srv_finish finish)
{
    srv_task *task = s->task;
    const srv_message m = {.saying = SRV_SAY_END,
                           .task = task,
                           .choice = s->choice,
                           .at = srv_now(),
                           .cached = task->cached,
                           .finish = finish};
    if (finish != SRV_FINISH_NONE) { /* otherwise the teller knows */
        say(e, &m);
    }
    release(e, s);
    if (++task->ended == task->choices) {
        end_task(e, task, NULL);
    }
}

static bool is_over(void *user, srv_task *task)
{
    const srv_engine *e = user;
    return e->closing || atomic_load(&task->enough);
}

/* Whether it has begun or not. */
static void end_early(srv_engine *e, srv_task *task)
{
    for (int i = 0; i < task->choices; i++) {
        if (task->slots[i] >= 0 || !task->started) {
            say(e, &(srv_message){.saying = SRV_SAY_END,
                                  .task = task,
                                  .choice = i,
                                  .at = srv_now(),
                                  .cached = task->cached,
                                  .finish = SRV_FINISH_END});
        }
    }
    end_task(e, task, NULL);
}

/* What was cancelled or stopped since the last round; when all is over, also what waits. */
static void reap(srv_engine *e)
{
    mo_error cancelled = {.status = MO_ECANCELLED, .detail = "cancelled"};
    for (srv_task *task = NULL;;) {
        pthread_mutex_lock(&e->lock);
        task = srv_queue_take(&e->queue, is_over, e);
        pthread_mutex_unlock(&e->lock);
        if (!task) {
            break;
        }
        if (atomic_load(&task->enough)) {
            end_early(e, task);
        } else {
            end_task(e, task, &cancelled);
        }
    }
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        if (s->task && atomic_load(&s->task->cancelled)) {
            end_task(e, s->task, &cancelled);
        } else if (s->task && atomic_load(&s->task->enough)) {
            end_early(e, s->task);
        } else if (s->task && atomic_load(&s->task->stopped[s->choice])) {
            end_choice(e, s, SRV_FINISH_NONE);
        }
    }
}

/* ---- Places ----------------------------------------------------------------------------------- */

typedef struct placing {
    srv_engine *engine;
    int free;
} placing;

/* May the task begin now? Not while there are too few sequences, nor while somebody else computes the beginning of its
 * prompt: then it waits for that. */
static bool may_begin(void *user, srv_task *task)
{
    const placing *p = user;
    srv_engine *e = p->engine;
    if (task->choices > p->free) {
        return false;
    }
    for (int i = 0; e->sharing && !task->options.no_cache && i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        if (!s->task || s->waits || s->held >= s->prompt || s->task->options.no_cache) {
            continue;
        }
        const int64_t common = srv_common(s->tokens, s->prompt, task->tokens, task->prompt);
        if (common < WORTHWHILE || common <= s->held || 2 * common < task->prompt) {
            continue;
        }
        if (!e->info.rewinds && common < s->prompt && (!s->mark || common < s->mark)) {
            s->mark = common; /* else what is shared could not be had from it */
        }
        return false;
    }
    return true;
}

/* Where a sequence's beginning can come from. */
typedef struct source {
    int64_t usable; /* tokens that need not be computed */
    int slot;       /* a free one that holds them; -1: none */
    int busy;       /* one that is running; -1: none */
    const mo_snapshot *snapshot;
} source;

/* What a session that holds these tokens saves of a prompt. */
static int64_t usable(const srv_engine *e, const srv_sequence *s, const int32_t *tokens, int64_t count)
{
    const int64_t common = srv_common(s->tokens, s->held, tokens, count);
    return common == s->held || e->info.rewinds ? common : 0;
}

static source find_source(srv_engine *e, const srv_task *task)
{
    source best = {.slot = -1, .busy = -1};
    int64_t saved;
    if (!e->sharing || task->options.no_cache) {
        return best;
    }
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        saved = s->task || s->dirty ? 0 : usable(e, s, task->tokens, task->prompt);
        if (saved > best.usable) {
            best = (source){.usable = saved, .slot = i, .busy = -1};
        }
    }
    const mo_snapshot *snapshot =
        e->prefix ? srv_prefix_find(e->prefix, task->tokens, task->prompt, &saved) : NULL;
    if (snapshot && saved > best.usable + WORTHWHILE / 2) {
        best = (source){.usable = saved, .slot = -1, .busy = -1, .snapshot = snapshot};
    }
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        saved = !s->task || s->dirty || s->waits ? 0 : usable(e, s, task->tokens, task->prompt);
        if (saved > best.usable + WORTHWHILE) {
            best = (source){.usable = saved, .slot = -1, .busy = i};
        }
    }
    return best;
}

/* The free sequence that is missed least: the one with nothing to lose, or used longest ago. */
static int choose_slot(const srv_engine *e)
{
    int best = -1;
    for (int i = 0; i < e->parallel; i++) {
        const srv_sequence *s = &e->sequences[i];
        if (s->task) {
            continue;
        }
        const srv_sequence *b = best >= 0 ? &e->sequences[best] : NULL;
        if (!b || (s->held == 0 && b->held > 0) || ((s->held == 0) == (b->held == 0) && s->used < b->used)) {
            best = i;
        }
    }
    return best;
}

static void restore(srv_engine *e, srv_sequence *s, const mo_snapshot *snapshot)
{
    s->dirty = mo_session_restore(s->session, snapshot, NULL) != MO_OK &&
               (snapshot == e->empty || mo_session_restore(s->session, e->empty, NULL) != MO_OK);
}

/* Brings the sequence to what the source has; how many tokens of the prompt that saves. */
static void begin_from(srv_engine *e, srv_sequence *s, const source *from)
{
    mo_snapshot *copy = NULL;
    if (from->busy >= 0 && mo_snapshot_open(e->sequences[from->busy].session, &copy, NULL) == MO_OK) {
        restore(e, s, copy);
        mo_snapshot_close(copy);
    } else if (from->snapshot) {
        restore(e, s, from->snapshot);
    } else if (from->slot < 0 && (s->held > 0 || s->dirty)) {
        restore(e, s, e->empty);
    }
}

/* Gives the sequence to a choice of the task; its session is what it is. */
static void occupy(srv_engine *e, int slot, srv_task *task, int choice)
{
    srv_sequence *s = &e->sequences[slot];
    memcpy(s->tokens, task->tokens, sizeof *s->tokens * (size_t)task->prompt);
    pthread_mutex_lock(&e->lock);
    s->task = task;
    s->choice = choice;
    s->count = s->prompt = task->prompt;
    s->held = 0;
    s->cached = 0;
    s->generated = 0;
    s->waits = choice > 0;
    s->used = ++e->uses;
    task->slots[choice] = slot;
    pthread_mutex_unlock(&e->lock);
    s->kept = false;
    s->mark = 0;
}

/* What chooses the tokens of the choice. */
static mo_status open_sampler(const srv_engine *e, srv_sequence *s, mo_error *err)
{
    mo_sampler_options options = s->task->sampler;
    options.seed += (uint64_t)s->choice;
    mo_status status = mo_sampler_open(&options, e->info.vocab, &s->sampler, err);
    if (status == MO_OK && s->task->options.grammar) {
        status = mo_constraint_open(s->task->options.grammar, &s->constraint, err);
        s->wants_mask = status == MO_OK;
    }
    return status;
}

static void begin_task(srv_engine *e, srv_task *task)
{
    mo_error err;
    source from = find_source(e, task);
    const int first = from.slot >= 0 ? from.slot : choose_slot(e);
    srv_sequence *s = &e->sequences[first];
    if (!s->kept && s->held > from.usable + WORTHWHILE / 2) {
        keep(e, s, s->held);                                /* what it held is about to be lost */
        from = from.snapshot ? find_source(e, task) : from; /* which may have been dropped for it */
    }
    begin_from(e, s, from.slot >= 0 && from.slot != first ? &(source){.slot = -1, .busy = -1} : &from);
    /* The last token always goes through the step in which the first one is sampled, though it may find its logits there. */
    const int64_t most = from.usable < task->prompt ? from.usable : task->prompt - 1;
    /* Where snapshots cannot be shortened, the place where prompts part is worth one. */
    const int64_t common = e->prefix && !e->info.rewinds && !task->options.no_cache
                               ? srv_prefix_common(e->prefix, task->tokens, task->prompt)
                               : 0;
    occupy(e, first, task, 0);
    mo_status status = open_sampler(e, s, &err);
    s->mark = common >= WORTHWHILE && common > most && common < task->prompt ? common : 0;
    for (int i = 1; i < task->choices && status == MO_OK; i++) {
        const int slot = choose_slot(e);
        srv_sequence *other = &e->sequences[slot];
        if (!other->kept) {
            keep(e, other, other->held);
        }
        occupy(e, slot, task, i);
        status = open_sampler(e, other, &err);
    }
    const double now = srv_now();
    pthread_mutex_lock(&e->lock);
    task->state = SRV_PROMPT;
    task->started = now;
    task->cached = most;
    s->held = s->cached = most;
    pthread_mutex_unlock(&e->lock);
    if (status != MO_OK) {
        end_task(e, task, &err);
        return;
    }
    say(e, &(srv_message){
               .saying = SRV_SAY_STARTED, .task = task, .at = now, .cached = task->cached, .done = most});
}

static bool admit(srv_engine *e)
{
    for (bool some = false;; some = true) {
        placing p = {.engine = e};
        for (int i = 0; i < e->parallel; i++) {
            p.free += e->sequences[i].task == NULL;
        }
        pthread_mutex_lock(&e->lock);
        srv_task *task = p.free ? srv_queue_take(&e->queue, may_begin, &p) : NULL;
        pthread_mutex_unlock(&e->lock);
        if (!task) {
            return some;
        }
        begin_task(e, task);
    }
}

/* Those that wait want more sequences than are free. Under the lock. */
static bool lacks_places(const srv_engine *e)
{
    int free = 0;
    for (int i = 0; i < e->parallel; i++) {
        free += e->sequences[i].task == NULL;
    }
    for (const srv_task *t = e->queue.first; t; t = t->next) {
        if (t->choices > free) {
            return true;
        }
    }
    return false;
}

/* A client that does not read keeps its place only as long as nobody else needs it: the one that was paused first, and for
 * long enough, ends. True: one did. */
static bool end_stalled(srv_engine *e)
{
    const double now = srv_now();
    srv_task *longest = NULL;
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < e->parallel && lacks_places(e); i++) {
        srv_task *task = e->sequences[i].task;
        if (task && srv_engine_stalled(e, task, now) && (!longest || task->paused_at < longest->paused_at)) {
            longest = task;
        }
    }
    if (longest) {
        srv_engine_tell_stalled(longest, now);
    }
    pthread_mutex_unlock(&e->lock);
    if (longest) {
        end_task(e, longest, &(mo_error){.status = MO_ECANCELLED, .detail = "its client does not read"});
    }
    return longest != NULL;
}

/* ---- Steps ------------------------------------------------------------------------------------ */

static bool in_prompt(const srv_sequence *s)
{
    return s->held < s->prompt;
}

/* Would it be fed if there were a step? */
static bool ready(const srv_sequence *s)
{
    return s->task && !s->waits && !s->late && (in_prompt(s) || !s->task->paused);
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
        if (!ready(s) || !in_prompt(s)) {
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
        if (ready(s) && in_prompt(s)) {
            left -= give(s, left);
        }
    }
    return tokens - left;
}

/* A model that may not think at all, and whose prompt may have begun a thought, does not draw at the prompt's end: see
 * end_thoughts(). */
static bool draws_later(const srv_sequence *s)
{
    return s->task->options.reasoning_budget == 0;
}

/* Asks for all that have changed. Not one by one: who changes one waits for those of the same grammar that are made. */
static void want_masks(srv_engine *e)
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

static mo_feed feed_of(srv_sequence *s)
{
    const int64_t count = in_prompt(s) ? s->held + s->piece : s->count;
    const bool whole = count == s->count && s->task->max_tokens != 0 && !(in_prompt(s) && draws_later(s));
    return (mo_feed){.size = sizeof(mo_feed),
                     .session = s->session,
                     .tokens = s->tokens,
                     .count = count,
                     .report = &s->report,
                     .report_size = sizeof s->report,
                     .sampler = whole ? s->sampler : NULL,
                     .late_mask = whole && s->constraint ? late_mask : NULL,
                     .user = s,
                     .logprobs = whole && s->task->options.logprobs,
                     .top = whole ? s->task->options.top : 0};
}

/* Chooses what is fed: answers first, since the library shares a step out evenly from the beginning of the list, and then
 * prompts from the shortest piece to the longest. */
static int build(srv_engine *e, int *answers, int64_t *prompt)
{
    int count = 0;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        s->piece = 0;
        s->late = s->late && srv_masks_is_late(e->masks, &s->mask);
        if (ready(s) && !in_prompt(s) && count < e->info.batch) {
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

/* ---- What comes out --------------------------------------------------------------------------- */

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
        restore(e, s,
                status == MO_OK ? snapshot : e->empty); /* without a copy each computes the prompt itself */
        pthread_mutex_lock(&e->lock);
        s->waits = false;
        s->held = s->cached = status == MO_OK && !s->dirty ? s->prompt : 0;
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

static void take_token(srv_engine *e, srv_sequence *s, double now)
{
    srv_task *task = s->task;
    const mo_feed_report *r = &s->report;
    const bool ends = mo_token_ends(e->model, r->token) && !task->options.ignore_eos;
    srv_message m = {.saying = SRV_SAY_TOKEN,
                     .task = task,
                     .choice = s->choice,
                     .at = now,
                     .token = r->token,
                     .ends = ends,
                     .logprob = r->logprob,
                     .top_count = r->top_count};
    memcpy(m.top, r->top, sizeof *m.top * (size_t)r->top_count);
    say(e, &m);
    append(e, s, r->token);
    mo_error err;
    if (s->constraint && !ends && mo_constraint_accept(s->constraint, r->token, &err) != MO_OK) {
        end_task(e, task, &err);
        return;
    }
    if (ends || (s->constraint && mo_constraint_ended(s->constraint))) {
        end_choice(e, s, SRV_FINISH_END);
    } else if ((task->max_tokens >= 0 && s->generated >= task->max_tokens) ||
               s->prompt + s->generated >= e->context) {
        end_choice(e, s, SRV_FINISH_LENGTH);
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
        keep(e, s, held);
    }
    if (task->options.progress && first) {
        say(e,
            &(srv_message){
                .saying = SRV_SAY_PROGRESS, .task = task, .at = now, .cached = task->cached, .done = held});
    }
    if (held < s->prompt) {
        return;
    }
    if (first) {
        fork_choices(e, s);
    }
    if (task->max_tokens == 0) {
        end_choice(e, s, SRV_FINISH_LENGTH);
    } else if (!draws_later(s) && !s->late) {
        take_token(e, s, now);
    }
}

static bool never(void *user)
{
    (void)user;
    return false;
}

static void take_failure(srv_engine *e, srv_sequence *s)
{
    const mo_error *unmasked = s->constraint ? srv_masks_failure(e->masks, &s->mask) : NULL;
    const mo_error err = unmasked ? *unmasked : s->report.error;
    srv_prefix_report kept = {0};
    if (e->prefix) {
        srv_prefix_describe(e->prefix, &kept);
    }
    if (err.status == MO_ECANCELLED) {
        return; /* the next round sees to it */
    }
    if (err.status == MO_ENOMEM && kept.kept) {
        srv_prefix_make_room(e->prefix, never, NULL); /* who runs goes before what is kept: it is fed again */
        return;
    }
    end_task(e, s->task, &err);
}

static void take(srv_engine *e, srv_sequence *s, double now)
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

/* Kept sessions may be in memory that those who run need now. */
static void make_room(srv_engine *e, int count)
{
    room r = {.engine = e};
    srv_prefix_report kept = {0};
    if (e->prefix) {
        srv_prefix_describe(e->prefix, &kept);
    }
    if (!kept.kept) {
        return;
    }
    for (int i = 0; i < count; i++) {
        const srv_sequence *s = &e->sequences[e->fed[i]];
        r.need += mo_session_need(s->session, e->feeds[i].count - s->held);
    }
    srv_prefix_make_room(e->prefix, has_room, &r);
}

/* A model that has thought as long as it may goes on with the tokens that end its thought. What it has said must have been
 * taken apart by then. */
static void end_thoughts(srv_engine *e)
{
    bool settled = false;
    for (int i = 0; i < e->parallel; i++) {
        srv_sequence *s = &e->sequences[i];
        const int64_t budget = s->task ? s->task->options.reasoning_budget : -1;
        const int32_t *tokens;
        if (budget < 0 || s->waits || in_prompt(s) || s->generated < budget) {
            continue;
        }
        if (!settled) {
            say_all(e);
            srv_teller_settle(e->teller);
            settled = true;
        }
        const size_t count = srv_answer_thought_end(s->task->answers[s->choice], &tokens);
        if (count && s->constraint) {
            srv_masks_drop(e->masks, &s->mask);
            s->wants_mask = true;
            s->late = false;
        }
        for (size_t j = 0; j < count && s->count < e->context - 1; j++) {
            if (s->constraint && mo_constraint_accept(s->constraint, tokens[j], NULL) != MO_OK) {
                break; /* what the answer must look like does not let the thought end here */
            }
            append(e, s, tokens[j]);
            say(e, &(srv_message){.saying = SRV_SAY_TOKEN,
                                  .task = s->task,
                                  .choice = s->choice,
                                  .at = srv_now(),
                                  .token = tokens[j]});
        }
    }
}

/* Feeds one step. False: there was nothing to feed. */
static bool step(srv_engine *e)
{
    int answers;
    int64_t prompt;
    pthread_mutex_lock(&e->lock); /* pauses are read here, and who steps is written */
    const int count = build(e, &answers, &prompt);
    for (int i = 0; i < count; i++) {
        e->sequences[e->fed[i]].stepping = true;
    }
    pthread_mutex_unlock(&e->lock);
    if (!count) {
        return false;
    }
    make_room(e, count);
    srv_masks_begin(e->masks);
    const double begin = srv_now();
    mo_session_feed_all(e->feeds, count, NULL);
    const double now = srv_now();
    srv_pace_learn(&e->pace, answers, prompt, now - begin);
    pthread_mutex_lock(&e->lock);
    for (int i = 0; i < count; i++) {
        e->sequences[e->fed[i]].stepping = false;
    }
    e->counts.steps++;
    e->counts.step_sequences += (uint64_t)count;
    e->counts.predicted_s += answers ? now - begin : 0.0;
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < count; i++) {
        take(e, &e->sequences[e->fed[i]], now);
    }
    return true;
}

/* ---- The thread ------------------------------------------------------------------------------- */

/* What others asked to be done between steps. */
static void run_errands(srv_engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (e->errands) {
        srv_errand *errand = e->errands;
        e->errands = errand->next;
        pthread_mutex_unlock(&e->lock);
        errand->work(errand->user);
        pthread_mutex_lock(&e->lock);
        errand->done = true;
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

/* Waits until something has changed since the round that found nothing to do. What the teller stops is not announced. */
static void rest(srv_engine *e)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&e->lock);
    if (e->changes == e->changes_seen && !e->closing) { /* then this round has ended the last task */
        if (e->tasks) {
            pthread_cond_timedwait(&e->work, &e->lock, &until);
        } else {
            pthread_cond_wait(&e->work, &e->lock);
        }
    }
    pthread_mutex_unlock(&e->lock);
}

void *srv_scheduler_run(void *engine)
{
    srv_engine *e = engine;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        e->changes_seen = e->changes;
        const bool closing = e->closing && !e->tasks && !e->errands;
        pthread_mutex_unlock(&e->lock);
        if (closing) {
            break;
        }
        run_errands(e);
        reap(e);
        tell_model(e);
        const bool begun = admit(e) || end_stalled(e);
        end_thoughts(e);
        want_masks(e);
        const bool stepped = step(e);
        say_all(e);
        if (!begun && !stepped) {
            rest(e);
        }
    }
    return NULL;
}
