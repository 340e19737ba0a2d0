/* Thread: starts the library's threads. */
#ifndef MO_BASE_THREAD_H
#define MO_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create(), with its return codes. name: at most 15 bytes. The thread blocks signals sent to the
   process, which belong to the program's own threads. It does not block signals that it causes itself
   (SIGSEGV, SIGBUS and similar), for base/mapped.h and crash handlers, nor SIGPROF, for profilers. */
int mo_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);

#endif
