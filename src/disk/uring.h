/* Uring: reads by io_uring. One thread, asleep in the kernel most of its time, keeps up to `depth` pieces of a
 * queue under way; memory and files are registered with the kernel where it allows. Optional: a build without
 * liburing offers no ring. */
#ifndef MO_DISK_URING_H
#define MO_DISK_URING_H

#include "disk/queue.h"

typedef struct mo_uring mo_uring;

/* True when this build has it; whether the kernel allows it shows when a ring is started. */
bool mo_uring_built(void);

/* Starts the ring over the queue. files, queue and regions stay the caller's and outlive it. Of the options
 * it uses readers and regions. MO_EUNSUPPORTED, with a reason, where there is no io_uring. */
mo_status mo_uring_start(mo_queue *queue, const mo_disk_file *files, int count,
                         const mo_disk_options *options, mo_uring **out, mo_error *err);

/* Reads were put into the queue. Any thread. */
void mo_uring_wake(mo_uring *ring);

/* When the queue is empty or closed: waits for pieces under way, joins and frees. NULL is allowed. */
void mo_uring_stop(mo_uring *ring);

/* "registered memory", or why it is not. */
const char *mo_uring_memory(const mo_uring *ring);
bool mo_uring_registered(const mo_uring *ring);

#endif
