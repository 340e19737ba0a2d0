/* Depth: what the KV cache costs a token in an empty context and at the end of a full one, and a step of a prompt there. A plan's speed is that of the
 * weights; what attention reads grows with the text. */
#ifndef MO_PLAN_DEPTH_H
#define MO_PLAN_DEPTH_H

#include "plan/plan.h"

typedef struct mo_plan_depth {
    double empty, full;       /* tokens per second; 0: nothing to compute */
    double attention_seconds; /* of a token at the end: reading the KV cache */
    double
        prompt_full; /* tokens per second of a prompt's step that ends a full context; 0: without a device */
} mo_plan_depth;

mo_plan_depth mo_plan_depth_of(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan);

#endif
