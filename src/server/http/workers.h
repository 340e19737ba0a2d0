/* Workers: threads that run handlers, created on demand up to a limit. A handler may block, for instance
 * until a model is loaded, without delaying others. */
#ifndef SRV_WORKERS_H
#define SRV_WORKERS_H

#include "moraine_server.h"

typedef struct srv_workers srv_workers;

srv_workers *srv_workers_open(int limit); /* NULL: out of memory */
/* Waits for running items; queued items are run too. */
void srv_workers_close(srv_workers *workers);

/* Runs fn(user, item) on its own thread, or queues it if there are too many. Returns false if neither is
 * possible. Never blocks. */
bool srv_workers_run(srv_workers *workers, void (*fn)(void *user, void *item), void *user, void *item);

#endif
