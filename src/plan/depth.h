/* Depth: speed as the context fills. A plan's speed counts only the weights; attention reads more as the text
 * grows. Computes the cost of the KV cache for a token in an empty and in a full context, and for a prompt
 * step that ends a full context. */
#ifndef MO_PLAN_DEPTH_H
#define MO_PLAN_DEPTH_H

#include "plan/plan.h"

typedef struct mo_plan_depth {
    double empty, full;       /* tokens per second; 0: nothing to compute */
    double attention_seconds; /* reading the KV cache for a token at the end of a full context */
    /* tokens per second of the prompt step that ends a full context; 0: no device */
    double prompt_full;
} mo_plan_depth;

mo_plan_depth mo_plan_depth_of(const mo_plan_model *model, const mo_rates *rates, const mo_run_plan *plan);

#endif
