/* Make: decides what is where and how fast that will be. Pure arithmetic on sizes and rates, so another machine can be
 * planned for as well. */
#ifndef MO_PLAN_MAKE_H
#define MO_PLAN_MAKE_H

#include "plan/plan.h"

/* Makes the plan. More RAM never makes it slower, nor does more VRAM, as long as that is faster than CPU and link
 * together. MO_ENOMEM when the core (or buffers for its layers), one layer's experts in use and the staging do not fit:
 * err says how much is needed and what to change. MO_EDEVICE when a device's ceiling does not hold what has no other
 * place; without the device the model may still run. MO_EINVAL for sizes and rates that make no sense. On failure *out
 * is untouched. Any thread. */
mo_status mo_plan_make(const mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                       mo_run_plan *out, mo_error *err);

/* Fills the speed once more, of a plan whose slots were changed after it was made; with a device for limits with
 * ram_keeps. hits: for every class the share of its picks that find their expert in the upper tier (VRAM, or RAM without
 * a device); NULL: evenly spread routing. */
void mo_plan_estimate(const mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                      const double *hits, mo_run_plan *plan);

#endif
