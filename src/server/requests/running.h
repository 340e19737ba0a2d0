/* Running: the answers in progress by the ids known to clients, so that another request can stop one, and
 * shutdown can stop all. An answer belongs to its requester (srv_request_owner()). */
#ifndef SRV_RUNNING_H
#define SRV_RUNNING_H

#include <stdbool.h>

typedef struct srv_running srv_running;

srv_running *srv_running_open(void); /* NULL: out of memory */
void srv_running_close(srv_running *running);

/* stop(user, ending) is called at most once, from any thread, with a lock held that only these functions
 * take: it must be quick. ending: the server shuts down, so the answer is incomplete. Returns false if out of
 * memory; the answer then cannot be stopped this way. The id (may be "") and the owner are copied. */
bool srv_running_add(srv_running *running, const char *id, const char *owner,
                     void (*stop)(void *user, bool ending), void *user);
/* After it returns, stop() is not called any more. */
void srv_running_remove(srv_running *running, const void *user);
/* Returns false if this owner has no such answer; owner NULL: any owner. */
bool srv_running_stop(srv_running *running, const char *id, const char *owner);
/* Writes the ids of an owner's answers (NULL: of all), newest first, at most `limit`; returns their total
 * number. */
enum { SRV_RUNNING_ID = 64 };
int srv_running_list(srv_running *running, const char *owner, char (*ids)[SRV_RUNNING_ID], int limit);
/* Shutdown: stops all answers, including those added from now on. */
void srv_running_end(srv_running *running);

#endif
