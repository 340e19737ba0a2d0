/* Wait: condition variables with deadlines on the monotonic clock, which setting the time does not affect. */
#ifndef MO_BASE_WAIT_H
#define MO_BASE_WAIT_H

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"

static inline void mo_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* mo_clock_ns() this many seconds from now. A deadline too far away becomes infinite. */
static inline int64_t mo_clock_in(double seconds)
{
    return mo_clock_ns() + (seconds < 1e9 ? (int64_t)(1e9 * seconds) : INT64_C(1000000000000000000));
}

/* Waits until the deadline, by mo_clock_ns(). False: it has passed. May return early, as
   pthread_cond_timedwait(). */
static inline bool mo_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until_ns)
{
    const struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    return pthread_cond_timedwait(cond, mutex, &until) == 0;
}

#endif
