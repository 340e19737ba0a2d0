/* Workers: see workers.h. */
#include "server/http/workers.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/wait.h"

enum { IDLE_SECONDS = 10 };

typedef struct work {
    struct work *next;
    void (*fn)(void *user, void *item);
    void *user, *item;
} work;

struct srv_workers {
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t work_came, thread_ended;
    work *first, **last;
    int threads, idle, waiting, limit;
    bool closing;
};

/* With the mutex held: the next work, or NULL when the thread is not needed any more. */
static work *take(srv_workers *w)
{
    const int64_t until = mo_clock_in(IDLE_SECONDS);
    w->idle++;
    while (!w->first && !w->closing && mo_cond_wait(&w->work_came, &w->mutex, until)) {
    }
    w->idle--;
    work *next = w->first;
    if (next) {
        w->first = next->next;
        w->last = w->first ? w->last : &w->first;
        w->waiting--;
    }
    return next;
}

static void *run(void *user)
{
    srv_workers *w = user;
    pthread_mutex_lock(&w->mutex);
    for (work *next; (next = take(w));) {
        pthread_mutex_unlock(&w->mutex);
        next->fn(next->user, next->item);
        free(next);
        pthread_mutex_lock(&w->mutex);
    }
    w->threads--;
    pthread_cond_broadcast(&w->thread_ended);
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

srv_workers *srv_workers_open(int limit)
{
    srv_workers *w = calloc(1, sizeof *w);
    if (w) {
        pthread_mutex_init(&w->mutex, NULL);
        mo_cond_init(&w->work_came);
        pthread_cond_init(&w->thread_ended, NULL);
        w->last = &w->first;
        w->limit = limit;
    }
    return w;
}

void srv_workers_close(srv_workers *w)
{
    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->mutex);
    w->closing = true;
    pthread_cond_broadcast(&w->work_came);
    while (w->threads > 0) {
        pthread_cond_wait(&w->thread_ended, &w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    pthread_cond_destroy(&w->work_came);
    pthread_cond_destroy(&w->thread_ended);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

/* With the mutex held. */
static bool start(srv_workers *w)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const bool ok = pthread_create(&thread, &attributes, run, w) == 0;
    pthread_attr_destroy(&attributes);
    w->threads += ok;
    return ok;
}

bool srv_workers_run(srv_workers *w, void (*fn)(void *user, void *item), void *user, void *item)
{
    work *next = malloc(sizeof *next);
    if (!next) {
        return false;
    }
    *next = (work){.fn = fn, .user = user, .item = item};
    pthread_mutex_lock(&w->mutex);
    bool ok = w->threads > 0;
    if (w->idle <= w->waiting && w->threads < w->limit) {
        ok = start(w) || ok;
    }
    if (ok) {
        *w->last = next;
        w->last = &next->next;
        w->waiting++;
        pthread_cond_signal(&w->work_came);
    }
    pthread_mutex_unlock(&w->mutex);
    if (!ok) {
        free(next);
    }
    return ok;
}
