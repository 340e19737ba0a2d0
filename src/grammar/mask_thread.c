#include "grammar/mask_thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/status.h"
#include "base/thread.h"
#include "base/wait.h"

/* How long a step waits for late masks in total. Most take microseconds (bench/RESULTS.md); the first mask
   for a vocabulary's strings takes tens of milliseconds. */
enum { PATIENCE_NS = 2000000 };

struct mo_mask_thread {
    pid_t process; /* the process that started the thread: after fork() the child has no thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wanted, made;
    /* Protected by the lock: */
    mo_mask *first, *last;
    const mo_mask *told; /* the mask whose ready() is being called */
    bool closing;
};

/* ---- The thread ------------------------------------------------------------------------------- */

static void *run(void *arg)
{
    mo_mask_thread *m = arg;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->first && !m->closing) {
            pthread_cond_wait(&m->wanted, &m->lock);
        }
        mo_mask *mask = m->first;
        if (!mask) {
            break;
        }
        m->first = mask->next;
        mask->state = MO_MASK_RUNS;
        pthread_mutex_unlock(&m->lock);
        const uint32_t *bits = mo_constraint_mask(mask->constraint, &mask->error);
        pthread_mutex_lock(&m->lock);
        void (*const ready)(void *user) = mask->missed ? mask->ready : NULL;
        void *const user = mask->user;
        mask->bits = bits;
        mask->state = MO_MASK_READY;
        pthread_cond_broadcast(&m->made);
        if (ready) {
            m->told = mask;
            pthread_mutex_unlock(&m->lock);
            ready(user);
            pthread_mutex_lock(&m->lock);
            m->told = NULL;
            pthread_cond_broadcast(&m->made);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

mo_status mo_mask_thread_open(mo_mask_thread **out, mo_error *err)
{
    mo_mask_thread *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) {
        return mo_fail(err, MO_ENOMEM, "out of memory for the masks of grammars");
    }
    m->process = getpid();
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wanted, NULL);
    mo_cond_init(&m->made);
    if (mo_thread_start(&m->thread, "masks", run, m) != 0) {
        m->process = 0; /* there is no thread to join */
        mo_mask_thread_close(m);
        return mo_fail(err, MO_ENOMEM, "cannot start a thread for the masks of grammars");
    }
    *out = m;
    return MO_OK;
}

void mo_mask_thread_close(mo_mask_thread *m)
{
    if (!m) {
        return;
    }
    if (m->process == getpid()) {
        pthread_mutex_lock(&m->lock);
        m->closing = true;
        pthread_cond_signal(&m->wanted);
        pthread_mutex_unlock(&m->lock);
        pthread_join(m->thread, NULL);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->wanted);
    pthread_cond_destroy(&m->made);
    free(m);
}

/* ---- Use -------------------------------------------------------------------------------------- */

void mo_mask_want(mo_mask_thread *m, mo_mask *mask, mo_constraint *constraint)
{
    pthread_mutex_lock(&m->lock);
    *mask =
        (mo_mask){.ready = mask->ready, .user = mask->user, .state = MO_MASK_WAITS, .constraint = constraint};
    *(m->first ? &m->last->next : &m->first) = mask;
    m->last = mask;
    pthread_cond_signal(&m->wanted);
    pthread_mutex_unlock(&m->lock);
}

void mo_mask_drop(mo_mask_thread *m, mo_mask *mask)
{
    if (m->process != getpid()) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    for (mo_mask **at = &m->first, *before = NULL; mask->state == MO_MASK_WAITS; at = &(*at)->next) {
        if (*at == mask) {
            *at = mask->next;
            m->last = m->last == mask ? before : m->last;
            mask->state = MO_MASK_NONE;
            break;
        }
        before = *at;
    }
    while (mask->state == MO_MASK_RUNS || m->told == mask) {
        pthread_cond_wait(&m->made, &m->lock);
    }
    mask->state = MO_MASK_NONE;
    pthread_mutex_unlock(&m->lock);
}

const uint32_t *mo_mask_get(mo_mask_thread *m, mo_mask *mask, mo_mask_patience *patience)
{
    pthread_mutex_lock(&m->lock);
    if (mask->state != MO_MASK_READY && !patience->waiting) {
        patience->waiting = true;
        patience->until_ns = mo_clock_ns() + PATIENCE_NS;
    }
    while (mask->state != MO_MASK_READY && mo_cond_wait(&m->made, &m->lock, patience->until_ns)) {
    }
    const uint32_t *bits = mask->state == MO_MASK_READY ? mask->bits : NULL;
    mask->missed = mask->state != MO_MASK_READY;
    pthread_mutex_unlock(&m->lock);
    return bits;
}

bool mo_mask_missed(mo_mask_thread *m, const mo_mask *mask)
{
    pthread_mutex_lock(&m->lock);
    const bool missed = mask->missed;
    pthread_mutex_unlock(&m->lock);
    return missed;
}

bool mo_mask_is_late(mo_mask_thread *m, mo_mask *mask)
{
    pthread_mutex_lock(&m->lock);
    const bool late = mask->state != MO_MASK_READY;
    mask->missed = mask->missed && late;
    pthread_mutex_unlock(&m->lock);
    return late;
}

void mo_mask_wait(mo_mask_thread *m, const mo_mask *mask, int64_t until_ns)
{
    pthread_mutex_lock(&m->lock);
    while (mask->state != MO_MASK_READY && mo_cond_wait(&m->made, &m->lock, until_ns)) {
    }
    pthread_mutex_unlock(&m->lock);
}

const mo_error *mo_mask_failure(mo_mask_thread *m, const mo_mask *mask)
{
    pthread_mutex_lock(&m->lock);
    const bool failed = mask->state == MO_MASK_READY && !mask->bits;
    pthread_mutex_unlock(&m->lock);
    return failed ? &mask->error : NULL;
}
