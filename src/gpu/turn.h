/* Turn: a fair lock for the use of the device. A step holds it from beginning to end, because a device with
 * ops that wait for the host must not be asked for memory (drivers may wait for all ops first). Opening,
 * closing, saving or restoring a session and exchanging experts hold it between steps. A request waits for
 * the running turn and for earlier requests, so a session is opened between two steps of another. Private to
 * gpu/. */
#ifndef MO_GPU_TURN_H
#define MO_GPU_TURN_H

#include <pthread.h>

typedef struct mo_gpu_turn {
    pthread_mutex_t next; /* held by the thread that waits for `now` */
    pthread_mutex_t now;
} mo_gpu_turn;

static inline void mo_gpu_turn_init(mo_gpu_turn *t)
{
    pthread_mutex_init(&t->next, NULL);
    pthread_mutex_init(&t->now, NULL);
}

static inline void mo_gpu_turn_drop(mo_gpu_turn *t)
{
    pthread_mutex_destroy(&t->next);
    pthread_mutex_destroy(&t->now);
}

static inline void mo_gpu_turn_begin(mo_gpu_turn *t)
{
    pthread_mutex_lock(&t->next);
    pthread_mutex_lock(&t->now);
    pthread_mutex_unlock(&t->next);
}

static inline void mo_gpu_turn_end(mo_gpu_turn *t)
{
    pthread_mutex_unlock(&t->now);
}

#endif
