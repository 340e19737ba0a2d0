/* Window: how many sequences a model answers at once, how many positions each has (what the model was made for, as far as the
 * plan allows), and how much memory there is for prefixes that are kept. */
#ifndef SRV_CONTEXT_CHOICE_H
#define SRV_CONTEXT_CHOICE_H

#include "moraine_tools.h"

typedef struct srv_context_choice {
    int64_t context; /* of one sequence */
    int parallel;
    int64_t made_for;                      /* what the file says; 0: nothing */
    int64_t kept_bytes, kept_device_bytes; /* for prefixes, in addition to blocks that sequences do not use */
} srv_context_choice;

/* What was asked for; 0: not said. */
typedef struct srv_context_request {
    int64_t context, context_all; /* of one sequence; of all together */
    int parallel;
    int64_t kept_bytes; /* at most */
} srv_context_request;

/* A plan's options as the model is, or would be, opened, but for its window. */
mo_plan_options srv_context_plan_options(const mo_model_options *loading);

/* Only headers are read. */
mo_status srv_context_choose(const char *path, const mo_model_options *loading,
                             const srv_context_request *asked, srv_context_choice *out, mo_error *err);

#endif
