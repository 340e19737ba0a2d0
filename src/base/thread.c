#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

int mo_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        sigdelset(&blocked, own[i]);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before); /* inherited by the thread */
    const int code = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0) {
        pthread_setname_np(*thread, name);
    }
    return code;
}
