/* Speculation: request options for draft tokens: llama-server's speculative.* and OpenAI's prediction. They
 * never change an answer. */
#ifndef SRV_SPECULATION_H
#define SRV_SPECULATION_H

#include "server/requests/parameters.h"

/* Reads speculative.n_max, n_min, p_min and type, in all dialects. */
bool srv_speculation_read(const srv_field *object, srv_parameters *p);

/* Reads prediction. Its tokens, at most the model's context, are used as draft tokens. */
bool srv_prediction_read(const srv_field *object, const mo_model *model, srv_parameters *p);

#endif
