/* Response history: what of a conversation a request for a response leaves to the server: the answer that it goes on from, and
 * items that it only names; and keeping the answer for those that come later. */
#ifndef SRV_RESPONSE_INPUT_H
#define SRV_RESPONSE_INPUT_H

#include "server/requests/generation.h"

/* Reads `previous_response_id` and `store` into g->history, and puts items that are kept in the place of references to them. */
bool srv_response_history_read(srv_generation *g, const srv_field *root);
/* Keeps the answer, whose JSON this is, if that was not declined. */
void srv_response_history_keep(srv_generation *g, const char *response, size_t length);

#endif
