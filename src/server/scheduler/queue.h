/* Queue: the jobs that wait, and whose turn is next. Higher priorities go first. Among equals every client has its turn,
 * the one that was served longest ago first, and a client's jobs go in the order they came. A job with a short prompt may
 * overtake one with a long prompt, but none is overtaken more than a few times.
 *
 * Not locked: the engine's lock is held. */
#ifndef SRV_QUEUE_H
#define SRV_QUEUE_H

#include "server/scheduler/task.h"

typedef struct srv_queue {
    srv_task *first, *last; /* in order of arrival, by task->next */
    int count;
    uint64_t turns; /* given so far */
    struct {
        uint64_t client, turn;
    } served[64]; /* when the clients of the last turns had theirs */
} srv_queue;

void srv_queue_add(srv_queue *q, srv_task *task);
/* False: it is not in the queue. */
bool srv_queue_remove(srv_queue *q, srv_task *task);

/* Takes out whose turn it is among those for which may() says true; NULL: none. */
srv_task *srv_queue_take(srv_queue *q, bool (*may)(void *user, srv_task *task), void *user);

#endif
