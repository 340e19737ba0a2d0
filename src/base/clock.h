/* Clock: monotonic time. */
#ifndef MO_BASE_CLOCK_H
#define MO_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t mo_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* In seconds. */
static inline double mo_clock_s(void)
{
    return (double)mo_clock_ns() * 1e-9;
}

#endif
