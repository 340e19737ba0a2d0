/* Window: how many sequences a model answers at once, how many positions each has (what the model was made for, as far as the
 * plan allows), and how much memory there is for prefixes that are kept. */
#ifndef SRV_WINDOW_H
#define SRV_WINDOW_H

#include "moraine_tools.h"

typedef struct srv_window {
    int64_t context; /* of one sequence */
    int parallel;
    int64_t made_for;                      /* what the file says; 0: nothing */
    int64_t kept_bytes, kept_device_bytes; /* for prefixes, besides what sequences do not use */
} srv_window;

/* What was asked for; 0: not said. */
typedef struct srv_window_asked {
    int64_t context, context_all; /* of one sequence; of all together */
    int parallel;
    int64_t kept_bytes; /* at most */
} srv_window_asked;

/* A plan's options as the model is, or would be, opened, but for its window. */
mo_plan_options srv_window_asks(const mo_model_options *loading);

/* Only headers are read. */
mo_status srv_window_choose(const char *path, const mo_model_options *loading, const srv_window_asked *asked,
                            srv_window *out, mo_error *err);

#endif
