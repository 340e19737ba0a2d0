/* Batch: how many tokens of a step go through the layers together. A model lists the candidates. */
#ifndef MO_PLAN_BATCH_H
#define MO_PLAN_BATCH_H

#include "plan/plan.h"

/* Stores the candidate batches in sizes[MO_PLAN_BATCHES] in ascending order and returns their number. Only
 * the last may be longer than the longest prompt. */
int mo_plan_batch_sizes(int64_t context, int64_t *sizes);

/* The model with this batch filled in. */
mo_plan_model mo_plan_with_batch(const mo_plan_model *model, const mo_plan_batch *batch);

#endif
