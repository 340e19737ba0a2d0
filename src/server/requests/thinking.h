/* Thinking: whether and how long a model should think before it answers, in all dialects. */
#ifndef SRV_THINKING_H
#define SRV_THINKING_H

#include "server/requests/parameters.h"

/* Reads reasoning_effort, reasoning, thinking, think, enable_thinking, the budgets, reasoning_format and
 * chat_template_kwargs. All names work in all dialects, so that none is ignored. */
bool srv_thinking_read(const srv_field *object, srv_parameters *p);

/* A level of effort; none disables thinking. */
bool srv_effort_read(srv_field f, srv_parameters *p);

#endif
