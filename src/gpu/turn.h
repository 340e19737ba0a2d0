/* Turn: who uses the device now. A step has it from its beginning to its end, because a device on which ops wait for the host
 * must not be asked for memory (drivers may wait for all of them first); opening, closing, saving or restoring a session
 * or exchanging experts takes it in between. Turns are fair: a request waits for the running turn and those requested
 * before, so a session is opened between two steps of another. Private to the gpu's files. */
#ifndef MO_GPU_TURN_H
#define MO_GPU_TURN_H

#include <pthread.h>

typedef struct mo_gpu_turn {
    pthread_mutex_t next; /* held by the one who waits for `now` */
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
