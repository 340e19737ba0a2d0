/* Thinking: whether and how long a model is to think before it answers, as every dialect asks for it. */
#ifndef SRV_THINKING_H
#define SRV_THINKING_H

#include "server/requests/parameters.h"

/* Reads reasoning_effort, reasoning, thinking, think, enable_thinking, the budgets, reasoning_format and chat_template_kwargs. All
 * names count in all dialects, so that none has no effect. */
bool srv_thinking_read(const srv_field *object, srv_parameters *p);

/* A level of effort: none switches thinking off. */
bool srv_effort_read(srv_field f, srv_parameters *p);

#endif
