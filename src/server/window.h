/* Window: how many sequences a model answers at once, and how many positions each has: what the model was made for, as far as
 * the plan allows. */
#ifndef SRV_WINDOW_H
#define SRV_WINDOW_H

#include "moraine.h"

typedef struct srv_window {
    int64_t context; /* of one sequence */
    int parallel;
    int64_t made_for; /* what the file says; 0: nothing */
} srv_window;

/* What was asked for: context of one, context_all of all together, parallel; 0: not said. Only headers are read. */
mo_status srv_window_choose(const char *path, const mo_model_options *loading, int64_t context,
                            int64_t context_all, int parallel, srv_window *out, mo_error *err);

#endif
