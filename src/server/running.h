/* Running: answers that are being made, by the ids that their clients know, so that somebody else can stop one. */
#ifndef SRV_RUNNING_H
#define SRV_RUNNING_H

#include <stdbool.h>

typedef struct srv_running srv_running;

srv_running *srv_running_open(void); /* NULL: out of memory */
void srv_running_close(srv_running *running);

/* stop(user) is called at most once, from any thread, with a lock held that only these functions take: it must be quick.
 * False: out of memory; then it cannot be stopped so. The id is copied. */
bool srv_running_add(srv_running *running, const char *id, void (*stop)(void *user), void *user);
/* After it has returned stop() is not called any more. */
void srv_running_remove(srv_running *running, const char *id);
/* False: there is no such answer. */
bool srv_running_stop(srv_running *running, const char *id);

#endif
