#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t log_ended = PTHREAD_COND_INITIALIZER;
static mo_log_fn log_fn;
static void *log_user;
static mo_log_level log_level;
static int log_calls;                 /* running calls of the callback */
static _Thread_local bool log_inside; /* this thread is in the callback */

void mo_log_set(mo_log_fn fn, void *user, mo_log_level level)
{
    pthread_mutex_lock(&log_lock);
    log_fn = fn;
    log_user = user;
    log_level = level;
    while (log_calls > 0 && !log_inside) { /* wait for calls of the previous callback */
        pthread_cond_wait(&log_ended, &log_lock);
    }
    pthread_mutex_unlock(&log_lock);
}

static void tell(mo_log_level level, bool asked, const char *subsystem, const char *fmt, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, fmt, args);
    pthread_mutex_lock(&log_lock);
    const mo_log_fn fn = asked || level <= log_level ? log_fn : NULL;
    void *user = log_user;
    log_calls += fn != NULL;
    pthread_mutex_unlock(&log_lock);
    if (!fn) {
        return;
    }
    log_inside = true;
    fn(user, level, subsystem, text);
    log_inside = false;
    pthread_mutex_lock(&log_lock);
    if (--log_calls == 0) {
        pthread_cond_broadcast(&log_ended);
    }
    pthread_mutex_unlock(&log_lock);
}

void mo_log(mo_log_level level, const char *subsystem, const char *fmt, ...)
{
    va_list args;
    if (!log_inside) {
        va_start(args, fmt);
        tell(level, false, subsystem, fmt, args);
        va_end(args);
    }
}

void mo_log_asked(mo_log_level level, const char *subsystem, const char *fmt, ...)
{
    va_list args;
    if (!log_inside) {
        va_start(args, fmt);
        tell(level, true, subsystem, fmt, args);
        va_end(args);
    }
}
