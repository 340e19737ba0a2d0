/* Least: the lowest ceilings with which a model runs. The tiers depend on each other: the KV cache may be in
 * either, and some arrangements of RAM need less staging in VRAM. */
#ifndef MO_PLAN_LEAST_H
#define MO_PLAN_LEAST_H

#include "plan/plan.h"

/* With the other ceiling unchanged, and excluding memory held by other models. 0: no ceiling is high enough.
 * Requires limits with ram_keeps. If the plan chose the batch, the smallest of its list counts here. */
int64_t mo_plan_least_ram(const mo_plan_model *model, const mo_plan_limits *limits);
int64_t mo_plan_least_vram(const mo_plan_model *model, const mo_plan_limits *limits);

#endif
