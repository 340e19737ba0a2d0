/* Plan text: describes a plan in words. */
#ifndef MO_PLAN_TEXT_H
#define MO_PLAN_TEXT_H

#include "plan/plan.h"

/* "1.5 GiB", "512 B"; text holds at least 32 bytes and is returned. */
const char *mo_plan_size_text(int64_t bytes, char *text);

/* "resident", "slots", "streamed" or, if the layers that are not in RAM are in VRAM, "tiered". A constant. */
const char *mo_plan_mode_text(const mo_run_plan *plan);

/* Ceilings that would suffice. Like the given ones they are for the process: other models use a part of
 * them. */
typedef struct mo_plan_advice {
    int64_t ram, vram;  /* RAM; device memory; 0: no such ceiling helps alone */
    int64_t vram_there; /* free on the device; 0: not known */
    /* held by other models, part of `ram` and `vram`; not part of the plan's sizes */
    int64_t ram_held, vram_held;
    /* The current ceilings; lower than the held bytes if another model has a higher one. */
    int64_t ram_ceiling, vram_ceiling;
} mo_plan_advice;

/* Reports why a model does not fit; plan holds the parts of the smallest arrangement. If the advice has VRAM
 * too, both are needed. Always MO_ENOMEM. */
mo_status mo_plan_refuse(const mo_run_plan *plan, const mo_plan_advice *advice, mo_error *err);

/* The same for the device's part; either ceiling of the advice would suffice. Always MO_EDEVICE. */
mo_status mo_plan_refuse_device(const mo_plan_device *device, const mo_plan_advice *advice, mo_error *err);

#endif
