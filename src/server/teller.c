#include "server/teller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    /* Steps that the teller may be behind: so soon a pause takes effect at the latest, whatever this thread's turn on a core. Fewer after
     * something that is to be told at once, such as an answer's first token: who hears it may want to pause. */
    FAR_BEHIND = 40,
    SOON_BEHIND = 16,
    MANY = 32, /* steps that wait, which are enough to be told */
    /* Tokens that come fast are told together: waking this thread, HTTP's and the client costs some 40 us of processor time, where a
     * token of a small model takes 300. Nobody sees pieces that are 8 ms late. An answer begins with shorter rests, each twice the one
     * before, so that its first words come as they are made, and a client that wants no more of them is heard soon. */
    FIRST_REST_NS = 1000000,
    REST_NS = 8000000,
};
#define APART_S 0.004 /* tokens that come no faster are told one by one: there is time for it */

struct srv_teller {
    srv_teller_owner owner;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, less;
    /* Under the lock: a list that grows, and is changed for an empty one by the thread. */
    srv_message *list;
    size_t count, capacity;
    int behind; /* calls of srv_teller_say() that wait, or are being said */
    int since;  /* of these from one on that is to be told at once */
    bool busy, closing;
    bool resting;  /* tokens were told just now: others wait */
    bool urgent;   /* what waits is to be told at once: */
    bool pressing; /* because of what it is, not because it is much */
    double last;   /* when the last token was made */
    bool follows;  /* the thread's: what is being said is not the last of its task in the list */
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
    /* Whoever found no memory for what went wrong has this to say. */
    static const mo_error no_memory = {MO_ENOMEM, "memory ran out"};
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
        event.error = m->saying == SRV_SAY_FAILED && !m->error ? &no_memory : m->error;
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

/* What there was among messages. */
typedef enum said { NO_TOKENS, TOKENS, FIRST_TOKENS } said;

/* Says all of them. What several steps have for a client goes to him together: whoever writes waits for `told`. */
static said say_all(srv_teller *teller, const srv_message *list, size_t count)
{
    said tokens = NO_TOKENS;
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
        if (m->saying == SRV_SAY_TOKEN && tokens != FIRST_TOKENS) {
            tokens = m->task->first == 0.0 ? FIRST_TOKENS : TOKENS;
        }
        say(teller, m);
        if (told && !last && !teller->follows) {
            told(user);
        }
    }
    return tokens;
}

/* ---- The thread ------------------------------------------------------------------------------- */

/* With the lock: so long since then, or until something is urgent. */
static void rest(srv_teller *teller, struct timespec since, long ns)
{
    int ended = 0;
    since.tv_nsec += ns;
    since.tv_sec += since.tv_nsec / 1000000000;
    since.tv_nsec %= 1000000000;
    teller->resting = true;
    while (!teller->urgent && !teller->closing && ended != ETIMEDOUT) {
        ended = pthread_cond_timedwait(&teller->more, &teller->lock, &since);
    }
    teller->resting = false;
}

static void *run(void *arg)
{
    srv_teller *teller = arg;
    srv_message *list = NULL;
    size_t capacity = 0;
    long rest_ns = FIRST_REST_NS;
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
        teller->urgent = teller->pressing = false;
        pthread_mutex_unlock(&teller->lock);
        struct timespec begin;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        const said tokens = say_all(teller, full, count);
        list = full;
        capacity = full_capacity;
        pthread_mutex_lock(&teller->lock);
        teller->busy = false;
        teller->behind -= calls;
        teller->since = teller->pressing ? teller->behind : 0;
        pthread_cond_broadcast(&teller->less);
        if (tokens != NO_TOKENS) {
            rest_ns = tokens == FIRST_TOKENS ? FIRST_REST_NS : 2 * rest_ns < REST_NS ? 2 * rest_ns : REST_NS;
            rest(teller, begin, rest_ns);
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

/* Is there something that does not wait for others? Tokens that come slowly do not. */
static bool presses(const srv_teller *teller, const srv_message *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (messages[i].saying != SRV_SAY_TOKEN || messages[i].soon ||
            messages[i].at - teller->last >= APART_S) {
            return true;
        }
    }
    return false;
}

static bool far_behind(const srv_teller *teller)
{
    return teller->behind >= FAR_BEHIND || teller->since >= SOON_BEHIND;
}

void srv_teller_say(srv_teller *teller, const srv_message *messages, size_t count, bool wait)
{
    if (!count) {
        return;
    }
    pthread_mutex_lock(&teller->lock);
    while ((wait && far_behind(teller)) || !make_room(teller, count)) {
        if (!wait || (!teller->count && !teller->busy)) {
            break; /* not even an empty list has room: nothing can be said any more */
        }
        pthread_cond_wait(&teller->less, &teller->lock);
    }
    if (teller->count + count <= teller->capacity) {
        memcpy(teller->list + teller->count, messages, count * sizeof *messages);
        teller->count += count;
        teller->behind++;
        teller->pressing = teller->pressing || presses(teller, messages, count);
        teller->since += teller->pressing || teller->since > 0;
        teller->urgent = teller->urgent || teller->pressing || teller->behind > MANY;
        teller->last = messages[count - 1].at;
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
