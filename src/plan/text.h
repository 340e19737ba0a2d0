/* Plan text: the words of a plan. */
#ifndef MO_PLAN_TEXT_H
#define MO_PLAN_TEXT_H

#include "plan/plan.h"

/* "1.5 GiB", "512 B"; text holds at least 32 bytes and is returned. */
const char *mo_plan_size_text(int64_t bytes, char *text);

/* "resident", "slots" or "streamed". A constant. */
const char *mo_plan_mode_text(mo_plan_mode mode);

/* Why a model does not fit: plan holds the parts of the smallest arrangement, `used` their sum. Always
 * MO_ENOMEM. */
mo_status mo_plan_refuse(const mo_plan *plan, mo_error *err);

/* The same for the part on a device. Always MO_EDEVICE. */
mo_status mo_plan_refuse_device(const mo_plan_device *device, mo_error *err);

#endif
