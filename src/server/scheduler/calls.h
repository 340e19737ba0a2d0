/* Calls: the tokens of sequences with tool calls, by the ids of the calls. A client sends its history back as
 * text, in which calls are rendered anew. With these tokens the server continues exactly what the model wrote
 * and reuses the cached prefix. The oldest are dropped.
 *
 * Any thread. */
#ifndef SRV_CALLS_H
#define SRV_CALLS_H

#include "moraine_server.h"

typedef struct srv_calls srv_calls;

/* NULL: out of memory. */
srv_calls *srv_calls_open(void);
void srv_calls_close(srv_calls *calls); /* accepts NULL */

/* Adds a sequence that starts with `prompt` prompt tokens. Dropped if out of memory. */
void srv_calls_add(srv_calls *calls, const char *id, const int32_t *tokens, size_t count, size_t prompt);
/* The caller calls mo_free() on *tokens. */
bool srv_calls_find(srv_calls *calls, const char *id, int32_t **tokens, size_t *count, size_t *prompt);

#endif
