/* Make: decides where everything is and estimates the speed. Pure arithmetic on sizes and rates, so it can
 * plan for other machines too. */
#ifndef MO_PLAN_MAKE_H
#define MO_PLAN_MAKE_H

#include "plan/plan.h"

/* Makes the plan. More RAM never makes it slower, nor does more VRAM as long as VRAM is faster than CPU and
 * link together. MO_ENOMEM: the core (or buffers for its layers), the experts that one layer uses and the
 * staging do not fit; err says how much is needed and what to change. MO_EDEVICE: the device's ceiling is too
 * low for the parts with no other place; the model may still run without the device. MO_EINVAL: invalid sizes
 * or rates. On failure *out is unchanged. Any thread. */
mo_status mo_plan_make(const mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                       mo_run_plan *out, mo_error *err);

/* Recomputes the speed of a plan after its slots changed; with a device, for limits with ram_keeps. hits: for
 * each class the share of picks found in the upper tier (VRAM, or RAM without a device); NULL: evenly spread
 * routing. */
void mo_plan_estimate(const mo_plan_model *model, const mo_plan_limits *limits, const mo_rates *rates,
                      const double *hits, mo_run_plan *plan);

#endif
