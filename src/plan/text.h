/* Plan text: the words of a plan. */
#ifndef MO_PLAN_TEXT_H
#define MO_PLAN_TEXT_H

#include "plan/plan.h"

/* "1.5 GiB", "512 B"; text holds at least 32 bytes and is returned. */
const char *mo_plan_size_text(int64_t bytes, char *text);

/* "resident", "slots", "streamed" or, where the layers that are not in RAM are in VRAM, "tiered". A constant. */
const char *mo_plan_mode_text(const mo_run_plan *plan);

/* Ceilings that would do. They are the process's, as those that were given: other models use a part of them. */
typedef struct mo_plan_advice {
    int64_t ram, vram;           /* of RAM; of a device's memory; 0: no such ceiling helps alone */
    int64_t vram_there;          /* what is free on the device; 0: not known */
    int64_t ram_held, vram_held; /* by other models, in `ram` and `vram`; not in what the plan says */
    /* The ceilings as they are: lower than what is held where another model has a higher one. */
    int64_t ram_ceiling, vram_ceiling;
} mo_plan_advice;

/* Why a model does not fit: plan holds the parts of the smallest arrangement. Where the advice has VRAM too, that is needed as
 * well. Always MO_ENOMEM. */
mo_status mo_plan_refuse(const mo_run_plan *plan, const mo_plan_advice *advice, mo_error *err);

/* The same for the part on a device; either ceiling of the advice would do. Always MO_EDEVICE. */
mo_status mo_plan_refuse_device(const mo_plan_device *device, const mo_plan_advice *advice, mo_error *err);

#endif
