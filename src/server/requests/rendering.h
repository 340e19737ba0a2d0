/* Rendering: a conversation as the model will see it. */
#ifndef SRV_RENDERING_H
#define SRV_RENDERING_H

#include "server/requests/conversation.h"
#include "server/requests/parameters.h"
#include "server/requests/prompts.h"
#include "server/requests/tools.h"

typedef struct srv_rendering {
    char *text;
    size_t length;
    srv_tokens tokens;
    bool in_thought; /* it ends inside a thought: the answer goes on with it */
} srv_rendering;

/* Renders and tokenizes. given: variables for the template, a JSON object; NULL: none. False: the conversation makes no sense to the model's template, or memory ran out; fault says so. */
bool srv_rendering_make(const mo_model *model, const srv_conversation *conversation, const srv_tools *tools,
                        const srv_parameters *parameters, const char *given, srv_rendering *out,
                        srv_fault *fault);
void srv_rendering_free(srv_rendering *r);

#endif
