/* Prompt: chooses the batch of a prompt by its cost (plan/prompt_cost.h). Every batch loads all experts that
 * it uses, so a large batch loads them less often. But its working memory takes space from permanent
 * experts. */
#ifndef MO_PLAN_PROMPT_H
#define MO_PLAN_PROMPT_H

#include "plan/prompt_cost.h"
#include "plan/request.h"

/* Makes the plan as mo_plan_make() does. If the model lists batches, the plan uses the one that finishes the
 * request (plan/request.h) first among those that MO_PLAN_TOKEN_WORTH allows, or a smaller one that is nearly
 * as good. Its sizes are entered into the model and the list is emptied. If no batch fits, the failure is
 * that of the smallest. The plan always reports the cost of a prompt and the reason for the batch. */
mo_status mo_plan_choose(mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                         mo_run_plan *out, mo_error *err);

#endif
