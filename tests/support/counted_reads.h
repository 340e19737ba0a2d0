/* Counts the rows of KV caches that attention by codes reads. Included once in a program. */
#ifndef MO_TESTS_COUNTED_READS_H
#define MO_TESTS_COUNTED_READS_H

#include <pthread.h>

#include "engine/engine.h"

static struct {
    pthread_mutex_t lock;
    int64_t read; /* rows that calls of attention read together */
} counted = {.lock = PTHREAD_MUTEX_INITIALIZER};

static mo_kernels counting;
static const mo_kernels *plain_kernels;

static void count_codes(const mo_kv_head *kv, const mo_seen *spans, int64_t count, const int8_t *q,
                        const float *g, int64_t heads, float *m, float *l, float *r, float *t,
                        mo_scratch *scratch)
{
    pthread_mutex_lock(&counted.lock);
    counted.read += spans[count - 1].end - spans[0].begin;
    pthread_mutex_unlock(&counted.lock);
    plain_kernels->attend_codes(kv, spans, count, q, g, heads, m, l, r, t, scratch);
}

/* The engine's own kernels, counted; they are those of `plain_kernels`. */
static const mo_kernels *counted_kernels(const mo_engine *engine)
{
    plain_kernels = engine->kernels;
    counting = *plain_kernels;
    counting.attend_codes = count_codes;
    return &counting;
}

#endif
