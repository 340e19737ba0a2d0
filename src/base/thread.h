/* Thread: how the library starts its threads. */
#ifndef MO_BASE_THREAD_H
#define MO_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create(), whose codes it returns. name: of at most 15 bytes. Signals that are sent to the process belong to the
 * program's own threads and are blocked; those that a thread causes itself (SIGSEGV, SIGBUS and the like), which base/mapped.h and
 * the crash handlers of programs and sanitizers catch, and SIGPROF, by which profilers sample it, are not. */
int mo_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);

#endif
