/* Uring: reads by io_uring. One thread, which mostly sleeps in the kernel, keeps up to `depth` pieces of a
 * queue in flight. Memory and files are registered with the kernel if it allows that. Optional: a build
 * without liburing has no ring. */
#ifndef MO_DISK_URING_H
#define MO_DISK_URING_H

#include "disk/queue.h"

typedef struct mo_uring mo_uring;

/* True if built with io_uring. Whether the kernel allows it is known when a ring is started. */
bool mo_uring_built(void);

/* Starts a ring for the queue. The caller owns files, queue and regions, which must outlive it. Uses the
 * options readers and regions. MO_EUNSUPPORTED, with a reason: no io_uring. */
mo_status mo_uring_start(mo_queue *queue, const mo_disk_file *files, int count,
                         const mo_disk_options *options, mo_uring **out, mo_error *err);

/* Call it after reads were put into the queue. Any thread. */
void mo_uring_wake(mo_uring *ring);

/* The queue must be empty or closed. Waits for pieces in flight, joins and frees. NULL is allowed. */
void mo_uring_stop(mo_uring *ring);

/* "registered memory", or why it is not. */
const char *mo_uring_memory(const mo_uring *ring);
bool mo_uring_registered(const mo_uring *ring);

#endif
