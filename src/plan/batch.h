/* Batch: how many tokens go through the layers together, of those that a model lists. */
#ifndef MO_PLAN_BATCH_H
#define MO_PLAN_BATCH_H

#include "plan/plan.h"

/* The model, for which this batch is decided. */
mo_plan_model mo_plan_with_batch(const mo_plan_model *model, const mo_plan_batch *batch);

#endif
