/* Response history: the parts of a conversation that a request for a response leaves to the server: the
 * previous answer and items given by id. Also stores the answer for later requests. */
#ifndef SRV_RESPONSE_INPUT_H
#define SRV_RESPONSE_INPUT_H

#include "server/requests/generation.h"

/* Reads `previous_response_id` and `store` into g->history, and replaces item references by the stored
 * items. */
bool srv_response_history_read(srv_generation *g, const srv_field *root);
/* Stores the answer with this JSON, unless the request declined. */
void srv_response_history_keep(srv_generation *g, const char *response, size_t length);

#endif
