/* Workers: threads that run handlers, as many as are needed up to a limit: a handler may wait, as for a model to be loaded,
 * without others waiting for it. */
#ifndef SRV_WORKERS_H
#define SRV_WORKERS_H

#include "moraine_server.h"

typedef struct srv_workers srv_workers;

srv_workers *srv_workers_open(int limit); /* NULL: out of memory */
/* Waits for what is running; what had not begun is run too. */
void srv_workers_close(srv_workers *workers);

/* Runs fn(user, item) on a thread of its own, or after others when there are too many. False: neither a thread nor a place
 * in the queue can be had. Never waits. */
bool srv_workers_run(srv_workers *workers, void (*fn)(void *user, void *item), void *user, void *item);

#endif
