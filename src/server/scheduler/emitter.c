#include "server/scheduler/emitter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/wait.h"

enum {
    /* Steps that the emitter may be behind: so soon a pause takes effect at the latest, whatever this thread's turn on a core. Fewer after
     * something urgent, such as an answer's first token: the receiver may want to pause. */
    FAR_BEHIND = 40,
    SOON_BEHIND = 16,
    MANY = 32, /* waiting steps that are enough to be sent */
    /* Fast tokens are sent together: waking this thread, HTTP's and the client costs some 40 us of processor time, where a
     * token of a small model takes 300. A delay of 8 ms is not visible. An answer begins with shorter rests, each twice the one
     * before, so that its first words come as they are made, and a client that wants no more of them is heard soon. */
    FIRST_REST_NS = 1000000,
    REST_NS = 8000000,
};
#define APART_S 0.004 /* slower tokens are sent one by one */

struct srv_emitter {
    srv_emitter_owner owner;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, less;
    /* Under the lock: a list that grows, and is changed for an empty one by the thread. */
    srv_raw_event *list;
    size_t count, capacity;
    int behind; /* calls of srv_emitter_emit() that wait, or are being said */
    int since;  /* of those, from the first urgent one on */
    bool busy, closing;
    bool resting;  /* tokens were just sent: others wait */
    bool urgent;   /* the waiting ones are urgent: */
    bool pressing; /* because of what it is, not because it is much */
    double last;   /* when the last token was made */
    bool follows;  /* the thread's: what is being said is not the last of its task in the list */
};

/* ---- One message ------------------------------------------------------------------------------ */

static void call_sink(srv_emitter *emitter, srv_job *task, srv_event *event)
{
    event->job = task->id;
    event->usage = &task->usage;
    event->timings = &task->timings;
    event->more = emitter->follows;
    if (!task->options.sink(task->options.user, event) && event->kind != SRV_DONE &&
        event->kind != SRV_FAILED) {
        emitter->owner.cancel(emitter->owner.user, task->id);
    }
}

static void count_tokens(srv_job *task)
{
    int64_t all = 0, thinking = 0, tokens, thoughts;
    for (int i = 0; i < task->choices; i++) {
        mo_generation_count(task->generations[i], &tokens, &thoughts);
        all += tokens;
        thinking += thoughts;
    }
    task->usage.completion_tokens = all;
    task->usage.thought_tokens = thinking;
}

static srv_finish finish_of(mo_end end)
{
    return end == MO_END_MODEL ? SRV_FINISH_END : end == MO_END_STOP ? SRV_FINISH_STRING : SRV_FINISH_LENGTH;
}

/* Tells what was parsed of the choice, and returns its end if that was among it. MO_END_FAILED: there was no memory to tell it. */
static mo_end tell(srv_emitter *emitter, srv_job *task, int choice)
{
    static const srv_event_kind kinds[] = {
        [MO_EVENT_TEXT] = SRV_TEXT,           [MO_EVENT_THOUGHT] = SRV_THOUGHT,   [MO_EVENT_CALL] = SRV_CALL,
        [MO_EVENT_ARGUMENTS] = SRV_ARGUMENTS, [MO_EVENT_CALL_END] = SRV_CALL_END, [MO_EVENT_END] = SRV_END};
    mo_generation *g = task->generations[choice];
    mo_generation_event from;
    mo_end end = MO_END_NONE;
    while (mo_generation_take_event(g, &from, sizeof from)) {
        srv_event event = {.kind = kinds[from.kind],
                           .choice = choice,
                           .text = from.text,
                           .call = from.call,
                           .call_id = from.kind == MO_EVENT_CALL ? from.id.data : NULL,
                           .tokens = from.tokens,
                           .token_count = from.token_count,
                           .stop = from.stop,
                           .completion_tokens = from.generated};
        if (from.kind == MO_EVENT_END) {
            end = from.end;
            if (end == MO_END_FAILED) {
                break;
            }
            event.finish = finish_of(end);
            /* before the client can ask about it */
            emitter->owner.choice(emitter->owner.user, g, (size_t)task->prompt);
        }
        count_tokens(task); /* also of this piece */
        call_sink(emitter, task, &event);
    }
    return end;
}

/* An answer that cannot be sent cannot continue. */
static void give_up(srv_emitter *emitter, srv_job *task)
{
    emitter->owner.cancel(emitter->owner.user, task->id);
}

static void note_time(srv_emitter *emitter, srv_job *task, double at)
{
    if (task->first == 0.0) {
        task->first = at;
        task->timings.firsts = task->choices;
        task->timings.first_s = at - task->submitted;
        task->timings.prompt_s = task->timings.first_s - task->timings.queued_s;
        emitter->owner.token(emitter->owner.user, task->timings.first_s, 0.0);
    } else if (task->choices == 1) {
        emitter->owner.token(emitter->owner.user, 0.0, at - task->last);
    }
    task->last = at;
    task->timings.predicted_s = at - task->first;
}

/* Is the token none of the answer's, because a stop string was met before it? */
static bool is_behind(const mo_generation *g, const srv_raw_event *m)
{
    int64_t tokens, thoughts;
    mo_generation_count(g, &tokens, &thoughts);
    return mo_generation_stopped(g) && m->number > tokens;
}

static void emit_token(srv_emitter *emitter, const srv_raw_event *m)
{
    srv_job *task = m->task;
    mo_generation *g = task->generations[m->choice];
    if (is_behind(g, m)) { /* sampled before the scheduler knew */
        if (m->drafts.accepted) {
            emitter->owner.behind(emitter->owner.user, m->drafts.accepted);
        }
        return;
    }
    note_time(emitter, task, m->at);
    srv_draft_counts_add(&task->usage.drafts, &m->drafts);
    task->usage.prompt_done = task->prompt;
    mo_generation_parse(g);
    const mo_end end = tell(emitter, task, m->choice);
    if (end == MO_END_FAILED) {
        give_up(emitter, task);
        return;
    }
    count_tokens(task);
    if (end == MO_END_STOP) {
        atomic_store(&task->stopped[m->choice], true);
    }
}

static void emit_end(srv_emitter *emitter, const srv_raw_event *m)
{
    srv_job *task = m->task;
    mo_generation *g = task->generations[m->choice];
    if (mo_generation_stopped(g)) {
        return; /* it was sent */
    }
    while (mo_generation_parse(g)) {
    }
    const mo_end end = tell(emitter, task, m->choice);
    if (end == MO_END_NONE || end == MO_END_FAILED) {
        give_up(emitter, task);
    }
}

static void emit(srv_emitter *emitter, const srv_raw_event *m)
{
    /* Used if there was no memory for the error message. */
    static const mo_error no_memory = {MO_ENOMEM, "out of memory"};
    srv_job *task = m->task;
    srv_event event = {.text = {"", 0}, .stop = -1};
    task->usage.cached_tokens = m->kind == SRV_EVENT_TOKEN ? task->usage.cached_tokens : m->cached;
    switch (m->kind) {
    case SRV_EVENT_STARTED:
    case SRV_EVENT_PROGRESS:
        event.kind = m->kind == SRV_EVENT_STARTED ? SRV_STARTED : SRV_PROGRESS;
        task->usage.prompt_done = m->done;
        task->timings.queued_s =
            m->kind == SRV_EVENT_STARTED ? m->at - task->submitted : task->timings.queued_s;
        task->timings.prompt_s = m->done > m->cached ? m->at - task->submitted - task->timings.queued_s : 0;
        call_sink(emitter, task, &event);
        break;
    case SRV_EVENT_TOKEN: emit_token(emitter, m); break;
    case SRV_EVENT_END: emit_end(emitter, m); break;
    case SRV_EVENT_DONE:
    case SRV_EVENT_FAILED:
        event.kind = m->kind == SRV_EVENT_DONE ? SRV_DONE : SRV_FAILED;
        event.error = m->kind == SRV_EVENT_FAILED && !m->error ? &no_memory : m->error;
        if (task->first == 0.0 && m->kind == SRV_EVENT_DONE) {
            task->timings.prompt_s = m->at - task->submitted - task->timings.queued_s;
        }
        task->usage.prompt_done = m->done;
        call_sink(emitter, task, &event);
        free(m->error);
        srv_job_close(task);
        break;
    }
}

/* What there was among messages. */
typedef enum emitted { NO_TOKENS, TOKENS, FIRST_TOKENS } emitted;

/* Sends all of them. Events of several steps go to a client together: writers wait for `told`. */
static emitted emit_all(srv_emitter *emitter, const srv_raw_event *list, size_t count)
{
    emitted tokens = NO_TOKENS;
    for (size_t i = 0; i < count; i++) {
        const srv_raw_event *m = &list[i];
        const bool last = m->kind == SRV_EVENT_DONE || m->kind == SRV_EVENT_FAILED; /* it closes the task */
        void (*const batch_end)(void *user) = m->task->options.batch_end;
        void *const user = m->task->options.user;
        size_t next = batch_end && !last ? i + 1 : count;
        while (next < count && list[next].task != m->task) {
            next++;
        }
        emitter->follows = next < count;
        if (m->kind == SRV_EVENT_TOKEN && tokens != FIRST_TOKENS) {
            tokens = m->task->first == 0.0 ? FIRST_TOKENS : TOKENS;
        }
        emit(emitter, m);
        if (batch_end && !last && !emitter->follows) {
            batch_end(user);
        }
    }
    return tokens;
}

/* ---- The thread ------------------------------------------------------------------------------- */

/* With the lock: until then, or until something is urgent. */
static void rest(srv_emitter *emitter, int64_t until_ns)
{
    emitter->resting = true;
    while (!emitter->urgent && !emitter->closing && mo_cond_wait(&emitter->more, &emitter->lock, until_ns)) {
    }
    emitter->resting = false;
}

static void *run(void *arg)
{
    srv_emitter *emitter = arg;
    srv_raw_event *list = NULL;
    size_t capacity = 0;
    long rest_ns = FIRST_REST_NS;
    pthread_mutex_lock(&emitter->lock);
    for (;;) {
        while (!emitter->count && !emitter->closing) {
            emitter->urgent = false;
            pthread_cond_wait(&emitter->more, &emitter->lock);
        }
        if (!emitter->count) {
            break;
        }
        srv_raw_event *full = emitter->list;
        const size_t count = emitter->count, full_capacity = emitter->capacity;
        const int calls = emitter->behind;
        emitter->list = list;
        emitter->capacity = capacity;
        emitter->count = 0;
        emitter->busy = true;
        emitter->urgent = emitter->pressing = false;
        pthread_mutex_unlock(&emitter->lock);
        const int64_t begin = mo_clock_ns();
        const emitted tokens = emit_all(emitter, full, count);
        list = full;
        capacity = full_capacity;
        pthread_mutex_lock(&emitter->lock);
        emitter->busy = false;
        emitter->behind -= calls;
        emitter->since = emitter->pressing ? emitter->behind : 0;
        pthread_cond_broadcast(&emitter->less);
        if (tokens != NO_TOKENS) {
            rest_ns = tokens == FIRST_TOKENS ? FIRST_REST_NS : 2 * rest_ns < REST_NS ? 2 * rest_ns : REST_NS;
            rest(emitter, begin + rest_ns);
        }
    }
    pthread_mutex_unlock(&emitter->lock);
    free(list);
    return NULL;
}

mo_status srv_emitter_open(const srv_emitter_owner *owner, srv_emitter **out, mo_error *err)
{
    srv_emitter *emitter = calloc(1, sizeof *emitter);
    *out = NULL;
    if (emitter) {
        emitter->owner = *owner;
        pthread_mutex_init(&emitter->lock, NULL);
        mo_cond_init(&emitter->more);
        pthread_cond_init(&emitter->less, NULL);
        if (pthread_create(&emitter->thread, NULL, run, emitter) == 0) {
            *out = emitter;
            return MO_OK;
        }
        pthread_mutex_destroy(&emitter->lock);
        pthread_cond_destroy(&emitter->more);
        pthread_cond_destroy(&emitter->less);
    }
    free(emitter);
    err->status = MO_ENOMEM;
    strcpy(err->detail, "cannot start a thread");
    return MO_ENOMEM;
}

void srv_emitter_close(srv_emitter *emitter)
{
    if (emitter) {
        pthread_mutex_lock(&emitter->lock);
        emitter->closing = true;
        pthread_cond_signal(&emitter->more);
        pthread_mutex_unlock(&emitter->lock);
        pthread_join(emitter->thread, NULL);
        pthread_mutex_destroy(&emitter->lock);
        pthread_cond_destroy(&emitter->more);
        pthread_cond_destroy(&emitter->less);
        free(emitter->list);
        free(emitter);
    }
}

/* Is there something that does not wait for others? Tokens that come slowly do not. */
static bool presses(const srv_emitter *emitter, const srv_raw_event *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (messages[i].kind != SRV_EVENT_TOKEN || messages[i].soon ||
            messages[i].at - emitter->last >= APART_S) {
            return true;
        }
    }
    return false;
}

static bool far_behind(const srv_emitter *emitter)
{
    return emitter->behind >= FAR_BEHIND || emitter->since >= SOON_BEHIND;
}

void srv_emitter_emit(srv_emitter *emitter, const srv_raw_event *messages, size_t count, bool wait)
{
    if (!count) {
        return;
    }
    pthread_mutex_lock(&emitter->lock);
    /* A last event must not be lost for want of memory: then there is time to wait. */
    while ((wait && far_behind(emitter)) ||
           !mo_array_reserve(&emitter->list, &emitter->capacity, emitter->count + count,
                             sizeof *emitter->list)) {
        if (!wait || (!emitter->count && !emitter->busy)) {
            break; /* no memory even for an empty list: nothing can be sent */
        }
        pthread_cond_wait(&emitter->less, &emitter->lock);
    }
    if (emitter->count + count <= emitter->capacity) {
        memcpy(emitter->list + emitter->count, messages, count * sizeof *messages);
        emitter->count += count;
        emitter->behind++;
        emitter->pressing = emitter->pressing || presses(emitter, messages, count);
        emitter->since += emitter->pressing || emitter->since > 0;
        emitter->urgent = emitter->urgent || emitter->pressing || emitter->behind > MANY;
        emitter->last = messages[count - 1].at;
    }
    if (emitter->urgent || !emitter->resting) {
        pthread_cond_signal(&emitter->more);
    }
    pthread_mutex_unlock(&emitter->lock);
}

void srv_emitter_drain(srv_emitter *emitter)
{
    pthread_mutex_lock(&emitter->lock);
    while (emitter->count || emitter->busy) {
        emitter->urgent = true;
        pthread_cond_signal(&emitter->more);
        pthread_cond_wait(&emitter->less, &emitter->lock);
    }
    pthread_mutex_unlock(&emitter->lock);
}
