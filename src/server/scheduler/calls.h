/* Calls: the tokens of sequences in which tools were called, by the ids of the calls. A client sends its history back as text in
 * which calls are written anew; with these tokens it continues exactly what the model wrote, and what is kept of it.
 * The oldest are forgotten.
 *
 * Any thread. */
#ifndef SRV_CALLS_H
#define SRV_CALLS_H

#include "moraine_server.h"

typedef struct srv_calls srv_calls;

/* NULL: no memory. */
srv_calls *srv_calls_open(void);
void srv_calls_close(srv_calls *calls); /* NULL is allowed */

/* A sequence that begins with `prompt` tokens of a prompt. Without memory it is not remembered. */
void srv_calls_add(srv_calls *calls, const char *id, const int32_t *tokens, size_t count, size_t prompt);
/* mo_free() *tokens. */
bool srv_calls_find(srv_calls *calls, const char *id, int32_t **tokens, size_t *count, size_t *prompt);

#endif
