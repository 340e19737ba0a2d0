/* Serving: how many sequences a server decodes at once, how many positions each has (what the model was made for, as far as the plan
 * allows), and how much memory there is for cached prefixes. */
#ifndef MO_PLAN_SERVING_H
#define MO_PLAN_SERVING_H

#include "moraine_server.h"

/* Makes the plan of a choice. tokens_s: by the plan; device: it uses one. */
typedef struct mo_serving_plan {
    double tokens_s;
    bool device;
} mo_serving_plan;
typedef mo_status (*mo_serving_try)(void *user, const mo_server_plan *choice, mo_serving_plan *out,
                                    mo_error *err);

/* out->made_for is set; planned: false: nothing is, the system has the memory. */
mo_status mo_plan_serving(const mo_server_request *asked, bool planned, mo_serving_try try, void *user,
                          mo_server_plan *out, mo_error *err);

#endif
