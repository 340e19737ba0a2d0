/* Warm prompt: computes a prompt before the first request, so that clients with the same prefix do not wait
 * for it. */
#ifndef SRV_WARM_PROMPT_H
#define SRV_WARM_PROMPT_H

#include "server/http/routes.h"

/* Sends a chat request in JSON, for which nothing is generated, to the server itself and waits. A failure is
 * only logged. */
void srv_warm_prompt(const srv_route_table *tables, const char *request);

#endif
