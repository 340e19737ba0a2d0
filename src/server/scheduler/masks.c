#include "server/scheduler/masks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/wait.h"

/* How long a step waits for masks that are late, all of them together. Most take microseconds (bench/RESULTS.md); the first of
 * a vocabulary's strings takes tens of milliseconds. */
enum { PATIENCE_NS = 2000000 };

struct srv_masks {
    void (*there)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wanted, made;
    /* Under the lock: */
    srv_mask *first, *last;
    bool waiting; /* a feed waits in this step, until: */
    int64_t until;
    bool closing;
};

/* ---- The thread ------------------------------------------------------------------------------- */

static void *run(void *arg)
{
    srv_masks *m = arg;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->first && !m->closing) {
            pthread_cond_wait(&m->wanted, &m->lock);
        }
        srv_mask *mask = m->first;
        if (!mask) {
            break;
        }
        m->first = mask->next;
        mask->state = SRV_MASK_RUNS;
        pthread_mutex_unlock(&m->lock);
        const uint32_t *bits = mo_constraint_mask(mask->constraint, &mask->error);
        pthread_mutex_lock(&m->lock);
        const bool missed = mask->missed;
        mask->bits = bits;
        mask->state = SRV_MASK_THERE;
        pthread_cond_broadcast(&m->made);
        if (missed) {
            pthread_mutex_unlock(&m->lock);
            m->there(m->user);
            pthread_mutex_lock(&m->lock);
        }
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

mo_status srv_masks_open(void (*there)(void *user), void *user, srv_masks **out, mo_error *err)
{
    srv_masks *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m) {
        m->there = there;
        m->user = user;
        pthread_mutex_init(&m->lock, NULL);
        pthread_cond_init(&m->wanted, NULL);
        mo_cond_init(&m->made);
        if (pthread_create(&m->thread, NULL, run, m) == 0) {
            *out = m;
            return MO_OK;
        }
        pthread_mutex_destroy(&m->lock);
        pthread_cond_destroy(&m->wanted);
        pthread_cond_destroy(&m->made);
    }
    free(m);
    err->status = MO_ENOMEM;
    strcpy(err->detail, "cannot start a thread");
    return MO_ENOMEM;
}

void srv_masks_close(srv_masks *m)
{
    if (m) {
        pthread_mutex_lock(&m->lock);
        m->closing = true;
        pthread_cond_signal(&m->wanted);
        pthread_mutex_unlock(&m->lock);
        pthread_join(m->thread, NULL);
        pthread_mutex_destroy(&m->lock);
        pthread_cond_destroy(&m->wanted);
        pthread_cond_destroy(&m->made);
        free(m);
    }
}

/* ---- Use -------------------------------------------------------------------------------------- */

void srv_masks_want(srv_masks *m, srv_mask *mask, mo_constraint *constraint)
{
    pthread_mutex_lock(&m->lock);
    *mask = (srv_mask){.state = SRV_MASK_WAITS, .constraint = constraint};
    *(m->first ? &m->last->next : &m->first) = mask;
    m->last = mask;
    pthread_cond_signal(&m->wanted);
    pthread_mutex_unlock(&m->lock);
}

void srv_masks_drop(srv_masks *m, srv_mask *mask)
{
    pthread_mutex_lock(&m->lock);
    for (srv_mask **at = &m->first, *before = NULL; mask->state == SRV_MASK_WAITS; at = &(*at)->next) {
        if (*at == mask) {
            *at = mask->next;
            m->last = m->last == mask ? before : m->last;
            mask->state = SRV_MASK_NONE;
            break;
        }
        before = *at;
    }
    while (mask->state == SRV_MASK_RUNS) {
        pthread_cond_wait(&m->made, &m->lock);
    }
    mask->state = SRV_MASK_NONE;
    pthread_mutex_unlock(&m->lock);
}

void srv_masks_begin(srv_masks *m)
{
    pthread_mutex_lock(&m->lock);
    m->waiting = false;
    pthread_mutex_unlock(&m->lock);
}

const uint32_t *srv_masks_get(srv_masks *m, srv_mask *mask)
{
    pthread_mutex_lock(&m->lock);
    if (mask->state != SRV_MASK_THERE && !m->waiting) {
        m->waiting = true;
        m->until = mo_clock_ns() + PATIENCE_NS;
    }
    while (mask->state != SRV_MASK_THERE && mo_cond_wait(&m->made, &m->lock, m->until)) {
    }
    const uint32_t *bits = mask->state == SRV_MASK_THERE ? mask->bits : NULL;
    mask->missed = mask->state != SRV_MASK_THERE;
    pthread_mutex_unlock(&m->lock);
    return bits;
}

bool srv_masks_missed(srv_masks *m, const srv_mask *mask)
{
    pthread_mutex_lock(&m->lock);
    const bool missed = mask->missed;
    pthread_mutex_unlock(&m->lock);
    return missed;
}

bool srv_masks_is_late(srv_masks *m, const srv_mask *mask)
{
    pthread_mutex_lock(&m->lock);
    const bool late = mask->state != SRV_MASK_THERE;
    pthread_mutex_unlock(&m->lock);
    return late;
}

const mo_error *srv_masks_failure(srv_masks *m, const srv_mask *mask)
{
    pthread_mutex_lock(&m->lock);
    const bool failed = mask->state == SRV_MASK_THERE && !mask->bits;
    pthread_mutex_unlock(&m->lock);
    return failed ? &mask->error : NULL;
}
