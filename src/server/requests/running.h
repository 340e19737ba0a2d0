/* Running: answers that are being made, by the ids that their clients know, so that another request can stop one, and all of them
 * when the server ends. An answer belongs to who asked for it (srv_request_owner()). */
#ifndef SRV_RUNNING_H
#define SRV_RUNNING_H

#include <stdbool.h>

typedef struct srv_running srv_running;

srv_running *srv_running_open(void); /* NULL: out of memory */
void srv_running_close(srv_running *running);

/* stop(user, ending) is called at most once, from any thread, with a lock held that only these functions take: it must be
 * quick. ending: because the server ends, so that the answer is not as requested. False: out of memory; then it
 * cannot be stopped so. The id, which may be "", and the owner are copied. */
bool srv_running_add(srv_running *running, const char *id, const char *owner,
                     void (*stop)(void *user, bool ending), void *user);
/* After it has returned stop() is not called any more. */
void srv_running_remove(srv_running *running, const void *user);
/* False: this owner has no such answer; NULL: nobody has. */
bool srv_running_stop(srv_running *running, const char *id, const char *owner);
/* The ids of an owner's (NULL: of all), the newest first: at most `limit` are written; returns how many there are. */
enum { SRV_RUNNING_ID = 64 };
int srv_running_list(srv_running *running, const char *owner, char (*ids)[SRV_RUNNING_ID], int limit);
/* The server ends: stops all, and those that are added from now on. */
void srv_running_end(srv_running *running);

#endif
