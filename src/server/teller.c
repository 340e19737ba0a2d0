#include "server/teller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    FAR_BEHIND = 16, /* steps: so soon a pause takes effect at the latest */
    MANY = 12,       /* steps that wait, which are enough to be told */
    /* Tokens that come sooner after others are told together: waking this thread, HTTP's and the client costs some 40 us of processor
     * time, where a token of a small model takes 300. Nobody sees pieces that are 4 ms late. */
    TOGETHER_NS = 4000000,
};

struct srv_teller {
    srv_teller_owner owner;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, less;
    /* Under the lock: a list that grows, and is changed for an empty one by the thread. */
    srv_message *list;
    size_t count, capacity;
    int behind; /* calls of srv_teller_say() that wait, or are being said */
    bool busy, closing;
    bool resting; /* tokens were told just now: others wait */
    bool urgent;  /* something that waits is to be told at once */
    bool follows; /* the thread's: what is being said is not the last of its task in the list */
};

/* ---- One message ------------------------------------------------------------------------------ */

typedef struct telling {
    srv_teller *teller;
    srv_task *task;
    int choice;
} telling;

static void call_sink(srv_teller *teller, srv_task *task, srv_event *event)
{
    event->job = task->id;
    event->usage = &task->usage;
    event->timings = &task->timings;
    event->more = teller->follows;
    if (!task->options.sink(task->options.user, event) && event->kind != SRV_DONE &&
        event->kind != SRV_FAILED) {
        teller->owner.cancel(teller->owner.user, task->id);
    }
}

static void on_answer(void *user, const srv_event *event)
{
    const telling *t = user;
    srv_event own = *event;
    own.choice = t->choice;
    own.completion_tokens = srv_answer_tokens(t->task->answers[t->choice]);
    call_sink(t->teller, t->task, &own);
}

static void count_tokens(srv_task *task)
{
    int64_t tokens = 0, thoughts = 0;
    for (int i = 0; i < task->choices; i++) {
        tokens += srv_answer_tokens(task->answers[i]);
        thoughts += srv_answer_thoughts(task->answers[i]);
    }
    task->usage.completion_tokens = tokens;
    task->usage.thought_tokens = thoughts;
}

static void end_choice(srv_teller *teller, srv_task *task, int choice, srv_finish finish)
{
    srv_answer *answer = task->answers[choice];
    srv_event event = {.kind = SRV_END,
                       .choice = choice,
                       .text = {"", 0},
                       .finish = finish,
                       .stop = srv_answer_stop(answer),
                       .completion_tokens = srv_answer_tokens(answer)};
    event.token_count = srv_answer_rest(answer, &event.tokens);
    count_tokens(task);
    teller->owner.choice(teller->owner.user, task, answer); /* before the client can ask about it */
    call_sink(teller, task, &event);
}

/* An answer that cannot be told cannot go on. */
static void give_up(srv_teller *teller, srv_task *task)
{
    teller->owner.cancel(teller->owner.user, task->id);
}

static void note_time(srv_teller *teller, srv_task *task, double at)
{
    if (task->first == 0.0) {
        task->first = at;
        task->timings.first_s = at - task->submitted;
        task->timings.prompt_s = task->timings.first_s - task->timings.queued_s;
        teller->owner.token(teller->owner.user, task->timings.first_s, 0.0);
    } else if (task->choices == 1) {
        teller->owner.token(teller->owner.user, 0.0, at - task->last);
    }
    task->last = at;
    task->timings.predicted_s = at - task->first;
}

static void say_token(srv_teller *teller, const srv_message *m)
{
    srv_task *task = m->task;
    srv_answer *answer = task->answers[m->choice];
    telling t = {teller, task, m->choice};
    mo_error err;
    if (srv_answer_stop(answer) >= 0) {
        return; /* sampled before the scheduler knew */
    }
    note_time(teller, task, m->at);
    task->usage.prompt_done = task->prompt;
    const srv_token token = {m->token, m->logprob, m->top, m->top_count};
    if (srv_answer_put(answer, &token, m->ends, on_answer, &t, &err) != MO_OK) {
        give_up(teller, task);
        return;
    }
    count_tokens(task);
    if (srv_answer_stop(answer) >= 0) {
        atomic_store(&task->stopped[m->choice], true);
        end_choice(teller, task, m->choice, SRV_FINISH_STRING);
    }
}

static void say_end(srv_teller *teller, const srv_message *m)
{
    srv_task *task = m->task;
    srv_answer *answer = task->answers[m->choice];
    telling t = {teller, task, m->choice};
    mo_error err;
    if (srv_answer_stop(answer) >= 0) {
        return; /* it was told */
    }
    if (srv_answer_end(answer, m->finish == SRV_FINISH_LENGTH, on_answer, &t, &err) != MO_OK) {
        give_up(teller, task);
        return;
    }
    end_choice(teller, task, m->choice, srv_answer_stop(answer) >= 0 ? SRV_FINISH_STRING : m->finish);
}

static void say(srv_teller *teller, const srv_message *m)
{
    srv_task *task = m->task;
    srv_event event = {.text = {"", 0}, .stop = -1};
    task->usage.cached_tokens = m->saying == SRV_SAY_TOKEN ? task->usage.cached_tokens : m->cached;
    switch (m->saying) {
    case SRV_SAY_STARTED:
    case SRV_SAY_PROGRESS:
        event.kind = m->saying == SRV_SAY_STARTED ? SRV_STARTED : SRV_PROGRESS;
        task->usage.prompt_done = m->done;
        task->timings.queued_s =
            m->saying == SRV_SAY_STARTED ? m->at - task->submitted : task->timings.queued_s;
        task->timings.prompt_s = m->at - task->submitted - task->timings.queued_s;
        call_sink(teller, task, &event);
        break;
    case SRV_SAY_TOKEN: say_token(teller, m); break;
    case SRV_SAY_END: say_end(teller, m); break;
    case SRV_SAY_DONE:
    case SRV_SAY_FAILED:
        event.kind = m->saying == SRV_SAY_DONE ? SRV_DONE : SRV_FAILED;
        event.error = m->error;
        if (task->first == 0.0 && m->saying == SRV_SAY_DONE) {
            task->timings.prompt_s = m->at - task->submitted - task->timings.queued_s;
        }
        task->usage.prompt_done = m->done;
        call_sink(teller, task, &event);
        free(m->error);
        srv_task_close(task);
        break;
    }
}

/* Says all of them; true: there were tokens. What several steps have for a client goes to him together: whoever writes waits for `told`. */
static bool say_all(srv_teller *teller, const srv_message *list, size_t count)
{
    bool tokens = false;
    for (size_t i = 0; i < count; i++) {
        const srv_message *m = &list[i];
        const bool last = m->saying == SRV_SAY_DONE || m->saying == SRV_SAY_FAILED; /* it closes the task */
        void (*const told)(void *user) = m->task->options.told;
        void *const user = m->task->options.user;
        size_t next = told && !last ? i + 1 : count;
        while (next < count && list[next].task != m->task) {
            next++;
        }
        teller->follows = next < count;
        tokens = tokens || m->saying == SRV_SAY_TOKEN;
        say(teller, m);
        if (told && !last && !teller->follows) {
            told(user);
        }
    }
    return tokens;
}

/* ---- The thread ------------------------------------------------------------------------------- */

static struct timespec rest_end(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += TOGETHER_NS;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

/* With the lock: until then, or until something is urgent. */
static void rest(srv_teller *teller, const struct timespec *end)
{
    int ended = 0;
    teller->resting = true;
    while (!teller->urgent && !teller->closing && ended != ETIMEDOUT) {
        ended = pthread_cond_timedwait(&teller->more, &teller->lock, end);
    }
    teller->resting = false;
}

static void *run(void *arg)
{
    srv_teller *teller = arg;
    srv_message *list = NULL;
    size_t capacity = 0;
    pthread_mutex_lock(&teller->lock);
    for (;;) {
        while (!teller->count && !teller->closing) {
            teller->urgent = false;
            pthread_cond_wait(&teller->more, &teller->lock);
        }
        if (!teller->count) {
            break;
        }
        srv_message *full = teller->list;
        const size_t count = teller->count, full_capacity = teller->capacity;
        const int calls = teller->behind;
        teller->list = list;
        teller->capacity = capacity;
        teller->count = 0;
        teller->busy = true;
        teller->urgent = false;
        pthread_mutex_unlock(&teller->lock);
        const struct timespec end = rest_end();
        const bool tokens = say_all(teller, full, count);
        list = full;
        capacity = full_capacity;
        pthread_mutex_lock(&teller->lock);
        teller->busy = false;
        teller->behind -= calls;
        pthread_cond_broadcast(&teller->less);
        if (tokens) {
            rest(teller, &end);
        }
    }
    pthread_mutex_unlock(&teller->lock);
    free(list);
    return NULL;
}

mo_status srv_teller_open(const srv_teller_owner *owner, srv_teller **out, mo_error *err)
{
    srv_teller *teller = calloc(1, sizeof *teller);
    *out = NULL;
    if (teller) {
        teller->owner = *owner;
        pthread_condattr_t clock;
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_mutex_init(&teller->lock, NULL);
        pthread_cond_init(&teller->more, &clock);
        pthread_condattr_destroy(&clock);
        pthread_cond_init(&teller->less, NULL);
        if (pthread_create(&teller->thread, NULL, run, teller) == 0) {
            *out = teller;
            return MO_OK;
        }
        pthread_mutex_destroy(&teller->lock);
        pthread_cond_destroy(&teller->more);
        pthread_cond_destroy(&teller->less);
    }
    free(teller);
    err->status = MO_ENOMEM;
    strcpy(err->detail, "no thread could be started");
    return MO_ENOMEM;
}

void srv_teller_close(srv_teller *teller)
{
    if (teller) {
        pthread_mutex_lock(&teller->lock);
        teller->closing = true;
        pthread_cond_signal(&teller->more);
        pthread_mutex_unlock(&teller->lock);
        pthread_join(teller->thread, NULL);
        pthread_mutex_destroy(&teller->lock);
        pthread_cond_destroy(&teller->more);
        pthread_cond_destroy(&teller->less);
        free(teller->list);
        free(teller);
    }
}

/* A last event must not be lost for want of memory: then there is time to wait. */
static bool make_room(srv_teller *teller, size_t count)
{
    if (teller->count + count <= teller->capacity) {
        return true;
    }
    const size_t more = 2 * (teller->count + count);
    srv_message *list = realloc(teller->list, more * sizeof *list);
    if (list) {
        teller->list = list;
        teller->capacity = more;
    }
    return list != NULL;
}

void srv_teller_say(srv_teller *teller, const srv_message *messages, size_t count, bool wait)
{
    if (!count) {
        return;
    }
    pthread_mutex_lock(&teller->lock);
    while ((wait && teller->behind >= FAR_BEHIND) || !make_room(teller, count)) {
        if (!wait || (!teller->count && !teller->busy)) {
            break; /* not even an empty list has room: nothing can be said any more */
        }
        pthread_cond_wait(&teller->less, &teller->lock);
    }
    if (teller->count + count <= teller->capacity) {
        memcpy(teller->list + teller->count, messages, count * sizeof *messages);
        teller->count += count;
        teller->behind++;
    }
    teller->urgent = teller->urgent || teller->behind > MANY;
    for (size_t i = 0; i < count && !teller->urgent; i++) {
        teller->urgent = messages[i].saying != SRV_SAY_TOKEN || messages[i].soon;
    }
    if (teller->urgent || !teller->resting) {
        pthread_cond_signal(&teller->more);
    }
    pthread_mutex_unlock(&teller->lock);
}

void srv_teller_settle(srv_teller *teller)
{
    pthread_mutex_lock(&teller->lock);
    while (teller->count || teller->busy) {
        teller->urgent = true;
        pthread_cond_signal(&teller->more);
        pthread_cond_wait(&teller->less, &teller->lock);
    }
    pthread_mutex_unlock(&teller->lock);
}
