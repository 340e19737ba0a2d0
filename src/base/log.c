#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* Guards the callback and serializes its calls, as the public header promises. */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static mo_log_fn log_fn;
static void *log_user;
static mo_log_level log_level;

void mo_log_set(mo_log_fn fn, void *user, mo_log_level level)
{
    pthread_mutex_lock(&log_lock);
    log_fn = fn;
    log_user = user;
    log_level = level;
    pthread_mutex_unlock(&log_lock);
}

void mo_log(mo_log_level level, const char *subsystem, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    pthread_mutex_lock(&log_lock);
    if (log_fn && level <= log_level) {
        log_fn(log_user, level, subsystem, text);
    }
    pthread_mutex_unlock(&log_lock);
}
