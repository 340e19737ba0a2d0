/* Serving: how many sequences a server decodes at once, how many positions each has (the model's context, as
 * far as the plan allows), and how much memory cached prefixes get. */
#ifndef MO_PLAN_SERVING_H
#define MO_PLAN_SERVING_H

#include "moraine_server.h"

/* The result of trying a choice: its speed, and whether it uses a device. */
typedef struct mo_serving_plan {
    double tokens_s;
    bool device;
} mo_serving_plan;
typedef mo_status (*mo_serving_try)(void *user, const mo_server_plan *choice, mo_serving_plan *out,
                                    mo_error *err);

/* out->made_for is set by the caller. planned false: memory is not planned, the system has all of it. */
mo_status mo_plan_serving(const mo_server_request *asked, bool planned, mo_serving_try try, void *user,
                          mo_server_plan *out, mo_error *err);

#endif
