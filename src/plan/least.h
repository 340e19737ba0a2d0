/* Least: the lowest ceilings with which a model runs. What one tier has to hold depends on the other: the KV cache
 * may be in either, and experts on their way take less VRAM in some arrangements of RAM. */
#ifndef MO_PLAN_LEAST_H
#define MO_PLAN_LEAST_H

#include "plan/plan.h"

/* With the other ceiling as it is, and without what other models hold. 0: none is high enough. For limits with ram_keeps. A batch
 * that was the plan's choice is the smallest of its list here. */
int64_t mo_plan_least_ram(const mo_plan_model *model, const mo_plan_limits *limits);
int64_t mo_plan_least_vram(const mo_plan_model *model, const mo_plan_limits *limits);

#endif
