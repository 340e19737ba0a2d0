/* Warm: computes a prompt before the first request, so that a client with the same prefix does not wait for it. */
#ifndef SRV_WARM_PROMPT_H
#define SRV_WARM_PROMPT_H

#include "server/http/routes.h"

/* Asks the server itself, with a chat request in JSON of which nothing is generated, and waits for the end. A failure is
 * logged: the server works all the same. */
void srv_warm_prompt(const srv_route_table *tables, const char *request);

#endif
