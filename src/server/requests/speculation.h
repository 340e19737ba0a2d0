/* Speculation: what a request says of guessed tokens: llama-server's speculative.* and OpenAI's prediction. No answer depends on it. */
#ifndef SRV_SPECULATION_H
#define SRV_SPECULATION_H

#include "server/requests/parameters.h"

/* Reads speculative.n_max, n_min, p_min and type, in all dialects. */
bool srv_speculation_read(const srv_field *object, srv_parameters *p);

/* Reads prediction; its tokens, at most the model's context, are tried as the answer's. */
bool srv_prediction_read(const srv_field *object, const mo_model *model, srv_parameters *p);

#endif
