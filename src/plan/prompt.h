/* Prompt: what a prompt costs, by the plan's arithmetic, and how many of its tokens should go through the layers together.
 * Every batch carries all experts that it uses from wherever they are, so a large one carries them less often; the memory it
 * works in is lost to experts that could stay. */
#ifndef MO_PLAN_PROMPT_H
#define MO_PLAN_PROMPT_H

#include "plan/plan.h"
#include "plan/request.h"

/* How many bytes of weights a CPU multiplies with one token's row while it reads one byte from memory, where many tokens use it: 5
 * with AVX2 to 12 with AMX (Qwen3-30B on 16 cores). */
#define MO_PLAN_CPU_REUSE 6.0

/* Which share of a layer's experts is chosen by at least one of so many tokens. */
double mo_plan_share_used(double used, double experts, double tokens);

/* Seconds of a prompt of so many tokens in batches of model->batch, for a plan whose places are decided. Routing is taken as
 * evenly spread. It falls when more is in RAM or VRAM. Of keys and values it counts what crosses the link (plan/cold.h). */
double mo_plan_prompt_seconds(const mo_plan_model *model, const mo_rates *rates, const mo_plan *plan,
                              int64_t tokens);

/* The same of a single batch of so many tokens, without keys and values. */
double mo_plan_batch_seconds(const mo_plan_model *model, const mo_rates *rates, const mo_plan *plan,
                             double tokens);

/* Makes the plan as mo_plan_make() does. A model that lists batches gets the one with which the request (plan/request.h) is done first of
 * those that MO_PLAN_TOKEN_WORTH allows, or a smaller one that is nearly as good; its sizes are entered into the model, and the list is emptied. Where none fits the
 * failure is that of the smallest. Either way the plan says what a prompt costs, and why the batch is what it is. */
mo_status mo_plan_choose(mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                         mo_plan *out, mo_error *err);

#endif
