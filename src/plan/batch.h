/* Batch: how many tokens go through the layers together, of those that a model lists. */
#ifndef MO_PLAN_BATCH_H
#define MO_PLAN_BATCH_H

#include "plan/plan.h"

/* The batches among which a plan chooses, growing, in sizes[MO_PLAN_BATCHES]; returns their number. None is longer than a prompt can
 * be, but for the last. */
int mo_plan_batch_sizes(int64_t context, int64_t *sizes);

/* The model, for which this batch is decided. */
mo_plan_model mo_plan_with_batch(const mo_plan_model *model, const mo_plan_batch *batch);

#endif
