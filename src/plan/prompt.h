/* Prompt: how many of its tokens should go through the layers together, by what that costs (plan/prompt_cost.h).
 * Every batch carries all experts that it uses from wherever they are, so a large one carries them less often; the memory it
 * works in is lost to experts that could stay. */
#ifndef MO_PLAN_PROMPT_H
#define MO_PLAN_PROMPT_H

#include "plan/prompt_cost.h"
#include "plan/request.h"

/* Makes the plan as mo_plan_make() does. A model that lists batches gets the one with which the request (plan/request.h) is done first of
 * those that MO_PLAN_TOKEN_WORTH allows, or a smaller one that is nearly as good; its sizes are entered into the model, and the list is emptied. Where none fits the
 * failure is that of the smallest. Either way the plan says what a prompt costs, and why the batch is what it is. */
mo_status mo_plan_choose(mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                         mo_run_plan *out, mo_error *err);

#endif
